"""Indexes a site's workers by the next action: give tasks, or take some back. Pure.

Of thousands of workers only a few have room at a time. They are kept in order of their load, so
that handing out work does not examine all the others.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf

from gateway.base.ranked import Rank, RankedItems
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Worker


class WorkerIndex:
    """An index of workers; every change of a worker must be reported to it.

    Attributes:
        slots: of the workers that take any job.
        spare: the workers with tasks that they can't have started, by handle.
    """

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self._workers = workers
        self.slots = 0
        self.spare: dict[int, Worker] = {}
        self._idle: RankedItems[Worker] = RankedItems()  # with an idle slot
        self._open: RankedItems[Worker] = RankedItems()  # without, and not full of short tasks
        self._filed: dict[int, tuple[RankedItems[Worker], Rank, Worker]] = {}
        self._slots: dict[int, int] = {}  # as counted in `slots`

    def note(self, handle: int) -> None:
        """Update a worker that joined, changed its tasks or its draining, or left."""
        worker = self._workers.get(handle)
        slots = 0 if worker is None or worker.draining or worker.job else worker.slots
        self.slots += slots - self._slots.get(handle, 0)
        if slots:
            self._slots[handle] = slots
        else:
            self._slots.pop(handle, None)
        if worker is None:
            self.spare.pop(handle, None)
            self._file(handle, None, None)
        else:
            self.moved(worker)

    def moved(self, worker: Worker) -> None:
        """Update a worker whose tasks changed."""
        if matching.has_spare(worker):
            self.spare[worker.handle] = worker
        else:
            self.spare.pop(worker.handle, None)
        order = None
        if not worker.draining:
            if worker.in_flight < worker.slots:
                order = self._idle
            elif not matching.is_full(worker):
                order = self._open
        self._file(worker.handle, order, worker)

    def _file(self, handle: int, order: RankedItems[Worker] | None, worker: Worker | None) -> None:
        before = self._filed.get(handle)
        rank = None if worker is None else (worker.load_s, worker.rank)
        if before is not None:
            if before[0] is order and before[1] == rank:
                return
            before[0].move(before[2], before[1], None)
            del self._filed[handle]
        if order is not None and worker is not None and rank is not None:
            order.move(worker, None, rank)
            self._filed[handle] = (order, rank, worker)

    def dry(self) -> Iterator[Worker]:
        """The workers with an idle slot, least load first."""
        return (worker for _, worker in self._idle)

    @property
    def has_dry(self) -> bool:
        """Whether a worker has an idle slot."""
        return len(self._idle) > 0

    def hungry(self, lasts_s: float = inf) -> Iterator[Worker]:
        """The workers that can be given tasks: those with an idle slot first, then by load.

        An idle slot starts a task at once. In order of load alone, a task that was recalled for an
        idle slot could return to the worker that it came from, and be recalled again. Where all
        queued tasks need an idle slot, workers without one are left out.

        Args:
            lasts_s: the duration of the shortest queued task that needs no idle slot.
        """
        if lasts_s == inf:
            return self.dry()
        more = (worker for _, worker in self._open if lasts_s < worker.ahead_max_s)
        return chain(self.dry(), more)
