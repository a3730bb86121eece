"""The price by a price list: at a moment, for a buyer, for a job."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.messages.adverts import PriceChange
from policies.calendar.weeks import WeekSpan
from policies.costs.pricelist import Adjustment, Band, PriceList, Tier
from policies.costs.spot import Spot
from policies.tariffs import HOUR_NS, MILLION, Extras, Surcharge, Wanted

HOUR = 3600
CENT = 10**7
WEEKDAYS = frozenset(range(5))
NIGHT = Band("night", WeekSpan(22 * HOUR, 6 * HOUR, WEEKDAYS), Adjustment(factor=MILLION // 2))
SUNDAY = Band("sunday", WeekSpan(6 * HOUR, 24 * HOUR, frozenset({6})), Adjustment(nanos=CENT))
LONDON = PriceList(4 * CENT, "USD", "v1", ZoneInfo("Europe/London"), (NIGHT, SUNDAY))
NEW_YORK = PriceList(4 * CENT, "USD", "v1", ZoneInfo("America/New_York"), (NIGHT, SUNDAY))


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("prices", "moment", "window", "price", "change", "then"),
    [
        (LONDON, "2026-11-23T12:00", "", 4 * CENT, "2026-11-23T22:00", 2 * CENT),
        (LONDON, "2026-11-23T22:00", "night", 2 * CENT, "2026-11-24T06:00", 4 * CENT),
        (LONDON, "2026-11-29T06:00", "sunday", CENT, "2026-11-30T00:00", 4 * CENT),
        # The Sundays on which the clock jumps: 06:00 is an hour earlier, or later, than before.
        (LONDON, "2026-03-29T00:30", "", 4 * CENT, "2026-03-29T05:00", CENT),
        (LONDON, "2026-03-29T05:00", "sunday", CENT, "2026-03-29T23:00", 4 * CENT),
        (LONDON, "2026-10-25T00:30", "", 4 * CENT, "2026-10-25T06:00", CENT),
        (NEW_YORK, "2026-03-08T06:59", "", 4 * CENT, "2026-03-08T10:00", CENT),
        (NEW_YORK, "2026-11-01T05:30", "", 4 * CENT, "2026-11-01T11:00", CENT),
        (NEW_YORK, "2026-11-02T05:00", "", 4 * CENT, "2026-11-03T03:00", 2 * CENT),
    ],
)
def test_what_holds_at_a_moment_and_what_comes_next(prices, moment, window, price, change, then):
    now = prices.at(utc(moment))
    assert (now.tariff.window, now.tariff.price_nanos) == (window, price)
    assert now.tariff.version == "v1"
    assert now.next_price == PriceChange(then, utc(change))


def test_a_list_without_bands_announces_nothing():
    assert PriceList(CENT, "USD", "v").at(0.0).next_price is None


def test_a_band_that_changes_no_price_is_no_change_of_price():
    same = Band("same", NIGHT.span, Adjustment())
    now = PriceList(CENT, "USD", "v", bands=(same,)).at(utc("2026-11-23T12:00"))
    assert now.next_price is None


FULL = PriceList(
    4 * CENT,
    "USD",
    "v1",
    extras=Extras(
        preemptible=400_000,
        surcharges={"gpu": Surcharge(add_nanos=100 * CENT), "nvme": Surcharge(0, 1_500_000)},
        minimum_nanos=1000,
    ),
    volume=(Tier(100, Adjustment(factor=900_000)), Tier(1000, Adjustment(nanos=3 * CENT))),
    contracts={"paris": Adjustment(nanos=2 * CENT), "rome": Adjustment(nanos=9 * CENT)},
)


@pytest.mark.parametrize(
    ("wanted", "price", "listed"),
    [
        (Wanted(), 40, 40),
        (Wanted(price_class="preemptible"), 16, 16),
        (Wanted(tags={"gpu": 2}), 2040, 2040),
        (Wanted(tags={"gpu": 0.5}), 540, 540),
        (Wanted(tags={"nvme": True}), 60, 60),
        (Wanted(tags={"nvme": True, "gpu": 1, "linux": True}), 1060, 1060),
        (Wanted(tags={"gpu": 1}, price_class="preemptible"), 416, 416),
        (Wanted("rouen", bought_ns=100 * HOUR_NS - 1), 40, 40),
        (Wanted("rouen", bought_ns=100 * HOUR_NS), 36, 40),
        (Wanted(bought_ns=5000 * HOUR_NS), 30, 40),
        (Wanted("paris"), 20, 40),
        (Wanted("paris", "preemptible", {"nvme": True}, 5000 * HOUR_NS), 12, 24),
        (Wanted("rome"), 40, 40),  # a contract never makes it dearer
    ],
)
def test_what_a_buyer_pays_for_a_kind_of_job(wanted, price, listed):
    found = FULL.at(0.0).tariff_for(wanted)
    milli = CENT // 10
    assert (found.price_nanos, found.list_nanos) == (price * milli, listed * milli)
    assert found.price_class == wanted.price_class
    assert found.version == "v1"


shares = st.integers(1, 5 * MILLION)
buyers = st.builds(
    Wanted,
    st.sampled_from(["", "paris", "rome"]),
    st.sampled_from(["guaranteed", "preemptible"]),
    st.dictionaries(st.sampled_from(["gpu", "nvme"]), st.integers(1, 8) | st.just(True)),
    st.integers(0, 10_000 * HOUR_NS),
)


@given(st.integers(0, 100), buyers, st.integers(0, 10**9), shares)
def test_with_a_spot_price_all_stays_between_floor_and_ceiling(level, wanted, at_s, factor):
    band = Band("b", WeekSpan(0, 12 * HOUR), Adjustment(factor=factor))
    spot = Spot(CENT, 12 * CENT, steps=100)
    prices = PriceList(4 * CENT, "USD", "v", bands=(band,), spot=spot)
    now = prices.at(float(at_s), level)
    assert CENT <= now.tariff.price_nanos <= 12 * CENT
    if level:
        assert prices.at(float(at_s), level - 1).tariff.price_nanos <= now.tariff.price_nanos
    assert now.next_price is None or CENT <= now.next_price.price_nanos <= 12 * CENT
    assert now.tariff_for(wanted).price_nanos == now.tariff.price_nanos


@given(buyers)
def test_nobody_pays_more_than_the_public_price(wanted):
    found = FULL.at(0.0).tariff_for(wanted)
    assert found.list_nanos is not None
    assert 0 < found.price_nanos <= found.list_nanos
    assert found.minimum_nanos <= found.price_nanos
    assert found.charge_nanos(3, 10**9) <= found.list_charge_nanos(3, 10**9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bands": (NIGHT, NIGHT)}, "same name"),
        ({"bands": (NIGHT, Band("b", WeekSpan(0, HOUR), Adjustment()))}, "overlap"),
        ({"volume": (Tier(5, Adjustment()), Tier(5, Adjustment()))}, "more slot-hours"),
        ({"currency": "usd"}, "currency"),
        ({"price_nanos": 10**17}, "ten million"),
        ({"extras": Extras(minimum_nanos=5 * CENT)}, "minimum"),
        ({"bands": (SUNDAY,), "spot": Spot(2 * CENT, 3 * CENT)}, "floor and ceiling"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(changes, words):
    fields = {"price_nanos": 4 * CENT, "currency": "USD", "version": "v"} | changes
    with pytest.raises(ValueError, match=words):
        PriceList(**fields)
