"""Fair turns among guests that have sent more than one turn can take. Pure.

Each guest has a lane with its frames in order of arrival; lanes take turns. A guest that sends
50,000 jobs at once therefore delays another guest by no more than its share of a turn.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Waiting items, by guest. An iterator of items is started when its turn comes."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], deque[Iterator[T]]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def has(self, pipe: int, guest: int | None) -> bool:
        """Whether any item from a pipe, or from its guest, waits."""
        return self._key(pipe, guest) in self._lanes

    def add(self, pipe: int, guest: int | None, items: Iterator[T], *, ahead: bool = False) -> None:
        """Queue items for their turn.

        Args:
            pipe: the pipe by which they arrived.
            guest: the guest that sent them; None: not known yet.
            items: the items to queue.
            ahead: put them before the items that wait in the same lane.
        """
        lane = self._lanes.setdefault(self._key(pipe, guest), deque())
        (lane.appendleft if ahead else lane.append)(items)

    def _key(self, pipe: int, guest: int | None) -> tuple[str, int]:
        """Return a lane's key: the pipe's until its guest is known and earlier items are taken."""
        key = ("pipe", pipe)
        return key if guest is None or key in self._lanes else ("guest", guest)

    def take(self, most: int, most_each: int, weight: Callable[[T], int]) -> Iterator[T]:
        """Yield the next items, lane by lane.

        Args:
            most: the total weight to take; the last item may exceed it.
            most_each: the weight to take from one lane before the next lane's turn.
            weight: returns the weight of an item, 1 or more; called once the item has been
                processed.
        """
        while self._lanes and most > 0:
            key = next(iter(self._lanes))
            lane, left = self._lanes[key], most_each
            while lane and left > 0 and most > 0:
                items = lane[0]
                for item in items:
                    yield item
                    counts = weight(item)
                    left -= counts
                    most -= counts
                    if left <= 0 or most <= 0:
                        break
                else:
                    lane.remove(items)
                    most -= 1  # also for frames without any item
            del self._lanes[key]
            if lane:
                self._lanes[key] = lane  # behind the others
