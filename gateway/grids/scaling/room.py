"""The slots of a pool that its work could use at once, by its rights and budgets. Pure.

A slot for which no work may be dispatched would be started, and kept idle, for as long as that work
waits: until a colleague's tasks have ended, or until the next month's budget.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.quotas.occupancy import is_reserved
from policies.access.entitlements import NO_WINDOW, EntitlementRule, room
from policies.access.windows import WindowSpan, allowed
from policies.parties import Owner

_EVERYBODY: Final = ""  # the total of a rule, beside each of its users


class PoolRoom:
    """The remaining slots of a pool, for one job after the other.

    The share of one job counts for the next. Of conditions that change until a pilot that is
    started now would be up, the best counts. Amounts that budgets have held or lent count as if
    returned: whether they are lacking is only known once there is a slot.

    Args:
        slots_max: the most that there may be.
        from_s, until_s: UTC; when a pilot would be up at the latest.
    """

    def __init__(
        self, broker: Broker, pool: str, slots_max: int, from_s: UtcS, until_s: UtcS
    ) -> None:
        self._broker, self._pool, self._slots_max, self._utc_s = broker, pool, slots_max, from_s
        rules = broker.occupancy.rules.get(pool)
        self._has_rules = rules is not None
        self._spans: list[WindowSpan] = [
            each
            for each in (rules.spans if rules is not None else ())
            if each.from_s <= until_s and from_s < each.until_s
        ]
        self._most: dict[Owner, int] = {}
        self._given: Counter[Hashable] = Counter()

    def take(self, job: Job, slots: int) -> int:
        """Give a job these slots for its queued tasks, or as many as are left; return how many."""
        for left in (self._by_claims, self._by_entitlements, self._by_money):
            slots = left(job, slots)
            if slots <= 0:
                return 0
        self._note(job, slots)
        return slots

    def may_begin(self, job: Job) -> bool:
        """Whether the pool's rules let any task of a job begin within the time."""
        if not self._has_rules or is_reserved(job.spec):
            return True
        return self._most_of(job.spec.whose) > 0

    def _most_of(self, whose: Owner) -> int:
        if whose not in self._most:
            spans = allowed(self._spans, whose, self._slots_max)
            self._most[whose] = max((each.slots for each in spans), default=0)
        return self._most[whose]

    def _by_claims(self, job: Job, slots: int) -> int:
        found = self._broker.occupancy.pools.get(self._pool)
        if found is None or is_reserved(job.spec):
            return slots
        claim = found.claim(job.whose)
        used = found.used[claim] + self._given[claim]
        return min(slots, self._most_of(job.spec.whose) - used)

    def _by_entitlements(self, job: Job, slots: int) -> int:
        entitling = self._broker.entitling
        if not entitling.is_on:
            return slots
        verdict = entitling.verdict(job.work, self._pool)

        def used(rule: EntitlementRule, who: str) -> int:
            return entitling.slots_used(rule, who) + self._given[id(rule), who]

        windows = [each.named for each in self._spans] or [NO_WINDOW]
        most = max(entitling.slots_max(job.work, self._pool, each) for each in windows)
        left = room(verdict, job.whose.user, used)
        if most > verdict.slots_max:  # a window opens until then
            left += most - verdict.slots_max
        return int(min(slots, left))

    def _by_money(self, job: Job, slots: int) -> int:
        spec = job.spec
        if not job.budget_accounts and spec.max_cost_nanos is None:
            return slots
        tariff = spec.price
        if tariff is None:
            tariff = self._broker.charging.tariff_for(self._pool, spec, "", self._utc_s)
        task_s = self._broker.durations.of(spec.function)
        slots = matching.fits_cost(job, tariff, task_s, slots)
        for budget_account in job.budget_accounts:
            budget = budget_account.budget
            each_nanos = budget.bound_nanos(tariff, spec.timeout_s, task_s)
            if not budget.is_hard or each_nanos == 0:
                continue
            if each_nanos is None:
                slots = slots if budget.is_credit else 0
            elif budget_account.is_exhausted(each_nanos):
                slots = 0
            elif not budget.owner:  # another site's owner gives more of it when asked
                slots = min(slots, budget_account.left_nanos // each_nanos)
        return slots

    def _note(self, job: Job, slots: int) -> None:
        found = self._broker.occupancy.pools.get(self._pool)
        if found is not None:
            self._given[found.claim(job.whose)] += slots
        if self._broker.entitling.is_on:
            for rule in self._broker.entitling.verdict(job.work, self._pool).fits:
                self._given[id(rule), _EVERYBODY] += slots
                self._given[id(rule), job.whose.user] += slots
