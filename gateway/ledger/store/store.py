"""The interface between a gateway and its store, and the store on SQLAlchemy that implements it.

Writing is asynchronous: `write` queues and returns, and calls `done` after the commit. Reading is
synchronous, sees committed data, and is allowed from any thread that may block: a read takes its
time, and waits for a connection while all `database.READERS` are in use.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection

from federation.clocks import UtcS
from gateway.ledger.accounting.rollup import RollupPiece, pieces
from gateway.ledger.db.alerts.store import AlertStore, SqlAlerts
from gateway.ledger.db.budgets.store import BudgetStore, SqlBudgets
from gateway.ledger.db.contracts.store import ContractStore, SqlContracts
from gateway.ledger.db.database import Database
from gateway.ledger.db.drains.store import DrainStore, SqlDrains
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.db.jobs.records import AttachedLost
from gateway.ledger.db.jobs.store import JobStore, SqlJobs
from gateway.ledger.db.records import Record
from gateway.ledger.db.reservations.store import ReservationStore, SqlReservations
from gateway.ledger.db.rules.store import RuleStore, SqlRules
from gateway.ledger.db.settlement.store import SettlementStore, SqlSettlement
from gateway.ledger.db.usage.store import SqlUsage, UsageStore
from gateway.ledger.store.journal import JournalStore, SqlJournal
from gateway.ledger.store.writer import StoreWriter


class Store(Protocol):
    """What a gateway asks of its store: writing here, reading by subject.

    Code that reads one subject takes that part alone. tests/gateway/ledger has the contract.
    """

    @property
    def jobs(self) -> JobStore:
        """See JobStore."""

    @property
    def usage(self) -> UsageStore:
        """See UsageStore."""

    @property
    def contracts(self) -> ContractStore:
        """See ContractStore."""

    @property
    def settlement(self) -> SettlementStore:
        """See SettlementStore."""

    @property
    def reservations(self) -> ReservationStore:
        """See ReservationStore."""

    @property
    def budgets(self) -> BudgetStore:
        """See BudgetStore."""

    @property
    def alerts(self) -> AlertStore:
        """See AlertStore."""

    @property
    def drains(self) -> DrainStore:
        """See DrainStore."""

    @property
    def rules(self) -> RuleStore:
        """See RuleStore."""

    @property
    def journal(self) -> JournalStore:
        """See JournalStore."""

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

    def mark_lost(self, utc_s: UtcS) -> None:
        """End every open attached job with the state "lost", queued like any write.

        For the start of a gateway: those jobs died with the gateway before it.
        """

    def roll_up(self, utc_s: UtcS, keep_s: float) -> bool:
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
        self._writer = StoreWriter(self._database, on_trouble or _ignore, on_fatal or _ignore)
        self._rolling: Iterator[RollupPiece] | None = None
        self._closed = False
        self.jobs = SqlJobs(self._reading)
        self.usage = SqlUsage(self._reading)
        self.contracts = SqlContracts(self._reading)
        self.settlement = SqlSettlement(self._reading)
        self.reservations = SqlReservations(self._reading)
        self.budgets = SqlBudgets(self._reading)
        self.alerts = SqlAlerts(self._reading)
        self.drains = SqlDrains(self._reading)
        self.rules = SqlRules(self._reading)
        self.journal = SqlJournal(self._reading)

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

    def mark_lost(self, utc_s: UtcS) -> None:
        """See Store."""
        self._writer.write([AttachedLost(utc_s)], durable=False, done=lambda: None)

    def roll_up(self, utc_s: UtcS, keep_s: float) -> bool:
        """See Store; from one thread at a time. Raises StoreError or DBAPIError: try later."""
        if self._closed:
            raise StoreClosed("the store is closed")
        rolling = self._rolling or pieces(self._database.readers, utc_s, keep_s)
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
    """PilotState in for a callback that was not given."""
