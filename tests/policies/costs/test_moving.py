"""The price of bytes that move (policies.costs.moving)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.money import NANOS_LIMIT
from policies.costs.moving import GbPrice, MovePrices, charge_nanos, parse_gb_price


def test_a_gb_costs_its_price():
    price = parse_gb_price("0.02 USD/GB")
    assert price == GbPrice(20_000_000, "USD")
    assert str(price) == "0.02 USD/GB"
    assert charge_nanos(price.nanos, 100_000_000) == 2_000_000


@pytest.mark.parametrize("text", ["", "0.02 USD", "0.02/GB", "-1 USD/GB", "1 USD/GiB", "1 USD/GB-"])
def test_anything_else_is_no_price(text):
    with pytest.raises(ValueError, match=r"USD|amount|negative"):
        parse_gb_price(text)


@given(st.integers(0, 10**9), st.integers(0, 10**18))
def test_a_charge_is_rounded_half_up_once(nanos, moved_bytes):
    exact = Fraction(nanos * moved_bytes, 10**9)
    assert charge_nanos(nanos, moved_bytes) == min(NANOS_LIMIT, int(exact + Fraction(1, 2)))


def test_prices_have_bounds_and_a_currency():
    assert not MovePrices()
    assert MovePrices(send_nanos=1, currency="USD")
    for prices in ((-1, 0, "USD"), (0, NANOS_LIMIT + 1, "USD"), (1, 0, "")):
        with pytest.raises(ValueError, match=r"range|currency"):
            MovePrices(*prices)
    with pytest.raises(ValueError, match="zero or more"):
        charge_nanos(1, -1)
