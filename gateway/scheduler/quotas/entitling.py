"""The current rights of work under the entitlements: pools, slots and queued tasks. Pure.

Tasks are counted as they come and go, like claims (gateway.scheduler.quotas.occupancy): an assigned
task has a slot, whether it has begun or not, and work with a limit is given none ahead. All work of
a rule's parties counts, regardless of the rule that admitted it. Running tasks are never stopped:
if a user holds more than allowed since a window turned or the rules changed, that user gets nothing
until the excess is gone.

Without rules nothing is counted, at no cost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Final

from federation.clocks import NEVER_S, UtcS
from federation.ranges import Range
from federation.reasons import Reason
from gateway.scheduler.model.events import EntitlementsKnown
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.occupancy import WHOSE_MAX, Occupancy, count_slots
from policies.access.entitlements import (
    ELSEWHERE,
    NO_ENTITLEMENTS,
    NO_WINDOW,
    RANKS,
    YES,
    EntitlementReason,
    EntitlementRule,
    EntitlementVerdict,
    Work,
    room,
)
from policies.access.residency import Residence, ResidencyRule, both, residence_of
from policies.access.windows import WindowSpan
from policies.parties import ANOTHER_SITE, Owner
from policies.placement.asks import Wishes
from policies.placement.placement import CapacityOffer, Refusal

# Of the verdicts that are not yes.
REASONS: Final = {EntitlementReason.NOT_NOW: Reason.WINDOW_CLOSED}

# A rule by identity, as hashing its contents takes longer than the rest, and a user, where each
# user has a limit.
_Key = tuple[int, str]


class Entitling:
    """The entitlements of a site, and the slots and tasks used under them.

    Args:
        workers, jobs: those of the site.
        occupancy: knows which windows hold.
    """

    def __init__(
        self, workers: Mapping[int, Worker], jobs: Mapping[str, Job], occupancy: Occupancy
    ) -> None:
        self.rules = NO_ENTITLEMENTS
        self.is_on = False
        self.residency: tuple[ResidencyRule, ...] = ()
        self._workers = workers
        self._jobs = jobs
        self._occupancy = occupancy
        self._windows: Mapping[str, frozenset[str]] = {}
        self._held: Mapping[str, str] = {}  # by pool, the current window
        self._until_s = UtcS(inf)
        self._verdicts: dict[tuple[Work, str | None, str], EntitlementVerdict] = {}
        self._slot_keys: dict[tuple[Owner, str], tuple[_Key, ...]] = {}
        self._tasks: Counter[tuple[int, _Key]] = Counter()  # by worker
        self._slots: Counter[_Key] = Counter()
        self._queue_keys: dict[Owner, tuple[_Key, ...]] = {}
        self._counts_queues = False
        self._queued: Counter[_Key] = Counter()
        self._noted: dict[str, int] = {}  # by job, the tasks counted in _queued

    def take_in(self, event: EntitlementsKnown) -> None:
        """Apply new rules, also to assigned and queued tasks."""
        self.rules, self._windows = event.rules, event.windows
        self.residency = event.residency
        self.is_on = bool(self.rules.rules)
        self._counts_queues = any(
            each is not None for rule in self.rules.rules for each in rule.limits[2:]
        )
        for known in (self._verdicts, self._slot_keys, self._queue_keys):
            known.clear()
        for counted in (self._tasks, self._slots, self._queued, self._noted):
            counted.clear()
        self.turned()
        for worker in self._workers.values() if self.is_on else ():
            for each in worker.assignments.values():
                self.note(worker, each.job, len(each.left))
        for job in self._jobs.values():
            self.note_queue(job)

    def turned(self) -> None:
        """Update the current windows after a change of the timetable."""
        self._hold({name: pool.rules.now for name, pool in self._occupancy.pools.items()})

    def look(self, utc_s: UtcS) -> None:
        """Update windows that have ended since, so that late tasks are not given under them."""
        if utc_s >= self._until_s:
            pools = self._occupancy.pools.items()
            self._hold({name: pool.rules.span_at(utc_s) for name, pool in pools})

    def _hold(self, spans: Mapping[str, WindowSpan]) -> None:
        self._held = {pool: span.named for pool, span in spans.items()}
        self._until_s = min((span.until_s for span in spans.values()), default=NEVER_S)

    def residence(self, spec: JobSpec) -> Residence:
        """Return the places where our rules let a job run; see `wishes_of`."""
        return residence_of(self.residency, spec.whose, spec.wishes.data)

    def wishes_of(self, spec: JobSpec) -> Wishes:
        """Return the wishes of a job within the rules about places, if it is of our users.

        The label of its data narrows the places, too.
        """
        wishes, label = spec.wishes, spec.wishes.label
        if label:
            wishes = replace(
                wishes,
                allowed_sites=both(wishes.allowed_sites, label.sites),
                forbidden_sites=wishes.forbidden_sites | label.not_sites,
                jurisdictions=both(wishes.jurisdictions, label.jurisdictions),
            )
        if not self.residency or spec.path:
            return wishes
        found = self.residence(spec)
        return replace(
            wishes,
            allowed_sites=both(wishes.allowed_sites, found.sites),
            forbidden_sites=wishes.forbidden_sites | found.not_sites,
            jurisdictions=both(wishes.jurisdictions, found.jurisdictions),
        )

    # --- counting ------------------------------------------------------------------------------

    def note(self, worker: Worker, job: Job, tasks: int) -> None:
        """Note that a worker was given `tasks` tasks of a job or, below zero, has fewer."""
        if not self.is_on or worker.job:
            return
        for key in self._keys_of_slots(job.whose, worker.offer.pool):
            count_slots(self._tasks, self._slots, worker, key, tasks)

    def note_queue(self, job: Job) -> None:
        """Update the count of a job's unfinished tasks."""
        if not self._counts_queues:
            return
        tasks = job.waiting + job.in_flight
        more = tasks - self._noted.get(job.id, 0)
        if more:
            for key in self._keys_of_queue(job.whose):
                self._queued[key] += more
                if not self._queued[key]:
                    del self._queued[key]
            self._noted[job.id] = tasks
        if not tasks:
            self._noted.pop(job.id, None)

    def _keys_of_slots(self, whose: Owner, pool: str) -> tuple[_Key, ...]:
        found = self._slot_keys.get((whose, pool))
        if found is None:
            about = [each for each in self.rules.rules if each.covers(pool)]
            found = tuple(_keys(about, whose, lambda rule: (rule.slots_max, rule.user_slots_max)))
            if len(self._slot_keys) < WHOSE_MAX:
                self._slot_keys[whose, pool] = found
        return found

    def _keys_of_queue(self, whose: Owner) -> tuple[_Key, ...]:
        found = self._queue_keys.get(whose)
        if found is None:
            rules = self.rules.rules
            found = tuple(_keys(rules, whose, lambda rule: (rule.queued_max, rule.user_queued_max)))
            if len(self._queue_keys) < WHOSE_MAX:
                self._queue_keys[whose] = found
        return found

    def slots_used(self, rule: EntitlementRule, user: str) -> int:
        """The slots held by all of a rule's parties, or by one of their users."""
        return self._slots[id(rule), user]

    def queued(self, rule: EntitlementRule, user: str) -> int:
        """The unfinished tasks of all of a rule's parties, or of one of their users."""
        return self._queued[id(rule), user]

    # --- remaining quota -----------------------------------------------------------------------

    def verdict(self, work: Work, pool: str) -> EntitlementVerdict:
        """Whether work may run in a pool now; in ELSEWHERE at other sites."""
        return self._verdict(work, pool, self.window_of(pool))

    def _verdict(self, work: Work, pool: str | None, window: str = NO_WINDOW) -> EntitlementVerdict:
        """The verdict in a window; without a pool, the best of any pool and time."""
        key = work, pool, window
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= WHOSE_MAX:
                self._verdicts.clear()  # users choose their priorities
            if pool is None:
                found = self.rules.fitting(work)
            else:
                found = self.rules.verdict(work, pool, window)
            self._verdicts[key] = found
        return found

    def window_of(self, pool: str) -> str:
        """The current window of a pool, by the name in rules."""
        return self._held.get(pool, NO_WINDOW)

    def bound(self, job: Job, worker: Worker) -> int | None:
        """How many more tasks of a job a worker may have by its user's entitlements; None: any."""
        if not self.is_on:
            return None
        if worker.job:
            return None if self.may_leave(job.work) else 0
        verdict = self.verdict(job.work, worker.offer.pool)
        if verdict.slots_max == inf:
            return None
        user, here = job.whose.user, worker.handle

        def used(rule: EntitlementRule, who: str) -> int:
            # Its tasks at this worker beyond the slots count: no tasks go ahead.
            limit = rule.user_slots_max if who else rule.slots_max
            spare = worker.slots - self._tasks[here, (id(rule), who)]
            return max(self._slots[id(rule), who], (limit or 0) - spare)

        return int(room(verdict, user, used))

    def slots_left(self, work: Work, pool: str) -> float:
        """The number of further slots of a pool that work may take; inf: any number."""
        if not self.is_on:
            return inf
        return room(self.verdict(work, pool), work.whose.user, self.slots_used)

    def slots_max(self, work: Work, pool: str, window: str | None = None) -> float:
        """The most slots of a pool that work may have in all, now or in a window; inf: any number.

        For the work of ANOTHER_SITE: the most that some other site may have.
        """
        if not self.is_on:
            return inf
        name = self.window_of(pool) if window is None else window
        if work.whose is ANOTHER_SITE:
            return self.rules.most_of_others(pool, name)
        return self._verdict(work, pool, name).slots_max

    def queue_left(self, spec: JobSpec) -> float:
        """How many more unfinished tasks a user may have here; inf: any number.

        A user without any entitlement has no limit: the tasks of open jobs wait.
        """
        if not self._counts_queues:
            return inf
        verdict = self._verdict(spec.work, None)
        if not verdict.is_yes:
            return inf
        return room(verdict, spec.user, self.queued, of_queue=True)

    def may_leave(self, work: Work) -> bool:
        """Whether work may run at other sites."""
        return not self.is_on or self.verdict(work, ELSEWHERE).is_yes

    # --- refusals ------------------------------------------------------------------------------

    def _ever(self, work: Work, pools: Iterable[str]) -> EntitlementVerdict:
        """The best verdict on some work in these pools, at any time."""
        found = (
            self._verdict(work, pool, name)
            for pool in pools
            for name in (NO_WINDOW, *self._windows.get(pool, ()))
        )
        return min(found, key=lambda each: RANKS[each.why])

    def may_use(self, spec: JobSpec, offers: Iterable[CapacityOffer]) -> Iterator[CapacityOffer]:
        """The offers whose pools may run a job at any time."""
        if not self.is_on:
            yield from offers
            return
        may: dict[str, bool] = {}
        for each in offers:
            if each.pool not in may:
                may[each.pool] = self._ever(spec.work, (each.pool,)).is_yes
            if may[each.pool]:
                yield each

    def barred(self, spec: JobSpec, pool: str) -> Reason | None:
        """Why a pool starts no task of a job now by its user's entitlements, or None."""
        if not self.is_on:
            return None
        why = self.verdict(spec.work, pool).why
        return None if why in YES else REASONS.get(why, Reason.NOT_ENTITLED)

    def objection(
        self, spec: JobSpec, may_leave: Callable[[JobSpec], bool]
    ) -> tuple[str, str] | None:
        """Why a job is refused by its user's entitlements alone, as code and sentence.

        `may_leave` says whether another site may be able to run it.
        """
        if not self.is_on:
            return None
        text = self.objection_to_kind(spec, may_leave)
        if text:
            return Reason.NOT_ENTITLED, text
        if spec.price is None and not self.queue_left(spec):
            return Reason.OVER_ENTITLEMENT, self.queue_text(spec)
        return None

    def objection_to_kind(self, spec: JobSpec, may_leave: Callable[[JobSpec], bool]) -> str:
        """Why no pool may ever run such work of its user; empty if one may. See `objection`."""
        if not self.is_on:
            return ""
        pools = [spec.pool] if spec.pool else [*self._windows]
        found = self._ever(spec.work, [*pools, ELSEWHERE] if may_leave(spec) else pools)
        return "" if found.is_yes else self.text(found, spec.work)

    def line_of_refusal(self, spec: JobSpec) -> int:
        """The line of the rule that keeps a job out of this site's pools at all times.

        0 if no rule does, or none in a file: no rule allows it, or a rule does.
        """
        found = self._ever(spec.work, [spec.pool] if spec.pool else [*self._windows])
        return found.rule.line if found.rule is not None and not found.is_yes else 0

    def refusal(self, job: Job, worker: Worker) -> Refusal | None:
        """Why a worker is given no task of a job now, or None."""
        if self.bound(job, worker) != 0:
            return None
        work, pool = job.work, ELSEWHERE if worker.job else worker.offer.pool
        if (found := self.refusal_of_all(work, pool)) is not None:
            return found
        figures = self._slots_text(self.verdict(work, pool), work)
        return Refusal(
            Reason.OVER_ENTITLEMENT, "has reached the entitlement's limit of slots: {}", (figures,)
        )

    def refusal_of_all(self, work: Work, pool: str) -> Refusal | None:
        """Why a pool starts no task of some work now by its user's entitlements, or None."""
        if not self.is_on or (verdict := self.verdict(work, pool)).is_yes:
            return None
        reason = REASONS.get(verdict.why, Reason.NOT_ENTITLED)
        return Refusal(reason, "is not allowed: {}", (self.text(verdict, work),))

    def text(self, verdict: EntitlementVerdict, work: Work) -> str:
        """Explain a refusal, with the rule and its place in the file."""
        return self.rules.explain(verdict, work)

    def _slots_text(self, verdict: EntitlementVerdict, work: Work) -> str:
        """Format the slots in use and their limits, for work at its limit."""
        rule = verdict.rule
        assert rule is not None  # without one there is no limit
        limits = ((rule.slots_max, ""), (rule.user_slots_max, work.whose.user))
        figures = _figures(rule, ((most, who, self.slots_used(rule, who)) for most, who in limits))
        return f"{figures} slots ({self.rules.place(rule)}: {rule})"

    def over(self, job: Job, first: int, stop: int) -> list[Range]:
        """The arriving tasks that exceed their user's queue limit: the last of them.

        For the tasks that another site sends, its sale checks this.
        """
        left = inf if job.spec.price is not None else self.queue_left(job.spec)
        if left >= stop - first:
            return []
        found = []
        for low, high in job.known.missing(first, stop):
            taken = int(min(left, high - low))
            left -= taken
            if low + taken < high:
                found.append((low + taken, high))
        return found

    def queue_text(self, spec: JobSpec) -> str:
        """Explain why a user may have no more tasks here."""
        user = spec.user
        fits = self._verdict(spec.work, None).fits
        rule = max(fits, key=lambda each: (each.queued_max or 0, each.user_queued_max or 0))
        limits = ((rule.queued_max, ""), (rule.user_queued_max, user))
        figures = _figures(rule, ((most, who, self.queued(rule, who)) for most, who in limits))
        return f"{figures} tasks that have not ended ({self.rules.place(rule)}: {rule})"


def _keys(
    rules: Iterable[EntitlementRule],
    whose: Owner,
    limits: Callable[[EntitlementRule], tuple[int | None, int | None]],
) -> Iterator[_Key]:
    """The counters that a user's work counts for: of each rule, all users' and each user's."""
    for rule in rules:
        if rule.allows and rule.includes(whose):
            together, each = limits(rule)
            if together is not None:
                yield id(rule), ""
            if each is not None:
                yield id(rule), whose.user


def _figures(rule: EntitlementRule, limits: Iterable[tuple[int | None, str, int]]) -> str:
    """Format `group:quants has 4 of 4`, for the limits that are set."""
    all_of_them = ", ".join(map(str, rule.who))
    return " and ".join(
        f"{who or all_of_them} has {has} of {most}" for most, who, has in limits if most is not None
    )
