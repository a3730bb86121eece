"""The slots that each party has, and may still get, in pools with windows or claims. Pure.

Slots are counted as tasks come and go at workers. An assigned task has a slot, whether it has begun
or not, so that a bounded party never exceeds its bound. A bounded party's tasks are not queued
ahead. Unbounded parties cause no cost, and pools without rules are skipped.

A party's work is bounded where it may have less than the whole pool, where slots are kept for
others, and where it must make room for a window soon: then only tasks that end before it begin.

A reservation is a claim of its own; it holds the tasks that were assigned by its tariff. Its
party's work takes its slots first, and after that other slots like any work. In the gap before a
window or a reservation only tasks that end before it are started (backfilling).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, TypeVar

from federation.clocks import NEVER_S, UtcS
from federation.messages.adverts import AdvertisedWindow
from federation.offers import show_time
from federation.reasons import Reason
from gateway.scheduler.model.jobs import Assignment, Job, Worker
from gateway.scheduler.model.present_slots import slots_once
from gateway.scheduler.model.terms import JobSpec
from policies.access import claims as claiming
from policies.access.claims import ClaimLevel, Claims, ReservedSlots
from policies.access.windows import Closing, PoolRules, WindowSpan, closing_at, closings
from policies.parties import Owner, Party
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import Refusal
from policies.reservations.reservations import NAMED

# The parties whose claims are cached, at most: other sites choose the names of their users.
WHOSE_MAX: Final = 10_000
K = TypeVar("K", bound=Hashable)
_Kind = tuple[int, ...]  # the index of the claim in each set of claims, current ones first


@dataclass(slots=True)
class PoolOccupancy:
    """A pool with rules.

    Attributes:
        total: slots that take work, or would once started.
        tasks: tasks at workers, by worker and claim.
        used: slots, by claim.
        held: assignments with tasks at workers, by claim and number.
        peaks: the most slots since they were last set, by claim.
        shown: the latest adverts of its windows, kept for gateway.contracts.selling.advertising.
        examples: one party of each kind seen: all parties of a kind belong to the same claims in
            each known window. There are few kinds, however many parties there are.
    """

    rules: PoolRules
    total: int = 0
    tasks: Counter[tuple[int, int]] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    held: dict[int, dict[int, Assignment]] = field(default_factory=dict)
    peaks: Counter[int] = field(default_factory=Counter)
    levels: list[ClaimLevel] = field(default_factory=list)
    shown: dict[Any, tuple[Any, tuple[AdvertisedWindow, ...]]] = field(default_factory=dict)
    examples: dict[_Kind, Owner] = field(default_factory=dict)
    _kept: Mapping[int, int] = field(default_factory=dict)
    _claims: list[Claims] = field(init=False)  # all sets of claims, current ones first
    _kinds: dict[Owner, _Kind] = field(default_factory=dict)
    # By kind and reservation; 0: none.
    _closings: dict[tuple[_Kind, int], tuple[Closing, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._claims = list({id(span.claims): span.claims for span in self.rules.spans}.values())

    def claim(self, whose: Owner) -> int:
        """Return the claim that a party's work belongs to."""
        return self._kind(whose)[0]

    def keeps(self, whose: Owner) -> bool:
        """Whether the claim of a party's work keeps it at this site."""
        return self.rules.now.claims.all[self.claim(whose)].stays

    @property
    def seats(self) -> tuple[ReservedSlots, ...]:
        """The current reservations."""
        return self.rules.now.claims.reserved

    def reserved(self, job: Job) -> list[int]:
        """Return the claims that are reserved for a job's work, in order of use."""
        if not self.seats:
            return []
        first, price = self.rules.now.claims.first_reserved, job.spec.price
        return [
            at
            for at, each in enumerate(self.seats, first)
            if each.who.includes(job.whose)
            and (price is None or price.reservation == each.reservation)
        ]

    def claims_for(self, job: Job) -> list[int]:
        """Return the claims that a job's tasks may be in: first those that are reserved for it.

        A job that was sold reserved slots may use no others.
        """
        reserved = self.reserved(job)
        return reserved if is_reserved(job.spec) else [*reserved, self.claim(job.whose)]

    def claim_of(self, assignment: Assignment) -> int:
        """Return the claim that the tasks of an assignment are in."""
        for at, each in enumerate(self.seats, self.rules.now.claims.first_reserved):
            if each.reservation == assignment.tariff.reservation:
                return at
        return self.claim(assignment.job.whose)

    def latest_first(self, claim: int) -> list[Assignment]:
        """Return the assignments with tasks of a claim, the latest first."""
        return sorted(self.held.get(claim, {}).values(), key=lambda each: -each.given_at_s)

    def closing(self, whose: Owner, claim: int) -> Closing | None:
        """Return when a party's work in a claim may next have less; None if that is unknown."""
        return next(iter(self.ahead(whose, claim)), None)

    def ahead(self, whose: Owner, claim: int) -> tuple[Closing, ...]:
        """Return all known times when a party's work in a claim may have less."""
        first = self.rules.now.claims.first_reserved
        key = self._kind(whose), max(0, claim - first + 1)
        if key in self._closings:
            return self._closings[key]
        if claim < first:
            found = closings(self.rules, whose, self.total)
        else:
            found = self._end_of(self.seats[claim - first], whose)
        self._closings[key] = found
        return found

    def _kind(self, whose: Owner) -> _Kind:
        found = self._kinds.get(whose)
        if found is None:
            found = tuple(each.of(whose) for each in self._claims)
            self.examples.setdefault(found, whose)
            if len(self._kinds) < WHOSE_MAX:
                self._kinds[whose] = found
        return found

    def _end_of(self, seats: ReservedSlots, whose: Owner) -> tuple[Closing, ...]:
        """Return when work in a reservation must make room at its end, if it must."""
        after = next((each for each in self.rules.spans if each.from_s >= seats.until_s), None)
        if after is None:
            return ()
        freed = after.room(self.total) - self.rules.now.room(self.total)
        slots = max(0, min(freed, after.most(whose, self.total)))
        if slots >= seats.slots:
            return ()
        return (closing_at(after, slots, whose, self.total),)

    def more(self, claim: int) -> int:
        """Return how many more slots a claim's work may have now."""
        return claiming.more(self.levels, self.used, self.total, claim)

    def is_free_for(self, claim: int) -> bool:
        """Whether a claim's work may have all slots, with none kept for others.

        Always False for a reservation: beyond it, its work has another price.
        """
        if claim >= self.rules.now.claims.first_reserved:
            return False
        return self.levels[claim].most == self.total and not any(
            each.kept for at, each in enumerate(self.levels) if at != claim
        )

    def size(self, total: int) -> None:
        """Set the number of slots."""
        if total != self.total or not self.levels:
            self.total, self.levels = total, self._leveled(total)
            self._closings.clear()

    def keep(self, kept: Mapping[int, int]) -> None:
        """Keep so many guaranteed slots for each claim, whatever it lends otherwise."""
        if kept != self._kept:
            self._kept = dict(kept)
            self.levels = self._leveled(self.total)

    def _leveled(self, total: int) -> list[ClaimLevel]:
        levels = self.rules.now.claims.levels(total)
        for claim, slots in self._kept.items():
            level = levels[claim]
            kept = max(level.kept, min(slots, level.guaranteed))
            levels[claim] = replace(level, kept=kept)
        return levels


class Occupancy:
    """The pools of a site that have rules.

    Args:
        workers: all workers.
    """

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self._workers = workers
        self.pools: dict[str, PoolOccupancy] = {}
        self.growth: dict[str, PoolGrowth] = {}  # of pools that scale with work

    @property
    def rules(self) -> Mapping[str, PoolRules]:
        """The rules by pool."""
        return {name: pool.rules for name, pool in self.pools.items()}

    def keeps(self, name: str, whose: Owner) -> bool:
        """Whether a claim on a pool keeps an owner's work at this site."""
        pool = self.pools.get(name)
        return pool is not None and pool.keeps(whose)

    def turn(self, rules: Mapping[str, PoolRules | None]) -> None:
        """Replace the rules of these pools; other pools keep theirs."""
        for name, each in rules.items():
            if each is None:
                self.pools.pop(name, None)
                continue
            pool = self.pools[name] = PoolOccupancy(each)
            for worker in self._workers_of(name):
                for assignment in worker.assignments.values():
                    self._count(pool, assignment, len(assignment.left))
            pool.size(self.slots_in_all(name))

    def resize(self) -> None:
        """Update the sizes after workers have joined, left, or stopped taking work."""
        for name, pool in self.pools.items():
            pool.size(self.slots_in_all(name))

    def note(self, assignment: Assignment, tasks: int) -> None:
        """Count tasks that an assignment adds to a worker or, below zero, removes."""
        worker = assignment.worker
        pool = self.pools.get(worker.offer.pool)
        if pool is not None and not worker.job:
            self._count(pool, assignment, tasks)

    def _count(self, pool: PoolOccupancy, assignment: Assignment, tasks: int) -> None:
        claim = pool.claim_of(assignment)
        count_slots(pool.tasks, pool.used, assignment.worker, claim, tasks)
        if assignment.left:
            pool.held.setdefault(claim, {})[assignment.id] = assignment
        elif claim in pool.held:
            pool.held[claim].pop(assignment.id, None)
            if not pool.held[claim]:
                del pool.held[claim]
        if tasks > 0:
            pool.peaks[claim] = max(pool.peaks[claim], pool.used[claim])

    def growth_of(self, name: str) -> int:
        """Return the slots that a pool would still start."""
        growth = self.growth.get(name)
        return growth.slots if growth is not None else 0

    # --- available slots -----------------------------------------------------------------------

    def bound(self, job: Job, worker: Worker, task_s: float | None, utc_s: UtcS) -> int | None:
        """Return how many more tasks of a job its pool's rules let a worker have; None: any.

        While reserved slots are available, at most as many as those: other slots have another
        price.
        """
        pool = self.pools.get(worker.offer.pool)
        if pool is None or worker.job:
            return None
        claim, reserved = pool.claim(job.whose), pool.reserved(job)
        left = worker.slots - sum(pool.tasks[worker.handle, each] for each in (claim, *reserved))
        for each in reserved:
            slots = self._slots_for(pool, job.spec, each, task_s, utc_s)
            if slots:
                return max(0, min(slots, left))
        if is_reserved(job.spec):
            return 0  # it was sold reserved slots, and no others
        slots = self._slots_for(pool, job.spec, claim, task_s, utc_s)
        return None if slots is None else max(0, min(slots, left))

    def seats(self, name: str, job: Job, task_s: float | None, utc_s: UtcS) -> ReservedSlots | None:
        """Return the reservation that a job's next tasks in a pool are in; None: none."""
        pool = self.pools.get(name)
        if pool is None or not pool.seats:
            return None
        first = pool.rules.now.claims.first_reserved
        for each in pool.reserved(job):
            if self._slots_for(pool, job.spec, each, task_s, utc_s):
                return pool.seats[each - first]
        return None

    def _slots_for(
        self, pool: PoolOccupancy, spec: JobSpec, claim: int, task_s: float | None, utc_s: UtcS
    ) -> int | None:
        """Return how many more slots tasks of this length may have; None: as many as are free."""
        left = self._left_ahead(pool, spec, claim, task_s, utc_s)
        if left == inf and pool.is_free_for(claim):
            return None
        return int(max(0, min(pool.more(claim), left)))

    def _left_ahead(
        self,
        pool: PoolOccupancy,
        spec: JobSpec,
        claim: int,
        task_s: float | None,
        utc_s: UtcS,
        freed: int = 0,
    ) -> float:
        """Return how many slots are left for tasks of this length beyond the next reductions.

        `freed` is the number of slots that others would release. Inf: no reduction is in the way.
        """
        left = inf
        for closes in pool.ahead(spec.whose, claim):
            if _may_begin(closes, spec, task_s, utc_s):
                continue  # the task ends in time for this one; later ones may leave more
            others = sum(pool.used[each] for each in range(pool.rules.now.claims.first_reserved))
            left = min(left, closes.slots - pool.used[claim], closes.room - others + freed)
        return left

    def slots_for(self, name: str, job: JobSpec, task_s: float | None, utc_s: UtcS) -> float:
        """Return the total of a pool's slots that a job may have now; inf without rules.

        A job that was sold reserved slots may have those and no others.
        """
        pool = self.pools.get(name)
        if is_reserved(job):
            seats = [] if pool is None else pool.seats
            return sum(each.slots for each in seats if each.reservation == job.reservation)
        if pool is None:
            return inf
        claim = pool.claim(job.whose)
        more = self._slots_for(pool, job, claim, task_s, utc_s)
        return inf if more is None else more + pool.used[claim]

    def reserved_for(self, name: str, whose: Owner) -> list[ReservedSlots]:
        """Return the current reservations of a pool for a party's work."""
        pool = self.pools.get(name)
        return [] if pool is None else [each for each in pool.seats if each.who.includes(whose)]

    def may_begin(self, name: str, job: Job, task_s: float | None, utc_s: UtcS, slots: int) -> bool:
        """Whether tasks of a job would begin if others made room for `slots` of them.

        Tasks that are too long for a coming reduction would not.
        """
        pool = self.pools[name]
        freed = max(0, slots - max(0, pool.total - sum(pool.used.values())))
        return any(
            self._left_ahead(pool, job.spec, claim, task_s, utc_s, freed) > 0
            for claim in pool.claims_for(job)
        )

    def shut(self, name: str, job: JobSpec, task_s: float | None, utc_s: UtcS) -> Refusal | None:
        """Return why a pool starts no more of a job for the foreseeable future; None if it does."""
        if is_reserved(job):
            return self._given_up(name, job.reservation)
        pool = self.pools.get(name)
        if pool is None:
            return None
        claim = pool.claim(job.whose)
        if not pool.levels[claim].most:
            return _closed(pool, claim)
        closes = pool.closing(job.whose, claim)
        if closes is None or closes.slots or _may_begin(closes, job, task_s, utc_s):
            return None
        return _closes(closes)

    def _given_up(self, name: str, reserved: str) -> Refusal | None:
        """Return a refusal if the reservation that a quote was for has ended."""
        pool = self.pools.get(name)
        if pool is not None and any(each.reservation == reserved for each in pool.seats):
            return None
        return Refusal(Reason.WINDOW_CLOSED, "has ended {}", (NAMED + reserved,))

    def slots_free(self, name: str, whose: Owner) -> int:
        """Return the slots of a pool with rules that a party's work may take in addition."""
        pool = self.pools[name]
        first = pool.rules.now.claims.first_reserved
        seats = (at for at, each in enumerate(pool.seats, first) if each.who.includes(whose))
        return pool.more(pool.claim(whose)) + sum(pool.more(each) for each in seats)

    def refusal(
        self, job: Job, worker: Worker, task_s: float | None, utc_s: UtcS
    ) -> Refusal | None:
        """Return why a pool's rules give a job no slot of a worker now; None if they do."""
        if self.bound(job, worker, task_s, utc_s) != 0:
            return None
        pool = self.pools[worker.offer.pool]
        claim = pool.claim(job.whose)
        if not pool.levels[claim].most:
            return _closed(pool, claim)
        for closes in pool.ahead(job.whose, claim):
            if not _may_begin(closes, job.spec, task_s, utc_s):
                return _closes(closes)
        words = "has no more slots for {}{}: {} of {} are in use"
        used, most = pool.used[claim], pool.levels[claim].most
        figures = (_who(pool, claim), _held_until(pool.rules.now), used, most)
        return Refusal(Reason.OVER_CLAIM, words, figures)

    def refusal_of_all(self, name: str, whose: Owner) -> Refusal | None:
        """Return why a pool's claims give a party's work no slot at all now; None if they do."""
        pool = self.pools.get(name)
        if pool is None or not pool.total:
            return None
        claim = pool.claim(whose)
        return None if pool.levels[claim].most else _closed(pool, claim)

    # --- pools ---------------------------------------------------------------------------------

    def _workers_of(self, name: str) -> Iterable[Worker]:
        return (each for each in self._workers.values() if each.offer.pool == name and not each.job)

    def slots_in_all(self, name: str) -> int:
        """Return the slots of a pool that take work, or would once started.

        Shares are of all slots that could be there, or a small pool would never grow.
        """
        return self.slots(name) + self.growth_of(name)

    def slots(self, name: str) -> int:
        """Return the slots of a pool that take work, whether it has rules or not.

        A worker that has come back counts once, although its last session is not over yet.
        """
        return slots_once(each for each in self._workers_of(name) if not each.draining)


def count_slots(
    tasks: Counter[tuple[int, K]], slots: Counter[K], worker: Worker, key: K, more: int
) -> None:
    """Count tasks that came to a worker or, below zero, left it, and the slots that they have.

    Args:
        tasks: by worker and key; changed.
        slots: by key: at a worker at most its own number; changed.
        worker: the worker that has the tasks.
        key: the claim or other unit that the tasks count for.
        more: the number of tasks.
    """
    place = worker.handle, key
    before = min(tasks[place], worker.slots)
    tasks[place] += more
    slots[key] += min(tasks[place], worker.slots) - before
    if not tasks[place]:
        del tasks[place]
    if not slots[key]:
        del slots[key]


def is_reserved(job: JobSpec) -> bool:
    """Whether a job was sold reserved slots."""
    return bool(job.reservation)


def _may_begin(closes: Closing, spec: JobSpec, task_s: float | None, utc_s: UtcS) -> bool:
    """Whether a task may begin now: it ends in time, or may be stopped.

    A task of unknown length may begin until the notice to make room. So may a preemptible task,
    which costs less, where it would be stopped.
    """
    if task_s is not None and utc_s + task_s <= closes.ends_at_s:
        return True
    may_stop = spec.price_class == "preemptible" and closes.stops_at_s < NEVER_S
    return (task_s is None or may_stop) and utc_s < closes.told_at_s


def _closed(pool: PoolOccupancy, claim: int) -> Refusal:
    words = "gives {} no slot{}"
    return Refusal(Reason.WINDOW_CLOSED, words, (_who(pool, claim), _held_until(pool.rules.now)))


def _closes(closes: Closing) -> Refusal:
    if not closes.window:
        words = "starts no task of this job that may run after {}, when it may have fewer slots"
        return Refusal(Reason.WINDOW_CLOSED, words, (show_time(closes.at_s),))
    words = "starts no task of this job that may run into window {!r}, which begins at {}"
    return Refusal(Reason.WINDOW_CLOSED, words, (closes.window, show_time(closes.at_s)))


def _who(pool: PoolOccupancy, claim: int) -> Party:
    return pool.rules.now.claims.all[claim].who


def _held_until(span: WindowSpan) -> str:
    if span.window is None:
        return ""
    return f" in window {span.window.name!r}, until {show_time(span.until_s)}"
