"""Calls that refer to objects: only workers of the objects' host get them."""

from dataclasses import replace

import pytest
from support.pure.broker import CLIENT, WORKER, BrokerWorld, orders, spec

from federation.messages.messages import OpenJob
from federation.objects.left import left_value
from federation.objects.manifests import SHA256
from gateway.base.tags import OBJECTS_TAG
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import HoldObjects, TakeObjects
from gateway.scheduler.model.intake import BadJob, job_event

DIGEST = bytes([SHA256]) + b"d" * 32


def test_a_job_with_references_waits_for_a_worker_that_has_the_objects():
    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", spec(project="risk")))
    effects = world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"], (DIGEST,)))
    assert [each for each in effects if isinstance(each, HoldObjects)] == [
        HoldObjects("j", "risk", (DIGEST,), (0, 1))
    ]
    assert orders(effects) == []
    (order,) = orders(world.join(7, tags={OBJECTS_TAG: True}))
    assert (order.first, order.objects) == (0, "risk")


def test_the_job_holds_its_objects_before_any_worker_gets_its_tasks():
    world = BrokerWorld(slots=1, tags={OBJECTS_TAG: True})
    world.do(events.JobOpened(CLIENT, "j", spec()))
    effects = world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"], (DIGEST,)))
    kinds = [type(each).__name__ for each in effects]
    assert kinds.index("HoldObjects") < kinds.index("SendToWorker")


def test_tasks_that_came_before_go_anywhere_and_later_ones_do_not():
    world = BrokerWorld(slots=1)
    (first,) = orders(world.submit(1))
    assert first.objects == ""
    world.do(events.TasksArrived(CLIENT, "j", 1, [b"1"], (DIGEST,)))
    assert orders(world.report(first)) == []


def left(effects):
    return [each for each in effects if isinstance(each, TakeObjects)]


def test_a_worker_of_the_objects_host_leaves_results_there_and_others_do_not():
    world = BrokerWorld(slots=1, tags={OBJECTS_TAG: True})
    world.do(events.JobOpened(CLIENT, "j", spec(project="risk", results="auto")))
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"])))
    assert (order.objects, order.results, order.project) == ("", "auto", "risk")
    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", spec(project="risk", results="auto")))
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"])))
    assert (order.objects, order.results, order.project) == ("", "", "")


def test_left_results_are_handed_to_the_client_before_it_hears_of_them():
    world = BrokerWorld(slots=1, tags={OBJECTS_TAG: True})
    world.do(events.JobOpened(CLIENT, "j", spec(project="risk", results="auto")))
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"])))
    values = [left_value(DIGEST, 10)]
    report = events.Reported(WORKER, order.assignment, 0, values, left=True)
    effects = world.do(report)
    assert left(effects) == [TakeObjects(CLIENT, "j", "risk", (DIGEST,))]
    kinds = [type(each).__name__ for each in effects]
    assert kinds.index("TakeObjects") < kinds.index("SendToClient")
    (told,) = [each.message for each in effects if type(each).__name__ == "SendToClient"]
    assert (told.left, told.values) == (True, values)
    assert left(world.do(report)) == []  # a late twin


def test_the_wish_for_references_needs_a_worker_of_the_objects_host():
    opening = OpenJob(
        *("j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}),
        results="ref",
    )
    found = job_event(opening, CLIENT, "ann").spec
    assert (found.results, found.tags) == ("ref", {OBJECTS_TAG: True})
    for wrong in (replace(opening, results="all"), replace(opening, detached=True)):
        with pytest.raises(BadJob, match="results"):
            job_event(wrong, CLIENT, "ann")


def test_calls_of_a_job_that_is_over_hold_nothing():
    world = BrokerWorld(slots=1)
    effects = world.do(events.TasksArrived(CLIENT, "none", 0, [b"0"], (DIGEST,)))
    assert not any(isinstance(each, HoldObjects) for each in effects)
