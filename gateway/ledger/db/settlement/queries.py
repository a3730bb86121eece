"""Reads the data that two sites must agree on: deliveries, disputes, statements and payments."""

import heapq
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, literal, select

from federation.messages.reconciliation import BookEntry, EntryState, Sums
from gateway.ledger.db.contracts.records import PostingRow
from gateway.ledger.db.contracts.tables import OF_CONTRACT, contracts, postings
from gateway.ledger.db.database import streamed
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.settlement.records import DisputeRow, PaymentRow, PaymentsTold, StatementKept
from gateway.ledger.db.settlement.tables import disputes, payments, payments_told, statements

_POSTING_KEY = ("side", "contract", "epoch", "first")


_STATES: Final = {
    "post": EntryState.POSTED,
    "pending": EntryState.PENDING,
    "void": EntryState.VOID,
}


def entries(
    connection: Connection, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
) -> Iterator[BookEntry]:
    """See SettlementStore.entries."""
    between = _between(postings.c.posted_at_s, first_ms, stop_ms)
    delivered = _delivered(and_(postings.c.state != "void", *between))
    reversed_ = (
        _delivered(
            and_(
                disputes.c.state == "accepted",
                *_between(disputes.c.settled_at_s, first_ms, stop_ms),
            )
        )
        .add_columns(disputes.c.settled_at_s)
        .join(disputes, same_delivery(disputes))
    )
    found = [
        map(read, streamed(connection, _of(query, side, site, contract)))
        for query, read in ((delivered, _delivery), (reversed_, _reversal))
    ]
    yield from heapq.merge(*found, key=_order)


def voids(
    connection: Connection, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
) -> Iterator[BookEntry]:
    """See SettlementStore.voids."""
    between = _between(postings.c.posted_at_s, first_ms, stop_ms)
    query = _delivered(and_(postings.c.state == "void", *between))
    yield from map(_delivery, streamed(connection, _of(query, side, site, contract)))


def _of(query: Select[Any], side: str, site: str, contract: str = "") -> Select[Any]:
    """Restrict a query to one side and site, and to a contract if one is named.

    The contracts are a set: a database without row statistics begins a join with all postings, and
    looks up the contract of each.
    """
    theirs = select(contracts.c.contract).where(contracts.c.side == side, contracts.c.site == site)
    of_site = query.where(postings.c.side == side, postings.c.contract.in_(theirs))
    return of_site.where(postings.c.contract == contract) if contract else of_site


def same_delivery(table: Any) -> ColumnElement[bool]:
    """Return the condition that a row is of the same delivery."""
    return and_(*(table.c[name] == postings.c[name] for name in _POSTING_KEY))


def _delivered(chosen: ColumnElement[bool]) -> Select[Any]:
    order = (postings.c.contract, postings.c.epoch, postings.c.first)
    return (
        select(postings, contracts.c.currency)
        .join_from(postings, contracts, OF_CONTRACT)
        .where(chosen)
        .order_by(*order)
    )


def _order(entry: BookEntry) -> tuple[str, int, int, EntryState]:
    return entry.contract, entry.delivery.epoch, entry.delivery.first, entry.state


def _delivery(row: Row[Any]) -> BookEntry:
    posting = PostingRow(
        *(row.epoch, row.first, row.tasks, row.cost_nanos, row.state),
        *(row.wall_ns, row.posted_at_s),
    )
    return BookEntry(row.contract, row.currency, posting.delivery, _STATES[row.state])


def _reversal(row: Row[Any]) -> BookEntry:
    entry = _delivery(row)
    at_ms = round(row.settled_at_s * 1000)
    return replace(entry, delivery=replace(entry.delivery, at_ms=at_ms), state=EntryState.REVERSAL)


def is_whole(connection: Connection, side: str, site: str, first_ms: int, stop_ms: int) -> bool:
    """Whether every entry of that time still has a row of its own: none is rolled up."""
    query = select(postings.c.first).where(
        postings.c.records > 1,
        postings.c.state != "void",
        *_between(postings.c.posted_at_s, first_ms, stop_ms),
    )
    return connection.execute(_of(query, side, site).limit(1)).first() is None


def sums(
    connection: Connection, side: str, site: str, first_ms: int, stop_ms: int
) -> dict[str, Sums]:
    """See SettlementStore.entry_sums."""
    return verdict_sums(connection, side, site, first_ms, stop_ms)[0]


def verdict_sums(
    connection: Connection, side: str, site: str, first_ms: int, stop_ms: int
) -> tuple[dict[str, Sums], dict[str, Sums]]:
    """See SettlementStore.verdict_sums."""
    found: dict[str, Sums] = {}
    void: dict[str, Sums] = {}
    if first_ms >= stop_ms:
        return found, void  # spares a database that would look at every row
    amounts = exact_sums(postings.c.tasks, postings.c.wall_ns, postings.c.cost_nanos)
    # A rolled-up row may stand for many deliveries.
    delivered = (
        select(contracts.c.currency, postings.c.state, func.sum(postings.c.records), *amounts)
        .where(*_between(postings.c.posted_at_s, first_ms, stop_ms))
        .group_by(contracts.c.currency, postings.c.state)
        .join_from(postings, contracts, OF_CONTRACT)
    )
    reversed_ = (
        select(contracts.c.currency, literal("reversed"), func.count(), *amounts)
        .where(disputes.c.state == "accepted")
        .where(*_between(disputes.c.settled_at_s, first_ms, stop_ms))
        .group_by(contracts.c.currency)
        .join_from(postings, contracts, OF_CONTRACT)
        .join(disputes, same_delivery(disputes))
    )
    for query in (delivered, reversed_):
        for currency, kind, count, *halves in connection.execute(_of(query, side, site)):
            if kind == "void":
                void[currency] = Sums(int(count), *joined(halves))
            else:
                _add(found.setdefault(currency, Sums()), kind, int(count), *joined(halves))
    return found, void


def _between(at_s: ColumnElement[float], first_ms: int, stop_ms: int) -> list[ColumnElement[bool]]:
    return [at_s >= first_ms / 1000, at_s < stop_ms / 1000]


def _add(found: Sums, kind: str, count: int, tasks: int, wall_ns: int, cost_nanos: int) -> None:
    if kind == "post":
        found.deliveries, found.tasks = count, tasks
        found.wall_ns, found.cost_nanos = wall_ns, cost_nanos
    elif kind == "pending":
        found.pending, found.pending_nanos = count, cost_nanos
    else:
        found.reversals, found.reversed_nanos = count, cost_nanos


def next_delivery_ms(connection: Connection, side: str, site: str, since_ms: int) -> int | None:
    """See SettlementStore.next_delivery_ms."""
    delivered = _of(select(func.min(postings.c.posted_at_s)), side, site).where(
        postings.c.posted_at_s >= since_ms / 1000
    )
    reversed_ = select(func.min(disputes.c.settled_at_s)).where(
        disputes.c.side == side,
        disputes.c.site == site,
        disputes.c.state == "accepted",
        disputes.c.settled_at_s >= since_ms / 1000,
    )
    times = [connection.execute(query).scalar() for query in (delivered, reversed_)]
    return min((round(at_s * 1000) for at_s in times if at_s is not None), default=None)


def read_disputes(
    connection: Connection, contract: str = "", is_open: bool = False
) -> list[DisputeRow]:
    """See SettlementStore.disputes."""
    query = (
        select(
            *(disputes, postings.c.tasks, postings.c.cost_nanos),
            *(contracts.c.currency, contracts.c.job),
        )
        .join_from(disputes, postings, same_delivery(disputes))
        .join(contracts, OF_CONTRACT)
        .order_by(disputes.c.disputed_at_s, disputes.c.contract, disputes.c.epoch)
    )
    if contract:
        # The primary key begins with the side.
        query = query.where(disputes.c.side.in_(("buy", "sell")), disputes.c.contract == contract)
    if is_open:
        query = query.where(disputes.c.state == "open")
    return [DisputeRow(**row._mapping) for row in connection.execute(query)]


def read_statements(connection: Connection, side: str = "", site: str = "") -> list[StatementKept]:
    """See SettlementStore.statements."""
    query = select(statements).order_by(
        statements.c.site, statements.c.side, statements.c.first_ms, statements.c.stop_ms
    )
    for column, name in ((statements.c.side, side), (statements.c.site, site)):
        if name:
            query = query.where(column == name)
    return [StatementKept(**row._mapping) for row in connection.execute(query)]


def read_payments(connection: Connection, site: str = "") -> list[PaymentRow]:
    """See SettlementStore.payments."""
    order = ("paid_at_s", "site", "reference", "currency", "attempt")
    query = select(payments).order_by(*(payments.c[name] for name in order))
    if site:
        query = query.where(payments.c.site == site)
    return [PaymentRow(**row._mapping) for row in connection.execute(query)]


def read_payments_told(connection: Connection, site: str = "") -> list[PaymentsTold]:
    """See SettlementStore.payments_told."""
    query = select(payments_told).order_by(payments_told.c.site)
    if site:
        query = query.where(payments_told.c.site == site)
    return [PaymentsTold(**row._mapping) for row in connection.execute(query)]
