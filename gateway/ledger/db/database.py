"""Opens a database: its lock, its settings, its schema.

The differences between dialects are here, except the durability of a commit (writer.py) and the
handling of conflicts (sql.py).
"""

import fcntl
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    create_engine,
    event,
    insert,
    inspect,
    select,
)
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from gateway.ledger.db.errors import StoreAway, StoreError, StoreInUse, StoreTooNew
from gateway.ledger.db.schema import SCHEMA_VERSION, metadata
from gateway.ledger.db.tables import hardenings

# Opens a read-only transaction: all its queries see the same moment.
OpenReader = Callable[[], AbstractContextManager[Connection]]

BUSY_TIMEOUT_MS: Final = 5_000
WAL_LIMIT_BYTES: Final = 64 * 2**20
READERS: Final = 5
PAGE_ROWS: Final = 2_000
# The first version that accepts the thousands of parameters that sql.py uses.
SQLITE_LEAST: Final = (3, 32, 0)

POSTGRESQL: Final = "postgresql+psycopg"
# A PostgreSQL server that is silent for about so long is given up, and reconnected.
POSTGRESQL_PATIENCE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# The same from the server's side: without it a server keeps the session, and so the lock, of a
# gateway whose host lost its power for as long as its system's default says, often two hours.
POSTGRESQL_GIVES_UP: Final = {
    "tcp_keepalives_idle": "5s",
    "tcp_keepalives_interval": "2s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}
# PostgreSQL notices the death of a gateway with some delay: that of its host by the settings above.
TAKEOVER_S: Final = 15.0
# The writer of an open database says something to the server at least every so often, which the
# server notes as the time of its session's last change: it renews its right to the database.
RENEW_S: Final = 2.0
# A session that has not renewed it for so long belongs to a frozen process, and is ended.
FROZEN_S: Final = 10.0
_RENEWS: Final = "renews"  # in the name of a session that does
_LOOK_S: Final = 0.1
_LOCK_KEY: Final = int.from_bytes(b"gridfed", "big")

_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}


class Database:
    """An open database of the current schema, which no other gateway has open.

    `writing` is its only writing connection, in autocommit. `readers` provides read-only
    connections, each transaction of which sees one moment.
    """

    def __init__(self, url: str) -> None:
        self._url = check_url(url)
        is_sqlite = _is_sqlite(self._url)
        self.lock = _Lock(Path(self._url.database or "")) if is_sqlite else None
        try:
            self.readers = _readers(self._url)
            self._engine = _engine(self._url)
            try:
                self.writing = self._open()
            except DBAPIError as error:
                # libpq does not distinguish an absent server from one that refuses a password.
                is_away = isinstance(error, OperationalError) and not is_sqlite
                kind = StoreAway if is_away else StoreError
                raise kind(f"can't open the database {self._url!r}: {error.orig}") from error
        except BaseException:
            if self.lock is not None:
                self.lock.release()
            raise

    def reopen(self) -> Connection:
        """Replace `writing` after the database became unreachable.

        Raises DBAPIError while it can't be reached, StoreInUse when another gateway has it now.
        """
        if not self.writing.closed:
            self.writing.invalidate()
            self.writing.close()
        self.writing = self._open(again=True)
        return self.writing

    def _open(self, *, again: bool = False) -> Connection:
        connection = self._engine.connect()
        try:
            if not _is_sqlite(self._url):
                _lock_postgresql(connection, again=again)
            upgrade(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the readers and release the database; the writer closes its own connection."""
        self.readers.dispose()
        if self.lock is not None:
            self.lock.release()


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """Open a database, and close it with its writing connection. Raises StoreError."""
    database = Database(url)
    try:
        yield database
    finally:
        database.writing.close()
        database.close()


def check_there(url: str) -> None:
    """Raise StoreError for a missing SQLite file, which opening would create."""
    parsed = check_url(url)
    if _is_sqlite(parsed) and not Path(parsed.database or "").is_file():
        raise StoreError(
            f"the database {parsed.database} does not exist: check --config or --state"
        )


@contextmanager
def snapshot(url: str) -> Iterator[Connection]:
    """Read a database of the current schema as of one moment, beside the gateway that writes it.

    Raises StoreError.
    """
    check_there(url)
    parsed = check_url(url)
    readers = _readers(parsed)
    try:
        with readers.begin() as connection:
            version = schema_version(connection)
            if version is not None and version > SCHEMA_VERSION:
                raise StoreTooNew(
                    f"{parsed!r} was written by a newer gridfed: its schema is {version}, "
                    f"this version supports up to {SCHEMA_VERSION}"
                )
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"the schema of {parsed!r} is {version or 'none'}, expected "
                    f"{SCHEMA_VERSION}: run `gridfed db upgrade` if it is older"
                )
            yield connection
    except DBAPIError as error:
        raise StoreError(f"can't read or copy {parsed!r}: {error.orig}") from error
    finally:
        readers.dispose()


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Run a transaction on a connection in autocommit."""
    connection.exec_driver_sql(_BEGIN[connection.dialect.name])
    try:
        yield
    except BaseException:
        connection.connection.rollback()
        raise
    connection.exec_driver_sql("COMMIT")


def streamed(connection: Connection, query: Select[Any]) -> Generator[Row[Any]]:
    """Yield the rows of a query that may have millions; to be consumed, or closed."""
    with connection.execute(query, execution_options={"yield_per": PAGE_ROWS}) as result:
        yield from result


class _Lock:
    """A lock on `<file>.lock`, which the system releases when its process dies.

    SQLite alone would let two gateways write in turns, each unaware of the other's jobs.
    """

    def __init__(self, database: Path) -> None:
        # Another path to the same file must lead to the same lock.
        path = f"{database.resolve()}.lock"
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"can't lock {path}: {error.strerror}; the directory of the database must exist "
                "and be writable"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StoreInUse(
                f"{database} is open in the gateway with process id {holder or 'unknown'}: "
                "stop that gateway, or give this one a database of its own (--state DIR)"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        # The file stays: without it, two other gateways could lock two files of the same name.
        os.close(self._descriptor)


def check_url(url: str) -> URL:
    """Read the URL of a database; StoreError for one that can't be used."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(
            f"{url!r} is not a database URL: use sqlite:////path/to/ledger.db"
        ) from error
    if parsed.get_backend_name() not in _BEGIN:
        old = parsed.get_backend_name() == "postgres"  # the name that SQLAlchemy dropped
        hint = f": use {POSTGRESQL}://…" if old else ""
        raise StoreError(f"{parsed!r}: only SQLite and PostgreSQL are supported{hint}")
    if not _is_sqlite(parsed) and parsed.drivername != POSTGRESQL:
        raise StoreError(f"{parsed!r}: only the driver {POSTGRESQL}://… is supported")
    try:
        parsed.get_dialect().import_dbapi()
    except ImportError as error:
        raise StoreError(
            f"{parsed!r} needs a package that can't be loaded ({error}): install gridfed[postgres]"
        ) from None
    if _is_sqlite(parsed) and (parsed.database in (None, "", ":memory:") or parsed.query):
        raise StoreError(f"{url!r} names no file: use sqlite:////path/to/ledger.db")
    return parsed


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _lock_postgresql(connection: Connection, *, again: bool) -> None:
    """Take the database for this session, which is the only one that writes.

    The lock ends with the session: a session that has lost it can't write any more, and a late
    write of a gateway that is presumed dead cannot arrive. For the same reason no connection pooler
    that shares sessions may stand between.

    Args:
        again: this process had the database before. Another one that has it now took it over.

    Raises:
        StoreInUse: another gateway has it.
    """
    # Terminate our own earlier session, which the server may still hold open.
    connection.exec_driver_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = current_setting('application_name') "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    own = connection.exec_driver_sql("SELECT current_setting('application_name')").scalar()
    until_s = time.monotonic() + TAKEOVER_S
    lock = "SELECT pg_try_advisory_lock(%s)"
    while not connection.exec_driver_sql(lock, (_LOCK_KEY,)).scalar():
        holder = _holder(connection)
        if holder is not None and holder.name != own:
            if again:
                raise _in_use(connection, holder.name)
            if holder.is_frozen:
                connection.exec_driver_sql("SELECT pg_terminate_backend(%s::int)", (holder.pid,))
        if time.monotonic() >= until_s:
            raise _in_use(connection, holder.name if holder else "")
        time.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class _Holder:
    """The session that has the database: its process at the server, its name, and its silence.

    `silent_s` counts only while the server waits for that session; None if that is unknown, or the
    server works for it.
    """

    pid: int
    name: str
    silent_s: float | None

    @property
    def is_frozen(self) -> bool:
        """Whether its process does not run: it would have renewed its right to the database."""
        return _RENEWS in self.name and self.silent_s is not None and self.silent_s > FROZEN_S


def _holder(connection: Connection) -> _Holder | None:
    """Return the session that has the database; None if the server does not tell, or none has."""
    row = connection.exec_driver_sql(
        "SELECT pid, application_name, CASE WHEN state <> 'active' OR wait_event_type = 'Client' "
        "THEN extract(epoch FROM clock_timestamp() - state_change)::float END "
        "FROM pg_stat_activity JOIN pg_locks USING (pid) "
        "WHERE locktype = 'advisory' AND datname = current_database() "
        "AND (classid::bigint << 32 | objid::bigint) = %s AND granted",
        (_LOCK_KEY,),
    ).first()
    return None if row is None else _Holder(*row)


def _in_use(connection: Connection, name: str) -> StoreInUse:
    return StoreInUse(
        f"the database {connection.engine.url!r} is open in the gateway with "
        f"{name or 'an unknown process id'}: stop that gateway, or give this one a database of "
        "its own"
    )


def _engine(url: URL) -> Engine:
    # Positional parameters for every driver, as sql.py fills them.
    options: dict[str, Any] = {
        "poolclass": NullPool,
        "isolation_level": "AUTOCOMMIT",
        "hide_parameters": True,  # errors are logged, and records belong to users
    }
    if _is_sqlite(url):
        # Users' code and arguments are confidential. SQLite's other files get the same mode.
        os.close(os.open(str(url.database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        options |= {"paramstyle": "qmark", "connect_args": {"check_same_thread": False}}
    else:
        options |= {"paramstyle": "format", "connect_args": _postgresql_arguments()}
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _set_up_sqlite if _is_sqlite(url) else _set_up_postgresql)
    return engine


def _postgresql_arguments() -> dict[str, Any]:
    # The token distinguishes this connection from others of the same process.
    token = os.urandom(4).hex()
    host = socket.gethostname()[:20]  # the server takes 63 characters in all
    name = f"process id {os.getpid()} on {host} ({token} {_RENEWS})"
    return {**POSTGRESQL_PATIENCE, "application_name": name}


def _set_up_postgresql(connection: Any, _: object) -> None:
    from psycopg.types.numeric import Int8Dumper

    # Otherwise each size of number has its own type, and no statement is ever prepared.
    connection.adapters.register_dumper(int, Int8Dumper)
    # By SET, as poolers refuse most parameters at a session's start. A local socket ignores them.
    with connection.cursor() as cursor:
        for name, value in POSTGRESQL_GIVES_UP.items():
            cursor.execute(f"SET {name} = '{value}'")
    connection.commit()


def _set_up_sqlite(connection: Any, _: object) -> None:
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST))
        raise StoreError(
            f"the store needs SQLite {least} or later, this Python has "
            f"{sqlite3.sqlite_version}: run gridfed with a newer Python"
        )
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        # Free pages can be released bit by bit (rollup.py). It takes effect only in a new file.
        "auto_vacuum=INCREMENTAL",
        "journal_mode=WAL",
        f"journal_size_limit={WAL_LIMIT_BYTES}",
        "synchronous=FULL",
        "foreign_keys=ON",
        "trusted_schema=OFF",
        # Some systems' default overwrites deleted data with zeros: thirty times the work, and a log
        # as large as the job that ended.
        "secure_delete=FAST",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _readers(url: URL) -> Engine:
    options: dict[str, Any] = {"pool_size": READERS, "max_overflow": 0}
    if not _is_sqlite(url):
        return create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,  # the database may have restarted
            connect_args=dict(POSTGRESQL_PATIENCE),
            **options,
        ).execution_options(postgresql_readonly=True)
    engine = create_engine(url, connect_args={"check_same_thread": False}, **options)
    event.listen(engine, "connect", _set_up_sqlite_reader)
    # The driver begins no transaction for a SELECT: two SELECTs would see two moments.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _set_up_sqlite_reader(connection: Any, _: object) -> None:
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}").close()


def upgrade(connection: Connection) -> None:
    """Bring the schema up to SCHEMA_VERSION, all or nothing; refuse a newer one."""
    if schema_version(connection) == SCHEMA_VERSION:
        return
    is_new = not inspect(connection).get_table_names()
    change = _create if is_new else _migrate
    with transaction(connection):
        change(connection)


def _create(connection: Connection) -> None:
    """Create the current tables, equal to the result of the migrations: a test compares them."""
    metadata.create_all(connection)
    connection.execute(insert(hardenings).values(id=1, count=0))
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    version = sql_table("alembic_version", sql_column("version_num"))
    connection.execute(insert(version).values(version_num=SCHEMA_VERSION))


def _migrate(connection: Connection) -> None:
    # Loaded only when a migration is needed: it is slow.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # ConfigParser treats a percent sign as the start of a reference.
    directory = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config.set_main_option("script_location", directory)
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection

    version = schema_version(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise StoreTooNew(
            f"this database was written by a newer gridfed (its schema is {version}, this "
            f"version supports up to {SCHEMA_VERSION}): run that version of gridfed, or "
            "restore a copy of the database from before its upgrade"
        )
    command.upgrade(config, "head")


def schema_version(connection: Connection) -> str | None:
    """Return the newest migration of a database; None when it has no tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = sql_table("alembic_version", sql_column("version_num"))
    return connection.execute(select(version.c.version_num)).scalar()


def ranges(connection: Connection, query: Any) -> list[Any]:
    """Return each row as a tuple."""
    return [tuple(row) for row in connection.execute(query)]
