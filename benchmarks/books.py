"""The books at size: reports over ten million usage records, and bytes on disk before and after.

`books` fills a database with a month of records of 100 projects on four pools, by SQL, in the form
that the writer would leave, and runs reports as a user does. `books_size` books a million tasks
through the writer in bundles of 1,000, 100 and 1, and rolls them up. `books_map` maps a million
empty tasks with and without books. `books_audit` audits a million records on SQLite.
"""

import importlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from benchmarks.harness import BenchSeries, alternate, machine, quantile, save
from benchmarks.ours import BenchmarkSite, Row, lone_times, map_rate, start
from federation import Client
from federation.clocks import UtcS
from gateway.ledger.db.jobs.records import JobEnded, JobOpenedRecord
from gateway.ledger.db.usage.records import Dimension, UsageRecord
from gateway.ledger.db.usage.tables import SUMMED, SUMMED_BY
from gateway.ledger.store.store import SqlStore

DAY_S = 86_400
MONTH_BEGINS_S = 1_793_491_200  # 2026-11-01
JOB_RECORDS = 1_000
TASKS = 1_000_000
JOB = "7b1f6a52-0d4f-4b5e-9f0a-3d2c1b0a9f8e"
AUDITED = 1_000_000
AUDITED_AT_ONCE = 10_000
KINDS = ("SQLite", "PostgreSQL")


def books_map(repeats: int, quick: bool) -> None:
    """Map empty tasks with the full books, and without."""
    facts = machine()
    tasks = 100_000 if quick else TASKS

    def run(who: str, program: str) -> list[Row]:
        with BenchmarkSite(program=program) as site, Client(site.address) as client:
            return [
                (who, "map", "tasks/s", map_rate(client, tasks)),
                (who, "lone p50", "µs", quantile(lone_times(client, 1_000), 0.5) * 1e6),
            ]

    runs = [lambda: run("with books", "gateway"), lambda: run("without", "benchmarks.bookless")]
    series = alternate(runs, repeats)
    median = {(each.contestant, each.measure): each.median for each in series}
    notes = []
    for name in ("map", "lone p50"):
        ratio = median["with books", name] / median["without", name]
        notes.append(f"{name}: with books {ratio:.2f} of without.  ")
    save("books_map", facts, series, notes)


def books(repeats: int, quick: bool) -> None:
    """Run reports over ten million usage records, on SQLite and PostgreSQL."""
    facts = machine()
    records = 200_000 if quick else 10_000_000
    series: list[BenchSeries] = []
    notes = []
    for kind in KINDS:
        with _database(kind) as url:
            with closing(SqlStore(url)) as store:
                _write(store, [_record("first", 0, 0)])  # creates a journal
            began_s = time.perf_counter()
            hours = _fill(url, records)
            took_s = time.perf_counter() - began_s
            notes.append(
                f"{kind}: {records:,} records, {hours:,} sums, filled in {took_s:,.0f} s.  "
            )
            print(notes[-1], flush=True)
            with closing(SqlStore(url)) as store:
                series += _asked(store, kind, repeats)
            series += _reported(url, kind, repeats)
    save("books", facts, series, notes)


def _asked(store: SqlStore, kind: str, repeats: int) -> list[BenchSeries]:
    begin_s = UtcS(MONTH_BEGINS_S)
    project = {Dimension.PROJECT: "project7"}
    questions: dict[str, Callable[[], Any]] = {
        "by project and day": lambda: store.usage.totals([Dimension.PROJECT, Dimension.DAY]),
        "by user and pool, one week": lambda: store.usage.totals(
            [Dimension.USER, Dimension.POOL], begin_s, begin_s + 7 * DAY_S
        ),
        "by pool and hour": lambda: store.usage.totals([Dimension.POOL, Dimension.HOUR]),
        "of one project by day": lambda: store.usage.totals([Dimension.DAY], only=project),
        "by job, one day": lambda: store.usage.totals([Dimension.JOB], begin_s, begin_s + DAY_S),
        "by worker, all": lambda: store.usage.totals([Dimension.WORKER]),
    }
    found = []
    for name, ask in questions.items():
        one = BenchSeries(kind, f"usage_totals {name}", "s")
        for _ in range(repeats if "all" not in name else 1):
            began_s = time.perf_counter()
            assert ask()
            one.values.append(time.perf_counter() - began_s)
        found.append(one)
        print(kind, name, one.median, flush=True)
    return found


def _reported(url: str, kind: str, repeats: int) -> list[BenchSeries]:
    """Time the whole of `gridfed report`, with a gateway on that database."""
    one = BenchSeries(kind, "gridfed report cost --by project,day", "s")
    with tempfile.TemporaryDirectory(prefix="gridfed-bench-") as folder:
        address = f"ipc://{folder}/gateway.sock"
        config = Path(folder) / "site.toml"
        config.write_text(
            f'[site]\nlisten = ["{address}"]\nstate = "{folder}/state"\ndatabase = "{url}"\n'
            "[books]\ndetail_days = 0\n"
        )
        me = [sys.executable, "-m", "gateway"]
        gateway = start([*me, "gateway", "--config", str(config)])
        try:
            while not os.path.exists(address.removeprefix("ipc://")):
                assert gateway.poll() is None, "the gateway did not start in time"
                time.sleep(0.05)
            command = [*me, "report", "cost", "--by", "project,day", "--json"]
            for _ in range(repeats):
                began_s = time.perf_counter()
                subprocess.run(
                    [*command, "--gateway", address], check=True, stdout=subprocess.DEVNULL
                )
                one.values.append(time.perf_counter() - began_s)
        finally:
            gateway.terminate()
            gateway.wait(20)
    print(kind, one.measure, one.median, flush=True)
    return [one]


@contextmanager
def _database(kind: str) -> Iterator[str]:
    """Create a database, removed afterwards."""
    if kind == "SQLite":
        with tempfile.TemporaryDirectory(prefix="gridfed-bench-", dir="/var/tmp") as folder:
            yield f"sqlite:///{folder}/books.db"
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    # The tests' own server, from a wheel.
    server = importlib.import_module("support.programs.postgres").Postgres(
        shared_buffers="512MB", max_wal_size="4GB"
    )
    try:
        yield server.new_database()
    finally:
        server.stop()


# One record for each number from 1 on: each job has 1,000 in a day, on four pools, and 10,000 jobs
# begin one after the other in 29 days.
_RECORD = {
    "job": "'job-' || (i / 1000)",
    "first": "(i % 1000) * 1000",
    "attempt": "1",
    "tasks": "1000",
    "user": "'user' || (i / 1000 % 100)",
    "project": "'project' || (i / 1000 % 100)",
    "name": "'var'",
    "pool": "'pool' || (i % 4)",
    "worker": "'worker-' || (i % 64)",
    "state": "'ok'",
    "started_at_s": "{at} - 36.5",
    "ended_at_s": "{at}",
    "hour": "({at}) / 3600",
    "wall_ns": "36500000000 + i % 1000",
    "cpu_ns": "36000000000",
    "peak_memory_bytes": "1000000 + i % 4096",
    "price_nanos": "40000000",
    "currency": "'USD'",
    "tariff": "'1'",
    "cost_nanos": "405556 + i % 10",
    "group": "'desk' || (i / 1000 % 10)",
    "tags": "''",
    "price_class": "'guaranteed'",
    "window": "''",
    "site": "''",
    "origin": "''",
    "records": "1",
    "list_cost_nanos": "405556",
    "energy_uj": "1000000",
    "carbon_ng": "200",
    "embodied_ng": "20",
    "intensity_mg_per_kwh": "230000",
    "carbon_source": "'static'",
    "footprint": "'carbon'",
}


def _fill(url: str, records: int) -> int:
    """Insert records and their sums; return the number of sums."""
    # 29 days for the beginnings, and a day for each job.
    spread = 29 * DAY_S // max(1, records // JOB_RECORDS)
    at = f"{MONTH_BEGINS_S} + (i / 1000) * {spread} + (i % 1000) * 86"
    columns = ", ".join(f'"{name}"' for name in _RECORD)
    values = ", ".join(each.format(at=at) for each in _RECORD.values())
    keys = ", ".join(f'"{name}"' for name in SUMMED_BY)
    halves = [f"{name}_{half}" for name in SUMMED for half in ("high", "low")]
    sums = ["sum(records)", "max(peak_memory_bytes)"]
    for name in SUMMED:
        sums += [f"sum({name} / 1000000000)", f"sum({name} % 1000000000)"]
    engine = create_engine(url)
    is_sqlite = engine.dialect.name == "sqlite"
    numbers = (
        "WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers "
        f"WHERE i < {records - 1}) "
        if is_sqlite
        else ""
    )
    source = "numbers" if is_sqlite else f"generate_series(0::bigint, {records - 1}) AS i"
    # For speed: no log, and the index afterwards.
    before = (
        [f"PRAGMA {each}" for each in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-500000")]
        if is_sqlite
        else []
    )
    statements = (
        *before,
        "DELETE FROM usage_hours",
        "DROP INDEX usage_by_end",
        f"INSERT INTO usage ({columns}) {numbers}SELECT {values} FROM {source}",
        f"INSERT INTO usage_hours ({keys}, records, peak_memory_bytes, {', '.join(halves)}) "
        f"SELECT {keys}, {', '.join(sums)} FROM usage GROUP BY {keys}",
        "CREATE INDEX usage_by_end ON usage (ended_at_s)",
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for sql in statements:
            # psycopg takes a percent sign for the beginning of a parameter.
            connection.exec_driver_sql(sql if is_sqlite else sql.replace("%", "%%"))
        [hours] = connection.exec_driver_sql("SELECT count(*) FROM usage_hours").one()
        if not is_sqlite:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as the server's own would, in time
    engine.dispose()
    return int(hours)


# --- size -----------------------------------------------------------------------------------------


def books_size(repeats: int, quick: bool) -> None:
    """Measure bytes on disk per million tasks, before and after rolling up."""
    facts = machine()
    series, notes = [], []
    for kind in KINDS:
        for bundle in (1_000, 100, 1):
            # Single tasks take long, and a part of them is enough.
            tasks = TASKS if bundle > 1 else TASKS // (100 if quick else 10)
            with _database(kind) as url:
                empty = _size(url)
                with closing(SqlStore(url)) as store:
                    began_s = time.perf_counter()
                    _book(store, tasks, bundle)
                    booked_s = time.perf_counter() - began_s
                before = _size(url)
                with closing(SqlStore(url)) as store:
                    began_s = time.perf_counter()
                    longest_s, pieces = _roll_up(store)
                    rolled_s = time.perf_counter() - began_s
                    store.compact()
                after = _size(url)
            for name, size in (("before", before), ("after", after)):
                mebibytes = (size - empty) / 2**20 * TASKS / tasks
                one = BenchSeries(kind, f"bundles of {bundle:,}, {name} roll-up", "MiB")
                series.append(one)
                one.values.append(mebibytes)
            notes.append(
                f"{kind}, bundles of {bundle:,}: {tasks // bundle:,} records booked in "
                f"{booked_s:.1f} s, rolled up in {rolled_s:.1f} s, {pieces} transactions, the "
                f"longest with its plan {longest_s * 1e3:.0f} ms.  "
            )
            print(notes[-1], flush=True)
    save("books_size", facts, series, notes)


def books_audit(repeats: int, quick: bool) -> None:
    """Run `gridfed audit` on a million usage records booked by the writer: time and memory."""
    facts = machine()
    records = AUDITED // 10 if quick else AUDITED
    took = BenchSeries("SQLite", f"gridfed audit of {records:,} records", "s")
    cpu, memory = (
        BenchSeries("SQLite", *each) for each in (("its CPU", "s"), ("its memory", "MiB"))
    )
    with _database("SQLite") as url:
        with closing(SqlStore(url)) as store:
            for number in range(records // AUDITED_AT_ONCE):
                _book(store, AUDITED_AT_ONCE * 10, 10, f"job-{number}")
        size = _size(url) / 2**20
        config = Path(url.removeprefix("sqlite:///")).with_name("site.toml")
        config.write_text(f'[site]\nstate = "{config.parent}"\ndatabase = "{url}"\n')
        command = [sys.executable, "-m", "gateway", "audit", "--config", str(config)]
        for _ in range(repeats):
            began_s = time.perf_counter()
            before_s = _children_s()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took.values.append(time.perf_counter() - began_s)
            cpu.values.append(_children_s() - before_s)
        memory.values.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
    print(took.measure, took.median, flush=True)
    save("books_audit", facts, [took, cpu, memory], [f"The file has {size:,.0f} MiB.  "])


def _children_s() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _record(job: str, number: int, bundle: int) -> UsageRecord:
    ended_at_s = UtcS(MONTH_BEGINS_S) + number * 0.25
    return UsageRecord(
        job=job,
        first=number * bundle,
        tasks=bundle,
        attempt=1,
        user="ada",
        project="risk",
        name="var",
        pool="local",
        worker=f"4f7a0c1e-{number % 8}",
        state="ok",
        started_at_s=ended_at_s - 2.0,
        ended_at_s=ended_at_s,
        wall_ns=2_000_000_000 + number,
        cpu_ns=1_900_000_000,
        peak_memory_bytes=2**26,
        price_nanos=40_000_000,
        currency="USD",
        tariff="local@0.04 USD",
        cost_nanos=22_222,
    )


def _book(store: SqlStore, tasks: int, bundle: int, job: str = JOB) -> None:
    opened = JobOpenedRecord(job, "var", "ada", "risk", False, b"", UtcS(MONTH_BEGINS_S))
    records = [_record(job, number, bundle) for number in range(tasks // bundle)]
    ended = JobEnded(job, "done", "", UtcS(MONTH_BEGINS_S) + 20.0 * DAY_S, tasks, 0, 0)
    _write(store, [opened])
    for at in range(0, len(records), 256):
        store.write(records[at : at + 256], False, lambda: None)
    _write(store, [ended])


def _write(store: SqlStore, records: list[Any]) -> None:
    done = threading.Event()
    store.write(records, True, done.set)
    assert done.wait(600)


def _roll_up(store: SqlStore) -> tuple[float, int]:
    """Return the longest piece, in seconds, and the number of pieces."""
    longest_s, pieces = 0.0, 0
    while True:
        began_s = time.perf_counter()
        if not store.roll_up(UtcS(MONTH_BEGINS_S) + 200.0 * DAY_S, 90.0 * DAY_S):
            return longest_s, pieces
        longest_s = max(longest_s, time.perf_counter() - began_s)
        pieces += 1


def _size(url: str) -> int:
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return path.stat().st_size if path.exists() else 0
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM FULL")  # the real need; autovacuum keeps the rest
        size = connection.exec_driver_sql(
            "SELECT pg_database_size(current_database())"
        ).scalar_one()
    engine.dispose()
    return int(size)
