"""When a window is open: tables of dates, both nights in which clocks jump, and a plain count."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.calendar.calendars import Calendar
from policies.calendar.hours import (
    Business,
    Free,
    Hours,
    MonthEnd,
    Weekdays,
    falls_on,
    open_spans,
    read_days,
)

LONDON, NEW_YORK = ZoneInfo("Europe/London"), ZoneInfo("America/New_York")
HOUR_S = 3600
CHRISTMAS = Calendar(
    holidays=frozenset({date(2026, 12, 25), date(2026, 12, 28)}),
    half_days={date(2026, 12, 24): time(12, 30)},
)


def at(text):
    """A moment of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def shown(spans):
    """Spans as people write them, UTC."""
    return [
        tuple(datetime.fromtimestamp(each, UTC).strftime("%m-%dT%H:%M") for each in span)
        for span in spans
    ]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("daily", Weekdays(frozenset(range(7)))),
        ("mon-fri", Weekdays(frozenset(range(5)))),
        ("fri-mon", Weekdays(frozenset({4, 5, 6, 0}))),
        ("sat,sun", Weekdays(frozenset({5, 6}))),
        ("mon,wed-thu", Weekdays(frozenset({0, 2, 3}))),
        ("business", Business()),
        ("business 3", Business(3)),
        ("business -1", Business(-1)),
        ("free", Free()),
        ("month-end", MonthEnd()),
    ],
)
def test_days_are_read(text, days):
    assert read_days(text) == days


@pytest.mark.parametrize("text", ["", "monday", "mon-", "business 0", "business x", "mon fri", ","])
def test_what_are_no_days_is_said(text):
    with pytest.raises(ValueError, match="is not a set of days: use one of daily, mon-fri"):
        read_days(text)


@pytest.mark.parametrize(
    ("days", "dates"),
    [
        ("business -1", ["2026-12-31"]),
        ("business 1", ["2026-12-01"]),
        ("business -3", ["2026-12-29"]),
        ("month-end", ["2026-12-31"]),
        ("free", ["2026-12-05", "2026-12-06", "2026-12-12", "2026-12-13", "2026-12-19",
                  "2026-12-20", "2026-12-25", "2026-12-26", "2026-12-27", "2026-12-28"]),
    ],
)  # fmt: skip
def test_the_days_of_a_december(days, dates):
    month = [date(2026, 12, 1) + timedelta(days=each) for each in range(31)]
    found = [str(each) for each in month if falls_on(read_days(days), each, CHRISTMAS)]
    assert found == dates


def test_the_last_day_of_a_february():
    month = [date(2028, 2, 1) + timedelta(days=each) for each in range(29)]
    assert [each.day for each in month if falls_on(MonthEnd(), each, CHRISTMAS)] == [29]


@pytest.mark.parametrize(
    ("hours", "start", "end", "spans"),
    [
        (  # the risk run of a bank: business days, earlier on a half day, not on holidays
            Hours(17 * HOUR_S, 23 * HOUR_S, Business(), LONDON, CHRISTMAS, follows_work=True),
            *("2026-12-23T00:00", "2026-12-30T00:00"),
            [
                ("12-23T17:00", "12-23T23:00"),
                ("12-24T12:30", "12-24T23:00"),
                ("12-29T17:00", "12-29T23:00"),
            ],
        ),
        (  # over night, and what began before
            Hours(22 * HOUR_S, 6 * HOUR_S, read_days("fri"), LONDON),
            *("2026-11-21T01:00", "2026-11-29T00:00"),
            [("11-21T01:00", "11-21T06:00"), ("11-27T22:00", "11-28T06:00")],
        ),
        (  # days that follow each other are one span
            Hours(days=read_days("sat,sun")),
            *("2026-11-20T00:00", "2026-11-24T00:00"),
            [("11-21T00:00", "11-23T00:00")],
        ),
        (  # by exception
            Hours(
                9 * HOUR_S, 10 * HOUR_S, read_days("mon"),
                also=frozenset({date(2026, 11, 24)}), never=frozenset({date(2026, 11, 23)}),
            ),
            *("2026-11-22T00:00", "2026-12-01T00:00"),
            [("11-24T09:00", "11-24T10:00"), ("11-30T09:00", "11-30T10:00")],
        ),
        (  # London loses 01:00 to 02:00 on 2026-03-29
            Hours(1 * HOUR_S, 3 * HOUR_S, zone=LONDON),
            *("2026-03-28T12:00", "2026-03-29T12:00"),
            [("03-29T01:00", "03-29T02:00")],
        ),
        (  # half past one is jumped over
            Hours(5400, 3 * HOUR_S, zone=LONDON),
            *("2026-03-28T12:00", "2026-03-29T12:00"),
            [("03-29T01:00", "03-29T02:00")],
        ),
        (  # and has it twice on 2026-10-25
            Hours(1 * HOUR_S, 3 * HOUR_S, zone=LONDON),
            *("2026-10-24T12:00", "2026-10-25T12:00"),
            [("10-25T00:00", "10-25T03:00")],
        ),
        (  # New York loses 02:00 to 03:00 on 2026-03-08
            Hours(2 * HOUR_S, 4 * HOUR_S, zone=NEW_YORK),
            *("2026-03-08T00:00", "2026-03-08T20:00"),
            [("03-08T07:00", "03-08T08:00")],
        ),
        (  # and has 01:00 to 02:00 twice on 2026-11-01
            Hours(23 * HOUR_S, 2 * HOUR_S, zone=NEW_YORK),
            *("2026-11-01T00:00", "2026-11-01T20:00"),
            [("11-01T03:00", "11-01T07:00")],
        ),
    ],
)  # fmt: skip
def test_when_it_is_open(hours, start, end, spans):
    assert shown(open_spans(hours, at(start), at(end))) == spans


SECONDS = st.integers(0, 95).map(lambda quarter: quarter * 900)


@settings(max_examples=60, deadline=None)
@given(
    from_s=SECONDS,
    length_s=st.integers(1, 95).map(lambda quarter: quarter * 900),
    days=st.sampled_from(["daily", "mon-fri", "business", "business -1", "free", "month-end"]),
    zone=st.sampled_from([LONDON, NEW_YORK, ZoneInfo("Asia/Kolkata"), ZoneInfo("UTC")]),
    day=st.sampled_from(["2026-03-07", "2026-03-28", "2026-10-24", "2026-10-31", "2026-12-24"]),
)
def test_spans_are_where_it_is_open_quarter_by_quarter(from_s, length_s, days, zone, day):
    to_s = (from_s + length_s) % 86_400 or 86_400
    hours = Hours(from_s, to_s, read_days(days), zone, CHRISTMAS, follows_work=True)
    start_at_s = at(f"{day}T00:00")
    spans = list(open_spans(hours, start_at_s, start_at_s + 3 * 86_400))
    for quarter in range(3 * 96):
        moment_s = start_at_s + quarter * 900
        assert hours.is_open(moment_s) is any(low <= moment_s < high for low, high in spans)
    edges = [each for span in spans for each in span]
    assert edges == sorted(set(edges))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"from_s": 60, "to_s": 60}, "ends when it begins"),
        ({"from_s": 86_400}, "a window must begin from 00:00 to 23:59:59"),
        ({"to_s": 0}, "a window must begin from 00:00"),
        ({"also": frozenset({date(2026, 1, 1)}), "never": frozenset({date(2026, 1, 1)})}, "both"),
    ],
)
def test_a_window_that_can_not_be_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        Hours(**fields)


def test_nobody_looks_ahead_for_ever():
    with pytest.raises(ValueError, match="at most 400 days"):
        list(open_spans(Hours(), 0.0, 401 * 86_400.0))
