"""Spending of budgets, and debts of sites, from the books: read when a gateway starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from federation.clocks import UNIX_EPOCH_S, UtcS
from gateway.alerts.books import spans
from gateway.contracts.slices.borrowing import former_budget
from gateway.ledger.db.budgets.records import SliceHeld
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.usage.records import Dimension, is_for_its_user
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.store.store import Store
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent, Debtor, owed_by
from gateway.scheduler.model.paid_time import free_times
from policies.costs.budgets import Budget
from policies.parties import Party, PartyKind

Chosen = Mapping[Dimension, str | int]
_OURS: Final[Chosen] = {Dimension.ORIGIN: ""}
LOOK_BACK_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class KnownSpending:
    """Spending by budget, and by this site's accounts of others' budgets; debts of other sites."""

    spent: Mapping[str, BudgetSpent]
    accounts: Mapping[SliceHeld, BudgetSpent]
    owed: Mapping[Debtor, int]


def read_known(store: Store, budget_accounts: BudgetAccounts, utc_s: UtcS) -> KnownSpending:
    """Return everything that budgets begin with."""
    held = {
        each: _spent_of(store.usage, former_budget(each), each, utc_s)
        for each in store.budgets.held()
    }
    ours = {(each.owner, each.budget): spent for each, spent in held.items()}
    spent = {}
    for name, budget_account in budget_accounts.own.items():
        owner = budget_account.budget.owner
        if owner:
            spent[name] = ours.get((owner, name), BudgetSpent(0, 0))
        else:
            spent[name] = _spent_of(store.usage, budget_account.budget, None, utc_s)
    return KnownSpending(
        spent, held, owed_by(store.journal.balances()) if budget_accounts.has_credit else {}
    )


def _spent_of(
    usage: UsageStore, budget: Budget, account: SliceHeld | None, utc_s: UtcS
) -> BudgetSpent:
    """Return the spending of a budget, in all and in its period; since an account was opened."""
    opened_s = UtcS(account.account / 1000 if account is not None else 0.0)
    period = budget.period_at(utc_s)
    start_at_s = max(opened_s, period.start_at_s if period is not None else UNIX_EPOCH_S)
    now = spent_between(usage, budget, start_at_s, utc_s)
    before = spent_between(usage, budget, opened_s, start_at_s) if account is not None else 0
    return BudgetSpent(before + now, now)


def spent_between(usage: UsageStore, budget: Budget, start_at_s: UtcS, end_at_s: UtcS) -> int:
    """Return the spending of a budget in [start_at_s, end_at_s) by the books, in nano-units."""
    by = (Dimension.STATE, Dimension.PRICE_CLASS, Dimension.ORIGIN)
    found = 0
    for span in spans(start_at_s, end_at_s) if start_at_s < end_at_s else ():
        for total in usage.totals(by, *span, _chosen(budget.party)):
            state, price_class, origin = map(str, total.key)
            if budget.party.kind is PartyKind.OTHERS and not origin:
                continue
            if not is_for_its_user(state, price_class):
                continue  # the site's own overhead is in no budget
            if not budget.is_money:
                found += total.wall_ns
            elif total.currency == budget.unit:
                found += total.cost_nanos
    return found if budget.is_money else found - _free_between(usage, budget, start_at_s, end_at_s)


def _free_between(usage: UsageStore, budget: Budget, start_at_s: UtcS, end_at_s: UtcS) -> int:
    """Slot time of [start_at_s, end_at_s) that tasks had paid for before, with runs that were lost.

    A loss longer before than LOOK_BACK_S is not looked for.
    """
    if budget.party.kind in (PartyKind.SITE, PartyKind.OTHERS):
        return 0  # of their work nothing is wasted: it is delivered with the next run
    only = {**_chosen(budget.party), Dimension.STATE: "wasted"}
    since_s = UtcS(max(UNIX_EPOCH_S, start_at_s - LOOK_BACK_S) // HOUR_S * HOUR_S)
    # By the hour first, which is quick: by job every record of a time is read.
    lost = usage.totals((Dimension.HOUR,), since_s, None, only)
    hours_at_s = {UtcS(float(each.key[0]) * HOUR_S) for each in lost}
    jobs = {
        str(each.key[0])
        for hour_at_s in hours_at_s
        for each in usage.totals((Dimension.JOB,), hour_at_s, hour_at_s + HOUR_S, only)
    }
    return sum(
        free_ns
        for job in jobs
        for run, free_ns in free_times(usage.runs_since_wasted(job))
        if start_at_s <= run.ended_at_s < end_at_s
    )


def _chosen(party: Party) -> Chosen:
    """Return the filter of the books for the work of a party; as Budget.covers."""
    match party.kind:
        case PartyKind.USER:
            return {Dimension.USER: party.name}
        case PartyKind.GROUP:
            return {Dimension.GROUP: party.name, **_OURS}
        case PartyKind.PROJECT:
            return {Dimension.PROJECT: party.name, **_OURS}
        case PartyKind.SITE:
            return {Dimension.ORIGIN: party.name}
        case PartyKind.OURS:
            return _OURS
        case PartyKind.OTHERS | PartyKind.ALL:
            return {}
