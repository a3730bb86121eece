"""Half-open connections: how many may wait, in all and from one host, and which give way. Pure.

A half-open connection is one that has not proved yet who it is. Anybody can open one, so they are
limited; and a newcomer is never refused for those that others hold open: an older one of the same
host, or of the host that has the most, is closed instead. A host that opens many therefore pushes
out its own, and honest clients behind the same address get in as long as they take less time for
their handshake than it takes that host to open as many as it may have.
"""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_network
from typing import Final, Generic, TypeVar

from federation.address import plain_ip

GREETING_MAX_S: Final = 10.0  # a connection that is half-open for longer is closed
# A client greets at once. One that has said nothing for so long gives way before those that have.
SILENT_S: Final = 1.0
# Whoever has one address of an IPv6 network of this size usually has them all.
IPV6_PREFIX: Final = 64

K = TypeVar("K")


def source_of(host: str) -> str:
    """What counts as one host: an IPv4 address, or the /64 network of an IPv6 address."""
    if not host:
        return ""
    address = plain_ip(host)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), IPV6_PREFIX), strict=False))
    return str(address)


class HalfOpen(Generic[K]):
    """The half-open connections of a port, by any key.

    Args:
        most: how many may be half-open at a time.
        most_of_host: how many of those may be of one host, as `source_of` has it. It does not hold
            for the host "", which stands for sockets that only our own user can reach.
    """

    def __init__(self, most: int, most_of_host: int) -> None:
        self._most = most
        self._most_of_host = most_of_host
        # By source, each in the order in which they came; the time is when it came.
        self._since_s: dict[str, dict[K, float]] = {}
        self._source: dict[K, str] = {}
        self._silent: set[K] = set()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._source)

    def __contains__(self, key: K) -> bool:
        """Whether it is one of them."""
        return key in self._source

    def __iter__(self) -> Iterator[K]:
        """All of them."""
        return iter(self._source)

    def add(self, key: K, host: str, now_s: float) -> list[K]:
        """Take in a new one; return those that give way to it, which are taken out."""
        source = source_of(host)
        self._source[key] = source
        self._silent.add(key)
        self._since_s.setdefault(source, {})[key] = now_s
        gone = []
        if source and len(self._since_s[source]) > self._most_of_host:
            gone.append(self._give_way(source, now_s))
        if len(self._source) > self._most:
            largest = max(self._since_s, key=lambda each: len(self._since_s[each]))
            gone.append(self._give_way(largest, now_s))
        return gone

    def heard(self, key: K) -> None:
        """It has said something."""
        self._silent.discard(key)

    def remove(self, key: K) -> None:
        """It is half-open no more, or gone; nothing happens when it is not known."""
        source = self._source.pop(key, None)
        if source is None:
            return
        self._silent.discard(key)
        of_source = self._since_s[source]
        del of_source[key]
        if not of_source:
            del self._since_s[source]

    def older_than(self, seconds: float, now_s: float) -> list[K]:
        """Those that have been half-open for longer."""
        return [
            key
            for of_source in self._since_s.values()
            for key, since_s in of_source.items()
            if now_s - since_s > seconds
        ]

    def _give_way(self, source: str, now_s: float) -> K:
        """Take out the oldest silent one of a source; the oldest when all others are in talks."""
        of_source = self._since_s[source]
        chosen = next(iter(of_source))
        for key, since_s in of_source.items():
            if now_s - since_s < SILENT_S:
                break  # those that follow are younger still
            if key in self._silent:
                chosen = key
                break
        self.remove(chosen)
        return chosen
