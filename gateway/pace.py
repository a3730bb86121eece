"""So many a second and no more: token buckets, pure."""

from collections.abc import Callable
from typing import Final

from gateway.half_open import source_of

SOURCES_MAX: Final = 4_096


class Pace:
    """Counts what happens against a rate; a second's worth may come at once.

    Args:
        per_s: how many a second; 0 for as many as come.
        now_s: any monotonic clock.
    """

    __slots__ = ("_left", "_per_s", "_since_s")

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._left = per_s
        self._since_s = now_s

    def note(self, now_s: float) -> None:
        """One has happened, whether it was allowed or not."""
        self._refill(now_s)
        self._left -= 1

    def allows(self, now_s: float) -> bool:
        """Whether one more would be within the rate."""
        if not self._per_s:
            return True
        self._refill(now_s)
        return self._left >= 0

    def is_full(self, now_s: float) -> bool:
        """Whether it is as if nothing had ever happened."""
        self._refill(now_s)
        return self._left >= self._per_s

    def _refill(self, now_s: float) -> None:
        gained = (now_s - self._since_s) * self._per_s
        self._left = min(self._per_s, self._left + gained)
        self._since_s = now_s


class HostPaces:
    """A pace for each host by itself, so that one that is too fast holds up no other.

    Hosts are told apart as by gateway.half_open.source_of. Of more than SOURCES_MAX that are at it
    at a time, some are not held to it.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._paces: dict[str, Pace] = {}

    def take(self, host: str, now_s: float) -> bool:
        """Whether one more is within the rate of this host; it counts then."""
        if not self._per_s:
            return True
        source = source_of(host)
        pace = self._paces.get(source)
        if pace is None:
            self._make_room(now_s)
            pace = self._paces[source] = Pace(self._per_s, now_s)
        if not pace.allows(now_s):
            return False
        pace.note(now_s)
        return True

    def _make_room(self, now_s: float) -> None:
        if len(self._paces) >= SOURCES_MAX:
            busy = {name: pace for name, pace in self._paces.items() if not pace.is_full(now_s)}
            self._paces = busy if len(busy) < SOURCES_MAX else {}


class PacedLines:
    """Lines for the operator, at a pace: what is beyond it is counted, and told in one line.

    Args:
        say: takes a line.
        about: what the lines are about, in the plural: "joins and leaves of workers".
        per_s: as Pace has it.
        now_s: any monotonic clock.
    """

    def __init__(self, say: Callable[[str], None], about: str, per_s: float, now_s: float) -> None:
        self._say = say
        self._about = about
        self._pace = Pace(per_s, now_s)
        self._left_out = 0

    def say(self, line: str, now_s: float) -> None:
        """Say a line, or count it."""
        if self._pace.allows(now_s):
            self._pace.note(now_s)
            self.tick(now_s)
            self._say(line)
        else:
            self._left_out += 1

    def tick(self, now_s: float) -> None:
        """Say how many lines were left out, once there is room for that."""
        if self._left_out and self._pace.allows(now_s):
            self._say(f"{self._left_out:,} more {self._about}")
            self._left_out = 0
