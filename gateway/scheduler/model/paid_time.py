"""The slot time of wasted runs that was paid, which makes the next runs of a task cheaper. Pure.

A run that ended with its worker is charged (gateway.scheduler.tasks.losses). Work that is repeated
is paid once: the next runs of that task are free for as long as the longest of the wasted ones
took. Paid time is worth no more than was paid for it: in a pool, or at an hour, that costs ten
times as much, it lasts for a tenth of that time. Where it is cheaper it lasts for the same time,
and so it does in another currency, which can't be compared. All of it follows from usage records in
the order of their attempts, so that it is the same after a restart, and for a client that leaves
and comes back.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.ledger.db.usage.records import UsageRecord, UsedRun, is_for_its_user
from policies.tariffs import cost_nanos


class PaidTime(NamedTuple):
    """Slot time that was paid, and the price of a slot-hour that was paid for it."""

    ns: int
    price_nanos: int
    currency: str

    def lasts_ns(self, price_nanos: int, currency: str) -> int:
        """Return how long it lasts at a price."""
        if self._is_dearer(price_nanos, currency):
            return self.ns * self.price_nanos // price_nanos
        return self.ns

    def less(self, ns: int, price_nanos: int, currency: str) -> "PaidTime":
        """Return what is left after a run of this duration, at a price; `ns` may end below zero."""
        if self._is_dearer(price_nanos, currency):
            ns = -(-ns * price_nanos // self.price_nanos) if self.price_nanos else self.ns
        return self._replace(ns=self.ns - ns)

    def is_worth_more(self, other: "PaidTime") -> bool:
        """Whether it is to be kept in place of another one of the same task."""
        if self.currency != other.currency:
            return self.ns > other.ns
        return (self.ns * self.price_nanos, self.ns) > (other.ns * other.price_nanos, other.ns)

    def _is_dearer(self, price_nanos: int, currency: str) -> bool:
        return currency == self.currency and price_nanos > self.price_nanos


class PaidTimes:
    """The paid time of each task of one job: slot time that is paid and may be used once more.

    Args:
        left: paid time by task, from before a restart or a client's return.
    """

    def __init__(self, left: Iterable[tuple[int, PaidTime]] = ()) -> None:
        self._left = dict(left)

    def book(self, used: UsageRecord | UsedRun) -> None:
        """Count a usage record of the job. Records come in the order of their attempts."""
        share_ns = used.wall_ns // used.tasks
        if used.state == "wasted":
            paid = PaidTime(share_ns, used.price_nanos, used.currency)
            for task in range(used.first, used.first + used.tasks):
                if task not in self._left or paid.is_worth_more(self._left[task]):
                    self._left[task] = paid
        elif self._left and is_for_its_user(used.state, used.price_class):
            for task in list(self._within(used.first, used.first + used.tasks)):
                self._left[task] = self._left[task].less(share_ns, used.price_nanos, used.currency)
                if self._left[task].ns <= 0:
                    del self._left[task]

    def of(self, first: int, stop: int, wall_ns: int, price_nanos: int, currency: str) -> int:
        """Return the part of the time of tasks [first, stop) that is paid, with equal shares.

        `price_nanos` is the price of their slot-hour, and `currency` that of the price.
        """
        share_ns = wall_ns // (stop - first)
        return sum(
            min(self._left[task].lasts_ns(price_nanos, currency), share_ns)
            for task in self._within(first, stop)
        )

    def left(self) -> tuple[tuple[int, PaidTime], ...]:
        """Return all remaining paid time, by task."""
        return tuple(self._left.items())

    def _within(self, first: int, stop: int) -> Iterator[int]:
        if stop - first <= len(self._left):
            return (task for task in range(first, stop) if task in self._left)
        return (task for task in self._left if first <= task < stop)


def free_times(runs: Iterable[UsedRun]) -> Iterator[tuple[UsedRun, int]]:
    """Yield each run of one job with what its tasks had paid of its time before, in nanoseconds.

    `runs` is what `UsageStore.runs_since_wasted` returns. Whether a lost run was charged in full is
    told by its cost; where its pool costs nothing, it is taken for one that was not.
    """
    paid_times = PaidTimes()
    for run in runs:
        is_asked = bool(run.site)  # another site charges it as it likes
        is_free = not is_asked and not _is_in_full(run)
        free_ns = 0
        if is_free:
            stop = run.first + run.tasks
            free_ns = paid_times.of(run.first, stop, run.wall_ns, run.price_nanos, run.currency)
        yield run, free_ns if is_for_its_user(run.state, run.price_class) else 0
        paid_times.book(run)


def _is_in_full(run: UsedRun) -> bool:
    full_nanos = cost_nanos(run.price_nanos, run.wall_ns)
    return run.state == "wasted" and 0 < full_nanos <= run.cost_nanos
