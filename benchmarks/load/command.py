"""Measure a gateway with up to 50,000 open jobs: tasks, CPU, longest turns and silences."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, machine, quantile

AGENTS, SLOTS, CLIENTS = 375, 32, 16
START_MAX_S, STOP_MAX_S = 60.0, 20.0
HERE = Path(__file__).parent
FIGURES_S = 0.05  # the interval at which detached jobs are counted
DETACHED_MAX_S = 300.0
TICKS_A_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """One load: the number of open jobs, their tasks, and the duration of a task."""

    jobs: int
    tasks: int
    task_s: float = 0.0
    agents: int = AGENTS
    slots: int = SLOTS
    detached: bool = False

    @property
    def title(self) -> str:
        """The case in words."""
        kind = f"{self.task_s:g} s" if self.task_s else "empty"
        kind += ", detached" if self.detached else ""
        return f"{self.jobs:,} x {self.tasks:,} {kind}"


CASES = (
    *(Case(jobs, 200) for jobs in (1, 16, 128, 1_024, 10_000)),
    Case(50_000, 20),
    *(Case(jobs, 200, 2.0) for jobs in (64, 256, 1_024, 10_000)),
    Case(1_000, 200, detached=True),
)
QUICK = (Case(16, 200), Case(1_024, 200), Case(256, 200, 2.0), Case(1_000, 200, detached=True))


class Process:
    """A part of the load generator: a process that answers a line with its figures."""

    def __init__(self, *command: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def figures(self) -> dict[str, Any]:
        """Return its figures so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        found["cpu_s"] = cpu_s(self._process.pid)
        return found

    def close(self) -> None:
        """Stop it."""
        stop(self._process)


def stop(process: "subprocess.Popen[Any]") -> None:
    """Terminate a child process, and wait for it."""
    process.terminate()
    try:
        process.wait(STOP_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_s(pid: int) -> float:
    """Return a process's CPU time, user and system."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_S


def resident_mb(pid: int) -> float:
    """Return a process's present memory."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def gateway_of(checkout: str, turns: str) -> Iterator[tuple[int, str]]:
    """Run a gateway with store, accounting and limits on; yield its process id and address.

    It runs another checkout's code if one is named. It writes the figures of its turns to a file
    when it ends.
    """
    with tempfile.TemporaryDirectory(prefix="gridfed-load-") as state:
        command = [sys.executable, str(HERE / "metered.py"), turns]
        command += ["gateway", "--json", "--state", state, "--listen", "tcp://127.0.0.1:0"]
        root = checkout or str(HERE.parent.parent)
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": root},
        )
        try:
            assert process.stdout is not None
            said = "".join(iter(process.stdout.readline, "}\n")) + "}"
            ready = json.loads(said)
            # A checkout of an older version has no envelope.
            yield process.pid, ready.get("data", ready)["addresses"][0]
        finally:
            stop(process)


def measure(case: Case, checkout: str, warm_s: float, measured_s: float) -> dict[str, Any]:
    """Put one load on a new gateway, and count."""
    with tempfile.NamedTemporaryFile("r", prefix="gridfed-turns-") as turns:
        with gateway_of(checkout, turns.name) as (pid, address), contextlib.ExitStack() as stack:
            played_by = ("benchmarks.load.agents", address, case.agents, case.slots, case.task_s)
            agents = Process(*played_by)
            stack.callback(agents.close)
            until_s = time.monotonic() + START_MAX_S
            while agents.figures()["open"] < case.agents:
                assert time.monotonic() < until_s, "the agents did not connect in time"
                time.sleep(0.1)
            kind = ("detached",) if case.detached else ()
            asked_by = ("benchmarks.load.clients", address, CLIENTS, case.jobs, case.tasks, *kind)
            begun_s = time.monotonic()
            clients = Process(*asked_by)
            stack.callback(clients.close)
            if case.detached:
                row = _detached(case, pid, agents, clients, begun_s)
            else:
                row = _attached(case, pid, agents, clients, warm_s, measured_s)
        row |= {"case": case.title, "open_jobs": case.jobs, "load": os.getloadavg()[0]}
        return row | {f"turn_{name}": value for name, value in json.load(turns).items()}


def _detached(
    case: Case, pid: int, agents: Process, clients: Process, begun_s: float
) -> dict[str, Any]:
    """Run detached jobs to the end: jobs on disk and tasks per second, from the first on."""
    begun_cpu_s, kept_s, first_s = cpu_s(pid), 0.0, 0.0
    answers_s: list[float] = []
    until_s = begun_s + DETACHED_MAX_S
    while True:
        asked, played, now_s = clients.figures(), agents.figures(), time.monotonic()
        assert now_s < until_s, "the detached jobs did not end in time"
        answers_s += asked["answers_s"]
        if asked["jobs"] and not first_s:
            first_s = now_s - FIGURES_S
        if asked["jobs"] >= case.jobs and not kept_s:
            kept_s = now_s - first_s
        if played["reported"] >= case.jobs * case.tasks and kept_s:
            break
        time.sleep(FIGURES_S)
    done_s, gateway_s = now_s - first_s, cpu_s(pid) - begun_cpu_s
    tasks, bundles = played["reported"], played["assignments"]
    return {
        "jobs_kept_per_s": case.jobs / kept_s,
        "tasks_per_s": tasks / done_s,
        "bundles_per_s": bundles / done_s,
        "gateway_cores": gateway_s / done_s,
        "gateway_us_per_task": gateway_s / tasks * 1e6,
        "gateway_us_per_bundle": gateway_s / bundles * 1e6,
        "slots_fed": 0.0,
        "silence_max_s": max(answers_s),
        "silence_p50_s": quantile(answers_s, 0.5),
        "lapses": played["lapses"],
        "failed": asked["failed"],
        "rejected": asked["rejected"],
        "memory_mb": resident_mb(pid),
    }


def _attached(
    case: Case, pid: int, agents: Process, clients: Process, warm_s: float, measured_s: float
) -> dict[str, Any]:
    """Measure for a time while so many jobs are open."""
    time.sleep(warm_s)
    before, begun_s, begun_cpu_s = (
        (agents.figures(), clients.figures()),
        time.monotonic(),
        cpu_s(pid),
    )
    time.sleep(measured_s)
    after, wall_s = (agents.figures(), clients.figures()), time.monotonic() - begun_s
    gateway_s, memory_mb = cpu_s(pid) - begun_cpu_s, resident_mb(pid)
    done = [
        {key: new[key] - old[key] for key in new if key != "answers_s"}
        for old, new in zip(before, after, strict=True)
    ]
    played, asked = done
    tasks, bundles = played["reported"], played["assignments"]
    answers_s = [*before[1]["answers_s"], *after[1]["answers_s"]]  # the start is hardest
    return {
        "tasks_per_s": tasks / wall_s,
        "bundles_per_s": bundles / wall_s,
        "gateway_cores": gateway_s / wall_s,
        "gateway_us_per_task": gateway_s / tasks * 1e6 if tasks else None,
        "gateway_us_per_bundle": gateway_s / bundles * 1e6 if bundles else None,
        "slots_fed": played["slot_s"] / wall_s / case.agents / case.slots,
        "silence_max_s": max(answers_s, default=measured_s),
        "silence_p50_s": quantile(answers_s, 0.5) if answers_s else measured_s,
        "lapses": after[0]["lapses"],
        "failed": after[1]["failed"],
        "rejected": after[1]["rejected"],
        "client_sessions": after[1]["sessions"],
        "generator_cores": played["cpu_s"] / wall_s,
        "clients_cores": asked["cpu_s"] / wall_s,
        "memory_mb": memory_mb,
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Format the figures for people."""
    lines = [
        "| open jobs x tasks | gateway | tasks/s | cores | µs a task | µs a bundle | slots fed "
        "| longest turn, ms of CPU | ms | turns over 20 ms of CPU | of | longest silence, s "
        "| median, s | leases lost | MB | load |",
        f"|---|---{'|---:' * 14}|",
    ]
    for row in rows:
        fed = f"{row['slots_fed']:.1%}" if row["slots_fed"] else ""
        lines.append(
            f"| {row['case']} | {row['of']} | {row['tasks_per_s']:,.0f} "
            f"| {row['gateway_cores']:.2f} | {_us(row['gateway_us_per_task'])} "
            f"| {_us(row['gateway_us_per_bundle'])} | {fed} "
            f"| {row['turn_cpu_max_s'] * 1e3:.0f} | {row['turn_clock_max_s'] * 1e3:.0f} "
            f"| {row['turn_over_20_ms']} | {row['turn_turns']:,} "
            f"| {row['silence_max_s']:.3f} | {row['silence_p50_s']:.3f} "
            f"| {row['lapses']} | {row['memory_mb']:,.0f} | {row['load']:.1f} |"
        )
    return lines


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def many_jobs(repeats: int, quick: bool) -> None:
    """Load one gateway with a load generator's agents and clients."""
    run([], QUICK if quick else CASES, repeats)


def run(checkouts: list[str], cases: tuple[Case, ...], repeats: int = 1) -> None:
    """Measure each case, with this code and other checkouts in turn, and save the figures."""
    facts, rows = machine(), []
    for _ in range(repeats):
        for case in cases:
            for checkout in (*checkouts, ""):
                row = measure(case, checkout, warm_s=6.0, measured_s=8.0)
                row["of"] = os.path.basename(checkout.rstrip("/")) or "this"
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    RESULTS.mkdir(exist_ok=True)
    command = f"python -m {'benchmarks.load.command' if __name__ == '__main__' else 'benchmarks'} "
    command += " ".join(sys.argv[1:])
    body = {"command": command, "machine": facts, "rows": rows}
    (RESULTS / "many_jobs.json").write_text(json.dumps(body, indent=1) + "\n")
    lines = [
        "# many_jobs",
        "",
        f"`{command.strip()}`, {facts['date']}, {facts['cores']} cores, Python "
        f"{facts['python']}, commit {facts['commit']}. The host ran other work too: `load` "
        "is its load average at the end of each row.",
        "",
        f"One gateway (store, accounting and limits on), {AGENTS} agents of {SLOTS} slots "
        f"in one process, {CLIENTS} clients in another, tcp on the loopback. Empty tasks "
        "are reported at once. A turn is the work of the gateway's loop between two polls "
        "of its input, including garbage collection; a full collection waits until the "
        "loop is idle, and the first turn of a process, which opens its store, is left "
        "out. The longest silence is the longest answer time of `status` after the start "
        "of the load.",
        "",
        *table(rows),
    ]
    for row in rows:
        if "jobs_kept_per_s" in row:
            kept = f"{row['case']}: {row['jobs_kept_per_s']:,.0f} jobs/s on the gateway's disk"
            lines += ["", f"{kept}, each acknowledged."]
    text = "\n".join(lines) + "\n"
    (RESULTS / "many_jobs.md").write_text(text)
    print(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", action="append", default=[], help="another version's folder")
    parser.add_argument("--jobs", type=int, help="open jobs: one case instead of all")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--task-s", type=float, default=0.0)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--detached", action="store_true")
    given = parser.parse_args()
    one = Case(
        *(given.jobs or 0, given.tasks, given.task_s, given.agents, given.slots), given.detached
    )
    run(given.checkout, (one,) if given.jobs else CASES)
