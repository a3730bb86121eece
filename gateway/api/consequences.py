"""Computes the consequences of a grave order, which the command shows before it asks.

A line says a fact as it is now; nothing is changed. An order that would be refused is refused here
with the same reason.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from federation.errors import GridError
from federation.money import format_money
from federation.words import count
from gateway.api import books_desk
from gateway.api.context import SiteContext
from gateway.base.details import Details
from gateway.scheduler.model.ports import PortKind

NAMES_SHOWN: Final = 10


class BadConsequencesQuestion(GridError):
    """A question about an order whose consequences are not known here."""


async def consequences(site: SiteContext, details: Details) -> Any:
    """Say what follows from an order: {order, details} → {lines}. Raises GridError."""
    verb, given = details.get("order"), details.get("details", {})
    compute = _OF.get(verb) if isinstance(verb, str) else None
    if compute is None or not isinstance(given, dict):
        raise BadConsequencesQuestion(f"order must be one of {', '.join(sorted(_OF))}")
    return {"lines": await compute(site, given)}


async def _of_expel(site: SiteContext, details: Details) -> list[str]:
    name = str(details.get("site", ""))
    others = [each for each in _approved(site) if each != name]
    told = f"informed, and may follow: {_some(others)}" if others else "no other site is informed"
    lines = [
        f"{name} is expelled here at once; {told}",
        "its trust rules here end, also if it is kept and approved again later",
    ]
    return [*lines, *_work_with(site, {name}), *await _debts(site, {name})]


async def _of_leave(site: SiteContext, _details: Details) -> list[str]:
    others = set(_approved(site))
    names = _some(sorted(others)) or "none"
    lines = [f"all sessions with other sites end ({names}); a return takes an invitation"]
    return [*lines, *_work_with(site, others), *await _debts(site, others)]


async def _of_drain(site: SiteContext, _details: Details) -> list[str]:
    jobs = site.broker.jobs.values()
    tasks = sum(each.waiting + each.in_flight for each in jobs)
    users = {each.whose.user for each in jobs}
    return [
        f"site {site.config.name} refuses new jobs of all users until "
        "`gridfed drain --all --resume`",
        f"unfinished work continues to its end: {count(len(jobs), 'job')} of "
        f"{count(len(users), 'user')}, with {count(tasks, 'task')}",
    ]


async def _of_payment(verb: str, site: SiteContext, details: Details) -> list[str]:
    name = str(details.get("site", ""))
    owed = {str(row["currency"]): int(row["balance_nanos"]) for row in await _statement(site, name)}
    lines = []
    for currency, nanos in await books_desk.changes_of(site, verb, details):
        before = owed.get(currency, 0)
        after = owed[currency] = before + nanos
        lines.append(
            f"now {_debt(name, currency, before)}; after it {_debt(name, currency, after)}"
        )
        lines += _credit_after(site, name, currency, nanos)
    return lines


def _credit_after(site: SiteContext, name: str, currency: str, nanos: int) -> list[str]:
    """Return what becomes of a site's credit here when it owes so much more."""
    lines = []
    for budget_account in site.broker.budget_accounts.credit_of(name):
        if budget_account.budget.unit != currency:
            continue
        left = budget_account.left_nanos - nanos
        limit = format_money(budget_account.limit_nanos, currency)
        would = format_money(budget_account.spent_nanos + nanos, currency)
        if left <= 0 < budget_account.left_nanos:
            lines.append(
                f"this exhausts the credit of {name}: it would owe {would}, of a limit of {limit}, "
                "and none of its tasks starts here until it has paid"
            )
        elif budget_account.left_nanos <= 0 < left:
            lines.append(f"{name} has credit again, up to {limit}: its work continues")
        elif left <= 0:
            lines.append(f"the credit of {name} stays exhausted: its work still waits")
    return lines


async def _of_write_off(site: SiteContext, details: Details) -> list[str]:
    name, other = str(details.get("name", "")), str(details.get("site", ""))
    budget_account = site.broker.budget_accounts.own.get(name)
    shares = [each for each in site.exchange.lending.of(name) if each.site == other]
    if budget_account is None or not shares:
        raise BadConsequencesQuestion(f"site {other!r:.80} holds no part of a budget {name!r:.80}")
    amount = budget_account.budget.show(sum(each.unspent for each in shares))
    return [
        f"{other} holds {amount} of the budget {name}: from now on others may spend it",
        f"if {other} returns, its spending may exceed the budget by up to that amount",
    ]


def _approved(site: SiteContext) -> list[str]:
    return [] if site.peers is None else sorted(site.peers.registry.approved)


def _some(names: list[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _work_with(site: SiteContext, names: set[str]) -> list[str]:
    """Return the work that is under way with other sites, in both directions."""
    there = sum(
        worker.in_flight
        for worker in site.broker.workers.values()
        if worker.port is PortKind.PEER and worker.offer.pool.partition("/")[0] in names
    )
    sold = [job for job in site.broker.jobs.values() if job.whose.site in names]
    here = sum(job.waiting + job.in_flight for job in sold)
    lines = []
    if there:
        lines.append(
            f"our work there: {count(there, 'task')}, to run again elsewhere once the leases end"
        )
    if here:
        lines.append(
            f"their work here: {count(here, 'task')}, which can't be delivered and are not paid for"
        )
    return lines


async def _debts(site: SiteContext, names: set[str]) -> list[str]:
    """Return the debts that stay in the books."""
    return [
        f"{_debt(str(row['site']), str(row['currency']), int(row['balance_nanos']))}: the debt "
        "stays in the books"
        for name in sorted(names)
        for row in await _statement(site, name)
        if int(row["balance_nanos"])
    ]


async def _statement(site: SiteContext, name: str) -> list[dict[str, Any]]:
    """Return the statement with a site; none if there are no dealings with it."""
    if name not in await site.read(books_desk.partners, site.store):
        return []
    found = await books_desk.statement(site, {"sites": [name]})
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def _debt(name: str, currency: str, nanos: int) -> str:
    if not nanos:
        return f"{name} and we owe each other nothing in {currency}"
    amount = format_money(abs(nanos), currency)
    return f"{name} owes us {amount}" if nanos > 0 else f"we owe {name} {amount}"


async def _of_settle(site: SiteContext, details: Details) -> list[str]:
    return await _of_payment("settle", site, details)


async def _of_undo(site: SiteContext, details: Details) -> list[str]:
    return await _of_payment("undo_payment", site, details)


_OF: Final[Mapping[str, Callable[[SiteContext, Details], Awaitable[list[str]]]]] = {
    "drain": _of_drain,
    "expel": _of_expel,
    "leave": _of_leave,
    "settle": _of_settle,
    "undo_payment": _of_undo,
    "write_off": _of_write_off,
}
