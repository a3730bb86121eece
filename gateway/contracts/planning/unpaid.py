"""Pools of other sites that a job's budgets can't pay, so that the plan goes elsewhere. Pure.

A contract is granted only what the job's hard budgets have room for, and none is opened for less
than a task. A plan that names such pools alone would leave the job waiting, although another pool
could be paid. A pool where the job has a contract already has its money.
"""

from collections.abc import Callable, Container, Iterable

from gateway.contracts.buying.grant_parts import room_of
from gateway.scheduler.model.jobs import Job
from policies.placement.decisions import Decision
from policies.placement.estimates import least_nanos
from policies.placement.market import Candidate


def payable(
    job: Job,
    decision: Decision,
    candidates: Iterable[Candidate],
    bought: Container[str],
    decide: Callable[[list[str]], Decision],
) -> Decision:
    """Return a decision whose plan can be paid, if there is one; else the same.

    Args:
        job: the job of the tasks.
        decision: made without regard to budgets.
        candidates: all pools.
        bought: the pools where the job has a contract, as "site/pool".
        decide: decides again without the pools that it is given, as "site/pool".
    """
    room = room_of(job)
    if room is None or decision.plan is None:
        return decision

    def is_unpaid(each: Candidate) -> bool:
        if each.is_own or "/".join(each.key) in bought:
            return False
        return room < max(1, least_nanos(decision.ask, each), job.needs_nanos)

    # To judge all of ten thousand pools takes a tenth of a second: first the few that are liked.
    found, liked = decision, [each.candidate for each in decision.preferred]
    for judged in (liked, candidates):
        if found.plan is None:
            return decision  # the budgets decide whether it waits
        shares = {lane.key for lane, _ in found.plan.shares}
        if not any(is_unpaid(each.candidate) for each in found.preferred if each.key in shares):
            return found
        found = decide(["/".join(each.key) for each in judged if is_unpaid(each)])
    return decision if found.plan is None else found
