"""A store in this process's memory: for tests, simulations, and sites without a disk to spare."""

import threading
from collections.abc import Iterable, Iterator

from gateway.objects.stores.contract import NotStored, StoreFull, check_name


class MemoryObjectStore:
    """Keeps bytes in memory, up to `bytes_max`. Any thread may use it."""

    def __init__(self, bytes_max: int = 1 << 62) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._bytes = 0

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        """Store pieces as one; see ObjectStore."""
        check_name(name)
        data = b"".join(pieces)
        with self._lock:
            if name in self._held:
                return False
            if self._bytes + len(data) > self._bytes_max:
                raise StoreFull(f"the memory store has no room for {len(data):,} bytes more")
            self._held[name] = data
            self._bytes += len(data)
        return True

    def get(self, name: str, first: int = 0, stop: int | None = None) -> bytes:
        """Return bytes of a name; see ObjectStore."""
        return self._find(name)[first:stop]

    def size(self, name: str) -> int:
        """Return the number of bytes under a name; see ObjectStore."""
        return len(self._find(name))

    def _find(self, name: str) -> bytes:
        try:
            return self._held[check_name(name)]
        except KeyError:
            raise NotStored(name) from None

    def delete(self, name: str) -> bool:
        """Delete a name; see ObjectStore."""
        check_name(name)
        with self._lock:
            data = self._held.pop(name, None)
            self._bytes -= len(data or b"")
        return data is not None

    def list(self) -> Iterator[str]:
        """Yield all names; see ObjectStore."""
        return iter(list(self._held))
