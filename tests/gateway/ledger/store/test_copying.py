"""Backups, restoring them, and moving between SQLite and PostgreSQL without loss."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from federation.clocks import UtcS
from gateway.ledger.db.contracts.records import ContractOpened, Posted
from gateway.ledger.db.errors import StoreError, StoreInUse
from gateway.ledger.db.jobs.records import BundleKept, JobOpenedRecord
from gateway.ledger.db.schema import metadata
from gateway.ledger.db.usage.records import CapacityRecord, Dimension, UsageRecord
from gateway.ledger.store import copying
from gateway.ledger.store.copying import backup, check_target, facts_of, move, restore
from gateway.ledger.store.store import SqlStore

Usage = Callable[..., UsageRecord]
Commit = Callable[..., None]


def fill(store: SqlStore, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        JobOpenedRecord(
            "job-1", "vár\"', €", "ada", "=risk", True, b"\x00\xff spec", 1.5, b"\x00digest"
        ),
        BundleKept("job-1", 0, 3, bytes(range(256))),
        *(usage(first=n, cost_nanos=2**63 - 1 - n, user=f"user{n % 7}") for n in range(5_000)),
        ContractOpened("c-1-1", "buy", "paris", "job-1", "grid", 4, 7, "EUR", 30.25, 9.125),
        ContractOpened(
            "c-1-1",
            "sell",
            "rome",
            "x:job",
            "grid",
            4,
            7,
            "EUR",
            0.1,
            9.0,
            2**62,
            5,
            10**6,
            "v7",
            "night",
            "preemptible",
            2**62,
        ),
        Posted("c-1-1", "buy", "paris", 1, 0, 3, 10, 20, "EUR", 1_700_000_000.123456),
    )


KINDS = ("sqlite", "postgresql")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("sqlite", "postgresql"),
        *(
            pytest.param(source, target, marks=pytest.mark.thorough)
            for source, target in (("postgresql", "sqlite"), ("sqlite",) * 2, ("postgresql",) * 2)
        ),
    ],
)
def test_what_is_moved_is_the_same_to_the_byte(
    source: str, target: str, new_url: Any, commit: Commit, usage: Usage
) -> None:
    old, new = new_url(source), new_url(target)
    with closing(SqlStore(old)) as store:
        fill(store, commit, usage)
        before = (
            store.usage.totals([Dimension.USER]),
            store.jobs.get("job-1"),
            store.contracts.totals(),
        )
    copied = move(old, new)
    assert copied["usage"].rows == 5_000
    assert set(copied) == set(metadata.tables) - {"hardenings"}
    with closing(SqlStore(new)) as store:
        assert (
            store.usage.totals([Dimension.USER]),
            store.jobs.get("job-1"),
            store.contracts.totals(),
        ) == before
        commit(store, usage(first=5_000))
    with closing(SqlStore(old)) as store:  # it stays as it was
        assert store.usage.totals([Dimension.USER]) == before[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_is_made_beside_a_store_that_goes_on_writing(
    kind: str, tmp_path: Path, new_url: Any, commit: Commit, usage: Usage
) -> None:
    url, file = new_url(kind), tmp_path / "kept.backup"
    with closing(SqlStore(url)) as store:
        fill(store, commit, usage)
        copied = backup(url, file)
        commit(store, usage(first=9_999))
    new = new_url(kind)
    assert restore(file, new) == copied
    with closing(SqlStore(new)) as store:
        [total] = store.usage.totals([])
        assert total.records == 5_000
    assert {path.name for path in tmp_path.iterdir() if "kept" in path.name} == {"kept.backup"}


def test_only_its_owner_can_read_a_backup(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    SqlStore(url).close()
    backup(url, tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_over(tmp_path: Path, commit: Commit, usage: Usage) -> None:
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    with closing(SqlStore(url)) as store:
        commit(store, usage())
    (tmp_path / "there").write_text("mine")
    with pytest.raises(StoreError, match="exists: choose a new file"):
        backup(url, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"
    with closing(SqlStore(other)) as store:
        commit(store, usage())
    with pytest.raises(StoreError, match=r"is not empty: table '\w+' has rows"):
        move(url, other)


def test_a_database_in_use_is_not_moved(tmp_path: Path) -> None:
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    with closing(SqlStore(url)):
        with pytest.raises(StoreInUse):
            move(url, other)
        SqlStore(other).close()
        with pytest.raises(StoreInUse):
            move(other, url)


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the database .* does not exist"):
        backup(f"sqlite:///{tmp_path / 'none.db'}", tmp_path / "kept")
    with pytest.raises(StoreError, match=r"file .* does not exist"):
        restore(tmp_path / "none", f"sqlite:///{tmp_path / 'new.db'}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_backup_is_told(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        restore(tmp_path / "kept", f"sqlite:///{tmp_path / 'new.db'}")
    assert (tmp_path / "kept").read_bytes() == b"something else" * 1000


def test_a_copy_that_came_out_otherwise_is_taken_back(
    tmp_path: Path, commit: Commit, usage: Usage
) -> None:
    old, new = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    with closing(SqlStore(old)) as store:
        commit(store, usage(first=1), usage(first=2))
    SqlStore(new).close()
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        connection.execute(
            "CREATE TRIGGER lossy AFTER INSERT ON usage BEGIN "
            "UPDATE usage SET cost_nanos = cost_nanos - 1 WHERE first = 2; END"
        )
        connection.commit()
    with pytest.raises(StoreError, match="'usage' differs after the copy"):
        move(old, new)
    with closing(SqlStore(new)) as store:
        assert store.usage.totals([]) == []


def test_an_unfinished_backup_is_not_left_lying_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    SqlStore(url).close()

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(copying, "_contents", fail)
    with pytest.raises(OSError, match="no space left"):
        backup(url, tmp_path / "kept")
    assert not [path for path in tmp_path.iterdir() if "kept" in path.name]


def test_the_age_of_a_backup_is_that_of_its_last_record(
    tmp_path: Path, commit: Commit, usage: Usage
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with closing(SqlStore(url)) as store:
        commit(store, usage())
        [total] = store.usage.totals([])
        commit(store, CapacityRecord("local", UtcS(2_000_000_000.0), UtcS(2_000_000_060.0), 4))
    backup(url, tmp_path / "kept")
    os.utime(tmp_path / "kept", (5_000.0, 5_000.0))
    facts = facts_of(tmp_path / "kept")
    assert total.records
    assert (facts.jobs, facts.last_at_s, facts.written_at_s) == (0, 2_000_000_060.0, 5_000.0)


def test_a_backup_without_records_has_no_last_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    SqlStore(url).close()
    backup(url, tmp_path / "kept")
    assert facts_of(tmp_path / "kept").last_at_s is None
    with pytest.raises(StoreError, match="does not exist"):
        facts_of(tmp_path / "none")


def test_a_target_that_is_no_database_is_told_without_sql(tmp_path: Path) -> None:
    broken = tmp_path / "a.db"
    broken.write_bytes(b"no database " * 1_000)
    with pytest.raises(StoreError) as told:
        check_target(f"sqlite:///{broken}")
    assert str(told.value) == f"sqlite:///{broken} can't be read: file is not a database"


def test_a_target_that_can_not_be_restored_into_is_refused_before_the_question(
    tmp_path: Path, commit: Commit, usage: Usage
) -> None:
    full, used, none = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db", "c.db"))
    with closing(SqlStore(full)) as store:
        commit(store, usage())
    with pytest.raises(StoreError, match=r"is not empty: .* move this one aside first"):
        check_target(full)
    with closing(SqlStore(used)), pytest.raises(StoreInUse):
        check_target(used)
    check_target(used)
    check_target(none)
    assert not (tmp_path / "c.db").exists()
