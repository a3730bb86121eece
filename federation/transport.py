"""The transport interface: frames in, frames out, pipes that come and go.

Two implementations pass one contract suite (tests/contracts): federation.sessions.nng over real
sockets, and federation.sessions.memory inside one process. Neither interprets frames. No call here
blocks: the user of a transport waits on its `fileno` (nng) or its `changed` callback, and then
drains it.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Protocol

TLS_BYTES_MAX: Final = 16 << 20  # of a file with certificates
# The environment variable for each of the TlsSettings that is not given.
TLS_VARIABLES: Final = {
    "certificate_file": "GRIDFED_TLS_CERTIFICATE_FILE",
    "ca_file": "GRIDFED_TLS_CA_FILE",
    "server_name": "GRIDFED_TLS_SERVER_NAME",
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files for tls+tcp, all PEM: the certificate to show, and the certificates to trust.

    A listener needs `certificate_file` (certificate and key in one file) and, to ask its diallers
    for their certificates, `ca_file`. A dialler needs `ca_file` (the listener's own certificate,
    pinned, or the CA above it). `server_name` must be in the listener's certificate; without it the
    host of the address must.
    """

    certificate_file: str | None = None
    ca_file: str | None = None
    server_name: str | None = None

    def or_environment(self) -> "TlsSettings":
        """Return a dialler's settings, with missing fields taken from the environment."""
        found = {
            name: getattr(self, name) or os.environ.get(variable) or None
            for name, variable in TLS_VARIABLES.items()
        }
        return TlsSettings(**found)

    def or_else(self, other: "TlsSettings") -> "TlsSettings":
        """Return these settings, with missing fields taken from others."""
        names = (field.name for field in fields(self))
        return TlsSettings(**{name: getattr(self, name) or getattr(other, name) for name in names})

    def environment(self) -> dict[str, str]:
        """Return the variables that pass these settings to another process, in any folder."""
        found: dict[str, str] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value:
                is_file = each.name.endswith("_file")
                found[TLS_VARIABLES[each.name]] = str(Path(value).absolute()) if is_file else value
        return found


@dataclass(frozen=True, slots=True)
class Origin:
    """The other end of a pipe.

    Attributes:
        host: the IP address of the other end; empty when that is a socket of this host (ipc).
        port: the port of the other end; 0 without a host.
        is_private: whether data on the pipe can't be read on the way: it uses TLS, or never leaves
            this host.
        uid: of the process that connected by a socket of this host, as the kernel records it; None
            where that is unknown.
    """

    host: str = ""
    port: int = 0
    is_private: bool = True
    uid: int | None = None


GONE: Final = Origin("0.0.0.0", 0, is_private=False)  # noqa: S104 - of a closed pipe


class Link(Protocol):
    """The dialling end: one pipe to one gateway."""

    @property
    def is_up(self) -> bool:
        """Whether the pipe is connected now."""

    @property
    def is_lost(self) -> bool:
        """Whether the pipe was connected and is gone: close this link and dial a new one."""

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived, oldest first; an empty list when there are none."""

    def send(self, frame: bytes) -> bool:
        """Send a frame; return False when the pipe can't take one now (try again later)."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` would return something."""

    def close(self) -> None:
        """Close the pipe. Idempotent."""


class Port(Protocol):
    """The listening end: many pipes, each with a number, behind one address or several."""

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on, with the real port numbers."""

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have arrived, each with its pipe; an empty list if none."""

    def send(self, pipe: int, frame: bytes) -> bool:
        """Send a frame on a pipe. The caller keeps the transport rule: one unacknowledged frame.

        Returns False when the pipe is gone, or can't take the frame now.
        """

    def came(self) -> list[int]:
        """Return the pipes connected since the last call, even if they have sent nothing."""

    def gone(self) -> list[int]:
        """Return the pipes that were closed since the last call; call `came` first."""

    def is_local(self, pipe: int) -> bool:
        """Whether a pipe comes by a socket of this host from its owner, and not from a slot."""

    def is_near(self, pipe: int) -> bool:
        """Whether a pipe comes by a socket of this host, from any process."""

    def origin(self, pipe: int) -> Origin:
        """Return the other end of a pipe; of a pipe that is gone, an unknown public host."""

    def remotes(self) -> list[tuple[str, int]]:
        """Return host and port of the other end of each tcp pipe."""

    def drop(self, pipe: int) -> None:
        """Close a pipe. `gone` will report it."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` would return something."""

    def close(self) -> None:
        """Close every pipe and stop listening. Idempotent."""
