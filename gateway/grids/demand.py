"""What there is to do in a pool that grows: what plans have placed there, no more. Pure."""

from collections.abc import Callable
from math import inf

from gateway.broker import Broker
from gateway.jobs import Job
from gateway.occupancy import is_reserved
from policies.asks import Objective
from policies.butler import Work, haste
from policies.claims import Seats
from policies.estimates import TASK_MIN_S
from policies.parties import Whose
from policies.windows import allowed


def demand(
    broker: Broker,
    pool: str,
    now_s: float,
    task_s_unknown: float,
    objective: Objective,
    *,
    slots_max: int,
    start_s: float,
) -> Work:
    """The work of a pool: what waits for it by the plans of jobs, and what its workers have.

    Because a plan gives a pool only what no idle slot, and no peer, would do sooner or cheaper,
    nothing is rented for anything else. What its rules let begin only later is none yet: slots
    would stand idle, and cost, until a window opens. What is reserved is there when it begins.

    Args:
        task_s_unknown: how long a task is taken to be that nobody has seen end, at least: what runs
            already takes as long as it has.
        objective: of jobs that wish for none.
        slots_max: that there may be.
        start_s: how long a start takes.
    """
    if broker.draining:
        return Work()
    tasks, slot_s, weighed_s = 0, 0.0, 0.0
    due: list[tuple[float, int, float]] = []
    may_begin = _gate(broker, pool, slots_max, now_s, now_s + start_s)
    kept, seats = _kept(broker, pool, now_s, now_s + start_s)
    awaited = kept
    owed = sum(
        min(job.waiting + job.in_flight, job.spec.slots_sold)
        for job in broker.jobs.values()
        if job.spec.pool == pool and may_begin(job) and not is_reserved(job.spec)
    )
    for job in broker.waiting_jobs:
        placed = _placed(job, pool)
        if awaited and any(each.who.includes(job.whose) for each in seats):
            done = min(placed, awaited)
            placed, awaited = placed - done, awaited - done
        if not placed or not may_begin(job):
            continue
        known_s = broker.durations.of(job.spec.function) or job.spec.task_s
        task_s = max(TASK_MIN_S, known_s or max(task_s_unknown, _has_run_s(job, now_s)))
        tasks += placed
        slot_s += placed * task_s
        weighed_s += placed * task_s * haste(job.spec.wishes.objective or objective)
        if job.spec.wishes.deadline_s is not None:
            due.append((job.spec.wishes.deadline_s, placed, task_s))
    mean = weighed_s / slot_s if slot_s else 1.0
    running_s = 0.0
    for worker in broker.workers.values():
        if worker.offer.pool == pool and not worker.job:
            tasks += worker.in_flight
            running_s += worker.left_s(now_s)
    return Work(tasks, slot_s + running_s, running_s, tuple(sorted(due)), mean, owed, kept)


def _kept(
    broker: Broker, pool: str, from_s: float, until_s: float
) -> tuple[int, tuple[Seats, ...]]:
    """The slots that are booked at some moment of a time, and have no task; and for whom."""
    found = broker.occupancy.pools.get(pool)
    if found is None:
        return 0, ()
    most = 0
    seats: tuple[Seats, ...] = ()
    for span in found.rules.spans:
        if span.from_s <= until_s and from_s < span.until_s:
            booked = tuple(each for each in span.claims.reserved if each.is_booked)
            most = max(most, sum(each.slots for each in booked))
            seats += booked
    first = found.rules.now.claims.first_reserved
    used = sum(slots for claim, slots in found.used.items() if claim >= first)
    return max(0, most - used), seats


def _has_run_s(job: Job, now_s: float) -> float:
    """How long the first of a job's tasks that are under way have taken by now."""
    given_s = min((each.given_s for each in job.assignments.values()), default=now_s)
    return max(0.0, now_s - given_s)


def _gate(
    broker: Broker, pool: str, slots_max: int, from_s: float, until_s: float
) -> Callable[[Job], bool]:
    """Whether a pool's rules let anything of a job begin within a time."""
    rules = broker.occupancy.rules.get(pool)
    known: dict[Whose, bool] = {}

    def may_begin(job: Job) -> bool:
        whose = job.spec.whose
        if rules is None or is_reserved(job.spec):
            return True
        if whose not in known:
            spans = allowed(rules.spans, whose, slots_max)
            known[whose] = any(
                each.slots and each.from_s <= until_s and from_s < each.until_s for each in spans
            )
        return known[whose]

    return may_begin


def _placed(job: Job, pool: str) -> int:
    """How many of a job's waiting tasks its plan gives a pool."""
    if job.spec.pool:
        return job.waiting if job.spec.pool == pool else 0
    places = job.places or {}
    given = places.get(pool, 0)
    if given == inf:  # all but what others are given
        given = job.waiting - sum(each for each in places.values() if each != inf)
    return int(max(0, min(given, job.waiting)))
