"""Finds jobs placed at other sites by a wrong estimate of their task duration. Pure.

A job is placed by the estimate at planning time. If its first tasks were short, or long, by chance,
unstarted tasks may be with a seller that is not the best place any more. So each job with contracts
is checked again once its measured duration has changed. Unstarted tasks at places that the new plan
leaves out are recalled, and planned with all waiting tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from federation.clocks import MonoS
from gateway.scheduler.model.jobs import Job

LOOK_S: Final = 1.0
JOBS_MAX: Final = 10  # jobs whose places are compared in one look; others follow in the next
MOVED: Final = 1.25  # a duration that changed by this factor may change which place is best


class Moving:
    """Remembers the duration by which each job's tasks were placed at other sites.

    Args:
        jobs: all that have not ended, by name.
        task_s: returns the measured duration of a function's tasks; None: unknown.
    """

    def __init__(self, jobs: Mapping[str, Job], task_s: Callable[[bytes], float | None]) -> None:
        self._jobs = jobs
        self._task_s = task_s
        self._looked_at_s = MonoS(0.0)
        self._placed_by_s: dict[str, float] = {}

    def due(self, away: Iterable[str], mono_s: MonoS) -> Iterator[Job]:
        """Yield jobs whose places may not be the best any more, each once for a change.

        Args:
            away: the names of the jobs with contracts.
            mono_s: now.
        """
        if mono_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = mono_s
        names = set(away)
        self._placed_by_s = {job: each for job, each in self._placed_by_s.items() if job in names}
        left = JOBS_MAX
        for name in sorted(names):
            job = self._jobs.get(name)
            task_s = None if job is None else self._task_s(job.spec.function)
            if job is None or task_s is None or job.spec.path:
                continue
            before_s = self._placed_by_s.setdefault(name, task_s)
            if max(before_s, task_s) < MOVED * min(before_s, task_s) or not left:
                continue
            self._placed_by_s[name] = task_s
            left -= 1
            yield job


def left_out(job: Job, places: Iterable[str]) -> frozenset[str]:
    """Return the pools that have tasks of a job and are no longer among its best places."""
    return frozenset(each.worker.offer.pool for each in job.assignments.values()) - set(places)
