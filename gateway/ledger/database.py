"""Opening a database: its lock, its settings, its schema. What differs between dialects is here,
except how a commit is made durable (writer.py) and how a conflict is named (statements.py).
"""

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from .errors import StoreError, StoreInUse, StoreTooNew
from .tables import SCHEMA_VERSION

BUSY_TIMEOUT_MS: Final = 5_000
WAL_LIMIT_BYTES: Final = 64 * 2**20
READERS: Final = 5
# The first to take the thousands of parameters that statements.py gives a statement.
SQLITE_LEAST: Final = (3, 32, 0)

_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}


class Database:
    """An open database of the present schema, which no other gateway has open.

    `writing` is its only connection that writes, in autocommit. `readers` hands out connections
    that can't write, each transaction of which sees one moment.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.lock = _Lock(Path(parsed.database or "")) if _is_sqlite(parsed) else None
        try:
            self.readers = _readers(parsed)
            self.writing = _open(parsed)
        except BaseException:
            if self.lock is not None:
                self.lock.release()
            raise

    def close(self) -> None:
        """Close the readers and let others have the database; the writer closes its own."""
        self.readers.dispose()
        if self.lock is not None:
            self.lock.release()


class _Lock:
    """A lock on `<file>.lock`, which the system lets go of when its process dies.

    SQLite alone would let two gateways write in turns, each unaware of the other's jobs.
    """

    def __init__(self, database: Path) -> None:
        # Another name of the same file must lead to the same lock.
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
                f"the gateway with process id {holder or 'unknown'} has {database} open: "
                "stop it first, or give this gateway a database of its own (--state DIR)"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        # The file stays: removing it would let two others lock two files of one name.
        os.close(self._descriptor)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(
            f"{url!r} is not a database: write sqlite:////path/to/ledger.db"
        ) from error
    if parsed.get_backend_name() not in _BEGIN:
        old = parsed.get_backend_name() == "postgres"  # the name that SQLAlchemy gave up
        hint = ": write postgresql+psycopg://…" if old else ""
        raise StoreError(f"{parsed!r}: the store is in SQLite and PostgreSQL only{hint}")
    try:
        parsed.get_dialect().import_dbapi()
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        package = getattr(error, "name", None) or parsed.drivername
        raise StoreError(
            f"{parsed!r} needs a package that is not installed, {package}: install it, or name "
            "another driver, as in postgresql+psycopg://…"
        ) from None
    if _is_sqlite(parsed) and (parsed.database in (None, "", ":memory:") or parsed.query):
        raise StoreError(f"{url!r} names no file: write sqlite:////path/to/ledger.db")
    return parsed


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _open(url: URL) -> Connection:
    # Positional parameters for every driver, as statements.py fills them.
    options: dict[str, Any] = {
        "poolclass": NullPool,
        "isolation_level": "AUTOCOMMIT",
        "hide_parameters": True,  # errors go to logs, and records belong to users
    }
    if _is_sqlite(url):
        # Users' code and arguments are nobody else's business. SQLite's other files follow suit.
        os.close(os.open(str(url.database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        options |= {"paramstyle": "qmark", "connect_args": {"check_same_thread": False}}
    else:
        options |= {"paramstyle": "format"}
    engine = create_engine(url, **options)
    if _is_sqlite(url):
        event.listen(engine, "connect", _set_up_sqlite)
    try:
        connection = engine.connect()
        try:
            upgrade(connection)
        except BaseException:
            connection.close()
            raise
    except DBAPIError as error:
        raise StoreError(f"can't open the database {url}: {error.orig}") from error
    return connection


def _set_up_sqlite(connection: Any, _: object) -> None:
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST))
        raise StoreError(
            f"the store needs SQLite {least} or later, this Python has {sqlite3.sqlite_version}: "
            "run gridfed with a newer Python"
        )
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        f"journal_size_limit={WAL_LIMIT_BYTES}",
        "synchronous=FULL",
        "foreign_keys=ON",
        "trusted_schema=OFF",
        # Some systems' default writes zeros over what is deleted: thirty times the work, and a
        # log as large as the job that ended.
        "secure_delete=FAST",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _readers(url: URL) -> Engine:
    options: dict[str, Any] = {"pool_size": READERS, "max_overflow": 0}
    if not _is_sqlite(url):
        return create_engine(url, isolation_level="REPEATABLE READ", **options).execution_options(
            postgresql_readonly=True
        )
    engine = create_engine(url, connect_args={"check_same_thread": False}, **options)
    event.listen(engine, "connect", _set_up_sqlite_reader)
    # The driver begins no transaction for a SELECT, so that two would see two moments.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _set_up_sqlite_reader(connection: Any, _: object) -> None:
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}").close()


def upgrade(connection: Connection) -> None:
    """Bring the schema up to SCHEMA_VERSION, all or nothing; refuse a newer one."""
    if _version(connection) == SCHEMA_VERSION:
        return
    # Loaded only when there is something to do: it is slow.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # ConfigParser takes a percent sign for the beginning of a reference.
    directory = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config.set_main_option("script_location", directory)
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection

    version = _version(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise StoreTooNew(
            f"a newer gridfed wrote this database (its schema is {version}, this program knows "
            f"up to {SCHEMA_VERSION}): run that version of gridfed, or restore a copy of the "
            "database from before its upgrade"
        )
    connection.exec_driver_sql(_BEGIN[connection.dialect.name])
    try:
        command.upgrade(config, "head")
    except BaseException:
        connection.connection.rollback()
        raise
    connection.exec_driver_sql("COMMIT")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = sql_table("alembic_version", sql_column("version_num"))
    return connection.execute(select(version.c.version_num)).scalar()
