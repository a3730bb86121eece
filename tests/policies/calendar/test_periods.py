"""Periods of the calendar: their ends, when clocks change and when they don't."""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calendar.periods import PeriodLength, period_at, read_zone

HOUR_S = 3600
ZONES = ["UTC", "Europe/London", "America/New_York", "Asia/Kolkata", "America/St_Johns"]


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("span", "zone", "moment", "key", "start", "end"),
    [
        ("day", "UTC", "2026-11-22T00:00", "2026-11-22", "2026-11-22T00:00", "2026-11-23T00:00"),
        ("day", "UTC", "2026-11-22T23:59", "2026-11-22", "2026-11-22T00:00", "2026-11-23T00:00"),
        # The night that is short, and the one that is long.
        (
            *("day", "Europe/London", "2026-03-29T12:00"),
            *("2026-03-29", "2026-03-29T00:00", "2026-03-29T23:00"),
        ),
        (
            *("day", "Europe/London", "2026-10-25T00:30"),
            *("2026-10-25", "2026-10-24T23:00", "2026-10-26T00:00"),
        ),
        (
            *("day", "America/New_York", "2026-11-01T05:30"),
            *("2026-11-01", "2026-11-01T04:00", "2026-11-02T05:00"),
        ),
        # Clocks that skip midnight: the day begins at one.
        (
            *("day", "Asia/Beirut", "2022-03-27T12:00"),
            *("2022-03-27", "2022-03-26T22:00", "2022-03-27T21:00"),
        ),
        # Clocks that go back over midnight, so that an hour of Saturday comes in Sunday.
        (
            *("day", "America/St_Johns", "2010-11-07T02:45"),
            *("2010-11-07", "2010-11-07T02:30", "2010-11-08T03:30"),
        ),
        (
            *("day", "Asia/Kolkata", "2026-11-22T18:29"),
            *("2026-11-22", "2026-11-21T18:30", "2026-11-22T18:30"),
        ),
        # A day that an island has skipped.
        (
            *("day", "Pacific/Apia", "2011-12-30T10:00"),
            *("2011-12-31", "2011-12-30T10:00", "2011-12-31T10:00"),
        ),
        ("week", "UTC", "2026-11-22T12:00", "2026-W47", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("week", "UTC", "2027-01-01T12:00", "2026-W53", "2026-12-28T00:00", "2027-01-04T00:00"),
        ("month", "UTC", "2028-02-29T23:59", "2028-02", "2028-02-01T00:00", "2028-03-01T00:00"),
        ("month", "UTC", "2026-02-28T23:59", "2026-02", "2026-02-01T00:00", "2026-03-01T00:00"),
        ("month", "UTC", "2026-12-31T23:59", "2026-12", "2026-12-01T00:00", "2027-01-01T00:00"),
        (
            *("month", "Europe/London", "2026-10-31T23:30"),
            *("2026-10", "2026-09-30T23:00", "2026-11-01T00:00"),
        ),
        (
            *("quarter", "Europe/London", "2026-03-31T22:59"),
            *("2026-Q1", "2026-01-01T00:00", "2026-03-31T23:00"),
        ),
        (
            *("quarter", "Europe/London", "2026-03-31T23:00"),
            *("2026-Q2", "2026-03-31T23:00", "2026-06-30T23:00"),
        ),
        ("quarter", "UTC", "2026-12-31T00:00", "2026-Q4", "2026-10-01T00:00", "2027-01-01T00:00"),
        ("year", "UTC", "2028-12-31T23:59", "2028", "2028-01-01T00:00", "2029-01-01T00:00"),
        ("year", "Asia/Tokyo", "2026-12-31T15:00", "2027", "2026-12-31T15:00", "2027-12-31T15:00"),
    ],
)
def test_a_period_begins_and_ends_where_the_calendar_says(span, zone, moment, key, start, end):
    found = period_at(PeriodLength(span), ZoneInfo(zone), at(moment))
    assert (found.key, found.start_at_s, found.end_at_s) == (key, at(start), at(end))


@given(
    st.sampled_from(list(PeriodLength)),
    st.sampled_from(ZONES).map(ZoneInfo),
    st.integers(0, 2**32).map(float),
)
def test_a_moment_is_in_its_period_and_periods_meet(span, zone, at_s):
    period = period_at(span, zone, at_s)
    assert period.start_at_s <= at_s < period.end_at_s
    assert period_at(span, zone, period.start_at_s) == period
    following = period_at(span, zone, period.end_at_s)
    assert following.start_at_s == period.end_at_s
    assert following.key != period.key


def test_a_moment_before_midnight_is_in_the_day_before_however_short():
    midnight_s = at("2029-01-01T00:00")
    day = period_at(PeriodLength.DAY, ZoneInfo("UTC"), math.nextafter(midnight_s, 0.0))
    assert (day.key, day.end_at_s) == ("2028-12-31", midnight_s)


@pytest.mark.parametrize(
    "name",
    ["", "Europe", "Mars/Olympus", "../etc/passwd", "/etc", "/etc/localtime", "a\0b", "x" * 500],
)
def test_a_zone_that_is_not_known_is_refused(name):
    with pytest.raises(ValueError, match="is not a time zone"):
        read_zone(name)
