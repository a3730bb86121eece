"""What tasks have paid for runs that were wasted, and pay less for the next. Pure.

A run that ended with its worker is charged (gateway.losses). What has to be done again is paid
once: the next runs of that task are free for as long as the longest of the wasted ones took. All of
it follows from usage records in the order of their attempts, so that it is the same after a
restart, and for a client that leaves and comes back.
"""

from collections.abc import Iterable, Iterator

from gateway.ledger.records import UsageRecord, is_for_its_user
from gateway.ledger.rows import UsedRun


class Credits:
    """By task of one job: the slot time that it has paid, and may use once more.

    Args:
        left: (task, nanoseconds), of its time before.
    """

    def __init__(self, left: Iterable[tuple[int, int]] = ()) -> None:
        self._left_ns = dict(left)

    def book(self, used: UsageRecord | UsedRun) -> None:
        """Count a usage record of the job. Records come in the order of their attempts."""
        if used.state == "wasted":
            for task in range(used.first, used.first + used.tasks):
                self._left_ns[task] = max(self._left_ns.get(task, 0), used.wall_ns // used.tasks)
        elif self._left_ns and is_for_its_user(used.state, used.price_class):
            share_ns = used.wall_ns // used.tasks
            for task in list(self._within(used.first, used.first + used.tasks)):
                self._left_ns[task] -= share_ns
                if self._left_ns[task] <= 0:
                    del self._left_ns[task]

    def of(self, first: int, stop: int, wall_ns: int) -> int:
        """How much of this time of tasks [first, stop) is paid, with equal shares."""
        share_ns = wall_ns // (stop - first)
        return sum(min(self._left_ns[task], share_ns) for task in self._within(first, stop))

    def left(self) -> tuple[tuple[int, int], ...]:
        """(task, nanoseconds) of all that is left."""
        return tuple(self._left_ns.items())

    def _within(self, first: int, stop: int) -> Iterator[int]:
        if stop - first <= len(self._left_ns):
            return (task for task in range(first, stop) if task in self._left_ns)
        return (task for task in self._left_ns if first <= task < stop)
