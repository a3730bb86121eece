"""The only thread that writes: each commit takes all records queued during the one before.

A lone write is committed at once; under load transactions grow by themselves. The thread never
sleeps to fill one. The records of a call are never split between transactions.

`durable` decides how a commit ends. A transaction with a durable write is on the disk when it is
acknowledged, and so is everything committed before it. Any other commit survives the death of the
process, but a power cut may lose it until the next durable commit.

A separate database server may die without us. The records that it may have lost, all since the last
durable commit, are written again when it is back: writing an existing record changes nothing.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from gateway.ledger.accounting.journal import Journal
from gateway.ledger.accounting.late import happened_at_s, without_rolled_up
from gateway.ledger.accounting.rollup import progress
from gateway.ledger.accounting.summaries import Summaries, unknown
from gateway.ledger.db import database
from gateway.ledger.db.database import Database, transaction
from gateway.ledger.db.errors import AWAY, StoreClosed, StoreFailed
from gateway.ledger.db.records import Record
from gateway.ledger.db.sql import Statement
from gateway.ledger.db.statements import SqlStatements

# Limits at which a transaction takes no further call: they bound memory, and other calls' wait.
TRANSACTION_RECORDS: Final = 4_096
TRANSACTION_BYTES: Final = 32 * 2**20
UNHARDENED_RECORDS: Final = 4 * TRANSACTION_RECORDS
# Between two attempts while the disk is full or the database away. All work waits for the first
# attempt after that; one that fails costs a refused connection, or a write that is undone.
RETRY_S: Final = 0.2
# A call of at most so many records is committed in its caller's thread if nothing is queued.
AT_ONCE_RECORDS: Final = 8
# SQLite's log is checkpointed after about CHECKPOINT_PAGES pages. A transaction takes
# TRANSACTION_PAGES of them, and one more for each PAGE_RECORDS records.
CHECKPOINT_PAGES: Final = 4_000
TRANSACTION_PAGES: Final = 8
PAGE_RECORDS: Final = 4

_SYNCHRONOUS: Final = {
    "sqlite": {True: "PRAGMA synchronous=FULL", False: "PRAGMA synchronous=NORMAL"},
    "postgresql": {True: "SET synchronous_commit TO on", False: "SET synchronous_commit TO off"},
}

_CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"
_SQLITE_BUSY: Final = 5
_SQLITE_FULL: Final = 13
# SQLite's shared-memory file could not grow: another symptom of a full disk.
_SQLITE_IOERR_SHMSIZE: Final = 4_874
_POSTGRESQL_DISK_FULL: Final = "53100"


@dataclass(frozen=True, slots=True)
class _Request:
    """One call of `write`: its records are committed together."""

    records: Sequence[Record]
    durable: bool
    done: Callable[[], None]
    size_bytes: int


class StoreWriter:
    """Owns the writing connection, which must be in autocommit, and the thread that uses it.

    SQLite syncs its log and its file at a checkpoint, and its log again when it restarts the log
    afterwards. A disk may take seconds for that, so both are left to the writer's thread: callers
    commit by themselves only where nothing is synced.
    """

    def __init__(
        self,
        database: Database,
        on_trouble: Callable[[str | None], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._database = database
        dialect = database.writing.dialect
        self._error: type[Exception] = dialect.loaded_dbapi.Error
        self._conflict: type[Exception] = dialect.loaded_dbapi.IntegrityError
        self._statements = SqlStatements(dialect)
        self._summaries = Summaries(dialect)
        self._journal = Journal(database.writing)
        self._journal.catch_up()
        # A remote database may not answer: then only the writer's thread waits.
        self._is_near = dialect.name == "sqlite"
        self._synchronous = _SYNCHRONOUS[dialect.name]
        self._unhardened: list[Record] = []  # committed by a server that could lose it
        self._unhardened_bytes = 0
        self._take(database.writing)
        self._on_trouble = on_trouble
        self._on_fatal = on_fatal
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._lock = threading.Lock()  # over the state that callers and the thread both change:
        self._using = threading.Lock()  # over the connection
        self._closed = False
        self._failure: BaseException | None = None
        self._unacknowledged = 0  # calls whose `done` has not returned
        self._backlog = 0
        self._backlog_bytes = 0
        self._pages = 0  # a count, about, of pages in SQLite's log since its last checkpoint
        self._begins_log = False  # the next transaction may restart the log
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def _take(self, connection: Connection) -> None:
        """Write on this connection from now on."""
        self._connection = connection
        if self._is_near:
            connection.exec_driver_sql("PRAGMA wal_autocheckpoint=0").close()
        # Compiled SQL goes straight to the driver: SQLAlchemy's execution costs a lone task
        # about as much as the database itself.
        self._cursor: Any = connection.connection.cursor()
        self._is_lost = False
        self._durable: bool | None = None  # how the connection is set; None: not yet
        self._patient: bool | None = None  # the same
        self._rolled_up_s = progress(connection).before_s

    @property
    def backlog(self) -> int:
        """The number of accepted records that are not committed."""
        return self._backlog

    @property
    def backlog_bytes(self) -> int:
        """The bytes of the bodies that were accepted and are not committed."""
        return self._backlog_bytes

    def write(self, records: Sequence[Record], durable: bool, done: Callable[[], None]) -> None:
        """Commit records together, at once or by the thread; see `Store.write`."""
        is_small = self._is_near and 0 < len(records) <= AT_ONCE_RECORDS
        if is_small and not durable and self._write_at_once(records):
            done()
            return
        request = _Request(records, durable, done, sum(map(_size_bytes, records)))
        with self._lock:
            if self._failure is not None:
                raise StoreFailed(f"the store has failed: {self._failure}") from self._failure
            if self._closed:
                raise StoreClosed("the store is closed")
            self._unacknowledged += 1
            self._backlog += len(records)
            self._backlog_bytes += request.size_bytes
            self._queue.put(request)

    def _write_at_once(self, records: Sequence[Record]) -> bool:
        """Commit in the caller's own thread when nothing is queued; return False if it can't.

        Two thread switches cost more than a small commit that does not sync.
        """
        is_left = self._begins_log or self._pages >= CHECKPOINT_PAGES
        if is_left or self._unacknowledged or not self._using.acquire(blocking=False):
            return False
        try:
            if self._unacknowledged or self._closed or self._failure is not None:
                return False
            try:
                self._book(records, durable=False, patient=False)
            except self._error:
                # The writer's thread handles the error: it retries, waits, or gives up for good.
                self._connection.connection.rollback()
                return False
        finally:
            self._using.release()
        return True

    def maintain(self, statements: Iterable[Any]) -> None:
        """Commit statements that change no sum, together, in the caller's thread; it may wait.

        Raises StoreError or DBAPIError, with nothing changed: the caller may retry later.
        """
        with self._using:
            if self._closed or self._failure is not None or self._is_lost:
                raise StoreClosed("the store can't accept records at this moment")
            with transaction(self._connection):
                for statement in statements:
                    done = self._connection.execute(statement)
                    if done.returns_rows:
                        done.all()  # a statement has finished only when its rows are read
                rolled_up_s = progress(self._connection).before_s
            self._rolled_up_s = rolled_up_s

    def compact(self) -> None:
        """Rewrite an SQLite file in the mode that can release free pages later on."""
        if self._is_near:
            with self._using:
                for sql in ("PRAGMA auto_vacuum=INCREMENTAL", "VACUUM"):
                    self._connection.exec_driver_sql(sql)

    def close(self) -> None:
        """Commit the queue and end the thread; raise StoreFailed if some of it was not written."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._closing.set()
        self._thread.join()
        self._connection.close()
        if self._failure is not None:
            raise StoreFailed(
                f"{self._backlog} unacknowledged records were not written: {self._failure}"
            ) from self._failure

    def _run(self) -> None:
        try:
            last = False
            while not last:
                batch, last = self._collect()
                if batch or not last or self._is_lost:
                    self._commit(batch)
                if self._is_near and self._pages >= CHECKPOINT_PAGES:
                    self._checkpoint()
        except BaseException as error:  # noqa: BLE001 - a thread's last word goes to its owner
            with self._lock:
                self._failure = error
            self._on_fatal(error)

    def _collect(self) -> tuple[list[_Request], bool]:
        """Wait for a request, and take the queued ones; return whether it was the last batch.

        A database server hears from us in time without requests as well: the batch is empty then.
        """
        batch: list[_Request] = []
        count = size_bytes = 0
        try:
            request = self._queue.get(timeout=None if self._is_near else database.RENEW_S)
        except Empty:
            return batch, False
        while request is not None:
            batch.append(request)
            count += len(request.records)
            size_bytes += request.size_bytes
            if count >= TRANSACTION_RECORDS or size_bytes >= TRANSACTION_BYTES:
                return batch, False
            try:
                request = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[_Request]) -> None:
        """Commit a batch, waiting as long as the disk is full, and acknowledge it."""
        records = [record for request in batch for record in request.records]
        durable = any(request.durable for request in batch) or self._must_harden()
        written: Sequence[Record] = records
        in_trouble = is_careful = False
        while True:
            # Read before the attempt, so that closing always allows for one more attempt.
            closing = self._closing.is_set()
            try:
                with self._using:
                    if self._is_lost:
                        self._take(self._database.reopen())
                        self._journal.read(self._connection)
                        written, durable, is_careful = [*self._unhardened, *records], True, True
                    self._book(written, durable=durable, patient=True, careful=is_careful)
                break
            except (self._error, DBAPIError) as error:
                trouble = self._diagnose(error)
                if isinstance(error, self._conflict) and not is_careful:
                    is_careful = True  # some of the records are booked already
                    continue
                if trouble is None or closing:
                    raise StoreFailed(f"the database failed: {error}") from error
            if not in_trouble:
                self._on_trouble(trouble)
                in_trouble = True
            self._closing.wait(RETRY_S)
        if in_trouble:
            self._on_trouble(None)
        size_bytes = sum(request.size_bytes for request in batch)
        self._note_committed(records, size_bytes, durable)
        with self._lock:
            self._backlog -= len(records)
            self._backlog_bytes -= size_bytes
        for request in batch:
            request.done()
        with self._lock:
            self._unacknowledged -= len(batch)

    def _must_harden(self) -> bool:
        held = len(self._unhardened)
        return held >= UNHARDENED_RECORDS or self._unhardened_bytes >= TRANSACTION_BYTES

    def _note_committed(self, records: Sequence[Record], size_bytes: int, durable: bool) -> None:
        if durable:
            self._unhardened.clear()
            self._unhardened_bytes = 0
        elif not self._is_near:
            self._unhardened += records
            self._unhardened_bytes += size_bytes

    def _diagnose(self, error: Exception) -> str | None:
        """Return a problem that an operator can fix while we wait; None if waiting is useless."""
        if self._is_lost:
            return AWAY  # it can't be reopened yet
        if isinstance(error, DBAPIError):
            error = cast("Exception", error.orig)
        driver = self._connection.connection.driver_connection
        dialect: Any = self._connection.dialect
        if dialect.is_disconnect(error, driver, self._cursor):
            # The records in flight may be committed or not; writing them again changes nothing.
            self._is_lost = True
            return AWAY
        self._connection.connection.rollback()
        return _passing_trouble(error)

    def _book(
        self, records: Sequence[Record], *, durable: bool, patient: bool, careful: bool = False
    ) -> None:
        """Commit records, their transfers between accounts, and their sums.

        `careful`: some may be there already. Otherwise such a record fails the transaction, which
        is cheaper.
        """
        try:
            before_s = self._rolled_up_s
            if before_s and any(happened_at_s(each) < before_s for each in records):
                records = list(without_rolled_up(self._connection, records))
            if careful:
                records = list(unknown(self._connection, records))
            statements = self._statements.of(records, durable)
            statements += self._summaries.statements(records)
            statements += self._journal.statements(records, careful=careful)
            self._transact(statements, durable, patient=patient)
            self._begins_log = False
        except BaseException:
            self._journal.aborted()
            raise
        self._journal.committed()
        self._pages += TRANSACTION_PAGES + len(records) // PAGE_RECORDS

    def _checkpoint(self) -> None:
        """Write SQLite's log into its file, while others commit.

        The log restarts only when all of it is written back. The little that was committed
        meanwhile is written back while nothing else commits: under steady work the log would
        otherwise grow without end. Pages that readers still need stay in the log for the next
        checkpoint.
        """
        self._pages = 0
        is_written = self._write_log_back()
        with self._using:
            if self._pages:
                is_written = self._write_log_back()
                self._pages = 0
            self._begins_log = is_written

    def _write_log_back(self) -> bool:
        """Write SQLite's log into its file; return whether all of it was written back."""
        file = str(self._connection.engine.url.database)
        try:
            with contextlib.closing(sqlite3.connect(file)) as connection:
                _, in_log, written = connection.execute(_CHECKPOINT).fetchone()
        except sqlite3.Error:
            # The log is as good as the file; if the disk is full, the next commit reports it.
            return False
        return bool(in_log == written)

    def _transact(self, statements: Sequence[Statement], durable: bool, *, patient: bool) -> None:
        """Commit statements; `patient` waits while another program has the database."""
        execute = self._cursor.execute
        if not statements:
            if not self._is_near:
                execute("SELECT 1")  # renews our right to the database, or shows that it is lost
            return
        if self._is_near and patient is not self._patient:
            # Callers must never wait for other programs' locks.
            wait_ms = database.BUSY_TIMEOUT_MS if patient else 0
            execute(f"PRAGMA busy_timeout={wait_ms}")
            self._patient = patient
        if durable is not self._durable:
            execute(self._synchronous[durable])
            self._durable = durable
        # In autocommit a lone statement is a transaction by itself, at a third of the calls.
        if len(statements) == 1:
            execute(*statements[0])
            return
        execute("BEGIN")
        for sql, parameters in statements:
            execute(sql, parameters)
        execute("COMMIT")


def _size_bytes(record: Record) -> int:
    return len(getattr(record, "body", b""))


def _passing_trouble(error: Exception) -> str | None:
    """Return a problem that an operator can fix while we wait; None if waiting is useless."""
    code = getattr(error, "sqlite_errorcode", None)
    state = getattr(error, "sqlstate", None)
    if state == _POSTGRESQL_DISK_FULL or code in (_SQLITE_FULL, _SQLITE_IOERR_SHMSIZE):
        return "the disk of the store is full: free some space; the gateway then continues"
    # The extended codes of SQLITE_BUSY share its lowest byte.
    if isinstance(code, int) and code & 0xFF == _SQLITE_BUSY:
        return "another program is writing to the store: end it; the gateway then continues"
    return None
