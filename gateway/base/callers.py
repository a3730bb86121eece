"""Tells whether the peer of a local socket is our own user or a slot's task. Linux.

A task of a local pool may run as our own user. It can dial the gateway's socket but must not give
orders, so this module checks whether the process is a descendant of a worker. A worker names itself
AGENT_NAME and has the kernel make it the parent of orphans of its tasks
(gateway.worker.isolation.adoption), so neither a session of its own nor a double fork takes a
process out from under it. A process with more ancestors than are examined counts as a slot's.

This does not stop a malicious task of our own user: it can read our files and end its worker. Pools
with a sandbox, or a separate user for their slots, do (docs/trust.md).
"""

import os
from pathlib import Path
from typing import Final

AGENT_NAME: Final = "gridfed-worker"  # the kernel keeps 15 bytes
_DEPTH_MAX: Final = 1000
_TRIES: Final = 5


class Callers:
    """Distinguishes our own user's commands from the tasks of slots.

    Args:
        proc: where the proc file system is mounted.
        own: the id of our own process.
    """

    def __init__(self, proc: Path = Path("/proc"), own: int | None = None) -> None:
        self._proc = proc
        self._own = os.getpid() if own is None else own

    def is_owner(self, uid: int, pid: int) -> bool:
        """Whether a process may give orders as our user; False if it has ended by now."""
        if uid not in (0, os.geteuid()):
            return False
        if not self._proc.is_dir():
            return True  # not Linux: there are no sandboxes either
        # A gateway may itself be the task of a slot in another grid; that worker is not ours. Read
        # this each time: the id of an ended ancestor is reused.
        above_us = frozenset(self._chain(self._own) or ())
        for _ in range(_TRIES):
            above = self._chain(pid)
            if above is None:
                continue
            if len(above) > _DEPTH_MAX:
                return False
            names = [self._name(each) for each in above if each not in above_us]
            # Process ids may have been reused during the walk. As long as no process on it ends,
            # the chain of a process stays the same.
            if self._chain(pid) == above:
                return AGENT_NAME not in names
        return False

    def _chain(self, pid: int) -> list[int] | None:
        """The ancestors of a process, nearest first; None when one of them ended meanwhile.

        At most one more than _DEPTH_MAX: nothing above them is examined.
        """
        found: list[int] = []
        parent = self._parent(pid)
        if parent is None:
            return None
        while parent > 1 and len(found) <= _DEPTH_MAX:
            found.append(parent)
            above = self._parent(parent)
            if above is None:
                # Another user's process may be hidden from us (hidepid); a worker of ours is not.
                below = found[-2] if len(found) > 1 else pid
                return found if self._parent(below) == parent else None
            parent = above
        return found

    def _parent(self, pid: int) -> int | None:
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        return int(stat.rpartition(b")")[2].split()[1])

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").rstrip("\n")
        except OSError:
            return ""
