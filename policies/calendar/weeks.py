"""Bands of the week in a named time zone: the one in force at a time, and its changes. Pure.

A band is [from, to) on the wall clock of its zone, on the days on which it begins; a band whose end
is at or before its beginning ends on the next day. The wall clock counts, also in the two nights of
a clock change: a night from 00:00 to 03:00 in London is two hours long in March and four in
October. A beginning that the clock skips happens at the clock change.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from federation.clocks import UtcS

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY: Final = frozenset(range(7))
DAY_S: Final = 86_400
WEEK_S: Final = 7 * DAY_S
# A week and a day: it includes every beginning and end, even in a week with a clock change.
HORIZON_DAYS: Final = 8


@dataclass(frozen=True, slots=True)
class WeekSpan:
    """A time of the week: [from_s, to_s) in seconds of the day, on the days on which it begins.

    `days` counts Monday as 0. `to_s` is up to 86,400; if not after `from_s`, it ends on the next
    day.
    """

    from_s: int = 0
    to_s: int = DAY_S
    days: frozenset[int] = EVERY_DAY

    def __post_init__(self) -> None:
        if not self.days or not self.days <= EVERY_DAY:
            raise ValueError("a band needs at least one day of the week")
        if not 0 <= self.from_s < DAY_S or not 0 < self.to_s <= DAY_S:
            raise ValueError(
                "a band must begin from 00:00 to 23:59:59 and end from 00:00:01 to 24:00"
            )
        if self.from_s == self.to_s:
            raise ValueError("a band ends when it begins: write 00:00 to 24:00 for a whole day")

    @property
    def length_s(self) -> int:
        """The length on the wall clock."""
        return (self.to_s - self.from_s) % DAY_S or DAY_S

    def parts(self) -> Iterator[tuple[int, int]]:
        """Yield its disjoint parts in a week that begins on Monday at 00:00, in seconds."""
        for day in self.days:
            first = day * DAY_S + self.from_s
            stop = first + self.length_s
            yield first, min(stop, WEEK_S)
            if stop > WEEK_S:
                yield 0, stop - WEEK_S

    def covers(self, week_s: int) -> bool:
        """Whether it is on at a second of the week."""
        return any(first <= week_s < stop for first, stop in self.parts())


def read_weekdays(text: str) -> frozenset[int]:
    """Parse days of the week: "mon-fri", "sat,sun" or "daily"; a span may go over Sunday.

    Raise ValueError.
    """
    if text == "daily":
        return EVERY_DAY
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.strip().partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError('write days, for example "mon-fri" or "sat,sun"')
        start, length = DAYS.index(first), DAYS.index(last or first) - DAYS.index(first)
        found |= {(start + ahead) % 7 for ahead in range(length % 7 + 1)}
    return frozenset(found)


def check_apart(spans: Iterable[tuple[str, WeekSpan]]) -> None:
    """Raise ValueError, naming both, where two named spans overlap."""
    parts = sorted((*part, name) for name, span in spans for part in span.parts())
    for (_, stop, before), (first, _, name) in pairwise(parts):
        if first < stop:
            both = f"{before!r} overlaps itself" if before == name else f"{before!r} and {name!r}"
            what = both if before == name else f"{both} overlap"
            raise ValueError(f"{what} on {DAYS[first // DAY_S]} at {_clock(first % DAY_S)}")


def week_second(utc_s: UtcS, zone: ZoneInfo) -> int:
    """Return the second of the week, from Monday 00:00, that the wall clock of a zone shows."""
    local = datetime.fromtimestamp(float(utc_s), zone)
    return local.weekday() * DAY_S + local.hour * 3600 + local.minute * 60 + local.second


def changes(utc_s: UtcS, zone: ZoneInfo, spans: Iterable[WeekSpan]) -> Iterator[UtcS]:
    """Yield the times in eight days from `utc_s` at which a span may begin or end, in order, UTC.

    Clock changes are among them: they may move the clock into a band, or out of one.
    """
    edges = {(day, at) for span in spans for day, at in _edges(span)}
    start = datetime.fromtimestamp(float(utc_s), zone).date()
    found: set[UtcS] = set()
    for ahead in range(-1, HORIZON_DAYS):
        day = start + timedelta(days=ahead)
        for weekday, at_s in edges:
            if weekday == day.weekday():
                found |= moments(day, at_s, zone)
        found |= jumps(day, zone)
    # A clock change may be on a day of the zone later than all days that were examined.
    end_at_s = max(moments(start + timedelta(days=HORIZON_DAYS), 0, zone))
    yield from sorted(at for at in found if utc_s < at <= end_at_s)


def _edges(span: WeekSpan) -> Iterator[tuple[int, int]]:
    for first, stop in span.parts():
        yield first // DAY_S, first % DAY_S
        yield stop // DAY_S % 7, stop % DAY_S


def moments(day: date, at_s: int, zone: ZoneInfo) -> set[UtcS]:
    """Return when a wall clock shows this: once, or twice in a night with an extra hour."""
    local = datetime.combine(day, time(at_s // 3600, at_s // 60 % 60, at_s % 60), zone)
    return {UtcS(local.replace(fold=fold).timestamp()) for fold in (0, 1)}


def jumps(day: date, zone: ZoneInfo) -> set[UtcS]:
    """Return when, on a day of UTC, the clock of a zone changes; to the second."""
    low = int(datetime.combine(day, time(), UTC).timestamp())
    high = low + DAY_S
    before, after = _offset(low, zone), _offset(high, zone)
    if before == after:
        return set()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return {UtcS(high)}


def _offset(second: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(second, zone).utcoffset()


def _clock(at_s: int) -> str:
    return f"{at_s // 3600:02}:{at_s // 60 % 60:02}"
