"""Charges for work between sites equal the deliveries: usage and postings have equal sums.

Reports and exports are made of usage records, statements of deliveries. Both are written in one
transaction, so their sums are equal at any moment. The proof covers jobs with both a contract and
usage; a missing document is found by its transfer.
"""

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    case,
    func,
    literal_column,
    select,
    union_all,
)

from gateway.ledger.audit.finding import AuditFinding
from gateway.ledger.audit.keys import rows_of
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.contracts.overhead import Part, overhead
from gateway.ledger.db.contracts.tables import OF_CONTRACT, SOLD_JOB, contracts, postings
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.usage.tables import usage

_NONE: Final = literal_column("0", BigInteger)
_ONE: Final = literal_column("1", BigInteger)
_TWO: Final = literal_column("2", BigInteger)


def undercharged(connection: Connection, site: str = "") -> Generator[AuditFinding]:
    """Yield the jobs whose charges differ from the deliveries under contracts, on either side.

    Only contracts with one site, if it is named.
    """
    sold, bought = _sold(), _bought()
    used_by_others, used_elsewhere = _used_by_others(), _used_elsewhere()
    if site:
        sold, bought = (each.where(contracts.c.site == site) for each in (sold, bought))
        used_by_others = used_by_others.where(usage.c.origin == site)
        used_elsewhere = used_elsewhere.where(usage.c.site == site)
    for job, _, used, delivered, _ in _pairs(connection, used_by_others, sold):
        if used != delivered:
            yield AuditFinding(
                f"job {job} was charged {used}, but deliveries of {delivered} to its site are "
                "booked",
                job,
            )
    for job, seller, used, delivered, repeats in _pairs(connection, used_elsewhere, bought):
        text = f"job {job} was charged {used} for {seller}, which delivered {delivered}"
        unbooked = _unbooked(connection, job, seller) if repeats else _Unbooked(range(1))
        if unbooked.missing:
            missing = f"{text}, and {unbooked.missing} repetitions of tasks are not booked"
            yield AuditFinding(missing, job)
        elif delivered - used not in unbooked.nanos:
            again = f", of which {unbooked.nanos.start} are for repetitions" if repeats else ""
            yield AuditFinding(f"{text}{again}", job)


class _Unbooked(NamedTuple):
    """The cost of repetitions that were paid for, and that older books have no record of.

    `nanos` has each amount that it may be; `missing` are tasks that were not delivered again.
    """

    nanos: range
    missing: int = 0


def _unbooked(connection: Connection, job: str, seller: str) -> _Unbooked:
    """The cost of repetitions by what was delivered with them: in older books they cost nothing.

    Their tasks tell which delivery they came with, and their share of its time is their share of
    its cost, but for the rounding of each charged part. Once anything is rolled up that is not
    known, and it may be any amount.
    """
    names = ("first", "tasks", "wall_ns", "ended_at_s", "records")
    used = select(*(usage.c[name] for name in names)).where(
        usage.c.job == job, usage.c.site == seller, usage.c.state == "repeat"
    )
    bought = (
        select(postings)
        .join_from(postings, contracts, OF_CONTRACT)
        .where(contracts.c.side == "buy", contracts.c.site == seller, contracts.c.job == job)
    )
    repeats, rows = (connection.execute(query).all() for query in (used, bought))
    if any(each.records > 1 for each in (*repeats, *rows)):
        return _Unbooked(range(NUMBER_LIMIT))
    # They are fitted into deliveries by their time, as they have no cost.
    parts = {
        (row.contract, row.epoch, row.first): Part(
            row.first, row.tasks, row.wall_ns, row.posted_at_s
        )
        for row in rows
    }
    found = overhead(parts, (Part(*each[:4]) for each in repeats))
    nanos = rounding = 0
    for row in rows:
        tasks, wall_ns = found.get((row.contract, row.epoch, row.first), (0, 0))
        if tasks == row.tasks:
            nanos += row.cost_nanos
        elif tasks:
            part, whole = (wall_ns, row.wall_ns) if row.wall_ns else (tasks, row.tasks)
            nanos += row.cost_nanos * part // whole
            rounding += row.tasks
    missing = sum(each.tasks for each in repeats) - sum(tasks for tasks, _ in found.values())
    return _Unbooked(range(nanos, nanos + rounding + 1), missing)


def _used_by_others() -> Select[Any]:
    """Select the charges to other sites' jobs."""
    return _used(literal_column("''", String)).where(usage.c.origin != "")


def _used_elsewhere() -> Select[Any]:
    """Select the charges of other sites for jobs of our own users."""
    return _used(usage.c.site).where(usage.c.site != "", usage.c.origin == "")


def _used(site: ColumnElement[str]) -> Select[Any]:
    is_paid = and_(usage.c.state == "repeat", usage.c.cost_nanos > 0)
    repeats = case((is_paid, _TWO), (usage.c.state == "repeat", _ONE), else_=_NONE)
    return select(*_row(usage.c.job, site, repeats, usage.c.cost_nanos, _NONE, _NONE))


def _sold() -> Select[Any]:
    """Select the deliveries to other sites."""
    return _delivered(SOLD_JOB, literal_column("''", String), "sell")


def _bought() -> Select[Any]:
    """Select the deliveries to us for our own users; forwarded work has its buyer's price."""
    found = _delivered(contracts.c.job, contracts.c.site, "buy")
    return found.where(~contracts.c.job.contains(":", autoescape=True))


def _delivered(job: ColumnElement[str], site: ColumnElement[str], side: str) -> Select[Any]:
    delivered = func.coalesce(postings.c.cost_nanos, _NONE)
    return (
        select(*_row(job, site, _NONE, _NONE, delivered, _ONE))
        .join_from(contracts, postings, OF_CONTRACT, isouter=True)
        .where(contracts.c.side == side)
    )


def _row(*columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    names = ("job", "site", "repeats", "used", "delivered", "is_delivered")
    return [column.label(name) for column, name in zip(columns, names, strict=True)]


def _pairs(
    connection: Connection, used: Select[Any], delivered: Select[Any]
) -> Generator[tuple[str, str, int, int, bool]]:
    """Yield job, site, charges, deliveries, and whether repeats were paid but not booked."""
    both = union_all(used, delivered).subquery().c
    sums = exact_sums(both.used, both.delivered)
    query = (
        select(both.job, both.site, func.max(both.repeats), *sums)
        .group_by(both.job, both.site)
        .having(func.min(both.is_delivered) != func.max(both.is_delivered))
        .order_by(both.job, both.site)
    )
    for job, site, repeats, *halves in rows_of(connection, query):
        charged, came = joined(halves)
        yield job, site, charged, came, repeats == 1
