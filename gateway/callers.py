"""Who is at the other end of a socket of this host: our own user, or a slot's task. Linux.

A task of a local pool may run as our own user. It can dial the gateway's socket, but orders are not
its to give: it is below a worker, and that is looked at here. A worker calls itself AGENT_NAME, and
has the kernel make it the parent of whatever its tasks leave behind (gateway.worker.adoption), so
that neither a session of its own nor a second fork takes a process out from under it. What is below
more processes than are looked at is taken for a slot's.

This is no wall against a task of our own user that means harm: it can read our files, and can end
its worker. Pools with a sandbox, or a user for their slots, are (docs/trust.md).
"""

import os
from pathlib import Path
from typing import Final

AGENT_NAME: Final = "gridfed-worker"  # 15 bytes are what the kernel keeps
_DEPTH_MAX: Final = 1000
_TRIES: Final = 5


class Callers:
    """Tells our own user's commands from the tasks of slots.

    Args:
        proc: where processes are shown.
        own: our own process.
    """

    def __init__(self, proc: Path = Path("/proc"), own: int | None = None) -> None:
        self._proc = proc
        self._own = os.getpid() if own is None else own

    def is_owner(self, uid: int, pid: int) -> bool:
        """Whether a process may order what our user may; not one that is gone by now."""
        if uid not in (0, os.geteuid()):
            return False
        if not self._proc.is_dir():
            return True  # no Linux: there are no sandboxes either
        # A gateway may itself be the task of a slot, in another grid: that worker is none of ours.
        # Asked anew: what ends above us leaves its number to others.
        above_us = frozenset(self._chain(self._own) or ())
        for _ in range(_TRIES):
            above = self._chain(pid)
            if above is None:
                continue
            if len(above) > _DEPTH_MAX:
                return False
            names = [self._name(each) for each in above if each not in above_us]
            # Numbers may have become others' while we went up: a process has one way up for as
            # long as nobody on it ends.
            if self._chain(pid) == above:
                return AGENT_NAME not in names
        return False

    def _chain(self, pid: int) -> list[int] | None:
        """The processes above one, nearest first; None when one of them ended meanwhile.

        One more than _DEPTH_MAX where there are so many: nobody looks at what is above them.
        """
        found: list[int] = []
        parent = self._parent(pid)
        if parent is None:
            return None
        while parent > 1 and len(found) <= _DEPTH_MAX:
            found.append(parent)
            above = self._parent(parent)
            if above is None:
                # Another user's may be hidden from us (hidepid); no worker of ours is.
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
