"""Pools of other sites that a job's budgets can't pay, so that the plan goes elsewhere. Pure.

A contract is granted only what the job's hard budgets have room for, and none is opened for less
than a task. A plan that names such pools alone would leave the job waiting, although another pool
could be paid.
"""

from collections.abc import Iterable

from gateway.scheduler.model.jobs import Job
from policies.costs.budgets import money_room
from policies.placement.asks import Demand
from policies.placement.decisions import Decision
from policies.placement.estimates import least_nanos
from policies.placement.market import Candidate


def unpaid(job: Job, ask: Demand, candidates: Iterable[Candidate]) -> list[str]:
    """Return those of other sites' pools, as "site/pool", where no task can be paid now."""
    # Work that we resell is paid at our own price, which is held when it is handed out.
    room = None if job.spec.price is not None else money_room(job.budget_accounts)
    if room is None:
        return []
    return [
        "/".join(each.key)
        for each in candidates
        if not each.is_own and room < max(1, least_nanos(ask, each), job.needs_nanos)
    ]


def unpaid_in_plan(job: Job, decision: Decision) -> bool:
    """Whether a plan names a pool where no task can be paid now."""
    if decision.plan is None or not job.budget_accounts:
        return False
    shares = {lane.key for lane, _ in decision.plan.shares}
    named = (each.candidate for each in decision.preferred if each.key in shares)
    return bool(unpaid(job, decision.ask, named))
