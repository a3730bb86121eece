"""The same empty tasks on ProcessPoolExecutor, Dask, Ray and openGRIS Scaler.

Each peer has its own environment, created on first use in $GRIDFED_BENCH_CACHE (or
~/.cache/gridfed-bench), because their pins clash. A peer that can't be installed is left out, and
the table says why.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from benchmarks import ours
from benchmarks.harness import BenchSeries, alternate, machine, quantile, save
from federation import Client

CACHE: Final = Path(os.environ.get("GRIDFED_BENCH_CACHE", "~/.cache/gridfed-bench")).expanduser()
PEER_S: Final = 600

# The requirements of each peer, how to open it as `submit(fn, x) → future`, and how to close it.
PEERS: Final[dict[str, tuple[list[str], str]]] = {
    "ProcessPoolExecutor": (
        [],
        """
from concurrent.futures import ProcessPoolExecutor
pool = ProcessPoolExecutor(2)
submit, close = pool.submit, pool.shutdown
""",
    ),
    "Dask": (
        ["distributed"],
        """
from distributed import Client, LocalCluster
cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
def submit(fn, x): return client.submit(fn, x, pure=False)
def close(): client.close(); cluster.close()
""",
    ),
    "Ray": (
        ["ray"],
        """
import ray
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
class Ref:
    def __init__(self, ref): self.ref = ref
    def result(self): return ray.get(self.ref)
remote = ray.remote(empty)
def submit(fn, x): return Ref(remote.remote(x))
close = ray.shutdown
""",
    ),
    "Scaler": (
        ["opengris-scaler"],
        """
from scaler import Client, SchedulerClusterCombo
cluster = SchedulerClusterCombo(n_workers=2)
client = Client(address=cluster.get_address())
submit = client.submit
def close(): client.disconnect(); cluster.shutdown()
""",
    ),
}

# One script for all: warm up, a loop of submits, then all results, then lone tasks.
SCRIPT: Final = """
import json, sys, time
def empty(x): return None
def main():
    count, lone = int(sys.argv[1]), int(sys.argv[2])
    {opening}
    [f.result() for f in [submit(empty, i) for i in range(20)]]
    started = time.perf_counter()
    futures = [submit(empty, i) for i in range(count)]
    submitted = time.perf_counter() - started
    for future in futures: future.result()
    both = time.perf_counter() - started
    times = []
    for i in range(lone):
        begun = time.perf_counter(); submit(empty, i).result()
        times.append(time.perf_counter() - begun)
    print("FIGURES " + json.dumps([count / submitted, count / both, times]), flush=True)
    close()
if __name__ == "__main__":
    main()
"""


def environment(name: str, needs: list[str]) -> Path:
    """Return the interpreter of a peer's own environment, created on first use."""
    if not needs:
        return Path(sys.executable)
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *needs], check=True, timeout=PEER_S)
        (folder / "ready").touch()
    return python


def run_peer(name: str, count: int, lone: int) -> list[ours.Row]:
    """Run one peer once, in its environment."""
    needs, opening = PEERS[name]
    python = environment(name, needs)
    script = SCRIPT.replace("{opening}", opening.strip().replace("\n", "\n    "))
    path = CACHE / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    done = subprocess.run(
        [python, path, str(count), str(lone)],
        capture_output=True,
        text=True,
        timeout=PEER_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("FIGURES "):
            submit, both, times = json.loads(line.removeprefix("FIGURES "))
            return figures(name, submit, both, times)
    raise RuntimeError(f"{name} reported no figures: {done.stderr.strip()[-400:]}")


def figures(who: str, submit: float, both: float, times: list[float]) -> list[ours.Row]:
    """Return one run's rows."""
    return [
        (who, "submit", "submits/s", submit),
        (who, "submit and results", "tasks/s", both),
        (who, "lone p50", "µs", quantile(times, 0.5) * 1e6),
        (who, "lone p99", "µs", quantile(times, 0.99) * 1e6),
    ]


def compare(repeats: int, quick: bool) -> None:
    """Run gridfed and the peers in turn; rates are comparable, so the slow ones get fewer tasks."""
    facts = machine()
    scale = 10 if quick else 1
    notes = [
        f"gridfed and ProcessPoolExecutor got {100000 // scale:,} tasks, the others "
        f"{5000 // scale:,}; rates are comparable."
    ]
    counts = dict.fromkeys(PEERS, 5000) | {"ProcessPoolExecutor": 100_000}
    usable = []
    for name in PEERS:
        try:
            run_peer(name, 200, 10)
            usable.append(name)
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            notes.append(f"{name} was skipped: {str(error)[:300]}")

    def ours_run() -> list[ours.Row]:
        with ours.BenchmarkSite() as site, Client(site.address) as client:
            submit, both = ours.submit_rates(client, 100_000 // scale)
            return figures("gridfed", submit, both, ours.lone_times(client, 500))

    def peer(name: str) -> list[ours.Row]:
        return run_peer(name, counts[name] // scale, 200)

    runs = [ours_run, *(lambda name=name: peer(name) for name in usable)]
    series = alternate(runs, repeats)
    notes += ratios(series)
    save("peers", facts, series, notes)


def ratios(series: list[BenchSeries]) -> list[str]:
    """Compare gridfed with each peer."""
    mine = {each.measure: each.median for each in series if each.contestant == "gridfed"}
    return [
        f"gridfed / {each.contestant}, {each.measure}: {mine[each.measure] / each.median:.2f}.  "
        for each in series
        if each.contestant != "gridfed"
    ]
