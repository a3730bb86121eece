"""The connections between members: a few neighbours each, computed and not negotiated.

Members are placed on several rings, on each by another hash of their name. The next and the
previous member on each ring are a member's neighbours. All that know the same members find the same
neighbours, both ends of a link alike. Together the rings are a random regular graph. It stays
connected when many members fail at once, a rumour crosses it in about log(members) / log(degree -
1) hops, and a member that joins or leaves moves only two links a ring. (One ring with longer steps
would be simpler; its links all move when a member joins.)
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b


@lru_cache(maxsize=1 << 16)
def _place(ring: int, site: str) -> tuple[bytes, str]:
    return blake2b(site.encode(), digest_size=8, salt=ring.to_bytes(2, "big")).digest(), site


class Rings:
    """The members that may be neighbours, on `count` rings."""

    def __init__(self, count: int, sites: Iterable[str]) -> None:
        self.changes = 0
        self._rings: list[list[tuple[bytes, str]]] = [[] for _ in range(count)]
        self.reset(sites)

    def reset(self, sites: Iterable[str]) -> None:
        """Place these members and no others."""
        known = list(sites)
        self.changes += 1
        self._rings = [
            sorted(_place(number, site) for site in known) for number in range(len(self._rings))
        ]

    def __len__(self) -> int:
        return len(self._rings[0])

    def site_at(self, rank: int) -> str:
        """Return the member at a place of the first ring: for drawing one."""
        return self._rings[0][rank][1]

    def add(self, site: str) -> None:
        """Place a member, unless it is there already."""
        if site not in self:
            self.changes += 1
            for number, ring in enumerate(self._rings):
                insort(ring, _place(number, site))

    def remove(self, site: str) -> None:
        """Remove a member, if it is there."""
        if site in self:
            self.changes += 1
            for number, ring in enumerate(self._rings):
                del ring[bisect_left(ring, _place(number, site))]

    def __contains__(self, site: str) -> bool:
        ring, place = self._rings[0], _place(0, site)
        at = bisect_left(ring, place)
        return at < len(ring) and ring[at] == place

    def neighbours(self, site: str) -> set[str]:
        """Return the two members beside a member on each ring; of a few members, all the others."""
        if len(self) <= 2 * len(self._rings) + 1:
            return {other for _, other in self._rings[0] if other != site}
        found = set()
        for number, ring in enumerate(self._rings):
            at = bisect_left(ring, _place(number, site))
            found |= {ring[at - 1][1], ring[(at + 1) % len(ring)][1]}
        found.discard(site)
        return found
