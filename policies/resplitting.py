"""Correct a split as results come in: what to recall from whom, and what to place where. Pure.

Nothing is remembered: each correction follows from what every place has of the job, how fast it
turned out to be, and what is not placed. The rest of the job is split anew (policies.splitting);
work that waits somewhere is moved only for a plan that is better by more than the band, or to
keep a limit that would be broken where it is. What is recalled comes back as not placed, and the
next correction places it: so ask for none while a recall is not answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.asks import Objective
from policies.splitting import Lane, Limits, Split, split

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """A place and what it has of a job. One that has nothing yet may get something.

    Its lane's `start_s` is zero once it is going, and its rate is the measured one.
    """

    lane: Lane
    waiting: int = 0  # placed there, not started: can be recalled
    running: int = 0


@dataclass(frozen=True, slots=True)
class Correction:
    """What is to be done now: tasks by site and pool, and the split that it leads to."""

    place: dict[Key, int]
    recall: dict[Key, int]
    plan: Split


def measured_rate(lane: Lane, done: int, running: int, busy_s: float) -> float:
    """Tasks per second of a place that has done so many in the time that it had work of ours.

    (N + done + running/2) / (N/r + busy): the rate r that was expected, with the weight of one
    round of its N slots, moving to the measured one. Half of what runs counts as done, which is
    GridWay's n½: without it every place looks slow until its first round is over.
    """
    weight = max(1.0, lane.slots)
    return (weight + done + running / 2) / (weight / lane.rate + busy_s)


def resplit(
    places: Sequence[Progress], unplaced: int, objective: Objective, limits: Limits, band: float
) -> Correction:
    """Say what to place and what to recall; the limits are for all that is left of the job."""
    held = [each.waiting + each.running for each in places]
    left = unplaced + sum(held)
    free = [replace(each.lane, tasks_min=each.running) for each in places]
    stuck = [replace(lane, tasks_min=n) for lane, n in zip(free, held, strict=True)]
    stay = split(stuck, left, objective, limits, band)
    ideal = split(free, left, objective, limits, band)
    too_dear = _is_too_dear(stay, ideal, limits)
    moves = (
        too_dear or _is_late(stay, ideal, free, limits) or _is_worse(stay, ideal, objective, band)
    )
    plan = ideal if moves else stay
    more = [max(0, gets - has) for gets, has in zip(plan.tasks, held, strict=True)]
    # Work comes back only for another place, or to save its cost.
    wanted = left if too_dear else sum(more) - unplaced
    place: dict[Key, int] = {}
    recall: dict[Key, int] = {}
    for lane, has, gets, extra in zip(free, held, plan.tasks, more, strict=True):
        if extra and unplaced:
            place[lane.key] = min(extra, unplaced)
            unplaced -= place[lane.key]
        elif gets < has and wanted > 0:
            recall[lane.key] = min(has - gets, wanted)
            wanted -= recall[lane.key]
    return Correction(place, recall, plan)


def _is_too_dear(stay: Split, ideal: Split, limits: Limits) -> bool:
    """Whether staying costs more than there is, and something can be done about it."""
    budget_nanos = limits.budget_nanos
    return budget_nanos is not None and stay.cost_nanos > max(budget_nanos, ideal.cost_nanos)


def _is_late(stay: Split, ideal: Split, free: Sequence[Lane], limits: Limits) -> bool:
    """Whether staying leaves more tasks without a place where they end in time."""
    late = stay.short + sum(
        max(0, n - lane.tasks_by(limits.deadline_s))
        for lane, n in zip(free, stay.tasks, strict=True)
    )
    return late > ideal.short


def _is_worse(stay: Split, ideal: Split, objective: Objective, band: float) -> bool:
    """Whether staying is worse by more than the band, relative to the ideal."""
    weights = (objective.money, objective.time, objective.carbon)
    ours = (stay.money, stay.finish_s, stay.carbon_g)
    best = (ideal.money, ideal.finish_s, ideal.carbon_g)
    # Where the ideal costs nothing, ours counts in units of its own.
    excess = sum(
        w * (our / ref if ref else 1.0 + bool(our))
        for w, our, ref in zip(weights, ours, best, strict=True)
    )
    return excess > (1 + band) * sum(weights)
