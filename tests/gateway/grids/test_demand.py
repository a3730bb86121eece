"""What there is to do in a pool that grows: not what its rules let begin only later."""

import pytest

from gateway import events
from gateway.broker import Broker
from gateway.events import JobSpec
from gateway.grids.demand import demand
from policies.asks import CHEAPEST
from policies.claims import NOTHING, Claim, Claims
from policies.hours import Hours, Weekdays
from policies.parties import ALL
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
