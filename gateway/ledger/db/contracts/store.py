"""Contracts with other sites, and the deliveries under them."""

from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import Final, Protocol

from sqlalchemy import and_, func, select

from federation.clocks import UtcS
from gateway.ledger.db.contracts.queries import (
    by_contract,
    deliveries_query,
    postings_query,
    relayed_queries,
)
from gateway.ledger.db.contracts.records import (
    ContractRow,
    DealTotal,
    PendingDeliveries,
    PostingRow,
    RelayedTotal,
    UnsettledDeliveries,
)
from gateway.ledger.db.contracts.tables import (
    IS_PENDING,
    OF_CONTRACT,
    contracts,
    move_receipts,
    postings,
)
from gateway.ledger.db.database import OpenReader
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.settlement import queries
from gateway.ledger.db.settlement.tables import disputes

LATELY_S: Final = 3600.0  # before the last contract: how far a clock may have been set back

OF_JOB_MAX: Final = 100
KEYS_AT_ONCE: Final = 100  # that one query looks for
INT64_END: Final = 1 << 63


class ContractStore(Protocol):
    """Contracts with other sites, of both sides, and the deliveries under them."""

    def open(self) -> list[ContractRow]:
        """Return the contracts, of both sides, that have not ended."""

    def get(self, side: str, contract: str) -> ContractRow | None:
        """Return a contract, ended or not, or None if no contract has that name.

        Names are unique for a buyer, and thus for all contracts in which we buy.
        """

    def of_job(self, side: str, job: str) -> list[ContractRow]:
        """Return the contracts for a job, ended or not, in the order in which they were opened.

        OF_JOB_MAX at most.
        """

    def newest(self, side: str) -> list[tuple[str, str]]:
        """Return (site, contract) of the newest contracts with each site."""

    def partners(self, side: str | None = None) -> list[str]:
        """Return the sites that we ever had a contract with, by name; of one side or of both."""

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """Return the deliveries under a contract."""

    def postings_of(
        self, side: str, contract: str, keys: Iterable[tuple[int, int]]
    ) -> list[PostingRow]:
        """Return the deliveries under a contract that have one of these (epoch, first) keys.

        The time it takes grows with the keys, and not with the deliveries under the contract.
        """

    def proofs(self, side: str, contract: str) -> dict[tuple[int, int], tuple[bytes, bytes]]:
        """Return ticket and receipt of the moves under a contract, by the key of its delivery."""

    def totals(self) -> list[DealTotal]:
        """Sum up the deliveries to and by other sites."""

    def pending(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """Sum up by contract the deliveries in [start_at_s, end_at_s) that have no verdict yet."""

    def reversed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """Sum up by contract the deliveries in [start, end) that have been reversed since."""

    def voided(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """Sum up by contract the deliveries in [start_at_s, end_at_s) that are void: not paid."""

    def relayed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[RelayedTotal]:
        """Sum up the deliveries in [start, end) for jobs that we passed on between two sites.

        A reversal counts when its dispute was accepted, as in statements.
        """

    def unsettled(self, until_s: UtcS, records_max: int) -> list[UnsettledDeliveries]:
        """Count the deliveries before a moment that have no verdict yet, by site and side.

        Only the oldest `records_max` are read, so that the answer takes no longer where many wait.
        """

    def rules_used(self, start_at_s: UtcS, end_at_s: UtcS) -> dict[tuple[str, str], list[int]]:
        """Return the versions of our rules that contracts with deliveries in [start, end) name.

        By site and currency, in order.
        """


class SqlContracts:
    """The ContractStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def open(self) -> list[ContractRow]:
        """See ContractStore."""
        kept = [contracts.c[field.name] for field in fields(ContractRow)]
        query = select(*kept).where(contracts.c.ended_at_s.is_(None))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(contracts.c.opened_at_s)).all()
            return [ContractRow(*row) for row in rows]

    def get(self, side: str, contract: str) -> ContractRow | None:
        """See ContractStore."""
        kept = [contracts.c[field.name] for field in fields(ContractRow)]
        query = select(*kept).where(contracts.c.side == side, contracts.c.contract == contract)
        with self._reading() as connection:
            row = connection.execute(query).first()
            return ContractRow(*row) if row is not None else None

    def of_job(self, side: str, job: str) -> list[ContractRow]:
        """See ContractStore."""
        kept = [contracts.c[field.name] for field in fields(ContractRow)]
        query = select(*kept).where(contracts.c.side == side, contracts.c.job == job)
        order = contracts.c.opened_at_s, contracts.c.contract
        with self._reading() as connection:
            rows = connection.execute(query.order_by(*order).limit(OF_JOB_MAX)).all()
            return [ContractRow(*row) for row in rows]

    def newest(self, side: str) -> list[tuple[str, str]]:
        """See ContractStore."""
        last = (
            select(contracts.c.site, func.max(contracts.c.opened_at_s).label("at_s"))
            .where(contracts.c.side == side)
            .group_by(contracts.c.site)
            .subquery()
        )
        query = (
            select(contracts.c.site, contracts.c.contract)
            .join(last, last.c.site == contracts.c.site)
            .where(contracts.c.side == side, contracts.c.opened_at_s >= last.c.at_s - LATELY_S)
        )
        with self._reading() as connection:
            return [(site, contract) for site, contract in connection.execute(query)]

    def partners(self, side: str | None = None) -> list[str]:
        """See ContractStore."""
        query = select(contracts.c.site).distinct()
        if side is not None:
            query = query.where(contracts.c.side == side)
        with self._reading() as connection:
            return sorted(connection.scalars(query))  # as Python sorts, in any database

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """See ContractStore."""
        kept = [postings.c[field.name] for field in fields(PostingRow)]
        query = select(*kept).where(postings.c.side == side, postings.c.contract == contract)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(postings.c.epoch, postings.c.first)).all()
            return [PostingRow(*row) for row in rows]

    def postings_of(
        self, side: str, contract: str, keys: Iterable[tuple[int, int]]
    ) -> list[PostingRow]:
        """See ContractStore."""
        # No database holds greater numbers, and SQLite refuses to look for one.
        asked = sorted({each for each in keys if max(map(abs, each)) < INT64_END})
        found: list[PostingRow] = []
        with self._reading() as connection:
            for at in range(0, len(asked), KEYS_AT_ONCE):
                query = postings_query(side, contract, asked[at : at + KEYS_AT_ONCE])
                rows = connection.execute(query)
                found.extend(PostingRow(*row) for row in rows)
        return found

    def proofs(self, side: str, contract: str) -> dict[tuple[int, int], tuple[bytes, bytes]]:
        """See ContractStore."""
        table = move_receipts.c
        query = select(table.epoch, table.first, table.ticket, table.receipt).where(
            table.side == side, table.contract == contract
        )
        with self._reading() as connection:
            rows = connection.execute(query)
            return {(row.epoch, row.first): (row.ticket, row.receipt) for row in rows}

    def totals(self) -> list[DealTotal]:
        """See ContractStore."""
        key = [contracts.c.site, contracts.c.side, contracts.c.currency, postings.c.state]
        query = (
            select(*key, *exact_sums(postings.c.tasks, postings.c.wall_ns, postings.c.cost_nanos))
            .join_from(postings, contracts, OF_CONTRACT)
            .group_by(*key)
            .order_by(*key)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
            return [DealTotal(*row[: len(key)], *joined(row[len(key) :])) for row in rows]

    def pending(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        with self._reading() as connection:
            return by_contract(connection, deliveries_query(start_at_s, end_at_s).where(IS_PENDING))

    def reversed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        query = (
            deliveries_query(start_at_s, end_at_s)
            .join(disputes, queries.same_delivery(disputes))
            .where(disputes.c.state == "accepted")
        )
        with self._reading() as connection:
            return by_contract(connection, query)

    def voided(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        query = deliveries_query(start_at_s, end_at_s).where(postings.c.state == "void")
        with self._reading() as connection:
            return by_contract(connection, query)

    def relayed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[RelayedTotal]:
        """See ContractStore."""
        found = []
        with self._reading() as connection:
            for query in relayed_queries(start_at_s, end_at_s):
                for *key, tasks_high, tasks_low, cost_high, cost_low in connection.execute(query):
                    sums = joined((tasks_high, tasks_low, cost_high, cost_low))
                    found.append(RelayedTotal(*key, *sums))
        return sorted(found, key=astuple)

    def rules_used(self, start_at_s: UtcS, end_at_s: UtcS) -> dict[tuple[str, str], list[int]]:
        """See ContractStore."""
        at, names = postings.c.posted_at_s, (contracts.c.site, contracts.c.currency)
        query = (
            select(*names, contracts.c.rules)
            .join_from(postings, contracts, OF_CONTRACT)
            .where(at >= start_at_s, at < end_at_s, contracts.c.rules > 0)
            .distinct()
            .order_by(*names, contracts.c.rules)
        )
        found: dict[tuple[str, str], list[int]] = {}
        with self._reading() as connection:
            for site, currency, version in connection.execute(query):
                found.setdefault((site, currency), []).append(version)
        return found

    def unsettled(self, until_s: UtcS, records_max: int) -> list[UnsettledDeliveries]:
        """See ContractStore."""
        at = postings.c.posted_at_s
        oldest = (
            select(postings.c.side, postings.c.contract)
            .where(IS_PENDING, at < until_s)
            .order_by(at)
            .limit(records_max)
            .subquery()
        )
        is_theirs = and_(
            contracts.c.side == oldest.c.side, contracts.c.contract == oldest.c.contract
        )
        key = contracts.c.site, contracts.c.side
        query = (
            select(*key, func.count())
            .join_from(oldest, contracts, is_theirs)
            .group_by(*key)
            .order_by(*key)
        )
        with self._reading() as connection:
            return [UnsettledDeliveries(*row) for row in connection.execute(query)]
