"""Reads the data of exports from the database, a page at a time, in a stable order."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, case, func, or_, select

from federation.clocks import UtcS
from gateway.ledger.db.contracts.tables import OF_CONTRACT, SOLD_JOB, contracts, postings
from gateway.ledger.db.contracts.voids import Key, taken_back
from gateway.ledger.db.database import streamed
from gateway.ledger.db.exact import joined
from gateway.ledger.db.settlement.queries import same_delivery
from gateway.ledger.db.settlement.tables import disputes
from gateway.ledger.db.usage.tables import SUMMED, SUMMED_BY, usage, usage_hours
from gateway.ledger.exports.rows import Correction, Hour, UsageRun

_HALVES: Final = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
_HOURS: Final = select(
    *(usage_hours.c[name] for name in SUMMED_BY),
    usage_hours.c.records,
    usage_hours.c.peak_memory_bytes,
    *_HALVES,
)
_HOUR_HEAD: Final = len(SUMMED_BY) + 2
_RUN: Final = [usage.c[name] for name in UsageRun.__dataclass_fields__ if name != "corrects"]
_IS_OF_RUNS: Final = postings.c.epoch > 0  # the others are of moved bytes
_IS_VOID: Final = postings.c.state == "void"
_IS_PASSED_ON: Final = contracts.c.job.contains(":", autoescape=True)


def hours(
    connection: Connection,
    start: int | None = None,
    end: int | None = None,
    *,
    ran_here: bool = False,
    of_time: bool = False,
) -> Generator[Hour]:
    """Yield the sums of the hours [start, end), counted from 1970, in the order of their keys.

    `ran_here`: without work that was bought from other sites; `of_time`: of slot time alone.
    """
    query = _within(_HOURS, usage_hours.c.hour, start, end)
    if ran_here:
        query = query.where(usage_hours.c.site == "")
    if of_time:
        query = query.where(usage_hours.c.kind == "time")
    query = query.order_by(*(usage_hours.c[name] for name in SUMMED_BY))
    with closing(streamed(connection, query)) as rows:
        for row in rows:
            yield Hour(*row[:_HOUR_HEAD], *joined(row[_HOUR_HEAD:]))


def priced_hours(
    connection: Connection, start: int | None = None, end: int | None = None
) -> Generator[Hour]:
    """Yield the same, each with the price of its runs, if they all had the same price."""
    keys = [usage.c[name] for name in SUMMED_BY]
    prices = usage.c.price_nanos, usage.c.list_price_nanos
    # A price that some older runs lack is unknown.
    bounds = [of(price) for price in prices for of in (func.min, func.max, func.count)]
    query = _within(select(*keys, func.count(), *bounds), usage.c.hour, start, end)
    query = query.group_by(*keys).order_by(*keys)
    with (
        closing(hours(connection, start, end)) as found,
        closing(streamed(connection, query)) as rows,
    ):
        # Every hour has runs, and both come in the order of their keys. Where books were changed by
        # hand that may not hold: then prices are unknown from there on.
        priced = map(tuple, rows)
        row = next(priced, None)
        for hour in found:
            key = tuple(getattr(hour, name) for name in SUMMED_BY)
            if row is None or row[: len(key)] != key:
                yield hour
                continue
            count, *paid_and_list = row[len(key) :]
            price, list_price = _only(count, *paid_and_list[:3]), _only(count, *paid_and_list[3:])
            yield replace(hour, price_nanos=price, list_price_nanos=list_price)
            row = next(priced, None)


def _only(count: int, lowest: int | None, highest: int | None, known: int) -> int | None:
    """Return the price of so many rows, if it is the same and known for all of them."""
    return lowest if lowest == highest and known == count else None


def runs(
    connection: Connection,
    start_at_s: UtcS | None = None,
    end_at_s: UtcS | None = None,
    *,
    ran_here: bool = False,
) -> Generator[UsageRun]:
    """Yield the runs that ended in [start_at_s, end_at_s), in the order of their ends.

    Without data that was held or moved: the formats of runs have no words for it. A run that its
    buyer has voided costs nothing, and its state is "void", as in the statement.

    Args:
        connection: to a snapshot.
        start_at_s: UTC epoch seconds; None: no bound.
        end_at_s: the same.
        ran_here: without work that was bought from other sites.
    """
    voided = _voided(connection)
    query = _within(select(*_RUN), usage.c.ended_at_s, start_at_s, end_at_s)
    query = query.where(usage.c.kind == "time")
    if ran_here:
        query = query.where(usage.c.site == "")
    query = query.order_by(usage.c.ended_at_s, usage.c.job, usage.c.first, usage.c.attempt)
    with closing(streamed(connection, query)) as rows:
        for row in rows:
            run = UsageRun(**row._mapping)
            seller = "" if run.origin else run.site
            back_nanos = voided.get((run.job, seller), {}).get((run.first, run.attempt), 0)
            yield _less(run, back_nanos) if back_nanos else run


def _less(run: UsageRun, back_nanos: int) -> UsageRun:
    """Return a run reduced by its voided amount."""
    cost_nanos = run.cost_nanos - back_nanos
    if not cost_nanos:
        return replace(run, cost_nanos=0, list_cost_nanos=0, state="void")
    return replace(run, cost_nanos=cost_nanos, list_cost_nanos=run.list_cost_nanos - back_nanos)


def _voided(connection: Connection) -> dict[tuple[str, str], dict[Key, int]]:
    """Return the amounts that buyers have voided, by job and seller, and by run.

    All are read, as they are few. The seller is empty for work that ran here or was passed on.
    """
    deliveries = _deliveries(postings.c.posted_at_s).where(_IS_VOID, _IS_OF_RUNS)
    voids: dict[tuple[str, str], list[tuple[UtcS, int]]] = {}
    for row in connection.execute(deliveries.order_by("job", "posted_at_s")):
        key = row.job, "" if row.side == "sell" else row.site
        voids.setdefault(key, []).append((row.posted_at_s, row.cost_nanos))
    of_job = (
        select(usage.c.ended_at_s, usage.c.first, usage.c.attempt, usage.c.cost_nanos)
        .where(usage.c.job == bindparam("job_name"), usage.c.cost_nanos > 0)
        .where(usage.c.kind == "time")
        .order_by(usage.c.ended_at_s, usage.c.first)
    )
    found = {}
    for key, each in voids.items():
        job, site = key
        # Work that we sold may have run at another site.
        query = of_job.where(usage.c.site == site) if site else of_job
        rows = connection.execute(query, {"job_name": job})
        found[key] = taken_back([(row[0], (row[1], row[2]), row[3]) for row in rows], each)
    return found


def corrections(
    connection: Connection, start_at_s: UtcS | None = None, end_at_s: UtcS | None = None
) -> Iterator[Correction]:
    """Yield the amounts reversed between sites in [start_at_s, end_at_s), in the order of time.

    The amount of a void delivery counts as reversed at the time of delivery.
    """
    voided = _deliveries(postings.c.posted_at_s).where(_IS_VOID)
    yield from _corrections(
        *connection.execute(_within(_reversed(), disputes.c.settled_at_s, start_at_s, end_at_s)),
        *connection.execute(_within(voided, postings.c.posted_at_s, start_at_s, end_at_s)),
    )


def refunds(
    connection: Connection,
    start_at_s: UtcS | None = None,
    end_at_s: UtcS | None = None,
    *,
    ran_here: bool = False,
) -> Iterator[UsageRun]:
    """Yield what was refunded between sites in [start_at_s, end_at_s), in the order of time.

    That is deliveries of which a dispute was accepted then. Beside `runs`, which have what was
    voided, so that both come to what the statements of that time have.
    """
    query = _within(_reversed(), disputes.c.settled_at_s, start_at_s, end_at_s)
    query = query.where(_IS_OF_RUNS)
    if ran_here:
        query = query.where(postings.c.side == "sell")
    return (each.refund for each in _corrections(*connection.execute(query)))


def _deliveries(taken_back_at_s: ColumnElement[float]) -> Select[Any]:
    """The deliveries that cost something, each with its contract.

    But for what we bought for another site: that has no usage record at the price that we paid.
    """
    is_sold = postings.c.side == "sell"
    return (
        select(
            *(postings.c[name] for name in ("side", "contract", "epoch", "first")),
            *(postings.c.posted_at_s, postings.c.cost_nanos, contracts.c.site),
            *(contracts.c.currency, contracts.c.pool),
            case((is_sold, SOLD_JOB), else_=contracts.c.job).label("job"),
            taken_back_at_s.label("taken_back_at_s"),
        )
        .join_from(postings, contracts, OF_CONTRACT)
        .where(postings.c.cost_nanos > 0, or_(is_sold, ~_IS_PASSED_ON))
    )


def _reversed() -> Select[Any]:
    """The deliveries of which a dispute was accepted."""
    query = _deliveries(disputes.c.settled_at_s).join(disputes, same_delivery(disputes))
    return query.where(disputes.c.state == "accepted")


def _corrections(*rows: Row[Any]) -> Iterator[Correction]:
    for row in sorted(rows, key=_moment):
        is_sold = row.side == "sell"
        yield Correction(
            corrects=f"{row.side}/{row.contract}/{row.epoch}/{row.first}",
            at_s=row.taken_back_at_s,
            corrected_at_s=row.posted_at_s,
            amount_nanos=row.cost_nanos,
            currency=row.currency,
            origin=row.site if is_sold else "",
            site="" if is_sold else row.site,
            pool=row.pool if is_sold else f"{row.site}/{row.pool}",
            job=row.job,
            kind="time" if row.epoch else "moved",
        )


def _moment(row: Row[Any]) -> tuple[UtcS, str, str, int, int]:
    return row.taken_back_at_s, row.side, row.contract, row.epoch, row.first


def _within(
    query: Select[Any], column: ColumnElement[Any], start: UtcS | int | None, end: UtcS | int | None
) -> Select[Any]:
    if start is not None:
        query = query.where(column >= start)
    if end is not None:
        query = query.where(column < end)
    return query
