"""A connection with messages and descriptors, under trio: of object host, gateway and agents."""

import os
import socket
from collections.abc import Iterable
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


def close_files(messages: Iterable[tuple[Any, int]]) -> None:
    """Close the descriptors of messages that nothing is done with."""
    for _, file in messages:
        if file >= 0:
            os.close(file)


class ObjectPipe:
    """One connection with messages and descriptors, under trio.

    Args:
        connection: to the other end.
        takes_files: whether descriptors are received; else the kernel drops those that are sent.
    """

    def __init__(self, connection: trio.socket.SocketType, *, takes_files: bool = True) -> None:
        self._socket = connection
        self.takes_files = takes_files
        self._frames = ObjectFrames()
        self._sending = trio.Lock()

    async def receive(self) -> list[tuple[Any, int]]:
        """Return the next messages with their descriptors; none at the end. ProtocolError."""
        while True:
            room = ANCILLARY_BYTES if self.takes_files else 0
            data, ancillary, _, _ = await self._socket.recvmsg(
                READ_BYTES, room, socket.MSG_CMSG_CLOEXEC
            )
            found: list[tuple[Any, int]] = []
            try:
                for each in self._frames.feed(data, files_of(ancillary)):
                    found.append(each)  # those before a bad one are closed
            except BaseException:
                close_files(found)
                self._frames.close()
                raise
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
