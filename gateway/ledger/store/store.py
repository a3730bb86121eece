"""The interface between a gateway and its store, and the store on SQLAlchemy that implements it.

Writing is asynchronous: `write` queues and returns, and calls `done` after the commit. Reading is
synchronous, sees committed data, and is allowed from any thread that may block: a read takes its
time, and waits for a connection while all `database.READERS` are in use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Protocol

from sqlalchemy import (
    Connection,
    func,
    select,
    text,
    union_all,
)

from federation.messages.reconciliation import Entry, Sums
from gateway.ledger.accounting.journal import Booked, booked
from gateway.ledger.accounting.journal import balances as read_balances
from gateway.ledger.accounting.merging import IS_CHARGE
from gateway.ledger.accounting.postings import Account, Balance
from gateway.ledger.accounting.rollup import Piece, pieces
from gateway.ledger.audit.deliveries import undercharged
from gateway.ledger.db import mirror
from gateway.ledger.db.database import Database
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.queries import (
    by_contract,
    deliveries_query,
    hours_between,
    ranges,
    totals_query,
    usage_total,
    with_usage,
)
from gateway.ledger.db.records import (
    AttachedLost,
    Capacity,
    PaymentsTold,
    Record,
    ReservationKept,
    SliceHeld,
    SliceLent,
    StatementKept,
)
from gateway.ledger.db.rows import (
    AlertRow,
    CapacityTotal,
    ContractRow,
    DealTotal,
    Dimension,
    DisputeRow,
    JobRow,
    KeptRange,
    PaymentRow,
    Pending,
    PostingRow,
    UsageTotal,
    UsedRun,
)
from gateway.ledger.db.tables import (
    IS_PENDING,
    OF_CONTRACT,
    alerts,
    bundles,
    capacity,
    contracts,
    disputes,
    functions,
    jobs,
    outcomes,
    postings,
    reservations,
    slices_held,
    slices_lent,
    usage,
    usage_ranges,
)
from gateway.ledger.store.writer import Writer

# Bundles per page of `bundles`: a reader holds no transaction open while its caller works.
_PAGE: Final = 16
_NAMES: Final = 10_000  # reservations per page
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
OPEN_STATES: Final = ("held", "booking", "booked", "releasing")  # of reservations
LATELY_S: Final = 3600.0  # before the last contract: how far a clock may have been set back


class Store(Protocol):
    """The operations that a gateway needs of its store; tests/gateway/ledger has its contract."""

    @property
    def backlog(self) -> int:
        """The number of accepted records that are not committed; intake pushes back on it."""

    @property
    def backlog_bytes(self) -> int:
        """The bytes of the bodies among them."""

    def write(self, records: Sequence[Record], durable: bool, done: Callable[[], None]) -> None:
        """Commit records, all or none, after all earlier writes; return soon.

        `done` is called once they are committed, in the order of the calls: from another thread,
        or, for a small write on an empty queue, from this one before `write` returns. It must not
        raise. If `durable`, a commit survives a power cut; otherwise it survives the death of this
        process. Raises StoreClosed or StoreFailed.
        """

    def mark_lost(self, now_s: float) -> None:
        """End every open attached job with the state "lost", queued like any write.

        For the start of a gateway: those jobs died with the gateway before it.
        """

    def jobs(self, limit: int, user: str | None = None, project: str | None = None) -> list[JobRow]:
        """Return the jobs submitted last, latest first."""

    def job(self, job: str) -> JobRow | None:
        """Return one job, or None if it never existed."""

    def unfinished(self) -> list[JobRow]:
        """Return the detached jobs that have not ended, in the order of submission."""

    def forgettable(self, start_s: float, end_s: float, limit: int) -> list[str]:
        """Return detached jobs that ended in [start_s, end_s) and are not forgotten, in order."""

    def function(self, digest: bytes) -> bytes | None:
        """Return a stored function."""

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """Yield the stored arguments of a job in task order."""

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """Return up to `limit` stored ranges of results, from the one that holds task `start` on.

        In task order; tasks without a result yet are left out. The next page starts at the last
        first + count of this one.
        """

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """Return (first, count) of every stored range of results in task order."""

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """Return (first, tasks) of every charged range, in task order; ranges may overlap."""

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """Return a job's runs from its first wasted attempt on, by attempt; empty without one."""

    def usage_totals(
        self,
        by: Sequence[Dimension],
        start_s: float | None = None,
        end_s: float | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """Sum up the usage that ended in [start_s, end_s) by dimensions and currency, in order.

        `only` selects usage by these values. Whole hours are fast.
        """

    def capacity_totals(self, start_s: float, end_s: float) -> list[CapacityTotal]:
        """Sum up the slot time of the hours that begin in [start_s, end_s), in order."""

    def capacity_of(self, pool: str, hour: int) -> list[Capacity]:
        """Return the written capacity of a pool in an hour, counted from 1970-01-01T00."""

    def pending(self, start_s: float, end_s: float) -> list[Pending]:
        """Sum up by contract the deliveries in [start_s, end_s) that have no verdict yet."""

    def reversed(self, start_s: float, end_s: float) -> list[Pending]:
        """Sum up by contract the deliveries in [start_s, end_s) that have been reversed since."""

    def voided(self, start_s: float, end_s: float) -> list[Pending]:
        """Sum up by contract the deliveries in [start_s, end_s) that are void: not paid."""

    def unlike(self, site: str, limit: int) -> list[str]:
        """Describe the jobs between a site and us whose charges differ from their deliveries."""

    def open_contracts(self) -> list[ContractRow]:
        """Return the contracts, of both sides, that have not ended."""

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """Return the deliveries under a contract."""

    def contract(self, side: str, contract: str) -> ContractRow | None:
        """Return a contract, ended or not, or None if no contract has that name.

        Names are unique for a buyer, and thus for all contracts in which we buy.
        """

    def last_contracts(self, side: str) -> list[tuple[str, str]]:
        """Return (site, contract) of the newest contracts with each site."""

    def partners(self, side: str | None = None) -> list[str]:
        """Return the sites that we ever had a contract with, by name; of one side or of both."""

    def deal_totals(self) -> list[DealTotal]:
        """Sum up the deliveries to and by other sites."""

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """Yield the deliveries and reversals of one side with a site in [first_ms, stop_ms).

        By contract, epoch, first task and state; of all contracts when none is named. Void
        deliveries are left out. To be consumed in one thread.
        """

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """Sum up the `entries` of all contracts, by currency."""

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """Return `entry_sums`, and the sums of the `voids`, counted as deliveries."""

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """Yield the void deliveries of that time, in the same order."""

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """Return the booking time of the first delivery or reversal at or after this moment."""

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """Return disputes, oldest first: all, those of a contract, or those without an answer."""

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """Return the results of reconciliation with other sites, by site, side and time.

        Of one side, and of one site, if these are named.
        """

    def payments(self, site: str = "") -> list[PaymentRow]:
        """Return all payments, oldest first, including reversed ones.

        Only those with one site, if it is named.
        """

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """Return the last report of each other site on its booked payments, by site.

        Of one site, if it is named.
        """

    def alerts(self) -> list[AlertRow]:
        """Return every alert as it fired last, in order."""

    def reservation(self, side: str, name: str) -> ReservationKept | None:
        """Return a reservation in any state, or None if no reservation has that name."""

    def reservation_names(self, side: str) -> Iterator[tuple[str, str]]:
        """Yield (site, reservation) of every reservation ever made with other sites on a side."""

    def reservations(
        self, limit: int, is_open: bool = False, start: int = 0
    ) -> list[ReservationKept]:
        """Return `limit` reservations, latest end first, or all open ones.

        `start` skips the first ones, unless `is_open`.
        """

    def slices_lent(self) -> list[SliceLent]:
        """Return the newest record of each share of our budgets held by another site, in order."""

    def slices_held(self) -> list[SliceHeld]:
        """Return our accounts of other sites' budgets that are not closed, in order."""

    def balances(self) -> dict[Account, Balance]:
        """Sum up the transfers by account."""

    def booked(self, after: int, limit: int) -> list[Booked]:
        """Return up to `limit` transfers, in order, from the one after number `after` on."""

    def roll_up(self, now_s: float, keep_s: float) -> bool:
        """Roll up one piece of the records older than `keep_s`; return False when nothing is left.

        A roll-up in progress continues with the time at which it began. No sum changes. A store
        that keeps its data for only hours need do nothing.
        """

    def close(self) -> None:
        """Commit the queue and release all resources.

        If the disk is full it tries once more and then raises StoreFailed: the unwritten records
        were never acknowledged.
        """


class SqlStore:
    """A Store on SQLite, `sqlite:////path/to/ledger.db`, or PostgreSQL.

    `postgresql+psycopg://user@host/name` needs gridfed[postgres].

    Opening brings the schema up to date and raises StoreInUse, StoreTooNew, or StoreError.
    `on_trouble(reason)` is called when the disk is full, or when the database is locked by another
    program or unreachable: all writes wait, nothing is lost, and the writer retries each second;
    `on_trouble(None)` is called when that is over. `on_fatal(error)` is called when the writer has
    stopped for good: nothing is acknowledged from then on, and the gateway should end. Both are
    called from the writer's thread.
    """

    def __init__(
        self,
        url: str,
        on_trouble: Callable[[str | None], None] | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._database = Database(url)
        self._writer = Writer(self._database, on_trouble or _ignore, on_fatal or _ignore)
        self._rolling: Iterator[Piece] | None = None
        self._closed = False

    @property
    def backlog(self) -> int:
        """See Store."""
        return self._writer.backlog

    @property
    def backlog_bytes(self) -> int:
        """See Store."""
        return self._writer.backlog_bytes

    def write(self, records: Sequence[Record], durable: bool, done: Callable[[], None]) -> None:
        """See Store."""
        self._writer.write(records, durable, done)

    def mark_lost(self, now_s: float) -> None:
        """See Store."""
        self._writer.write([AttachedLost(now_s)], durable=False, done=lambda: None)

    def jobs(self, limit: int, user: str | None = None, project: str | None = None) -> list[JobRow]:
        """See Store."""
        chosen = [jobs.c.user == user] if user is not None else []
        if project is not None:
            chosen.append(jobs.c.project == project)
        # Jobs of equal time are ordered by id, so that the list is the same each time.
        newest = select(jobs).where(*chosen).order_by(jobs.c.submitted_at_s.desc(), jobs.c.job)
        with self._reading() as connection:
            return with_usage(connection, connection.execute(newest.limit(limit)).all())

    def job(self, job: str) -> JobRow | None:
        """See Store."""
        with self._reading() as connection:
            found = connection.execute(select(jobs).where(jobs.c.job == job)).all()
            return next(iter(with_usage(connection, found)), None)

    def unfinished(self) -> list[JobRow]:
        """See Store."""
        query = select(jobs).where(jobs.c.ended_at_s.is_(None), jobs.c.detached)
        with self._reading() as connection:
            found = connection.execute(query.order_by(jobs.c.submitted_at_s, jobs.c.job)).all()
            return with_usage(connection, found)

    def forgettable(self, start_s: float, end_s: float, limit: int) -> list[str]:
        """See Store."""
        at = jobs.c.ended_at_s
        query = select(jobs.c.job).where(
            at >= start_s, at < end_s, jobs.c.detached, ~jobs.c.forgotten
        )
        with self._reading() as connection:
            return list(connection.scalars(query.order_by(at, jobs.c.job).limit(limit)))

    def function(self, digest: bytes) -> bytes | None:
        """See Store."""
        query = select(functions.c.body).where(functions.c.digest == digest)
        with self._reading() as connection:
            return connection.execute(query).scalar()

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """See Store."""
        kept = bundles.c
        after = -1
        while True:
            query = select(kept.first, kept.count, kept.body).where(
                kept.job == job, kept.first > after
            )
            with self._reading() as connection:
                page = ranges(connection, query.order_by(kept.first).limit(_PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """See Store."""
        kept = outcomes.c
        holder = select(func.max(kept.first)).where(kept.job == job, kept.first <= start)
        query = (
            select(kept.first, kept.count, kept.body)
            .where(kept.job == job, kept.first + kept.count > start)
            # A second, redundant condition: only this one can use the index.
            .where(kept.first >= func.coalesce(holder.scalar_subquery(), start))
        )
        with self._reading() as connection:
            return ranges(connection, query.order_by(kept.first).limit(limit))

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """See Store."""
        query = select(outcomes.c.first, outcomes.c.count).where(outcomes.c.job == job)
        with self._reading() as connection:
            return ranges(connection, query.order_by(outcomes.c.first))

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """See Store."""
        written = select(usage.c.first, usage.c.tasks, usage.c.attempt).where(
            usage.c.job == job, usage.c.records == 1, IS_CHARGE
        )
        rolled_up = select(
            usage_ranges.c.first, usage_ranges.c.tasks, usage_ranges.c.attempt
        ).where(usage_ranges.c.job == job, usage_ranges.c.is_charge)
        both = union_all(written, rolled_up).subquery()
        with self._reading() as connection:
            query = select(both.c.first, both.c.tasks).order_by(both.c.first, both.c.attempt)
            return ranges(connection, query)

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """See Store."""
        wasted = select(func.min(usage.c.attempt)).where(
            usage.c.job == job, usage.c.state == text("'wasted'")
        )
        query = (
            select(*(usage.c[field.name] for field in fields(UsedRun)))
            .where(usage.c.job == job, usage.c.records == 1)
            .where(usage.c.attempt >= wasted.scalar_subquery())
            .order_by(usage.c.attempt, usage.c.first)
        )
        with self._reading() as connection:
            return [UsedRun(*row) for row in connection.execute(query)]

    def usage_totals(
        self,
        by: Sequence[Dimension],
        start_s: float | None = None,
        end_s: float | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See Store."""
        query = totals_query(by, start_s, end_s, only)
        with self._reading() as connection:
            return [usage_total(len(by), row) for row in connection.execute(query)]

    def capacity_totals(self, start_s: float, end_s: float) -> list[CapacityTotal]:
        """See Store."""
        start, end = hours_between(start_s, end_s)
        query = (
            select(capacity.c.pool, capacity.c.hour, *exact_sums(capacity.c.slot_ns))
            .where(capacity.c.hour >= start, capacity.c.hour < end)
            .group_by(capacity.c.pool, capacity.c.hour)
            .order_by(capacity.c.pool, capacity.c.hour)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [CapacityTotal(*row[:2], *joined(row[2:])) for row in rows]

    def capacity_of(self, pool: str, hour: int) -> list[Capacity]:
        """See Store."""
        kept = [capacity.c[field.name] for field in fields(Capacity)]
        query = select(*kept).where(capacity.c.pool == pool, capacity.c.hour == hour)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(capacity.c.since_s)).all()
            return [Capacity(*row) for row in rows]

    def pending(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        with self._reading() as connection:
            return by_contract(connection, deliveries_query(start_s, end_s).where(IS_PENDING))

    def reversed(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        query = (
            deliveries_query(start_s, end_s)
            .join(disputes, mirror.same_delivery(disputes))
            .where(disputes.c.state == "accepted")
        )
        with self._reading() as connection:
            return by_contract(connection, query)

    def voided(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        query = deliveries_query(start_s, end_s).where(postings.c.state == "void")
        with self._reading() as connection:
            return by_contract(connection, query)

    def unlike(self, site: str, limit: int) -> list[str]:
        """See Store."""
        with self._reading() as connection, closing(undercharged(connection, site)) as found:
            return list(islice(found, limit))

    def open_contracts(self) -> list[ContractRow]:
        """See Store."""
        kept = [contracts.c[field.name] for field in fields(ContractRow)]
        query = select(*kept).where(contracts.c.ended_at_s.is_(None))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(contracts.c.opened_at_s)).all()
            return [ContractRow(*row) for row in rows]

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """See Store."""
        kept = [postings.c[field.name] for field in fields(PostingRow)]
        query = select(*kept).where(postings.c.side == side, postings.c.contract == contract)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(postings.c.epoch, postings.c.first)).all()
            return [PostingRow(*row) for row in rows]

    def contract(self, side: str, contract: str) -> ContractRow | None:
        """See Store."""
        kept = [contracts.c[field.name] for field in fields(ContractRow)]
        query = select(*kept).where(contracts.c.side == side, contracts.c.contract == contract)
        with self._reading() as connection:
            row = connection.execute(query).first()
            return ContractRow(*row) if row is not None else None

    def last_contracts(self, side: str) -> list[tuple[str, str]]:
        """See Store."""
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
        """See Store."""
        query = select(contracts.c.site).distinct()
        if side is not None:
            query = query.where(contracts.c.side == side)
        with self._reading() as connection:
            return sorted(connection.scalars(query))  # as Python sorts, whatever the database does

    def deal_totals(self) -> list[DealTotal]:
        """See Store."""
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

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """See Store."""
        with self._reading() as connection:
            yield from mirror.entries(connection, side, site, first_ms, stop_ms, contract)

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """See Store."""
        with self._reading() as connection:
            return mirror.sums(connection, side, site, first_ms, stop_ms)

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """See Store."""
        with self._reading() as connection:
            yield from mirror.voids(connection, side, site, first_ms, stop_ms, contract)

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """See Store."""
        with self._reading() as connection:
            return mirror.verdict_sums(connection, side, site, first_ms, stop_ms)

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """See Store."""
        with self._reading() as connection:
            return mirror.next_delivery_ms(connection, side, site, since_ms)

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """See Store."""
        with self._reading() as connection:
            return mirror.read_disputes(connection, contract, is_open)

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """See Store."""
        with self._reading() as connection:
            return mirror.read_statements(connection, side, site)

    def payments(self, site: str = "") -> list[PaymentRow]:
        """See Store."""
        with self._reading() as connection:
            return mirror.read_payments(connection, site)

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """See Store."""
        with self._reading() as connection:
            return mirror.read_payments_told(connection, site)

    def alerts(self) -> list[AlertRow]:
        """See Store."""
        kept = [alerts.c[field.name] for field in fields(AlertRow)]
        query = select(*kept).order_by(*alerts.primary_key.columns)
        with self._reading() as connection:
            return [AlertRow(*row) for row in connection.execute(query)]

    def reservation(self, side: str, name: str) -> ReservationKept | None:
        """See Store."""
        kept = [reservations.c[field.name] for field in fields(ReservationKept)]
        query = select(*kept).where(reservations.c.side == side, reservations.c.reservation == name)
        with self._reading() as connection:
            row = connection.execute(query).first()
            return ReservationKept(*row) if row is not None else None

    def reservation_names(self, side: str) -> Iterator[tuple[str, str]]:
        """See Store."""
        query = select(reservations.c.site, reservations.c.reservation).where(
            reservations.c.side == side, reservations.c.site != ""
        )
        with self._reading() as connection:
            found = connection.execute(query.execution_options(yield_per=_NAMES))
            yield from ((site, name) for site, name in found)

    def reservations(
        self, limit: int, is_open: bool = False, start: int = 0
    ) -> list[ReservationKept]:
        """See Store."""
        kept = [reservations.c[field.name] for field in fields(ReservationKept)]
        query = select(*kept).order_by(
            reservations.c.until_s.desc(), *reservations.primary_key.columns
        )
        if is_open:
            query = query.where(reservations.c.state.in_(OPEN_STATES))
        else:
            query = query.limit(limit).offset(start)
        with self._reading() as connection:
            return [ReservationKept(*row) for row in connection.execute(query)]

    def slices_lent(self) -> list[SliceLent]:
        """See Store."""
        query = select(slices_lent).order_by(*slices_lent.primary_key)
        with self._reading() as connection:
            return [SliceLent(**row._mapping) for row in connection.execute(query)]

    def slices_held(self) -> list[SliceHeld]:
        """See Store."""
        query = select(slices_held).where(~slices_held.c.is_closed)
        with self._reading() as connection:
            found = connection.execute(query.order_by(*slices_held.primary_key))
            return [SliceHeld(**row._mapping) for row in found]

    def balances(self) -> dict[Account, Balance]:
        """See Store."""
        with self._reading() as connection:
            return read_balances(connection)

    def booked(self, after: int, limit: int) -> list[Booked]:
        """See Store."""
        with self._reading() as connection:
            return list(booked(connection, after, limit))

    def roll_up(self, now_s: float, keep_s: float) -> bool:
        """See Store; from one thread at a time. Raises StoreError or DBAPIError: try later."""
        if self._closed:
            raise StoreClosed("the store is closed")
        rolling = self._rolling or pieces(self._database.readers, now_s, keep_s)
        self._rolling = None  # unless the piece is written
        piece = next(rolling, None)
        if piece is None:
            return False
        self._writer.maintain(piece.statements)
        self._rolling = rolling
        return True

    def compact(self) -> None:
        """Rewrite an SQLite file as small as it can be, which takes a while."""
        self._writer.compact()

    def close(self) -> None:
        """See Store."""
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.close()
        finally:
            self._database.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Open one read-only transaction: all its queries see the same moment."""
        if self._closed:
            raise StoreClosed("the store is closed")
        with self._database.readers.begin() as connection:
            yield connection


def _ignore(_: object) -> None:
    """Stand in for a callback that was not given."""
