"""Ray, Dask and an earlier commit of gridfed, as contestants of `objects` and `graphs`.

The processes are up for the whole run. One line asks for one round; the answer is its rows, as
JSON. Processor time is that of the process and of all that it has started.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import ours
from benchmarks.peers import environment

RAY: Final = """
import json, sys, time
import numpy as np, psutil, ray
count, message = int(sys.argv[1]), int(sys.argv[2])
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
         object_store_memory=4_000_000_000)
@ray.remote
def total(array): return float(array[0])
@ray.remote
def made(count, value): return np.full(count, value)
large, small = np.random.default_rng(1).random(count), np.arange(message, dtype=float)
mb = large.nbytes // 1_000_000
def used():
    found = 0.0
    for each in (me, *me.children(recursive=True)):
        try: found += sum(each.cpu_times()[:2])
        except psutil.Error: pass
    return found
me = psutil.Process()
ray.get(total.remote(ray.put(small[:10])))
def timed(work):
    started = time.perf_counter(); found = work(); return time.perf_counter() - started, found
def rows():
    large[0] = small[0] = time.perf_counter()
    before = used(); taken, ref = timed(lambda: ray.put(large)); cpu = used() - before
    yield f"put of {mb} MB", "s", taken
    yield f"put of {mb} MB, processor time", "s", cpu
    yield "first task on it", "s", timed(lambda: ray.get(total.remote(ref)))[0]
    yield "next task on it", "s", timed(lambda: ray.get(total.remote(ref)))[0]
    yield "lone task", "s", timed(lambda: ray.get(total.remote(small[:1])))[0]
    yield f"result of {mb} MB", "s", timed(lambda: ray.get(made.remote(count, 1.0)))[0]
    yield "argument of 40 MB", "s", timed(lambda: ray.get(total.remote(small)))[0]
print("ready", flush=True)
for _ in sys.stdin: print(json.dumps(list(rows())), flush=True)
ray.shutdown()
"""

RAY_GRAPHS: Final = """
import json, sys, time, ray
plain, wide = int(sys.argv[1]), int(sys.argv[2])
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
@ray.remote
def step(value): return value + 1
@ray.remote
def total(*values): return sum(values)
ray.get(total.remote(*[step.remote(at) for at in range(10)]))
def rows():
    started, last = time.perf_counter(), 0
    for at in range(plain): last = step.remote(last)
    assert ray.get(last) == plain
    yield "chain of two functions in turn", "steps/s", plain / (time.perf_counter() - started)
    started = time.perf_counter()
    ray.get(total.remote(*[step.remote(at) for at in range(wide)]))
    yield f"fan-in of {wide:,}", "tasks/s", wide / (time.perf_counter() - started)
print("ready", flush=True)
for _ in sys.stdin: print(json.dumps(list(rows())), flush=True)
ray.shutdown()
"""

DASK_GRAPHS: Final = """
import json, sys, time
from distributed import Client, LocalCluster
plain, wide = int(sys.argv[1]), int(sys.argv[2])
def step(value): return value + 1
def rows(client):
    started, last = time.perf_counter(), 0
    for at in range(plain): last = client.submit(step, last, pure=False)
    assert last.result() == plain
    yield "chain of two functions in turn", "steps/s", plain / (time.perf_counter() - started)
    started = time.perf_counter()
    client.submit(sum, [client.submit(step, at, pure=False) for at in range(wide)]).result()
    yield f"fan-in of {wide:,}", "tasks/s", wide / (time.perf_counter() - started)
def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.submit(step, 1).result()
            print("ready", flush=True)
            for _ in sys.stdin: print(json.dumps(list(rows(client))), flush=True)
if __name__ == "__main__": main()
"""

BEFORE: Final = """
import json, os, subprocess, sys, tempfile, time
import numpy as np
from federation import Client
def total(array): return float(array[0])
small = np.arange(int(sys.argv[2]), dtype=float)
with tempfile.TemporaryDirectory() as folder:
    address = f"ipc://{folder}/gateway.sock"
    gateway = subprocess.Popen([sys.executable, "-m", "gateway", "up", "--slots", "1", "--listen",
        address, "--state", f"{folder}/state"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    while not os.path.exists(address[6:]): time.sleep(0.05)
    with Client(address) as client:
        client.submit(abs, 1).result()
        print("ready", flush=True)
        for _ in sys.stdin:
            started = time.perf_counter(); client.submit(total, small).result()
            taken = time.perf_counter() - started
            print(json.dumps([["argument of 40 MB", "s", taken]]), flush=True)
    gateway.terminate(); gateway.wait(60)
"""


@contextlib.contextmanager
def contestant(
    name: str, python: Path, script: str, counts: list[int], folder: Path | None = None
) -> Iterator["Contestant | None"]:
    """Start a contestant; None, and a line that says so, where it does not start."""
    environ = dict(os.environ)
    program = [script] if script.endswith(".py") else ["-c", script]
    if folder is not None:
        environ["PYTHONPATH"] = str(folder)
    process = subprocess.Popen(
        [str(python), *program, *map(str, counts)],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() == "ready":
            yield Contestant(name, process)
        else:
            print(f"{name} did not start, and is left out", file=sys.stderr)
            yield None
    finally:
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.close()
        process.wait(120)


def peer_contestant(
    name: str, script: str, counts: list[int]
) -> contextlib.AbstractContextManager["Contestant | None"]:
    """Return Ray or Dask, in an environment of their own; nothing where that can't be made."""
    needs = ["numpy", "psutil", {"Ray": "ray", "Dask": "distributed"}[name]]
    try:
        python = environment(f"{name} objects", needs)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{name} can't be installed, and is left out: {error}", file=sys.stderr)
        return contextlib.nullcontext()
    file = python.parent.parent / "contestant.py"  # Dask's workers import it
    file.write_text(script)
    return contestant(name, python, str(file), counts)


def earlier(
    folder: Path | None, counts: list[int]
) -> contextlib.AbstractContextManager["Contestant | None"]:
    """Return a checkout of an earlier commit with its .venv; nothing where none is named."""
    if folder is None:
        return contextlib.nullcontext()
    return contestant("before", folder / ".venv" / "bin" / "python", BEFORE, counts, folder)


class Contestant:
    """A process that gives rows when it is asked."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self._name = name
        self._process = process

    def rows(self) -> list[ours.Row]:
        """Return the rows of one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return [(self._name, measure, unit, value) for measure, unit, value in found]
