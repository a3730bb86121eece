"""Budgets that are changed while they count: the amount may change, the scope may not."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from gateway.api.budget_amendments import amend, amend_credit
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import SLOT_TIME, Budget, Running, Waiting
from policies.parties import Owner, read_party

UNIT = 10**9
OWN = Budget("b", read_party("ours"), "USD", 10 * UNIT, sites=frozenset({"paris"}))
OTHERS = Budget("c", read_party("ours"), "USD", 10 * UNIT, owner="london")


@pytest.mark.parametrize(
    ("budget", "changes", "told"),
    [
        (OWN, {"amount_nanos": 20 * UNIT}, ("b", "amount", "10 USD", "20 USD")),
        (OTHERS, {"amount_nanos": 5 * UNIT}, ("c", "slice", "10 USD", "5 USD")),
        (OWN, {"running": Running.STOP}, ("b", "running", "finish", "stop")),
        (OWN, {"waiting": Waiting.END}, ("b", "waiting", "wait", "end")),
        (OWN, {"factor": 3.0}, ("b", "factor", "2.0", "3.0")),
        (OWN, {"unknown_s": 5.0}, ("b", "unknown_s", "60.0", "5.0")),
        (OWN, {"slice_s": 60.0}, ("b", "slice_s", "300.0", "60.0")),
        (OWN, {"sites": frozenset({"x", "a"})}, ("b", "sites", "paris", "a, x")),
        (OWN, {"sites": frozenset()}, ("b", "sites", "paris", "none")),
    ],
)
def test_how_much_there_is_and_what_then_is_taken_in(budget, changes, told):
    new = replace(budget, **changes)
    found = amend([budget], [new])
    assert (found.taken, found.told, found.later) == ((new,), [told], [])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"party": read_party("user:ann")}, "who"),
        ({"unit": "EUR"}, "amount, in another unit"),
        ({"unit": SLOT_TIME}, "amount, in another unit"),
        ({"span": PeriodLength.DAY}, "period"),
        ({"span": None}, "period"),
        ({"zone": ZoneInfo("Europe/Paris")}, "zone"),
        ({"is_hard": False}, "hard"),
        ({"owner": "london"}, "owner"),
    ],
)
def test_one_that_is_to_count_something_else_stays_as_it_is_whole(changes, key):
    found = amend([OWN], [replace(OWN, amount_nanos=99, **changes)])
    assert (found.taken, found.told, found.later) == ((OWN,), [], [f"[[budget]] b: {key}"])


def test_one_that_is_new_or_gone_counts_after_a_restart():
    found = amend([OWN], [OTHERS])
    assert (found.taken, found.told) == ((OWN,), [])
    assert found.later == ["[[budget]] b, which is removed", "[[budget]] c, which is new"]


def test_the_same_is_no_change():
    found = amend([OWN, OTHERS], [OTHERS, OWN])
    assert (found.taken, found.told, found.later) == ((OWN, OTHERS), [], [])


@pytest.mark.parametrize(
    "new",
    [{}, {"*": ((1, "USD"),)}, {"paris": ((1, "EUR"),)}, {"paris": ((1, "USD"), (1, "EUR"))}],
)
def test_credit_of_others_or_in_other_currencies_counts_after_a_restart(new):
    now = {"paris": ((1, "USD"),)}
    found = amend_credit(now, new)
    assert (found.taken, found.told, found.later) == (now, [], ["[credit]"])


def test_purses_go_on_with_another_amount():
    now = {"paris": ((2 * UNIT, "USD"), (1, "EUR")), "*": ((3, "USD"),)}
    new = {"paris": ((9 * UNIT, "USD"), (1, "EUR")), "*": ((4, "USD"),)}
    budget_accounts = BudgetAccounts([OWN, OTHERS], now)
    pay = [*budget_accounts.of(Owner("eve@paris", site="paris")), *budget_accounts.of(Owner("ann"))]
    before = [budget_account.limit_nanos for budget_account in pay]
    for budget_account in budget_accounts:
        budget_account.spend(UNIT, 0.0)
    credit = amend_credit(now, new)
    assert credit.told == [
        ("credit of paris", "amount", "2 USD", "9 USD"),
        ("credit of *", "amount", "0.000000003 USD", "0.000000004 USD"),
    ]
    budgets = amend([OWN, OTHERS], [replace(OWN, amount_nanos=30 * UNIT), OTHERS])
    budget_accounts.take_in(budgets.taken, credit.taken)
    assert before == [2 * UNIT, 1, 10 * UNIT, 0]
    assert [budget_account.limit_nanos for budget_account in pay] == [9 * UNIT, 1, 30 * UNIT, 0]
    assert [budget_account.spent_nanos for budget_account in pay] == [UNIT] * 4
    assert [
        budget_account.limit_nanos
        for budget_account in budget_accounts.of(Owner("eve@lyon", site="lyon"))
    ] == [4]
