"""Five numbers that an agent and a slot share without locks, and without waking each other.

The slot writes which task it is at and since when; the agent reads them to enforce time limits
and to name the task at fault when the slot dies. The agent writes a limit; the slot starts no
task at or past it. That takes unstarted tasks back even while a task holds the interpreter for
seconds: see gateway.worker.roster. And it writes when it is going to stop a task, for whoever asks.

Each cell is an aligned 64-bit integer in a shared mapping, written by one side only, so that
nobody ever reads half of a number.
"""

import fcntl
import mmap
import os
from typing import Final

STARTED: Final = 0  # the number of the last task that the slot came to
SINCE_NS: Final = 1  # when it came to it, by the monotonic clock; 0 while it is at none
LIMIT: Final = 2  # the slot starts no task of this number or above
STOPS_NS: Final = 3  # when the agent stops the task of that number, by the monotonic clock
STOPS_WHICH: Final = 4
NO_LIMIT: Final = (1 << 62) - 1
F_SEAL_FUTURE_WRITE: Final = 0x10  # not in Python's fcntl before 3.13
# The slot writes STARTED and then reads LIMIT; the agent writes LIMIT, waits, and reads STARTED.
# A processor holds a store back for nanoseconds, so after this wait one of them has seen the
# other's, whatever the two were doing in between.
SETTLE_S: Final = 0.002


class Cells:
    """The cells of one slot, mapped from a descriptor for as long as somebody holds this."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, mmap.PAGESIZE)
        self.view = memoryview(self._map).cast("q")


def open_cells(descriptor: int) -> Cells:
    """The slot's end. From here on a task that writes to descriptors at random can't reach it."""
    cells = Cells(descriptor)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
    os.close(descriptor)
    return cells


def create_cells() -> tuple[Cells, int]:
    """New cells, with no task started and no limit, and the descriptor for the other process."""
    descriptor = os.memfd_create("gridfed-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    # Were it to shrink, reading it would kill the agent.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    cells = Cells(descriptor)
    cells.view[STARTED] = -1
    cells.view[LIMIT] = NO_LIMIT
    cells.view[STOPS_WHICH] = -1
    return cells, descriptor
