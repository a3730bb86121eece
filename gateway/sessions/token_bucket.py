"""Rate limits by token buckets. Pure."""

from collections.abc import Callable
from typing import Final

from federation.clocks import MonoS
from gateway.sessions.half_open import source_of

SOURCES_MAX: Final = 4_096


class TokenBucket:
    """Counts events against a rate; a second's worth may come at once.

    Args:
        per_s: the rate per second; 0 for no limit.
        mono_s: any monotonic clock.
    """

    __slots__ = ("_left", "_per_s", "_since_s")

    def __init__(self, per_s: float, mono_s: MonoS) -> None:
        self._per_s = per_s
        self._left = per_s
        self._since_s = mono_s

    def note(self, mono_s: MonoS) -> None:
        """Count an event, whether it was allowed or not."""
        self._refill(mono_s)
        self._left -= 1

    def allows(self, mono_s: MonoS) -> bool:
        """Whether one more event would be within the rate."""
        if not self._per_s:
            return True
        self._refill(mono_s)
        return self._left >= 0

    def is_full(self, mono_s: MonoS) -> bool:
        """Whether the bucket is full, as if no event had ever happened."""
        self._refill(mono_s)
        return self._left >= self._per_s

    def _refill(self, mono_s: MonoS) -> None:
        gained = (mono_s - self._since_s) * self._per_s
        self._left = min(self._per_s, self._left + gained)
        self._since_s = mono_s


class HostTokenBuckets:
    """A pace for each host, so that a host above its rate does not delay others.

    gateway.sessions.half_open.source_of tells hosts apart. With more than SOURCES_MAX active hosts
    at a time, some are not limited.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._paces: dict[str, TokenBucket] = {}

    def take(self, host: str, mono_s: MonoS) -> bool:
        """Whether one more event is within the rate of this host; if so, count it."""
        if not self._per_s:
            return True
        source = source_of(host)
        pace = self._paces.get(source)
        if pace is None:
            self._make_room(mono_s)
            pace = self._paces[source] = TokenBucket(self._per_s, mono_s)
        if not pace.allows(mono_s):
            return False
        pace.note(mono_s)
        return True

    def _make_room(self, mono_s: MonoS) -> None:
        if len(self._paces) >= SOURCES_MAX:
            busy = {name: pace for name, pace in self._paces.items() if not pace.is_full(mono_s)}
            self._paces = busy if len(busy) < SOURCES_MAX else {}


class RateLimitedLines:
    """Lines for the operator at a limited rate; further lines are counted and reported in one.

    Args:
        say: receives a line.
        about: the subject of the lines, in the plural: "joins and leaves of workers".
        per_s: as for TokenBucket.
        mono_s: any monotonic clock.
    """

    def __init__(self, say: Callable[[str], None], about: str, per_s: float, mono_s: MonoS) -> None:
        self._say = say
        self._about = about
        self._pace = TokenBucket(per_s, mono_s)
        self._left_out = 0

    def say(self, line: str, mono_s: MonoS) -> None:
        """Say a line, or count it."""
        if self._pace.allows(mono_s):
            self._pace.note(mono_s)
            self.tick(mono_s)
            self._say(line)
        else:
            self._left_out += 1

    def tick(self, mono_s: MonoS) -> None:
        """Say how many lines were left out, once the rate allows it."""
        if self._left_out and self._pace.allows(mono_s):
            self._say(f"{self._left_out:,} more {self._about}")
            self._left_out = 0
