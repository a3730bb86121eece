"""The cost of a task in a container's slot, once started, against a bare slot's.

Three workers of one slot at one gateway, all warm: two with bare slots, one with a container. They
take turns in many short rounds, alternately forwards and backwards. The result is the median of the
ratios within a round: other load on the machine affects a round's contestants alike. The second
bare slot shows how much of a ratio is noise. All run the same build of Python, the image's;
otherwise the benchmark would compare builds.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.floor import empty
from benchmarks.harness import BenchSeries, machine, quantile, save
from benchmarks.ours import BenchmarkSite
from federation import Client

IMAGE_VARIABLE = "GRIDFED_BENCH_IMAGE"
PYTHON_VARIABLE = "GRIDFED_BENCH_PYTHON"
USUAL_IMAGE = "localhost/gridfed-test:1"
USUAL_PYTHON = f"/usr/bin/python3.{sys.version_info.minor}"
ROUNDS = 20  # a repeat
LONE, SHORT, SHORTS, LONG = 50, 100, 5, 20_000  # tasks; maps; tasks
CPU = "CPU of the slot, a task of map"


def _image() -> str:
    """Return an image with this minor version of Python: a local one, or as the tests make it."""
    named = os.environ.get(IMAGE_VARIABLE, USUAL_IMAGE)
    done = subprocess.run(["podman", "image", "exists", named], check=False)
    if done.returncode:
        sys.exit(
            f"image {named} does not exist here: run the tests in "
            "tests/gateway/worker/isolation, which build it, or name another image with "
            f"${IMAGE_VARIABLE}"
        )
    return named


def _python() -> str:
    """Return the image's build of Python, on this host."""
    named = os.environ.get(PYTHON_VARIABLE, USUAL_PYTHON)
    return named if os.path.exists(named) else sys.executable


def _map_s(client: Client, tasks: int) -> float:
    """Time a map of empty tasks, in seconds."""
    started_s = time.perf_counter()
    assert sum(1 for _ in client.map(empty, range(tasks))) == tasks
    return time.perf_counter() - started_s


def _lone_s(client: Client, times: int) -> list[float]:
    """Time round trips of tasks that wait for no other, in seconds."""
    found = []
    for number in range(times):
        started_s = time.perf_counter()
        client.submit(empty, number).result()
        found.append(time.perf_counter() - started_s)
    return found


def _round(client: Client) -> dict[tuple[str, str], float]:
    """Return one contestant's measures, with their units."""
    lone_s = quantile(_lone_s(client, LONE), 0.5)
    short_s = quantile([_map_s(client, SHORT) for _ in range(SHORTS)], 0.5)
    cpu_ns = client.submit(time.process_time_ns).result()
    long_s = _map_s(client, LONG)
    cpu_ns = client.submit(time.process_time_ns).result() - cpu_ns
    return {
        ("lone task, p50", "µs"): lone_s * 1e6,
        (f"map of {SHORT}, p50", "ms"): short_s * 1e3,
        ("a task of map", "µs"): long_s / LONG * 1e6,
        (CPU, "µs"): cpu_ns / LONG / 1e3,
    }


def environments(repeats: int, quick: bool) -> None:
    """Run empty tasks in two bare slots and in a container's, by map and one by one."""
    image, facts = _image(), machine()
    rounds = max(4, repeats * ROUNDS // (5 if quick else 1))
    with tempfile.TemporaryDirectory(prefix="gridfed-bench-") as folder, BenchmarkSite(0) as site:
        rules = Path(folder) / "rules.toml"
        rules.write_text(f'images = ["{image}"]\ncpus = {os.cpu_count()}\n')
        site.add_worker(_python(), "--tags", "bare")
        site.add_worker(_python(), "--tags", "bare-too")
        site.add_worker(_python(), "--tags", "boxed", "--environments", str(rules))
        with Client(site.address) as client:
            until_s = time.monotonic() + 60
            while len(client.ask("workers")) < 3:
                assert time.monotonic() < until_s, "the workers did not connect in time"
                time.sleep(0.02)
            views = {
                "floor": client.options(tags={"bare": True}),
                "floor again": client.options(tags={"bare-too": True}),
                "container": client.options(tags={"boxed": True}, environment=image),
            }
            started_s = time.perf_counter()
            views["container"].submit(empty, 0).result()
            begins_s = time.perf_counter() - started_s
            found = _rounds(views, rounds)
    save("environments", facts, list(found.values()), _notes(found, begins_s))


def _rounds(views: dict[str, Client], rounds: int) -> dict[tuple[str, str], BenchSeries]:
    found: dict[tuple[str, str], BenchSeries] = {}
    for view in views.values():
        _round(view)  # warm up
    for number in range(rounds):
        order = list(views.items())
        for who, view in order if number % 2 else reversed(order):
            for (measure, unit), value in _round(view).items():
                series = found.setdefault((who, measure), BenchSeries(who, measure, unit))
                series.values.append(value)
    return found


def _notes(found: dict[tuple[str, str], BenchSeries], begins_s: float) -> list[str]:
    lines = [
        "`floor` and `floor again` are bare slots, with the same Python as the image; ratios of "
        "the second are noise. The container's first task, with the start of its slot, took "
        f"{begins_s:.2f} s. Ratios round by round, each with the bare slots of its round:",
        "",
        "| measure | contestant | median of ratios | lower quartile | upper quartile |",
        "|---|---|---:|---:|---:|",
    ]
    for (who, measure), series in sorted(found.items(), key=lambda each: each[0][::-1]):
        if who == "floor":
            continue
        floor = found["floor", measure].values
        ratios = [value / base for value, base in zip(series.values, floor, strict=True)]
        shown = " | ".join(f"{quantile(ratios, share):.2f}" for share in (0.5, 0.25, 0.75))
        lines.append(f"| {measure} | {who} | {shown} |")
    return lines
