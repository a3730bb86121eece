"""Splitting a job over several places, by rate, within deadline and budget. Pure.

A place completes n(t) = r·t - n½ tasks in t seconds (GridWay's benchmark model: Montero, Huedo and
Llorente, Parallel Computing 2006), with n½ = N/2 for N slots, plus the tasks it could have done in
the time until it starts. All end together when

    n_s = r_s·(n + Σ n½) / Σ r - n½_s

which is the fastest split. The cheapest fills the cheapest place up to the deadline, then the next
(Nimrod-G's cost optimisation); a place does whole rounds by then, N·⌊t/T⌋. Between the two lie the
fills up to any earlier time, and the fastest splits over fewer places. A few of those are tried,
and the objective picks: money alone gives cost optimisation, time alone time optimisation, and
among near-equal plans the one that is better in the unweighted measures, so that equally dear
places are used together (cost-time optimisation).
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Final

from federation.reasons import Reason
from policies.placement.asks import Objective
from policies.placement.estimates import ROUNDING, tasks_by, tasks_for
from policies.tariffs import cost_nanos

# The number of times between the fastest and the cheapest plan to try.
TIMES_TRIED: Final = 8


@dataclass(frozen=True, slots=True)
class Lane:
    """A place in a split. Times count from now."""

    key: tuple[str, str]
    rate: float  # tasks per second, once it is going; above zero
    task_s: float
    start_s: float = 0.0
    closes_s: float = math.inf
    tasks_min: int = 0  # that it has, or gets, in any case
    tasks_max: int = 1 << 62
    price_nanos: int = 0  # of a slot-hour
    moves_nanos: int = 0  # of the inputs' way there, once, however many tasks it gets
    currency: str = ""
    currency_rate: float = 1.0  # of the currency, for comparison
    task_g: float = 0.0  # grams of CO2e

    @property
    def slots(self) -> float:
        """The number of slots that its rate amounts to."""
        return self.rate * self.task_s

    @property
    def head(self) -> float:
        """GridWay's n½: its deficit in tasks against a place that starts at once at full rate."""
        return self.slots / 2 + self.rate * self.start_s

    @property
    def money(self) -> float:
        """The cost of a task, for comparison."""
        return self.currency_rate * self.price_nanos * self.task_s / 3600

    def finish_s(self, tasks: int) -> float:
        """Return when so many tasks are done, in whole rounds."""
        if tasks == 0:
            return 0.0
        return self.start_s + math.ceil(tasks / self.slots - ROUNDING) * self.task_s

    def tasks_by(self, time_s: float) -> int:
        """Return the tasks that it can have done by a time, at most `tasks_max`."""
        room_s = min(time_s, self.closes_s) - self.start_s
        can = self.tasks_max if room_s == math.inf else tasks_by(room_s, self.slots, self.task_s)
        return max(self.tasks_min, min(self.tasks_max, can))

    def cost_nanos(self, tasks: int) -> int:
        """Return the cost of so many tasks, in its currency."""
        return cost_nanos(self.price_nanos, tasks * self._task_ns) + self.moves_nanos * (tasks > 0)

    def affords(self, budget_nanos: int) -> int:
        """Return the number of tasks that a budget pays for here."""
        left_nanos = budget_nanos - self.moves_nanos
        if left_nanos < 0:
            return 0
        return tasks_for(left_nanos, self.price_nanos, self._task_ns, self.tasks_max)

    @property
    def _task_ns(self) -> int:
        return round(self.task_s * 1e9)


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """The limits of a split; times count from now, the budget is in the lanes' one currency."""

    deadline_s: float = math.inf
    budget_nanos: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The number of tasks for each lane, and of those without a place."""

    lanes: tuple[Lane, ...]
    tasks: tuple[int, ...]
    short: int = 0
    reason: Reason | None = None  # why it is short

    @property
    def finish_s(self) -> float:
        """Seconds until the last task is done."""
        return max((lane.finish_s(n) for lane, n in self.shares), default=0.0)

    @property
    def money(self) -> float:
        """The cost for comparison: in one currency, and not rounded."""
        return sum(
            lane.money * n + lane.currency_rate * lane.moves_nanos for lane, n in self.shares
        )

    @property
    def cost_nanos(self) -> int:
        """The cost, when all lanes charge in one currency."""
        return sum(lane.cost_nanos(n) for lane, n in self.shares)

    @property
    def carbon_g(self) -> float:
        """Grams of CO2e."""
        return sum(lane.task_g * n for lane, n in self.shares)

    @property
    def shares(self) -> list[tuple[Lane, int]]:
        """The lanes that get tasks, with their number."""
        return [(lane, n) for lane, n in zip(self.lanes, self.tasks, strict=True) if n]


def split(
    lanes: Sequence[Lane], tasks: int, objective: Objective, limits: SplitLimits, band: float
) -> Split:
    """Divide tasks over lanes, which are given in order of preference.

    Tasks for which the limits leave no room are `short`, with the reason: a lane's end or size, the
    deadline, or the budget. Lanes get their `tasks_min`, together `tasks` at most, in any case.
    """
    capped = [replace(lane, tasks_max=lane.tasks_by(limits.deadline_s)) for lane in lanes]
    fitting, reason = min(tasks, sum(lane.tasks_max for lane in capped)), None
    if fitting < tasks:
        in_time = sum(lane.tasks_by(math.inf) for lane in lanes) >= tasks
        reason = Reason.DEADLINE if in_time else Reason.WINDOW_CLOSED
    if limits.budget_nanos is not None:
        affordable = _affordable(capped, fitting, limits.budget_nanos)
        if affordable < fitting:
            fitting, reason = affordable, Reason.COST_LIMIT
    given = _pick(_plans(capped, fitting, limits.budget_nanos), objective, band)
    return Split(tuple(lanes), given.tasks, tasks - fitting, reason)


def fastest(lanes: Sequence[Lane], tasks: int) -> list[int]:
    """Return tasks for each lane so that all end together; lanes with less than one are left out.

    Each is within its `tasks_min` and `tasks_max`, which must leave room for the tasks.
    """
    used = list(lanes)
    while True:
        shares = _level(used, tasks)
        room = sum(lane.tasks_max for lane in used) - tasks
        kept = []
        for share, lane in sorted(zip(shares, used, strict=True), key=lambda pair: pair[0]):
            if share < 1 and not lane.tasks_min and lane.tasks_max <= room:
                room -= lane.tasks_max
            else:
                kept.append(lane)
        if len(kept) == len(used):
            break
        used = [lane for lane in used if lane in kept]
    whole = dict(zip((lane.key for lane in used), _round(used, shares, tasks), strict=True))
    return [whole.get(lane.key, 0) for lane in lanes]


def fill(
    lanes: Sequence[Lane], tasks: int, time_s: float, order: Sequence[int]
) -> list[int] | None:
    """Fill the lanes one by one up to a time; return None when they have too little room."""
    given = [lane.tasks_min for lane in lanes]
    left = tasks - sum(given)
    for at in order:
        more = min(left, lanes[at].tasks_by(time_s) - given[at])
        given[at] += more
        left -= more
    return None if left else given


def _level(lanes: Sequence[Lane], tasks: int) -> list[float]:
    """Return the n_s of the module's formula, each kept within its lane's bounds.

    Every share grows with the common end X, from tasks_min to tasks_max. Between two times at which
    one of them starts or stops growing, X is the formula's, over those that grow.
    """

    def share(lane: Lane, end_s: float) -> float:
        grown = lane.rate * end_s - lane.head
        return min(max(grown, float(lane.tasks_min)), float(lane.tasks_max))

    def placed(end_s: float) -> float:
        return sum(share(lane, end_s) for lane in lanes)

    starts = [(lane.tasks_min + lane.head) / lane.rate for lane in lanes]
    stops = [(lane.tasks_max + lane.head) / lane.rate for lane in lanes]
    edges = sorted({*starts, *stops})
    at = bisect_left(edges, float(tasks), key=placed)
    if at in (0, len(edges)):
        return [float(lane.tasks_min if at == 0 else lane.tasks_max) for lane in lanes]
    rates = heads = fixed = 0.0
    for lane, start, stop in zip(lanes, starts, stops, strict=True):
        if start < edges[at] <= stop:
            rates += lane.rate
            heads += lane.head
        else:
            fixed += lane.tasks_min if edges[at] <= start else lane.tasks_max
    # Where nothing grows, the shares add up at the edge itself, but for rounding.
    end_s = (tasks - fixed + heads) / rates if rates else edges[at]
    return [share(lane, end_s) for lane in lanes]


def _round(lanes: Sequence[Lane], shares: Sequence[float], tasks: int) -> list[int]:
    """Round to whole tasks with the right sum: the remainder goes where most was cut off.

    Lanes without room get none of it.
    """
    given = [
        max(lane.tasks_min, min(int(share), lane.tasks_max))
        for lane, share in zip(lanes, shares, strict=True)
    ]
    left = tasks - sum(given)
    order = sorted(range(len(lanes)), key=lambda at: given[at] - shares[at])
    # Shares of rates that differ by more than a float's digits may add up to too much.
    for at in reversed(order):
        less = min(max(0, -left), given[at] - lanes[at].tasks_min)
        given[at] -= less
        left += less
    for most in (1, tasks):
        for at in order:
            more = min(most, left, lanes[at].tasks_max - given[at])
            given[at] += more
            left -= more
    return given


def _affordable(lanes: Sequence[Lane], tasks: int, budget_nanos: int) -> int:
    """Return how many of the tasks a budget pays for, the cheapest lanes first."""
    placed = sum(lane.tasks_min for lane in lanes)
    left = budget_nanos - sum(lane.cost_nanos(lane.tasks_min) for lane in lanes)
    for at in _by_cost(lanes):
        lane = lanes[at]
        held_nanos = lane.cost_nanos(lane.tasks_min)
        pays_for = lane.affords(max(0, left) + held_nanos) - lane.tasks_min
        more = max(0, min(tasks - placed, pays_for))
        placed += more
        left -= lane.cost_nanos(lane.tasks_min + more) - held_nanos
    return placed


def _plans(lanes: Sequence[Lane], tasks: int, budget_nanos: int | None) -> list[Split]:
    """Return the plans to choose from, within the budget.

    They are the fastest splits over the first few lanes, and fills up to later and later times; in
    order of preference and, with a budget or with fixed minimums, of cost.
    """
    # Lanes with a fixed minimum, those at home, are preferred, and need not be the best.
    by_cost = budget_nanos is not None or any(lane.tasks_min for lane in lanes)
    orders = [range(len(lanes))] + ([_by_cost(lanes)] if by_cost else [])
    found = [fastest(lanes, tasks)]
    first_s = Split(tuple(lanes), tuple(found[0])).finish_s
    for order in orders:
        found += _fastest_of_first(lanes, tasks, order)
        slowest = fill(lanes, tasks, math.inf, order)
        assert slowest is not None, "the tasks must be limited to the free slots before"
        found.append(slowest)
        last_s = Split(tuple(lanes), tuple(slowest)).finish_s
        step = (max(last_s, first_s) / first_s) ** (1 / TIMES_TRIED) if first_s else 1.0
        times_s = [first_s * step**at for at in range(TIMES_TRIED)] if step > 1 else [first_s]
        found += [given for time_s in times_s if (given := fill(lanes, tasks, time_s, order))]
    # The first of equal plans is taken: the one that uses the preferred lanes more.
    different = sorted({tuple(given) for given in found}, reverse=True)
    plans = [Split(tuple(lanes), given) for given in different]
    if budget_nanos is None:
        return plans
    within = [plan for plan in plans if plan.cost_nanos <= budget_nanos]
    # When the fixed minimums already exceed the budget, there is no choice.
    return within or [min(plans, key=lambda plan: plan.cost_nanos)]


def _fastest_of_first(lanes: Sequence[Lane], tasks: int, order: Sequence[int]) -> list[list[int]]:
    """Return the fastest splits over the first lane of an order, the first two, and so on."""
    found = []
    some = [replace(lane, tasks_max=lane.tasks_min) for lane in lanes]
    for at in order[:-1]:
        some[at] = lanes[at]
        if sum(lane.tasks_max for lane in some) >= tasks:
            found.append(fastest(some, tasks))
    return found


def _pick(plans: Sequence[Split], objective: Objective, band: float) -> Split:
    """Return the plan that serves the objective; among near-equals, by the unweighted measures.

    Each measure counts relative to the least of all plans. Plans that are near-equal in that too
    are ranked by the number of their lanes, since each of them is a contract.
    """
    measures = [(plan.money, plan.finish_s, plan.carbon_g) for plan in plans]
    least = [min(column) or 1.0 for column in zip(*measures, strict=True)]
    weights = (objective.money, objective.time, objective.carbon)
    others = [0.0 if weight else 1.0 for weight in weights]
    near = list(range(len(plans)))
    for scales in (weights, others):
        factors = [scale / ref for scale, ref in zip(scales, least, strict=True)]
        rated = {at: sum(map(mul, factors, measures[at])) for at in near}
        limit = min(rated.values()) * (1 + band) + ROUNDING
        near = [at for at in near if rated[at] <= limit]
    return min((plans[at] for at in near), key=lambda plan: len(plan.shares))


def _by_cost(lanes: Sequence[Lane]) -> list[int]:
    return sorted(range(len(lanes)), key=lambda at: lanes[at].money)
