"""The objects that one job holds for its calls, each until these calls have ended. Pure."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from federation.ranges import Range, RangeSet

KeyT = TypeVar("KeyT")


class JobUses(Generic[KeyT]):
    """What a job holds: for calls, for calls that wait for others, and until it ends."""

    def __init__(self) -> None:
        self._whole: set[KeyT] = set()
        self._waited: set[KeyT] = set()
        self._calls: deque[tuple[Range, tuple[KeyT, ...]]] = deque()
        self._counts: Counter[KeyT] = Counter()  # of entries in _calls

    def __contains__(self, key: KeyT) -> bool:
        return key in self._counts or key in self._waited or key in self._whole

    def __bool__(self) -> bool:
        """Whether it holds anything."""
        return bool(self._calls or self._waited or self._whole)

    def hold_whole(self, keys: Iterable[KeyT]) -> None:
        """Hold objects until the job ends."""
        self._whole.update(keys)

    def hold_waited(self, keys: Iterable[KeyT]) -> None:
        """Hold results of others for as long as calls of the job wait."""
        self._waited.update(keys)

    def hold(self, keys: Iterable[KeyT], calls: Range) -> None:
        """Hold objects until all of these calls have ended."""
        found = tuple(dict.fromkeys(keys))
        self._calls.append((calls, found))
        self._counts.update(found)

    def release(self, ended: RangeSet, *, waits: bool, looks_max: int) -> tuple[list[KeyT], int]:
        """Return the objects that are not held any more, and how many entries were looked at.

        Args:
            ended: the calls of the job that have ended.
            waits: whether calls of it wait for others.
            looks_max: the most entries to look at; the others come first the next time.
        """
        touched: dict[KeyT, None] = {}
        looks = min(looks_max, len(self._calls))
        for _ in range(looks):
            calls, keys = self._calls.popleft()
            if ended.missing(*calls):
                self._calls.append((calls, keys))
                continue
            for key in keys:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]
                touched[key] = None
        if self._waited and not waits:
            touched.update(dict.fromkeys(self._waited))
            self._waited.clear()
        return [key for key in touched if key not in self], looks
