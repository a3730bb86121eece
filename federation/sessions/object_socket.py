"""Messages with descriptors on a Unix socket: between object host, gateway, agents and clients.

`ObjectFrames` turns what was received into messages; `BlockingObjectSocket` is the end of a client.
The ends under trio are in gateway.objects and gateway.worker.
"""

import array
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from federation.errors import ProtocolError
from federation.messages.objects import OBJECT_MESSAGES
from federation.sessions.credentials import peer_credentials

MESSAGE_BYTES_MAX: Final = 1 << 16
FILES_MAX: Final = 8  # descriptors that wait for their message
READ_BYTES: Final = 1 << 16
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(FILES_MAX * 4)
_LENGTH: Final = struct.Struct("!I")


def encode_frame(message: Any) -> bytes:
    """Encode a message with its length."""
    body = OBJECT_MESSAGES.encode(message)
    return _LENGTH.pack(len(body)) + body


def files_of(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with received bytes."""
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = array.array("i")
            whole.frombytes(data[: len(data) - len(data) % whole.itemsize])
            found += whole
    return found


def ancillary_of(file: int) -> "list[tuple[int, int, array.array[int]]]":
    """Return what sends a descriptor along with bytes; nothing for a negative one."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))] if file >= 0 else []


class ObjectFrames:
    """What has arrived by one connection, until it is a message. `close` releases the rest."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._files: deque[int] = deque()

    def feed(self, data: bytes, files: list[int]) -> Iterator[tuple[Any, int]]:
        """Take bytes and descriptors; yield messages, each with its descriptor, or -1.

        Raises ProtocolError; descriptors that belong to no message are closed by `close`.
        """
        self._files += files
        self._buffer += data
        if len(self._files) > FILES_MAX:
            raise ProtocolError("more descriptors than messages")
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MESSAGE_BYTES_MAX:
                raise ProtocolError("the message is too large")
            stop = _LENGTH.size + size
            if len(self._buffer) < stop:
                return
            body = bytes(self._buffer[_LENGTH.size : stop])
            del self._buffer[:stop]
            message = OBJECT_MESSAGES.decode(body, MESSAGE_BYTES_MAX)
            file = -1
            if getattr(message, "with_file", False):
                if not self._files:
                    raise ProtocolError(f"message {message.kind!r} came without its descriptor")
                file = self._files.popleft()
            yield message, file

    def close(self) -> None:
        """Close the descriptors that belong to no message."""
        while self._files:
            os.close(self._files.popleft())


class BlockingObjectSocket:
    """A client's connection to the object host: one request at a time.

    Args:
        address: of an abstract Unix socket, with "@" in place of its NUL.

    Raises OSError when nothing listens there.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self._frames = ObjectFrames()
        self._arrived: deque[tuple[Any, int]] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect("\0" + address.removeprefix("@"))
        except BaseException:
            self._socket.close()
            raise

    @property
    def peer_pid(self) -> int:
        """The process that listens there, by the kernel's word."""
        return peer_credentials(self._socket).pid

    def ask(self, message: Any, file: int = -1) -> tuple[Any, int]:
        """Send a message, with a descriptor if there is one; return the answer and its descriptor.

        Raises OSError when the host is gone or silent, ProtocolError when it sends nonsense.
        """
        data = encode_frame(message)
        sent = self._socket.sendmsg([data], ancillary_of(file))
        self._socket.sendall(data[sent:])
        while not self._arrived:
            data, ancillary, _, _ = self._socket.recvmsg(
                READ_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                raise ConnectionResetError("the object host has closed the connection")
            self._arrived += self._frames.feed(data, files_of(ancillary))
        return self._arrived.popleft()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._frames.close()
