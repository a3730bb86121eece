"""Sets of task numbers, kept as sorted half-open ranges: a million tasks are a few pairs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class RangeSet:
    """A set of non-negative integers as disjoint ranges [first, stop), in order.

    Adding and removing a range costs O(log n + touched) in the number of ranges.
    """

    __slots__ = ("_firsts", "_stops")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        for first, stop in ranges:
            self.add(first, stop)

    def add(self, first: int, stop: int) -> None:
        """Add every number of [first, stop)."""
        if first >= stop:
            return
        low = bisect_left(self._stops, first)
        high = bisect_right(self._firsts, stop)
        if low < high:
            first = min(first, self._firsts[low])
            stop = max(stop, self._stops[high - 1])
        self._firsts[low:high] = [first]
        self._stops[low:high] = [stop]

    def remove(self, first: int, stop: int) -> None:
        """Remove every number of [first, stop)."""
        if first >= stop:
            return
        low = bisect_right(self._stops, first)
        high = bisect_left(self._firsts, stop)
        if low >= high:
            return
        kept = []
        if self._firsts[low] < first:
            kept.append((self._firsts[low], first))
        if self._stops[high - 1] > stop:
            kept.append((stop, self._stops[high - 1]))
        self._firsts[low:high] = [pair[0] for pair in kept]
        self._stops[low:high] = [pair[1] for pair in kept]

    def within(self, first: int, stop: int) -> list[Range]:
        """Return the parts of [first, stop) that are in the set."""
        low = bisect_right(self._stops, first)
        high = bisect_left(self._firsts, stop)
        return [
            (max(first, self._firsts[at]), min(stop, self._stops[at])) for at in range(low, high)
        ]

    def missing(self, first: int, stop: int) -> list[Range]:
        """Return the parts of [first, stop) that are not in the set."""
        gaps = []
        for start, end in self.within(first, stop):
            if first < start:
                gaps.append((first, start))
            first = end
        if first < stop:
            gaps.append((first, stop))
        return gaps

    def last(self, numbers: int) -> list[Range]:
        """Return the parts that hold the highest `numbers` integers of the set, highest first."""
        parts: list[Range] = []
        for first, stop in zip(reversed(self._firsts), reversed(self._stops), strict=True):
            if numbers <= 0:
                break
            parts.append((max(first, stop - numbers), stop))
            numbers -= stop - first
        return parts

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._firsts, self._stops, strict=True)))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __len__(self) -> int:
        """The number of integers in the set."""
        return sum(self._stops) - sum(self._firsts)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._firsts == other._firsts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"


def gaps(first: int, stop: int, skipped: Iterable[Range]) -> Iterator[Range]:
    """Yield what is left of [first, stop) without some ranges, which are in order."""
    for low, high in skipped:
        if first < min(low, stop):
            yield first, min(low, stop)
        first = max(first, high)
    if first < stop:
        yield first, stop
