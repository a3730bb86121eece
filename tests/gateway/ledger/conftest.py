"""Opening stores and waiting for them, with a bound on every wait."""

import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from support.programs.postgres import Postgres

from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store.store import SqlStore, Store
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

DEADLINE_S = 200
HERE = Path(__file__).parent

OpenStore = Callable[..., Store]


def _sqlite(directory: Path, **callbacks: Any) -> Store:
    return SqlStore(f"sqlite:///{directory / 'ledger.db'}", **callbacks)


def _memory() -> Callable[..., Store]:
    disks: dict[Path, Disk] = {}
    return lambda directory, **_: MemoryStore(disks.setdefault(directory, Disk()))


def _on(url: str) -> Callable[..., Store]:
    return lambda _, **callbacks: SqlStore(url, **callbacks)


# Another implementation joins the contract by a line here. Opened twice in one directory, it
# must find what it wrote.
STORES = {"sqlite": _sqlite, "memory": _memory(), "postgresql": None}


# Hundreds of tests of what is asked of a store: on PostgreSQL they run with `make thorough`. What a
# store is and does, and what is PostgreSQL's own, runs on it always.
MANY = {"test_journal", "test_reports", "test_rollup", "test_filled_migrations"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "postgresql" in item.name:
            item.add_marker(pytest.mark.real)
        if HERE in item.path.parents and item.path.stem in MANY and "postgresql" in item.name:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open a store of each kind under contract, always the same one; close it in the end."""
    kind = STORES[request.param]
    if kind is not None:
        yield from _opener(kind, tmp_path)
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_books()
    yield from _opener(_on(url), tmp_path)
    server.drop(url)


@pytest.fixture
def open_sqlite(tmp_path: Path) -> Iterator[OpenStore]:
    yield from _opener(_sqlite, tmp_path)


def _opener(kind: Callable[..., Store], directory: Path) -> Iterator[OpenStore]:
    opened: list[Store] = []

    def open_(**callbacks: Any) -> Store:
        opened.append(kind(directory, **callbacks))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


@pytest.fixture
def commit() -> Callable[..., None]:
    """Write records in one call and wait until they are committed."""

    def commit_(store: Store, *records: Record, durable: bool = False) -> None:
        done = threading.Event()
        store.write(records, durable, done.set)
        assert done.wait(DEADLINE_S), "the store did not acknowledge in time"

    return commit_


@pytest.fixture
def usage() -> Callable[..., UsageRecord]:
    """Make a usage record; all but the fields of interest have defaults."""

    def usage_(**fields: Any) -> UsageRecord:
        defaults: dict[str, Any] = {
            "job": "job-1",
            "first": 0,
            "tasks": 10,
            "attempt": 0,
            "user": "ada",
            "project": "risk",
            "name": "var",
            "pool": "local",
            "worker": "worker-1",
            "state": "ok",
            "started_at_s": 1_700_000_000.0,
            "ended_at_s": 1_700_000_001.5,
            "wall_ns": 1_500_000_000,
            "cpu_ns": 1_400_000_000,
            "peak_memory_bytes": 2**20,
            "price_nanos": 40_000_000,
            "currency": "USD",
            "tariff": "1",
            "cost_nanos": 16_667,
        }
        return UsageRecord(**(defaults | fields))

    return usage_


@pytest.fixture
def connections() -> Iterator[list[Any]]:
    """The driver's connections in the order in which they are made; the first one writes."""
    made: list[Any] = []

    def note(connection: Any, _: object) -> None:
        made.append(connection)

    event.listen(Engine, "connect", note)
    yield made
    event.remove(Engine, "connect", note)


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Name a database of a kind, for books that nothing is in yet."""
    numbers = count()
    made: list[str] = []

    def new(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'books{next(numbers)}.db'}"
        made.append(request.getfixturevalue("postgres").new_books())
        return made[-1]

    yield new
    for url in made:
        request.getfixturevalue("postgres").drop(url)


@pytest.fixture(scope="session")
def originals() -> dict[tuple[str, str], str]:
    """Books that `copied` has filled, by kind and by the function that filled them."""
    return {}


@pytest.fixture(params=["sqlite", "postgresql"])
def copied(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    originals: dict[tuple[str, str], str],
) -> Iterator[Callable[[Callable[[str], None]], str]]:
    """Copy books of either kind that were filled once, for tests that change a little of them."""
    kind: str = request.param
    made: list[str] = []

    def copy(fill: Callable[[str], None]) -> str:
        key = kind, fill.__name__
        if kind == "sqlite":
            if key not in originals:
                originals[key] = str(tmp_path_factory.mktemp("original") / "books.db")
                fill(f"sqlite:///{originals[key]}")
            return f"sqlite:///{shutil.copyfile(originals[key], tmp_path / 'copied.db')}"
        server: Postgres = request.getfixturevalue("postgres")
        if key not in originals:
            originals[key] = server.new_books()
            fill(originals[key])
        made.append(server.copy(originals[key]))
        return made[-1]

    yield copy
    for url in made:
        request.getfixturevalue("postgres").drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of either kind without a table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> str:
    """Books of either kind that nothing is in yet."""
    return new_url(request.param)
