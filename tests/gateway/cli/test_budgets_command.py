"""`gridfed budgets`: the state of a budget in its table, in a word."""

import pytest

from gateway.api.views import budget_views
from gateway.cli.inspect.budgets import _row
from policies.costs.budgets import Budget, BudgetAccount
from policies.parties import read_party

UNIT = 10**9
OWNED = {"owner": "london"}


def budget_account(spent=0, held=0, **changes):
    made = BudgetAccount(Budget("b", read_party("ours"), "USD", 10 * UNIT, **changes), 1e9)
    made.spent_nanos, made.held_nanos = spent * UNIT, held * UNIT
    return made


@pytest.mark.parametrize(
    ("spent", "held", "changes", "lasts_s", "rule"),
    [
        (9, 0, {}, None, "hard"),
        (9, 1, {}, None, "hard, nothing left at present"),
        (10, 0, {}, None, "hard, exhausted"),
        (9, 0, {"is_hard": False}, None, "soft"),
        (12, 0, {"is_hard": False}, None, "soft, used up"),
        (9, 0, {"is_credit": True, "span": None}, None, "credit"),
        (9, 1, {"is_credit": True, "span": None}, None, "credit, nothing left at present"),
        (12, 0, {"is_credit": True, "span": None}, None, "credit, exhausted"),
        (0, 0, OWNED, 4.5, "slice from london, 4.5 s"),
        (0, 0, OWNED, 0.0, "slice from london, lapsed"),
    ],
)
def test_the_rule_says_whether_there_is_anything_left(spent, held, changes, lasts_s, rule):
    assert (
        _row(budget_views.standing(budget_account(spent, held, **changes), (), lasts_s))[-1] == rule
    )


def test_a_budget_for_good_begins_anew_never():
    row = _row(budget_views.standing(budget_account(span=None), (), None))
    assert row[:4] == ["b", "ours", "ever", "10.00 USD"]
    assert row[-2] == ""
