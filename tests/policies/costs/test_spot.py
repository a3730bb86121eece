"""A spot price stays between floor and ceiling, rises with utilisation, and does not oscillate."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.costs.spot import Spot, SpotState, follow

spots = st.builds(
    lambda floor, more, exponent, damp_s, steps: Spot(floor, floor + more, exponent, damp_s, steps),
    st.integers(1, 10**12),
    st.integers(0, 10**12),
    st.integers(1, 6),
    st.floats(0, 1000),
    st.integers(1, 100),
)


@given(spots)
def test_it_rises_from_floor_to_ceiling_and_never_faster_before_than_after(spot):
    prices = [spot.price_nanos(level) for level in range(spot.steps + 1)]
    assert (prices[0], prices[-1]) == (spot.floor_nanos, spot.ceiling_nanos)
    rises = [high - low for low, high in pairwise(prices)]
    assert all(rise >= 0 for rise in rises)
    assert all(after >= before - 2 for before, after in pairwise(rises))  # but for rounding


@given(spots, st.lists(st.tuples(st.floats(-1, 2), st.floats(-100, 1000)), max_size=50))
def test_it_is_never_outside_whatever_is_measured_and_the_clock_does(spot, seen):
    state, at_s = SpotState(), 0.0
    for utilisation, passed_s in seen:
        at_s += passed_s
        state = follow(spot, state, utilisation, at_s)
        assert spot.floor_nanos <= spot.price_nanos(state.level) <= spot.ceiling_nanos


@given(spots, st.floats(0, 1), st.floats(0, 1))
def test_who_is_busier_for_long_is_not_cheaper(spot, one, other):
    low, high = sorted((one, other))

    def settled(utilisation):
        state = SpotState()
        for at in range(5):
            state = follow(spot, state, utilisation, at * 10_000.0)
        return spot.price_nanos(state.level)

    assert settled(low) <= settled(high)


def test_a_load_that_flaps_by_less_than_a_step_moves_no_price():
    spot, state, levels = Spot(10, 110, damp_s=0, steps=10), SpotState(), []
    for at in range(100):
        state = follow(spot, state, 0.45 if at % 2 else 0.51, float(at))
        levels.append(state.level)
    assert len(set(levels)) == 1


def test_buyers_that_chase_the_price_settle():
    """All work goes where it is cheap a moment ago: damped, that dies down."""
    spot = Spot(10, 1010, damp_s=60, steps=20)
    state, prices = SpotState(), []
    for at in range(600):
        price = spot.price_nanos(state.level)
        state = follow(spot, state, 1.0 if price < 260 else 0.0, float(at * 5))
        prices.append(price)
    settled = prices[100:]
    assert max(settled) - min(settled) <= 0.2 * 1000


@pytest.mark.parametrize(
    "wrong",
    [{"floor_nanos": 3}, {"exponent": 0}, {"steps": 0}, {"damp_s": -1}, {"damp_s": float("nan")}],
)
def test_a_curve_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"floor|must be"):
        Spot(**({"floor_nanos": 1, "ceiling_nanos": 2} | wrong))
