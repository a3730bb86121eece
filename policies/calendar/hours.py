"""Opening hours of a window: the days on which it begins, and its wall clock times. Pure.

[from, to) on the wall clock of a zone, on each day on which it begins; a window whose end is at or
before its beginning ends on the next day. It begins when the clock first shows its time, and ends
when the clock first shows its end. In the two nights of a clock change a window from 01:30 to 03:30
is an hour shorter or longer, but one span; a time that is skipped happens at the clock change. (As
in RFC 5545, except for skipped times. Bands of the week, policies.calendar.weeks, are on whenever
the clock shows a time of theirs: a price may come twice, production begins once.)
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Protocol, assert_never
from zoneinfo import ZoneInfo

from federation.clocks import UtcS
from policies.calendar.calendars import Calendar
from policies.calendar.periods import UTC_ZONE
from policies.calendar.weeks import DAY_S, DAYS, EVERY_DAY, jumps, read_weekdays

SPAN_MAX_S: Final = 400 * DAY_S  # the maximum look-ahead


@dataclass(frozen=True, slots=True)
class Weekdays:
    """These days of the week, Monday as 0."""

    days: frozenset[int]


@dataclass(frozen=True, slots=True)
class Business:
    """Business days: all, or the n-th of each month, counted from its end if negative."""

    number: int | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """Days that are not business days."""


@dataclass(frozen=True, slots=True)
class MonthEnd:
    """The last day of each month, business day or not."""


Days = Weekdays | Business | Free | MonthEnd
_TO_THE_NEXT_SECOND: Final = timedelta(microseconds=999_999)
_WEEKDAYS: Final = re.compile(r"daily|[a-z]{3}(-[a-z]{3})?(,[a-z]{3}(-[a-z]{3})?)*")


def read_days(text: str) -> Days:
    """Parse days, or raise ValueError.

    The forms are `daily`, `mon-fri`, `sat,sun`, `business`, `business 3`, `business -1`, `free`,
    `month-end`.
    """
    match text.split():
        case ["business"]:
            return Business()
        case ["business", number] if re.fullmatch(r"-?[1-9]\d?", number, re.ASCII):
            return Business(int(number))
        case ["free"]:
            return Free()
        case ["month-end"]:
            return MonthEnd()
        case [words] if _WEEKDAYS.fullmatch(words):
            with contextlib.suppress(ValueError):
                return Weekdays(read_weekdays(words))
    raise _no_days(text)


def show_days(days: Days) -> str:
    """Format days as in a window's configuration."""
    match days:
        case Weekdays():
            if days.days == EVERY_DAY:
                return "daily"
            return ",".join(DAYS[day] for day in sorted(days.days))
        case Business(number):
            return "business" if number is None else f"business {number}"
        case Free():
            return "free"
        case MonthEnd():
            return "month-end"
    assert_never(days)


def _no_days(text: str) -> ValueError:
    ways = "daily, mon-fri, sat,sun, business, business 3, business -1, free, month-end"
    return ValueError(f"{text[:40]!r} is not a set of days: use one of {ways}")


def falls_on(days: Days, day: date, calendar: Calendar) -> bool:
    """Whether a date is one of these days."""
    match days:
        case Weekdays():
            return day.weekday() in days.days
        case Business(None):
            return calendar.is_business(day)
        case Business(number):
            return number in (calendar.number(day), calendar.number_from_end(day))
        case Free():
            return not calendar.is_business(day)
        case MonthEnd():
            return (day + timedelta(days=1)).day == 1
    assert_never(days)


@dataclass(frozen=True, slots=True)
class Hours:
    """The times of a window.

    Attributes:
        from_s, to_s: seconds of the day, up to 86,400 for `to_s`.
        days: on which it begins.
        follows_work: on a half day it begins when work ends, if that is before `from_s`.
        also, never: extra dates on which it begins, and dates on which it does not, in any case.

    Raises:
        ValueError: it has no length, or a date is in both.
    """

    from_s: int = 0
    to_s: int = DAY_S
    days: Days = Weekdays(EVERY_DAY)
    zone: ZoneInfo = UTC_ZONE
    calendar: Calendar = field(default_factory=Calendar)
    follows_work: bool = False
    also: frozenset[date] = frozenset()
    never: frozenset[date] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.from_s < DAY_S or not 0 < self.to_s <= DAY_S:
            raise ValueError(
                "a window must begin from 00:00 to 23:59:59 and end from 00:00:01 to 24:00"
            )
        if self.from_s == self.to_s:
            raise ValueError("a window ends when it begins: write 00:00 to 24:00 for a whole day")
        if self.also & self.never:
            raise ValueError(
                f"{min(self.also & self.never)} is in both the included and the excluded dates"
            )

    def begins_s(self, day: date) -> int | None:
        """Return the second of a day at which it begins; None on other days."""
        is_its = day in self.also or falls_on(self.days, day, self.calendar)
        if not is_its or day in self.never:
            return None
        work_ends = self.calendar.ends(day) if self.follows_work else None
        if work_ends is None:
            return self.from_s
        return min(self.from_s, work_ends.hour * 3600 + work_ends.minute * 60)

    def is_open(self, at_s: UtcS) -> bool:
        """Whether it is open at a time, UTC."""
        local = latest_shown(at_s, self.zone)
        second = local.hour * 3600 + local.minute * 60 + local.second
        begins_s = self.begins_s(local.date())
        if (
            begins_s is not None
            and begins_s <= second
            and (self._is_over_night or second < self.to_s)
        ):
            return True
        if not self._is_over_night or second >= self.to_s:
            return False
        return self.begins_s(local.date() - timedelta(days=1)) is not None

    @property
    def _is_over_night(self) -> bool:
        return self.to_s <= self.from_s

    def edges(self, start_at_s: UtcS, end_at_s: UtcS) -> list[UtcS]:
        """Return the times in (start, end) at which it may open or close, in order, UTC."""
        day = datetime.fromtimestamp(float(start_at_s), self.zone).date() - timedelta(days=1)
        last = datetime.fromtimestamp(float(end_at_s), self.zone).date()
        found: set[UtcS] = set()
        while day <= last:
            begins_s = self.begins_s(day)
            if begins_s is not None:
                ends = day + timedelta(days=int(self._is_over_night or self.to_s == DAY_S))
                found.add(reached_at_s(day, begins_s, self.zone))
                found.add(reached_at_s(ends, self.to_s % DAY_S, self.zone))
            day += timedelta(days=1)
        return sorted(at_s for at_s in found if start_at_s < at_s < end_at_s)


def latest_shown(at_s: UtcS, zone: ZoneInfo) -> datetime:
    """Return the latest time that a wall clock has shown up to a moment, without its zone.

    That is what the clock shows, except in the hour that is repeated.
    """
    local = datetime.fromtimestamp(float(at_s), zone)
    if local.fold:
        back_s = max(each for each in _jumps_near(at_s, zone) if each <= at_s)
        local = datetime.fromtimestamp(float(back_s) - 1, zone) + _TO_THE_NEXT_SECOND
    return local.replace(tzinfo=None, fold=0)


def reached_at_s(day: date, second: int, zone: ZoneInfo) -> UtcS:
    """Return when a wall clock first shows or skips a second of a day; UTC."""
    shown = datetime.combine(day, time(second // 3600, second // 60 % 60, second % 60))
    at_s = UtcS(shown.replace(tzinfo=zone).timestamp())
    if datetime.fromtimestamp(float(at_s), zone).replace(tzinfo=None) == shown:
        return at_s
    return min(_jumps_near(at_s, zone), key=lambda jump_s: abs(jump_s - at_s))


def _jumps_near(at_s: UtcS, zone: ZoneInfo) -> set[UtcS]:
    day = datetime.fromtimestamp(float(at_s), UTC).date()
    return set().union(*(jumps(day + timedelta(days=each), zone) for each in (-1, 0, 1)))


class Opens(Protocol):
    """Something that is open at some times only: Hours, or policies.calendar.crons."""

    def is_open(self, at_s: UtcS) -> bool:
        """Whether it is open at a time, UTC."""

    def edges(self, start_at_s: UtcS, end_at_s: UtcS) -> list[UtcS]:
        """Return all times in (start_at_s, end_at_s) at which that may change, in order, UTC."""


def open_spans(when: Opens, start_at_s: UtcS, end_at_s: UtcS) -> Iterator[tuple[UtcS, UtcS]]:
    """Yield the spans within [start_at_s, end_at_s) when it is open: half-open, in order, disjoint.

    Raise ValueError for more than SPAN_MAX_S.
    """
    if not 0.0 <= end_at_s - start_at_s <= SPAN_MAX_S:
        raise ValueError(f"windows can be computed for at most {SPAN_MAX_S // DAY_S} days")
    opened_s = start_at_s if when.is_open(start_at_s) else None
    for at_s in when.edges(start_at_s, end_at_s):
        is_open = when.is_open(at_s)
        if is_open and opened_s is None:
            opened_s = at_s
        elif not is_open and opened_s is not None:
            yield opened_s, at_s
            opened_s = None
    if opened_s is not None and opened_s < end_at_s:
        yield opened_s, end_at_s
