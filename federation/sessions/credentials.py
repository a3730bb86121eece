"""The process at the other end of a Unix socket, by the kernel's word. Linux."""

import hashlib
import os
import socket
import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

_CREDENTIALS: Final = struct.Struct("3i")


class PeerCredentials(NamedTuple):
    """A process, its user and its group, as they were when it connected or began to listen."""

    pid: int
    uid: int
    gid: int


def peer_credentials(connection: Any) -> PeerCredentials:
    """Return who is at the other end of a connected Unix socket, of the standard library or trio.

    Raises OSError.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return PeerCredentials(*_CREDENTIALS.unpack(raw))


@cache
def place_of_this_process() -> str:
    """Return what is equal for processes that reach each other's abstract Unix sockets.

    That is the running kernel and the network namespace; empty where that can't be told.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/net')}".encode()).hexdigest()
    except OSError:
        return ""


def is_here(place: str) -> bool:
    """Whether a gateway's place is that of this process: files can be handed over."""
    return bool(place) and place == place_of_this_process()
