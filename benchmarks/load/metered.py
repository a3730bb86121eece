"""`python -m benchmarks.load.metered FILE ARGUMENTS…`: a gateway with timed turns of its loop.

A turn is the loop's work between two looks at the input, during which it hears no peer. It is timed
by the CPU time of the loop's thread, which is independent of other load on the host, and by the
clock. Garbage collections count. FILE gets the figures when the gateway ends.
"""

import atexit
import functools
import json
import sys
import time
from collections import Counter
from typing import Any, Final

import trio

from gateway.command import main

LONG_S: Final = 0.020
STEP_MS: Final = 5  # of the histogram
FIRST_S: Final = 0.5  # after the start, for which no client waits


class TurnMeter(trio.abc.Instrument):
    """Times the turns of a loop."""

    def __init__(self) -> None:
        self._begun_s = self._cpu_s = self._clock_s = 0.0
        self._step_s, self._longest_step = 0.0, (0.0, "")
        self.histogram: Counter[int] = Counter()
        self.longest: list[dict[str, Any]] = []
        self.cpu_max_s = self.clock_max_s = 0.0
        self.turns = 0

    def before_run(self) -> None:
        """Note that the loop begins."""
        self._begun_s = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        """Note that a turn begins."""
        self._cpu_s, self._clock_s = time.thread_time(), time.monotonic()
        self._longest_step = (0.0, "")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note that a task of the loop runs."""
        self._step_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note that it waits again, or is done."""
        self._longest_step = max(self._longest_step, (time.thread_time() - self._step_s, task.name))

    def before_io_wait(self, timeout: float) -> None:
        """Note that a turn ends."""
        if self._clock_s - self._begun_s < FIRST_S:
            return
        cpu_s = time.thread_time() - self._cpu_s
        clock_s = time.monotonic() - self._clock_s
        self.turns += 1
        self.cpu_max_s = max(self.cpu_max_s, cpu_s)
        self.clock_max_s = max(self.clock_max_s, clock_s)
        self.histogram[int(cpu_s * 1e3) // STEP_MS * STEP_MS] += 1
        if cpu_s > LONG_S:
            step_s, task = self._longest_step
            self.longest.append(
                {"cpu_s": cpu_s, "clock_s": clock_s, "task": task, "step_cpu_s": step_s}
            )

    def figures(self) -> dict[str, Any]:
        """Return the figures, with the long turns one by one."""
        return {
            "turns": self.turns,
            "by_cpu_ms": dict(sorted(self.histogram.items())),
            "cpu_max_s": self.cpu_max_s,
            "clock_max_s": self.clock_max_s,
            "over_20_ms": len(self.longest),
            "longest": sorted(self.longest, key=lambda each: -each["cpu_s"])[:20],
        }


def write(meter: TurnMeter, name: str) -> None:
    """Write the figures to a file."""
    with open(name, "w") as file:
        json.dump(meter.figures(), file)


if __name__ == "__main__":
    chosen = TurnMeter()
    atexit.register(write, chosen, sys.argv.pop(1))
    trio.run = functools.partial(trio.run, instruments=[chosen])  # type: ignore[assignment]
    main()
