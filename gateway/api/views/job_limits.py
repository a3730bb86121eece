"""Explanations of a job's limits, and of workers that the plan leaves out. Pure."""

from collections.abc import Collection, Mapping
from math import ceil
from typing import Any

from federation.clocks import UtcS
from federation.reasons import Reason
from federation.words import duration_text
from gateway.contracts.exchange import Exchange
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Assignment, Job, Worker
from gateway.scheduler.model.terms import JobSpec
from policies.placement.deadlines import DeadlineCheck
from policies.placement.decisions import Decision
from policies.placement.offers import Unmet


def limits_of(
    spec: JobSpec,
    decision: Decision,
    exchange: Exchange,
    chance: str = "",
    busy_until_s: UtcS | None = None,
) -> dict[str, Any]:
    """Return `unmet` and `deadline` of a plan; see PlacementDecider.explain_deadline."""
    unmet = exchange.deciding.explain_unmet(spec, decision, chance)
    return _plain(
        unmet, exchange.deciding.explain_deadline(spec, decision, chance, unmet, busy_until_s)
    )


def limits_of_job(job: Job, decision: Decision, exchange: Exchange, utc_s: UtcS) -> dict[str, Any]:
    """Return `unmet` and `deadline` of a job; of its running tasks the end that is expected."""
    busy_until_s = running_until_s(job, decision.ask.task_s, utc_s)
    if job.waiting:
        return limits_of(job.spec, decision, exchange, job.id, busy_until_s)
    # Tasks in flight are not placed again: when they end, their workers know.
    deadline_s = job.spec.wishes.deadline_s
    if not job.in_flight or deadline_s is None:
        return _plain(None, None)
    is_measured = busy_until_s is not None
    check = DeadlineCheck(deadline_s, utc_s, job.in_flight, busy_until_s, None, is_measured)
    return _plain(None, check)


def _plain(unmet: Unmet | None, deadline: DeadlineCheck | None) -> dict[str, Any]:
    return {
        "unmet": unmet.to_plain() if unmet is not None else None,
        "deadline": deadline.to_plain() if deadline is not None else None,
    }


def running_until_s(job: Job, task_s: float | None, utc_s: UtcS) -> UtcS | None:
    """Return when the tasks of a job at workers are expected to end, UTC; None if unknown."""
    if task_s is None or not job.assignments:
        return None
    return max(UtcS(_end_s(each, task_s, utc_s)) for each in job.assignments.values())


def _end_s(assignment: Assignment, task_s: float, utc_s: UtcS) -> float:
    """Return the expected end of an assignment: of its begun tasks, and of those behind them."""
    begun = {task: at_s for task, at_s in assignment.begun.items() if task in assignment.left}
    last_s = max((float(at_s) + task_s for at_s in begun.values()), default=float(utc_s))
    behind = len(assignment.left) - len(begun)
    rounds = ceil(behind / max(1, assignment.worker.slots))
    return max(float(utc_s), last_s) + rounds * task_s


def is_left_out(reasons: Collection[Mapping[str, Any]]) -> bool:
    """Whether a job waits for its plan alone: no worker has another reason to refuse it."""
    return bool(reasons) and all(each["reason"] == Reason.ELSEWHERE for each in reasons)


def why_no_place(decision: Decision) -> str:
    """Return why a plan has no place for any task now, in one sentence; empty if it has one."""
    if decision.plan is not None and decision.plan.shares:
        return ""
    if not decision.refused:
        return "no pool is known that could run it"
    texts = [f"{'/'.join(each.key)} {why.text}" for each, why in decision.refused]
    more = f", and {len(texts) - 1:,} more" if len(texts) > 1 else ""
    return f"no pool can take it now: {texts[0]}{more} (`gridfed explain`)"


def why_not(
    broker: Broker,
    job: Job,
    worker: Worker,
    decision: Decision,
    exchange: Exchange,
    approved: Collection[str] | None,
    utc_s: UtcS,
) -> str:
    """Return why a worker, or a contract, gets none of a job's waiting tasks; empty if it may.

    Args:
        broker: this site's.
        job: the job.
        worker: the worker; or a contract with another site for this job.
        decision: the job's plan.
        exchange: has the contracts.
        approved: the sites that are approved here; None for a single site.
        utc_s: now.
    """
    seller = worker.offer.pool.partition("/")[0] if worker.job else ""
    if seller and approved is not None and seller not in approved:
        ends = [e.until_s for e in exchange.purchases.live(job.id) if e.handle == worker.handle]
        left_s = max(ends, default=broker.monotonic_s) - broker.monotonic_s
        within = f", within {duration_text(left_s)}" if left_s > 0 else ""
        return (
            f"site {seller} is expelled, or not approved any more (`gridfed known`): tasks that "
            f"it has not returned run again elsewhere when the contract ends{within}"
        )
    found = broker.refusal(job, worker, utc_s)
    if found is None:
        if job.waiting and not worker.job and 0 < worker.slots <= worker.in_flight:
            return "all its slots are busy" if worker.slots > 1 else "its slot is busy"
        return ""
    if found.reason is not Reason.ELSEWHERE:
        return found.text
    if not job.waiting:
        return ""
    verdict = decision.verdict((exchange.site, worker.offer.pool))
    refusal = getattr(verdict, "text", "")
    return f"the plan leaves its pool out: it {refusal}" if refusal else found.text
