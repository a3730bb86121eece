"""One stream of the bulk transfer, over a blocking socket: TCP, or TLS to a pinned leaf.

Each call moves a whole frame, and blocks for at most SILENCE_S without a byte, and no longer than
the frame takes at PACE_BYTES_S: it belongs in a thread. From plain TCP a block goes by `sendfile`,
without a copy in this process. `stop` ends a stream from another thread.
"""

import contextlib
import os
import socket
import ssl
import struct
import time
from typing import Final

from federation.address import host_and_port
from federation.bulk.frames import (
    FROM_HOLDER,
    FROM_PULLER,
    HEAD_BYTES,
    HELLO,
    FrameHead,
    FrameKind,
    frame,
    read_head,
    read_reason,
)
from federation.clocks import MonoS
from federation.errors import ProtocolError

CONNECT_S: Final = 10.0
SILENCE_S: Final = 30.0
PACE_BYTES_S: Final = 128 << 10  # the least that is moved in a second, beside one SILENCE_S a frame
COPY_BYTES: Final = 256 << 10  # at a time into a stream
TLS: Final = "tls+tcp://"
_TIMEVAL: Final = struct.Struct("@ll")


class StreamRefused(Exception):
    """The other end refuses to go on; the text is its own, for people."""


class _Pace:
    """The time that so many bytes may take."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._limit_s = SILENCE_S + length / PACE_BYTES_S
        self._until_s = MonoS(time.monotonic() + self._limit_s)

    def check(self) -> None:
        """Raise ProtocolError once that is over: else one byte at a time would hold a stream."""
        if MonoS(time.monotonic()) > self._until_s:
            raise ProtocolError(
                f"the other end is too slow: {self._length:,} bytes took over {self._limit_s:.0f} s"
            )


class BulkSocket:
    """One end of a stream.

    Args:
        connection: blocking; it belongs to this object from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        if isinstance(connection, ssl.SSLSocket):
            connection.settimeout(SILENCE_S)
        else:  # the kernel's own time limits: one call can fill or send a whole block
            connection.settimeout(None)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(SILENCE_S), 0))
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def leaf(self) -> bytes:
        """The certificate (DER) that the other end has shown; empty: none, or no TLS."""
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.getpeercert(binary_form=True) or b""
        return b""

    # --- both ends -------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes. Raises OSError; ProtocolError if the other end takes them too slowly."""
        self._send(data, _Pace(len(data)))

    def _send(self, data: bytes, pace: _Pace) -> None:
        left = memoryview(data)
        while left := left[self._socket.send(left) :]:
            pace.check()

    def into(self, view: memoryview) -> None:
        """Fill a view with what arrives.

        Raises:
            ProtocolError: the stream ends, or is too slow.
            OSError: it has failed.
        """
        at, pace = 0, _Pace(len(view))
        flags = 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_WAITALL
        while at < len(view):
            got = self._socket.recv_into(view[at:], 0, flags)
            if not got:
                raise ProtocolError("the stream ended within a frame")
            at += got
            if at < len(view):
                pace.check()

    def content(self, length: int) -> bytes:
        """Return so many bytes that arrive. Raises as `into`."""
        found = bytearray(length)
        self.into(memoryview(found))
        return bytes(found)

    def stop(self) -> None:
        """End the stream, from any thread: a call that blocks fails."""
        with contextlib.suppress(OSError):
            # Of TLS too: its farewell could block.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    # --- the puller ------------------------------------------------------------------------------

    def open(self, ticket: bytes) -> bytes:
        """Show a ticket; return the manifest of its object.

        Raises:
            StreamRefused: the holder does not take it.
            ProtocolError, OSError: the stream has failed.
        """
        self.send(HELLO + frame(FrameKind.OPEN, ticket))
        return self.content(self.answer(FrameKind.MANIFEST).length)

    def answer(self, expected: FrameKind) -> FrameHead:
        """Return the head of the holder's next frame; its content follows. Raises as `open`."""
        head = read_head(self.content(HEAD_BYTES), FROM_HOLDER)
        if head.kind is FrameKind.REFUSED:
            raise StreamRefused(read_reason(self.content(head.length)))
        if head.kind is not expected:
            raise ProtocolError(f"a frame of kind {head.kind} is not expected here")
        return head

    # --- the holder ------------------------------------------------------------------------------

    def hello(self) -> bytes:
        """Return the ticket by which a stream begins. Raises ProtocolError, OSError."""
        if self.content(len(HELLO)) != HELLO:
            raise ProtocolError("it is no bulk stream")
        head = read_head(self.content(HEAD_BYTES), FROM_PULLER)
        if head.kind is not FrameKind.OPEN:
            raise ProtocolError("the ticket must come first")
        return self.content(head.length)

    def wanted(self) -> bytes | None:
        """Return the content of the next frame WANT; None at the end. Raises as `hello`."""
        first = self._socket.recv(1)
        if not first:
            return None
        head = read_head(first + self.content(HEAD_BYTES - 1), FROM_PULLER)
        if head.kind is not FrameKind.WANT:
            raise ProtocolError("a second ticket is not expected")
        return self.content(head.length)

    def send_block(self, number: int, file: int, offset: int, length: int) -> None:
        """Send a block that lies in a file. Raises as `send`."""
        self.send(FrameHead(FrameKind.BLOCK, number, length).to_bytes())
        stop, pace = offset + length, _Pace(length)
        if not isinstance(self._socket, ssl.SSLSocket):
            while offset < stop:
                most = min(COPY_BYTES, stop - offset)
                sent = os.sendfile(self._socket.fileno(), file, offset, most)
                if not sent:
                    raise OSError("the file of the object is cut short")
                offset += sent
                if offset < stop:
                    pace.check()
            return
        while offset < stop:
            piece = os.pread(file, min(COPY_BYTES, stop - offset), offset)
            if not piece:
                raise OSError("the file of the object is cut short")
            offset += len(piece)
            self._send(piece, pace)


def dial_bulk(
    address: str, context: ssl.SSLContext | None = None, server_name: str = ""
) -> BulkSocket:
    """Connect to a bulk port.

    Args:
        address: `tcp://host:port`, or `tls+tcp://host:port`.
        context: the pins of the site that is dialled; for the second.
        server_name: that site, which is a name of its leaf.

    Raises:
        OSError: it can't be reached, or shows another leaf.
        ProtocolError: the address demands TLS, and there are no pins.
    """
    host, port = host_and_port(address)
    if address.startswith(TLS) and context is None:
        raise ProtocolError(f"{address} demands TLS, and no leaf of it is pinned here")
    connection = socket.create_connection((host, int(port)), CONNECT_S)
    try:
        if address.startswith(TLS) and context is not None:
            return BulkSocket(context.wrap_socket(connection, server_hostname=server_name))
        return BulkSocket(connection)
    except BaseException:
        connection.close()
        raise


def dialler_context(leaf_file: str, pins_file: str) -> ssl.SSLContext:
    """Return what dials a site: it shows our leaf, and trusts the pinned ones alone.

    Raises:
        OSError: a file can't be used; ssl.SSLError is one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(pins_file)
    if leaf_file:
        context.load_cert_chain(leaf_file)
    return context


def listener_context(leaf_file: str, pins_file: str) -> ssl.SSLContext:
    """Return what takes connections: it shows our leaf, and a leaf that is shown must be pinned.

    One that dials need not show any: its ticket says who may do so. Raises OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(leaf_file)
    if os.path.getsize(pins_file):
        context.load_verify_locations(pins_file)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
