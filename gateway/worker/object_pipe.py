"""A connection with messages and descriptors, under trio: of object host, gateway and agents."""

import socket
from contextlib import suppress
from typing import Any

import trio

from federation.sessions.object_socket import (
    ANCILLARY_BYTES,
    READ_BYTES,
    ObjectFrames,
    ancillary_of,
    encode_frame,
    files_of,
)


class ObjectPipe:
    """One connection with messages and descriptors, under trio."""

    def __init__(self, connection: trio.socket.SocketType) -> None:
        self._socket = connection
        self._frames = ObjectFrames()
        self._sending = trio.Lock()

    async def receive(self) -> list[tuple[Any, int]]:
        """Return the next messages with their descriptors; none at the end. ProtocolError."""
        while True:
            data, ancillary, _, _ = await self._socket.recvmsg(
                READ_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
            found = list(self._frames.feed(data, files_of(ancillary)))
            if found or not data:
                return found

    async def send(self, message: Any, file: int = -1) -> None:
        """Send a message; one whose receiver is gone is dropped."""
        data = encode_frame(message)
        with suppress(OSError, trio.ClosedResourceError):
            async with self._sending:
                sent = await self._socket.sendmsg([data], ancillary_of(file))
                while sent < len(data):
                    sent += await self._socket.send(data[sent:])

    def close(self) -> None:
        """Close it."""
        self._socket.close()
        self._frames.close()
