"""What work costs: exact, rounded once."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.money import NANOS_LIMIT
from policies.tariffs import HOUR_NS, Tariff, cost_nanos


@given(st.integers(0, NANOS_LIMIT), st.integers(0, NANOS_LIMIT))
def test_cost_is_the_exact_cost_rounded_half_up(price_nanos: int, wall_ns: int) -> None:
    exact = Fraction(price_nanos * wall_ns, HOUR_NS)
    assert Fraction(-1, 2) < cost_nanos(price_nanos, wall_ns) - exact <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("price_nanos", "wall_ns", "cost"),
    [
        (40_000_000, HOUR_NS, 40_000_000),
        (1, HOUR_NS // 2, 1),
        (1, HOUR_NS // 2 - 1, 0),
        (3, HOUR_NS // 2, 2),
        (0, HOUR_NS, 0),
    ],
)
def test_cost_of_known_amounts(price_nanos: int, wall_ns: int, cost: int) -> None:
    assert cost_nanos(price_nanos, wall_ns) == cost


@pytest.mark.parametrize(("price_nanos", "wall_ns"), [(-1, 1), (1, -1)])
def test_cost_refuses_negative_input(price_nanos: int, wall_ns: int) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        cost_nanos(price_nanos, wall_ns)


@pytest.mark.parametrize(
    ("price_nanos", "currency"), [(-1, "USD"), (NANOS_LIMIT + 1, "USD"), (1, "usd")]
)
def test_a_tariff_is_always_a_price(price_nanos: int, currency: str) -> None:
    with pytest.raises(ValueError, match=r"out of range|three capital letters"):
        Tariff(price_nanos, currency, "1")
