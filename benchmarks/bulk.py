"""Large arguments and results, unread maps, and jobs of 200 tasks."""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks import ours
from benchmarks.floor import empty
from benchmarks.harness import BenchSeries, alternate, machine, save
from federation import Client

MEGABYTES = (1, 10, 30, 60)
MB = 1_000_000
JOB_TASKS = 200


def large(repeats: int, quick: bool) -> None:
    """Time one argument, and one result, of up to 60 MB, beside ProcessPoolExecutor."""
    facts = machine()
    sizes = MEGABYTES[:3] if quick else MEGABYTES

    with (
        ours.BenchmarkSite() as site,
        Client(site.address) as client,
        ProcessPoolExecutor(2) as pool,
    ):

        def rows(who: str, submit: Callable[..., Any]) -> list[ours.Row]:
            submit(empty, 0).result()
            return [row for size in sizes for row in _times(who, submit, size)]

        runs = [lambda: rows("floor", pool.submit), lambda: rows("gridfed", client.submit)]
        series = alternate(runs, repeats)
    notes = ["The floor is ProcessPoolExecutor in the same run, in turn with gridfed."]
    save("large", facts, series, notes)


def _times(who: str, submit: Callable[..., Any], size: int) -> list[ours.Row]:
    data = os.urandom(MB) * size
    started_s = time.perf_counter()
    assert submit(len, data).result() == len(data)
    middle_s = time.perf_counter()
    assert len(submit(bytes, len(data)).result()) == len(data)
    ended_s = time.perf_counter()
    return [
        (who, f"argument of {size} MB", "s", middle_s - started_s),
        (who, f"result of {size} MB", "s", ended_s - middle_s),
    ]


def unread(repeats: int, quick: bool) -> None:
    """Map over a range of ten million without reading it: measure memory until the client closes.

    The peak is that of the client's process; its memory without any map is beside it.
    """
    facts = machine()
    tasks = 1_000_000 if quick else 10_000_000
    with ours.BenchmarkSite() as site:
        client = Client(site.address)
        sum(1 for _ in client.map(empty, range(100_000)))
        before = ours.peak_bytes(os.getpid())
        results = client.map(empty, range(tasks))
        started_s = time.perf_counter()
        client.shutdown()
        taken_s = time.perf_counter() - started_s
        after = ours.peak_bytes(os.getpid())
        gateway = ours.peak_bytes(site.gateway.pid)
        del results
    series = [
        BenchSeries("gridfed", f"closing with {tasks:,} tasks unread", "s", [taken_s]),
        BenchSeries(
            "gridfed", "client's peak after a map of 100,000 that was read", "MB", [before / MB]
        ),
        BenchSeries("gridfed", "client's peak after the unread map", "MB", [after / MB]),
        BenchSeries("gridfed", "gateway's peak", "MB", [gateway / MB]),
    ]
    save("unread", facts, series, ())


def short_jobs(repeats: int, quick: bool) -> None:
    """Run jobs of 200 empty tasks, one by one: from a range, which is sent whole, and not."""
    facts = machine()
    count = 50 if quick else 400
    with ours.BenchmarkSite() as site, Client(site.address) as client:

        def run(who: str, inputs: Callable[[], Iterable[int]]) -> list[ours.Row]:
            cpu_s, started_s = _cpu_s(site.gateway.pid), time.perf_counter()
            for _ in range(count):
                assert sum(1 for _ in client.map(empty, inputs())) == JOB_TASKS
            taken_s = time.perf_counter() - started_s
            used_s = _cpu_s(site.gateway.pid) - cpu_s
            return [
                (who, "job of 200", "µs", taken_s / count * 1e6),
                (who, "gateway's CPU for a job of 200", "µs", used_s / count * 1e6),
            ]

        whole = range(JOB_TASKS)
        runs = [lambda: run("whole", lambda: whole), lambda: run("batches", lambda: iter(whole))]
        series = alternate(runs, repeats)
    notes = [
        "`batches` passes the same inputs as an iterator without a length, which is read "
        "1, 2, 4, … calls at a time."
    ]
    save("short_jobs", facts, series, notes)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
