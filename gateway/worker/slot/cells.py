"""Five numbers that an agent and a slot share without locks, and without waking each other.

The slot writes the task that it is at and the time since when; the agent reads both to enforce time
limits and to name the task at fault when the slot dies. The agent writes a limit; the slot starts
no task at or past it. That takes unstarted tasks back even while a task holds the interpreter for
seconds: see gateway.worker.task_book. The agent also writes the time at which it is going to stop a
task, for the task to read.

Each cell is an aligned 64-bit integer in a shared mapping, written by one side only, so that no
reader ever sees half of a number.
"""

import fcntl
import mmap
import os
from typing import Final

STARTED: Final = 0  # the number of the task that the slot started last
SINCE_NS: Final = 1  # when it started, by the monotonic clock; 0 between tasks
LIMIT: Final = 2  # the slot starts no task of this number or above
# when the agent stops the task of the number in STOPS_WHICH, by the monotonic clock
STOPS_NS: Final = 3
STOPS_WHICH: Final = 4
NO_LIMIT: Final = (1 << 62) - 1
F_SEAL_FUTURE_WRITE: Final = 0x10  # not in Python's fcntl before 3.13
# The slot writes STARTED and then reads LIMIT; the agent writes LIMIT, waits, and reads STARTED. A
# processor delays a store for nanoseconds, so after this wait one of them has seen the other's
# value, however the two interleave.
SETTLE_S: Final = 0.002


class Cells:
    """The cells of one slot, mapped from a descriptor for the lifetime of this object."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, mmap.PAGESIZE)
        self.view = memoryview(self._map).cast("q")


def open_cells(descriptor: int) -> Cells:
    """Open the slot's end, and seal it against tasks that write to arbitrary descriptors."""
    cells = Cells(descriptor)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
    os.close(descriptor)
    return cells


def create_cells() -> tuple[Cells, int]:
    """Return new cells, without a task or limit, and a descriptor for the other process."""
    descriptor = os.memfd_create("gridfed-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    # If the file could shrink, reading it would kill the agent.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    cells = Cells(descriptor)
    cells.view[STARTED] = -1
    cells.view[LIMIT] = NO_LIMIT
    cells.view[STOPS_WHICH] = -1
    return cells, descriptor
