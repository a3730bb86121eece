"""Calendar periods in a named time zone, half-open, correct across clock changes.

A period begins when its first day does. Where midnight is skipped as clocks go forward, that is the
moment of the change; where midnight comes twice, the first one.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from math import floor
from typing import Final
from zoneinfo import ZoneInfo

from federation.clocks import UtcS

UTC_ZONE: Final = ZoneInfo("UTC")


class PeriodLength(StrEnum):
    """The length of a period. Weeks begin on Monday, as in ISO 8601."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Period:
    """The period [start_at_s, end_at_s), in seconds since 1970; `key` names it, as in "2026-11"."""

    key: str
    start_at_s: UtcS
    end_at_s: UtcS


def read_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raise ValueError if it is unknown."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        example = 'use an IANA name, for example "Europe/London"'
        raise ValueError(f"{name!r} is not a time zone: {example}") from None


def period_at(span: PeriodLength, zone: ZoneInfo, at_s: UtcS) -> Period:
    """Return the period that contains a time: start_at_s <= at_s < end_at_s."""
    # Use whole seconds, as days begin with one: a fraction would be rounded into the next day.
    first = _first_day(span, datetime.fromtimestamp(floor(at_s), zone).date())
    following = _next_first_day(span, first)
    # Where clocks go back over midnight, an hour of yesterday comes after today has begun.
    if _midnight_at_s(following, zone) <= at_s:
        first, following = following, _next_first_day(span, following)
    return Period(_key(span, first), _midnight_at_s(first, zone), _midnight_at_s(following, zone))


def _first_day(span: PeriodLength, day: date) -> date:
    match span:
        case PeriodLength.DAY:
            return day
        case PeriodLength.WEEK:
            return day - timedelta(days=day.weekday())
        case PeriodLength.MONTH:
            return day.replace(day=1)
        case PeriodLength.QUARTER:
            return date(day.year, day.month - (day.month - 1) % 3, 1)
        case PeriodLength.YEAR:
            return date(day.year, 1, 1)


def _next_first_day(span: PeriodLength, first: date) -> date:
    if span is PeriodLength.DAY:
        return first + timedelta(days=1)
    longest = {
        PeriodLength.WEEK: 7,
        PeriodLength.MONTH: 31,
        PeriodLength.QUARTER: 92,
        PeriodLength.YEAR: 366,
    }[span]
    return _first_day(span, first + timedelta(days=longest))


def _midnight_at_s(day: date, zone: ZoneInfo) -> UtcS:
    return UtcS(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _key(span: PeriodLength, first: date) -> str:
    match span:
        case PeriodLength.DAY:
            return first.isoformat()
        case PeriodLength.WEEK:
            year, week, _ = first.isocalendar()
            return f"{year}-W{week:02}"
        case PeriodLength.MONTH:
            return f"{first:%Y-%m}"
        case PeriodLength.QUARTER:
            return f"{first.year}-Q{(first.month + 2) // 3}"
        case PeriodLength.YEAR:
            return str(first.year)
