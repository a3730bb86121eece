"""Business days and half days, by calendars of holidays. Pure.

A calendar knows only dates. The caller's time zone says when a date begins
(policies.calendar.weeks); a half day ends by the wall clock of that zone, too.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from types import MappingProxyType
from typing import Final

SATURDAY_SUNDAY: Final = frozenset({5, 6})
DATES_MAX: Final = 10_000  # of one calendar: forty years of the busiest
NONE_HALF: Final[Mapping[date, time]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Calendar:
    """The business days of a calendar.

    Attributes:
        weekend: days of the week without work, Monday as 0.
        holidays: dates without work.
        half_days: dates on which work ends early, and the time.

    Raises:
        ValueError: no day of the week is left, or a half day is not a business day.
    """

    weekend: frozenset[int] = SATURDAY_SUNDAY
    holidays: frozenset[date] = frozenset()
    half_days: Mapping[date, time] = field(default_factory=lambda: NONE_HALF)

    def __post_init__(self) -> None:
        if not self.weekend < frozenset(range(7)):
            raise ValueError("a calendar needs at least one business day of the week")
        for day in self.half_days:
            if not self.is_business(day):
                raise ValueError(f"{day} is a half day, but not a business day")

    def is_business(self, day: date) -> bool:
        """Whether a date is a business day, whole or half."""
        return day.weekday() not in self.weekend and day not in self.holidays

    def ends(self, day: date) -> time | None:
        """Return when work ends early; None on whole days and on days without work."""
        return self.half_days.get(day)

    def number(self, day: date) -> int | None:
        """Return the number of a business day in its month, from 1; None on other days."""
        if not self.is_business(day):
            return None
        return sum(map(self.is_business, _days(day.replace(day=1), day + timedelta(days=1))))

    def number_from_end(self, day: date) -> int | None:
        """Return the number counted from the end of the month: -1 is the last."""
        if not self.is_business(day):
            return None
        return -sum(map(self.is_business, _days(day, next_month(day))))


def next_month(day: date) -> date:
    """Return the first day of the next month. Raise OverflowError after the year 9999."""
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


def read_dates(text: str) -> tuple[frozenset[date], dict[date, time]]:
    """Parse holidays and half days: `2026-12-25`, `2026-12-24 12:30`, one a line.

    The rest of a line after the date or the time, and everything after #, is a comment.

    Raises:
        ValueError: the text names the line.
    """
    holidays: set[date] = set()
    half_days: dict[date, time] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        day = _date(words[0], number)
        if day in holidays or day in half_days:
            raise ValueError(f"line {number}: {day} is listed twice")
        if len(words) > 1 and words[1][:1].isdigit():
            half_days[day] = _time(words[1], number)
        else:
            holidays.add(day)
        if len(holidays) + len(half_days) > DATES_MAX:
            raise ValueError(f"line {number}: more than {DATES_MAX:,} dates")
    return frozenset(holidays), half_days


def _date(text: str, line: int) -> date:
    # Accept this form only: fromisoformat also takes 20261225 and 2026-W52-5.
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        with contextlib.suppress(ValueError):
            return date.fromisoformat(text)
    raise ValueError(f"line {line}: {text[:40]!r} is not a date: use the form 2026-12-25")


def _time(text: str, line: int) -> time:
    if re.fullmatch(r"\d\d:\d\d", text, re.ASCII):
        with contextlib.suppress(ValueError):
            return time.fromisoformat(text)
    raise ValueError(f"line {line}: {text[:40]!r} is not a time: use the form 12:30")


def _days(first: date, stop: date) -> Iterator[date]:
    for ahead in range((stop - first).days):
        yield first + timedelta(days=ahead)
