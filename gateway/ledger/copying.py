"""Copying the books: for backups, for restoring one, and from SQLite to PostgreSQL or back.

One way for all three, row by row through the tables of `tables.py`, so that a backup is an SQLite
file whatever the database is. A copy is proven: what is in the target afterwards is read back and
has to be, table by table, the very rows of the source.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgpack
from sqlalchemy import Connection, Row, Table, func, insert, select
from sqlalchemy.exc import DBAPIError

from .database import Database, schema_version
from .errors import StoreError
from .tables import SCHEMA_VERSION, hardenings, metadata

_PAGE: Final = 2_000
# The schema makes its one row; it counts commits of that database, and no other.
_LEFT: Final = {hardenings}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table holds: how many rows, and a digest of all of them in the order of their keys."""

    rows: int
    digest: str


def backup(url: str, path: Path) -> dict[str, Contents]:
    """Write all that a database holds at this moment to a new SQLite file; who uses it may go on.

    Raises StoreError: the file exists, the database can't be read or has another schema.
    """
    with snapshot(url) as source:
        return _copy_to_file(source, path)


def restore(path: Path, url: str) -> dict[str, Contents]:
    """Fill an empty database with what a backup holds. The backup may be of an older schema.

    Raises StoreError: there is no such file, the database holds something, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    with _copied_aside(path) as aside:
        return move(f"sqlite:///{aside}", url)


def move(url: str, target_url: str) -> dict[str, Contents]:
    """Fill an empty database with what another one holds, which stays as it is.

    Raises StoreError: either is in use or can't be reached, or the target holds something.
    """
    with _opened(url), snapshot(url) as source, _opened(target_url) as target:
        return _copy(source, target.writing)


@contextmanager
def snapshot(url: str) -> Iterator[Connection]:
    """Read a database of the present schema as of one moment, beside the gateway that writes it.

    Raises StoreError.
    """
    readers = Database.readers_of(url)
    try:
        with readers.begin() as connection:
            version = schema_version(connection)
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"the schema of {readers.url!r} is {version or 'none'}, not {SCHEMA_VERSION}: "
                    "`gridfed db upgrade` brings an older one up to date"
                )
            yield connection
    except DBAPIError as error:
        raise StoreError(f"copying {readers.url!r} failed: {error.orig}") from error
    finally:
        readers.dispose()


def _copy_to_file(source: Connection, path: Path) -> dict[str, Contents]:
    if path.exists():
        raise StoreError(f"{path} exists: name a file that does not")
    # Nobody takes half a backup for one: it gets its name when it is whole.
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with _opened(f"sqlite:///{unfinished.absolute()}") as target:
            copied = _copy(source, target.writing)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
        unfinished.with_name(f"{unfinished.name}.lock").unlink(missing_ok=True)
    return copied


@contextmanager
def _copied_aside(path: Path) -> Iterator[Path]:
    """A copy of a backup that may be upgraded: the backup itself stays as it was."""
    aside = path.with_name(f"{path.name}.restoring")
    try:
        aside.write_bytes(path.read_bytes())
        aside.chmod(0o600)
        yield aside.absolute()
    finally:
        for name in (aside.name, f"{aside.name}.lock", f"{aside.name}-wal", f"{aside.name}-shm"):
            aside.with_name(name).unlink(missing_ok=True)


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.writing.close()
        database.close()


def _copy(source: Connection, target: Connection) -> dict[str, Contents]:
    tables = [table for table in metadata.sorted_tables if table not in _LEFT]
    for table in tables:
        if target.execute(select(func.count()).select_from(table)).scalar():
            raise StoreError(
                f"{target.engine.url!r} is not empty, it has rows in {table.name!r}: name a new one"
            )
    # The connection is in autocommit: all or nothing is for us to say.
    target.exec_driver_sql("BEGIN")
    try:
        copied = {table.name: _copy_table(source, target, table) for table in tables}
        for table in tables:
            if _contents(_rows(target, table)) != copied[table.name]:
                raise StoreError(f"{table.name!r} came out otherwise than it is: nothing was kept")
    except BaseException:
        target.exec_driver_sql("ROLLBACK")
        raise
    target.exec_driver_sql("COMMIT")
    return copied


def _copy_table(source: Connection, target: Connection, table: Table) -> Contents:
    def passing() -> Iterator[Row[Any]]:
        page: list[dict[str, Any]] = []
        for row in _rows(source, table):
            page.append(dict(row._mapping))
            if len(page) == _PAGE:
                target.execute(insert(table), page)
                page.clear()
            yield row
        if page:
            target.execute(insert(table), page)

    return _contents(passing())


def _rows(connection: Connection, table: Table) -> Iterable[Row[Any]]:
    """A table's rows by their keys, which both databases order alike."""
    query = select(table).order_by(*table.primary_key.columns)
    return connection.execute(query, execution_options={"yield_per": _PAGE})


def _contents(rows: Iterable[Row[Any]]) -> Contents:
    digest = hashlib.sha256()
    count = 0
    for row in rows:
        digest.update(msgpack.packb(tuple(row)))
        count += 1
    return Contents(count, digest.hexdigest())
