"""The credit that tasks have for wasted runs, which makes their next runs cheaper. Pure.

A run that ended with its worker is charged (gateway.scheduler.tasks.losses). Work that is repeated
is paid once: the next runs of that task are free for as long as the longest of the wasted ones
took. All of it follows from usage records in the order of their attempts, so that it is the same
after a restart, and for a client that leaves and comes back.
"""

from collections.abc import Iterable, Iterator

from gateway.ledger.db.usage.records import UsageRecord, UsedRun, is_for_its_user
from policies.tariffs import cost_nanos


class Credits:
    """The credit of each task of one job: slot time that is paid and may be used once more.

    Args:
        left: (task, nanoseconds), from before a restart or a client's return.
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
        """The part of the time of tasks [first, stop) that is paid, with equal shares."""
        share_ns = wall_ns // (stop - first)
        return sum(min(self._left_ns[task], share_ns) for task in self._within(first, stop))

    def left(self) -> tuple[tuple[int, int], ...]:
        """(task, nanoseconds) of all remaining credit."""
        return tuple(self._left_ns.items())

    def _within(self, first: int, stop: int) -> Iterator[int]:
        if stop - first <= len(self._left_ns):
            return (task for task in range(first, stop) if task in self._left_ns)
        return (task for task in self._left_ns if first <= task < stop)


def free_times(runs: Iterable[UsedRun]) -> Iterator[tuple[UsedRun, int]]:
    """Yield each run of one job with what its tasks had paid of its time before, in nanoseconds.

    `runs` is what `UsageStore.runs_since_wasted` returns. Whether a lost run was charged in full is
    told by its cost; where its pool costs nothing, it is taken for one that was not.
    """
    credits = Credits()
    for run in runs:
        is_asked = bool(run.site)  # another site charges it as it likes
        is_free = not is_asked and not _is_in_full(run)
        free_ns = credits.of(run.first, run.first + run.tasks, run.wall_ns) if is_free else 0
        yield run, free_ns if is_for_its_user(run.state, run.price_class) else 0
        credits.book(run)


def _is_in_full(run: UsedRun) -> bool:
    full_nanos = cost_nanos(run.price_nanos, run.wall_ns)
    return run.state == "wasted" and 0 < full_nanos <= run.cost_nanos
