"""Virtual time: a heap of times, each with a callback. Ties go by the order of scheduling."""

import heapq
import itertools
from collections.abc import Callable
from typing import Final

from federation.clocks import UtcS

# The UTC time at the beginning of the simulated world.
EPOCH_S: Final = UtcS(1_800_000_000.0)

Call = Callable[[], None]


class ClockTimer:
    """A scheduled callback, which can be cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        """Cancel the callback."""
        self.call = None


class Clock:
    """The one clock of a world, in seconds from its beginning.

    Args:
        on_earlier: called when a callback is due before all known ones: a sleeper until the next
            event (the trio driver) must look again.
    """

    def __init__(self, on_earlier: Call = lambda: None) -> None:
        self._now_s = 0.0
        self.events = 0
        self.on_earlier = on_earlier
        self._heap: list[tuple[float, int, ClockTimer]] = []
        self._order = itertools.count()

    @property
    def now_s(self) -> float:
        """The current time."""
        return self._now_s

    def at(self, when_s: float, call: Call) -> ClockTimer:
        """Schedule a callback at a time, or now if that has passed."""
        timer = ClockTimer(call)
        when_s = max(when_s, self.now_s)
        is_first = not self._heap or when_s < self._heap[0][0]
        heapq.heappush(self._heap, (when_s, next(self._order), timer))
        if is_first:
            self.on_earlier()
        return timer

    def after(self, wait_s: float, call: Call) -> ClockTimer:
        """Schedule a callback in so many seconds."""
        return self.at(self.now_s + wait_s, call)

    @property
    def next_s(self) -> float | None:
        """The time of the next callback, None without one."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Advance to the next time, and run its first callback."""
        when_s, _, timer = heapq.heappop(self._heap)
        self._now_s = max(self._now_s, when_s)
        if timer.call is not None:
            self.events += 1
            timer.call()

    def run(self, until_s: float, is_over: Callable[[], bool], look_s: float = 0.25) -> None:
        """Run callbacks until a time, or until `is_over`, which is called every `look_s`."""
        look_at_s = self.now_s
        while self._heap and self._heap[0][0] <= until_s:
            if self.now_s >= look_at_s:
                if is_over():
                    return
                look_at_s = self.now_s + look_s
            self.step()
        if not self._heap or self._heap[0][0] > until_s:
            self._now_s = max(self._now_s, until_s)
