"""Windows that begin as cron says: tables, both nights in which clocks jump, a plain count."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.calendar.crons import Cron
from policies.calendar.hours import open_spans
from policies.calendar.periods import UTC_ZONE

LONDON, NEW_YORK = ZoneInfo("Europe/London"), ZoneInfo("America/New_York")
HOUR_S, DAY_S = 3_600, 86_400


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def shown(spans):
    return [
        tuple(datetime.fromtimestamp(each, UTC).strftime("%m-%dT%H:%M") for each in span)
        for span in spans
    ]


@pytest.mark.parametrize(
    ("cron", "start", "end", "spans"),
    [
        (
            Cron("0 17 * * mon-fri", 6 * HOUR_S),
            "2026-11-20T00:00",  # a Friday
            "2026-11-24T00:00",
            [("11-20T17:00", "11-20T23:00"), ("11-23T17:00", "11-23T23:00")],
        ),
        # Over midnight, and already open.
        (
            Cron("0 22 * * *", 8 * HOUR_S),
            "2026-11-20T03:00",
            "2026-11-20T23:00",
            [("11-20T03:00", "11-20T06:00"), ("11-20T22:00", "11-20T23:00")],
        ),
        # The last day of February, in a leap year.
        (Cron("0 0 29 feb *", DAY_S), "2028-01-01T00:00", "2028-12-01T00:00",
         [("02-29T00:00", "03-01T00:00")]),
        # They follow on each other: one span.
        (Cron("0 * * * *", HOUR_S), "2026-11-20T00:00", "2026-11-20T05:00",
         [("11-20T00:00", "11-20T05:00")]),
        # London leaves out 01:00 to 02:00 on 29 March, and has it twice on 25 October.
        (Cron("0 1 * * *", 2 * HOUR_S, LONDON), "2026-03-29T00:00", "2026-03-29T12:00",
         [("03-29T01:00", "03-29T02:00")]),
        (Cron("30 1 * * *", 600, LONDON), "2026-03-29T00:00", "2026-03-29T12:00", []),
        (Cron("0 1 * * *", 2 * HOUR_S, LONDON), "2026-10-25T00:00", "2026-10-25T12:00",
         [("10-25T00:00", "10-25T03:00")]),
        (Cron("30 1 * * *", 600, LONDON), "2026-10-25T00:00", "2026-10-25T12:00",
         [("10-25T00:30", "10-25T00:40")]),
        # New York: 02:00 to 03:00 on 8 March, 01:00 to 02:00 on 1 November.
        (Cron("0 22 * * *", 6 * HOUR_S, NEW_YORK), "2026-03-08T00:00", "2026-03-08T20:00",
         [("03-08T03:00", "03-08T08:00")]),
        (Cron("0 22 * * *", 6 * HOUR_S, NEW_YORK), "2026-11-01T00:00", "2026-11-01T20:00",
         [("11-01T02:00", "11-01T09:00")]),
    ],
)  # fmt: skip
def test_when_it_is_open(cron, start, end, spans):
    assert shown(open_spans(cron, at(start), at(end))) == spans


@pytest.mark.parametrize(
    ("fields", "lasts_s", "why"),
    [
        ("0 17 * *", 60, "cron must have five fields"),
        ("0 17 * * mon-fri 2026", 60, "cron must have five fields"),
        ("0 17 * * 1-5", 60, "must be names"),
        ("0 17 * * mon,0", 60, "must be names"),
        ("0 17 31 feb *", 60, "never occurs"),
        ("0 25 * * *", 60, "25"),
        ("x 17 * * *", 60, "x"),
        ("0 17 * * *", 59, "must be from 60 s to 31 days"),
        ("0 17 * * *", 32 * DAY_S, "must be from 60 s to 31 days"),
        ("0 " * 60, 60, "cron must have five fields"),
    ],
)
def test_what_can_not_be_is_said(fields, lasts_s, why):
    with pytest.raises(ValueError, match=why):
        Cron(fields, lasts_s)


QUARTERS = st.integers(1, 200)


@given(
    quarter=st.sampled_from([0, 15, 30, 45]),
    hour=st.integers(0, 23),
    lasts=QUARTERS,
    start=st.sampled_from(["2026-03-06", "2026-03-28", "2026-10-23", "2026-10-31", "2028-02-27"]),
    zone=st.sampled_from([LONDON, NEW_YORK, UTC_ZONE]),
)
@example(quarter=30, hour=1, lasts=96, start="2026-10-23", zone=LONDON)
@example(quarter=30, hour=1, lasts=1, start="2026-10-23", zone=LONDON)
def test_spans_are_where_the_clock_has_shown_a_beginning_and_not_its_end(
    quarter, hour, lasts, start, zone
):
    """Counted quarter by quarter, with the latest that the wall clock has shown until then."""
    cron = Cron(f"{quarter} {hour} * * *", lasts * 900, zone)
    start_at_s = at(start)
    spans = list(open_spans(cron, start_at_s, start_at_s + 4 * DAY_S))
    latest = datetime.min  # noqa: DTZ901 - of a wall clock
    for at_s in range(int(start_at_s) - DAY_S, int(start_at_s) + 4 * DAY_S, 900):
        latest = max(latest, datetime.fromtimestamp(at_s, zone).replace(tzinfo=None))
        begins = latest.replace(hour=hour, minute=quarter)
        is_open = any(
            timedelta() <= latest - begins + timedelta(days=each) < timedelta(minutes=15 * lasts)
            for each in range(4)
        )
        if at_s >= start_at_s:
            assert is_open == any(low <= at_s < high for low, high in spans)
    assert all(low < high for low, high in spans)
    assert all(high < low for (_, high), (low, _) in pairwise(spans))
