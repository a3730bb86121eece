"""Whose something is that outlives a process: a name which no later process gets again."""

import contextlib
import os
import shutil
import subprocess
import zlib
from pathlib import Path


def owner_of(pid: int) -> str:
    """A process, told from one that gets its number later, or has it elsewhere.

    Elsewhere is another namespace of processes, or another host: a folder for what is temporary may
    be shared by the nodes of a cluster, and the first namespace has one number on all of them.
    """
    return f"{pid}-{_began(pid)}-{_whereabouts()}"


def lives(owner: str) -> bool:
    """Whether the process that such a name means is there.

    Of one elsewhere, in a container or on another host, nobody here can tell: it does.
    """
    pid, _, rest = owner.partition("-")
    began, _, whereabouts = rest.partition("-")
    if whereabouts and whereabouts != _whereabouts():
        return True
    return pid.isdecimal() and began != "" and _began(int(pid)) == began


def remove_folder(folder: Path) -> None:
    """Remove a folder, as far as we may; how deep it is may be a task's doing."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _began(pid: int) -> str:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return text.rpartition(b")")[2].split()[19].decode()
    return ""


def _whereabouts() -> str:
    """A namespace on a host. Not this boot's: what was there before it is to be found again."""
    namespace = "".join(filter(str.isdecimal, os.readlink("/proc/self/ns/pid")))
    return f"{namespace}{zlib.crc32(os.fsencode(os.uname().nodename)):08x}"
