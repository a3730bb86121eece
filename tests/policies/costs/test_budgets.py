"""Budgets and their scopes: the work they cover, the amounts held and left, and their texts."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.calendar.periods import PeriodLength
from policies.costs.budgets import (
    KILL_S,
    SLOT_TIME,
    Budget,
    BudgetAccount,
    earmark,
    money_room,
    named,
    note_short,
)
from policies.parties import Owner, read_party
from policies.tariffs import HOUR_NS, Tariff

UNIT = 10**9
LONDON = ZoneInfo("Europe/London")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON_S = at("2026-11-22T12:00")


def budget(party="ours", unit="USD", amount=100 * UNIT, **changes):
    return Budget("b", read_party(party), unit, amount, **changes)


def budget_account(*args, now_s=NOON_S, **changes):
    return BudgetAccount(budget(*args, **changes), now_s)


ADA = Owner("ada", "desk", "risk")
FROM_PARIS = Owner("bob@paris", "", "risk", "paris")


@pytest.mark.parametrize(
    ("party", "covers_ours", "covers_theirs"),
    [
        ("all", True, True),
        ("ours", True, False),
        ("others", False, True),
        ("user:ada", True, False),
        ("user:bob@paris", False, True),
        ("group:desk", True, False),
        ("project:risk", True, False),  # of paris' project london knows nothing
        ("project:other", False, False),
        ("site:paris", False, True),
        ("site:lyon", False, False),
    ],
)
def test_whose_work_is_paid_from_a_budget(party, covers_ours, covers_theirs):
    found = budget(party)
    assert (found.covers(ADA), found.covers(FROM_PARIS)) == (covers_ours, covers_theirs)


# A dollar an hour: an hour of a slot is a unit.
DOLLAR = Tariff(UNIT, "USD", "v")
SEC = UNIT // 3600  # of it, rounded down


@pytest.mark.parametrize(
    ("unit", "tariff", "limit_s", "task_s", "bound"),
    [
        # A time limit is an upper bound, with the time that stopping a task takes.
        ("USD", DOLLAR, 3600 - KILL_S, 1.0, UNIT),
        ("USD", DOLLAR, 10.0, None, -(-11 * UNIT // 3600)),
        # Without one so many times what is usual is held, or the time of what is unknown.
        ("USD", DOLLAR, None, 1800.0, UNIT),
        ("USD", DOLLAR, None, None, -(-60 * UNIT // 3600)),
        # What is free takes nothing, what is charged in other money can't be paid.
        ("USD", Tariff(0, "USD", "v"), 10.0, None, 0),
        ("USD", Tariff(UNIT, "EUR", "v"), 10.0, None, None),
        # A minimum counts, and so do steps.
        ("USD", Tariff(UNIT, "USD", "v", minimum_nanos=UNIT), 1.0, None, UNIT),
        ("USD", Tariff(UNIT, "USD", "v", step_ns=HOUR_NS), 1.0, None, UNIT),
        # A quota is about time, whatever it costs.
        (SLOT_TIME, Tariff(UNIT, "EUR", "v"), 9.0, None, 10 * UNIT),
        (SLOT_TIME, DOLLAR, None, 3.0, 6 * UNIT),
    ],
)
def test_what_a_task_is_taken_to_use_up(unit, tariff, limit_s, task_s, bound):
    assert budget(unit=unit).bound_nanos(tariff, limit_s, task_s) == bound


@given(
    price=st.integers(0, 10**12),
    minimum=st.integers(0, 10**9),
    step_ns=st.sampled_from([0, 1, 10**6, 10**9, HOUR_NS]),
    walls_ns=st.lists(st.integers(0, 10**10), min_size=1, max_size=6),
)
def test_tasks_never_cost_more_than_what_was_held_for_each(price, minimum, step_ns, walls_ns):
    tariff = Tariff(price, "USD", "v", minimum_nanos=min(minimum, price), step_ns=step_ns)
    each = tariff.most_nanos(max(walls_ns))
    assert tariff.charge_nanos(len(walls_ns), sum(walls_ns)) <= each * len(walls_ns)
    assert sum(tariff.charge_nanos(1, wall_ns) for wall_ns in walls_ns) <= each * len(walls_ns)


@pytest.mark.parametrize(
    ("spent", "held", "elsewhere", "each", "tasks", "fitting"),
    [
        (0, 0, 0, 10, 5, 5),
        (0, 0, 0, 30, 5, 3),
        (60, 30, 0, 10, 5, 1),
        (60, 31, 0, 10, 5, 0),
        (0, 0, 95, 10, 5, 0),
        (100, 0, 0, 10, 5, 0),
        (150, 0, 0, 10, 5, 0),
        (100, 0, 0, 0, 5, 5),  # what costs nothing needs no room
    ],
)
def test_a_hard_budget_has_room_for_so_many(spent, held, elsewhere, each, tasks, fitting):
    found = budget_account(amount=100)
    found.spent_nanos, found.held_nanos = spent, held
    found.elsewhere_nanos, found.lent_nanos = elsewhere // 2, elsewhere - elsewhere // 2
    assert found.fits(each, tasks) == fitting
    assert found.short_nanos == (each if fitting < tasks else 0)
    soft = budget_account(amount=100, is_hard=False)
    soft.spent_nanos = spent
    assert soft.fits(each, tasks) == tasks


@pytest.mark.parametrize(
    ("spent", "held", "one", "is_out"),
    [
        (0, 0, 1, False),
        (99, 0, 1, False),
        (100, 0, 1, True),
        (90, 0, 11, True),
        (0, 100, 50, False),  # what is held may come back
    ],
)
def test_a_budget_is_exhausted_when_no_more_can_come_of_it(spent, held, one, is_out):
    found = budget_account(amount=100)
    found.spent_nanos, found.held_nanos = spent, held
    assert found.is_exhausted(one) is is_out
    assert not budget_account(amount=100, is_hard=False).is_exhausted(1000)


def test_of_anothers_budget_only_its_owner_knows_that_it_is_exhausted():
    found = budget_account(amount=100, owner="london")
    assert (found.room_nanos, found.fits(10, 5), found.is_exhausted()) == (0, 0, False)
    found.allotted_nanos, found.is_open = 30, True
    assert (found.limit_nanos, found.fits(10, 5)) == (30, 3)
    found.spend(30, NOON_S)
    assert not found.is_exhausted()
    found.refused = "all is spent"
    assert found.is_exhausted()
    assert "london says: all is spent" in found.objection()
    assert found.used_up().endswith(" is used up; london says: all is spent")
    found.allotted_nanos, found.is_open = 60, False
    assert found.room_nanos == 0, "it has lapsed"


def test_a_new_period_begins_with_nothing_spent_and_what_is_held():
    found = budget_account(span=PeriodLength.MONTH, zone=LONDON)
    found.spend(70 * UNIT, NOON_S)
    found.held_nanos = 20 * UNIT
    before_s = at("2026-11-30T23:59:59")
    found.spend(UNIT, before_s)
    assert (found.period.key, found.spent_nanos) == ("2026-11", 71 * UNIT)
    found.spend(2 * UNIT, before_s + 1)
    assert (found.period.key, found.spent_nanos, found.held_nanos) == (
        "2026-12",
        2 * UNIT,
        20 * UNIT,
    )
    found.spend(UNIT, before_s)  # the clock was set back
    assert (found.period.key, found.spent_nanos) == ("2026-12", 3 * UNIT)
    assert found.total_nanos == 74 * UNIT


def test_people_are_told_anew_in_a_new_period():
    found = budget_account()
    found.was_told = True
    found.spend(5 * UNIT, found.period.end_at_s - 1)
    assert found.was_told
    found.spend(5 * UNIT, found.period.end_at_s)
    assert not found.was_told


def test_what_is_for_good_never_begins_anew():
    found = budget_account(span=None)
    found.spend(5 * UNIT, NOON_S)
    assert not found.turn(NOON_S + 1e9)
    assert (found.period, found.spent_nanos) == (None, 5 * UNIT)


def test_what_people_are_told_has_the_figure_and_the_time():
    found = budget_account("project:risk", zone=LONDON)
    found.spent_nanos, found.held_nanos = 100 * UNIT, 2 * UNIT
    found.elsewhere_nanos, found.lent_nanos = 3 * UNIT, 5 * UNIT
    assert found.objection() == (
        "the budget 'b' (project:risk) is exhausted: 100 USD of 100 USD is spent in "
        "2026-11, 3 USD at other sites, 5 USD is held by other sites, 2 USD is held for "
        "running work; the next period begins 2026-12-01 00:00 Europe/London"
    )
    quota = budget_account("user:ada", SLOT_TIME, 3600 * UNIT, span=None)
    assert quota.objection(UNIT * 10) == (
        "the quota 'b' (user:ada) is exhausted: 0 slot-s of 3600 slot-s is spent; a task "
        "may cost up to 10 slot-s"
    )
    credit = budget_account("site:paris", span=None, is_credit=True)
    credit.spent_nanos = 100 * UNIT
    assert named(credit.budget) == "the credit of paris"
    assert "paris owes 100 USD, of a credit limit of 100 USD" in credit.objection()


# --- contracts -----------------------------------------------------------------------------------


def test_a_contract_is_held_in_every_purse_that_pays_for_it():
    hard, soft, quota = (
        budget_account(amount=100),
        budget_account(amount=1, is_hard=False),
        budget_account(unit=SLOT_TIME),
    )
    budget_accounts = (hard, soft, quota)
    assert money_room(budget_accounts) == 100
    assert money_room((soft, quota)) is None
    held = earmark(budget_accounts, 70)
    assert [each.held_nanos for each in budget_accounts] == [70, 70, 0]
    assert earmark(budget_accounts, 31) is None
    assert [each.held_nanos for each in budget_accounts] == [70, 70, 0]
    held.use(50)
    assert [each.held_nanos for each in budget_accounts] == [20, 20, 0]
    held.use(50)  # more than was granted was refused before
    held.end()
    assert [each.held_nanos for each in budget_accounts] == [0, 0, 0]


def test_no_more_is_promised_than_a_promise_can_say():
    """For any amount that the owner of a budget lets us spend of it."""
    found = budget_account(owner="london")
    found.is_open, found.allotted_nanos = True, 10**37
    assert money_room([found]) == 2**63 - 1


def test_a_contract_of_a_former_life_is_held_whatever_there_is():
    found = budget_account(amount=100)
    found.spent_nanos = 90
    assert earmark((found,), 20) is None
    assert earmark((found,), 20, anyway=True) is not None
    assert (found.room_nanos, money_room((found,))) == (-10, 0)


def test_who_asks_for_money_where_there_is_none_is_noted():
    found = budget_account(amount=100, owner="london")
    note_short((found,), 140)
    note_short((found,), 120)
    assert (found.short_nanos, found.least_short_nanos) == (140, 120)
    own = budget_account(amount=100)
    note_short((own,), 100)
    assert own.short_nanos == 0  # it has room for that


# --- any interleaving ----------------------------------------------------------------------------


class Spending(RuleBasedStateMachine):
    """Jobs paid from several budgets, some of them shared; reports, losses, midnights."""

    def __init__(self):
        super().__init__()
        self.now_s = NOON_S
        self.budget_accounts = [
            budget_account(amount=100, span=PeriodLength.DAY),
            budget_account(amount=250, span=PeriodLength.MONTH),
            budget_account(unit=SLOT_TIME, amount=150, span=None),
        ]
        self.running = []  # (budget, nanos held) of each task
        self.marks = []
        self.spent = {}

    @rule(
        chosen=st.sets(st.integers(0, 2), min_size=1), each=st.integers(1, 40), n=st.integers(1, 9)
    )
    def begin(self, chosen, each, n):
        budget_accounts = [self.budget_accounts[at] for at in chosen]
        for one in budget_accounts:
            n = one.fits(each, n)
        for _ in range(n):
            for one in budget_accounts:
                one.held_nanos += each
            self.running.append([(one, each) for one in budget_accounts])

    @rule(most=st.integers(0, 80))
    def commit(self, most):
        found = earmark(self.budget_accounts, most)
        if found is not None:
            self.marks.append(found)

    @precondition(lambda self: self.marks)
    @rule(data=st.data(), nanos=st.integers(0, 80), is_last=st.booleans())
    def deliver(self, data, nanos, is_last):
        mark = data.draw(st.sampled_from(self.marks))
        nanos = min(nanos, mark.left_nanos)
        mark.use(nanos)
        for one in mark.budget_accounts:
            self.spend(one, nanos)
        if is_last:
            mark.end()
            self.marks.remove(mark)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), share=st.floats(0, 1), is_lost=st.booleans())
    def end(self, data, share, is_lost):
        task = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        for one, each in task:
            one.held_nanos -= each
            self.spend(one, 0 if is_lost else int(each * share))

    @rule(seconds=st.sampled_from([1.0, 3600.0, 40_000.0, 86_400.0, 1e6]))
    def pass_time(self, seconds):
        self.now_s += seconds

    def spend(self, one, nanos):
        one.spend(nanos, self.now_s)
        period = one.budget.period_at(self.now_s)
        key = one.budget.unit, one.budget.amount_nanos, period.key if period else ""
        self.spent[key] = self.spent.get(key, 0) + nanos

    @invariant()
    def nothing_is_overrun(self):
        for (_, amount, _), nanos in self.spent.items():
            assert nanos <= amount
        for one in self.budget_accounts:
            assert one.room_nanos >= 0


TestSpending = Spending.TestCase
