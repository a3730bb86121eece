"""Large values among the arguments of a loop: each is put once, and let go of after its last batch.

    calls of a batch ─► replaced ─► the same calls with references, and the uses of this batch
    the batch has ended, and the next one is on its way ─► ended(uses)

A loop may make its arguments one by one, more than this process or the site has room for. So
a value is kept, here and there, only while a batch that has it is on its way. One that all calls
share is put once: the next batch is counted before the last one is discounted.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from federation.engine.objects import ObjectRef

# Collections among the arguments are searched for large values so deep (a batch has three levels of
# its own: calls, a call, its arguments), and up to so many items.
DEPTH_MAX: Final = 5
LENGTH_MAX: Final = 10_000


@dataclass(slots=True)
class _Kept:
    """A value, kept so that no other gets its identity, and its object if it has one."""

    value: Any
    held: ObjectRef[Any] | None
    batches: int = 0


class LargeValues:
    """The large values of one loop. Any thread may use it.

    Args:
        put: puts a value, and returns its reference; None if it can't: it travels in each call.
        large_bytes: the size from which a value is large.
    """

    def __init__(
        self, put: Callable[[Any], ObjectRef[Any] | None], large_bytes: float = float("inf")
    ) -> None:
        self._put = put
        self._large_bytes = large_bytes
        self._kept: dict[int, _Kept] = {}  # by the identity of the value
        self._lock = threading.Lock()

    def replaced(self, arguments: Any) -> tuple[Any, set[int]]:
        """Return the arguments of a batch with references in place of large values, and its uses.

        Pass the uses to `ended`, once. What has no large value is returned as it is.
        """
        uses: set[int] = set()
        try:
            return self._replaced(arguments, 0, uses), uses
        except BaseException:
            self.ended(uses)
            raise

    def _replaced(self, value: Any, depth: int, uses: set[int]) -> Any:
        if type(value) in (list, tuple):
            if depth > DEPTH_MAX or len(value) > LENGTH_MAX:
                return value
            items = [self._replaced(each, depth + 1, uses) for each in value]
            is_same = all(new is old for new, old in zip(items, value, strict=True))
            return value if is_same else type(value)(items)
        if type(value) is dict:
            if depth > DEPTH_MAX or len(value) > LENGTH_MAX:
                return value
            found = {key: self._replaced(each, depth + 1, uses) for key, each in value.items()}
            return value if all(found[key] is value[key] for key in value) else found
        return self._as_object(value, uses) if size_of(value) >= self._large_bytes else value

    def _as_object(self, value: Any, uses: set[int]) -> Any:
        with self._lock:
            kept = self._kept.get(id(value))
            if kept is not None:
                self._count(kept, uses)
        if kept is None:
            held = self._put(value)  # takes its time
            with self._lock:
                kept = self._kept.setdefault(id(value), _Kept(value, held))
                self._count(kept, uses)
        return value if kept.held is None else kept.held

    def _count(self, kept: _Kept, uses: set[int]) -> None:
        if id(kept.value) not in uses:
            uses.add(id(kept.value))
            kept.batches += 1

    def ended(self, uses: Iterable[int]) -> None:
        """Let go of values that were in a batch, and are in no other one."""
        gone = []  # an object's end may ask the gateway: not under the lock
        with self._lock:
            for each in uses:
                kept = self._kept.get(each)
                if kept is None:
                    continue  # the loop has ended
                kept.batches -= 1
                if not kept.batches:
                    gone.append(self._kept.pop(each))

    def clear(self) -> None:
        """Let go of all values, at the end of the loop."""
        with self._lock:
            gone, self._kept = self._kept, {}
        gone.clear()


def _sizes(value: Any) -> Iterator[Any]:
    yield getattr(value, "nbytes", None)  # arrays
    if hasattr(value, "memory_usage"):  # frames and series of pandas
        used = value.memory_usage()
        yield int(used.sum()) if hasattr(used, "sum") else used
    yield getattr(getattr(value, "data", None), "nbytes", None)  # sparse matrices


def size_of(value: Any) -> int:
    """Return about how many bytes a value has, if it is one of arrays, tables or bytes; else 0."""
    if type(value) in (bytes, bytearray):
        return len(value)
    if isinstance(value, type):
        return 0
    try:
        return next((int(each) for each in _sizes(value) if isinstance(each, int)), 0)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return 0
