"""A few numbers that an agent and a slot share without locks, and without waking each other.

A slot writes which task it is at and since when; the agent reads them to enforce time limits and
to name the task at fault when the slot dies. The agent writes a limit; the slot starts no task
at or past it. That takes unstarted tasks back even while a task holds the interpreter for a
second: see `gateway.worker.roster`.

Each cell is an aligned 64-bit integer in a shared mapping, written by one side only, so that no
reader ever sees half of a number.
"""

import mmap
import os
from typing import Final

STARTED: Final = 0  # the number of the last task that the slot came to
SINCE_NS: Final = 1  # when, by the monotonic clock; 0 while it runs none
LIMIT: Final = 2  # the slot starts no task of this number or above
CELLS: Final = 3
NO_LIMIT: Final = (1 << 62) - 1
# A store is visible to other cores within nanoseconds; this is a millionfold.
SETTLE_S: Final = 0.005


class Cells:
    """The cells of one slot, mapped from an inherited descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, mmap.PAGESIZE)
        self.view = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> "Cells":
        """New cells, with no task started and no limit."""
        descriptor = os.memfd_create("gridfed-slot")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        cells = cls(descriptor)
        cells.view[STARTED] = -1
        cells.view[LIMIT] = NO_LIMIT
        return cells

    def close(self) -> None:
        """Unmap and close."""
        self.view.release()
        self._map.close()
        os.close(self.descriptor)
