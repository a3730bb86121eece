"""Workers that were lost with tasks: how long they wait, and how they are given more again. Pure.

A worker is known by its pool and name across its sessions. One that is lost with tasks begins its
next session with one task at a time, and is given one more for each that it finishes (slow start,
as in TCP). From the second loss on it also waits before its first task, twice as long each time
(exponential back-off). A session in which it finishes enough takes one loss off its record.

A name costs nothing. So when several workers of a pool are lost for the first time within a minute,
every new name in that pool begins as the last of them would. Names that a grid has started
are not new: `is_expected`.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.events import Drainer
from gateway.jobs import Worker

WAIT_MIN_S: Final = 1.0
WAIT_MAX_S: Final = 60.0
FORGET_S: Final = 3_600.0  # without a loss
TRIAL_TASKS: Final = 8  # that a session must finish at least, and as many as it has slots
NEWCOMERS_MAX: Final = 3  # new names of a pool that may be lost in a minute
NEWCOMERS_S: Final = 60.0
RECORDS_MAX: Final = 10_000


def wait_s(losses: int) -> float:
    """How long a worker gets no task after so many losses: nothing after the first, then
    min(WAIT_MAX_S, WAIT_MIN_S * 2 ** (losses - 2)).
    """
    if losses < 2:
        return 0.0
    return float(min(WAIT_MAX_S, WAIT_MIN_S * 2 ** min(losses - 2, 32)))


@dataclass(slots=True)
class _Record:
    losses: int
    lost_s: float  # the last time, UTC


class Probation:
    """Puts workers that were lost on trial.

    Args:
        is_expected: (pool, name) → whether a grid was asked to start a worker of that name.
    """

    def __init__(self, is_expected: Callable[[str, str], bool]) -> None:
        self._is_expected = is_expected
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()
        self._newcomers: dict[str, deque[float]] = {}  # by pool: when new names were lost
        self._waiting: dict[int, tuple[Worker, float]] = {}  # by handle: until when
        self._new: set[int] = set()  # handles of workers whose name had no record

    @property
    def is_waiting(self) -> bool:
        """Whether a worker waits for the end of its back-off: call `wake` as time passes."""
        return bool(self._waiting)

    def joined(self, worker: Worker, now_s: float) -> None:
        """Decide how a worker begins."""
        record = self._records.get(_key(worker))
        if record is not None and now_s - record.lost_s > FORGET_S:
            del self._records[_key(worker)]
            record = None
        if record is None:
            self._new.add(worker.handle)
            record = self._of_newcomers(worker, now_s)
        if record is None:
            return
        worker.trial = 1
        until_s = record.lost_s + wait_s(record.losses)
        if until_s > now_s:
            worker.drained_by.add(Drainer.LOSSES)
            worker.draining = True
            # Where the clock was set back it does not wait for longer than it would have.
            self._waiting[worker.handle] = worker, min(until_s, now_s + WAIT_MAX_S)

    def left(self, worker: Worker, now_s: float, *, is_lost: bool) -> None:
        """A worker has left; `is_lost`: with tasks that it had not finished."""
        self._waiting.pop(worker.handle, None)
        is_new = worker.handle in self._new
        self._new.discard(worker.handle)
        if not is_lost:
            return
        record = self._records.setdefault(_key(worker), _Record(0, now_s))
        record.losses, record.lost_s = record.losses + 1, now_s
        self._records.move_to_end(_key(worker))
        while len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
        if is_new and not self._is_expected(worker.offer.pool, worker.name):
            times = self._newcomers.setdefault(worker.offer.pool, deque(maxlen=64))
            times.append(now_s)

    def finished(self, worker: Worker, tasks: int) -> None:
        """A worker on trial has finished so many tasks."""
        if worker.trial is None:
            return
        worker.trial += tasks
        if worker.trial <= max(worker.slots, TRIAL_TASKS):
            return
        worker.trial = None
        record = self._records.get(_key(worker))
        if record is not None:
            record.losses -= 1
            if record.losses <= 0:
                del self._records[_key(worker)]

    def wake(self, now_s: float) -> list[int]:
        """Let those have tasks whose time is over; return their handles."""
        woken = []
        for handle, (worker, until_s) in list(self._waiting.items()):
            if now_s >= until_s:
                del self._waiting[handle]
                woken.append(handle)
                worker.drained_by.discard(Drainer.LOSSES)
                worker.draining = bool(worker.drained_by)
        return woken

    def _of_newcomers(self, worker: Worker, now_s: float) -> _Record | None:
        """By what a name that is not known is judged: those new ones of its pool that were lost."""
        times = self._newcomers.get(worker.offer.pool)
        if not times or self._is_expected(worker.offer.pool, worker.name):
            return None
        recent = [at_s for at_s in times if 0 <= now_s - at_s <= NEWCOMERS_S]
        if not recent:
            del self._newcomers[worker.offer.pool]
            return None
        if len(recent) < NEWCOMERS_MAX:
            return None
        return _Record(len(recent) - NEWCOMERS_MAX + 1, recent[-1])


def _key(worker: Worker) -> tuple[str, str]:
    return worker.offer.pool, worker.name
