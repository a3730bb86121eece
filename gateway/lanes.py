"""Who is heard next, of guests that have sent more than one turn can take. Pure.

Each guest has a lane, in the order in which its frames came; lanes take turns. So one guest that
sends 50,000 jobs at once delays another by no more than its part of a turn.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Items that wait, by guest. An iterator of items is begun when its turn comes."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], deque[Iterator[T]]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def has(self, pipe: int, guest: int | None) -> bool:
        """Whether anything waits that came by a pipe, or from its guest."""
        return self._key(pipe, guest) in self._lanes

    def add(self, pipe: int, guest: int | None, items: Iterator[T], *, ahead: bool = False) -> None:
        """Let items wait for their turn.

        Args:
            pipe: by which they came.
            guest: whose it is; None: not known yet.
            items: what waits.
            ahead: before what waits in the same lane already.
        """
        lane = self._lanes.setdefault(self._key(pipe, guest), deque())
        (lane.appendleft if ahead else lane.append)(items)

    def _key(self, pipe: int, guest: int | None) -> tuple[str, int]:
        """A pipe has a lane until its guest is known, and what came by then has been taken."""
        key = ("pipe", pipe)
        return key if guest is None or key in self._lanes else ("guest", guest)

    def take(self, most: int, most_each: int, weight: Callable[[T], int]) -> Iterator[T]:
        """Items that come next, lane by lane.

        Args:
            most: how much to take in all, by weight; the last item may exceed it.
            most_each: the same of one lane, before the next has its turn.
            weight: of an item, 1 or more; asked when it has been dealt with.
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
                    most -= 1  # also of frames that say nothing
            del self._lanes[key]
            if lane:
                self._lanes[key] = lane  # behind the others
