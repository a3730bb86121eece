"""Reads the debts between sites from a store; `settlement` computes the balances."""

from collections.abc import Iterable, Iterator
from functools import partial

from federation.clocks import UtcS
from federation.messages.payments import Match
from gateway.ledger.accounting.settlement import (
    Statement,
    Turnover,
    agreed_until,
    matches,
    moved,
    statements_of,
    turnovers,
)
from gateway.ledger.db.settlement.records import PaymentRow, PaymentsTold, StatementKept
from gateway.ledger.db.settlement.store import SettlementStore
from gateway.ledger.store.store import Store


def partners(store: Store) -> list[str]:
    """Return the names of all sites that we ever traded with or paid, sorted."""
    return sorted(
        {*store.contracts.partners(), *(each.site for each in store.settlement.payments())}
    )


def statements(
    store: SettlementStore, site: str, start_at_s: UtcS, end_at_s: UtcS
) -> list[Statement]:
    """Return trade and payments with a site in [start, end), UTC epoch seconds, by currency."""
    payments = store.payments(site)
    before = _turnovers(store, payments, site, UtcS(0.0), start_at_s)
    within = _turnovers(store, payments, site, start_at_s, end_at_s)
    return statements_of(site, before, within, paid_with(store, site, payments))


def paid_with(store: SettlementStore, site: str, payments: Iterable[PaymentRow]) -> list[Match]:
    """Match a site's bookings of payments with ours; `payments` is all of ours."""
    return matches(payments, told_by(store, site))


def told_by(store: SettlementStore, site: str) -> PaymentsTold | None:
    """Return the last report of a site on its bookings of payments."""
    return next(iter(store.payments_told(site)), None)


def _turnovers(
    store: SettlementStore, payments: list[PaymentRow], site: str, start_at_s: UtcS, end_at_s: UtcS
) -> dict[str, Turnover]:
    first_ms, stop_ms = round(start_at_s * 1000), round(end_at_s * 1000)
    sold, void_sold = store.verdict_sums("sell", site, first_ms, stop_ms)
    bought, void_bought = store.verdict_sums("buy", site, first_ms, stop_ms)
    paid = moved(payments, start_at_s, end_at_s)
    return turnovers(sold, bought, paid, void_sold, void_bought)


def agreed_until_ms(
    store: SettlementStore,
    kept: Iterable[StatementKept],
    side: str,
    site: str,
    *,
    is_final: bool = False,
) -> int:
    """Return the time up to which all is agreed, or closed; `kept` is from `statements`."""
    return agreed_until(kept, partial(store.next_delivery_ms, side, site), is_final=is_final)


def agreed_both_ms(store: SettlementStore, site: str) -> Iterator[int]:
    """Yield the time up to which both sides' deliveries are agreed, and then that of closed ones.

    Zero: nothing is agreed; a side that delivered nothing does not count.
    """
    sides = [
        (side, store.statements(side, site))
        for side in ("buy", "sell")
        if store.next_delivery_ms(side, site, 0) is not None
    ]
    for is_final in (False, True):
        times_ms = (
            agreed_until_ms(store, kept, side, site, is_final=is_final) for side, kept in sides
        )
        yield min(times_ms, default=0)
