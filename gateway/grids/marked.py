"""Processes of this host that carry a mark in their environment, found by /proc and ended safely.

The mark is part of the program's start: a starter can't lose track of it, even by dying right
after. Children inherit it, so the leftovers of a process are found as well.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHOWN_S: Final = 1.0  # no process takes that long to be shown


@dataclass(frozen=True, slots=True)
class Marked:
    """A process: the text after the mark, and its command line.

    `since`: in clock ticks since this host has started.
    """

    pid: int
    said: str
    command: tuple[str, ...]
    since: int


def find(variable: str, begin: str) -> Iterator[Marked]:
    """Yield the running processes of our user whose variable begins with a text."""
    mark = f"{variable}={begin}".encode()
    for entry in os.listdir("/proc"):
        found = _look(int(entry), mark) if entry.isdecimal() else None
        if found is not None:
            yield found


def wait_until_shown(pid: int, variable: str) -> None:
    """Wait until a process that was just started can be found, or has ended; blocks.

    The kernel lets the starter go on a moment before it shows the environment.
    """
    ends_s = time.monotonic() + SHOWN_S
    while _look(pid, f"{variable}=".encode()) is None and time.monotonic() < ends_s:
        if not _runs(pid):
            return
        time.sleep(0.001)


def _runs(pid: int) -> bool:
    try:
        return _words(pid)[0] != b"Z"
    except OSError:
        return False


def send(process: Marked, number: signal.Signals) -> None:
    """Send a signal to a process, and to no other that has got its number."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if _since(process.pid) == process.since:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _look(pid: int, mark: bytes) -> Marked | None:
    folder = Path(f"/proc/{pid}")
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
        said = next((each for each in variables if each.startswith(mark)), None)
        command = (folder / "cmdline").read_bytes().split(b"\0")[:-1] if said is not None else []
    except OSError:
        return None  # it has ended, or is another user's
    since = _since(pid)
    if said is None or not command or since is None:
        return None
    texts = tuple(each.decode(errors="surrogateescape") for each in command)
    return Marked(pid, said[len(mark) :].decode(errors="surrogateescape"), texts, since)


def _since(pid: int) -> int | None:
    """Return when a process has begun; None when there is none."""
    try:
        return int(_words(pid)[19])
    except OSError:
        return None


def _words(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name in brackets, which may be anything."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
