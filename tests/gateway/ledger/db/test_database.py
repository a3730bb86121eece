"""Opening a database: one gateway at a time, its schema, and its state after kill -9."""

import os
import signal
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.exc import OperationalError
from support.ledger_processes import HOLDING, WRITING, start

from gateway.ledger.accounting.summaries import KEYS_AT_ONCE as USAGE_KEYS_AT_ONCE
from gateway.ledger.accounting.summaries import stored_query
from gateway.ledger.db import database as database_module
from gateway.ledger.db.contracts.queries import postings_query
from gateway.ledger.db.contracts.store import KEYS_AT_ONCE
from gateway.ledger.db.contracts.tables import contracts
from gateway.ledger.db.database import SQLITE_LEAST, Database
from gateway.ledger.db.errors import StoreError, StoreInUse, StoreTooNew
from gateway.ledger.db.schema import SCHEMA_VERSION, metadata
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store.store import SqlStore

Usage = Callable[..., UsageRecord]
Commit = Callable[..., None]


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def tables_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("acknowledgements", [1, 300, 3_000])
def test_kill_9_takes_nothing_that_was_acknowledged(tmp_path: Path, acknowledgements: int) -> None:
    url = url_of(tmp_path / "ledger.db")
    with start(WRITING, url) as writing:
        assert writing.stdout is not None
        lines = [writing.stdout.readline() for _ in range(acknowledgements)]
        writing.send_signal(signal.SIGKILL)
        # A last line without its end is an acknowledgement that nobody has received.
        lines += [line for line in writing.stdout if line.endswith(b"\n")]
    assert [int(line) for line in lines] == [*range(len(lines))]
    with closing(SqlStore(url)) as store:
        charged = store.usage.charged_ranges("job")
        kept = list(store.jobs.bundles("job"))
    assert len(charged) >= len(lines)
    # What was written together is there together, and there are no gaps.
    assert charged == [(n, 1) for n in range(len(charged))]
    assert kept == [(n, 1, b"%d" % n) for n in range(len(charged))]


@pytest.mark.real
@pytest.mark.slow
def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with start(HOLDING, url_of(path)) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == b"open\n"
        with pytest.raises(StoreInUse, match=f"process id {holding.pid}: stop that gateway"):
            SqlStore(url_of(path))
        alias = tmp_path / "alias.db"
        alias.symlink_to(path)
        with pytest.raises(StoreInUse):
            SqlStore(url_of(alias))
        holding.communicate()
    assert holding.returncode == 0
    SqlStore(url_of(path)).close()


def test_a_second_store_of_one_process_is_refused_too(tmp_path: Path) -> None:
    url = url_of(tmp_path / "ledger.db")
    with closing(SqlStore(url)), pytest.raises(StoreInUse, match=str(os.getpid())):
        SqlStore(url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("not a url", "is not a database"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///x.db?mode=ro", "names no file"),
        ("oracle://host/db", "SQLite and PostgreSQL"),
        ("postgres://host/db", r"use postgresql\+psycopg"),
        ("postgresql://host/db", r"only the driver postgresql\+psycopg"),
        ("sqlite:////no/such/directory/x.db", "directory of the database must exist"),
    ],
)
def test_an_impossible_url_is_refused_with_a_reason(url: str, complaint: str) -> None:
    with pytest.raises(StoreError, match=complaint):
        SqlStore(url)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(StoreError, match="not a database"):
        SqlStore(url_of(path))
    assert path.read_bytes() == b"no database" * 1_000


def test_an_sqlite_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    with pytest.raises(
        StoreError, match="needs SQLite {}".format(".".join(map(str, SQLITE_LEAST)))
    ):
        SqlStore(url_of(tmp_path / "ledger.db"))


def test_only_its_owner_can_read_the_database(tmp_path: Path) -> None:
    with closing(SqlStore(url_of(tmp_path / "ledger.db"))):
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}


@pytest.fixture
def migrating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have new databases made by the migrations, one after the other."""
    monkeypatch.setattr(database_module, "_create", database_module._migrate)


def test_the_migrations_make_the_tables_of_the_code(tmp_path: Path, migrating: None) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    path = tmp_path / "ledger.db"
    SqlStore(url_of(path)).close()
    engine = create_engine(url_of(path))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == SCHEMA_VERSION
    engine.dispose()


def test_every_column_of_the_code_is_stored_as_the_migrations_declare_it(
    tmp_path: Path, migrating: None
) -> None:
    # compare_metadata does not look at defaults and at what is special to SQLite.
    migrated, created = tmp_path / "migrated.db", tmp_path / "created.db"
    SqlStore(url_of(migrated)).close()
    engine = create_engine(url_of(created))
    metadata.create_all(engine)
    engine.dispose()

    def declarations(path: Path) -> dict[str, str]:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            # A column that was added later stands on the line of the one before it.
            texts = {name: " ".join(sql.split()) for name, sql in found}
            return {name: sql for name, sql in texts.items() if name != "alembic_version"}

    assert declarations(migrated) == declarations(created)


@pytest.mark.real
def test_opening_what_is_up_to_date_changes_nothing_and_loads_no_alembic(tmp_path: Path) -> None:
    url = url_of(tmp_path / "ledger.db")
    SqlStore(url).close()
    script = (
        "import sys; from gateway.ledger.store.store import SqlStore; "
        "SqlStore(sys.argv[1]).close(); "
        "print('alembic' in sys.modules)"
    )
    with start(script, url) as opening:
        output, _ = opening.communicate()
    assert output == b"False\n"


def test_a_database_of_a_newer_gridfed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqlStore(url_of(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(StoreTooNew, match=r"schema is 9999.*run that version of gridfed"):
        SqlStore(url_of(path))
    # Refusing lets go of the lock.
    with pytest.raises(StoreTooNew):
        SqlStore(url_of(path))


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE usage (something TEXT)")
    with pytest.raises(StoreError, match="usage already exists"):
        SqlStore(url_of(path))
    assert tables_of(path) == {"usage"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(url_of(tmp_path / "ledger.db"))
    yield database
    database.writing.close()
    database.close()


def test_no_reader_can_write(database: Database) -> None:
    with database.readers.begin() as reader, pytest.raises(OperationalError, match="readonly"):
        reader.exec_driver_sql("DELETE FROM usage")


def test_all_that_a_reader_reads_is_of_one_moment(database: Database) -> None:
    count = "SELECT count FROM hardenings"
    with database.readers.begin() as reader:
        assert reader.exec_driver_sql(count).scalar() == 0
        database.writing.exec_driver_sql("UPDATE hardenings SET count = 1")
        assert reader.exec_driver_sql(count).scalar() == 0
    with database.readers.begin() as reader:
        assert reader.exec_driver_sql(count).scalar() == 1


def test_the_contracts_of_a_job_are_found_by_an_index(database: Database) -> None:
    query = select(contracts).where(contracts.c.side == "buy", contracts.c.job == "j")
    with database.readers.begin() as reader:
        sql = str(query.compile(reader, compile_kwargs={"literal_binds": True}))
        plan = " ".join(str(row) for row in reader.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}"))
    assert "contracts_by_job (side=? AND job=?)" in plan


def test_the_deliveries_of_a_bill_are_found_by_an_index(database: Database) -> None:
    query = postings_query("buy", "c-1", [(1, first) for first in range(KEYS_AT_ONCE)])
    with database.readers.begin() as reader:
        sql = str(query.compile(reader, compile_kwargs={"literal_binds": True}))
        plan = [str(row) for row in reader.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
    by_key = "(side=? AND contract=? AND epoch=? AND first=?)"
    assert sum(by_key in each for each in plan) == KEYS_AT_ONCE
    assert not any("SCAN" in each for each in plan)


def test_stored_usage_records_are_found_by_their_key(database: Database) -> None:
    """All records were read, after a write that found some of its own in the table."""
    query = stored_query([(f"j-{at}", at, 1) for at in range(USAGE_KEYS_AT_ONCE)])
    with database.readers.begin() as reader:
        sql = str(query.compile(reader, compile_kwargs={"literal_binds": True}))
        plan = [str(row) for row in reader.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
    by_key = "(job=? AND first=? AND attempt=?)"
    assert sum(by_key in each for each in plan) == USAGE_KEYS_AT_ONCE
    assert not any("SCAN" in each for each in plan)


def test_closing_leaves_no_connection_open(tmp_path: Path, usage: Usage) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with closing(SqlStore(url_of(tmp_path / "ledger.db"))) as store:
            store.write([usage()], False, lambda: None)
            assert store.jobs.latest(1) == []
    # The last connection to go takes the write-ahead log with it.
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.db", "ledger.db.lock"}


@pytest.mark.real
def test_stored_usage_records_are_found_by_their_key_on_postgresql(
    postgres: Any, usage: Usage, commit: Commit
) -> None:
    url = postgres.new_books()
    try:
        with closing(SqlStore(url)) as store:
            commit(store, *(usage(job=f"j-{at % 40}", first=at) for at in range(4_000)))
        engine = create_engine(url)
        keys = [(f"j-{at % 40}", at, 0) for at in range(USAGE_KEYS_AT_ONCE)]
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE usage")
            sql = str(
                stored_query(keys).compile(connection, compile_kwargs={"literal_binds": True})
            )
            plan = [str(row[0]) for row in connection.exec_driver_sql(f"EXPLAIN {sql}")]
            assert len(connection.execute(stored_query(keys)).all()) == USAGE_KEYS_AT_ONCE
        engine.dispose()
        assert not any("Seq Scan" in each for each in plan), plan[:3]
    finally:
        postgres.drop(url)
