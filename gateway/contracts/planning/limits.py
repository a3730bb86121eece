"""A job's deadline and cost limit together: judged at submission and watched afterwards. Pure.

`policies.placement.offers` judges; this module decides when to report it. A job is refused before
any of it has run, or its owner is told later that it can't be completed within its limits, with
offers.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.reasons import Reason
from gateway.contracts.model.dealing import Consequences
from gateway.scheduler.model import events
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from policies.placement.decisions import Decision
from policies.placement.offers import Unmet, falls_short

# A plan counts as short only after this time: load and adverts are never quite up to date.
UNMET_S: Final = 5.0
# The time that a slot may take to start its first task of a function.
START_S: Final = 10.0

# Judges a job's limits by its plan that was short.
Judge = Callable[[Job, Decision], Unmet | None]


def are_bound(spec: JobSpec) -> bool:
    """Whether all tasks of a job must meet its limits: both are set, or one and `whole`.

    The limits of another site's job are watched by that site.
    """
    deadline_s, limit = spec.wishes.deadline_s, spec.max_cost_nanos
    if spec.path or (deadline_s is None and limit is None):
        return False
    return spec.wishes.whole or (deadline_s is not None and limit is not None)


def is_too_late(spec: JobSpec, decision: Decision) -> bool:
    """Whether a job that may be late could run, were it not for its deadline.

    A job that all its tasks must end in time for is not among them: none of it is begun in vain.
    """
    if spec.path or spec.wishes.deadline_s is None or are_bound(spec):
        return False
    is_nowhere = decision.plan is None or not decision.plan.shares
    return is_nowhere and any(each.reason is Reason.DEADLINE for _, each in decision.refused)


def awaits_judgement(job: Job) -> bool:
    """Whether a job must wait until its task count, and so the verdict on its limits, is known.

    This is so for a detached job that is still being submitted and does not state its number of
    tasks. It is not so while the gateway itself blocks the submission: then only running tasks
    helps.
    """
    spec = job.spec
    if not spec.detached or job.total is not None or spec.tasks is not None:
        return False
    return are_bound(spec) and not (job.owed_tasks or job.ended or job.in_flight)


def said_s(job: Job, measured_s: float | None, utc_s: UtcS) -> float | None:
    """Return a task duration that overrides the measured one of the function; None if none does.

    While no task has ended, it is the client's estimate, and at least the time that its first tasks
    have run so far: otherwise long tasks would be expected too early until the first has ended. A
    task that was stopped for its cost takes longer than it had run.
    """
    told_s = _told_s(job, measured_s, utc_s)
    known_s = measured_s if told_s is None else told_s
    return job.expected_s if job.expected_s > (known_s or 0.0) else told_s


def _told_s(job: Job, measured_s: float | None, utc_s: UtcS) -> float | None:
    """Return the same from the client's estimate and the time that the first tasks have run."""
    hint_s = job.spec.task_s
    if job.ended:
        return hint_s if measured_s is None else None
    known_s = measured_s if hint_s is None else hint_s
    if known_s is None:
        return None
    # At other sites tasks may wait for a slot.
    given_s = next(
        (each.given_at_s for each in job.assignments.values() if not each.worker.job), utc_s
    )
    ran_s = utc_s - given_s - START_S
    return ran_s if ran_s > known_s else hint_s


def committed_nanos(job: Job, task_s: float | None) -> int:
    """Return a job's cost in the currency of its limit, plus that expected of its tasks at workers.

    For a job bound by its limits, each task is expected to take `task_s`, the duration known by
    now.
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

    since_s: MonoS
    is_told: bool = False


class LimitWatch:
    """Watches the jobs whose limits must be met by all tasks.

    Args:
        judge: judges by the state of all pools.
        outcome: receives the resulting events.
    """

    def __init__(self, judge: Judge, outcome: Consequences) -> None:
        self._judge = judge
        self._outcome = outcome
        self._troubles: dict[str, _Trouble] = {}

    def planned(self, job: Job, decision: Decision, mono_s: MonoS) -> None:
        """Check a job's new plan: report if it can't be completed any more, or can be again."""
        trouble = self._troubles.get(job.id)
        if not are_bound(job.spec) or not falls_short(decision):
            if trouble is not None:
                del self._troubles[job.id]
                if trouble.is_told:
                    self._outcome.happened(events.JobLimitsUnmet(job.id, ""))
            return
        if trouble is None:
            trouble = self._troubles[job.id] = _Trouble(mono_s)
        if trouble.is_told or mono_s - trouble.since_s < UNMET_S:
            return
        unmet = self._judge(job, decision)
        if unmet is None:
            return
        trouble.is_told = True
        failure = ""
        if job.spec.wishes.whole:
            failure = "budget" if unmet.reason is Reason.COST_LIMIT else "deadline"
        text = f"of the remaining tasks, {unmet.text}"
        self._outcome.happened(events.JobLimitsUnmet(job.id, text, failure))

    def tidy(self, jobs: Container[str]) -> None:
        """Forget jobs that no longer exist."""
        self._troubles = {job: each for job, each in self._troubles.items() if job in jobs}
