"""The seam between objects and their stores: memory, files, buckets.

A store knows names and bytes, and no more: a name is the digest of an object or of a block, so what
is stored under one name never changes. `tests/contracts/test_object_stores.py` is the suite that
every implementation passes. Calls block: under trio they belong into a thread.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


class StoreFull(Exception):
    """The store has no room; the text says of what kind, and where."""


class NotStored(KeyError):
    """The store has nothing under this name."""


class ObjectStore(Protocol):
    """Bytes by name. Every method raises ValueError for a name that does not match NAME."""

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        """Store pieces as one, unless the name is taken; return whether they were stored.

        All or nothing: a reader never sees a part, also after a crash half way. Raises StoreFull.
        """

    def get(self, name: str, first: int = 0, stop: int | None = None) -> bytes:
        """Return bytes [first, stop) of a name, as far as there are any. Raises NotStored."""

    def size(self, name: str) -> int:
        """Return the number of bytes under a name. Raises NotStored."""

    def delete(self, name: str) -> bool:
        """Delete a name; return whether it was there."""

    def list(self) -> Iterator[str]:
        """Yield all names, in no particular order."""


def check_name(name: str) -> str:
    """Return a name that a store may use. Raises ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r:.80} is not a name for stored bytes")
    return name
