"""A worker is the parent of whatever its tasks leave behind, and is known by its name. Linux.

A process whose parent has ended belongs to the first process of the host, wherever it came from.
With the kernel told so, it belongs to the worker: then what a task has started stays below the
worker, and the gateway knows it for a slot's (gateway.callers).
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection
from typing import Final

from gateway.callers import AGENT_NAME
from gateway.worker.limits import children

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
        self._seen: set[int] = set()  # what had ended when we looked last
        self._looks_s = 0.0

    def look(self, own: Collection[int], now_s: float) -> None:
        """Remove those that had ended a while ago; never one of our `own`. Call it often."""
        if now_s < self._looks_s:
            return
        self._looks_s = now_s + REAP_S
        ended = {pid for pid in children(os.getpid()) if pid not in own and _has_ended(pid)}
        for pid in ended & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = ended - self._seen


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False  # its own parent has waited for it
