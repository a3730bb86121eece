"""Pilots in a real Slurm cluster of 40 nodes, all of them on this host.

Three questions: the time from an order on an empty pool to the first result; the cost of a task
through pilots, against workers that were started by hand; and the time of the same tasks by one
sbatch each, by one job array, and through pilots, including submission and start of pilots.

The first is measured with a gateway that orders by itself; the others with explicit orders.
"""

import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import trio

from benchmarks import ours
from benchmarks.floor import empty
from benchmarks.harness import alternate, machine, save
from federation import Client
from gateway.grids.contract import GridKind, Launch, Order, Shape
from gateway.grids.kinds import find_kind, open_grid, read_settings

NODES, CPUS = 40, 16
CAME = 8  # pilots that start at once: each is an interpreter, and they share this host's cores
SHAPE = Shape(1, memory_bytes=64 << 20)
LATE_S = 120.0
_numbers = itertools.count()


def slurm(repeats: int, quick: bool) -> None:
    """Run pilots against workers, sbatch and a job array, in turn on one cluster."""
    facts = machine()
    tasks, jobs = (100_000, 50) if quick else (500_000, 300)
    with _cluster() as cluster:
        version = cluster.run("sinfo", "--version").strip()
        runs = [
            lambda: first_result(cluster),
            lambda: _arrivals(cluster),
            lambda: _by_workers(tasks),
            lambda: _by_pilots(cluster, tasks),
            lambda: _by_sbatch(cluster, jobs),
            lambda: _by_array(cluster, jobs),
            lambda: _all_by_pilots(cluster, jobs),
        ]
        series = alternate(runs, repeats)
    notes = [
        f"{version}: {NODES} nodes of {CPUS} CPUs, all on this host; `{jobs} tasks` are "
        "empty, from the first command to the last result."
    ]
    save("slurm", facts, series, notes)


@contextmanager
def _cluster() -> Iterator[Any]:
    # The tests' own: they are not installed.
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    made = import_module("support.programs.slurm").Cluster("bench", nodes=NODES, cpus=CPUS)
    try:
        yield made
    finally:
        made.close()


class SlurmBenchmarkSite:
    """A gateway without its own workers, and a grid that starts pilots for it."""

    def __init__(self, cluster: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gridfed-bench-")
        folder = Path(self._folder.name)
        self.address = f"ipc://{folder}/gateway.sock"
        state = ["--state", f"{folder}/state"]
        command = [sys.executable, "-m", "gateway", "gateway", "--listen", self.address, *state]
        self._gateway = ours.start(command)
        _wait(lambda: (folder / "gateway.sock").exists())
        mark = f"bench-{next(_numbers)}"
        launch = Launch("bench", "workers", mark, self.address, {}, folder, print)
        kind = find_kind("slurm")
        assert isinstance(kind, GridKind)
        self.grid = open_grid(kind, read_settings(kind, cluster.table), launch)
        self._cluster = cluster

    def start(self, pilots: int) -> None:
        """Order pilots."""
        trio.run(self.grid.start, Order(f"o{next(_numbers)}", pilots, SHAPE))

    def has(self, client: Client, slots: int) -> bool:
        """Whether so many slots have connected."""
        return bool(sum(worker["slots"] for worker in client.ask("workers")) >= slots)

    def __enter__(self) -> "SlurmBenchmarkSite":
        return self

    def __exit__(self, *_: object) -> None:
        names = [each.name for each in trio.run(self.grid.pilots)]
        trio.run(self.grid.stop, names)
        _wait(lambda: not self._cluster.run("squeue", "-h").strip())
        self._gateway.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._gateway.wait(20)
        self._folder.cleanup()


def _wait(is_so: Any) -> None:
    until_s = time.monotonic() + LATE_S
    while not is_so():
        assert time.monotonic() < until_s, "the expected state was not reached in time"
        time.sleep(0.01)


CONFIG = """
[[pool]]
name = "hpc"
kind = "slurm"
price = "0.03 USD"

[pool.slurm]
conf = "{conf}"
python = "{python}"
partition = "main"

[pool.scale]
max = 40
idle = "0s"
"""


def first_result(cluster: Any) -> list[ours.Row]:
    """Time a task from submission on an empty pool to its result."""
    with tempfile.TemporaryDirectory(prefix="gridfed-bench-") as folder:
        config = Path(folder) / "site.toml"
        config.write_text(CONFIG.format(**cluster.table))
        address = f"ipc://{folder}/gateway.sock"
        command = [sys.executable, "-m", "gateway", "gateway", "--listen", address]
        command += ["--state", f"{folder}/state", "--config", str(config)]
        gateway = ours.start(command)
        try:
            _wait(Path(folder, "gateway.sock").exists)
            with Client(address) as client:
                begun_s = time.perf_counter()
                client.submit(empty, 0).result(LATE_S)
                taken_s = time.perf_counter() - begun_s
            _wait(lambda: not cluster.run("squeue", "-h").strip())
        finally:
            gateway.terminate()
            gateway.wait(20)
    return [("gridfed", "first result on an empty pool", "s", taken_s)]


def _arrivals(cluster: Any) -> list[ours.Row]:
    """Time from an explicit order to its first pilot, and to all of them."""
    with SlurmBenchmarkSite(cluster) as site, Client(site.address) as client:
        begun_s = time.perf_counter()
        site.start(CAME)
        submitted_s = time.perf_counter() - begun_s
        _wait(lambda: site.has(client, 1))
        first_s = time.perf_counter() - begun_s
        _wait(lambda: site.has(client, CAME))
        all_s = time.perf_counter() - begun_s
    return [
        ("pilots", f"start() of {CAME}", "s", submitted_s),
        ("pilots", f"the first of {CAME} is there", "s", first_s),
        ("pilots", f"all {CAME} are there", "s", all_s),
    ]


def _by_workers(tasks: int) -> list[ours.Row]:
    with ours.BenchmarkSite() as site, Client(site.address) as client:
        return [("workers", "map", "tasks/s", ours.map_rate(client, tasks))]


def _by_pilots(cluster: Any, tasks: int) -> list[ours.Row]:
    with SlurmBenchmarkSite(cluster) as site, Client(site.address) as client:
        site.start(2)
        _wait(lambda: site.has(client, 2))
        sum(1 for _ in client.map(empty, range(1000)))
        return [("pilots", "map", "tasks/s", ours.map_rate(client, tasks))]


def _by_sbatch(cluster: Any, jobs: int) -> list[ours.Row]:
    begun_s = time.perf_counter()
    for _ in range(jobs):
        cluster.run("sbatch", "-n1", "--mem=10", "-o/dev/null", "--wrap=true")
    submitted_s = time.perf_counter() - begun_s
    _wait(lambda: not cluster.run("squeue", "-h").strip())
    taken_s = time.perf_counter() - begun_s
    return [
        ("sbatch each", f"{jobs} tasks", "s", taken_s),
        ("sbatch each", f"{jobs} submitted", "s", submitted_s),
    ]


def _by_array(cluster: Any, jobs: int) -> list[ours.Row]:
    begun_s = time.perf_counter()
    array = f"--array=0-{jobs - 1}"
    cluster.run("sbatch", "-n1", "--mem=10", "-o/dev/null", array, "--wrap=true")
    _wait(lambda: not cluster.run("squeue", "-h").strip())
    return [("job array", f"{jobs} tasks", "s", time.perf_counter() - begun_s)]


def _all_by_pilots(cluster: Any, jobs: int) -> list[ours.Row]:
    with SlurmBenchmarkSite(cluster) as site, Client(site.address) as client:
        begun_s = time.perf_counter()
        site.start(2)
        assert sum(1 for _ in client.map(empty, range(jobs))) == jobs
        return [("pilots", f"{jobs} tasks", "s", time.perf_counter() - begun_s)]
