"""The worker adopts the orphaned processes of its tasks, and carries a known process name. Linux.

Without this, a process whose parent has ended becomes a child of the host's first process. A worker
registers with the kernel as a subreaper, so the processes that a task has started stay below the
worker, and the gateway recognizes them as a slot's (gateway.base.callers).
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection
from typing import Final

from federation.clocks import MonoS
from gateway.base.callers import AGENT_NAME
from gateway.worker.isolation.limits import children

PR_SET_NAME: Final = 15
PR_SET_CHILD_SUBREAPER: Final = 36
# The code that starts a child of this worker waits for it at once. An ended process that is still
# there after this time was adopted, and only the reaper will wait for it.
REAP_S: Final = 5.0


def adopt_strays() -> None:
    """Set the process name of a worker, and become the parent of orphaned descendants."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_NAME, AGENT_NAME.encode(), 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Reaper:
    """Removes adopted processes that have ended, which would otherwise fill the process table."""

    def __init__(self) -> None:
        self._seen: set[int] = set()  # processes that had ended at the last look
        self._looks_at_s = MonoS(0.0)

    def look(self, own: Collection[int], mono_s: MonoS) -> None:
        """Remove processes that had ended by the last look, but none of `own`. Call it often."""
        if mono_s < self._looks_at_s:
            return
        self._looks_at_s = mono_s + REAP_S
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
