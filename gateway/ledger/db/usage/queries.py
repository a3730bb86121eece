"""The queries of usage; they run in the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from federation.clocks import UtcS
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.contracts.tables import OF_CONTRACT, SOLD_JOB, contracts, postings
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.settlement.queries import same_delivery
from gateway.ledger.db.settlement.tables import disputes
from gateway.ledger.db.usage.records import Dimension, UsageTotal
from gateway.ledger.db.usage.tables import SUMMED, usage, usage_hours

_DETAILS: Final = frozenset({Dimension.JOB, Dimension.WORKER})


def hours_between(start_at_s: UtcS, end_at_s: UtcS) -> tuple[int, int]:
    """Return the hours, counted from 1970-01-01T00, that begin in [start_at_s, end_at_s)."""
    return -int(-start_at_s // HOUR_S), -int(-end_at_s // HOUR_S)


def totals_query(
    by: Sequence[Dimension],
    start_at_s: UtcS | None,
    end_at_s: UtcS | None,
    only: Mapping[Dimension, str | int],
) -> Select[Any]:
    """Return the query of `UsageStore.totals`: on the hourly sums where those suffice."""
    bounds = [each for each in (start_at_s, end_at_s) if each is not None]
    is_whole = all(at % HOUR_S == 0 for at in bounds)
    if is_whole and not _DETAILS & {*by, *only}:
        table, sums = (
            usage_hours,
            [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")],
        )
        halves: list[ColumnElement[int]] = [cast(func.sum(each), BigInteger) for each in sums]
        at, unit = usage_hours.c.hour, HOUR_S
    else:
        table = usage
        halves = exact_sums(*(usage.c[name] for name in SUMMED))
        at, unit = usage.c.ended_at_s, 1
    period = [at >= start_at_s / unit] if start_at_s is not None else []
    if end_at_s is not None:
        period.append(at < end_at_s / unit)
    key = [_column(table, each) for each in by]
    return (
        select(
            *key,
            table.c.currency,
            cast(func.sum(table.c.records), BigInteger),
            func.max(table.c.peak_memory_bytes),
            *halves,
        )
        .where(*period, *(_column(table, each) == value for each, value in only.items()))
        .group_by(*key, table.c.currency)
        .order_by(*key, table.c.currency)
    )


def usage_total(keys: int, row: Row[Any]) -> UsageTotal:
    """Return the total in a row of `totals_query`, for so many dimensions."""
    return UsageTotal(tuple(row[:keys]), *row[keys : keys + 3], *joined(row[keys + 3 :]))


def _column(table: Table, dimension: Dimension) -> ColumnElement[Any]:
    if dimension is Dimension.DAY:
        return table.c.hour // literal_column("24", BigInteger)
    return table.c[dimension.value]


def sold_and_taken_back(connection: Connection) -> dict[str, list[tuple[UtcS, int]]]:
    """Return the sold deliveries that were voided or refunded, by job: (when, cost), by time.

    All are read, as they are few.
    """
    refunded = exists().where(same_delivery(disputes), disputes.c.state == "accepted")
    query = (
        select(SOLD_JOB.label("job"), postings.c.posted_at_s, postings.c.cost_nanos)
        .join_from(postings, contracts, OF_CONTRACT)
        .where(postings.c.side == "sell", postings.c.cost_nanos > 0)
        .where(or_(postings.c.state == "void", refunded))
        .order_by("job", postings.c.posted_at_s)
    )
    found: dict[str, list[tuple[UtcS, int]]] = {}
    for job, posted_at_s, cost_nanos in connection.execute(query):
        found.setdefault(job, []).append((posted_at_s, cost_nanos))
    return found
