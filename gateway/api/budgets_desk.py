"""Answers questions about budgets, takes the one order there is, and trues up sites' debts."""

from collections.abc import Callable, Mapping
from typing import Any

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.errors import GridError
from gateway.api.context import SiteContext
from gateway.api.views import budget_views
from gateway.api.views.work_views import narrow
from gateway.ledger.db.errors import StoreError
from gateway.scheduler.model.budget_accounts import owed_by
from policies.parties import Party


class BadBudgetQuestion(GridError):
    """An order about budgets that can't be followed as it was given."""


def budgets(site: SiteContext, is_shown: Callable[[Party], bool]) -> list[Any]:
    """Return the standing of every budget, quota and credit of a party that `is_shown`."""
    exchange, mono_s = site.exchange, site.runtime.mono_s()
    budget_accounts = site.broker.budget_accounts
    for budget_account in budget_accounts:
        budget_account.turn(site.runtime.utc_s())
    exchange.lending.tick(site.runtime.utc_s())
    rows = [
        budget_views.standing(
            budget_account,
            ()
            if budget_account.budget.is_credit
            else exchange.lending.of(budget_account.budget.name),
            exchange.borrowing.lasts_s(budget_account, mono_s),
        )
        for budget_account in budget_accounts
        if is_shown(budget_account.budget.party)
    ]
    return [{key: _narrow(each) for key, each in row.items()} for row in rows]


def _narrow(value: Any) -> Any:
    if isinstance(value, list):
        return [_narrow(each) for each in value]
    return narrow(value)


async def write_off(site: SiteContext, details: Mapping[str, Any]) -> Any:
    """Treat a site's reported spending of its slice as final."""
    name, other = details.get("name"), details.get("site")
    if not isinstance(name, str) or not isinstance(other, str):
        raise BadBudgetQuestion("`name` must be the name of a budget, and `site` that of a site")
    budget_account = site.broker.budget_accounts.own.get(name)
    freed = site.exchange.lending.write_off(name, other, site.runtime.utc_s())
    site.server.act([])
    await site.harden()
    assert budget_account is not None
    return {"name": name, "site": other, "freed": budget_account.budget.show(freed)}


async def watch_credit(site: SiteContext) -> None:
    """Compare the debts of other sites, as they are counted here, with the books, for ever.

    A charge to a site that was never delivered (it was stopped) is counted here, and not owed.
    """
    budget_accounts = site.broker.budget_accounts
    while True:
        await trio.sleep(site.config.books.reconcile_s)
        try:
            before = budget_accounts.owing()
            await site.record()  # all that is counted by now is in the books then
            budget_accounts.true_up(before, owed_by(await site.read(site.store.journal.balances)))
        except (StoreError, SQLAlchemyError) as error:
            site.tell_store_trouble(error)
