"""What an agent and its slot say to each other: MessagePack with a length in front.

Agent to slot:

    ["function", digest, body]
    ["chunk", number, digest, [arguments, …], prints]      tasks `number`, `number` + 1, …

Slot to agent:

    ["ready"]
    ["part", number, values, failures, prints, wall_ns, cpu_ns, peak_memory_bytes]
    ["end", number, stop]      the chunk that ends before `stop` is over; tasks from `number` on
                               were not started

Task numbers count all tasks ever sent to that slot. Both ends are ours, but a task can reach the
slot's end: the agent checks what it reads and gives up on a slot that talks nonsense.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgpack

from federation.wire import pack

HEADER: Final = struct.Struct("!I")
MESSAGE_BYTES_MAX: Final = 1 << 31


class ChannelClosed(Exception):
    """The other end is gone."""


class Nonsense(Exception):
    """The other end sent something that is no message."""


def encode(message: list[Any]) -> bytes:
    """A message as it travels."""
    body = pack(message)
    return HEADER.pack(len(body)) + body


class Decoder:
    """Bytes as they come, messages as they are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Take bytes; give the messages that they complete. Raises Nonsense."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if size > MESSAGE_BYTES_MAX:
                raise Nonsense("a message that is too large")
            if len(self._buffer) < HEADER.size + size:
                return
            body = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            yield _decode(body)


class BlockingChannel:
    """The slot's end: one thread, blocking."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: list[Any]) -> None:
        """Send a message whole."""
        self._socket.sendall(encode(message))

    def receive(self) -> list[Any]:
        """Wait for a message. Raises ChannelClosed."""
        (size,) = HEADER.unpack(self._read(HEADER.size))
        return _decode(self._read(size))

    def _read(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ChannelClosed
            view = view[count:]
        return bytes(buffer)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def _decode(body: bytes) -> list[Any]:
    try:
        message = msgpack.unpackb(body, raw=False, max_bin_len=len(body), max_str_len=len(body))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Nonsense(str(error)) from None
    if type(message) is not list or not message or type(message[0]) is not str:
        raise Nonsense("no message")
    return message
