"""Who has how many slots of each pool that has windows or claims, and may have more. Pure.

Counted as tasks come and go at workers: a task that was given out has a slot, whether it has begun
or not, so that those who may have few never have more. Whoever is bounded is given no task ahead;
who is not pays nothing for it, and pools without rules are not looked at.

A party's work is bounded where it may have less than the whole pool, where slots are kept for
others, and where it must make room for a window soon: then nothing of it is begun that would not be
done by then.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from federation.adverts import Window as Shown
from federation.reasons import Reason
from gateway.jobs import Job, Worker
from policies import claims as claiming
from policies.claims import Claims, Level
from policies.parties import Party, Whose
from policies.placement import Refusal
from policies.windows import Closing, Rules, Span, closing

# Of whom it is remembered what they may have: other sites choose the names of their users.
WHOSE_MAX: Final = 10_000
_Kind = tuple[int, ...]  # which claim of each of those that there are, those of now first


@dataclass(slots=True)
class Pool:
    """A pool with rules.

    Attributes:
        total: slots that take work.
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
    _closings: dict[_Kind, Closing | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._claims = list({id(span.claims): span.claims for span in self.rules.spans}.values())

    def claim(self, whose: Whose) -> int:
        """Which claim somebody's work belongs to."""
        return self._kind(whose)[0]

    def closing(self, whose: Whose) -> Closing | None:
        """When somebody's work may have less."""
        kind = self._kind(whose)
        if kind not in self._closings:
            self._closings[kind] = closing(self.rules, whose, self.total)
        return self._closings[kind]

    def _kind(self, whose: Whose) -> _Kind:
        found = self._kinds.get(whose)
        if found is None:
            found = tuple(each.of(whose) for each in self._claims)
            self.examples.setdefault(found, whose)
            if len(self._kinds) < WHOSE_MAX:
                self._kinds[whose] = found
        return found

    def more(self, claim: int) -> int:
        """How many more slots a claim's work may have now."""
        return claiming.more(self.levels, self.used, self.total, claim)

    def is_free_for(self, claim: int) -> bool:
        """Whether a claim's work may have everything, and nothing is kept for others."""
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
                    self._count(pool, worker, assignment.job, len(assignment.left))
            pool.size(self._slots(name))

    def resize(self) -> None:
        """Workers may have come or gone, or stopped taking work."""
        for name, pool in self.pools.items():
            pool.size(self._slots(name))

    def note(self, worker: Worker, job: Job, tasks: int) -> None:
        """A worker was given so many tasks of a job, or, below zero, has so many fewer."""
        pool = self.pools.get(worker.offer.pool)
        if pool is not None and not worker.job:
            self._count(pool, worker, job, tasks)

    def _count(self, pool: Pool, worker: Worker, job: Job, tasks: int) -> None:
        claim = pool.claim(job.whose)
        key = worker.handle, claim
        before = min(pool.tasks[key], worker.slots)
        pool.tasks[key] += tasks
        pool.used[claim] += min(pool.tasks[key], worker.slots) - before
        if not pool.tasks[key]:
            del pool.tasks[key]

    # --- how much more -------------------------------------------------------------------------

    def bound(self, job: Job, worker: Worker, task_s: float | None, utc_s: float) -> int | None:
        """How many more tasks of a job a worker may have by the rules of its pool; None: any."""
        pool = self.pools.get(worker.offer.pool)
        if pool is None or worker.job:
            return None
        claim = pool.claim(job.whose)
        slots = self._slots_for(pool, job.whose, claim, task_s, utc_s)
        if slots is None:
            return None
        return max(0, min(slots, worker.slots - pool.tasks[worker.handle, claim]))

    def _slots_for(
        self, pool: Pool, whose: Whose, claim: int, task_s: float | None, utc_s: float
    ) -> int | None:
        """How many more slots tasks of this length may have; None: as many as are free."""
        closes = pool.closing(whose)
        if closes is not None and not _is_done_by(closes, task_s, utc_s):
            return max(0, min(pool.more(claim), closes.slots - pool.used[claim]))
        return None if pool.is_free_for(claim) else pool.more(claim)

    def slots_for(self, name: str, whose: Whose, task_s: float | None, utc_s: float) -> float:
        """The slots of a pool that somebody's work may have in all, now; inf without rules."""
        pool = self.pools.get(name)
        if pool is None:
            return inf
        claim = pool.claim(whose)
        more = self._slots_for(pool, whose, claim, task_s, utc_s)
        return inf if more is None else more + pool.used[claim]

    def may_begin(self, name: str, whose: Whose, task_s: float | None, utc_s: float) -> bool:
        """Whether tasks of this length are not too long for what comes, in a pool with rules."""
        pool = self.pools[name]
        closes = pool.closing(whose)
        if closes is None or _is_done_by(closes, task_s, utc_s):
            return True
        return closes.slots > pool.used[pool.claim(whose)]

    def shut(self, name: str, whose: Whose, task_s: float | None, utc_s: float) -> Refusal | None:
        """Why a pool begins nothing more of somebody's, for as long as one can see; or None."""
        pool = self.pools.get(name)
        if pool is None:
            return None
        claim = pool.claim(whose)
        if not pool.levels[claim].most:
            return _closed(pool, claim)
        closes = pool.closing(whose)
        if closes is None or closes.slots or _is_done_by(closes, task_s, utc_s):
            return None
        return _closes(closes)

    def slots_free(self, name: str, whose: Whose) -> int:
        """The slots of a pool with rules that somebody's work may take in addition."""
        pool = self.pools[name]
        return pool.more(pool.claim(whose))

    def refusal(
        self, job: Job, worker: Worker, task_s: float | None, utc_s: float
    ) -> Refusal | None:
        """Why a pool's rules give a job nothing of a worker now, or None."""
        if self.bound(job, worker, task_s, utc_s) != 0:
            return None
        pool = self.pools[worker.offer.pool]
        claim = pool.claim(job.whose)
        closes = pool.closing(job.whose)
        if not pool.levels[claim].most:
            return _closed(pool, claim)
        if closes is not None and not _is_done_by(closes, task_s, utc_s):
            return _closes(closes)
        words = "has no more slots for {}{}: it has {} of {}"
        used, most = pool.used[claim], pool.levels[claim].most
        figures = (_who(pool, claim), _held_until(pool.rules.now), used, most)
        return Refusal(Reason.OVER_CLAIM, words, figures)

    # --- the pools -----------------------------------------------------------------------------

    def _workers_of(self, name: str) -> Iterable[Worker]:
        return (each for each in self._workers.values() if each.offer.pool == name and not each.job)

    def _slots(self, name: str) -> int:
        return sum(each.slots for each in self._workers_of(name) if not each.draining)


def _is_done_by(closes: Closing, task_s: float | None, utc_s: float) -> bool:
    """Whether a task that begins now is done when it must be; of unknown length, if we guess so."""
    if task_s is None:
        return utc_s < closes.told_s
    return utc_s + task_s <= closes.ends_s


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
