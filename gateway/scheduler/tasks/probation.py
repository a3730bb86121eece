"""Back-off and slow start for workers that were lost with tasks. Pure.

A worker is identified by its pool and name across its sessions. A worker that is lost with tasks
begins its next session with one task at a time, and gets one more for each that it finishes (slow
start, as in TCP). From the second loss on it also waits before its first task, twice as long each
time (exponential back-off). A session in which it finishes enough takes one loss off its record.

A name costs nothing, so a session is new until it has finished a task, whatever its name. When new
sessions of several names in one pool, all with one token or all without one, are lost within a
minute, each other new session of the group is treated as the last of them would be, including those
that joined before. Workers that a grid has started are not new: `is_expected`.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.events import Drainer
from gateway.scheduler.model.jobs import Worker

WAIT_MIN_S: Final = 1.0
WAIT_MAX_S: Final = 60.0
FORGET_S: Final = 3_600.0  # without a loss
TRIAL_TASKS: Final = 8  # a session must finish at least these, and as many as it has slots
NEWCOMERS_MAX: Final = 3  # names of a group whose new sessions may be lost within a minute
NEWCOMERS_S: Final = 60.0
RECORDS_MAX: Final = 10_000
GROUPS_MAX: Final = 1_000
NAMES_MAX: Final = 64  # of one group
JUDGED_S: Final = 1.0  # how often a group's present sessions are judged: there may be thousands

# A pool, and the token by which sessions joined, or none.
_Group = tuple[str, str]


def wait_s(losses: int) -> float:
    """Return the back-off in seconds after so many losses.

    It is 0 after the first loss, then min(WAIT_MAX_S, WAIT_MIN_S * 2 ** (losses - 2)).
    """
    if losses < 2:
        return 0.0
    return float(min(WAIT_MAX_S, WAIT_MIN_S * 2 ** min(losses - 2, 32)))


@dataclass(slots=True)
class _Record:
    losses: int
    lost_at_s: UtcS  # the last time, UTC


class Probation:
    """Puts workers that were lost on trial.

    Args:
        is_expected: (pool, name) → whether a grid was asked to start a worker of that name.
    """

    def __init__(self, is_expected: Callable[[str, str], bool]) -> None:
        self._is_expected = is_expected
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()
        # By name: the last loss of a new session; the latest names.
        self._newcomers: dict[_Group, dict[str, UtcS]] = {}
        self._waiting: dict[int, tuple[Worker, UtcS]] = {}  # by handle, and when its back-off ends
        self._new: dict[_Group, dict[int, Worker]] = {}  # by handle
        self._judged_at_s: dict[_Group, UtcS] = {}  # when present sessions were last judged

    @property
    def is_waiting(self) -> bool:
        """Whether a worker is in back-off: call `wake` as time passes."""
        return bool(self._waiting)

    def joined(self, worker: Worker, utc_s: UtcS) -> None:
        """Decide how a worker begins."""
        record = self._records.get(_key(worker))
        if record is not None and utc_s - record.lost_at_s > FORGET_S:
            del self._records[_key(worker)]
            record = None
        if record is None:
            record = self._of_newcomers(worker, utc_s)
        if not self._is_expected(worker.offer.pool, worker.name):
            self._new.setdefault(_group(worker), {})[worker.handle] = worker
        if record is not None:
            self._try(worker, record, utc_s)

    def _try(self, worker: Worker, record: _Record, utc_s: UtcS) -> None:
        """Put a worker on trial, after such losses."""
        worker.trial = 1
        until_s = record.lost_at_s + wait_s(record.losses)
        if until_s > utc_s:
            worker.drained_by.add(Drainer.LOSSES)
            worker.draining = True
            # If the clock was set back, the wait is no longer than the maximum.
            self._waiting[worker.handle] = worker, min(until_s, utc_s + WAIT_MAX_S)

    def left(self, worker: Worker, utc_s: UtcS, *, is_lost: bool) -> list[int]:
        """Note that a worker has left; `is_lost`: with unfinished tasks.

        Returns the handles of others that are now on trial because of that.
        """
        self._waiting.pop(worker.handle, None)
        was_new = self._forget(worker)
        if not is_lost:
            return []
        record = self._records.setdefault(_key(worker), _Record(0, utc_s))
        record.losses, record.lost_at_s = record.losses + 1, utc_s
        self._records.move_to_end(_key(worker))
        while len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
        if not was_new:
            return []
        times = self._newcomers.setdefault(_group(worker), {})
        times.pop(worker.name, None)
        times[worker.name] = utc_s
        while len(times) > NAMES_MAX:
            del times[next(iter(times))]
        while len(self._newcomers) > GROUPS_MAX:
            del self._newcomers[next(iter(self._newcomers))]
        found = self._of_newcomers(worker, utc_s)
        return [] if found is None else self._judge_others(_group(worker), found, utc_s)

    def _judge_others(self, group: _Group, record: _Record, utc_s: UtcS) -> list[int]:
        """Put the present new sessions of a group on trial."""
        if 0 <= utc_s - self._judged_at_s.get(group, UtcS(-inf)) < JUDGED_S:
            return []
        # A grid's worker may have joined before it was known that it had been requested.
        others = [
            each
            for each in self._new.get(group, {}).values()
            if not self._is_expected(each.offer.pool, each.name)
        ]
        for each in others:
            self._try(each, record, utc_s)
        self._judged_at_s = {
            each: at_s for each, at_s in self._judged_at_s.items() if each in self._new
        }
        self._judged_at_s[group] = utc_s
        return [each.handle for each in others]

    def finished(self, worker: Worker, tasks: int) -> None:
        """Note that a worker has finished `tasks` tasks."""
        self._forget(worker)
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

    def _forget(self, worker: Worker) -> bool:
        """Mark a session as no longer new; return whether it was new."""
        group = self._new.get(_group(worker), {})
        found = group.pop(worker.handle, None)
        if found is not None and not group:
            del self._new[_group(worker)]
        return found is not None

    def wake(self, utc_s: UtcS) -> list[int]:
        """End the back-off of workers whose time is over; return their handles."""
        woken = []
        for handle, (worker, until_s) in list(self._waiting.items()):
            if utc_s >= until_s:
                del self._waiting[handle]
                woken.append(handle)
                worker.drained_by.discard(Drainer.LOSSES)
                worker.draining = bool(worker.drained_by)
        return woken

    def _of_newcomers(self, worker: Worker, utc_s: UtcS) -> _Record | None:
        """Return the record by which to judge a new session: its group's lost new sessions."""
        times = self._newcomers.get(_group(worker))
        if not times or self._is_expected(worker.offer.pool, worker.name):
            return None
        recent = [at_s for at_s in times.values() if 0 <= utc_s - at_s <= NEWCOMERS_S]
        if not recent:
            del self._newcomers[_group(worker)]
            return None
        if len(recent) < NEWCOMERS_MAX:
            return None
        return _Record(len(recent) - NEWCOMERS_MAX + 1, recent[-1])


def _key(worker: Worker) -> tuple[str, str]:
    return worker.offer.pool, worker.name


def _group(worker: Worker) -> _Group:
    return worker.offer.pool, worker.token
