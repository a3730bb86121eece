"""The work in a pool that grows: without work that its rules let begin only later."""

from math import inf

import pytest

from gateway.grids.scaling.demand import CLAIM_MAX_S, PilotShape, demand
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.terms import JobSpec
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.windows import Window, WindowPlan, rules_at
from policies.calendar.hours import Hours, Weekdays
from policies.calendar.weeks import EVERY_DAY
from policies.parties import ALL, Owner, read_party
from policies.placement.asks import CHEAPEST
from policies.placement.placement import CapacityOffer
from policies.reservations.reservations import (
    Reservation,
    ReservationRules,
    ReservationState,
    overlay,
)
from policies.tariffs import Tariff

DAY_S = 86_400.0
MIDNIGHT_S = 20_000 * DAY_S
SHUT = Window("shut", Hours(0, 3_600, Weekdays(EVERY_DAY)), Claims((Claim(ALL, borrows=NOTHING),)))


def spec(**changes):
    given = {"name": "f", "function": b"f" * 32, "detached": False, "user": "ann"}
    given |= {"project": "risk", "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0}
    given |= {"max_cost_nanos": None, "currency": None, "python": "3.11", "prints": False}
    return JobSpec(**(given | changes))


def offer(name="pool cloud", **tags):
    return CapacityOffer(name, "cloud", tags, "3.11", "USD")


def look(broker, now_s=MIDNIGHT_S, *offers, slots=1, is_dry=False):
    shape = PilotShape(offers or (offer(),), slots, start_s=60.0)
    return demand(
        *(broker, "cloud", now_s, 10.0, CHEAPEST), shape=shape, slots_max=9, is_dry=is_dry
    )


def broker_with(tasks, *happened, **changes):
    """A broker with one job of so many tasks, after some events."""
    tariffs = {"cloud": Tariff(40_000_000, "USD", "1"), "own": Tariff(0, "USD", "1")}
    broker = Broker(tariffs, {"pool cloud": offer(gpu=1)})
    for event in (
        *happened,
        events.ClientJoined(1, "ann"),
        events.JobOpened(1, "j", spec(**changes)),
        events.TasksArrived(1, "j", 0, [b"%d" % at for at in range(tasks)]),
    ):
        broker.handle(event, MIDNIGHT_S)
    return broker


@pytest.mark.parametrize(
    ("into_the_hour_s", "tasks"),
    [(0.0, 0), (3_539.0, 0), (3_541.0, 5), (3_700.0, 5)],
    ids=["shut", "a start before the end", "open when a slot would be there", "open"],
)
def test_nothing_is_started_for_what_waits_until_a_window_opens(into_the_hour_s, tasks):
    now_s = MIDNIGHT_S + into_the_hour_s
    broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")})
    for event in (
        events.RulesTurned({"cloud": rules_at(WindowPlan((SHUT,)), now_s)}),
        events.ClientJoined(1, "ann"),
        events.JobOpened(1, "j", spec(pool="cloud", slots_sold=3)),
        events.TasksArrived(1, "j", 0, [b"%d" % at for at in range(5)]),
    ):
        broker.handle(event, now_s)
    found = look(broker, now_s)
    assert (found.tasks, found.owed) == (tasks, min(3, tasks))


def test_in_a_dry_run_counts_what_could_be_done_there():
    """No plan gives the pool anything then, so all fitting tasks that wait are counted."""
    broker = broker_with(20, events.WorkerJoined(7, "w", "own", 1, {}, "3.11"), task_s=30.0)
    broker.handle(events.PlacesChosen("j", {"own": inf}), MIDNIGHT_S)
    assert look(broker).tasks == 0
    found = look(broker, is_dry=True)
    assert (found.tasks, found.slot_s) == (18, 540.0), "two are done before a slot could be there"
    assert look(broker, MIDNIGHT_S, offer("x", linux=True), is_dry=True).tasks == 18


@pytest.mark.parametrize("is_dry", [False, True])
def test_what_no_pilot_can_do_is_no_work(is_dry):
    broker = broker_with(20, pool="cloud", tags={"gpu": 1})
    assert look(broker, MIDNIGHT_S, offer(gpu=1), is_dry=is_dry).tasks == 20
    found = look(broker, MIDNIGHT_S, offer("worker a.0"), is_dry=is_dry)
    assert found.tasks == 0
    if not is_dry:
        assert (found.stranded, found.stranded_why) == (20, "has no tag gpu=1")


@pytest.mark.parametrize(
    ("wants", "slots", "spread", "slot_s"),
    [
        ({"gpu": 1}, 4, 60, 800.0),
        ({"gpu": 0.5}, 4, 20, 400.0),
        ({"gpu": 0.1}, 4, 0, 200.0),
        ({"gpu": 1}, 1, 0, 200.0),
        ({}, 4, 0, 200.0),
    ],
)
def test_what_is_counted_of_a_pilot_keeps_its_other_slots_idle(wants, slots, spread, slot_s):
    broker = broker_with(20, pool="cloud", tags=wants)
    found = look(broker, MIDNIGHT_S, offer(gpu=1), slots=slots)
    assert (found.tasks, found.spread, found.slot_s) == (20, spread, slot_s)


def test_what_runs_keeps_its_pilots_other_slots_too():
    joined = events.WorkerJoined(7, "a.0", "cloud", 4, {"gpu": 1}, "3.11")
    broker = broker_with(20, joined, pool="cloud", tags={"gpu": 1})
    broker.handle(events.FunctionArrived(b"f" * 32), MIDNIGHT_S)
    broker.settle(MIDNIGHT_S)
    assert broker.workers[7].in_flight == 1
    found = look(broker, MIDNIGHT_S, offer(gpu=1), slots=4)
    assert (found.tasks, found.at_once) == (20, 80)


@pytest.mark.parametrize(("task_s", "tasks", "least_s"), [(600.0, 0, 0.0), (599.0, 20, 599.0)])
def test_what_takes_longer_than_a_pilot_is_there_starts_none(task_s, tasks, least_s):
    shape = PilotShape((offer(),), 1, start_s=60.0, limit_s=600.0)
    broker = broker_with(20, pool="cloud", task_s=task_s)
    found = demand(broker, "cloud", MIDNIGHT_S, 10.0, CHEAPEST, shape=shape, slots_max=9)
    assert (found.tasks, found.stranded, found.least_s) == (tasks, 20 - tasks, least_s)
    if not tasks:
        words = "is stopped by its grid after 10 min, which is too short for a task"
        assert (found.stranded_why, found.stranded_jobs) == (words, ("j",))


def test_another_sites_word_for_how_long_its_tasks_take_is_bounded_and_then_measured():
    sold = {"pool": "cloud", "path": ("rome",), "task_s": 1e6, "slots_sold": 8}
    broker = broker_with(20, **sold)
    found = look(broker)
    assert (found.slot_s, found.owed) == (20 * CLAIM_MAX_S, 8)
    assert look(broker_with(20, **(sold | {"path": ()}))).slot_s == 2e7, (
        "our own users are believed"
    )
    broker.durations.learn(b"f" * 32, 100, 100 * 10**9)
    found = look(broker)
    assert (found.slot_s, found.owed) == (pytest.approx(20.0), 1), "a start takes longer than that"


def reserved(state=ReservationState.BOOKED, from_s=MIDNIGHT_S + 600.0, slots=4):
    made = Reservation(
        "r1", "cloud", read_party("user:ann"), slots, from_s, from_s + 3_600.0, 10**9, "USD",
        Owner("ann"), made_at_s=MIDNIGHT_S, state=state, held_until_s=MIDNIGHT_S + 30.0,
    )  # fmt: skip
    return overlay(rules_at(WindowPlan(), MIDNIGHT_S), [made], ReservationRules(), MIDNIGHT_S)


@pytest.mark.parametrize(
    ("state", "at_s", "kept"),
    [
        (ReservationState.BOOKED, 530.0, 0),
        (ReservationState.BOOKED, 540.0, 4),
        (ReservationState.BOOKED, 4_199.0, 4),
        (ReservationState.BOOKED, 4_200.0, 0),
        (ReservationState.HELD, 540.0, 0),
    ],
    ids=["long before", "a start before it begins", "in it", "over", "nobody has booked it yet"],
)
def test_what_is_reserved_is_kept_from_a_start_before_it_begins(state, at_s, kept):
    broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")})
    broker.handle(events.RulesTurned({"cloud": reserved(state)}), MIDNIGHT_S)
    now_s = MIDNIGHT_S + at_s
    found = look(broker, now_s)
    assert (found.kept, found.tasks, found.owed) == (kept, 0, 0)


def test_what_reserved_slots_will_do_starts_no_others_and_what_they_do_keeps_no_others():
    broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")})
    for event in (
        events.RulesTurned({"cloud": reserved(from_s=MIDNIGHT_S)}),
        events.ClientJoined(1, "ann"),
        events.JobOpened(1, "j", spec(pool="cloud")),
        events.TasksArrived(1, "j", 0, [b"%d" % at for at in range(6)]),
    ):
        broker.handle(event, MIDNIGHT_S)

    def found():
        given = look(broker)
        return given.kept, given.tasks

    assert found() == (4, 2)
    broker.handle(events.WorkerJoined(1, "w", "cloud", 3, {}, "3.11"), MIDNIGHT_S)
    broker.settle(MIDNIGHT_S)
    assert found() == (1, 5)  # three of them run; one of the others is for the fourth
