"""Long or shared queries; they run in the caller's transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    Table,
    and_,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.overhead import DeliveryKey, Part, apart, overhead
from gateway.ledger.db.records import HOUR_S, TIME_LIMIT_S
from gateway.ledger.db.rows import Dimension, JobRow, Pending, UsageTotal
from gateway.ledger.db.tables import (
    OF_CONTRACT,
    SUMMED,
    contracts,
    jobs,
    postings,
    usage,
    usage_hours,
)

# As UsageRecord.is_overhead.
_IS_OVERHEAD: Final = and_(
    usage.c.cost_nanos > 0,
    or_(
        usage.c.state.in_(("repeat", "void", "lost")),
        and_(usage.c.state == "preempted", usage.c.price_class != "preemptible"),
    ),
)
_DETAILS: Final = frozenset({Dimension.JOB, Dimension.WORKER})


def hours_between(start_s: float, end_s: float) -> tuple[int, int]:
    """Return the hours, counted from 1970-01-01T00, that begin in [start_s, end_s)."""
    return -int(-start_s // HOUR_S), -int(-end_s // HOUR_S)


def totals_query(
    by: Sequence[Dimension],
    start_s: float | None,
    end_s: float | None,
    only: Mapping[Dimension, str | int],
) -> Select[Any]:
    """Return the query of `UsageStore.totals`: on the hourly sums where those suffice."""
    bounds = [each for each in (start_s, end_s) if each is not None]
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
    period = [at >= start_s / unit] if start_s is not None else []
    if end_s is not None:
        period.append(at < end_s / unit)
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


def deliveries_query(start_s: float, end_s: float) -> Select[Any]:
    """Return the query for the deliveries in [start_s, end_s), for `by_contract`."""
    at = postings.c.posted_at_s
    return (
        select(
            *(postings.c[name] for name in ("side", "contract", "epoch", "first", "tasks")),
            *(postings.c.cost_nanos, at),
            *(contracts.c[name] for name in ("site", "pool", "job", "currency")),
        )
        .join_from(postings, contracts, OF_CONTRACT)
        .where(at >= start_s, at < end_s)
    )


def by_contract(connection: Connection, query: Select[Any]) -> list[Pending]:
    """Return the sums by contract of a `deliveries_query`, perhaps with more conditions.

    Overhead of this site is told apart from the cost of its user.
    """
    chosen = query.subquery().c
    key = [
        *(chosen.side, chosen.site, chosen.pool, chosen.job),
        *(func.coalesce(jobs.c[name], "").label(name) for name in ("user", "project", "name")),
        chosen.currency,
    ]
    sums = (
        select(chosen.contract, *key, cast(func.count(), BigInteger), func.min(chosen.posted_at_s))
        .add_columns(*exact_sums(chosen.tasks, chosen.cost_nanos))
        .join(jobs, jobs.c.job == chosen.job, isouter=True)
        .group_by(chosen.contract, *key)
        .subquery()
    )
    # Which group its user was in, and whether anything of it is overhead, stands in the job's
    # usage: asked once for each contract.
    of_job = usage.c.job == sums.c.job
    group = select(func.min(usage.c.group)).where(of_job, ~_IS_OVERHEAD).scalar_subquery()
    is_overhead = exists().where(of_job, usage.c.site == sums.c.site, _IS_OVERHEAD)
    asked = select(*sums.c, func.coalesce(group, ""), and_(sums.c.side == "buy", is_overhead))
    found: list[Pending] = []
    known: dict[tuple[str, str], dict[DeliveryKey, tuple[int, int]]] = {}
    for contract, *row, user_group, has_overhead in connection.execute(asked).all():
        whole = Pending(*(*row[:-4], *joined(row[-4:]), user_group))
        if not has_overhead:
            found.append(whole)
            continue
        job, site = whole.job, whole.site
        if (job, site) not in known:
            known[job, site] = _overhead(connection, job, site)
        theirs = select(*chosen).where(chosen.side == "buy", chosen.contract == contract)
        found += apart(whole, _parts(connection, theirs), known[job, site])
    return sorted(found, key=astuple)


def _overhead(connection: Connection, job: str, site: str) -> dict[DeliveryKey, tuple[int, int]]:
    """Return the overhead in the deliveries of a site for a job, by delivery."""
    query = deliveries_query(0.0, TIME_LIMIT_S).where(
        postings.c.side == "buy", contracts.c.site == site, contracts.c.job == job
    )
    used = select(usage.c.first, usage.c.tasks, usage.c.cost_nanos, usage.c.ended_at_s).where(
        usage.c.job == job, usage.c.site == site, usage.c.records == 1, _IS_OVERHEAD
    )
    return overhead(_parts(connection, query), (Part(*row) for row in connection.execute(used)))


def _parts(connection: Connection, query: Select[Any]) -> dict[DeliveryKey, Part]:
    return {
        (row.contract, row.epoch, row.first): Part(
            row.first, row.tasks, row.cost_nanos, row.posted_at_s
        )
        for row in connection.execute(query)
    }


def usage_total(keys: int, row: Row[Any]) -> UsageTotal:
    """Return the total in a row of `totals_query`, for so many dimensions."""
    return UsageTotal(tuple(row[:keys]), *row[keys : keys + 3], *joined(row[keys + 3 :]))


def _column(table: Table, dimension: Dimension) -> ColumnElement[Any]:
    if dimension is Dimension.DAY:
        return table.c.hour // literal_column("24", BigInteger)
    return table.c[dimension.value]


def with_usage(connection: Connection, found: Sequence[Row[Any]]) -> list[JobRow]:
    """Add its usage to each job, within the transaction that found it."""
    is_lost = usage.c.state == literal_column("'lost'", String)  # only its later run counts
    is_repeat = usage.c.state == literal_column("'repeat'", String)
    ran_ns = (
        *(
            case((is_lost, literal_column("0")), else_=each)
            for each in (usage.c.wall_ns, usage.c.cpu_ns)
        ),
        case((is_repeat, usage.c.wall_ns), else_=literal_column("0")),
    )
    # The cost of a repeat is its site's overhead.
    charged_nanos = case((is_repeat, literal_column("0")), else_=usage.c.cost_nanos)
    query = (
        select(usage.c.job, usage.c.currency)
        .add_columns(func.max(usage.c.price_nanos), func.max(usage.c.attempt))
        .add_columns(*exact_sums(*ran_ns, charged_nanos))
        .where(usage.c.job.in_([row.job for row in found]))
        .group_by(usage.c.job, usage.c.currency)
        .order_by(usage.c.job, usage.c.currency)
    )
    wall_ns = dict.fromkeys((row.job for row in found), 0)
    cpu_ns = dict(wall_ns)
    costs_nanos: dict[str, dict[str, int]] = {row.job: {} for row in found}
    prices_nanos: dict[str, dict[str, int]] = {row.job: {} for row in found}
    attempt_max, repeat_ns = dict(wall_ns), dict(wall_ns)
    for job, currency, price, attempt, *halves in connection.execute(query):
        wall, cpu, repeat, cost = joined(halves)
        wall_ns[job] += wall
        cpu_ns[job] += cpu
        repeat_ns[job] += repeat
        costs_nanos[job][currency] = cost
        prices_nanos[job][currency] = price
        attempt_max[job] = max(attempt_max[job], attempt)
    return [
        JobRow(
            job=row.job,
            name=row.name,
            user=row.user,
            project=row.project,
            detached=row.detached,
            spec=row.spec,
            submitted_at_s=row.submitted_at_s,
            total=row.total,
            state=row.state,
            reason=row.reason,
            ended_at_s=row.ended_at_s,
            done=row.done,
            failed=row.failed,
            cancelled=row.cancelled,
            forgotten=row.forgotten,
            wall_ns=wall_ns[row.job],
            cpu_ns=cpu_ns[row.job],
            costs_nanos=costs_nanos[row.job],
            prices_nanos=prices_nanos[row.job],
            attempt_max=attempt_max[row.job],
            repeat_ns=repeat_ns[row.job],
        )
        for row in found
    ]


def ranges(connection: Connection, query: Any) -> list[Any]:
    """Return each row as a tuple."""
    return [tuple(row) for row in connection.execute(query)]
