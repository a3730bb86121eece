"""The price of bytes that are held (policies.costs.holding)."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.clocks import UtcS
from policies.costs import holding
from policies.costs.holding import (
    HoldPrice,
    by_hours,
    byte_seconds,
    end_of,
    in_all,
    last_within,
    parse_hold_price,
)


def test_a_gb_for_a_month_costs_its_price():
    price = parse_hold_price("0.03 USD/GB-month")
    assert price == HoldPrice(30_000_000, "USD")
    assert str(price) == "0.03 USD/GB-month"
    month = [byte_seconds(10**9, UtcS(n * 3600.0), UtcS((n + 1) * 3600.0)) for n in range(730)]
    assert price.charge_nanos(sum(month)) == 30_000_000


@pytest.mark.parametrize(
    "text", ["", "0.03 USD", "0.03 USD/GB", "0.03/GB-month", "-1 USD/GB-month", "1 USD/GiB-month"]
)
def test_anything_else_is_no_price(text):
    with pytest.raises(ValueError, match=r"USD|amount|negative"):
        parse_hold_price(text)


@given(st.integers(0, 10**12), st.integers(0, 10**18))
def test_a_charge_is_rounded_half_up_once(nanos, byte_s):
    exact = Fraction(nanos * byte_s, 10**9 * 730 * 3600)
    found = HoldPrice(nanos).charge_nanos(byte_s)
    assert found - Fraction(1, 2) <= exact < found + Fraction(1, 2) or found == 2**63 - 1


@given(st.floats(1.7e9, 1.8e9), st.floats(0, 20_000))
def test_the_parts_of_a_time_are_of_one_hour_each_and_come_to_it(since_s, length_s):
    until_s = since_s + length_s
    parts = list(by_hours(UtcS(since_s), UtcS(until_s)))
    edges = [since_s, *(until for _, until in parts)] if parts else [until_s]
    assert edges[-1] == until_s
    assert [since for since, _ in parts] == edges[:-1]
    for since, until in parts:
        ended = last_within(until)
        assert since // 3600 == ended // 3600
        assert end_of(ended) == until


def test_a_clock_that_was_set_back_counts_nothing():
    assert byte_seconds(10, UtcS(5.0), UtcS(4.0)) == 0
    assert not list(by_hours(UtcS(5.0), UtcS(4.0)))


HOURS = st.integers(490_000, 490_200).map(lambda hour: hour * 3600.0)
EDGES = st.sampled_from([0.0, -math.inf, math.inf])


def beside(hour_s, towards):
    return math.nextafter(hour_s, towards) if towards else hour_s


MOMENTS = st.one_of(st.floats(1.764e9, 1.765e9), st.builds(beside, HOURS, EDGES))


@given(st.integers(0, 10**12), st.integers(0, 10**13), MOMENTS, MOMENTS)
def test_a_long_time_comes_to_exactly_the_sum_of_its_hours(nanos, size, since_s, until_s):
    price = HoldPrice(nanos)
    parts = [byte_seconds(size, *part) for part in by_hours(UtcS(since_s), UtcS(until_s))]
    sums = sum(parts), sum(map(price.charge_nanos, parts))
    assert in_all(price, size, UtcS(since_s), UtcS(until_s)) == sums


def test_ninety_days_cost_no_more_work_than_an_hour(monkeypatch):
    asked = []
    real = holding.byte_seconds
    monkeypatch.setattr(holding, "byte_seconds", lambda *args: asked.append(1) or real(*args))
    byte_s, _ = in_all(HoldPrice(1), 10, UtcS(1.0), UtcS(90 * 86_400.0))
    assert byte_s == 10 * (90 * 86_400 - 1)
    assert len(asked) <= 4
