"""Whose something is that outlives a process: a name which no later process gets again."""

import contextlib
from pathlib import Path


def owner_of(pid: int) -> str:
    """A process, told from another that may get its number later."""
    return f"{pid}-{_began(pid)}"


def lives(owner: str) -> bool:
    """Whether the process that such a name means is there."""
    pid, _, began = owner.partition("-")
    return pid.isdecimal() and began != "" and _began(int(pid)) == began


def _began(pid: int) -> str:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return text.rpartition(b")")[2].split()[19].decode()
    return ""
