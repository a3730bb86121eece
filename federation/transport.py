"""The seam under every conversation: frames in, frames out, pipes that come and go.

Two implementations pass one contract suite (tests/contracts): federation.nng over real sockets,
and federation.memory inside one process. Neither knows what a frame means. Nothing here blocks:
who uses a transport waits on its `fileno` (nng) or its `changed` callback, and then drains it.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Protocol

# Where each of the TlsSettings is found when it was not given.
TLS_VARIABLES: Final = {
    "certificate_file": "GRIDFED_TLS_CERTIFICATE_FILE",
    "ca_file": "GRIDFED_TLS_CA_FILE",
    "server_name": "GRIDFED_TLS_SERVER_NAME",
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files for tls+tcp: what we show, and whom we believe. All PEM.

    A listener needs `certificate_file` (certificate and key in one file) and, to ask its diallers
    for theirs, `ca_file`. A dialler needs `ca_file` (the listener's own certificate, pinned, or
    the CA above it). `server_name` must stand in the listener's certificate; without it the host
    of the address must.
    """

    certificate_file: str | None = None
    ca_file: str | None = None
    server_name: str | None = None

    def or_environment(self) -> "TlsSettings":
        """A dialler's settings: what is not given here, from the environment."""
        found = {
            name: getattr(self, name) or os.environ.get(variable) or None
            for name, variable in TLS_VARIABLES.items()
        }
        return TlsSettings(**found)

    def environment(self) -> dict[str, str]:
        """The variables that give these settings to another process, wherever it runs."""
        found: dict[str, str] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value:
                is_file = each.name.endswith("_file")
                found[TLS_VARIABLES[each.name]] = str(Path(value).absolute()) if is_file else value
        return found


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a pipe comes from.

    Attributes:
        host: the IP address of its other end; empty when that is a socket of this host (ipc).
        port: the port of its other end; 0 without a host.
        is_private: what travels on it can't be read on the way: TLS, or it never leaves this host.
    """

    host: str = ""
    port: int = 0
    is_private: bool = True


GONE: Final = Origin("0.0.0.0", 0, is_private=False)  # noqa: S104 - of a pipe that is no more


class Link(Protocol):
    """The dialling end: one pipe to one gateway."""

    @property
    def is_up(self) -> bool:
        """Whether the pipe is connected now."""

    @property
    def is_lost(self) -> bool:
        """Whether the pipe was connected and is gone: close this link and dial a new one."""

    def receive(self) -> list[bytes]:
        """The frames that have arrived, oldest first; an empty list when there are none."""

    def send(self, frame: bytes) -> bool:
        """Hand a frame to the pipe; False when it can't take one now (try again later)."""

    def fileno(self) -> int:
        """A descriptor that is readable when `receive` would return something."""

    def close(self) -> None:
        """Close the pipe. Idempotent."""


class Port(Protocol):
    """The listening end: many pipes, each known by a number, behind one address or several."""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the real port numbers."""

    def receive(self) -> list[tuple[int, bytes]]:
        """The frames that have arrived, each with its pipe; an empty list when there are none."""

    def send(self, pipe: int, frame: bytes) -> bool:
        """Hand a frame to a pipe. The caller keeps the transport rule: one unacknowledged frame.

        False when the pipe is gone, or can't take it now.
        """

    def came(self) -> list[int]:
        """The pipes that were connected since the last call, whether or not they say anything."""

    def gone(self) -> list[int]:
        """The pipes that were closed since the last call; ask for those that came first."""

    def is_local(self, pipe: int) -> bool:
        """Whether a pipe comes by a socket of this host from its owner, and not from a slot."""

    def is_near(self, pipe: int) -> bool:
        """Whether a pipe comes by such a socket at all, whoever is at its other end."""

    def origin(self, pipe: int) -> Origin:
        """Where a pipe comes from; of a pipe that is gone already, an unknown public host."""

    def remotes(self) -> list[tuple[str, int]]:
        """Host and port of the other end of each pipe that comes by tcp."""

    def drop(self, pipe: int) -> None:
        """Close a pipe. It will be reported by `gone`."""

    def fileno(self) -> int:
        """A descriptor that is readable when `receive` would return something."""

    def close(self) -> None:
        """Close every pipe and stop listening. Idempotent."""
