"""Invariants of budgets: of one site's budgets, and of one that several sites share.

A hard budget is exceeded only by costs of tasks beyond their holds, which only a stopped worker
itself can cause: that excess is allowed. In worlds with budgets all tasks have the same time limit
(draw._with_budgets), from which it is computed here independently.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from gateway.ledger.accounting.journal import Booked
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model.jobs import Assignment
from policies.costs.budgets import KILL_S, Budget, BudgetAccount
from policies.parties import Owner
from simulations.world.gateway import SimMember
from simulations.world.invariants.invariants import Invariant
from simulations.world.plan import SitePlan
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World

HOUR_NS: Final = 3_600 * 10**9

# A budget's key: the site that owns it, and its name.
Key = tuple[str, str]


class BudgetsHold(Invariant):
    """No hard budget is exceeded: neither in the books of all sites, nor by work in progress."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._spent: Counter[tuple[str, str]] = Counter()  # by site and budget, on its disk
        self._over: Counter[Key] = Counter()  # beyond the holds, in all runs of the sites
        self._amounts = {
            _key(site, budget): budget.amount_nanos
            for site in world.plan.sites
            for budget in site.budgets
            if budget.is_hard and not budget.owner
        }
        limits = [job.timeout_s for each in world.plan.clients for job in each.jobs]
        self._limit_ns = round((max(each or 0.0 for each in limits) + KILL_S) * 1e9)

    def see(self, entry: TraceEntry) -> None:
        """Count charges beyond their holds."""
        if entry.what == "charges" and isinstance(entry.data, UsageRecord):
            for budget in self.world.sites[entry.host].plan.budgets:
                if budget.covers(_whose(entry.data)):
                    most = self._most_nanos(budget, entry.data)
                    over = max(0, _used(budget, entry.data) - most)
                    self._over[_key(self.world.sites[entry.host].plan, budget)] += over

    def _most_nanos(self, budget: Budget, usage: UsageRecord) -> int:
        """Return the most that tasks within their time limit can cost."""
        if budget.is_money:
            return usage.tasks * -(-usage.price_nanos * self._limit_ns // HOUR_NS)
        return usage.tasks * self._limit_ns

    def committed(
        self, site: SimMember, records: Sequence[Record], booked: Sequence[Booked], *, is_anew: bool
    ) -> None:
        """Add up the spending on each budget in the books of all sites."""
        for budget in site.plan.budgets:
            if is_anew:
                self._spent[site.name, budget.name] = 0
            for each in records:
                if isinstance(each, UsageRecord) and _is_kept(site, each):
                    used = _used(budget, each) if budget.covers(_whose(each)) else 0
                    self._spent[site.name, budget.name] += used
            if budget.is_hard:
                self._compare("booked are", _key(site.plan, budget), self._in_books)

    def check(self) -> None:
        """Add up the spent, held and lent amounts of all sites; and recount the holds."""
        for key in self._amounts:
            self._compare("spent or possibly spent are", key, self._at_stake)
        for site in self.world.sites.values():
            if site.server is not None:
                self._recount(site)

    def _compare(self, what: str, key: Key, count: Callable[[SimMember, Budget], int]) -> None:
        found = {site.name: count(site, budget) for site, budget in self._spenders(key)}
        most = self._amounts[key] + self._over[key]
        if sum(found.values()) > most:
            self.fail(f"budget {key[1]!r} of {key[0]}: {what} {found}, the maximum is {most}")

    def _spenders(self, key: Key) -> Iterator[tuple[SimMember, Budget]]:
        for site in self.world.sites.values():
            for budget in site.plan.budgets:
                if _key(site.plan, budget) == key:
                    yield site, budget

    def _in_books(self, site: SimMember, budget: Budget) -> int:
        return self._spent[site.name, budget.name]

    def _at_stake(self, site: SimMember, budget: Budget) -> int:
        """Return the amount spent at a site, plus all that it may spend without a request."""
        if site.server is None:
            return self._in_books(site, budget)
        budget_account = site.server.broker.budget_accounts.own[budget.name]
        return max(
            budget_account.total_nanos + budget_account.held_nanos, budget_account.allotted_nanos
        )

    def _recount(self, site: SimMember) -> None:
        assert site.server is not None
        held: Counter[BudgetAccount] = Counter()
        for job in site.server.broker.jobs.values():
            for assignment in job.assignments.values():
                self._check_holds(site, assignment)
                for budget_account, nanos in assignment.holds:
                    held[budget_account] += nanos * len(assignment.left)
        bought = site.server.exchange.purchases.purchases.values()
        earmarks = [each.earmark for each in bought if each.earmark is not None]
        for earmark in (*earmarks, *site.server.broker.reserved):
            for budget_account in earmark.budget_accounts:
                held[budget_account] += earmark.left_nanos
        for budget_account in site.server.broker.budget_accounts:
            if budget_account.held_nanos != held[budget_account]:
                text = (
                    f"{site.name}: {budget_account.budget.name!r} holds {budget_account.held_nanos}"
                )
                self.fail(f"{text}, but {held[budget_account]} for running work")

    def _check_holds(self, site: SimMember, assignment: Assignment) -> None:
        """Check that each task that is out has a hold for its maximum cost, even after a restart.

        Reservations, and most contracts, have one hold for all their tasks.
        """
        job, worker, tariff = assignment.job, assignment.worker, assignment.tariff
        if tariff.reservation:
            return
        wanted: dict[BudgetAccount, int] = {}
        for budget_account in job.budget_accounts:
            nanos = budget_account.budget.bound_nanos(tariff, job.spec.timeout_s, None)
            if nanos is not None and not (worker.is_funded and budget_account.budget.is_money):
                wanted[budget_account] = nanos
        if dict(assignment.holds) != wanted:
            names = sorted(budget_account.budget.name for budget_account in wanted)
            text = f"{site.name}: {sum(wanted.values())} nanos should be held in {names}"
            held = sum(nanos for _, nanos in assignment.holds)
            self.fail(f"{text} for each task at {worker.name}, and {held} are", job.id)

    def finish(self) -> None:
        """Check that in the end nothing is held or lent, and all spending is reported.

        Reservations to come are excepted: `_recount` has checked their holds.
        """
        for site in self.world.sites.values():
            if site.server is None:
                continue  # Finishes reports that
            for budget in site.plan.budgets:
                budget_account = site.server.broker.budget_accounts.own[budget.name]
                spent = self._spent[site.name, budget.name]
                to_come = _to_come(site, budget.name)
                if (budget_account.held_nanos, budget_account.total_nanos) != (to_come, spent):
                    text = f"{site.name}: {budget.name!r} has {budget_account.total_nanos} spent"
                    self.fail(f"{text}, {budget_account.held_nanos} held; the books have {spent}")
                for share in site.server.exchange.lending.of(budget.name):
                    told, theirs = share.spent, self._spent[share.site, budget.name]
                    unheard = theirs - told
                    kept = _to_come(self.world.sites[share.site], budget.name)
                    over = self._over[_key(site.plan, budget)]
                    if share.unspent > kept or not 0 <= unheard <= over:
                        text = f"{site.name}: {share.site} has {share.unspent} of {budget.name!r}"
                        self.fail(f"{text}, but told {told} of {theirs} that it has spent")


def are_given_back(sites: Iterable[SimMember]) -> bool:
    """Whether no site holds a part of another site's budget, except for reservations to come."""
    by_name = {each.name: each for each in sites}
    return not any(
        share.unspent > _to_come(by_name[share.site], budget.name)
        for site in by_name.values()
        if site.server is not None
        for budget in site.plan.budgets
        for share in site.server.exchange.lending.of(budget.name)
    )


def _to_come(site: SimMember, budget: str) -> int:
    """Return the amount that a site holds of a budget for reservations to come."""
    if site.server is None:
        return 0
    broker = site.server.broker
    budget_account = broker.budget_accounts.own.get(budget)
    return sum(
        each.left_nanos for each in broker.reserved if budget_account in each.budget_accounts
    )


def _key(site: SitePlan, budget: Budget) -> Key:
    return budget.owner or site.name, budget.name


def _is_kept(site: SimMember, usage: UsageRecord) -> bool:
    """Whether this record is the one on the disk, not a duplicate."""
    return site.disk.tables.usage[usage.job][usage.first, usage.attempt] is usage


def _whose(usage: UsageRecord) -> Owner:
    return Owner(usage.user, usage.group, usage.project, usage.origin)


def _used(budget: Budget, usage: UsageRecord) -> int:
    if budget.is_money:
        return usage.charged_nanos  # its site pays for repeated runs, not a budget
    return usage.charged_ns
