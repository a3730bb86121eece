"""nng's wire by hand, over sockets: so that it can be broken, and come from any loopback address.

A pipe begins with eight bytes from each side. Then each message is its length (eight bytes, with a
byte 1 before them where it is an ipc socket), four bytes of the protocol (hops), and the message.
"""

import select
import socket
import ssl
import time
from pathlib import Path
from typing import Final

from federation.address import host_and_port

GREETING: Final = b"\0SP\0\0\x11\0\0"
HOPS: Final = b"\0\0\0\x01"
STUCK_S: Final = 60.0  # a gateway that takes nothing for so long is one that hangs


class PipeClosed(Exception):
    """The gateway has closed the connection, or never let it come about."""


def connect(address: str, source: str = "", certificate: Path | None = None) -> socket.socket:
    """A connection to a gateway's address, with TLS where it says so, and no word of nng's yet.

    Args:
        source: the address of this host that it comes from; empty: any.
        certificate: the dialler's certificate and key, PEM.

    Raises:
        PipeClosed: it is not let in.
    """
    try:
        if address.startswith("ipc://"):
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(STUCK_S)
            made.connect(address.removeprefix("ipc://"))
            return made
        host, port = host_and_port(address)
        made = socket.create_connection((host, int(port)), STUCK_S, (source, 0) if source else None)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.startswith("tls+tcp://"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # whoever answers is fuzzed
            if certificate is not None:
                context.load_cert_chain(certificate)
            made = context.wrap_socket(made)
    except OSError as error:
        raise PipeClosed(str(error)) from None
    return made


class Pipe:
    """One connection, with the parts that a speaker of the protocol needs.

    Raises PipeClosed wherever the gateway has closed it.
    """

    def __init__(self, address: str, source: str = "", certificate: Path | None = None) -> None:
        self._lead = b"\x01" if address.startswith("ipc://") else b""
        self.socket = connect(address, source, certificate)
        self._read = bytearray()
        try:
            self.send_bytes(GREETING)
            if self._exactly(len(GREETING)) != GREETING:
                raise PipeClosed("the other side speaks another protocol")
        except PipeClosed:
            self.socket.close()
            raise

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise PipeClosed(str(error)) from None

    def head(self, size: int) -> bytes:
        """The header of a message of that many bytes."""
        return self._lead + (size + len(HOPS)).to_bytes(8, "big") + HOPS

    def send(self, frame: bytes) -> bool:
        """Send a frame; see federation.transport.Link."""
        self.send_bytes(self.head(len(frame)) + frame)
        return True

    def receive(self, wait_s: float = 0.0) -> list[bytes]:
        """The frames that have come, after waiting for the first for so long."""
        frames = self._whole()
        if not frames and self._has_more(wait_s):
            frames = self._whole()
        return frames

    def _has_more(self, wait_s: float) -> bool:
        """Read the received bytes; return whether there were any."""
        is_here = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0
        if not is_here and not select.select([self.socket], [], [], wait_s)[0]:
            return False
        try:
            data = self.socket.recv(1 << 20)
        except (ssl.SSLWantReadError, TimeoutError):
            return False
        except OSError as error:
            raise PipeClosed(str(error)) from None
        if not data:
            raise PipeClosed("closed")
        self._read += data
        return True

    def _whole(self) -> list[bytes]:
        frames, before = [], len(self._lead) + 8
        while len(self._read) >= before:
            end = before + int.from_bytes(self._read[len(self._lead) : before], "big")
            if len(self._read) < end:
                break
            frames.append(bytes(self._read[before + len(HOPS) : end]))
            del self._read[:end]
        return frames

    def _exactly(self, size: int) -> bytes:
        until_s = time.monotonic() + STUCK_S
        while len(self._read) < size:
            if not self._has_more(1.0) and time.monotonic() > until_s:
                raise PipeClosed("nothing came")
        found = bytes(self._read[:size])
        del self._read[:size]
        return found

    def close(self) -> None:
        """Close it, without a word."""
        self.socket.close()
