"""The queries of deliveries; they run in the caller's transaction."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    and_,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
)

from federation.clocks import CALENDAR_END_S, UtcS
from gateway.ledger.db.contracts.overhead import DeliveryKey, Part, apart, overhead
from gateway.ledger.db.contracts.records import PendingDeliveries, PostingRow
from gateway.ledger.db.contracts.tables import OF_CONTRACT, SOLD_JOB, contracts, postings
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.jobs.tables import jobs
from gateway.ledger.db.settlement.queries import same_delivery
from gateway.ledger.db.settlement.tables import disputes
from gateway.ledger.db.usage.tables import IS_OVERHEAD, usage


def deliveries_query(start_at_s: UtcS, end_at_s: UtcS) -> Select[Any]:
    """Return the query for the deliveries in [start_at_s, end_at_s), for `by_contract`."""
    at = postings.c.posted_at_s
    return (
        select(
            *(postings.c[name] for name in ("side", "contract", "epoch", "first", "tasks")),
            *(postings.c.cost_nanos, at),
            *(contracts.c[name] for name in ("site", "pool", "job", "currency")),
        )
        .join_from(postings, contracts, OF_CONTRACT)
        .where(at >= start_at_s, at < end_at_s)
    )


def relayed_queries(start_at_s: UtcS, end_at_s: UtcS) -> Iterator[Select[Any]]:
    """Yield the queries of `ContractStore.relayed`, of deliveries and then of reversals."""
    passed_on = contracts.c.job.contains(":", autoescape=True)
    is_bought = and_(contracts.c.side == "buy", passed_on)
    bought = contracts.alias()
    jobs_passed_on = select(bought.c.job).where(
        bought.c.side == "buy", bought.c.job.contains(":", autoescape=True)
    )
    is_sold = and_(contracts.c.side == "sell", SOLD_JOB.in_(jobs_passed_on))
    amounts = exact_sums(postings.c.tasks, postings.c.cost_nanos)
    for condition, job in ((is_sold, SOLD_JOB), (is_bought, contracts.c.job)):
        key = [contracts.c.side, contracts.c.site, job.label("job"), contracts.c.currency]
        by = [contracts.c.side, contracts.c.site, contracts.c.job, contracts.c.currency]
        chosen = (
            select(*key, postings.c.state, *amounts)
            .join_from(postings, contracts, OF_CONTRACT)
            .where(condition)
        )
        at = postings.c.posted_at_s
        yield chosen.where(at >= start_at_s, at < end_at_s).group_by(*by, postings.c.state)
        at = disputes.c.settled_at_s
        yield (
            select(*key, literal("reversed"), *amounts)
            .join_from(postings, contracts, OF_CONTRACT)
            .join(disputes, same_delivery(disputes))
            .where(condition, disputes.c.state == "accepted", at >= start_at_s, at < end_at_s)
            .group_by(*by)
        )


def by_contract(connection: Connection, query: Select[Any]) -> list[PendingDeliveries]:
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
    group = select(func.min(usage.c.group)).where(of_job, ~IS_OVERHEAD).scalar_subquery()
    is_overhead = exists().where(of_job, usage.c.site == sums.c.site, IS_OVERHEAD)
    asked = select(*sums.c, func.coalesce(group, ""), and_(sums.c.side == "buy", is_overhead))
    found: list[PendingDeliveries] = []
    known: dict[tuple[str, str], dict[DeliveryKey, tuple[int, int]]] = {}
    for contract, *row, user_group, has_overhead in connection.execute(asked).all():
        whole = PendingDeliveries(*(*row[:-4], *joined(row[-4:]), user_group))
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
    query = deliveries_query(UtcS(0.0), CALENDAR_END_S).where(
        postings.c.side == "buy", contracts.c.site == site, contracts.c.job == job
    )
    used = select(usage.c.first, usage.c.tasks, usage.c.cost_nanos, usage.c.ended_at_s).where(
        usage.c.job == job, usage.c.site == site, usage.c.records == 1, IS_OVERHEAD
    )
    return overhead(_parts(connection, query), (Part(*row) for row in connection.execute(used)))


def _parts(connection: Connection, query: Select[Any]) -> dict[DeliveryKey, Part]:
    return {
        (row.contract, row.epoch, row.first): Part(
            row.first, row.tasks, row.cost_nanos, row.posted_at_s
        )
        for row in connection.execute(query)
    }


def postings_query(side: str, contract: str, keys: Iterable[tuple[int, int]]) -> Select[Any]:
    """Return the query for the deliveries under a contract with these (epoch, first) keys.

    SQLite searches by the primary key where each part of it has all of that key. Else, and also for
    a list of keys, it reads the whole contract.
    """
    of_contract = postings.c.side == side, postings.c.contract == contract
    some = (
        and_(*of_contract, postings.c.epoch == epoch, postings.c.first == first)
        for epoch, first in keys
    )
    kept = [postings.c[field.name] for field in fields(PostingRow)]
    return select(*kept).where(or_(*some)).order_by(postings.c.epoch, postings.c.first)
