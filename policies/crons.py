"""Windows that begin as cron says, by the wall clock of a zone, and last a while. Pure.

APScheduler's trigger finds the beginnings, on a calendar without jumps: the wall clock's. That the
clock jumps comes after, in the same way as for policies.hours: each beginning is once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from policies.hours import latest_shown, reached_s
from policies.periods import UTC_ZONE
from policies.weeks import DAY_S

LASTS_MIN_S: Final = 60
LASTS_MAX_S: Final = 31 * DAY_S
CHARS_MAX: Final = 100
# cron itself counts from Sunday, APScheduler from Monday: numbers would mean either.
_NUMBERED_DAY: Final = re.compile(r"(^|[,-])\d")
_MOMENT: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Cron:
    """When a window begins, as the five fields of cron, and how long it lasts.

    Attributes:
        fields: minute, hour, day, month, day of the week; days of the week by their names.
        lasts_s: seconds of the wall clock.

    Raises:
        ValueError: there is no such time, or there never is.
    """

    fields: str
    lasts_s: int
    zone: ZoneInfo = UTC_ZONE

    def __post_init__(self) -> None:
        words = self.fields.split()
        if len(words) != 5 or len(self.fields) > CHARS_MAX:
            raise ValueError("cron has five fields: minute, hour, day, month and day of the week")
        if _NUMBERED_DAY.search(words[4]):
            raise ValueError("write days of the week by name, as in mon-fri: numbers are ambiguous")
        if not LASTS_MIN_S <= self.lasts_s <= LASTS_MAX_S:
            raise ValueError(f"it must last from {LASTS_MIN_S} s to {LASTS_MAX_S // DAY_S} days")
        if self._begin(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"{self.fields!r} is never")

    @cached_property
    def _trigger(self) -> CronTrigger:
        return CronTrigger.from_crontab(self.fields, timezone=UTC)

    def is_open(self, at_s: float) -> bool:
        """Whether it is open at a moment, UTC."""
        shown = self._shown(at_s)
        begins = self._begin(shown - timedelta(seconds=self.lasts_s) + _MOMENT)
        return begins is not None and begins <= shown

    def edges(self, start_s: float, end_s: float) -> list[float]:
        """The moments in (start_s, end_s) at which it may open or close, in order, UTC."""
        found: set[float] = set()
        # A day more at both ends: clocks show less than passes, or more.
        first = self._shown(start_s) - timedelta(seconds=self.lasts_s + DAY_S)
        last = self._shown(end_s) + timedelta(days=1)
        for begins in self._begins(first, last):
            for shown in (begins, begins + timedelta(seconds=self.lasts_s)):
                second = shown.hour * 3600 + shown.minute * 60 + shown.second
                found.add(reached_s(shown.date(), second, self.zone))
        return sorted(at_s for at_s in found if start_s < at_s < end_s)

    def _shown(self, at_s: float) -> datetime:
        """What the wall clock has shown, as if it were UTC: a calendar in which no clock jumps."""
        return latest_shown(at_s, self.zone).replace(tzinfo=UTC)

    def _begins(self, first: datetime, last: datetime) -> Iterator[datetime]:
        begins = self._begin(first)
        while begins is not None and begins <= last:
            yield begins
            begins = self._begin(begins + _MOMENT)

    def _begin(self, shown: datetime) -> datetime | None:
        """The first beginning at or after what a wall clock shows."""
        found: datetime | None = self._trigger.get_next_fire_time(None, shown)
        return found
