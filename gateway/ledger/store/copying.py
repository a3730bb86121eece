"""Copying the books: for backups, for restoring one, and from SQLite to PostgreSQL or back.

All three copy row by row through the tables of `tables.py`, so that a backup is an SQLite file
whatever the database is. A copy is verified: the target is read back, and each of its tables must
equal the source's, row by row.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgpack
from sqlalchemy import (
    Column,
    Connection,
    Row,
    Table,
    create_engine,
    func,
    insert,
    inspect,
    literal,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from federation.clocks import UtcS
from gateway.ledger.db.database import (
    PAGE_ROWS,
    check_there,
    check_url,
    opened,
    snapshot,
    streamed,
    transaction,
)
from gateway.ledger.db.errors import StoreError, cause_text
from gateway.ledger.db.jobs.tables import jobs
from gateway.ledger.db.schema import metadata
from gateway.ledger.db.tables import hardenings
from gateway.ledger.db.usage.tables import capacity, usage

# The schema creates its only row, which counts commits of that database alone.
_LEFT: Final = {hardenings}
# When records were made, UTC: of busy sites jobs and usage, of quiet ones capacity.
_MOMENTS: Final[tuple[Column[Any], ...]] = (
    *(jobs.c.submitted_at_s, jobs.c.ended_at_s),
    *(usage.c.ended_at_s, capacity.c.until_s),
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a table: the number of rows, and a digest of them in key order."""

    rows: int
    digest: str


def backup(url: str, path: Path) -> dict[str, Contents]:
    """Write the contents of a database at this moment to a new SQLite file; its users may go on.

    Raises StoreError: the file exists, the database can't be read or has another schema.
    """
    with snapshot(url) as source:
        return _copy_to_file(source, path)


def restore(path: Path, url: str) -> dict[str, Contents]:
    """Fill an empty database from a backup, which may have an older schema.

    Raises StoreError: there is no such file, the database holds rows, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"file {path} does not exist")
    with _copied_aside(path) as aside:
        return move(f"sqlite:///{aside}", url)


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """What is in a backup, and how old that is.

    Attributes:
        jobs: the number of its jobs.
        last_at_s: when the last of its records was made, UTC; None: it has none.
        written_at_s: when the file was written, UTC, by its time: the copy was made by then.
    """

    jobs: int
    last_at_s: UtcS | None
    written_at_s: UtcS


def facts_of(path: Path) -> CopyFacts:
    """Read the facts of a backup, which may have an older schema: it is read as it is.

    Raises StoreError.
    """
    if not path.is_file():
        raise StoreError(f"file {path} does not exist")
    engine = create_engine(f"sqlite:///file:{quote(str(path.absolute()))}?mode=ro&uri=true")
    moments: list[float] = []
    try:
        with engine.connect() as connection:
            number = connection.execute(select(func.count()).select_from(jobs)).scalar_one()
            there = {each: inspect(connection).has_table(each.table.name) for each in _MOMENTS}
            for column in _MOMENTS:
                if there[column]:
                    last_s = connection.execute(select(func.max(column))).scalar_one()
                    moments += [] if last_s is None else [float(last_s)]
    except SQLAlchemyError as error:
        raise StoreError(
            f"file {path} is not a backup of a gateway's database: {cause_text(error)}"
        ) from None
    finally:
        engine.dispose()
    last_at_s = UtcS(max(moments)) if moments else None
    return CopyFacts(int(number), last_at_s, UtcS(path.stat().st_mtime))


def check_target(url: str) -> None:
    """Refuse a database that a backup can't be restored into; creates nothing.

    Raises StoreError: it holds rows, is in use, or can't be reached.
    """
    try:
        check_there(url)
    except StoreError:
        return  # a file that is made by the restoration
    engine = create_engine(check_url(url))
    try:
        with engine.connect() as connection:
            there = set(inspect(connection).get_table_names())
            for table in metadata.sorted_tables:
                if table.name in there and table not in _LEFT:
                    _check_empty(connection, table)
    except SQLAlchemyError as error:
        raise StoreError(f"{engine.url!r} can't be read: {cause_text(error)}") from None
    finally:
        engine.dispose()
    with opened(url):  # it is empty: its schema may be made
        pass


def _check_empty(connection: Connection, table: Table) -> None:
    if connection.execute(select(literal(1)).select_from(table).limit(1)).first() is not None:
        raise StoreError(
            f"{connection.engine.url!r} is not empty: table {table.name!r} has rows; choose "
            "an empty database, or move this one aside first (docs/books.md, Restoring a copy)"
        )


def move(url: str, target_url: str) -> dict[str, Contents]:
    """Fill an empty database from another one, which stays as it is.

    Raises StoreError: either is in use or can't be reached, or the target holds rows.
    """
    with opened(url), snapshot(url) as source, opened(target_url) as target:
        return _copy(source, target.writing)


def _copy_to_file(source: Connection, path: Path) -> dict[str, Contents]:
    if path.exists():
        raise StoreError(f"{path} exists: choose a new file")
    # A partial backup must not be taken for a whole one: it is renamed when it is complete.
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with opened(f"sqlite:///{unfinished.absolute()}") as target:
            copied = _copy(source, target.writing)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
        unfinished.with_name(f"{unfinished.name}.lock").unlink(missing_ok=True)
    return copied


@contextmanager
def _copied_aside(path: Path) -> Iterator[Path]:
    """Provide a copy of a backup that may be upgraded: the backup itself stays unchanged."""
    aside = path.with_name(f"{path.name}.restoring")
    try:
        aside.write_bytes(path.read_bytes())
        aside.chmod(0o600)
        yield aside.absolute()
    finally:
        for name in (aside.name, f"{aside.name}.lock", f"{aside.name}-wal", f"{aside.name}-shm"):
            aside.with_name(name).unlink(missing_ok=True)


def _copy(source: Connection, target: Connection) -> dict[str, Contents]:
    tables = [table for table in metadata.sorted_tables if table not in _LEFT]
    for table in tables:
        _check_empty(target, table)
    with transaction(target):
        copied = {table.name: _copy_table(source, target, table) for table in tables}
        for table in tables:
            if _contents(_rows(target, table)) != copied[table.name]:
                raise StoreError(f"{table.name!r} differs after the copy: the copy was discarded")
    return copied


def _copy_table(source: Connection, target: Connection, table: Table) -> Contents:
    def passing() -> Iterator[Row[Any]]:
        page: list[dict[str, Any]] = []
        for row in _rows(source, table):
            page.append(dict(row._mapping))
            if len(page) == PAGE_ROWS:
                target.execute(insert(table), page)
                page.clear()
            yield row
        if page:
            target.execute(insert(table), page)

    return _contents(passing())


def _rows(connection: Connection, table: Table) -> Iterable[Row[Any]]:
    """Return a table's rows by their keys, which both databases order alike."""
    return streamed(connection, select(table).order_by(*table.primary_key.columns))


def _contents(rows: Iterable[Row[Any]]) -> Contents:
    digest = hashlib.sha256()
    count = 0
    for row in rows:
        digest.update(msgpack.packb(tuple(row)))
        count += 1
    return Contents(count, digest.hexdigest())
