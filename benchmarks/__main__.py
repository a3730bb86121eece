"""`python -m benchmarks NAME [--quick] [--repeats N]`: one benchmark, all of them, or `plots`."""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import bulk, ours, peers, plots
from benchmarks.books import books, books_audit, books_map, books_size
from benchmarks.data.carrying import carrying
from benchmarks.data.targets import targets
from benchmarks.environments import environments
from benchmarks.federated import forwarded, lost_site
from benchmarks.floor import Floor, empty
from benchmarks.graphs import graph_core, graphs, nested
from benchmarks.harness import BenchSeries, alternate, machine, quantile, save
from benchmarks.hops import hops
from benchmarks.load.command import many_jobs
from benchmarks.objects import objects
from benchmarks.placement import placement
from benchmarks.preemption import preemption
from benchmarks.sharing import sharing
from benchmarks.slurm import slurm
from benchmarks.versions import versions
from federation import Client


def overhead(repeats: int, quick: bool) -> None:
    """Run empty tasks, floor and gridfed in turn: map, submit, a lone task's round trip."""
    facts = machine()
    tasks, submits, lone = (100_000, 10_000, 300) if quick else (1_000_000, 100_000, 2000)

    def floor_run() -> list[ours.Row]:
        with Floor() as floor:
            sum(1 for _ in floor.map(1000))
            started_s = time.perf_counter()
            assert sum(1 for _ in floor.map(tasks)) == tasks
            rate = tasks / (time.perf_counter() - started_s)
            submit_s, all_s = floor.submit_all(submits)
            times = floor.lone(lone)
        return rows("floor", rate, submits / submit_s, submits / all_s, times)

    def ours_run() -> list[ours.Row]:
        with ours.BenchmarkSite() as site, Client(site.address) as client:
            rate = ours.map_rate(client, tasks)
            submit, both = ours.submit_rates(client, submits)
            times = ours.lone_times(client, lone)
        return rows("gridfed", rate, submit, both, times)

    series = alternate([floor_run, ours_run], repeats)
    save("overhead", facts, series, [])


def rows(who: str, rate: float, submit: float, both: float, times: list[float]) -> list[ours.Row]:
    """Return the measures of overhead, as rows."""
    return [
        (who, "map", "tasks/s", rate),
        *peers.figures(who, submit, both, times),
    ]


def jobs(repeats: int, quick: bool) -> None:
    """Measure end-to-end times of jobs of 1, 10 and 100 tasks, as AWS HTC-Grid publishes them."""
    facts = machine()
    series: dict[str, BenchSeries] = {}
    with ours.BenchmarkSite() as site, Client(site.address) as client:
        for _ in range(repeats):
            for tasks in (1, 10, 100):
                for taken in ours.job_times(client, tasks, 20 if quick else 200):
                    name = f"job of {tasks}"
                    one = series.setdefault(name, BenchSeries("gridfed", name, "µs"))
                    one.values.append(taken * 1e6)
    notes = [
        f"{each.measure}: p50 {quantile(each.values, 0.5):,.0f} µs, p90 "
        f"{quantile(each.values, 0.9):,.0f} µs, p99 {quantile(each.values, 0.99):,.0f} µs.  "
        for each in series.values()
    ]
    save("jobs", facts, list(series.values()), notes)


def ten_million(repeats: int, quick: bool) -> None:
    """Map ten million empty tasks: time, and memory of client and gateway."""
    facts = machine()
    tasks = 1_000_000 if quick else 10_000_000
    notes = []
    with ours.BenchmarkSite() as site, Client(site.address) as client:
        started_s = time.perf_counter()
        for done, _ in enumerate(client.map(empty, range(tasks)), 1):
            if done % (tasks // 5) == 0:
                here = ours.peak_bytes(os.getpid(), "VmRSS") >> 20
                notes.append(f"after {done:,} tasks the client has {here} MiB.  ")
        taken_s = time.perf_counter() - started_s
        peak = ours.peak_bytes(site.gateway.pid)
    series = [
        BenchSeries("gridfed", f"map of {tasks:,}", "s", [taken_s]),
        BenchSeries("gridfed", "gateway's peak memory", "MiB", [peak / (1 << 20)]),
    ]
    save("ten_million", facts, series, notes)


def work(repeats: int, quick: bool) -> None:
    """Run real work on two slots: the share of the ideal time, and uneven tasks."""
    facts = machine()
    total_s = 2.0 if quick else 8.0

    measures = [
        (task, seconds, 2 * max(2, int(total_s / seconds / 2)))
        for task in (ours.wait, ours.spin)
        for seconds in (0.001, 0.01, 0.1, 1.0)
    ]

    def row(who: str, task: Callable[[float], None], seconds: float, share: float) -> ours.Row:
        return who, f"{task.__name__} of {seconds * 1000:g} ms", "share of the ideal", share

    def floor_run() -> list[ours.Row]:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(ours.loop, [ours.wait] * 4, [0.05] * 4, [1] * 4))  # both are there
            return [
                row("floor", task, seconds, count / 2 * seconds / max(taken))
                for task, seconds, count in measures
                if (taken := list(pool.map(ours.loop, [task] * 2, [seconds] * 2, [count // 2] * 2)))
            ]

    def run() -> list[ours.Row]:
        found: list[ours.Row] = []
        with ours.BenchmarkSite() as site, Client(site.address) as client:
            for task, seconds, count in measures:
                started_s = time.perf_counter()
                list(client.map(task, [seconds] * count))
                share = count / 2 * seconds / (time.perf_counter() - started_s)
                found.append(row("gridfed", task, seconds, share))
            mixed = list(ours.spread([0.001] * 2000 + [1.0] * (4 if quick else 14)))
            started_s = time.perf_counter()
            list(client.map(ours.wait, mixed))
            share = sum(mixed) / 2 / (time.perf_counter() - started_s)
            found.append(("gridfed", "wait of 1 ms and 1 s mixed", "share of the ideal", share))
        return found

    notes = [
        "`wait` sleeps: its loss is due to scheduling alone. `spin` keeps a core busy, and "
        "on this machine two slots share two cores with the client, the gateway and both "
        "agents. The floor is two plain processes, each in a loop over its half of the "
        "tasks: the limit of this machine's clock."
    ]
    save("work", facts, alternate([floor_run, run], repeats), notes)


BENCHMARKS: dict[str, Callable[[int, bool], None]] = {
    "overhead": overhead,
    "hops": hops,
    "jobs": jobs,
    "ten_million": ten_million,
    "large": bulk.large,
    "unread": bulk.unread,
    "short_jobs": bulk.short_jobs,
    "objects": objects,
    "graphs": graphs,
    "nested": nested,
    "graph_core": graph_core,
    "carrying": carrying,
    "many_jobs": many_jobs,
    "work": work,
    "placement": placement,
    "preemption": preemption,
    "sharing": sharing,
    "environments": environments,
    "books": books,
    "books_size": books_size,
    "books_map": books_map,
    "books_audit": books_audit,
    "forwarded": forwarded,
    "lost_site": lost_site,
    "slurm": slurm,
    "peers": peers.compare,
}


def main() -> None:
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=[*BENCHMARKS, "versions", "targets", "all", "plots"])
    parser.add_argument("--quick", action="store_true", help="smaller figures, for a quick check")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="versions: a checkout of another commit, with its .venv",
    )
    given = parser.parse_args()
    if given.name == "versions":
        if given.against is None:
            parser.error("versions needs --against FOLDER, a checkout of another commit")
        versions(given.repeats, given.quick, given.against)
    if given.name == "targets":
        plots.draw_targets(targets())
    for name, benchmark in BENCHMARKS.items():
        if given.name in (name, "all"):
            benchmark(given.repeats, given.quick)
        if given.name in (name, "all", "plots"):
            plots.draw(name)
    if given.name in ("all", "plots"):
        plots.draw("gossip")  # its figures are from `python -m simulations gossip`


if __name__ == "__main__":
    main()
