"""What a member of the federation is to do when: a heap of moments. Pure."""

import heapq
from collections.abc import Iterator
from enum import Enum, auto


class Timer(Enum):
    """What there is to do."""

    PROBE = auto()  # conclude one probe and begin the next
    ANSWER = auto()  # no answer yet: ask others
    RELAY = auto()  # nor to what somebody asked us
    SUSPICION = auto()  # a suspect has had its time
    GOSSIP = auto()  # a round to all neighbours may go out again
    FETCH = auto()  # a bulletin has not come
    EXCHANGE = auto()
    RECONNECT = auto()
    JOIN = auto()
    REAP = auto()


class Timetable:
    """Things to do, each with a key. Nothing is taken back: who is woken in vain does nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer, object]] = []
        self._count = 0

    def at(self, at_s: float, what: Timer, key: object = None) -> None:
        """Do this at a time, after whatever was set for the same time before."""
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, what, key))

    def due(self, now: float) -> Iterator[tuple[Timer, object]]:
        """Take out, in order, what is to be done by now; also what is set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            _, _, what, key = heapq.heappop(self._heap)
            yield what, key

    @property
    def next_s(self) -> float | None:
        """When there is something to do next."""
        return self._heap[0][0] if self._heap else None
