"""A worker is the parent of whatever its tasks leave behind, and is known by its name. Linux.

A process whose parent has ended belongs to the first process of the host, wherever it came from.
With the kernel told so, it belongs to the worker: then what a task has started stays below the
worker, and the gateway knows it for a slot's (gateway.callers).
"""

import ctypes
import os
import sys
from collections.abc import Collection
from typing import Final

from gateway.callers import AGENT_NAME

PR_SET_NAME: Final = 15
PR_SET_CHILD_SUBREAPER: Final = 36
# Our own children are waited for by whoever has started them, at once. What has ended and is still
# there after so long was adopted, and nobody else will.
REAP_S: Final = 5.0


def adopt_strays() -> None:
    """Be called a worker, and be the parent of what our children leave behind."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_NAME, AGENT_NAME.encode(), 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Reaper:
    """Removes adopted processes that have ended; else they would fill the table of processes."""

    def __init__(self) -> None:
        self._pid = 0
        self._since_s = 0.0

    def look(self, own: Collection[int], now_s: float) -> None:
        """Look for one; never one of our `own`. Call it often: it looks at one at a time."""
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # we have no children at all
        if ended is None or ended.si_pid in own:
            self._pid = 0
        elif ended.si_pid != self._pid:
            self._pid, self._since_s = ended.si_pid, now_s
        elif now_s - self._since_s > REAP_S:
            os.waitpid(ended.si_pid, os.WNOHANG)
            self._pid = 0
