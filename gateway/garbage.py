"""When a gateway looks for garbage in cycles: young objects often, all of them when nobody waits.

Nearly all that a message makes is freed without a look. Python looks at all that lives whenever
that has grown by a quarter, in the middle of whatever is done then: with 10,000 open jobs for
0.15 s, and for half a second with 50,000. So here it looks at young objects by itself, and at few
at a time; at all of them once nothing happens, or when memory has grown so much that it may be
garbage that fills it.
"""

import gc
import os
from collections.abc import Callable
from typing import Final

import trio

from gateway.worker.limits import resident_bytes

YOUNG: Final = 5_000  # objects more than at the last look, which takes 1 ms for so many
# One look in so many takes in what was young at the last ones. What it leaves is old.
LOOKS_A_SECOND_LOOK: Final = 2
NEVER: Final = 2**31 - 1
LOOK_S: Final = 1.0
GROWN_LOOKS: Final = 10  # second looks after which it is worth while to look at all
IDLE_EVENTS: Final = 8  # in LOOK_S: nothing but what comes with time
GROWTH: Final = 4.0  # times the memory after the last look at all
GROWTH_BYTES: Final = 256 << 20  # and so much more


class Garbage:
    """Says when all objects are to be looked at.

    Args:
        resident: the bytes that the process has in memory after the last such look.
    """

    def __init__(self, resident: int) -> None:
        self.looked(resident)
        self._events = 0

    def looked(self, resident: int) -> None:
        """All were looked at, and this is what is left in memory."""
        self._most_bytes = int(resident * GROWTH) + GROWTH_BYTES

    def is_due(self, second_looks: int, events: int, resident: int) -> bool:
        """Whether it is time.

        Args:
            second_looks: at young objects since the last look at all.
            events: that the gateway has taken in its life.
            resident: the bytes that the process has in memory now.
        """
        is_idle = events - self._events <= IDLE_EVENTS
        self._events = events
        return second_looks >= GROWN_LOOKS and (is_idle or resident > self._most_bytes)


async def collect_when_idle(events: Callable[[], int]) -> None:
    """Look after this process' garbage for ever; what it has been made of by now stays.

    `events` says how many there have been.
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
