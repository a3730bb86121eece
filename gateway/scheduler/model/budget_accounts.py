"""The budgets of a site, and the choice of those that pay for some work. Pure.

Beside the configured budgets there is the credit of each site that has a limit: a budget without a
period, whose `spent` is the site's debt here. The debt goes down when the site pays, as booked
records show (`note`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from federation.clocks import UtcS
from gateway.config.budgets import ANY_SITE, NO_CREDIT, Credit
from gateway.ledger.accounting.postings import Balance, LedgerAccount, Transfer, transfers_of
from gateway.ledger.db.contracts.records import Posted
from gateway.ledger.db.records import Record
from policies.costs.budgets import Budget, BudgetAccount
from policies.parties import Owner, Party, PartyKind

REMEMBERED_MAX: Final = 10_000  # of the parties whose budgets were looked up

# A site, and a currency: its debt is counted in each by itself.
Debtor = tuple[str, str]


class BudgetSpent(NamedTuple):
    """Spending by the books, in nano-units of a budget: in all, and in its period."""

    total_nanos: int
    period_nanos: int


class BudgetAccounts:
    """The state of a site's budgets.

    Args:
        budgets: with distinct names.
        credit: the limits of other sites' debts.
        utc_s: now.
    """

    def __init__(
        self, budgets: Iterable[Budget] = (), credit: Credit = NO_CREDIT, utc_s: UtcS = UtcS(0.0)
    ) -> None:
        self.own = {each.name: BudgetAccount(each, utc_s) for each in budgets}
        self._credit = credit
        self._of_debtor: dict[Debtor, BudgetAccount] = {}
        self._owed: Counter[Debtor] = Counter()  # as far as it is known
        self._by_whose: dict[Owner, tuple[BudgetAccount, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.own or self._credit)

    def __iter__(self) -> Iterator[BudgetAccount]:
        yield from self.own.values()
        yield from self._of_debtor.values()

    @property
    def has_credit(self) -> bool:
        """Whether any site has a limit on its debt here."""
        return bool(self._credit)

    def of(self, whose: Owner) -> tuple[BudgetAccount, ...]:
        """Return all budgets that pay for a party's work."""
        if not self:
            return ()
        found = self._by_whose.get(whose)
        if found is None:
            if len(self._by_whose) >= REMEMBERED_MAX:
                self._by_whose.clear()
            own = (each for each in self.own.values() if each.budget.covers(whose))
            found = self._by_whose[whose] = (*own, *self.credit_of(whose.site))
        return found

    def take_up(
        self, spent: Mapping[str, BudgetSpent], owed: Mapping[Debtor, int], utc_s: UtcS
    ) -> None:
        """Begin with the books' amounts at a moment: by the budget's name, and by debtor."""
        for name, each in spent.items():
            budget_account = self.own[name]
            budget_account.turn(utc_s)  # its period may have ended since it was made
            budget_account.total_nanos, budget_account.spent_nanos = each
        self._owed = Counter(owed)
        for site in {site for site, _ in owed}:
            self.credit_of(site)

    def take_in(self, budgets: Iterable[Budget], credit: Credit) -> None:
        """Adopt other amounts and rules, of the same budgets and limits."""
        for each in budgets:
            self.own[each.name].budget = each
        self._credit = credit
        for site in {site for site, _ in self._of_debtor}:
            for nanos, currency in self._limits(site):
                budget_account = self._of_debtor[site, currency]
                budget_account.budget = replace(budget_account.budget, amount_nanos=nanos)

    # --- credit --------------------------------------------------------------------------------

    def credit_of(self, site: str) -> tuple[BudgetAccount, ...]:
        """Return a site's credit: a budget for each permitted currency; empty: no limit."""
        limits = self._limits(site)
        for nanos, currency in limits:
            if (site, currency) not in self._of_debtor:
                party = Party(PartyKind.SITE, site)
                name = f"credit of {site}, {currency}"
                budget = Budget(name, party, currency, nanos, span=None, is_credit=True)
                budget_account = self._of_debtor[site, currency] = BudgetAccount(budget, UtcS(0.0))
                budget_account.spent_nanos = self._owed[site, currency]
        return tuple(self._of_debtor[site, currency] for _, currency in limits)

    def _limits(self, site: str) -> tuple[tuple[int, str], ...]:
        return self._credit.get(site, self._credit.get(ANY_SITE, ())) if site else ()

    def note(self, record: Record) -> None:
        """Count the changes of a record in sites' debts.

        Not a delivery to a site: that was spent when it was reported.
        """
        if isinstance(record, Posted) and record.side == "sell":
            return
        for transfer in transfers_of(record):
            for debtor, nanos in _changes(transfer):
                self._owe(debtor, nanos)

    def owing(self) -> Counter[Debtor]:
        """Return the debt of each site, as it is counted here."""
        known = {
            each: budget_account.spent_nanos for each, budget_account in self._of_debtor.items()
        }
        return Counter({**self._owed, **known})

    def true_up(self, before: Mapping[Debtor, int], owed: Mapping[Debtor, int]) -> None:
        """Adopt the books' debts `owed`, as of the moment when `before` was counted here."""
        for debtor in {*self.owing(), *owed}:
            self._owe(debtor, owed.get(debtor, 0) - before.get(debtor, 0))

    def _owe(self, debtor: Debtor, nanos: int) -> None:
        if debtor in self._of_debtor:
            self._of_debtor[debtor].spent_nanos += nanos
        else:
            self._owed[debtor] += nanos


def owed_by(balances: Mapping[LedgerAccount, Balance]) -> dict[Debtor, int]:
    """Return each site's debt by the accounts: final, and delivered without a verdict.

    A site's own deliveries here count once they have a verdict.
    """
    return {
        (account.name, account.currency): balance.net_nanos + balance.held_debits_nanos
        for account, balance in balances.items()
        if account.kind == "site"
    }


def _changes(transfer: Transfer) -> Iterator[tuple[Debtor, int]]:
    """Yield a transfer's changes of sites' debts, where their holds count already."""
    done = transfer.kind in ("entry", "reversal")
    if transfer.debit.kind == "site" and (done or transfer.kind == "void"):
        sign = -1 if transfer.kind == "void" else 1
        yield (transfer.debit.name, transfer.debit.currency), sign * transfer.amount_nanos
    if transfer.credit.kind == "site" and (done or transfer.kind == "post"):
        yield (transfer.credit.name, transfer.credit.currency), -transfer.amount_nanos
