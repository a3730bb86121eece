"""Items kept in the order of their ranks. Pure.

A plain list and `bisect`: with 50,000 items a move shifts a few hundred kilobytes, which takes less
time than the comparisons of a tree in Python.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Rank = tuple[Any, ...]
T = TypeVar("T")


class RankedItems(Generic[T]):
    """Items by rank, least first. No two ranks are equal, and the caller remembers them."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: list[tuple[Rank, T]] = []

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[Rank, T]]:
        """Yield each rank with its item; the order must not change meanwhile."""
        return iter(self._pairs)

    @property
    def first(self) -> Rank | None:
        """The least rank; None without items."""
        return self._pairs[0][0] if self._pairs else None

    def move(self, item: T, before: Rank | None, after: Rank | None) -> None:
        """Give an item another rank. None: the item is not in the order before, or not after."""
        if before is not None:
            at = bisect_left(self._pairs, before, key=_rank_of)
            assert self._pairs[at][1] is item, "the item has another rank than the caller says"
            del self._pairs[at]
        if after is not None:
            insort(self._pairs, (after, item), key=_rank_of)


def _rank_of(pair: tuple[Rank, Any]) -> Rank:
    return pair[0]
