"""Orders to end a job: stored before they are answered, obeyed after a restart. Pure objects."""

from dataclasses import replace

import pytest
from support.pure.broker import CLIENT, PRICE, WORKER, BrokerWorld, orders, spec, told, written

from federation.messages.messages import Answer, Recall
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.api.views.work_views import live_state, why_not_forgotten
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Expel, SendToClient, SendToWorker, Write
from gateway.scheduler.model.terms import JobHold
from policies.tariffs import Tariff

KEPT = spec(detached=True)
SELLER = 50  # the handle of a contract


def cancel(world, *, kill=False, client=CLIENT, ranges=()):
    return world.do(events.CancelAsked(client, 7, "j", ranges, kill))


def recovered(leaving="cancelled", total=4, ended=(), known=((0, 4),), reason="on request"):
    return events.JobRecovered(
        *("j", KEPT, total, ended, 0, 0, (), {}, 0, 0),
        leaving=leaving,
        reason=reason,
        known=known,
    )


def tasks_of(kept):
    return RangeSet((each.first, each.first + each.count) for each in kept)


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("kill", [True, False])
def test_an_order_to_cancel_is_durable_before_its_answer(detached, kill):
    world = BrokerWorld(slots=1)
    world.submit(3, detached=detached)
    effects = cancel(world, kill=kill)
    order = Write(records.EndOrdered("j", "cancelling", "cancelled on request"), durable=True)
    at = effects.index(order)
    answers = [n for n, each in enumerate(effects) if _is_answer(each)]
    assert all(at < number for number in answers)
    assert not written(cancel(world, kill=True), records.EndOrdered)  # once is enough


def _is_answer(effect):
    return isinstance(effect, SendToClient) and isinstance(effect.message, Answer)


def test_a_cancel_of_some_tasks_or_of_sold_work_orders_no_end():
    world = BrokerWorld(slots=1)
    world.submit(3, detached=True)
    assert not written(cancel(world, ranges=((2, 3),)), records.EndOrdered)

    sold = BrokerWorld(slots=1)
    sold.submit(3, detached=True, price=PRICE, path=("paris",))
    assert not written(cancel(sold), records.EndOrdered)
    assert sold.broker.jobs["j"].leaving == "cancelled"


def test_a_cancelled_job_comes_back_ending_and_begins_nothing():
    world = BrokerWorld(slots=4)
    assert not orders(world.do(recovered(ended=((1, 2),))))
    job = world.broker.jobs["j"]
    assert live_state(job) == "cancelling"
    assert "other sites have yet to say" in why_not_forgotten(job)
    effects = world.do(events.Ticked())
    assert not orders(effects)
    assert list(tasks_of(written(effects, records.OutcomeKept))) == [(0, 1), (2, 4)]
    (end,) = written(effects, records.JobEnded)
    assert (end.state, end.reason, end.cancelled) == ("cancelled", "on request", 3)
    assert not world.broker.jobs


def test_it_waits_for_its_sellers_and_has_no_end_before():
    world = BrokerWorld(slots=4)
    world.do(recovered())
    world.do(events.JobHeld("j", "c1", on=True))
    assert not written(world.do(events.Ticked()), records.JobEnded)
    assert "j" in world.broker.jobs
    world.do(events.JobHeld("j", "c1", on=False))
    (end,) = written(world.do(events.Ticked()), records.JobEnded)
    assert end.cancelled == 4


def test_a_client_that_opens_it_again_is_told_that_it_was_cancelled():
    world = BrokerWorld(slots=4)
    world.do(recovered())
    effects = world.do(events.JobOpened(CLIENT, "j", KEPT, again=True))
    (answer,) = told(effects, type(effects[0].message))
    assert (answer.code, answer.reason) == (Reason.JOB_NOT_FOUND, "on request")


def test_a_half_submitted_job_that_was_abandoned_stays_so_after_a_restart():
    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", KEPT))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"a", b"b"]))
    world.do(events.ClientGone(CLIENT))
    world.now_s += 120.0
    (order,) = written(world.do(events.Ticked()), records.EndOrdered)
    assert order.state == "ending"

    again = BrokerWorld(slots=1)
    again.do(recovered("abandoned", None, (), ((0, 2),), order.reason))
    assert live_state(again.broker.jobs["j"]) == "ending"
    effects = again.do(events.Ticked())
    assert not orders(effects)
    assert not written(effects, records.OutcomeKept)
    (end,) = written(effects, records.JobEnded)
    assert (end.state, end.reason) == ("abandoned", order.reason)


def test_a_job_that_its_client_left_goes_on_when_it_returns_and_is_not_ordered_to_end():
    world = BrokerWorld(slots=1)
    world.submit(3)
    assert not written(world.do(events.ClientGone(CLIENT)), records.EndOrdered)


def test_what_a_worker_reports_of_it_in_the_first_run_is_booked_as_ever():
    world = BrokerWorld(slots=1)
    (order,) = orders(world.submit(2, detached=True))
    cancel(world)
    effects = world.do(events.HandedBack(WORKER, order.assignment, ()))
    effects += world.report(replace(order, arguments=order.arguments[:1]))
    assert written(effects, records.UsageRecord)
    assert [each.state for each in written(effects, records.JobEnded)] == ["cancelled"]


# --- ordered after the restart, before the sellers are heard ------------------------------------


def come_back(leaving=""):
    """A recovered job of four tasks, of which a contract at Paris may hold some."""
    world = BrokerWorld(slots=4)
    world.do(events.JobHeld("j", "c1", on=True))
    known = ((0, 4),) if leaving else ()
    world.do(recovered(leaving=leaving, known=known, reason="on request" if leaving else ""))
    if not leaving:
        world.do(events.TasksArrived(0, "j", 0, [b"a", b"b", b"c", b"d"]))
    return world


def hear_paris(world, first=1, stop=3):
    """Paris says that it holds tasks 1 and 2; return its orders."""
    tariff = Tariff(10**7, "USD", "v")
    world.do(
        events.WorkerJoined(SELLER, "paris", "paris/local", 2, {}, "3.11", job="j", tariff=tariff)
    )
    effects = world.do(events.Resumed(SELLER, 77, ((first, stop),)))
    effects += world.do(events.JobHeld("j", "c1", on=False))
    return effects + world.do(events.Ticked())


def recalls(effects):
    return [
        (each.message.first, each.message.stop, each.message.kill)
        for each in effects
        if isinstance(each, SendToWorker) and isinstance(each.message, Recall)
    ]


@pytest.mark.parametrize("kill", [False, True])
def test_a_cancel_before_the_sellers_are_heard_waits_for_what_they_hold(kill):
    world = come_back()
    effects = cancel(world, kill=kill) + world.do(events.Ticked())
    assert any(map(_is_answer, effects))
    assert not written(effects, records.JobEnded)
    job = world.broker.jobs["j"]
    assert live_state(job) == "cancelling"

    effects += hear_paris(world)
    assert recalls(effects) == ([(1, 3, True)] if kill else [(1, 3, False)])
    assert "j" in world.broker.jobs, "Paris has yet to report the two"
    ended = RangeSet([(0, 4)]) if kill else RangeSet([(0, 1), (3, 4)])
    assert list(tasks_of(written(effects, records.OutcomeKept))) == list(ended)

    done = events.Reported(SELLER, 77, 1, [b"x", b"y"], wall_ns=2_000_000_000)
    effects = world.do(done)
    (used,) = written(effects, records.UsageRecord)
    assert used.wall_ns == 2_000_000_000, "what had begun is charged"
    (end,) = written(effects, records.JobEnded)
    assert (end.state, end.cancelled) == ("cancelled", 4 if kill else 2)


def test_a_cancel_ends_the_job_once_its_seller_is_given_up():
    world = come_back()
    cancel(world)
    world.do(events.JobHeld("j", "c1", on=False))
    (end,) = written(world.do(events.Ticked()), records.JobEnded)
    assert (end.state, end.cancelled) == ("cancelled", 4)


def test_a_job_that_is_being_cancelled_is_stopped_before_its_seller_is_heard():
    """The order to stop was lost: the seller was told to recall."""
    world = come_back(leaving="cancelled")
    cancel(world, kill=True)
    assert recalls(hear_paris(world)) == [(1, 3, True)]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("kill", [False, True])
def test_tasks_that_are_cancelled_before_their_seller_is_heard_are_stopped_there(kill, is_held):
    """The seller was told nothing, and its report was taken for a breach of the protocol."""
    world = come_back()
    if is_held:
        world.do(events.JobHoldAsked("j", JobHold("ann", 1_000.0)))
    effects = cancel(world, kill=kill, ranges=((1, 2),))
    (write,) = [each for each in effects if isinstance(each, Write)]
    assert write.durable
    assert list(tasks_of(written(effects, records.OutcomeKept))) == [(1, 2)]
    effects = hear_paris(world)
    assert recalls(effects) == [(1, 2, True)] + [(1, 3, False)] * is_held
    stopped = events.Reported(
        SELLER, 77, 1, [b""], [[0, "cancelled", "", b""]], wall_ns=1_000_000_000
    )
    done = events.Reported(SELLER, 77, 2, [b"y"], wall_ns=1_000_000_000)
    effects = world.do(stopped) + world.do(done)
    assert not [each for each in effects if isinstance(each, Expel)]
    used = written(effects, records.UsageRecord)
    assert [(each.first, each.state) for each in used] == [(1, "cancelled"), (2, "ok")]
    assert list(tasks_of(written(effects, records.OutcomeKept))) == [(2, 3)]


def test_such_a_cancel_is_obeyed_after_one_more_restart():
    world = BrokerWorld(slots=4)
    world.do(events.JobHeld("j", "c1", on=True))
    again = replace(recovered(leaving="", known=(), ended=((1, 2),)), cancelled=1)
    world.do(again)
    for first in (0, 2):
        calls = [b"x"] * (1 if first == 0 else 2)
        world.do(events.TasksArrived(0, "j", first, calls))
    assert recalls(hear_paris(world)) == [(1, 2, True)]
    assert world.broker.jobs["j"].cancelled == 1


def test_an_order_to_stop_all_is_obeyed_after_one_more_restart_before_the_seller_is_heard():
    """The ends of the tasks are stored in the turn of the order, also of those at sellers."""
    world = come_back()
    kept = written(cancel(world, kill=True), records.OutcomeKept)
    again = BrokerWorld(slots=4)
    again.do(events.JobHeld("j", "c1", on=True))
    again.do(recovered(ended=tuple(tasks_of(kept)), reason="on request"))
    assert recalls(hear_paris(again)) == [(1, 3, True)]
