"""Names of processes that no later process gets, for marking the owner of leftovers."""

import contextlib
import os
import shutil
import subprocess
import zlib
from pathlib import Path


def owner_of(pid: int) -> str:
    """Return a name of a process that is distinct from reuses of its number, here or elsewhere.

    Elsewhere is another namespace of processes, or another host: nodes of a cluster may share a
    folder of temporary files, and the first namespace has the same number on all of them.
    """
    return f"{pid}-{_began(pid)}-{_whereabouts()}"


def lives(owner: str) -> bool:
    """Whether the process of such a name is alive.

    A process elsewhere, in a container or on another host, can't be checked: it counts as alive.
    """
    pid, _, rest = owner.partition("-")
    began, _, whereabouts = rest.partition("-")
    if whereabouts and whereabouts != _whereabouts():
        return True
    return pid.isdecimal() and began != "" and _began(int(pid)) == began


def remove_folder(folder: Path) -> None:
    """Remove a folder, as far as we may; a task may have made it very deep."""
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
    """Return a namespace on a host, independent of the boot, so that older leftovers are found."""
    namespace = "".join(filter(str.isdecimal, os.readlink("/proc/self/ns/pid")))
    return f"{namespace}{zlib.crc32(os.fsencode(os.uname().nodename)):08x}"
