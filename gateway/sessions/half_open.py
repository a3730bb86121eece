"""Limits on half-open connections, in total and per host, and which to close. Pure.

A half-open connection has not yet proved its peer's identity. Any host can open one, so their
number is limited. A new connection is never refused because of those that others hold open: an
older one is closed instead, of the same host or of the host that has the most. A host that opens
many connections therefore displaces its own. Honest clients behind the same address get in as long
as their handshake takes less time than that host needs to open as many connections as it may have.
"""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_network
from typing import Final, Generic, TypeVar

from federation.address import plain_ip
from federation.clocks import MonoS

GREETING_MAX_S: Final = 10.0  # a connection that is half-open for longer is closed
# A client greets at once. A connection that is silent for this long is closed before others are.
SILENT_S: Final = 1.0
# The owner of one address of an IPv6 network of this size usually has all of its addresses.
IPV6_PREFIX: Final = 64

K = TypeVar("K")


def source_of(host: str) -> str:
    """Return the key that counts as one host: an IPv4 address, or an IPv6 address's /64 network."""
    if not host:
        return ""
    address = plain_ip(host)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), IPV6_PREFIX), strict=False))
    return str(address)


class HalfOpen(Generic[K]):
    """The half-open connections of a port, by any key.

    Args:
        most: how many connections may be half-open at a time.
        most_of_host: how many of those may come from one host, as `source_of` defines it. The limit
            does not apply to the host "", which stands for sockets that only our own user can
                reach.
    """

    def __init__(self, most: int, most_of_host: int) -> None:
        self._most = most
        self._most_of_host = most_of_host
        # By source, in order of arrival; the value is the time of arrival.
        self._since_s: dict[str, dict[K, MonoS]] = {}
        self._source: dict[K, str] = {}
        self._silent: set[K] = set()

    def __len__(self) -> int:
        """The number of half-open connections."""
        return len(self._source)

    def __contains__(self, key: K) -> bool:
        """Whether a connection is half-open."""
        return key in self._source

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys of all half-open connections."""
        return iter(self._source)

    def add(self, key: K, host: str, mono_s: MonoS) -> list[K]:
        """Add a connection; return the connections to close for it, which are removed."""
        source = source_of(host)
        self._source[key] = source
        self._silent.add(key)
        self._since_s.setdefault(source, {})[key] = mono_s
        gone = []
        if source and len(self._since_s[source]) > self._most_of_host:
            gone.append(self._give_way(source, mono_s))
        if len(self._source) > self._most:
            largest = max(self._since_s, key=lambda each: len(self._since_s[each]))
            gone.append(self._give_way(largest, mono_s))
        return gone

    def heard(self, key: K) -> None:
        """Note that a connection has sent something."""
        self._silent.discard(key)

    def remove(self, key: K) -> None:
        """Remove a connection that is established or gone; ignore an unknown one."""
        source = self._source.pop(key, None)
        if source is None:
            return
        self._silent.discard(key)
        of_source = self._since_s[source]
        del of_source[key]
        if not of_source:
            del self._since_s[source]

    def older_than(self, seconds: float, mono_s: MonoS) -> list[K]:
        """Return the connections that have been half-open for longer than `seconds`."""
        return [
            key
            for of_source in self._since_s.values()
            for key, since_s in of_source.items()
            if mono_s - since_s > seconds
        ]

    def _give_way(self, source: str, mono_s: MonoS) -> K:
        """Remove and return a source's oldest silent connection; its oldest if none is silent."""
        of_source = self._since_s[source]
        chosen = next(iter(of_source))
        for key, since_s in of_source.items():
            if mono_s - since_s < SILENT_S:
                break  # the remaining connections are younger still
            if key in self._silent:
                chosen = key
                break
        self.remove(chosen)
        return chosen
