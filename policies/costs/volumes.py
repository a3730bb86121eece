"""Slot time that each buyer has had of each pool in this calendar month, for volume prices. Pure.

Months are UTC's, as in the books. A buyer is a site, or one of this site's users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from federation.clocks import UtcS
from policies.calendar.periods import UTC_ZONE, PeriodLength, period_at

BUYERS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Buyer:
    """A buyer at a pool: another site, or a user of this site."""

    pool: str
    site: str
    user: str = ""  # of this site; empty for a site


def month_of(utc_s: UtcS) -> int:
    """Return the calendar month, counted from the year 0."""
    at = datetime.fromtimestamp(float(utc_s), UTC)
    return at.year * 12 + at.month - 1


def month_start_at_s(utc_s: UtcS) -> UtcS:
    """Return when the month began, UTC."""
    return period_at(PeriodLength.MONTH, UTC_ZONE, utc_s).start_at_s


class Volumes:
    """Slot time by buyer, continued from the books at the start.

    With very many buyers it forgets the least recent ones: that costs them a discount, and no party
    any money, until the next start.
    """

    def __init__(self) -> None:
        self._month = 0
        self._had_ns: dict[Buyer, int] = {}

    def take_up(self, had_ns: Mapping[Buyer, int], utc_s: UtcS) -> None:
        """Begin with the month's figures from the books."""
        self._month = month_of(utc_s)
        self._had_ns = dict(had_ns)

    def add(self, buyer: Buyer, wall_ns: int, utc_s: UtcS) -> None:
        """Count slot time that was charged."""
        month = month_of(utc_s)
        if month > self._month:  # a clock that was set back continues the same month
            self._month = month
            self._had_ns.clear()
        self._had_ns[buyer] = self._had_ns.pop(buyer, 0) + wall_ns
        while len(self._had_ns) > BUYERS_MAX:
            del self._had_ns[next(iter(self._had_ns))]

    def had_ns(self, buyer: Buyer, utc_s: UtcS) -> int:
        """Return the slot time that a buyer has had of a pool in the month."""
        return 0 if month_of(utc_s) > self._month else self._had_ns.get(buyer, 0)
