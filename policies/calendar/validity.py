"""A schedule that counts from one moment to another only. Pure."""

from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from federation.clocks import NEVER_S, UtcS
from policies.calendar.crons import Cron
from policies.calendar.hours import Hours

ALWAYS_S: Final = UtcS(float("-inf"))


@dataclass(frozen=True, slots=True)
class During:
    """The times of a schedule in [from_s, until_s), UTC.

    Raises:
        ValueError: it has no length.
    """

    when: Hours | Cron
    from_s: UtcS = ALWAYS_S
    until_s: UtcS = NEVER_S

    def __post_init__(self) -> None:
        if not self.from_s < self.until_s:
            raise ValueError("it must be valid from a time before the one that it is valid until")

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of its schedule."""
        return self.when.zone

    def is_open(self, at_s: UtcS) -> bool:
        """Whether it is open at a time, UTC."""
        return self.from_s <= at_s < self.until_s and self.when.is_open(at_s)

    def edges(self, start_at_s: UtcS, end_at_s: UtcS) -> list[UtcS]:
        """Return the times in (start, end) at which it may open or close, in order, UTC."""
        if end_at_s <= self.from_s or start_at_s >= self.until_s:
            return []
        own = [at_s for at_s in (self.from_s, self.until_s) if start_at_s < at_s < end_at_s]
        first_s, last_s = max(start_at_s, self.from_s), min(end_at_s, self.until_s)
        return sorted({*own, *self.when.edges(first_s, last_s)})


Schedule = Hours | Cron | During


def valid_span(when: Schedule) -> tuple[UtcS, UtcS]:
    """Return the span in which a schedule counts: for ever, unless it is bounded."""
    return (when.from_s, when.until_s) if isinstance(when, During) else (ALWAYS_S, NEVER_S)


def within(when: Schedule, from_s: UtcS, until_s: UtcS) -> Schedule | None:
    """Return the part of a schedule in [from_s, until_s); None where nothing is left of it."""
    first_s, last_s = valid_span(when)
    from_s, until_s = max(from_s, first_s), min(until_s, last_s)
    if (from_s, until_s) == (first_s, last_s):
        return when
    if from_s >= until_s:
        return None
    return During(when.when if isinstance(when, During) else when, from_s, until_s)
