"""The process at the other end of a Unix socket, by the kernel's word. Linux."""

import socket
import struct
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
