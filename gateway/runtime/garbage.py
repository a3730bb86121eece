"""Schedules cyclic garbage collection: young objects often, all of them when the gateway is idle.

Nearly all objects of a message are freed without the collector. By default Python collects all
objects when their number has grown by a quarter, at any moment: with 10,000 open jobs for 0.15 s,
and for half a second with 50,000. Here it automatically collects only young objects, and few at a
time. All objects are collected when the gateway is idle, or when memory has grown so much that
garbage may fill it.
"""

import gc
import os
from collections.abc import Callable
from typing import Final

import trio

from gateway.worker.isolation.limits import resident_bytes

YOUNG: Final = 5_000  # new objects since the last collection, which takes 1 ms for so many
# One collection in this many includes the survivors of earlier ones. Its own survivors are old.
LOOKS_A_SECOND_LOOK: Final = 2
NEVER: Final = 2**31 - 1
LOOK_S: Final = 1.0
GROWN_LOOKS: Final = 10  # second-generation collections that make a full one worth while
IDLE_EVENTS: Final = 8  # in LOOK_S: only periodic events
GROWTH: Final = 4.0  # times the memory after the last full collection
GROWTH_BYTES: Final = 256 << 20  # and this much more


class Garbage:
    """Decides when a full collection is due.

    Args:
        resident: the resident bytes of the process after the last full collection.
    """

    def __init__(self, resident: int) -> None:
        self.looked(resident)
        self._events = 0

    def looked(self, resident: int) -> None:
        """Note a full collection, with the resident bytes after it."""
        self._most_bytes = int(resident * GROWTH) + GROWTH_BYTES

    def is_due(self, second_looks: int, events: int, resident: int) -> bool:
        """Whether a full collection is due.

        Args:
            second_looks: second-generation collections since the last full one.
            events: that the gateway has handled in this run.
            resident: the current resident bytes of the process.
        """
        is_idle = events - self._events <= IDLE_EVENTS
        self._events = events
        return second_looks >= GROWN_LOOKS and (is_idle or resident > self._most_bytes)


async def collect_when_idle(events: Callable[[], int]) -> None:
    """Collect this process's garbage for ever; objects that exist by now are kept out of it.

    `events` returns the number of events so far.
    """
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, LOOKS_A_SECOND_LOOK, NEVER)
    garbage = Garbage(resident_bytes(os.getpid()))
    try:
        while True:
            await trio.sleep(LOOK_S)
            if garbage.is_due(gc.get_count()[2], events(), resident_bytes(os.getpid())):
                gc.collect()
                garbage.looked(resident_bytes(os.getpid()))
    finally:
        gc.set_threshold(*before)
