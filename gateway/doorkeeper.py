"""Connections that never finish their TLS handshake: nng keeps them for ever and shows none.

The kernel does: a connection to one of our ports that is no pipe after `patience_s` is shut down,
and so are those that give way to others by gateway.half_open; nng then lets go of them. Looking
costs one read of /proc/self/net/tcp; elsewhere than on Linux connections have to be limited in
front of the gateway.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from federation.address import host_and_port, is_tcp, plain_ip
from federation.transport import Port
from gateway.half_open import GREETING_MAX_S, HalfOpen

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_ESTABLISHED: Final = "01"

# Address and port, as text.
Remote = tuple[str, int]


class Doorkeeper:
    """Shuts connections that do not get on.

    Args:
        ports: the numbers of our tcp ports, with TLS or without.
        pipes: the other ends of those that did: what NngPort.remotes says, of all ports.
        patience_s: how long a handshake may take.
        most: how many may be at it at a time, …
        most_of_host: … and of one host.
    """

    def __init__(
        self,
        ports: Collection[int],
        pipes: Callable[[], Iterable[Remote]],
        *,
        patience_s: float,
        most: int,
        most_of_host: int,
    ) -> None:
        self._ports = frozenset(ports)
        self._pipes = pipes
        self._patience_s = patience_s
        self._half_open: HalfOpen[str] = HalfOpen(most, most_of_host)  # by inode

    def look(self, now_s: float) -> int:
        """Shut what has been at the door for too long; how many that were."""
        waiting = self._waiting()
        for inode in [each for each in self._half_open if each not in waiting]:
            self._half_open.remove(inode)
        shut = set(self._half_open.older_than(self._patience_s, now_s))
        for inode in [each for each in waiting if each not in self._half_open]:
            host, _ = waiting[inode]
            shut.update(self._half_open.add(inode, host, now_s))
        return _shut({inode: waiting[inode] for inode in shut}) if shut else 0

    def _waiting(self) -> dict[str, Remote]:
        found = {
            inode: remote
            for table in TABLES
            for inode, remote, port in _connections(Path(table))
            if port in self._ports
        }
        if not found:
            return found
        pipes = set(self._pipes())
        return {inode: remote for inode, remote in found.items() if remote not in pipes}


def keep_door(ports: Iterable[Port], *, most: int, most_of_host: int) -> Doorkeeper | None:
    """The doorkeeper of all the tcp addresses of these ports; None when they have none."""
    doors = list(ports)
    addresses = [address for port in doors for address in port.addresses]
    numbers = [int(host_and_port(each)[1]) for each in addresses if is_tcp(each)]
    if not numbers:
        return None
    return Doorkeeper(
        numbers,
        lambda: [remote for port in doors for remote in port.remotes()],
        patience_s=GREETING_MAX_S,
        most=most,
        most_of_host=most_of_host,
    )


def _connections(table: Path) -> Iterable[tuple[str, Remote, int]]:
    """Established ones: inode, the other end, our port."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if fields[3] == _ESTABLISHED and fields[9] != "0":
            _, own = _endpoint(fields[1])
            yield fields[9], _endpoint(fields[2]), own


def _endpoint(text: str) -> Remote:
    """The kernel's hexadecimal words, each in the byte order of the machine."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return str(plain_ip(b"".join(words))), int(port, 16)


def _shut(sockets: dict[str, Remote]) -> int:
    """Shut down sockets of this process, given by inode; nng sees the end of the connection.

    A descriptor may be somebody else's by the time we use it: a copy of it is looked at first.
    """
    count = 0
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            inode = os.readlink(entry.path).removeprefix("socket:[").removesuffix("]")
            if inode not in sockets:
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as copy:
                if str(os.fstat(copy.fileno()).st_ino) == inode:
                    copy.shutdown(socket.SHUT_RDWR)
                    count += 1
    return count
