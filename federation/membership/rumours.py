"""Pending rumours: a queue for each neighbour, bounded in bytes and repeats.

A rumour goes to each neighbour once, except to those that are known to have it. It rides on the
next message there, as much as fits, oldest first. If the connection is lost before a later message
was answered, the rumour may be lost too, and is queued again. No rumour is sent more often than a
limit that grows with the logarithm of the members; this keeps a rumour from circling for ever.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """An item that can be spread."""

    @property
    def size_bytes(self) -> int:
        """An upper bound of its size on the wire."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class _Rumour(Generic[V]):
    __slots__ = ("item", "sends")

    def __init__(self, item: V) -> None:
        self.item = item
        self.sends = 0


class Rumours(Generic[K, V]):
    """Rumours of one kind; of one key, the latest replaces those before it.

    At most one rumour a key and neighbour is held: the bound of the keys bounds this.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[K, _Rumour[V]]] = {}
        self._unsure: dict[str, dict[K, _Rumour[V]]] = {}  # sent, not known to have arrived

    def steer(self, neighbours: Iterable[str]) -> None:
        """Send to these neighbours from now on."""
        chosen = list(neighbours)
        self._waiting = {peer: self._waiting.get(peer, {}) for peer in chosen}
        self._unsure = {peer: self._unsure.get(peer, {}) for peer in chosen}

    def put(self, key: K, item: V, source: str | None) -> None:
        """Send to all neighbours, except `source`, from which the item came."""
        rumour = _Rumour(item)
        for peer, queue in self._waiting.items():
            self._unsure[peer].pop(key, None)
            if peer == source:
                queue.pop(key, None)
            else:
                queue[key] = rumour

    def tell(self, peer: str, key: K, item: V) -> None:
        """Send to one neighbour that has shown that it lacks the item, unless in flight already."""
        if peer in self._waiting and key not in self._unsure[peer]:
            self._waiting[peer].setdefault(key, _Rumour(item))

    def heard(self, peer: str, key: K) -> None:
        """Note that a neighbour has sent the same item."""
        if peer in self._waiting:
            self._waiting[peer].pop(key, None)

    def drop(self, key: K) -> None:
        """Drop an item that is no longer worth sending."""
        for queues in (self._waiting, self._unsure):
            for queue in queues.values():
                queue.pop(key, None)

    def take(self, peer: str, bytes_max: int, sends_max: int) -> tuple[list[V], int]:
        """Return the items to send a neighbour now, and an upper bound of their bytes."""
        queue = self._waiting.get(peer)
        if not queue:
            return [], 0
        taken: list[V] = []
        size = 0
        unsure = self._unsure[peer]
        for key in list(queue):
            rumour = queue[key]
            more = rumour.item.size_bytes
            if size + more > bytes_max:
                break
            del queue[key]
            if rumour.sends >= sends_max:
                continue
            rumour.sends += 1
            size += more
            taken.append(rumour.item)
            unsure[key] = rumour
        return taken, size

    def has_for(self, peer: str) -> bool:
        """Whether items wait for a neighbour."""
        return bool(self._waiting.get(peer))

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def arrived(self, peer: str) -> None:
        """Note that a neighbour has answered a message sent after all its items."""
        if peer in self._unsure:
            self._unsure[peer].clear()

    def lost(self, peer: str) -> None:
        """Queue a neighbour's unconfirmed items again: its connection is lost."""
        if unsure := self._unsure.get(peer):
            queue = self._waiting[peer]
            for key, rumour in unsure.items():
                queue.setdefault(key, rumour)
            unsure.clear()
