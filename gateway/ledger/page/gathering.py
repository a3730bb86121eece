"""Reads the facts of a page from a store, a day at a time."""

from collections.abc import Iterator
from typing import Final

from federation.clocks import CALENDAR_END_S, UNIX_EPOCH_S, UtcS
from gateway.ledger.accounting.settlement import Statement
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.contracts.records import PendingDeliveries
from gateway.ledger.db.contracts.store import ContractStore
from gateway.ledger.db.usage.records import Dimension, UsageTotal
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.page.facts import BY, PageFacts, UnsettledCost, facts_from
from gateway.ledger.reports import OpenClaim, Present, claim_of
from gateway.ledger.store import owed
from gateway.ledger.store.slots import slots_of
from gateway.ledger.store.store import Store

DAYS_MAX: Final = 366
_DAY_S: Final = 24 * HOUR_S


def gather(
    store: Store, site: str, present: Present, start_at_s: UtcS | None, end_at_s: UtcS | None
) -> PageFacts:
    """Return the facts of [start_at_s, end_at_s), UTC epoch seconds, in whole hours.

    By default up to now, and 30 days back. The hours of the bounds count whole, because books are
    summed by the hour. Raises ValueError for a period that is empty or over `DAYS_MAX` days long.
    """
    as_of_s = present.utc_s
    bounds_s = [each for each in (start_at_s, end_at_s) if each is not None]
    if not all(UNIX_EPOCH_S <= each < CALENDAR_END_S for each in bounds_s):  # also refuses NaN
        raise ValueError("the period of a page must be between the years 1970 and 9999")
    end = -int(-(as_of_s + 1 if end_at_s is None else end_at_s) // HOUR_S) * HOUR_S
    # Back to midnight, so that the first day is a whole one.
    start = (
        max(0, end // _DAY_S - 30) * _DAY_S
        if start_at_s is None
        else int(start_at_s // HOUR_S) * HOUR_S
    )
    if start >= end:
        raise ValueError("the period of a page must begin before it ends")
    if end - start > DAYS_MAX * _DAY_S:
        raise ValueError(f"a page covers at most {DAYS_MAX} days: choose a later --from")
    return facts_from(
        site,
        period_s := (UtcS(start), UtcS(end)),
        as_of_s,
        _usage(store.usage, start, end),
        slots_of(store.usage, *period_s, present.unwritten),
        _statements(store, *period_s),
        _unsettled(store.contracts, *period_s, present),
    )


def _statements(store: Store, start: UtcS, end: UtcS) -> Iterator[Statement]:
    """Yield the statements of account with each site, as in `gridfed report statement`."""
    for site in owed.partners(store):
        yield from owed.statements(store.settlement, site, start, end)


def _unsettled(
    contracts: ContractStore, start: UtcS, end: UtcS, present: Present
) -> Iterator[UnsettledCost]:
    """Yield our users' costs that are not final, by site, as in `gridfed report cost`."""

    def bought(found: list[PendingDeliveries]) -> Iterator[OpenClaim]:
        return (claim_of(each) for each in found if each.side == "buy")

    running = present.running if end > present.utc_s else ()
    kinds = bought(contracts.pending(start, end)), bought(contracts.reversed(start, end)), running
    for place, claims in enumerate(kinds):
        for each in claims:
            if not each.facts.get(Dimension.ORIGIN):
                amounts = [0, 0, 0]
                amounts[place] = each.cost_nanos
                yield UnsettledCost(each.facts[Dimension.SITE], each.currency, *amounts)


def _usage(usage: UsageStore, start: int, end: int) -> Iterator[UsageTotal]:
    """Yield the rows of each day in turn: each is read once, and few are in memory at a time."""
    while start < end:
        until = min(end, (start // _DAY_S + 1) * _DAY_S)
        yield from usage.totals(BY, UtcS(start), UtcS(until))
        start = until
