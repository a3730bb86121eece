"""The work of a pool that grows: the tasks that plans have placed there, no more. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.grids.scaling.room import PoolRoom
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.quotas.occupancy import is_reserved
from policies.access.claims import ReservedSlots
from policies.placement.asks import Objective
from policies.placement.autoscaling import PoolWork, haste
from policies.placement.estimates import TASK_MIN_S
from policies.placement.placement import CapacityOffer, Need, counted, judge

# Another site's claim of a task's duration counts up to this limit, until it is measured.
CLAIM_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PilotShape:
    """The properties of a pool's pilots.

    Attributes:
        offers: of the pilots that have come, or as the configuration promises.
        slots: of each.
        start_s: how long one takes to start.
        limit_s: the time after which its grid stops it; None: it doesn't.
    """

    offers: Sequence[CapacityOffer]
    slots: int = 1
    start_s: float = 0.0
    limit_s: float | None = None
    _at_once: dict[Need, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at_once(self, need: Need) -> int:
        """Return how many tasks of a need one pilot runs at once; 0: it can't run any."""
        found = self._at_once.get(need)
        if found is None:  # thousands of jobs are alike
            found = self._at_once[need] = self._most_at_once(need)
        return found

    def _most_at_once(self, need: Need) -> int:
        found = 0
        for offer in self.offers:
            if judge(need, offer) is None:
                holds = [self._holds(offer, *each) for each in counted(need.tags).items()]
                found = max(found, min(self.slots, *holds) if holds else self.slots)
        return found

    def _holds(self, offer: CapacityOffer, name: str, amount: float) -> int:
        has = offer.tags[name]  # a number, or it would have been refused
        return int(has / amount + 1e-9) if amount else self.slots

    def outlasts(self, known_s: float | None) -> bool:
        """Whether it lasts as long as a task takes, as far as that is known."""
        return self.limit_s is None or known_s is None or known_s < self.limit_s

    def objection(self, need: Need, known_s: float | None) -> str:
        """Return why it can't run any, in words."""
        if self.limit_s is not None and not self.outlasts(known_s):
            return (
                f"is stopped by its grid after {duration_text(self.limit_s)}, which is too "
                "short for a task"
            )
        found = (judge(need, offer) for offer in self.offers)
        return next((each.text for each in found if each is not None), "")


def demand(
    broker: Broker,
    pool: str,
    utc_s: UtcS,
    task_s_unknown: float,
    objective: Objective,
    *,
    shape: PilotShape,
    slots_max: int,
    is_dry: bool = False,
) -> PoolWork:
    """Return the work of a pool: the tasks that plans have placed there, and those of its workers.

    A plan gives a pool only tasks that no idle slot, and no peer, would do sooner or cheaper, so
    nothing is rented for others. Tasks that may begin only later by the pool's rules do not count:
    slots would idle, and cost, until a window opens. Nor do tasks that no pilot could do: a pilot
    started, or kept, for them would do nothing. Tasks that may run only after others, by the pool's
    rules or their owner's entitlements and budgets, count for no more slots than they may have.
    Reserved slots are up when their reservation begins.

    Args:
        task_s_unknown: the least duration assumed for a task of which none has ended yet: running
            tasks take at least as long as they have.
        objective: of jobs that wish for none.
        shape: the properties of its pilots.
        slots_max: the most slots that there may be.
        is_dry: no plan places anything there: all queued tasks count that could run there, and
            that other slots of ours would not do before a pilot could be started.
    """
    if broker.draining:
        return PoolWork()
    tasks, slot_s, weighed_s, spread, least_s = 0, 0.0, 0.0, 0, inf
    stranded, stranded_why, stranded_jobs = 0, "", []
    due: list[tuple[UtcS, int, float]] = []
    room = PoolRoom(broker, pool, slots_max, utc_s, utc_s + shape.start_s)
    kept, booked = _kept(broker, pool, utc_s, utc_s + shape.start_s)
    for job, placed in _waiting(broker, pool, room, kept, booked, is_dry=is_dry):
        mean_s = broker.durations.of(job.spec.function)
        known_s = matching.known_s(job, mean_s)
        seats = shape.at_once(job.need) if shape.outlasts(known_s) else 0
        if not seats:
            if not is_dry:  # else others may do them
                stranded, stranded_why = stranded + placed, shape.objection(job.need, known_s)
                stranded_jobs.append(job.id)
            continue
        task_s = _task_s(job, _here_s(broker, job, mean_s), task_s_unknown, utc_s)
        if is_dry:
            placed -= _done_elsewhere(broker, job, pool, shape.start_s / task_s, placed)
        wide = ceil(placed * shape.slots / seats)
        if not (at_most := room.take(job, wide)):
            continue
        least_s = min(least_s, known_s or 0.0)
        tasks += placed
        spread += at_most - placed
        slot_s += wide * task_s
        weighed_s += wide * task_s * haste(job.spec.wishes.objective or objective)
        if job.spec.wishes.deadline_s is not None:
            due.append((job.spec.wishes.deadline_s, wide, task_s))
    mean = weighed_s / slot_s if slot_s else 1.0
    running, idle, running_s = _running(broker, pool, shape, utc_s)
    return PoolWork(
        *(tasks + running, slot_s + running_s, running_s, tuple(sorted(due)), mean),
        owed=_owed(broker, pool, shape, room.may_begin),
        spread=spread + idle,
        stranded=stranded,
        stranded_why=stranded_why,
        stranded_jobs=tuple(stranded_jobs),
        kept=kept,
        least_s=least_s if tasks else 0.0,
    )


def _waiting(
    broker: Broker,
    pool: str,
    room: PoolRoom,
    kept: int,
    booked: Sequence[ReservedSlots],
    *,
    is_dry: bool,
) -> Iterator[tuple[Job, int]]:
    """Yield the jobs that may begin in a pool, with the number of their tasks queued for it.

    Args:
        kept: slots that are booked and have no task: they will do theirs; `booked`: for whom.
    """
    for job in broker.waiting_jobs:
        placed = _could_come(broker, job, pool) if is_dry else _placed(job, pool)
        if kept and any(each.who.includes(job.whose) for each in booked):
            done = min(placed, kept)
            placed, kept = placed - done, kept - done
        if placed and room.may_begin(job):
            yield job, placed


def _running(broker: Broker, pool: str, shape: PilotShape, utc_s: UtcS) -> tuple[int, int, float]:
    """Return the tasks of a pool's workers, slots idle because of them, and slot-seconds left."""
    tasks, idle, left_s = 0, 0, 0.0
    for worker in broker.workers.values():
        if worker.offer.pool == pool and not worker.job:
            tasks += worker.in_flight
            idle += _kept_idle(worker, shape) if worker.free else 0
            left_s += worker.left_s(utc_s)
    return tasks, idle, left_s


def _kept_idle(worker: Worker, shape: PilotShape) -> int:
    """Return how many slots of a worker idle because its tasks hold its counted resources."""
    idle = 0
    for each in worker.assignments.values():
        if each.job.counted:
            tasks, seats = len(each.left), max(1, shape.at_once(each.job.need))
            idle += ceil(tasks * shape.slots / seats) - tasks
    return min(idle, max(0, worker.slots - worker.in_flight))


def _owed(broker: Broker, pool: str, shape: PilotShape, may_begin: Callable[[Job], bool]) -> int:
    """Return the sold slots that have tasks, if pilots could run those.

    Measured tasks must keep each slot at work for as long as a start takes: slots were sold on
    the buyer's word.
    """
    owed = 0
    for job in broker.jobs.values():
        if job.spec.pool != pool or not job.spec.slots_sold or is_reserved(job.spec):
            continue
        if not may_begin(job):
            continue
        left = job.waiting + job.in_flight
        slots = min(left, job.spec.slots_sold)
        known_s = _here_s(broker, job, broker.durations.of(job.spec.function))
        if known_s is not None:
            slots = min(slots, ceil(left * known_s / max(shape.start_s, TASK_MIN_S)))
        if slots and shape.at_once(job.need):
            owed += slots
    return owed


def _here_s(broker: Broker, job: Job, mean_s: float | None) -> float | None:
    """Return a job's task duration at this site if sites differ; else the mean."""
    return broker.durations.by_site(job.spec.function).get("", mean_s)


def _task_s(job: Job, known_s: float | None, unknown_s: float, utc_s: UtcS) -> float:
    """Return the assumed duration of a job's task: the measured one, else its owner's claim.

    The claim of another site is bounded: it pays for the time of its tasks, and not for a slot that
    was started because they were claimed to take long. The time that a task has already run is no
    claim.
    """
    claim_s = job.spec.task_s
    if known_s is None and claim_s is not None:
        known_s = claim_s
        if job.spec.path:
            known_s = min(claim_s, max(CLAIM_MAX_S, _has_run_s(job, utc_s)))
    return max(TASK_MIN_S, known_s or max(unknown_s, _has_run_s(job, utc_s)))


def _kept(
    broker: Broker, pool: str, from_s: UtcS, until_s: UtcS
) -> tuple[int, tuple[ReservedSlots, ...]]:
    """Return the most booked slots without a task within a time span; and for whom."""
    found = broker.occupancy.pools.get(pool)
    if found is None:
        return 0, ()
    most = 0
    seats: tuple[ReservedSlots, ...] = ()
    for span in found.rules.spans:
        if span.from_s <= until_s and from_s < span.until_s:
            booked = tuple(each for each in span.claims.reserved if each.is_booked)
            most = max(most, sum(each.slots for each in booked))
            seats += booked
    first = found.rules.now.claims.first_reserved
    used = sum(slots for claim, slots in found.used.items() if claim >= first)
    return max(0, most - used), seats


def _has_run_s(job: Job, utc_s: UtcS) -> float:
    """Return how long the longest-running of a job's tasks in flight has taken by now."""
    given_s = min((each.given_at_s for each in job.assignments.values()), default=utc_s)
    return max(0.0, utc_s - given_s)


def _placed(job: Job, pool: str) -> int:
    """Return how many of a job's queued tasks its plan gives a pool."""
    if job.spec.pool:
        return job.waiting if job.spec.pool == pool else 0
    places = job.places or {}
    given = places.get(pool, 0)
    if given == inf:  # all except the others' shares
        given = job.waiting - sum(each for each in places.values() if each != inf)
    return int(max(0, min(given, job.waiting)))


def _could_come(broker: Broker, job: Job, pool: str) -> int:
    """Return how many of a job's queued tasks a pool may have, whatever its offer."""
    if job.spec.pool not in ("", pool) or broker.entitling.barred(job.spec, pool) is not None:
        return 0
    return job.waiting


def _done_elsewhere(broker: Broker, job: Job, pool: str, rounds: float, tasks: int) -> int:
    """Return how many of these tasks our other slots do in this many rounds."""
    slots, rounds = 0, min(rounds, tasks)
    for each in broker.workers.values():
        if slots * rounds >= tasks:  # of thousands of workers the first few may be enough
            break
        if each.offer.pool != pool and matching.refusal(job, each) is None:
            slots += each.slots
    return min(tasks, int(slots * rounds))
