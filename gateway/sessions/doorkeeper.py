"""Closes connections that never finish their TLS handshake: nng keeps and hides them for ever.

The kernel lists them: a connection to one of our ports that is no pipe after `patience_s` is shut
down, as are those that give way to others by gateway.sessions.half_open; nng then releases them. A
look costs one read of /proc/self/net/tcp, which takes 25 ms for 4,000 peers of the same host and
therefore a thread of its own. On systems other than Linux, connections have to be limited in front
of the gateway.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import trio

from federation.address import host_and_port, is_tcp, plain_ip
from federation.clocks import MonoS
from federation.transport import Port
from gateway.base.clocks import mono_now
from gateway.sessions.half_open import GREETING_MAX_S, HalfOpen

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
# The peer and the inode of an established connection to one of our ports. The inode of a connection
# that no process holds any more is 0.
_LINE: Final = r"^ *\d+: [0-9A-F]+:(?:%s) (\S+) 01 \S+ \S+ \S+ +\d+ +\d+ ([1-9]\d*) "

# Address and port, as text.
Remote = tuple[str, int]


class Doorkeeper:
    """Shuts down stalled connections.

    Args:
        ports: the numbers of our tcp ports, with TLS or without.
        pipes: the peers of finished handshakes: NngPort.remotes of all ports.
        patience_s: the time limit of a handshake.
        most: the most handshakes at a time, …
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
        self._line = re.compile(_LINE % "|".join(f"{port:04X}" for port in ports), re.MULTILINE)
        self._pipes = pipes
        self._patience_s = patience_s
        self._half_open: HalfOpen[str] = HalfOpen(most, most_of_host)  # by inode
        self._done: set[str] = set()  # finished connections: an inode is not reused at once

    async def look(self) -> int:
        """Shut down overdue connections; return their number."""
        connections = await trio.to_thread.run_sync(self.read)
        return self.judge(connections, mono_now())

    def read(self) -> dict[str, str]:
        """The established connections to our ports: the peer in hexadecimal, by inode."""
        found: dict[str, str] = {}
        for table in TABLES:
            with contextlib.suppress(OSError):  # a kernel without IPv6
                text = Path(table).read_text()
                found |= {inode: remote for remote, inode in self._line.findall(text)}
        return found

    def judge(self, connections: dict[str, str], mono_s: MonoS) -> int:
        """Shut down the overdue ones of these connections; return their number."""
        waiting = self._waiting(connections)
        for inode in [each for each in self._half_open if each not in waiting]:
            self._half_open.remove(inode)
        shut = set(self._half_open.older_than(self._patience_s, mono_s))
        for inode in [each for each in waiting if each not in self._half_open]:
            host, _ = waiting[inode]
            shut.update(self._half_open.add(inode, host, mono_s))
        return _shut({inode: waiting[inode] for inode in shut}) if shut else 0

    def _waiting(self, connections: dict[str, str]) -> dict[str, Remote]:
        """The connections that are no pipes; pipes are looked up only for new connections."""
        self._done.intersection_update(connections)
        new = {inode: connections[inode] for inode in connections.keys() - self._done}
        if not new:
            return {}
        pipes = set(self._pipes())
        remotes = {inode: _endpoint(text) for inode, text in new.items()}
        self._done.update(inode for inode, remote in remotes.items() if remote in pipes)
        return {inode: remote for inode, remote in remotes.items() if remote not in pipes}


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


def _endpoint(text: str) -> Remote:
    """Decode the kernel's hexadecimal words, each in the byte order of the machine."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return str(plain_ip(b"".join(words))), int(port, 16)


def _shut(sockets: dict[str, Remote]) -> int:
    """Shut down sockets of this process, given by inode; nng sees the end of the connection.

    A descriptor may have been reused by the time we use it: a copy of it is checked first.
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
