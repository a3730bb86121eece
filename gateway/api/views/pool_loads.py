"""What stands before new work at this site's pools: rules, drains, tasks of unknown length. Pure.

A decision is made from adverts: one says that a pool has no slot or drains, and not by which rule,
by whose order or until when, and a task whose duration nobody knows is no load. An explanation has
the broker, and says all that.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from federation.clocks import UtcS
from federation.offers import show_time
from federation.reasons import Reason
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import matching
from gateway.scheduler.model.events import Drainer
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.model.present_slots import busy_slots
from gateway.scheduler.model.terms import JobSpec
from policies.placement.decisions import Decision
from policies.placement.market import Candidate
from policies.placement.placement import Refusal

_IDLE: Final = (Reason.DRAINING, Reason.NO_SLOTS)  # how adverts show it
# The cause of a drain, for people.
DRAINERS: Final = {
    Drainer.OPERATOR: "an operator has ordered it",
    Drainer.CONTROLLER: "its grid takes it back",
    Drainer.ITSELF: "it stops",
    Drainer.LOSSES: "it was lost with tasks, and is on probation",
}


def with_causes(
    decision: Decision, spec: JobSpec, broker: Broker, site: str, utc_s: UtcS
) -> Decision:
    """Replace refusals of this site's pools by their cause: a rule of the owner, or a drain.

    An advert shows a pool without slots to work that its rules give none, and to work that finds
    all its workers drained.
    """

    def verdict(candidate: Candidate, refusal: Refusal) -> Refusal:
        own, pool = candidate.key
        if own != site or refusal.reason not in (*_IDLE, Reason.WINDOW_CLOSED):
            return refusal
        forbidden = broker.entitling.refusal_of_all(spec.work, pool)
        if forbidden is not None and forbidden.reason is Reason.NOT_ENTITLED:
            return forbidden
        if refusal.reason not in _IDLE:
            return refusal  # which says when the window opens
        if text := _drain_text(_workers(broker, pool), utc_s):
            return Refusal(Reason.DRAINING, "{}", (text,))
        return forbidden or broker.occupancy.refusal_of_all(pool, spec.whose) or refusal

    refused = [(candidate, verdict(candidate, why)) for candidate, why in decision.refused]
    return replace(decision, refused=refused)


def note_waits(
    found: dict[str, Any], broker: Broker, site: str, without: Job | None = None
) -> None:
    """Add `is_wait_known` to the candidates and shares of a decision in plain form.

    Args:
        found: as from `Decision.to_plain`.
        broker: this site's.
        site: its name; for pools of other sites there are adverts alone, which are taken at their
            word.
        without: the job that is explained: its own tasks are not before it.
    """
    is_unknown_queued = any(
        job.waiting and job is not without and _task_s(broker, job) is None
        for job in broker.waiting_jobs
    )
    for row in (*found["candidates"], *found["shares"]):
        row["is_wait_known"] = row["site"] != site or not _is_open(
            _workers(broker, row["pool"]),
            row["tasks"] if "tasks" in row else found["tasks"],
            is_unknown_queued=is_unknown_queued,
        )


def _is_open(workers: Iterable[Worker], tasks: int, *, is_unknown_queued: bool) -> bool:
    """Whether tasks wait at workers for others of which nobody knows when they end."""
    taking = [each for each in workers if not each.draining]
    busy, slots = busy_slots(taking)
    is_unknown = is_unknown_queued or any(
        not each.task_s for worker in taking for each in worker.assignments.values()
    )
    return is_unknown and slots - busy < min(tasks, slots)


def _workers(broker: Broker, pool: str) -> list[Worker]:
    workers = broker.workers.values()
    return [each for each in workers if each.offer.pool == pool and not each.job]


def _drain_text(workers: list[Worker], utc_s: UtcS) -> str:
    """Say that a pool's workers all drain, by order of whom, and until when; empty if not so."""
    if not workers or not all(each.draining for each in workers):
        return ""
    drainers = {each for worker in workers for each in worker.drained_by}
    by = " and ".join(DRAINERS[each] for each in sorted(drainers))
    ends_at_s = [each.ends_at_s for each in workers if each.ends_at_s is not None]
    until = (
        f", the last until {show_time(max(ends_at_s))}" if len(ends_at_s) == len(workers) else ""
    )
    text = "its worker drains" if len(workers) == 1 else f"all its {len(workers):,} workers drain"
    cure = "; `gridfed drain --resume` ends it" if Drainer.OPERATOR in drainers else ""
    return f"takes nothing new: {text}{until}: {by}{cure}"


def _task_s(broker: Broker, job: Job) -> float | None:
    return matching.known_s(job, broker.durations.of(job.spec.function))
