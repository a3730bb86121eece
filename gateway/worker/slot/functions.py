"""The function bodies that an agent keeps, by digest, so that each travels once. Pure."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

FUNCTIONS_BYTES_MAX: Final = 256 << 20
SLOT_FUNCTIONS_MAX: Final = 64


class FunctionCache:
    """Bodies by digest; the least recently used are evicted first."""

    def __init__(self, bytes_max: int = FUNCTIONS_BYTES_MAX) -> None:
        self._bodies: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._bodies

    def put(self, digest: bytes, body: bytes, in_use: Collection[bytes]) -> list[bytes]:
        """Keep a body; return the digests evicted for it, none of them `in_use`."""
        if digest in self._bodies:
            return []
        self._bodies[digest] = body
        self._bytes += len(body)
        gone = []
        for other in list(self._bodies):
            if self._bytes <= self._bytes_max:
                break
            if other != digest and other not in in_use:
                self._bytes -= len(self._bodies.pop(other))
                gone.append(other)
        return gone

    def get(self, digest: bytes) -> bytes:
        """Return the body of a function that is here."""
        self._bodies.move_to_end(digest)
        return self._bodies[digest]


class Lent:
    """The functions that one slot has: a limited number; the least recently used is evicted."""

    def __init__(self, functions_max: int = SLOT_FUNCTIONS_MAX) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._max = functions_max

    def lend(self, digest: bytes) -> tuple[bool, bytes | None]:
        """Use a function; return whether it must be sent first, and the one to be forgotten."""
        is_new = digest not in self._digests
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > self._max:
            return is_new, self._digests.popitem(last=False)[0]
        return is_new, None
