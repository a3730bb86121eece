"""Calls that refer to objects: only workers of the objects' host get them."""

from support.pure.broker import CLIENT, BrokerWorld, orders, spec

from federation.objects.manifests import SHA256
from gateway.base.tags import OBJECTS_TAG
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import HoldObjects

DIGEST = bytes([SHA256]) + b"d" * 32


def test_a_job_with_references_waits_for_a_worker_that_has_the_objects():
    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", spec(project="risk")))
    effects = world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"], (DIGEST,)))
    assert [each for each in effects if isinstance(each, HoldObjects)] == [
        HoldObjects("j", "risk", (DIGEST,))
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


def test_calls_of_a_job_that_is_over_hold_nothing():
    world = BrokerWorld(slots=1)
    effects = world.do(events.TasksArrived(CLIENT, "none", 0, [b"0"], (DIGEST,)))
    assert not any(isinstance(each, HoldObjects) for each in effects)
