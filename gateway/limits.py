"""Deadline and cost limit of a job together: judged when it is submitted, and watched after that.

Pure. `policies.offers` judges; here it is said to whom, and how often: a job is refused before any
of it has run, or its owner is told later that not all of it can be done, and what could be.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from federation.reasons import Reason
from gateway import events
from gateway.dealing import Outcome
from gateway.events import JobSpec
from gateway.jobs import Job
from policies.decisions import Decision
from policies.offers import Unmet, falls_short

# A plan must be short for so long before it counts: load and adverts are never quite up to date.
UNMET_S: Final = 5.0
# So long may a slot take until it runs its first task of a function.
START_S: Final = 10.0
# A task that was stopped for its money is expected to take so many times what it had run: so each
# further contract is granted more, or its job is found to be too dear.
OUTRAN_FACTOR: Final = 2.0

# Judge a job's limits by its plan that was short.
Judge = Callable[[Job, Decision], Unmet | None]


def are_bound(spec: JobSpec) -> bool:
    """Whether a job's limits are to be kept by all of it: both, or one if it says so itself.

    What another site's job may take is for that site to watch.
    """
    deadline_s, limit = spec.wishes.deadline_s, spec.max_cost_nanos
    if spec.path or (deadline_s is None and limit is None):
        return False
    return spec.wishes.whole or (deadline_s is not None and limit is not None)


def awaits_judgement(job: Job) -> bool:
    """Whether a job is not to begin before it is known how many tasks it has, and so whether it can
    keep its limits: a detached one that is still being submitted, by somebody who has not said.

    Unless the gateway itself keeps it from being submitted: then only its running helps.
    """
    spec = job.spec
    if not spec.detached or job.total is not None or spec.tasks is not None:
        return False
    return are_bound(spec) and not (job.owed_tasks or job.ended or job.in_flight)


def said_s(job: Job, measured_s: float | None, utc_s: float) -> float | None:
    """How long a task of a job takes, where that goes before what was measured of its function;
    None, where that counts.

    Of one of which nothing has ended it is what its client says, and no less than what its first
    tasks have run by now: those that take long should not be expected soon until the first is done.
    A task that was stopped for its money takes longer than it ran until then.
    """
    told_s = _told_s(job, measured_s, utc_s)
    known_s = measured_s if told_s is None else told_s
    outran_s = OUTRAN_FACTOR * job.outran_s
    return outran_s if outran_s > (known_s or 0.0) else told_s


def _told_s(job: Job, measured_s: float | None, utc_s: float) -> float | None:
    """The same by what its client says, and how long its first tasks have run."""
    hint_s = job.spec.task_s
    if job.ended:
        return hint_s if measured_s is None else None
    known_s = measured_s if hint_s is None else hint_s
    if known_s is None:
        return None
    # At other sites they may wait for a slot.
    given_s = next(
        (each.given_s for each in job.assignments.values() if not each.worker.job), utc_s
    )
    ran_s = utc_s - given_s - START_S
    return ran_s if ran_s > known_s else hint_s


def committed_nanos(job: Job, task_s: float | None) -> int:
    """What a job has cost in the currency of its limit, and what is with workers will.

    For one that is held to its limits, by what is known by now of how long they take; `task_s`.
    """
    if task_s is None or not are_bound(job.spec):
        return job.committed_nanos
    ahead = sum(
        each.tariff.expected_nanos(len(each.left), task_s) for each in job.assignments.values()
    )
    return job.limited_nanos + ahead


@dataclass(slots=True)
class _Trouble:
    """Since when a job's plan is short, and whether its owner was told."""

    since_s: float
    is_told: bool = False


class LimitWatch:
    """Watches the jobs whose limits all of them are to keep.

    Args:
        judge: by what is known of all pools.
        outcome: where what follows is put.
    """

    def __init__(self, judge: Judge, outcome: Outcome) -> None:
        self._judge = judge
        self._outcome = outcome
        self._troubles: dict[str, _Trouble] = {}

    def planned(self, job: Job, decision: Decision, now_s: float) -> None:
        """A job was planned: say what can't be done any more, and what can again."""
        trouble = self._troubles.get(job.id)
        if not are_bound(job.spec) or not falls_short(decision):
            if trouble is not None:
                del self._troubles[job.id]
                if trouble.is_told:
                    self._outcome.happened(events.LimitsUnmet(job.id, ""))
            return
        if trouble is None:
            trouble = self._troubles[job.id] = _Trouble(now_s)
        if trouble.is_told or now_s - trouble.since_s < UNMET_S:
            return
        unmet = self._judge(job, decision)
        if unmet is None:
            return
        trouble.is_told = True
        failure = ""
        if job.spec.wishes.whole:
            failure = "budget" if unmet.reason is Reason.COST_LIMIT else "deadline"
        text = f"of what is left, {unmet.text}"
        self._outcome.happened(events.LimitsUnmet(job.id, text, failure))

    def tidy(self, jobs: Container[str]) -> None:
        """Forget what is no job any more."""
        self._troubles = {job: each for job, each in self._troubles.items() if job in jobs}
