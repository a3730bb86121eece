"""Finds workers that hold tasks for longer than they may. Pure.

An agent stops a task at its time limit, and reports that. A worker that does not is at fault: it is
not what it says it is, or it can't end its own processes. The gateway must not wait for it. So a
task that has begun is overdue OVERDUE_S after its time limit, plus the lease of workers: reports of
an honest worker may be held up for as long by a pause of its pipe. A worker that says which tasks
begin, and of which none begins nor ends for STALLED_S, is at fault as well if it holds a task with
a time limit; unless it prepares an environment.

Time is counted here in steps from look to look, each of at most STEP_MAX_S. So a clock that is set,
or a pause of the gateway itself, makes no task overdue. Steps in which reports wait unread do not
count.

Contracts with other sites are left out: the seller looks after its own workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Assignment, Worker

OVERDUE_S: Final = 30.0  # after the time limit and the lease
STALLED_S: Final = 600.0  # without a sign of work at any slot, beside the lease
STEP_MAX_S: Final = 10.0  # twice the usual time between two looks


@dataclass(frozen=True, slots=True)
class Fault:
    """A worker at fault, why, and its overdue tasks with their assignments."""

    worker: Worker
    reason: str
    tasks: list[tuple[Assignment, int]]


class Overdue:
    """Watches the tasks of workers.

    Args:
        workers: the present workers, by handle.
        lease_s: how long a worker's session outlives its pipe.
    """

    def __init__(self, workers: Mapping[int, Worker], lease_s: float) -> None:
        self._workers = workers
        self._lease_s = lease_s
        self._clock_s = 0.0
        self._looked_at_s: UtcS | None = None  # UTC
        # By assignment and task: when a task was first seen to have begun, by `_clock_s`.
        self._begun_s: dict[tuple[int, int], float] = {}
        # By handle: the tasks done, the oldest assignment, and since when both are the same.
        self._still: dict[int, tuple[int, int, float]] = {}

    def look(self, utc_s: UtcS, *, is_behind: bool) -> list[Fault]:
        """Return the workers at fault; `is_behind`: reports of workers wait unread."""
        passed_s = 0.0 if self._looked_at_s is None else utc_s - self._looked_at_s
        self._looked_at_s = utc_s
        if not is_behind:
            self._clock_s += min(max(0.0, passed_s), STEP_MAX_S)
        begun_s: dict[tuple[int, int], float] = {}
        still: dict[int, tuple[int, int, float]] = {}
        faults = []
        for worker in self._workers.values():
            if worker.job or not worker.assignments:
                continue
            fault = self._overdue(worker, begun_s) or self._stalled(worker, still)
            if fault is not None:
                faults.append(fault)
        self._begun_s, self._still = begun_s, still
        return [] if is_behind else faults

    def _overdue(self, worker: Worker, begun_s: dict[tuple[int, int], float]) -> Fault | None:
        """Look at the tasks that have begun; note in `begun_s` when they were first seen."""
        found = []
        for assignment in worker.assignments.values():
            limit_s = assignment.job.spec.timeout_s
            if limit_s is None:
                continue
            most_s = limit_s + OVERDUE_S + self._lease_s
            for task in assignment.begun:
                key = assignment.id, task
                begun_s[key] = self._begun_s.get(key, self._clock_s)
                if self._clock_s - begun_s[key] > most_s:
                    found.append((assignment, task))
        if not found:
            return None
        assignment, task = found[0]
        more = f" and {len(found) - 1} more tasks" if len(found) > 1 else ""
        name = f"task {task} of job {assignment.job.id}{more}"
        return Fault(worker, f"the worker did not stop {name} at the time limit", found)

    def _stalled(self, worker: Worker, still: dict[int, tuple[int, int, float]]) -> Fault | None:
        """Look whether a worker works at anything; note in `still` since when it does not."""
        held = worker.assignments.values()
        is_at_work = worker.preparing or any(each.begun for each in held)
        is_limited = any(each.job.spec.timeout_s is not None for each in held)
        if not worker.tells_begun or is_at_work or not is_limited:
            return None
        sign = worker.tasks_done, next(iter(worker.assignments))
        *known, since_s = self._still.get(worker.handle, (-1, -1, 0.0))
        since_s = since_s if tuple(known) == sign else self._clock_s
        still[worker.handle] = (*sign, since_s)
        if self._clock_s - since_s <= STALLED_S + self._lease_s:
            return None
        return Fault(worker, f"no task of its {worker.in_flight:,} has started", [])
