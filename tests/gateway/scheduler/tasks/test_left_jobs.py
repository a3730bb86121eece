"""Orders about attached jobs whose client is away hold when it returns. Pure objects."""

from dataclasses import replace

import pytest
from support.pure.broker import CLIENT, PRICE, BrokerWorld, orders, spec, told, written

from federation.messages.messages import Answer, RejectJob
from federation.reasons import Reason
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import LogOrder, Write
from gateway.scheduler.model.stored_terms import stored_terms
from gateway.scheduler.model.terms import GivenPriority, JobHold

ROOT, OTHER, BACK = 8, 9, 10
BY_ROOT = "cancelled by root, the operator"
LOST = events.LeftJob("ann", "risk")


def away(**changes):
    """A world in which the client of job j has left before any of its tasks began."""
    world = BrokerWorld(slots=0)
    world.submit(3, **changes)
    world.do(events.ClientGone(CLIENT))
    assert not world.broker.jobs
    return arrive(world)


def arrive(world):
    world.do(events.ClientJoined(ROOT, "root", is_operator=True))
    world.do(events.ClientJoined(OTHER, "bob"))
    return world


def cancel(world, client=ROOT, left=None):
    return world.do(events.CancelAsked(client, 7, "j", (), False, left))


def come_back(world):
    world.do(events.ClientJoined(BACK, "ann"))
    effects = world.do(events.JobOpened(BACK, "j", spec(), again=True))
    return effects + world.do(events.TasksArrived(BACK, "j", 0, [b"0", b"1", b"2"]))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_cancel_is_stored_before_its_answer_and_the_client_hears_of_it(is_lost):
    world = arrive(BrokerWorld(slots=0)) if is_lost else away()
    effects = cancel(world, left=LOST if is_lost else None)
    write, *rest = effects
    assert write == Write(records.LeftJobCancelled("j", BY_ROOT), durable=True)
    (answer,) = told(rest, Answer)
    assert (answer.code, answer.value["taken"]) == ("", [])
    assert answer.value["title"].startswith("job j of ann, project risk, whose client is away")
    assert any(isinstance(each, LogOrder) and not each.is_refused for each in rest)

    world.join(2, 4)
    effects = come_back(world)
    assert orders(effects) == []
    heard, *_ = told(effects, RejectJob)
    assert (heard.code, heard.reason) == (Reason.JOB_NOT_FOUND, BY_ROOT)
    assert not written(cancel(world), records.LeftJobCancelled)  # once is enough


def test_strangers_and_ranges_cancel_no_job_of_an_absent_client():
    world = away()
    for client in (OTHER, 99):
        assert not written(cancel(world, client), records.LeftJobCancelled)
    ranged = events.CancelAsked(ROOT, 7, "j", ((0, 1),), True)
    assert not written(world.do(ranged), records.LeftJobCancelled)
    assert not written(cancel(world, OTHER, LOST), records.LeftJobCancelled)
    world.join(2, 4)
    assert orders(come_back(world))


@pytest.mark.parametrize("changes", [{"detached": True}, {"price": PRICE, "path": ("paris",)}])
def test_other_jobs_that_were_abandoned_stay_so(changes):
    world = BrokerWorld(slots=0)
    world.submit(3, **changes)
    world.do(events.ClientGone(CLIENT))
    world.now_s += 120.0
    world.do(events.Ticked())
    assert not world.broker.jobs
    assert world.broker.left_job("j") is None
    (answer,) = told(cancel(arrive(world)), Answer)
    assert answer.code == Reason.JOB_NOT_FOUND


def test_a_job_that_went_on_meanwhile_is_cancelled_as_any_other():
    world = BrokerWorld(slots=1)
    world.submit(3)
    effects = cancel(arrive(world), left=LOST)  # the books were read before it was opened again
    assert written(effects, records.EndOrdered)
    assert not written(effects, records.LeftJobCancelled)


def test_a_held_job_is_held_when_its_client_returns_and_another_priority_counts():
    world = away()
    hold = JobHold("root", 1_000.0, is_operators=True)
    terms = replace(spec(), hold=hold, given_priority=GivenPriority(5.0, "root"))
    (write,) = [e for e in world.do(events.LeftJobChanged("j", terms)) if isinstance(e, Write)]
    assert write.durable
    assert stored_terms(write.record.spec)["hold"] == hold
    world.join(2, 4)
    assert orders(come_back(world)) == []
    job = world.broker.jobs["j"]
    assert (job.spec.hold, job.spec.rank_priority) == (hold, 5.0)
    assert len(orders(world.do(events.JobHoldAsked("j", None)))) == 1


def test_a_job_whose_tasks_are_being_stopped_for_its_absent_client_is_held_as_well():
    world = BrokerWorld(slots=1)
    world.submit(3)
    world.do(events.ClientGone(CLIENT))
    assert world.broker.jobs["j"].leaving == "abandoned"
    effects = world.do(events.JobHoldAsked("j", JobHold("ann", 1_000.0)))
    (stored,) = written(effects, records.JobOpenedRecord)
    assert stored_terms(stored.spec)["hold"].by == "ann"
    assert orders(come_back(world)) == []
    assert world.broker.jobs["j"].spec.hold is not None
