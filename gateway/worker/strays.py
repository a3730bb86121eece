"""Whose something is that outlives a process: a name which no later process gets again."""

import contextlib
import os
from pathlib import Path


def owner_of(pid: int) -> str:
    """A process, told from one that gets its number later, or has it in another namespace."""
    return f"{pid}-{_began(pid)}-{_namespace()}"


def lives(owner: str) -> bool:
    """Whether the process that such a name means is there.

    Of one in another namespace of processes, a container's, nobody here can tell: it does.
    """
    pid, _, rest = owner.partition("-")
    began, _, namespace = rest.partition("-")
    if namespace and namespace != _namespace():
        return True
    return pid.isdecimal() and began != "" and _began(int(pid)) == began


def _began(pid: int) -> str:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return text.rpartition(b")")[2].split()[19].decode()
    return ""


def _namespace() -> str:
    return "".join(filter(str.isdecimal, os.readlink("/proc/self/ns/pid")))
