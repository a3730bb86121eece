"""Keeps tests without the marker `real` away from things that depend on the host's speed.

A test that starts a process, opens a socket or sleeps in real time fails, unless it is marked
`real`: so the other tests stay deterministic, and the marker cannot be forgotten.
"""

import sys
from typing import Any

import pynng
import pytest

# https://docs.python.org/3/library/audit_events.html
PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
SOCKETS = {"socket.bind", "socket.connect"}

_running: str | None = None


class NotPure(BaseException):
    """A test does an action of `real` tests alone; not an Exception, so that no code handles it."""


def install() -> None:
    """Watch this interpreter from now on; it cannot be undone."""
    sys.addaudithook(_audit)
    open_socket = pynng.Socket.__init__

    def guarded(self: pynng.Socket, *args: Any, **kwargs: Any) -> None:
        _refuse("opens a pynng socket")
        open_socket(self, *args, **kwargs)

    pynng.Socket.__init__ = guarded


def begin(item: pytest.Item) -> None:
    """Guard a test, with its fixtures, unless it is marked."""
    global _running
    _running = None if item.get_closest_marker("real") else item.nodeid


def end() -> None:
    """The test is over."""
    global _running
    _running = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _running is None:
        return
    if event in PROCESSES:
        _refuse("starts a process")
    elif event in SOCKETS:
        _refuse("opens a socket")
    elif event == "time.sleep" and args[0] > 0:
        _refuse("sleeps in real time")


def _refuse(what: str) -> None:
    if _running is not None:
        raise NotPure(f"{_running} {what}: mark it with @pytest.mark.real")
