"""The cost of a slot-hour of one's own hardware."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.costs.ownership import Costs, Ownership, price_of


def test_a_known_machine():
    """8,766 EUR over a year of 8,766 h and one slot, half used: two a slot-hour; and so on."""
    owned = Ownership(
        hardware=Decimal(8766),
        watts=Decimal(500),
        pue=Decimal("1.5"),
        power_price=Decimal("0.2"),
        space=Decimal(4383),
        staff=Decimal("876.6"),
        years=Decimal(1),
        slots=1,
        utilisation=Decimal("0.5"),
    )
    assert price_of(owned) == Costs(
        2_000_000_000, 300_000_000, 1_000_000_000, 200_000_000, 3_500_000_000
    )


amounts = st.decimals(0, 10**9, places=2)


@given(
    st.builds(
        Ownership,
        hardware=amounts,
        watts=amounts,
        pue=st.decimals(1, 3, places=2),
        power_price=st.decimals(0, 2, places=4),
        space=amounts,
        staff=amounts,
        years=st.decimals("0.5", 20, places=1),
        slots=st.integers(1, 10**6),
        utilisation=st.decimals("0.01", 1, places=2),
    )
)
def test_the_shares_sum_up_to_the_price(owned):
    costs = price_of(owned)
    shares = (costs.hardware_nanos, costs.power_nanos, costs.space_nanos, costs.staff_nanos)
    assert all(share >= 0 for share in shares)
    assert abs(sum(shares) - costs.price_nanos) <= 2


def test_all_for_nothing_is_a_price_of_zero():
    assert price_of(Ownership()).price_nanos == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"hardware": Decimal(-1)},
        {"watts": Decimal("nan")},
        {"staff": Decimal("inf")},
        {"years": Decimal(0)},
        {"slots": 0},
        {"utilisation": Decimal(0)},
        {"utilisation": Decimal("1.01")},
        {"pue": Decimal("0.9")},
    ],
)
def test_what_can_not_be_is_refused_by_its_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Ownership(**wrong)
