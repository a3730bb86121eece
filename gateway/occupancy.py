"""Who has how many slots of each pool that has windows or claims, and may have more. Pure.

Counted as tasks come and go at workers: a task that was given out has a slot, whether it has begun
or not, so that those who may have few never have more. Whoever is bounded is given no task ahead;
who is not pays nothing for it, and pools without rules are not looked at.

A party's work is bounded where it may have less than the whole pool, where slots are kept for
others, and where it must make room for a window soon: then nothing of it is begun that would not be
done by then.

What is reserved is a claim of its own: the tasks are in it that were given out by its tariff. Its
party's work has it first, and other slots after that, as everybody's. In the gap before a window
or a reservation what would be done by then is begun, and nothing else (backfilling).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Final, TypeVar

from federation.adverts import Window as Shown
from federation.reasons import Reason
from gateway.events import JobSpec
from gateway.jobs import Assignment, Job, Worker
from policies import claims as claiming
from policies.butler import Growth
from policies.claims import Claims, Level, Seats
from policies.parties import Party, Whose
from policies.placement import Refusal
from policies.reservations import NAMED
from policies.windows import Closing, Rules, Span, closing_at, closings

# Of whom it is remembered what they may have: other sites choose the names of their users.
WHOSE_MAX: Final = 10_000
K = TypeVar("K", bound=Hashable)
_Kind = tuple[int, ...]  # which claim of each of those that there are, those of now first


@dataclass(slots=True)
class Pool:
    """A pool with rules.

    Attributes:
        total: slots that take work, or would once they were started.
        tasks: that are with workers, by worker and claim.
        used: slots, by claim.
        shown: what adverts said last of its windows; gateway.showing keeps it here.
        examples: somebody of each kind that was seen: all whose work belongs to the same claims,
            in each window that is known of. There are few kinds, however many there are of them.
    """

    rules: Rules
    total: int = 0
    tasks: Counter[tuple[int, int]] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    levels: list[Level] = field(default_factory=list)
    shown: dict[Any, tuple[Any, tuple[Shown, ...]]] = field(default_factory=dict)
    examples: dict[_Kind, Whose] = field(default_factory=dict)
    _claims: list[Claims] = field(init=False)  # that there are, those that hold now first
    _kinds: dict[Whose, _Kind] = field(default_factory=dict)
    # By kind, and in which reservation; 0: in none.
    _closings: dict[tuple[_Kind, int], tuple[Closing, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._claims = list({id(span.claims): span.claims for span in self.rules.spans}.values())

    def claim(self, whose: Whose) -> int:
        """Which claim somebody's work belongs to."""
        return self._kind(whose)[0]

    @property
    def seats(self) -> tuple[Seats, ...]:
        """What is reserved now."""
        return self.rules.now.claims.reserved

    def reserved(self, job: Job) -> list[int]:
        """The claims that are reserved for a job's work, in the order in which it has them."""
        if not self.seats:
            return []
        first, price = self.rules.now.claims.first_reserved, job.spec.price
        return [
            at
            for at, each in enumerate(self.seats, first)
            if each.who.includes(job.whose) and (price is None or price.version == each.name)
        ]

    def claims_for(self, job: Job) -> list[int]:
        """The claims that a job's tasks may be in: first those that are reserved for it.

        What was sold what is reserved has nothing else.
        """
        reserved = self.reserved(job)
        return reserved if is_reserved(job.spec) else [*reserved, self.claim(job.whose)]

    def claim_of(self, assignment: Assignment) -> int:
        """Which claim the tasks of an assignment are in."""
        for at, each in enumerate(self.seats, self.rules.now.claims.first_reserved):
            if each.name == assignment.tariff.version:
                return at
        return self.claim(assignment.job.whose)

    def closing(self, whose: Whose, claim: int) -> Closing | None:
        """When somebody's work that is in a claim may have less."""
        return next(iter(self.ahead(whose, claim)), None)

    def ahead(self, whose: Whose, claim: int) -> tuple[Closing, ...]:
        """When somebody's work that is in a claim may have less, and less again, as is known."""
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

    def _kind(self, whose: Whose) -> _Kind:
        found = self._kinds.get(whose)
        if found is None:
            found = tuple(each.of(whose) for each in self._claims)
            self.examples.setdefault(found, whose)
            if len(self._kinds) < WHOSE_MAX:
                self._kinds[whose] = found
        return found

    def _end_of(self, seats: Seats, whose: Whose) -> tuple[Closing, ...]:
        """When what runs as reserved has to make room: others have it next, or it may not be."""
        after = next((each for each in self.rules.spans if each.from_s >= seats.until_s), None)
        if after is None:
            return ()
        freed = after.room(self.total) - self.rules.now.room(self.total)
        slots = max(0, min(freed, after.most(whose, self.total)))
        if slots >= seats.slots:
            return ()
        return (closing_at(after, slots, whose, self.total),)

    def more(self, claim: int) -> int:
        """How many more slots a claim's work may have now."""
        return claiming.more(self.levels, self.used, self.total, claim)

    def is_free_for(self, claim: int) -> bool:
        """Whether a claim's work may have everything, and nothing is kept for others.

        Never of what is reserved: beyond that its work has another price.
        """
        if claim >= self.rules.now.claims.first_reserved:
            return False
        return self.levels[claim].most == self.total and not any(
            each.kept for at, each in enumerate(self.levels) if at != claim
        )

    def size(self, total: int) -> None:
        """There are so many slots from now on."""
        if total != self.total or not self.levels:
            self.total, self.levels = total, self.rules.now.claims.levels(total)
            self._closings.clear()


class Occupancy:
    """The pools of a site that have rules.

    Args:
        workers: all that there are.
    """

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self._workers = workers
        self.pools: dict[str, Pool] = {}
        self.growth: dict[str, Growth] = {}  # of pools that are grown for work

    @property
    def rules(self) -> Mapping[str, Rules]:
        """What holds for which pool."""
        return {name: pool.rules for name, pool in self.pools.items()}

    def turn(self, rules: Mapping[str, Rules | None]) -> None:
        """From now on these rules hold for these pools; for others what held before."""
        for name, each in rules.items():
            if each is None:
                self.pools.pop(name, None)
                continue
            pool = self.pools[name] = Pool(each)
            for worker in self._workers_of(name):
                for assignment in worker.assignments.values():
                    self._count(pool, assignment, len(assignment.left))
            pool.size(self.slots_in_all(name))

    def resize(self) -> None:
        """Workers may have come or gone, or stopped taking work."""
        for name, pool in self.pools.items():
            pool.size(self.slots_in_all(name))

    def note(self, assignment: Assignment, tasks: int) -> None:
        """A worker was given so many tasks by an assignment, or, below zero, has so many fewer."""
        worker = assignment.worker
        pool = self.pools.get(worker.offer.pool)
        if pool is not None and not worker.job:
            self._count(pool, assignment, tasks)

    def _count(self, pool: Pool, assignment: Assignment, tasks: int) -> None:
        claim = pool.claim_of(assignment)
        count_slots(pool.tasks, pool.used, assignment.worker, claim, tasks)

    # --- how much more -------------------------------------------------------------------------

    def bound(self, job: Job, worker: Worker, task_s: float | None, utc_s: float) -> int | None:
        """How many more tasks of a job a worker may have by the rules of its pool; None: any.

        While it may have reserved slots, as many as those: the rest has another price.
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
            return 0  # it was sold what is reserved, and nothing else
        slots = self._slots_for(pool, job.spec, claim, task_s, utc_s)
        return None if slots is None else max(0, min(slots, left))

    def seats(self, name: str, job: Job, task_s: float | None, utc_s: float) -> Seats | None:
        """The reservation whose slots a job's next tasks in a pool are in; None: in none."""
        pool = self.pools.get(name)
        if pool is None or not pool.seats:
            return None
        first = pool.rules.now.claims.first_reserved
        for each in pool.reserved(job):
            if self._slots_for(pool, job.spec, each, task_s, utc_s):
                return pool.seats[each - first]
        return None

    def _slots_for(
        self, pool: Pool, spec: JobSpec, claim: int, task_s: float | None, utc_s: float
    ) -> int | None:
        """How many more slots tasks of this length may have; None: as many as are free."""
        left = self._left_ahead(pool, spec, claim, task_s, utc_s)
        if left == inf and pool.is_free_for(claim):
            return None
        return int(max(0, min(pool.more(claim), left)))

    def _left_ahead(
        self,
        pool: Pool,
        spec: JobSpec,
        claim: int,
        task_s: float | None,
        utc_s: float,
        freed: int = 0,
    ) -> float:
        """What is left for tasks of this length when there is less, beside all that runs now.

        `freed`: of what runs others give so much back. Inf: none of them will be in the way.
        """
        left = inf
        for closes in pool.ahead(spec.whose, claim):
            if _may_begin(closes, spec, task_s, utc_s):
                continue  # in time for this one; of others, more may be left for less long
            others = sum(pool.used[each] for each in range(pool.rules.now.claims.first_reserved))
            left = min(left, closes.slots - pool.used[claim], closes.room - others + freed)
        return left

    def slots_for(self, name: str, job: JobSpec, task_s: float | None, utc_s: float) -> float:
        """The slots of a pool that a job may have in all, now; inf without rules.

        Of one that was sold what is reserved: those, and no others.
        """
        pool = self.pools.get(name)
        if is_reserved(job):
            seats = [] if pool is None else pool.seats
            return sum(each.slots for each in seats if each.tariff.version == job.price_name)
        if pool is None:
            return inf
        claim = pool.claim(job.whose)
        more = self._slots_for(pool, job, claim, task_s, utc_s)
        return inf if more is None else more + pool.used[claim]

    def reserved_for(self, name: str, whose: Whose) -> list[Seats]:
        """What is reserved of a pool for somebody's work now."""
        pool = self.pools.get(name)
        return [] if pool is None else [each for each in pool.seats if each.who.includes(whose)]

    def may_begin(
        self, name: str, job: Job, task_s: float | None, utc_s: float, slots: int
    ) -> bool:
        """Whether any of a job's tasks would begin if others made room for so many of them.

        Not if they are too long for what comes, in a pool with rules.
        """
        pool = self.pools[name]
        freed = max(0, slots - max(0, pool.total - sum(pool.used.values())))
        return any(
            self._left_ahead(pool, job.spec, claim, task_s, utc_s, freed) > 0
            for claim in pool.claims_for(job)
        )

    def shut(self, name: str, job: JobSpec, task_s: float | None, utc_s: float) -> Refusal | None:
        """Why a pool begins nothing more of a job, for as long as one can see; or None."""
        if is_reserved(job):
            return self._given_up(name, job.price_name)
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
        """Whether what was quoted for a reservation may run no more, as that is over."""
        pool = self.pools.get(name)
        if pool is not None and any(each.name == reserved for each in pool.seats):
            return None
        return Refusal(Reason.WINDOW_CLOSED, "has ended {}", (reserved,))

    def slots_free(self, name: str, whose: Whose) -> int:
        """The slots of a pool with rules that somebody's work may take in addition."""
        pool = self.pools[name]
        first = pool.rules.now.claims.first_reserved
        seats = (at for at, each in enumerate(pool.seats, first) if each.who.includes(whose))
        return pool.more(pool.claim(whose)) + sum(pool.more(each) for each in seats)

    def refusal(
        self, job: Job, worker: Worker, task_s: float | None, utc_s: float
    ) -> Refusal | None:
        """Why a pool's rules give a job nothing of a worker now, or None."""
        if self.bound(job, worker, task_s, utc_s) != 0:
            return None
        pool = self.pools[worker.offer.pool]
        claim = pool.claim(job.whose)
        if not pool.levels[claim].most:
            return _closed(pool, claim)
        for closes in pool.ahead(job.whose, claim):
            if not _may_begin(closes, job.spec, task_s, utc_s):
                return _closes(closes)
        words = "has no more slots for {}{}: it has {} of {}"
        used, most = pool.used[claim], pool.levels[claim].most
        figures = (_who(pool, claim), _held_until(pool.rules.now), used, most)
        return Refusal(Reason.OVER_CLAIM, words, figures)

    # --- the pools -----------------------------------------------------------------------------

    def _workers_of(self, name: str) -> Iterable[Worker]:
        return (each for each in self._workers.values() if each.offer.pool == name and not each.job)

    def slots_in_all(self, name: str) -> int:
        """The slots of a pool that take work, or would once they were started.

        Of what could be there everybody has his share, or a small pool would never grow.
        """
        growth = self.growth.get(name)
        return self.slots(name) + (growth.slots if growth is not None else 0)

    def slots(self, name: str) -> int:
        """The slots of a pool that take work, whether it has rules or not."""
        return sum(each.slots for each in self._workers_of(name) if not each.draining)


def count_slots(
    tasks: Counter[tuple[int, K]], slots: Counter[K], worker: Worker, key: K, more: int
) -> None:
    """Count tasks that came to a worker, or, below zero, left it, and the slots that they have.

    Args:
        tasks: by worker and what they count for; changed.
        slots: by what they count for: at a worker no more than it has; changed.
        worker: where they are.
        key: what they count for.
        more: tasks.
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
    """Whether a job was sold slots that are reserved."""
    return job.price_name.startswith(NAMED)


def _may_begin(closes: Closing, spec: JobSpec, task_s: float | None, utc_s: float) -> bool:
    """Whether a task may begin now: it is done when it must be, or may be stopped.

    Of unknown length it may as long as nobody is told to make room; so may one that is paid less
    because it may have to, where it would be stopped.
    """
    if task_s is not None and utc_s + task_s <= closes.ends_s:
        return True
    may_stop = spec.price_class == "preemptible" and closes.stops_s < inf
    return (task_s is None or may_stop) and utc_s < closes.told_s


def _closed(pool: Pool, claim: int) -> Refusal:
    words = "gives {} no slot{}"
    return Refusal(Reason.WINDOW_CLOSED, words, (_who(pool, claim), _held_until(pool.rules.now)))


def _closes(closes: Closing) -> Refusal:
    if not closes.window:
        words = "begins nothing of it that may not be done by {}, when it may have fewer slots"
        return Refusal(Reason.WINDOW_CLOSED, words, (_clock(closes.at_s),))
    words = "begins nothing of it that may not be done when window {!r} begins at {}"
    return Refusal(Reason.WINDOW_CLOSED, words, (closes.window, _clock(closes.at_s)))


def _who(pool: Pool, claim: int) -> Party:
    return pool.rules.now.claims.all[claim].who


def _held_until(span: Span) -> str:
    if span.window is None:
        return ""
    return f" in window {span.window.name!r}, until {_clock(span.until_s)}"


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
