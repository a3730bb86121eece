"""The objects that a slot was lent by its agent. Pure."""

from collections.abc import Iterable
from typing import Final

LENT_MAX: Final = 256  # objects that one slot is lent at once; each costs it a descriptor


class LentObjects:
    """The objects that a slot's process was lent: of one project at a time, the latest last."""

    def __init__(self) -> None:
        self._scope = ""
        self._digests: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def lend(self, scope: str, digests: list[bytes]) -> tuple[list[bytes], list[bytes] | None]:
        """Note the objects that the slot's next tasks need.

        Return the objects to send, and those to drop before; an empty list means all of them, None
        that there is nothing to drop.
        """
        dropped: list[bytes] | None = None
        if scope != self._scope:
            if self._digests:
                dropped = []
            self._scope, self._digests = scope, {}
        new = [each for each in digests if each not in self._digests]
        for each in digests:
            self._digests.pop(each, None)
            self._digests[each] = None
        excess = len(self._digests) - max(LENT_MAX, len(digests))
        if excess > 0:
            dropped = list(self._digests)[:excess]
            for each in dropped:
                del self._digests[each]
        return new, dropped

    def drop(self, digests: Iterable[bytes]) -> list[bytes]:
        """Forget objects that are held no more; return those that the slot has."""
        had = [each for each in digests if each in self._digests]
        for each in had:
            del self._digests[each]
        return had
