"""Prices that are read, and the offers that the ceilings leave."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grids.ec2.prices import (
    InstanceOffer,
    PriceBook,
    PriceError,
    by_price,
    read_file,
    read_products,
    read_spot,
    within,
)
from gateway.grids.ec2.settings import Place


def offer(kind, price_nanos, slots=1):
    return InstanceOffer(kind, Place("z"), slots, price_nanos)


def test_the_cheapest_slot_hour_comes_first_and_the_unknown_last():
    offers = [offer("a", None), offer("b", 100, 1), offer("c", 120, 2), offer("d", 59, 1)]
    assert [each.kind for each in by_price(offers)] == ["d", "c", "b", "a"]
    assert offer("e", 100, 3).slot_nanos == 34


@pytest.mark.parametrize(
    ("wanted", "instances_left", "nanos_left", "count", "kinds"),
    [
        (5, 9, None, 5, "ab?"),  # without a ceiling of spend prices need not be known
        (5, 3, None, 3, "ab?"),
        (5, 0, None, 0, ""),
        (5, 9, 100, 5, "ab"),  # five of the dearer fit
        (5, 9, 99, 5, "a"),  # the dearer is left out before there are fewer
        (5, 9, 35, 3, "a"),
        (5, 9, 9, 0, ""),
        (5, 9, -50, 0, ""),
        (1, 9, 10, 1, "a"),
    ],
)
def test_what_ceilings_leave(wanted, instances_left, nanos_left, count, kinds):
    room = within(
        [offer("b", 20), offer("a", 10), offer("?", None)], wanted, instances_left, nanos_left
    )
    assert room.instances == count
    assert "".join(each.kind for each in room.offers) == kinds
    assert bool(room.why) == (count < wanted)


@given(
    st.lists(st.none() | st.integers(0, 10**9), min_size=1, max_size=8),
    st.integers(1, 500),
    st.integers(-5, 500),
    st.integers(-(10**6), 10**12),
)
def test_no_ceiling_is_passed_whatever_ec2_chooses(prices, wanted, instances_left, nanos_left):
    room = within([offer("x", each) for each in prices], wanted, instances_left, nanos_left)
    assert 0 <= room.instances <= min(wanted, max(0, instances_left))
    assert all(each.price_nanos is not None for each in room.offers)
    if room.instances:
        dearest = max(each.price_nanos for each in room.offers)
        assert room.instances * dearest <= max(0, nanos_left)


def test_the_newest_spot_price_of_each_zone_counts():
    def entry(zone, price, at):
        return {
            "InstanceType": "t",
            "AvailabilityZone": zone,
            "SpotPrice": price,
            "Timestamp": at,
        }

    found = read_spot(
        [
            entry("a", "0.03", 2),
            entry("a", "0.02", 1),
            entry("b", "0.0400001", 1),
            entry("c", "", 3),
        ]
    )
    assert found == {("t", "a"): 30_000_000, ("t", "b"): 40_000_100}


def test_where_a_zone_is_not_said_the_dearest_counts():
    book = PriceBook("USD", {"t": 90, "u": 80}, {("t", "a"): 30, ("t", "b"): 50})
    assert book.price_nanos("t", "a", is_spot=True) == 30
    assert book.price_nanos("t", "", is_spot=True) == 50
    assert book.price_nanos("t", "c", is_spot=True) == 90  # unknown: no more than on demand
    assert book.price_nanos("t", "a", is_spot=False) == 90
    assert book.price_nanos("x", "a", is_spot=True) is None


def product(kind, amounts, unit="Hrs"):
    dimensions = {
        str(at): {"unit": unit, "pricePerUnit": amount} for at, amount in enumerate(amounts)
    }
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": kind}},
            "terms": {"OnDemand": {"t": {"priceDimensions": dimensions}}},
        }
    )


def test_the_price_list():
    listed = [
        product("a", [{"USD": "0.0892500000"}]),
        product("b", [{"USD": "0.0"}]),  # a reserved one's hour, which is paid already
        product("c", [{"CNY": "1.5"}]),
        product("d", [{"USD": "3"}], unit="Quantity"),
    ]
    assert read_products(listed, "USD") == {"a": 89_250_000}
    with pytest.raises(PriceError, match="is invalid"):
        read_products(["{}"], "USD")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"currency": "USD"}',
        '{"currency": "USD", "on_demand": {"a": "cheap"}}',
        '{"currency": "USD", "on_demand": {"a": "-1"}}',
        '{"currency": "USD", "on_demand": {"a": "NaN"}}',
        '{"currency": "USD", "on_demand": {"a": "1e9"}}',
        '{"currency": "USD", "on_demand": {}, "spot": {"a": "0.1"}}',
    ],
)
def test_a_price_file_with_rubbish(text):
    with pytest.raises(PriceError):
        read_file(text)


def test_a_price_file():
    text = '{"currency": "EUR", "on_demand": {"a": "0.1"}, "spot": {"a": {"z": "0.04"}}}'
    assert read_file(text) == PriceBook("EUR", {"a": 10**8}, {("a", "z"): 4 * 10**7})
