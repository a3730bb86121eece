"""Business days: tables of dates, and properties of every month."""

from calendar import monthrange
from datetime import date, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calendar.calendars import Calendar, next_month, read_dates

HOLIDAYS = """\
# England and Wales, from gov.uk
2026-12-25  Christmas Day
2026-12-28  Boxing Day (substitute day)   # the 26th is a Saturday
2026-12-24 12:30 Christmas Eve
2026-12-31 12:30

2027-01-01
"""
LONDON = Calendar(holidays=read_dates(HOLIDAYS)[0], half_days=read_dates(HOLIDAYS)[1])
SUNDAY_TO_THURSDAY = Calendar(weekend=frozenset({4, 5}))


def test_holidays_and_half_days_are_read():
    holidays, half_days = read_dates(HOLIDAYS)
    assert sorted(map(str, holidays)) == ["2026-12-25", "2026-12-28", "2027-01-01"]
    assert half_days == {date(2026, 12, 24): time(12, 30), date(2026, 12, 31): time(12, 30)}
    assert read_dates("") == (frozenset(), {})


@pytest.mark.parametrize(
    ("day", "number", "from_end", "ends"),
    [
        ("2026-12-01", 1, -21, None),  # a Tuesday
        ("2026-12-05", None, None, None),  # a Saturday
        ("2026-12-23", 17, -5, None),
        ("2026-12-24", 18, -4, "12:30"),
        ("2026-12-25", None, None, None),
        ("2026-12-28", None, None, None),
        ("2026-12-29", 19, -3, None),
        ("2026-12-31", 21, -1, "12:30"),
        ("2027-01-01", None, None, None),
        ("2027-01-04", 1, -20, None),
        ("2028-02-29", 21, -1, None),  # of a leap year
        ("2027-02-26", 20, -1, None),  # a Friday, as the 28th is a Sunday
    ],
)
def test_a_day_in_london(day, number, from_end, ends):
    day = date.fromisoformat(day)
    assert LONDON.is_business(day) is (number is not None)
    assert (LONDON.number(day), LONDON.number_from_end(day)) == (number, from_end)
    assert LONDON.ends(day) == (time.fromisoformat(ends) if ends else None)


def test_a_weekend_is_where_it_is():
    assert SUNDAY_TO_THURSDAY.is_business(date(2026, 11, 22))  # a Sunday
    assert not SUNDAY_TO_THURSDAY.is_business(date(2026, 11, 20))


@given(
    day=st.dates(date(1990, 1, 1), date(2100, 12, 31)),
    holidays=st.sets(st.integers(0, 40), max_size=20),
    weekend=st.sets(st.integers(0, 6), max_size=6),
)
def test_the_business_days_of_a_month_are_numbered_without_gaps(day, holidays, weekend):
    first = day.replace(day=1)
    free = frozenset(first + timedelta(days=ahead) for ahead in holidays)
    calendar = Calendar(frozenset(weekend), free)
    days = [first + timedelta(days=at) for at in range(monthrange(day.year, day.month)[1])]
    assert days[-1] + timedelta(days=1) == next_month(day)
    worked = [each for each in days if calendar.is_business(each)]
    assert [calendar.number(each) for each in worked] == list(range(1, len(worked) + 1))
    assert [calendar.number_from_end(each) for each in worked] == list(range(-len(worked), 0))
    assert {calendar.number(each) for each in set(days) - set(worked)} <= {None}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2026-12-25\n2026-13-01", "line 2: '2026-13-01' is not a date"),
        ("25/12/2026", "line 1: '25/12/2026' is not a date: use the form 2026-12-25"),
        ("20261225", "is not a date"),
        ("2026-W52-5", "is not a date"),
        ("2027-02-29", "is not a date"),
        ("\N{FULLWIDTH DIGIT TWO}026-12-25", "is not a date"),
        ("2026-12-24 12:60", "line 1: '12:60' is not a time: use the form 12:30"),
        ("2026-12-24 1230", "is not a time"),
        ("2026-12-24 12:30\n# again\n2026-12-24", "line 3: 2026-12-24 is listed twice"),
        ("\x00", "is not a date"),
        ("x" * 10**6, "is not a date"),
    ],
)
def test_rubbish_is_named_with_its_line(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_dates(text)


def test_a_file_that_never_ends_is_refused():
    day = date(1900, 1, 1)
    text = "\n".join(str(day + timedelta(days=at)) for at in range(10_001))
    with pytest.raises(ValueError, match="line 10001: more than 10,000 dates"):
        read_dates(text)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"weekend": frozenset(range(7))}, "business day of the week"),
        ({"weekend": frozenset({7})}, "business day of the week"),
        ({"half_days": {date(2026, 11, 22): time(12)}}, "2026-11-22 is a half day, but not"),
    ],
)
def test_a_calendar_that_can_not_be_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        Calendar(**fields)
