"""Windows that begin by a cron expression, on the wall clock of a zone, and have a duration. Pure.

APScheduler's trigger finds the beginnings on a calendar without clock changes: the wall clock's.
Clock changes are applied afterwards, as in policies.calendar.hours: each beginning happens once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from federation.clocks import UtcS
from policies.calendar.hours import latest_shown, reached_at_s
from policies.calendar.periods import UTC_ZONE
from policies.calendar.weeks import DAY_S

LASTS_MIN_S: Final = 60
LASTS_MAX_S: Final = 31 * DAY_S
CHARS_MAX: Final = 100
# cron itself counts from Sunday, APScheduler from Monday: numbers would be ambiguous.
_NUMBERED_DAY: Final = re.compile(r"(^|[,-])\d")
_MOMENT: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Cron:
    """The beginnings of a window, as the five fields of cron, and its duration.

    Attributes:
        fields: minute, hour, day, month, day of the week; days of the week by their names.
        lasts_s: seconds of the wall clock.

    Raises:
        ValueError: the expression is invalid, or never matches.
    """

    fields: str
    lasts_s: int
    zone: ZoneInfo = UTC_ZONE

    def __post_init__(self) -> None:
        words = self.fields.split()
        if len(words) != 5 or len(self.fields) > CHARS_MAX:
            raise ValueError(
                "cron must have five fields: minute, hour, day, month and day of the week"
            )
        if _NUMBERED_DAY.search(words[4]):
            raise ValueError(
                "days of the week must be names, for example mon-fri: numbers are ambiguous"
            )
        if not LASTS_MIN_S <= self.lasts_s <= LASTS_MAX_S:
            raise ValueError(
                f"the duration must be from {LASTS_MIN_S} s to {LASTS_MAX_S // DAY_S} days"
            )
        if self._begin(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"{self.fields!r} never occurs")

    @cached_property
    def _trigger(self) -> CronTrigger:
        return CronTrigger.from_crontab(self.fields, timezone=UTC)

    def is_open(self, at_s: UtcS) -> bool:
        """Whether it is open at a time, UTC."""
        shown = self._shown(at_s)
        begins = self._begin(shown - timedelta(seconds=self.lasts_s) + _MOMENT)
        return begins is not None and begins <= shown

    def edges(self, start_at_s: UtcS, end_at_s: UtcS) -> list[UtcS]:
        """Return the times in (start, end) at which it may open or close, in order, UTC."""
        found: set[UtcS] = set()
        # An extra day at both ends: a wall clock can show less than elapses, or more.
        first = self._shown(start_at_s) - timedelta(seconds=self.lasts_s + DAY_S)
        last = self._shown(end_at_s) + timedelta(days=1)
        for begins in self._begins(first, last):
            for shown in (begins, begins + timedelta(seconds=self.lasts_s)):
                second = shown.hour * 3600 + shown.minute * 60 + shown.second
                found.add(reached_at_s(shown.date(), second, self.zone))
        return sorted(at_s for at_s in found if start_at_s < at_s < end_at_s)

    def _shown(self, at_s: UtcS) -> datetime:
        """Return the latest wall clock time shown, as if in UTC: a calendar without jumps."""
        return latest_shown(at_s, self.zone).replace(tzinfo=UTC)

    def _begins(self, first: datetime, last: datetime) -> Iterator[datetime]:
        begins = self._begin(first)
        while begins is not None and begins <= last:
            yield begins
            begins = self._begin(begins + _MOMENT)

    def _begin(self, shown: datetime) -> datetime | None:
        """Return the first beginning at or after a wall clock time."""
        found: datetime | None = self._trigger.get_next_fire_time(None, shown)
        return found
