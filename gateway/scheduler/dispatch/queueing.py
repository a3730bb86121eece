"""Jobs with tasks to hand out, in the order in which they are served. Pure.

The cost of a bundle must not grow with the number of queued jobs, so jobs are not examined one by
one. They are filed by the properties that decide whether a worker may have their tasks:

- a *fit* is all jobs that can go to the same workers: equal need, pool, places and unfit workers;
- a *group* of a fit is all jobs that every worker treats alike: equal terms, function and client.

Only the first job of a group can be the next that a worker gets. Groups and fits are ordered by
their first job, so that `walk` meets the best placed job first and skips a whole fit after one
look.

The order is that of `dispatch.order`. Within a group it is exact. The order counts a job's work in
flight by the estimated duration of its function. A group's estimate dates from the last time that
one of its jobs was filed; each assignment and each report of a job files it again.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, fields
from heapq import heapify, heappop, heappush
from typing import Final
from weakref import WeakValueDictionary

from gateway.base.ranked import Rank, RankedItems
from gateway.scheduler.model.jobs import Job
from policies.placement.placement import Need

# A group's heap is rebuilt when it has STALE_SHARE stale entries per job, and STALE_MIN more.
STALE_SHARE: Final = 2
STALE_MIN: Final = 64

_Entry = tuple[int, int, int]  # tasks in flight, last assignment, number: the order in a group


@dataclass(eq=False, slots=True, weakref_slot=True)
class DispatchTerms:
    """The constant properties of a job that decide which worker may have its tasks.

    Equal terms are one object, so that they are compared by identity. So are equal needs.
    """

    need: Need


class DispatchTermsBook:
    """Finds the terms of jobs, and forgets those that no job uses any more."""

    def __init__(self) -> None:
        self._terms: WeakValueDictionary[Hashable, DispatchTerms] = WeakValueDictionary()
        self._needs: WeakValueDictionary[Hashable, Need] = WeakValueDictionary()

    def of(self, job: Job) -> DispatchTerms:
        """Return the terms of a job."""
        if job.terms is None:
            spec = job.spec
            need = job.need  # by its parts: a key that holds the need would keep it for good
            parts = tuple(getattr(need, each.name) for each in fields(need))
            job.need = self._needs.setdefault(parts, need)
            key = (
                *(job.need, spec.pool, spec.function, job.work, spec.price, spec.given_priority),
                *(spec.timeout_s, spec.task_s, tuple(map(id, job.budget_accounts))),
            )
            job.terms = self._terms.setdefault(key, DispatchTerms(job.need))
        assert isinstance(job.terms, DispatchTerms)
        return job.terms


@dataclass(eq=False, slots=True)
class _Fit:
    """Jobs that can go to the same workers; `tasks` of their tasks are queued."""

    key: Hashable
    groups: RankedItems["_Group"] = field(default_factory=RankedItems)
    rank: Rank | None = None
    tasks: int = 0


@dataclass(eq=False, slots=True)
class _Group:
    """Jobs that every worker treats alike. The heap may have stale entries.

    `tasks` of their tasks are queued; `task_s` is the estimate that the rank was computed with.
    """

    key: Hashable
    fit: _Fit
    heap: list[tuple[_Entry, Job]] = field(default_factory=list)
    jobs: int = 0
    tasks: int = 0
    rank: Rank | None = None
    task_s: float | None = None


@dataclass(slots=True)
class _Filed:
    """The place of a job in the queue."""

    group: _Group
    entry: _Entry
    tasks: int


class Queue:
    """Jobs with queued tasks; `walk` yields the next.

    Args:
        order: the rank of a job, by the estimated duration of its tasks; see dispatch.order.
        task_s: that duration in seconds; None: unknown.
        book: the terms of all jobs.
    """

    def __init__(
        self,
        order: Callable[[Job, float | None], Rank],
        task_s: Callable[[Job], float | None],
        book: DispatchTermsBook,
    ) -> None:
        self._order = order
        self._task_s = task_s
        self._book = book
        self._ranked: RankedItems[_Fit] = RankedItems()
        self._fits: dict[Hashable, _Fit] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._filed: dict[str, _Filed] = {}

    def __len__(self) -> int:
        return len(self._filed)

    def file(self, job: Job) -> None:
        """File a job that has queued tasks, or has changed: note its group and its place there."""
        fit_key, key = self._keys(job)
        entry = (job.in_flight, job.served, job.number)
        filed = self._filed.get(job.id)
        if filed is not None and filed.group.key != key:
            self.drop(job)
            filed = None
        if filed is None:
            group = self._group(fit_key, key)
            group.jobs += 1
            filed = self._filed[job.id] = _Filed(group, entry, 0)
            heappush(group.heap, (entry, job))
        elif filed.entry != entry:
            filed.entry = entry
            heappush(filed.group.heap, (entry, job))
        self._count(filed, job.waiting)
        self._place(filed.group)

    def drop(self, job: Job) -> None:
        """Remove a job from the queue; do nothing if it is not there."""
        filed = self._filed.pop(job.id, None)
        if filed is not None:
            filed.group.jobs -= 1
            self._count(filed, 0)
            self._place(filed.group)

    def walk(self, is_left_out: Callable[[Job], bool]) -> Iterator[Job]:
        """Yield the first job of each group, in order. Nothing may be filed meanwhile.

        Args:
            is_left_out: whether to skip all jobs that can go to the same workers as this one.
        """
        groups: list[tuple[Rank, _Group, Iterator[tuple[Rank, _Group]]]] = []
        fits = iter(self._ranked)
        fit = next(fits, None)
        while True:
            while fit is not None and (not groups or fit[0] < groups[0][0]):
                rest = iter(fit[1].groups)
                rank, group = next(rest)
                if not is_left_out(group.heap[0][1]):
                    heappush(groups, (rank, group, rest))
                fit = next(fits, None)
            if not groups:
                return
            _, group, rest = heappop(groups)
            yield group.heap[0][1]
            following = next(rest, None)
            if following is not None:
                heappush(groups, (*following, rest))

    def groups(self) -> Iterator[tuple[Job, int]]:
        """Yield the first job of each group, in no order, with the group's queued task count."""
        for group in self._groups.values():
            yield group.heap[0][1], group.tasks

    def tasks_beside(self, job: Job) -> int:
        """Return how many queued tasks can go to the same workers as a job's, its own included."""
        filed = self._filed.get(job.id)
        return job.waiting if filed is None else filed.group.fit.tasks

    def estimate_s(self, job: Job) -> float | None:
        """Return the duration of a task by which a job that is filed here has its place."""
        return self._filed[job.id].group.task_s

    # --- internals -----------------------------------------------------------------------------

    def _keys(self, job: Job) -> tuple[Hashable, Hashable]:
        terms = self._book.of(job)
        unfit = frozenset(job.unfit) if job.unfit else None
        fit = (id(terms.need), job.spec.pool, job.open_pools, unfit)
        is_alone = bool(job.queue) and job.queue[0].alone
        # A job whose tasks shun workers has a group of its own: see Dispatcher.
        own = job.id if job.is_shunning else ""
        return fit, (terms, fit, job.client, is_alone, job.is_at_limit, own)

    def _group(self, fit_key: Hashable, key: Hashable) -> _Group:
        group = self._groups.get(key)
        if group is None:
            fit = self._fits.get(fit_key)
            if fit is None:
                fit = self._fits[fit_key] = _Fit(fit_key)
            group = self._groups[key] = _Group(key, fit)
        return group

    def _count(self, filed: _Filed, tasks: int) -> None:
        """Set the number of queued tasks of a job."""
        for counted in (filed.group, filed.group.fit):
            counted.tasks += tasks - filed.tasks
        filed.tasks = tasks

    def _place(self, group: _Group) -> None:
        """Put a group, and its fit, at the place of the group's first job."""
        heap, filed = group.heap, self._filed
        if len(heap) > STALE_SHARE * group.jobs + STALE_MIN:
            heap[:] = [each for each in heap if self._holds(each, group)]
            heapify(heap)
        while heap and not self._holds(heap[0], group):
            heappop(heap)
        rank = None
        if heap:
            first = heap[0][1]
            group.task_s = self._task_s(first)
            rank = self._order(first, group.task_s)
        assert (rank is None) == (not group.jobs), filed
        if rank == group.rank:
            return
        fit = group.fit
        fit.groups.move(group, group.rank, rank)
        group.rank = rank
        if rank is None:
            del self._groups[group.key]
        if fit.groups.first != fit.rank:
            self._ranked.move(fit, fit.rank, fit.groups.first)
            fit.rank = fit.groups.first
            if fit.rank is None:
                del self._fits[fit.key]

    def _holds(self, item: tuple[_Entry, Job], group: _Group) -> bool:
        filed = self._filed.get(item[1].id)
        return filed is not None and filed.group is group and filed.entry == item[0]
