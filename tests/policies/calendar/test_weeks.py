"""Bands of the week, also in the nights in which the clock jumps."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.calendar.weeks import DAY_S, WeekSpan, changes, check_apart, week_second

LONDON, NEW_YORK, UTC_ZONE = (
    ZoneInfo("Europe/London"),
    ZoneInfo("America/New_York"),
    ZoneInfo("UTC"),
)
HOUR = 3600


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def is_on(span, text, zone):
    return span.covers(week_second(utc(text), zone))


@pytest.mark.parametrize(
    ("zone", "moment", "on"),
    [
        # London: 2026-03-29, 01:00 GMT is 02:00 BST; 2026-10-25, 02:00 BST is 01:00 GMT.
        (LONDON, "2026-03-29T00:59:59", False),
        (LONDON, "2026-03-29T01:00:00", True),  # 01:30 is jumped over: it begins at 02:00 BST
        (LONDON, "2026-03-29T01:59:59", True),
        (LONDON, "2026-03-29T02:00:00", False),
        (LONDON, "2026-10-25T00:29:59", False),  # 01:29:59 BST
        (LONDON, "2026-10-25T00:30:00", True),
        (LONDON, "2026-10-25T00:59:59", True),
        (LONDON, "2026-10-25T01:00:00", False),  # 01:00 GMT: the hour comes a second time
        (LONDON, "2026-10-25T01:30:00", True),
        (LONDON, "2026-10-25T02:59:59", True),
        (LONDON, "2026-10-25T03:00:00", False),
        # New York: 2026-03-08, 02:00 EST is 03:00 EDT; 2026-11-01, 02:00 EDT is 01:00 EST.
        (NEW_YORK, "2026-03-08T06:29:59", False),
        (NEW_YORK, "2026-03-08T06:30:00", True),  # 01:30 EST
        (NEW_YORK, "2026-03-08T06:59:59", True),
        (NEW_YORK, "2026-03-08T07:00:00", False),  # 03:00 EDT: its second half is jumped over
        (NEW_YORK, "2026-11-01T05:30:00", True),  # 01:30 EDT
        (NEW_YORK, "2026-11-01T06:00:00", False),  # 01:00 EST
        (NEW_YORK, "2026-11-01T06:30:00", True),
        (NEW_YORK, "2026-11-01T07:59:59", True),
        (NEW_YORK, "2026-11-01T08:00:00", False),
    ],
)
def test_the_wall_clock_counts_in_the_nights_in_which_it_jumps(zone, moment, on):
    assert is_on(WeekSpan(HOUR * 3 // 2, HOUR * 3), moment, zone) is on


@pytest.mark.parametrize(
    ("moment", "on"),
    [
        ("2026-11-27T21:59:59", False),  # a Friday
        ("2026-11-27T22:00:00", True),
        ("2026-11-28T05:59:59", True),
        ("2026-11-28T06:00:00", False),
        ("2026-11-28T22:00:00", False),
        ("2026-11-30T01:00:00", False),  # Sunday's would be on
    ],
)
def test_a_band_over_midnight_belongs_to_the_day_on_which_it_begins(moment, on):
    assert is_on(WeekSpan(22 * HOUR, 6 * HOUR, frozenset(range(5))), moment, UTC_ZONE) is on


def test_a_band_over_the_end_of_the_week_goes_on_in_the_next():
    span = WeekSpan(22 * HOUR, 6 * HOUR, frozenset({6}))
    assert is_on(span, "2026-11-22T23:00", UTC_ZONE)
    assert is_on(span, "2026-11-23T05:59", UTC_ZONE)
    assert not is_on(span, "2026-11-23T06:00", UTC_ZONE)


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [
        (LONDON, "2026-03-29T00:00", "2026-03-29T01:00"),
        (LONDON, "2026-10-25T01:00", "2026-10-25T01:30"),
        (NEW_YORK, "2026-03-08T06:30", "2026-03-08T07:00"),
        (NEW_YORK, "2026-11-01T05:30", "2026-11-01T06:00"),
    ],
)
def test_the_next_change_is_found_in_those_nights(zone, start, expected):
    span, start_at_s = WeekSpan(HOUR * 3 // 2, HOUR * 3), utc(start)
    before = span.covers(week_second(start_at_s, zone))
    found = next(
        at
        for at in changes(start_at_s, zone, [span])
        if span.covers(week_second(at, zone)) != before
    )
    assert found == utc(expected)


spans = st.builds(
    WeekSpan,
    st.integers(0, DAY_S - 2),
    st.just(DAY_S),
    st.frozensets(st.integers(0, 6), min_size=1),
) | st.builds(
    lambda first, last, days: WeekSpan(first * 60, last * 60, days),
    st.integers(0, 700),
    st.integers(701, 1440),
    st.frozensets(st.integers(0, 6), min_size=1),
)


@given(
    spans,
    st.sampled_from([LONDON, NEW_YORK, ZoneInfo("Asia/Kolkata"), ZoneInfo("Australia/Lord_Howe")]),
    st.integers(int(utc("2026-01-01")), int(utc("2027-01-01"))),
)
@example(
    WeekSpan(15 * 60, 90 * 60, frozenset({6})), ZoneInfo("Australia/Lord_Howe"), 1_790_343_000
).via("a clock that jumps on the day after the last one that is looked at")
def test_nothing_changes_between_two_changes(span, zone, start_at_s):
    found = [start_at_s, *changes(start_at_s, zone, [span])]
    for first, last in pairwise(found):
        on = span.covers(week_second(first, zone))
        for share in (0.25, 0.5, 0.75):
            at = int(first + (last - first) * share)
            assert span.covers(week_second(at, zone)) is on
        assert span.covers(week_second(last - 1, zone)) is on


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        (WeekSpan(0, 3600), WeekSpan(3599, 7200), "mon at 00:59"),
        (WeekSpan(22 * HOUR, 6 * HOUR), WeekSpan(5 * HOUR, 7 * HOUR), "mon at 05:00"),
        (
            WeekSpan(22 * HOUR, 6 * HOUR, frozenset({6})),
            WeekSpan(0, HOUR, frozenset({0})),
            "mon at 00:00",
        ),
    ],
)
def test_bands_that_overlap_are_named(first, second, where):
    with pytest.raises(ValueError, match=f"'[ab]' and '[ab]' overlap on {where}"):
        check_apart([("a", first), ("b", second)])


def test_bands_that_touch_do_not_overlap():
    check_apart(
        [
            ("a", WeekSpan(0, HOUR)),
            ("b", WeekSpan(HOUR, 22 * HOUR)),
            ("c", WeekSpan(22 * HOUR, DAY_S)),
        ]
    )


@pytest.mark.parametrize(
    "wrong", [(0, 0), (5, 5), (-1, 5), (0, DAY_S + 1), (DAY_S, 5), (0, 5, frozenset())]
)
def test_a_span_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="band"):
        WeekSpan(*wrong)
