"""When people are told, and when not again."""

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calendar.periods import Period, PeriodLength
from policies.costs.alerts import (
    AlertBudget,
    AlertScope,
    AlertSpending,
    Facts,
    Mark,
    OverdueDeliveries,
    PoolPrice,
    PriceLimit,
    Unacknowledged,
    ended,
    judge,
    overlooked,
    printable,
    sample,
)

MONTH = Period("2026-11", 1_000_000.0, 2_000_000.0)
NEXT = Period("2026-12", 2_000_000.0, 3_000_000.0)
USD = 10**9


def budget(**fields):
    return AlertBudget(**{"name": "desk", "amount_nanos": 100 * USD, "currency": "USD", **fields})


def spent(units, held=0, period=MONTH, now_s=1_500_000.0):
    return Facts(now_s, {"desk": AlertSpending(period, units * USD, held * USD)})


def levels(alerts):
    return [alert.mark.level for alert in alerts]


def test_a_budget_tells_at_each_level_what_is_settled_and_what_is_held():
    (alert,) = judge([budget(whose=AlertScope.PROJECT, of="risk")], spent(60, held=15), ())
    assert alert.mark == Mark("desk", "2026-11 100 USD", 50)
    assert alert.text == (
        "desk: project risk, 2026-11: 50 % of 100 USD is reached (60.0 %): 45 USD settled, "
        "15 USD held; estimated 120 USD by the end of the period"
    )
    assert (alert.facts["settled_nanos"], alert.facts["held_nanos"]) == (45 * USD, 15 * USD)
    assert alert.facts["estimate_nanos"] == 120 * USD


def test_what_was_spent_in_another_currency_is_named_and_does_not_count():
    others = {"GBP": 3 * USD, "EUR": 400 * USD}
    facts = Facts(1_000_000.0, {"desk": AlertSpending(MONTH, 60 * USD, 0, others)})
    (alert,) = judge([budget()], facts, ())
    assert alert.text.endswith("; 400 EUR, 3 GBP in other currencies does not count")
    assert alert.facts["others_nanos"] == others
    # Also where no level is reached, as nothing of it counts.
    facts = Facts(1_000_000.0, {"desk": AlertSpending(MONTH, 0, 0, others)})
    assert judge([budget()], facts, ()) == []
    assert overlooked(budget(), facts) == {
        "2026-11 EUR GBP": "all users, 2026-11: 400 EUR, 3 GBP was spent in other currencies, "
        "and does not count for a budget in USD"
    }
    assert overlooked(budget(), spent(60)) == {}
    assert overlooked(budget(), Facts(0.0)) == {}


def test_a_price_that_nothing_is_compared_with_is_told():
    rule = PriceLimit("dear", 5, "USD", site="paris", pool="gpu")
    euros, dollars = (PoolPrice("paris", "gpu", 9, currency) for currency in ("EUR", "USD"))
    others = PoolPrice("paris", "cpu", 9, "USD"), PoolPrice("rome", "gpu", 9, "USD")
    assert overlooked(rule, Facts(0.0, prices=others)) == {
        "paris/gpu": "no pool paris/gpu is known: the rule watches nothing until the pool appears"
    }
    assert overlooked(rule, Facts(0.0, prices=(*others, euros))) == {
        "paris/gpu": "paris/gpu is priced in EUR, and the limit is in USD"
    }
    assert overlooked(rule, Facts(0.0, prices=(*others, dollars))) == {}


def test_levels_that_are_passed_together_are_told_in_their_order():
    assert levels(judge([budget()], spent(100), ())) == [50, 80, 100]
    assert levels(judge([budget()], spent(99), {Mark("desk", "2026-11 100 USD", 50)})) == [80]


def test_a_new_period_and_another_amount_begin_anew():
    told = {alert.mark for alert in judge([budget()], spent(60), ())}
    assert judge([budget()], spent(60), told) == []
    assert levels(judge([budget()], spent(60, period=NEXT), told)) == [50]
    assert levels(judge([budget(amount_nanos=110 * USD)], spent(60), told)) == [50]


def test_one_nano_unit_less_than_a_level_is_not_that_level():
    facts = Facts(0.0, {"desk": AlertSpending(MONTH, 50 * USD - 1, 0)})
    assert judge([budget()], facts, ()) == []


def test_a_rule_without_facts_is_not_judged():
    assert judge([budget(), Unacknowledged("late")], Facts(0.0), ()) == []


@pytest.mark.parametrize(
    ("passed_s", "estimate"),
    [(0.0, None), (9_999.0, None), (10_000.0, 1_000), (250_000.0, 40), (1_000_000.0, 10)],
)
def test_the_estimate_is_a_straight_line_and_none_at_first(passed_s, estimate):
    found = AlertSpending(MONTH, 10 * USD, 0).estimate_nanos(MONTH.start_at_s + passed_s)
    assert found == (None if estimate is None else estimate * USD)


amounts = st.integers(0, 2**70)


@given(
    st.lists(st.tuples(st.integers(0, 2), amounts), max_size=30),
    st.sets(st.integers(1, 1000), min_size=1, max_size=8),
    st.integers(1, 2**63 - 1),
)
def test_no_level_twice_in_order_and_never_below_it(looks, marks, amount_nanos):
    """Spending that also falls, and periods that also come back, as a clock is set."""
    rule = budget(amount_nanos=amount_nanos, levels=tuple(sorted(marks)))
    told: list[Mark] = []
    for number, spent_nanos in looks:
        period = Period(str(number), 1e6 * number, 1e6 * (number + 1))
        facts = Facts(period.start_at_s, {"desk": AlertSpending(period, spent_nanos, 0)})
        fired = judge([rule], facts, set(told))
        assert levels(fired) == sorted(levels(fired))
        for alert in fired:
            assert alert.mark not in told
            assert spent_nanos * 100 >= alert.mark.level * amount_nanos
        told += [alert.mark for alert in fired]
        reached = {level for level in marks if spent_nanos * 100 >= level * amount_nanos}
        assert reached <= {mark.level for mark in told if mark.key.startswith(f"{number} ")}
    assert len(set(told)) == len(told)


def look(rule, raised, *prices):
    """One look of a watch: the recipients, and the alerts that stay raised from then on."""
    facts = Facts(0.0, prices=[PoolPrice("paris", "gpu", each, "USD") for each in prices])
    over = set(ended([rule], facts, raised))
    alerts = judge([rule], facts, raised)
    return [alert.mark for alert in alerts], raised - over | {alert.mark for alert in alerts}


def test_what_a_price_must_come_down_to_is_exact():
    assert PriceLimit("dear", 2**53 + 3, "USD", clear_percent=0.0).clear_nanos == 2**53 + 3
    assert PriceLimit("dear", 101, "USD", clear_percent=10.0).clear_nanos == 90


LIMIT = PriceLimit("dear", 100, "USD", "paris", "gpu", clear_percent=10.0)
DEAR = Mark("dear", "paris/gpu", 0)


def test_a_price_that_flutters_about_its_limit_is_told_once():
    raised, told = set(), []
    for price in (100, 101, 99, 101, 91, 105):
        fired, raised = look(LIMIT, raised, price)
        told += fired
    assert told == [DEAR]
    fired, raised = look(LIMIT, raised, 90)
    assert (fired, raised) == ([], set())
    assert look(LIMIT, raised, 101)[0] == [DEAR]


def test_a_pool_that_nobody_advertises_any_more_is_neither_told_nor_over():
    assert look(LIMIT, {DEAR}) == ([], {DEAR})


@given(st.lists(st.integers(0, 200), max_size=50))
def test_between_two_alerts_of_a_price_it_was_well_below(prices):
    raised, well_below = set(), True
    for price in prices:
        fired, raised = look(LIMIT, raised, price)
        well_below = well_below or price <= 90
        if fired:
            assert price > 100
            assert well_below
            well_below = False


def test_a_price_of_another_pool_or_currency_is_not_meant():
    prices = [
        PoolPrice("paris", "cpu", 500, "USD"),
        PoolPrice("paris", "gpu", 500, "EUR"),
        PoolPrice("rome", "gpu", 500, "USD"),
    ]
    assert judge([LIMIT], Facts(0.0, prices=prices), ()) == []
    anywhere = PriceLimit("dear", 100, "USD", pool="gpu")
    assert [each.mark.key for each in judge([anywhere], Facts(0.0, prices=prices), ())] == [
        "rome/gpu"
    ]


def test_deliveries_without_a_verdict_are_told_by_side_and_site_until_they_have_one():
    rule = Unacknowledged("late", 7200.0)
    paris = OverdueDeliveries("buy", "paris", 2, {"USD": 3 * USD, "EUR": USD}, 0.0)
    rome = OverdueDeliveries("sell", "rome", 1, {"USD": USD}, 60.0)
    both = Facts(9000.0, pending={"late": [paris, rome]})
    first, second = judge([rule], both, ())
    assert first.text == (
        "late: 2 deliveries from paris (1 EUR, 3 USD) had no verdict for more than 2 h; "
        "the oldest is of 1970-01-01T00:00:00Z"
    )
    assert second.text.startswith("late: 1 delivery to rome (1 USD)")
    raised = {first.mark, second.mark}
    assert judge([rule], both, raised) == []
    assert ended([rule], both, raised) == []
    assert ended([rule], Facts(9000.0, pending={"late": [rome]}), raised) == [first.mark]
    assert ended([rule], Facts(9000.0), raised) == []


def test_names_that_others_chose_are_made_printable():
    rule = PriceLimit("dear", 0, "USD")
    name = "\x1b[31m\n\u202e\ud800" + "x" * 500
    (alert,) = judge([rule], Facts(0.0, prices=[PoolPrice(name, "p\0", 1, "USD")]), ())
    assert alert.text.isprintable()
    assert alert.mark.key.isprintable()
    assert len(alert.mark.key) < 300
    assert alert.text.encode()  # also nothing that no file can hold
    assert printable("Zürich 東京") == "Zürich 東京"


def test_a_test_says_so():
    alert = sample(budget(span=PeriodLength.DAY, zone=ZoneInfo("Asia/Tokyo")), 5.0)
    assert "test" in alert.text
    assert alert.mark == Mark("desk", "test", 0)
