"""One contestant of `versions`: runs phases that its standard input names, with its own code.

A program, started by the Python of any checkout since 49ac01de: it imports nothing of `benchmarks`
that another commit may lack. Answers are lines of JSON: [measure, unit, value] for each figure.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from federation import Client


def main() -> None:
    """Start a lone site and a pair of sites; answer phases until the input ends."""
    quick = "--quick" in sys.argv
    tasks, lone = (60_000, 300) if quick else (600_000, 2_000)
    sys.path.insert(0, str(Path.cwd() / "examples"))
    import local_federation as local

    Plan = getattr(local, "LocalSitePlan", None) or local.Plan  # type: ignore[attr-defined]
    plans = [Plan("near", 0, "0.04 USD"), Plan("far", 1, "0.04 USD")]
    with ExitStack() as stack:
        client = stack.enter_context(Client(_lone_site(stack)))
        near, _ = stack.enter_context(local.local_federation(plans))
        afar = stack.enter_context(Client(near.address))
        for each in (client, afar):
            assert sum(1 for _ in each.map(abs, range(2_000))) == 2_000
        phases: dict[str, Callable[[], list[tuple[str, str, float]]]] = {
            "lone": lambda: _lone(client, lone, "lone"),
            "map": lambda: _map(client, tasks, "map"),
            "submit": lambda: _submit(client, abs, tasks // 10, "submit and results"),
            "submit own": lambda: _submit(client, own, tasks // 2, "submit of a script's function"),
            "forwarded map": lambda: _map(afar, tasks // 2, "forwarded map"),
            "forwarded lone": lambda: _lone(afar, lone // 2, "forwarded lone"),
        }
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(phases[line.strip()]()), flush=True)


def _lone_site(stack: ExitStack) -> str:
    """Start a gateway and a worker of one slot; return the address."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gridfed-bench-"))
    address = f"ipc://{folder}/gateway.sock"
    gridfed = [sys.executable, "-m", "gateway"]
    for command in (
        [*gridfed, "gateway", "--listen", address, "--state", f"{folder}/state"],
        [*gridfed, "worker", "--gateway", address, "--slots", "1"],
    ):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        until_s = time.monotonic() + 300
        while not os.path.exists(f"{folder}/gateway.sock"):
            assert time.monotonic() < until_s, "the gateway did not start in time"
            time.sleep(0.02)
    return address


def _lone(client: Client, count: int, name: str) -> list[tuple[str, str, float]]:
    cpu_s = _cpu_s()
    taken = []
    for at in range(count):
        started_s = time.perf_counter()
        client.submit(abs, at).result()
        taken.append(time.perf_counter() - started_s)
    cpu_s = _cpu_s() - cpu_s
    return [
        (f"{name}, p50", "µs", sorted(taken)[count // 2] * 1e6),
        (f"{name}, processor time of a task", "µs", cpu_s / count * 1e6),
    ]


def _map(client: Client, tasks: int, name: str) -> list[tuple[str, str, float]]:
    cpu_s, started_s = _cpu_s(), time.perf_counter()
    assert sum(1 for _ in client.map(abs, range(tasks))) == tasks
    taken_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - cpu_s
    return [
        (name, "tasks/s", tasks / taken_s),
        (f"{name}, processor time of a task", "µs", cpu_s / tasks * 1e6),
    ]


def own(value: int) -> int:
    """Return a value: a function that travels by value, unlike `abs`."""
    return value


def _submit(
    client: Client, function: Callable[[int], int], tasks: int, name: str
) -> list[tuple[str, str, float]]:
    cpu_s, started_s = _cpu_s(), time.perf_counter()
    for future in [client.submit(function, at) for at in range(tasks)]:
        future.result()
    taken_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - cpu_s
    return [
        (name, "tasks/s", tasks / taken_s),
        (f"{name}, processor time of a task", "µs", cpu_s / tasks * 1e6),
    ]


def _cpu_s() -> float:
    """Return the processor time of this process and all its descendants so far, in seconds."""
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    me, total = os.getpid(), 0
    for pid, used in ticks.items():
        above = pid
        while above not in (me, 0, 1):
            above = parents.get(above, 0)
        total += used if above == me else 0
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
