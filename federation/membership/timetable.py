"""The timers of a member of the federation: a heap of times. Pure."""

import heapq
from collections.abc import Iterator
from enum import Enum, auto

from federation.clocks import MonoS


class TimerKind(Enum):
    """The kinds of timers."""

    PROBE = auto()  # conclude one probe and begin the next
    ANSWER = auto()  # no answer yet: ask others
    RELAY = auto()  # no answer to a relayed probe either
    SUSPICION = auto()  # the time of a suspect is over
    GOSSIP = auto()  # a round to all neighbours may go out again
    FETCH = auto()  # a bulletin has not come
    EXCHANGE = auto()
    RECONNECT = auto()
    JOIN = auto()
    REAP = auto()


class TimerTable:
    """Timers, each with a key. None is cancelled: a timer that is no longer needed does nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[MonoS, int, TimerKind, object]] = []
        self._count = 0

    def at(self, at_s: MonoS, what: TimerKind, key: object = None) -> None:
        """Set a timer, after all earlier ones for the same time."""
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, what, key))

    def due(self, now: MonoS) -> Iterator[tuple[TimerKind, object]]:
        """Remove and return, in order, the timers due by now, with those set in the meantime."""
        while self._heap and self._heap[0][0] <= now:
            _, _, what, key = heapq.heappop(self._heap)
            yield what, key

    @property
    def next_at_s(self) -> MonoS | None:
        """The time of the next timer."""
        return self._heap[0][0] if self._heap else None
