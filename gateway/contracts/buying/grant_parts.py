"""Divides a job's money among the contracts that one plan asks for. Pure.

A seller stops a task that its grant pays for no longer, and the run is charged. So a grant below
the cost of one task buys nothing, and is not given: a share that can't be paid one task is left
out. The cheapest shares are paid first, because they do the most for the money.
"""

from collections.abc import Sequence
from typing import Final

from gateway.scheduler.model.jobs import Job
from policies.costs.budgets import UNKNOWN_S, hard_payers, money_room
from policies.placement.decisions import Decision
from policies.placement.estimates import price_shown
from policies.placement.market import Key
from policies.placement.splitting import Lane
from policies.tariffs import cost_nanos

# The grant of a contract as a multiple of the expected cost of its work: for one chosen among
# rivals for all of it, and for a share of a job that is split.
RIVAL_FACTOR: Final = 2
SHARE_FACTOR: Final = 10


def room_of(job: Job) -> int | None:
    """Return the money that the budgets of a job can still promise, in nano-units; None: no limit.

    Work that we resell has none: it is paid at our own price, which is held when it is handed out.
    """
    return None if job.spec.price is not None else money_room(job.budget_accounts)


def unknown_s(job: Job) -> float:
    """Return the duration in seconds that a grant assumes of a task of unknown duration.

    It is that of the budgets that pay for the job, the longest of several, or else UNKNOWN_S; and
    no more than the time limit of the tasks.
    """
    assumed_s = max(
        (each.budget.unknown_s for each in hard_payers(job.budget_accounts)), default=UNKNOWN_S
    )
    limit_s = job.spec.timeout_s
    return assumed_s if limit_s is None else min(assumed_s, limit_s)


def part_of(
    left_nanos: int | None, decision: Decision, key: Key, assumed_s: float, *, is_first: bool = True
) -> int | None:
    """Return the part of a job's money to grant to a contract; 0: it is not asked for.

    Shares of one plan are each paid one task, then their expected cost, cheapest first; they divide
    the rest by that cost. Of rivals for all of the work one is chosen. Each is granted a multiple
    of the expected cost of its work, and at least an eighth of what it could have: the rest is for
    contracts that may be needed later. If it was too little, another contract follows.

    Args:
        left_nanos: the job's money that is neither spent nor granted; None: it has no limit.
        decision: the plan.
        key: the site and pool of the contract.
        assumed_s: the assumed duration in seconds of a task, while that is unknown.
        is_first: nothing of the job is in flight, so one task may have all of too little money:
            nothing would ever be measured otherwise.
    """
    plan = decision.plan
    if left_nanos is None or plan is None:
        return left_nanos
    if len(plan.shares) > 1 and key in (lane.key for lane, _ in plan.shares):
        costs = {lane.key: lane.cost_nanos(n) for lane, n in plan.shares}
        # Free work takes nothing, but a grant must be above zero.
        if not costs[key]:
            return min(1, left_nanos)
        parts = _divide(left_nanos, plan.shares, decision, assumed_s, is_first=is_first)
        left_nanos = parts.get(key, 0)
        wanted_nanos = SHARE_FACTOR * costs[key]
    else:
        wanted_nanos = RIVAL_FACTOR * max(
            (lane.cost_nanos(n) for lane, n in plan.shares), default=0
        )
        lane = next((lane for lane, _ in plan.shares if lane.key == key), None)
        if lane is not None and not is_first and decision.ask.task_s is None:
            left_nanos *= left_nanos >= _one_nanos(lane, decision, assumed_s)
    if decision.ask.task_s is None or not plan.shares:
        return left_nanos
    return min(left_nanos, max(wanted_nanos, -(-left_nanos // 8)))


def _divide(
    left_nanos: int,
    shares: Sequence[tuple[Lane, int]],
    decision: Decision,
    assumed_s: float,
    *,
    is_first: bool,
) -> dict[Key, int]:
    """Divide money among the shares of a plan that cost something; none gets less than one task.

    Of too little for a task of assumed duration the cheapest share has all, if it `is_first`.
    """
    ones = {lane.key: _one_nanos(lane, decision, assumed_s) for lane, n in shares}
    costing = sorted(
        ((lane, n) for lane, n in shares if lane.cost_nanos(n)),
        key=lambda share: (ones[share[0].key], share[0].key),
    )
    parts: dict[Key, int] = {}
    spare_nanos = left_nanos
    for lane, _ in costing:
        if ones[lane.key] > spare_nanos:
            break  # nor are the dearer ones paid
        parts[lane.key] = ones[lane.key]
        spare_nanos -= ones[lane.key]
    if not parts:
        is_guess = is_first and decision.ask.task_s is None
        return {costing[0][0].key: left_nanos} if is_guess and costing else {}
    paid = [(lane, n) for lane, n in costing if lane.key in parts]
    for lane, n in paid:
        more_nanos = min(spare_nanos, (n - 1) * ones[lane.key])
        parts[lane.key] += more_nanos
        spare_nanos -= more_nanos
    whole = sum(lane.cost_nanos(n) for lane, n in paid)
    for lane, n in paid:
        parts[lane.key] += spare_nanos * lane.cost_nanos(n) // whole
    return parts


def _one_nanos(lane: Lane, decision: Decision, assumed_s: float) -> int:
    """Return the expected cost of one task, or that of a task of the assumed duration."""
    ask = decision.ask
    if ask.task_s is not None:
        return lane.cost_nanos(1)
    known = next((one for one in decision.preferred if one.key == lane.key), None)
    price_nanos = (
        lane.price_nanos if known is None else price_shown(ask, known.candidate, assumed_s)
    )
    return cost_nanos(max(price_nanos, 0), round(assumed_s * 1e9))
