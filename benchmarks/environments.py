"""What a task costs in a container's slot, once that has begun, against a bare slot's.

One worker of one slot at one gateway; the image is made of this host's own files. Contestants run
in turn, each with its slot warm: what is measured is the way of tasks, not of processes.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.floor import empty
from benchmarks.harness import Series, alternate, machine, quantile, save
from benchmarks.ours import Site
from federation import Client

Row = tuple[str, str, str, float]
IMAGE_VARIABLE = "GRIDFED_BENCH_IMAGE"
SHORT = 100  # tasks
USUAL_IMAGE = "localhost/gridfed-test:1"


def _image() -> str:
    """An image with our minor version of Python: one that is here, or as the tests make it."""
    named = os.environ.get(IMAGE_VARIABLE, USUAL_IMAGE)
    done = subprocess.run(["podman", "image", "exists", named], check=False)
    if done.returncode:
        sys.exit(
            f"no image {named} here: run the tests of gateway/worker/test_containers.py, which "
            f"make it, or name another with ${IMAGE_VARIABLE}"
        )
    return named


def _rate(client: Client, tasks: int) -> float:
    """Empty tasks a second, by map."""
    started_s = time.perf_counter()
    assert sum(1 for _ in client.map(empty, range(tasks))) == tasks
    return tasks / (time.perf_counter() - started_s)


def _lone_s(client: Client, times: int) -> list[float]:
    """Seconds there and back of a task that waits for no other."""
    found = []
    for number in range(times):
        started_s = time.perf_counter()
        client.submit(empty, number).result()
        found.append(time.perf_counter() - started_s)
    return found


def environments(repeats: int, quick: bool) -> None:
    """Empty tasks in a bare slot and in a container's, by map and one by one."""
    image, facts = _image(), machine()
    tasks, lone = (50_000, 200) if quick else (300_000, 1000)
    with tempfile.TemporaryDirectory(prefix="gridfed-bench-") as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text(f'images = ["{image}"]\ncpus = {os.cpu_count()}\n')
        more = ["--environments", str(rules)]
        with Site(1, 1, more=more) as site, Client(site.address) as client:

            def run(who: str, view: Client) -> Callable[[], list[Row]]:
                def run_() -> list[Row]:
                    started_s = time.perf_counter()
                    view.submit(empty, 0).result()  # the slot moves here
                    moved_s = time.perf_counter() - started_s
                    _rate(view, 2000)
                    waits = _lone_s(view, lone)
                    shorts = [SHORT / _rate(view, SHORT) for _ in range(lone // 10)]
                    return [
                        (who, "begins", "ms", moved_s * 1e3),
                        (who, "a task of map", "µs", 1e6 / _rate(view, tasks)),
                        (who, "lone task, p50", "µs", quantile(waits, 0.5) * 1e6),
                        (who, f"map of {SHORT}, p50", "ms", quantile(shorts, 0.5) * 1e3),
                    ]

                return run_

            boxed = client.options(environment=image)
            found: list[Series] = alternate(
                [run("floor", client), run("container", boxed)], repeats
            )
    notes = [
        "`floor` is a bare slot. `begins` is the first task after the other contestant had the "
        "slot: its process ends, and another begins, for a container by podman. The image has a "
        "Python of the same minor version but another build: in long maps that shows, either way."
    ]
    save("environments", facts, found, notes)
