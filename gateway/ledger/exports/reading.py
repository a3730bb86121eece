"""Reads what is exported out of the database, a page at a time, in an order that never changes."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, select

from gateway.ledger.database import streamed
from gateway.ledger.exact import joined
from gateway.ledger.journal import ACCOUNT_FIELDS
from gateway.ledger.postings import Account
from gateway.ledger.tables import SUMMED, SUMMED_BY, accounts, transfers, usage, usage_hours

from .rows import Correction, Hour, Run

_HALVES: Final = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
_HOURS: Final = select(
    *(usage_hours.c[name] for name in SUMMED_BY),
    usage_hours.c.records,
    usage_hours.c.peak_memory_bytes,
    *_HALVES,
)
_HOUR_HEAD: Final = len(SUMMED_BY) + 2
_RUN: Final = [usage.c[name] for name in Run.__dataclass_fields__]


def hours(
    connection: Connection,
    start: int | None = None,
    end: int | None = None,
    *,
    ran_here: bool = False,
) -> Generator[Hour]:
    """Yield the sums of the hours [start, end), counted from 1970, in the order of their keys.

    `ran_here`: without what was bought from other sites.
    """
    query = _within(_HOURS, usage_hours.c.hour, start, end)
    if ran_here:
        query = query.where(usage_hours.c.site == "")
    query = query.order_by(*(usage_hours.c[name] for name in SUMMED_BY))
    with closing(streamed(connection, query)) as rows:
        for row in rows:
            yield Hour(*row[:_HOUR_HEAD], *joined(row[_HOUR_HEAD:]))


def runs(
    connection: Connection,
    start_s: float | None = None,
    end_s: float | None = None,
    *,
    ran_here: bool = False,
) -> Generator[Run]:
    """Yield what ended in [start_s, end_s), first ended first.

    Args:
        connection: to a snapshot.
        start_s: UTC epoch seconds; None: no bound.
        end_s: the same.
        ran_here: without what was bought from other sites.
    """
    query = _within(select(*_RUN), usage.c.ended_at_s, start_s, end_s)
    if ran_here:
        query = query.where(usage.c.site == "")
    query = query.order_by(usage.c.ended_at_s, usage.c.job, usage.c.first, usage.c.attempt)
    with closing(streamed(connection, query)) as rows:
        for row in rows:
            yield Run(**row._mapping)


_CHARGE: Final = "use/"  # how the keys of charges begin; see postings.py
_PAYERS: Final = ("user", "sold")

_charge, _debit, _credit = (
    transfers.alias("charge"),
    accounts.alias("debit_account"),
    accounts.alias("credit_account"),
)
_CORRECTIONS: Final = (
    select(
        *(transfers.c[name] for name in ("number", "key", "at_s", "amount_nanos", "resolves")),
        _charge.c.at_s.label("charged_at_s"),
        *(side.c[name] for side in (_debit, _credit) for name in ACCOUNT_FIELDS),
    )
    .join_from(transfers, _debit, transfers.c.debit == _debit.c.id)
    .join(_credit, transfers.c.credit == _credit.c.id)
    # An old charge may be gone, and its correction not.
    .outerjoin(_charge, transfers.c.resolves == _charge.c.key)
    # What sites settle between them is reversed, too, and is no charge.
    .where(transfers.c.kind == "reversal", transfers.c.resolves.startswith(_CHARGE))
)


def corrections(
    connection: Connection, start_s: float | None = None, end_s: float | None = None
) -> Iterator[Correction]:
    """Yield the charges that were taken back in [start_s, end_s), in the order of the books.

    All are read first: they are few, and each is looked up.
    """
    query = _within(_CORRECTIONS, transfers.c.at_s, start_s, end_s).order_by(transfers.c.number)
    for row in connection.execute(query).all():
        yield _correction(connection, row)


def _correction(connection: Connection, row: Row[Any]) -> Correction:
    head = len(row) - 2 * len(ACCOUNT_FIELDS)
    sides = [
        Account(*row[at : at + len(ACCOUNT_FIELDS)]) for at in (head, head + len(ACCOUNT_FIELDS))
    ]
    # Whoever paid, and whoever was paid, whichever way the transfer goes.
    sides.sort(key=_is_paid)
    payer, paid = sides
    is_ours, is_here = payer.kind == "user", paid.kind == "pool"
    return Correction(
        number=row.number,
        key=row.key,
        corrects=row.resolves,
        at_s=row.at_s,
        corrected_at_s=row.at_s if row.charged_at_s is None else row.charged_at_s,
        amount_nanos=row.amount_nanos,
        currency=payer.currency,
        user=payer.name if is_ours else "",
        project=payer.project,
        origin="" if is_ours else payer.name,
        pool=paid.name if is_here else "",
        site="" if is_here else paid.name,
        run=_charged(connection, row.resolves),
    )


def _is_paid(account: Account) -> bool:
    return account.kind not in _PAYERS


def _charged(connection: Connection, key: str) -> Run | None:
    """The run that a transfer is for: its key is "use/job/first/attempt".

    None when its record is gone, or stands for several runs.
    """
    job, *numbers = key.removeprefix(_CHARGE).rsplit("/", 2)
    if len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
        return None
    first, attempt = map(int, numbers)
    query = select(*_RUN).where(
        and_(usage.c.job == job, usage.c.first == first, usage.c.attempt == attempt)
    )
    row = connection.execute(query).first()
    return Run(**row._mapping) if row is not None and row.records == 1 else None


def _within(
    query: Select[Any], column: ColumnElement[Any], start: float | None, end: float | None
) -> Select[Any]:
    if start is not None:
        query = query.where(column >= start)
    if end is not None:
        query = query.where(column < end)
    return query
