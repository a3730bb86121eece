"""The writer's thread: group commit, durability, a full disk, and the end of it all."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from gateway.ledger.db import database
from gateway.ledger.db.errors import StoreFailed
from gateway.ledger.db.jobs.records import BundleKept
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store import writer
from gateway.ledger.store.store import SqlStore, Store

DEADLINE_S = 200
FULL, NORMAL = 2, 1  # as SQLite numbers them

Commit = Callable[..., None]
Usage = Callable[..., UsageRecord]
OpenStore = Callable[..., SqlStore]


class Gate:
    """Holds the writer's thread in an acknowledgement, so that later writes must queue."""

    def __init__(self, store: Store) -> None:
        self._passed = threading.Event()
        reached = threading.Event()

        def hold() -> None:
            reached.set()
            assert self._passed.wait(DEADLINE_S)

        store.write([], False, hold)
        assert reached.wait(DEADLINE_S)

    def open(self) -> None:
        self._passed.set()


def traced(connection: Any) -> list[str]:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    return statements


def limit_pages(connection: Any, pages: int) -> None:
    """Let the database grow to so many pages: SQLite then says that the disk is full."""
    connection.execute(f"PRAGMA max_page_count={pages}").close()


def full_disk(connection: Any) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    limit_pages(connection, pages)


def test_what_queues_behind_a_commit_shares_the_next(
    open_sqlite: OpenStore, connections: list[Any], commit: Commit, usage: Usage
) -> None:
    store = open_sqlite()
    gate = Gate(store)
    acknowledged: list[int] = []
    for n in range(1_000):
        store.write([usage(first=n)], False, lambda n=n: acknowledged.append(n))
    assert store.backlog == 1_000
    statements = traced(connections[0])
    gate.open()
    commit(store)
    assert statements.count("COMMIT") == 1
    assert acknowledged == [*range(1_000)]
    assert store.backlog == 0


def test_a_caller_does_not_wait_while_another_program_writes(
    open_sqlite: OpenStore, tmp_path: Path, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 1000 * 2 * DEADLINE_S)
    store = open_sqlite()
    returned, done = threading.Event(), threading.Event()

    def write() -> None:
        store.write([usage()], False, done.set)
        returned.set()

    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=write)
        thread.start()
        assert returned.wait(DEADLINE_S)
        assert not done.is_set()
        other.execute("ROLLBACK")
    thread.join(DEADLINE_S)
    assert done.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("cost_nanos", "verbs"),
    [(0, ["BEGIN", *2 * ["INSERT"], "COMMIT"]), (1, ["BEGIN", *3 * ["INSERT"], "COMMIT"])],
)
def test_a_lone_write_is_as_few_statements_as_can_be(
    cost_nanos: int,
    verbs: list[str],
    open_sqlite: OpenStore,
    connections: list[Any],
    commit: Commit,
    usage: Usage,
) -> None:
    store = open_sqlite()
    commit(store, usage(first=1))
    statements = traced(connections[0])
    commit(store, usage(first=2, cost_nanos=cost_nanos))
    assert [statement.split()[0] for statement in statements] == verbs


def test_a_transaction_is_bounded_in_records(
    open_sqlite: OpenStore,
    connections: list[Any],
    commit: Commit,
    usage: Usage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "TRANSACTION_RECORDS", 10)
    store = open_sqlite()
    gate = Gate(store)
    for n in range(25):
        store.write([usage(first=2 * n), usage(first=2 * n + 1)], False, lambda: None)
    statements = traced(connections[0])
    gate.open()
    commit(store)
    assert statements.count("COMMIT") == 5


def test_a_transaction_is_bounded_in_bytes(
    open_sqlite: OpenStore,
    connections: list[Any],
    commit: Commit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "TRANSACTION_BYTES", 1_000)
    store = open_sqlite()
    gate = Gate(store)
    for n in range(9):
        bundles = [BundleKept("job", 2 * n + at, 1, bytes(250)) for at in range(2)]
        store.write(bundles, False, lambda: None)
    assert store.backlog_bytes == 4_500
    statements = traced(connections[0])
    gate.open()
    commit(store)
    assert statements.count("COMMIT") == 5
    assert store.backlog_bytes == 0


def test_a_durable_write_takes_its_whole_transaction_to_the_disk(
    open_sqlite: OpenStore, connections: list[Any], usage: Usage
) -> None:
    store = open_sqlite()
    levels: SimpleQueue[int] = SimpleQueue()

    def note() -> None:
        levels.put(connections[0].execute("PRAGMA synchronous").fetchone()[0])

    store.write([usage(first=0)], False, note)
    assert levels.get(timeout=DEADLINE_S) == NORMAL
    store.write([usage(first=1)], True, note)
    assert levels.get(timeout=DEADLINE_S) == FULL
    gate = Gate(store)
    store.write([usage(first=2)], False, note)
    store.write([usage(first=3)], True, note)
    gate.open()
    assert [levels.get(timeout=DEADLINE_S) for _ in range(2)] == [FULL, FULL]
    store.write([usage(first=4)], False, note)
    assert levels.get(timeout=DEADLINE_S) == NORMAL


def test_a_durable_write_of_what_is_there_still_commits_something(
    open_sqlite: OpenStore, connections: list[Any], commit: Commit, usage: Usage
) -> None:
    # SQLite syncs nothing for a transaction without a change, and an earlier commit that was
    # not durable would go on being at risk.
    store = open_sqlite()
    commit(store, usage())
    before = connections[0].total_changes
    commit(store, usage(), durable=True)
    assert connections[0].total_changes > before


def test_a_full_disk_loses_nothing_and_says_so_once(
    open_sqlite: OpenStore,
    connections: list[Any],
    commit: Commit,
    usage: Usage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.01)
    troubles: SimpleQueue[str | None] = SimpleQueue()
    store = open_sqlite(on_trouble=troubles.put)
    commit(store, usage(first=0))
    full_disk(connections[0])
    acknowledged: list[str] = []
    for n in range(50):
        bundle = BundleKept("job", n, 1, bytes(10_000))
        store.write([bundle], True, lambda n=n: acknowledged.append(f"bundle {n}"))
    store.write([usage(first=1)], False, lambda: acknowledged.append("usage"))

    reason = troubles.get(timeout=DEADLINE_S)
    assert reason is not None
    assert "full" in reason
    assert "usage" not in acknowledged
    # Reading goes on.
    assert store.usage.charged_ranges("job-1") == [(0, 10)]

    limit_pages(connections[0], 1_000_000)
    assert troubles.get(timeout=DEADLINE_S) is None
    commit(store)
    assert acknowledged == [*(f"bundle {n}" for n in range(50)), "usage"]
    assert len(list(store.jobs.bundles("job"))) == 50
    assert store.usage.charged_ranges("job-1") == [(0, 10), (1, 10)]
    assert store.backlog == 0
    assert troubles.empty()


def test_the_next_attempt_leaves_most_of_the_second_in_which_work_is_to_go_on() -> None:
    # docs/reliability.md: after a full disk or a lost database, restart + 1 s.
    assert writer.RETRY_S <= 0.25


def test_closing_on_a_full_disk_says_how_much_stays_behind(
    open_sqlite: OpenStore, connections: list[Any], commit: Commit
) -> None:
    troubles: SimpleQueue[str | None] = SimpleQueue()
    fatal: list[BaseException] = []
    store = open_sqlite(on_trouble=troubles.put, on_fatal=fatal.append)
    commit(store)
    full_disk(connections[0])
    acknowledged: list[int] = []
    store.write([BundleKept("job", 0, 1, bytes(10**6))], True, lambda: acknowledged.append(0))
    assert troubles.get(timeout=DEADLINE_S) is not None
    with pytest.raises(StoreFailed, match=r"1 unacknowledged records.*full"):
        store.close()
    assert acknowledged == []
    assert len(fatal) == 1
    assert list(open_sqlite().jobs.bundles("job")) == []


@pytest.mark.thorough
def test_a_program_that_holds_the_database_is_waited_for(
    open_sqlite: OpenStore,
    connections: list[Any],
    commit: Commit,
    usage: Usage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.01)
    troubles: SimpleQueue[str | None] = SimpleQueue()
    store = open_sqlite(on_trouble=troubles.put)
    connections[0].execute("PRAGMA busy_timeout=1").close()
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.write([usage()], False, lambda: None)
        reason = troubles.get(timeout=DEADLINE_S)
        assert reason is not None
        assert "another program" in reason
        other.execute("ROLLBACK")
    assert troubles.get(timeout=DEADLINE_S) is None
    commit(store)
    assert store.usage.charged_ranges("job-1") == [(0, 10)]


def test_any_other_error_stops_the_writer_before_it_acknowledges(
    open_sqlite: OpenStore, commit: Commit, usage: Usage, tmp_path: Path
) -> None:
    fatal: SimpleQueue[BaseException] = SimpleQueue()
    store = open_sqlite(on_fatal=fatal.put)
    commit(store, usage())
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as other:
        other.execute("DROP TABLE usage")
    acknowledged: list[int] = []
    gate = Gate(store)
    for n in range(3):
        store.write([usage(first=n, user="a secret")], True, lambda n=n: acknowledged.append(n))
    gate.open()
    error = fatal.get(timeout=DEADLINE_S)
    assert "no such table" in str(error)
    assert "a secret" not in f"{error} {error.__cause__}"
    with pytest.raises(StoreFailed, match="no such table"):
        store.write([usage()], False, lambda: None)
    with pytest.raises(StoreFailed, match="3 unacknowledged records"):
        store.close()
    assert acknowledged == []
    assert fatal.empty()


def test_an_acknowledgement_that_raises_stops_the_writer(
    open_sqlite: OpenStore, usage: Usage
) -> None:
    fatal: SimpleQueue[BaseException] = SimpleQueue()
    store = open_sqlite(on_fatal=fatal.put)

    def fail() -> None:
        raise LookupError("a mistake of the caller")

    store.write([usage()], True, fail)
    assert isinstance(fatal.get(timeout=DEADLINE_S), LookupError)
    with pytest.raises(StoreFailed, match="a mistake of the caller"):
        store.close()


def test_the_log_begins_anew_though_something_is_committed_while_it_is_written_back(
    open_sqlite: OpenStore, tmp_path: Path, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 100)
    checkpoint, write_back = writer.StoreWriter._checkpoint, writer.StoreWriter._write_log_back
    begun: list[int] = []
    disturbed: list[int] = []

    def noted(self: writer.StoreWriter) -> None:
        begun.append(10_000 + len(begun))
        checkpoint(self)

    def disturb(self: writer.StoreWriter) -> bool:
        """Commit something after the first step of each checkpoint."""
        found = write_back(self)
        if len(disturbed) < len(begun):
            disturbed.append(begun[-1])
            with self._using:
                self._book([usage(first=begun[-1])], durable=False, patient=False)
        return found

    monkeypatch.setattr(writer.StoreWriter, "_checkpoint", noted)
    monkeypatch.setattr(writer.StoreWriter, "_write_log_back", disturb)
    store = open_sqlite()
    sizes = []
    for n in range(300):
        done = threading.Event()
        store.write([usage(first=n)], False, done.set)
        assert done.wait(DEADLINE_S)
        sizes.append((tmp_path / "ledger.db-wal").stat().st_size)
    assert len(disturbed) > 5
    assert sizes[-1] < 4 * sizes[50]


def test_what_a_disk_may_take_long_for_is_never_done_in_a_callers_thread(
    open_sqlite: OpenStore,
    connections: list[Any],
    tmp_path: Path,
    usage: Usage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SQLite syncs at a checkpoint and where its log begins anew, and in no other small commit."""
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 100)
    checkpoints: list[int] = []
    begun: list[int] = []
    checkpoint, book = writer.StoreWriter._checkpoint, writer.StoreWriter._book

    def noted_checkpoint(self: writer.StoreWriter) -> None:
        checkpoints.append(threading.get_ident())
        checkpoint(self)

    def noted_book(self: writer.StoreWriter, *arguments: Any, **named: Any) -> None:
        if self._begins_log:
            begun.append(threading.get_ident())
        book(self, *arguments, **named)

    monkeypatch.setattr(writer.StoreWriter, "_checkpoint", noted_checkpoint)
    monkeypatch.setattr(writer.StoreWriter, "_book", noted_book)
    store = open_sqlite()
    (by_itself,) = connections[0].execute("PRAGMA wal_autocheckpoint").fetchone()
    assert by_itself == 0
    log = tmp_path / "ledger.db-wal"
    sizes = []
    for n in range(300):
        done = threading.Event()
        store.write([usage(first=n)], False, done.set)
        assert done.wait(DEADLINE_S)
        sizes.append(log.stat().st_size)
    assert len(checkpoints) > 5
    assert begun
    assert threading.get_ident() not in {*checkpoints, *begun}
    assert sizes[-1] < 4 * sizes[50], "the log is used again"
