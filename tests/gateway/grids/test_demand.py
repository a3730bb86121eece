"""What there is to do in a pool that grows: not what its rules let begin only later."""

import pytest

from gateway import events
from gateway.broker import Broker
from gateway.events import JobSpec
from gateway.grids.demand import demand
from policies.asks import CHEAPEST
from policies.claims import NOTHING, Claim, Claims
from policies.hours import Hours, Weekdays
from policies.parties import ALL, Whose, read_party
from policies.reservations import Reservation, ReservationRules, State, overlay
from policies.tariffs import Tariff
from policies.weeks import EVERY_DAY
from policies.windows import Plan, Window, rules_at

DAY_S = 86_400.0
MIDNIGHT_S = 20_000 * DAY_S
SHUT = Window("shut", Hours(0, 3_600, Weekdays(EVERY_DAY)), Claims((Claim(ALL, borrows=NOTHING),)))


def spec(**changes):
    given = {"name": "f", "function": b"f" * 32, "detached": False, "user": "ann"}
    given |= {"project": "risk", "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0}
    given |= {"max_cost_nanos": None, "currency": None, "python": "3.11", "prints": False}
    return JobSpec(**(given | changes))


@pytest.mark.parametrize(
    ("into_the_hour_s", "tasks"),
    [(0.0, 0), (3_539.0, 0), (3_541.0, 5), (3_700.0, 5)],
    ids=["shut", "a start before the end", "open when a slot would be there", "open"],
)
def test_nothing_is_started_for_what_waits_until_a_window_opens(into_the_hour_s, tasks):
    now_s = MIDNIGHT_S + into_the_hour_s
    broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")})
    for event in (
        events.RulesTurned({"cloud": rules_at(Plan((SHUT,)), now_s)}),
        events.ClientJoined(1, "ann"),
        events.JobOpened(1, "j", spec(pool="cloud", slots_sold=3)),
        events.TasksArrived(1, "j", 0, [b"%d" % at for at in range(5)]),
    ):
        broker.handle(event, now_s)
    found = demand(broker, "cloud", now_s, 10.0, CHEAPEST, slots_max=9, start_s=60.0)
    assert (found.tasks, found.owed) == (tasks, min(3, tasks))


def reserved(state=State.BOOKED, from_s=MIDNIGHT_S + 600.0, slots=4):
    made = Reservation(
        "r1", "cloud", read_party("user:ann"), slots, from_s, from_s + 3_600.0, 10**9, "USD",
        Whose("ann"), made_s=MIDNIGHT_S, state=state, lease_s=MIDNIGHT_S + 30.0,
    )  # fmt: skip
    return overlay(rules_at(Plan(), MIDNIGHT_S), [made], ReservationRules(), MIDNIGHT_S)


@pytest.mark.parametrize(
    ("state", "at_s", "kept"),
    [
        (State.BOOKED, 530.0, 0),
        (State.BOOKED, 540.0, 4),
        (State.BOOKED, 4_199.0, 4),
        (State.BOOKED, 4_200.0, 0),
        (State.HELD, 540.0, 0),
    ],
    ids=["long before", "a start before it begins", "in it", "over", "nobody has booked it yet"],
)
def test_what_is_reserved_is_kept_from_a_start_before_it_begins(state, at_s, kept):
    broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")})
    broker.handle(events.RulesTurned({"cloud": reserved(state)}), MIDNIGHT_S)
    now_s = MIDNIGHT_S + at_s
    found = demand(broker, "cloud", now_s, 10.0, CHEAPEST, slots_max=9, start_s=60.0)
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
        given = demand(broker, "cloud", MIDNIGHT_S, 10.0, CHEAPEST, slots_max=9, start_s=60.0)
        return given.kept, given.tasks

    assert found() == (4, 2)
    broker.handle(events.WorkerJoined(1, "w", "cloud", 3, {}, "3.11"), MIDNIGHT_S)
    broker.settle(MIDNIGHT_S)
    assert found() == (1, 5)  # three of them run; one of the others is for the fourth
