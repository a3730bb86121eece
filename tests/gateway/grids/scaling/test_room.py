"""Slots for which no work is admitted are not asked for: by claims, entitlements and money."""

import pytest

from gateway.grids.scaling.demand import PilotShape, demand
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.terms import JobSpec
from policies.access.claims import NOTHING, Amount, Claim, Claims
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.windows import Window, WindowPlan, rules_at
from policies.calendar.hours import Hours, Weekdays
from policies.calendar.periods import PeriodLength
from policies.calendar.weeks import EVERY_DAY
from policies.costs.budgets import Budget
from policies.parties import ALL, read_party
from policies.placement.asks import CHEAPEST
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

NOON_S = 1_700_049_600.0
DAY_S = 86_400.0
UNIT = 10**9
PRICE = Tariff(3_600 * UNIT, "USD", "1")  # a slot-second costs a unit
SHAPE = PilotShape((CapacityOffer("pool cloud", "cloud", {}, "3.11", "USD"),), 1, start_s=60.0)
ALL_DAY = Hours(0, 86_400, Weekdays(EVERY_DAY))


def spec(**changes):
    given = {"name": "f", "function": b"f" * 32, "detached": False, "user": "ann"}
    given |= {"project": "risk", "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0}
    given |= {"max_cost_nanos": None, "currency": None, "python": "3.11", "prints": False}
    return JobSpec(**(given | changes))


class World:
    """A broker whose one pool has no slots yet, and jobs of a hundred tasks that wait for it."""

    def __init__(self, *happened, budgets=()):
        self.now_s = NOON_S
        budget_accounts = BudgetAccounts(budgets, {}, NOON_S)
        self.broker = Broker(
            {"cloud": PRICE}, {"pool cloud": SHAPE.offers[0]}, budget_accounts=budget_accounts
        )
        self.do(*happened, events.ClientJoined(1, "ann"), events.FunctionArrived(b"f" * 32))

    def do(self, *happened):
        for event in happened:
            self.broker.handle(event, self.now_s)
        self.broker.settle(self.now_s)

    def submit(self, job="j", tasks=100, **changes):
        calls = [b"%d" % at for at in range(tasks)]
        opened = events.JobOpened(1, job, spec(pool="cloud", **changes))
        self.do(opened, events.TasksArrived(1, job, 0, calls))

    def slots(self):
        found = demand(
            *(self.broker, "cloud", self.now_s, 10.0, CHEAPEST), shape=SHAPE, slots_max=50
        )
        return found.at_once


def entitled(*rules):
    return events.EntitlementsKnown(Entitlements(rules, "site.toml"), {"cloud": frozenset()})


def rule(who, **limits):
    return EntitlementRule(True, (read_party(who),), frozenset(), frozenset(), **limits)


def claimed(*claims):
    plan = WindowPlan((Window("day", ALL_DAY, Claims(claims)),))
    return events.RulesTurned({"cloud": rules_at(plan, NOON_S)})


def worker(slots):
    return events.WorkerJoined(7, "w", "cloud", slots, {}, "3.11")


@pytest.mark.parametrize(
    ("happened", "slots"),
    [
        ((), 200),
        ((entitled(rule("project:risk", slots_max=2)),), 2),
        ((entitled(rule("project:risk", user_slots_max=2)),), 4),
        ((entitled(rule("all")),), 200),
        ((claimed(Claim(read_party("project:risk"), Amount(3), borrows=NOTHING)),), 3),
        ((claimed(Claim(ALL, Amount(7), borrows=NOTHING)),), 7),
    ],
    ids=["all", "a team's", "each user's", "no limit", "a claim", "everybody's"],
)
def test_no_more_slots_than_their_owners_may_have(happened, slots):
    world = World(*happened)
    world.submit("a", user="ann")
    world.submit("b", user="bob")
    assert world.slots() == slots
    world.do(worker(1))
    assert world.broker.workers[7].in_flight == 1
    assert world.slots() == slots, "what runs has its part of them"


def budget(amount, **changes):
    return Budget(
        "b", read_party("user:ann"), "USD", amount * UNIT, span=PeriodLength.DAY, **changes
    )


def test_what_waits_for_the_next_days_budget_keeps_no_slots():
    world = World(budgets=[budget(100)])
    world.submit(timeout_s=10.0)
    assert 0 < world.slots() < 10
    budget_account = world.broker.budget_accounts.own["b"]
    budget_account.spent_nanos = 100 * UNIT
    assert world.slots() == 0
    world.now_s += DAY_S
    world.do(events.Ticked())
    assert world.slots() > 0, "and begins anew with it"


def test_a_budget_that_only_counts_starts_as_many():
    world = World(budgets=[budget(1, is_hard=False)])
    world.submit(timeout_s=10.0)
    assert world.slots() == 100


def test_no_more_slots_than_a_jobs_cost_limit_pays_tasks_for():
    world = World()
    world.submit(task_s=10.0, max_cost_nanos=30 * UNIT, currency="USD")
    assert world.slots() == 3
