"""The broker's accounting: which work may begin, the spending, and which work must end. Pure.

A job is paid from all budgets of its party, and each hard one must have room. The dispatcher
holds the possible cost of tasks, and Purchases that of a contract; this module does the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from federation.clocks import UtcS
from federation.reasons import Reason
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.jobs import Assignment, Job
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.reserved import ReservedAmounts
from policies.costs.budgets import BudgetAccount, Running, Waiting, hard_payers, named, unpayable
from policies.parties import Owner, PartyKind
from policies.tariffs import Tariff

TOLD_AGAIN: Final = 10  # when this part of a limit is left, its end is news once more


@dataclass(frozen=True, slots=True)
class BudgetEnding:
    """The parts of a job that must end as a budget is exhausted: assignments, or queued tasks."""

    job: Job
    reason: str
    assignments: tuple[Assignment, ...] = ()
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class Short:
    """The hard budgets without room for a task here.

    Each with the least amount for a task in this site's own pools, and wherever it may run.
    """

    lacking: tuple[tuple[BudgetAccount, int, int], ...] = ()

    @property
    def budget(self) -> str:
        """One of them, in words; empty: all have room."""
        return named(self.lacking[0][0].budget) if self.lacking else ""

    @property
    def may_leave(self) -> bool:
        """Whether other sites may have room for it: time counts wherever it is spent."""
        return all(budget_account.budget.is_money for budget_account, *_ in self.lacking)

    def note(self) -> None:
        """Note the need of a task that is to be placed in each of the budgets."""
        for budget_account, one_nanos, least_nanos in self.lacking:
            budget_account.lack(one_nanos)
            # Its owner has too little for a task here, and perhaps enough for one elsewhere: it is
            # asked for that, or the job would wait for an amount that is never requested.
            if budget_account.refused and least_nanos < budget_account.refused_nanos:
                budget_account.lack(least_nanos)


class BudgetEnforcement:
    """Decides about money.

    Args:
        budget_accounts: of this site.
        reserved: the amounts held in them for reservations.
        jobs: by name; read.
        tariffs: a job's tariffs at this site's pools that may be able to run it.
        task_s: how long a task of a function takes on average; None: it was never measured.
        offered: the known tariffs of other sites that may be able to run a job.
    """

    def __init__(
        self,
        budget_accounts: BudgetAccounts,
        reserved: ReservedAmounts,
        jobs: Mapping[str, Job],
        tariffs: Callable[[JobSpec], Iterable[Tariff]],
        task_s: Callable[[bytes], float | None],
        offered: Callable[[JobSpec], Iterable[Tariff]],
    ) -> None:
        self._budget_accounts = budget_accounts
        self._reserved = reserved
        self._jobs = jobs
        self._tariffs = tariffs
        self._task_s = task_s
        self._offered = offered
        self._news: list[str] = []

    # --- admission -----------------------------------------------------------------------------

    def denominated(self, spec: JobSpec) -> JobSpec:
        """Set a local job's currency to that of its hard budgets: they pay in no other."""
        if not self._budget_accounts or spec.price is not None or spec.currency is not None:
            return spec
        units = [each.budget.unit for each in hard_payers(self._budget_accounts.of(spec.whose))]
        return replace(spec, currency=units[0]) if units else spec

    def refusal(self, spec: JobSpec) -> tuple[str, str] | None:
        """Return why no budget pays for a new job, as code and sentence, with the figure."""
        budget_accounts = self._budget_accounts.of(spec.whose)
        if not budget_accounts:
            return None
        found = unpayable(budget_accounts, _currency(spec), spec.whose.site)
        return found or self.given_up(budget_accounts, spec)

    def objection(self, spec: JobSpec, site: str, tariff: Tariff) -> tuple[str, str] | None:
        """Return why this site does not sell to another at such a price; as `refusal`."""
        if not self._budget_accounts:
            return None
        return self.refusal(replace(spec, price=tariff, path=(site,)))

    def _least_nanos(
        self, budget_account: BudgetAccount, spec: JobSpec, needs_nanos: int = 0
    ) -> int:
        """Return the least amount that one task may use up, in any place; 1 if unknown.

        At another site, where a contract bounds it, that is the expected cost, and at least
        `needs_nanos`: a task of the job was stopped for its cost.
        """
        budget, task_s = budget_account.budget, self._task_s(spec.function)
        found = self._bounds(budget_account, spec)
        for each in self._offered(spec) if spec.price is None and budget.is_money else ():
            if each.currency == budget.unit:
                task_ns = None if task_s is None else round(task_s * 1e9)
                one_nanos = 1 if task_ns is None else each.charge_nanos(1, task_ns)
                found.append(max(one_nanos, needs_nanos))
        return min(found, default=max(1, needs_nanos))

    def _bounds(self, budget_account: BudgetAccount, spec: JobSpec) -> list[int]:
        """Return the amounts that would be held for a task in each of this site's pools."""
        task_s = self._task_s(spec.function)
        own = self._tariffs(spec) if spec.price is None else (spec.price,)
        bounds = (budget_account.budget.bound_nanos(each, spec.timeout_s, task_s) for each in own)
        return [each for each in bounds if each is not None]

    def short(self, spec: JobSpec) -> Short:
        """Return users' budgets without room now for a task in any of this site's pools."""
        found = []
        for budget_account in self._budget_accounts.of(spec.whose) if spec.price is None else ():
            bounds = self._bounds(budget_account, spec) if budget_account.budget.is_hard else []
            if bounds and budget_account.room_nanos < min(bounds):
                found.append((budget_account, min(bounds), self._least_nanos(budget_account, spec)))
        return Short(tuple(found))

    # --- spending ------------------------------------------------------------------------------

    def charge(self, job: Job, tariff: Tariff, used: Iterable[UsageRecord], utc_s: UtcS) -> None:
        """Count the usage of a report, charged by this tariff."""
        used = list(used)
        for budget_account in job.budget_accounts:
            nanos = sum(used_of(budget_account, record) for record in used)
            if nanos:
                budget_account.spend(nanos, utc_s)
        for record in used:
            self._reserved.use(record.pool, tariff, record.cost_nanos)

    def charge_move(self, job: Job | None, record: UsageRecord, utc_s: UtcS) -> None:
        """Count objects that have moved for a job; None: the job is over."""
        if job is not None:
            payers = job.budget_accounts
        else:
            owner = Owner(record.user, record.group, record.project, record.origin)
            payers = self._budget_accounts.of(owner)
        for budget_account in payers:
            if nanos := used_of(budget_account, record):
                budget_account.spend(nanos, utc_s)

    # --- endings -------------------------------------------------------------------------------

    def ticked(self, utc_s: UtcS) -> list[BudgetEnding]:
        """Handle the passing of time: periods end, and running tasks may outrun their holds.

        Return the parts of this site's own users' jobs that must end. Sales gives back work that
        was sold.
        """
        if not self._budget_accounts:
            return []
        for budget_account in self._budget_accounts:
            budget_account.turn(utc_s)
        return [*self._run_over(utc_s), *self._wait_in_vain()]

    def _run_over(self, utc_s: UtcS) -> Iterator[BudgetEnding]:
        """Hold more for tasks that outran their hold; yield tasks to stop, if that is the rule."""
        by_now: Counter[BudgetAccount] = Counter()  # used up by running tasks
        for job in self._jobs.values():
            for assignment in job.assignments.values() if job.budget_accounts else ():
                for budget_account, nanos in grown(assignment, utc_s):
                    by_now[budget_account] += nanos
        over = [
            budget_account
            for budget_account in self._budget_accounts
            if budget_account.budget.is_hard
            and budget_account.budget.running is Running.STOP
            and (
                not budget_account.budget.owner or budget_account.refused
            )  # else the owner may give more of it
            and budget_account.left_nanos <= by_now[budget_account]
        ]
        for budget_account in over:
            self._tell(budget_account, budget_account.objection())
            for job in list(self._jobs.values()):
                if budget_account not in job.budget_accounts or job.spec.price is not None:
                    continue
                found = tuple(
                    each
                    for each in job.assignments.values()
                    if any(held is budget_account for held, _ in each.holds)
                )
                if found:
                    yield BudgetEnding(job, budget_account.objection(), found)

    def _wait_in_vain(self) -> Iterator[BudgetEnding]:
        """Yield queued tasks that can't be paid in this period, where the rule is not to wait."""
        for budget_account in self._budget_accounts:
            needed_nanos = budget_account.short_nanos
            budget_account.short_nanos = budget_account.least_short_nanos = 0
            is_ending = budget_account.budget.waiting is Waiting.END and needed_nanos > 0
            if not is_ending or not budget_account.is_exhausted(needed_nanos):
                continue
            for job in list(self._jobs.values()):
                if job.waiting and budget_account in job.budget_accounts and job.spec.price is None:
                    one_nanos = self._least_nanos(budget_account, job.spec, job.needs_nanos)
                    if budget_account.is_exhausted(one_nanos):
                        self._tell(budget_account, budget_account.objection(one_nanos))
                        yield BudgetEnding(
                            job, budget_account.objection(one_nanos), is_waiting=True
                        )

    # --- texts for people ----------------------------------------------------------------------

    def given_up(
        self, budget_accounts: Iterable[BudgetAccount], spec: JobSpec
    ) -> tuple[str, str] | None:
        """Return why not one task more of a job can be paid in this period; None: one can."""
        for budget_account in budget_accounts:
            one_nanos = self._least_nanos(budget_account, spec)
            if _pays(budget_account, spec) and budget_account.is_exhausted(one_nanos):
                code = (
                    Reason.CREDIT_LIMIT
                    if budget_account.budget.is_credit
                    else Reason.BUDGET_EXHAUSTED
                )
                return code, _told(budget_account, spec, one_nanos)
        return None

    def why_waiting(self, job: Job) -> dict[BudgetAccount, str]:
        """Return the budgets that have no room for one more task of a job now, and why."""
        found = {}
        for budget_account in (each for each in job.budget_accounts if _pays(each, job.spec)):
            budget = budget_account.budget
            least_nanos = self._least_nanos(budget_account, job.spec, job.needs_nanos)
            one_nanos = min(self._bounds(budget_account, job.spec), default=least_nanos)
            if not budget.is_hard or budget_account.room_nanos >= one_nanos:
                continue
            if budget_account.is_exhausted(least_nanos):
                found[budget_account] = budget_account.objection(one_nanos)
            elif not budget_account.is_open:
                why = (
                    budget_account.refused
                    or f"{budget.owner} has not lent a slice of it, or not recently"
                )
                found[budget_account] = f"{named(budget)} has no room: {why}"
            else:
                found[budget_account] = (
                    f"{named(budget)} has no room now: {budget_account.standing(one_nanos)}"
                    f"{budget_account.next_period()}"
                )
        return found

    def used_up(self, job: Job) -> list[str]:
        """Return, in a few words each, the budgets of a job that pay for no more in this period."""
        return [
            budget_account.used_up()
            for budget_account in self.why_waiting(job)
            if budget_account.is_exhausted(
                self._least_nanos(budget_account, job.spec, job.needs_nanos)
            )
        ]

    def news(self) -> list[str]:
        """Return the news on exhausted budgets, each once."""
        for budget_account in self._budget_accounts:
            is_out = budget_account.left_nanos <= 0 and (
                not budget_account.budget.owner or bool(budget_account.refused)
            )
            if is_out:
                self._tell(budget_account, budget_account.objection())
            elif TOLD_AGAIN * budget_account.left_nanos >= budget_account.limit_nanos:
                budget_account.was_told = (
                    False  # else it would be repeated after a little came back
                )
        found, self._news = self._news, []
        return found

    def _tell(self, budget_account: BudgetAccount, text: str) -> None:
        if not budget_account.was_told:
            budget_account.was_told = True
            self._news.append(text)


def _currency(spec: JobSpec) -> str | None:
    """Return the currency that a job is charged in, if known."""
    return spec.price.currency if spec.price is not None else spec.currency


def _pays(budget_account: BudgetAccount, spec: JobSpec) -> bool:
    """Whether a budget counts for a job: a site's credit only counts in the job's currency."""
    return not budget_account.budget.is_credit or budget_account.budget.unit == _currency(spec)


def _told(budget_account: BudgetAccount, spec: JobSpec, one_nanos: int) -> str:
    """Return why nothing more is paid; another site is told the figures of its own budget alone."""
    if spec.price is None or budget_account.budget.party.kind is PartyKind.SITE:
        return budget_account.objection(one_nanos)
    return "the budget that this site lends to other sites is exhausted"


def used_of(budget_account: BudgetAccount, record: UsageRecord) -> int:
    """Return the amount that a record uses up of a budget: the part that its user pays."""
    if not budget_account.budget.is_money:
        return record.charged_ns
    return record.charged_nanos if record.currency == budget_account.budget.unit else 0


def grown(assignment: Assignment, utc_s: UtcS) -> list[tuple[BudgetAccount, int]]:
    """Return the most that an assignment has used up by now, of each budget that pays for it.

    For tasks without a time limit, more is held once they use up more than expected.
    """
    if not assignment.holds:
        return []
    left = len(assignment.left)
    running = min(left, assignment.worker.slots)
    wall_ns = round(max(0.0, utc_s - assignment.given_at_s) * 1e9) * running
    is_limited = assignment.job.spec.timeout_s is not None
    holds, found = [], []
    for budget_account, each_nanos in assignment.holds:
        nanos = budget_account.budget.used_nanos(assignment.tariff, running, wall_ns)
        if is_limited:
            nanos = min(nanos, each_nanos * left)
        elif left and nanos > each_nanos * left:
            more_nanos = -(-nanos // left)
            budget_account.held_nanos += (more_nanos - each_nanos) * left
            each_nanos = more_nanos
        holds.append((budget_account, each_nanos))
        found.append((budget_account, nanos))
    assignment.holds = tuple(holds)
    return found
