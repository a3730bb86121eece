"""gridfed as a user meets it: a gateway with its store, two workers of one slot, one client."""

import contextlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.floor import empty
from federation import Client

Row = tuple[str, str, str, float]


class BenchmarkSite:
    """A gateway and workers as separate processes; a context manager."""

    def __init__(
        self,
        workers: int = 2,
        slots: int = 1,
        program: str = "gateway",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gridfed-bench-")
        self.address = f"ipc://{self._folder.name}/gateway.sock"
        me = [sys.executable, "-m", "gateway"]
        state = ["--state", f"{self._folder.name}/state"]
        gateway = [sys.executable, "-m", program, "gateway"]
        self.gateway = start([*gateway, "--listen", self.address, *state])
        until_s = time.monotonic() + 30
        while not os.path.exists(self.address.removeprefix("ipc://")):
            assert time.monotonic() < until_s, "the gateway did not start in time"
            time.sleep(0.02)
        command = [*me, "worker", "--gateway", self.address, "--slots", str(slots)]
        self._workers = [start(command) for _ in range(workers)]
        with Client(self.address) as client:
            while sum(worker["slots"] for worker in client.ask("workers")) < workers * slots:
                time.sleep(0.02)
            if workers:
                sum(1 for _ in client.map(empty, range(1000)))

    def add_worker(self, python: str, *more: str) -> None:
        """Start one more worker of one slot, in a Python with the same packages as this one."""
        command = [python, "-m", "gateway", "worker", "--gateway", self.address, "--slots", "1"]
        # The packages installed for this Python, without its library, which fits this build alone.
        found = (sysconfig.get_path("purelib"), str(Path(__file__).parent.parent))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
        self._workers.append(
            subprocess.Popen(
                [*command, *more],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        )

    def __enter__(self) -> "BenchmarkSite":
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, self.gateway):
            process.terminate()
        for process in (*self._workers, self.gateway):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        self._folder.cleanup()


def start(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process without output."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_bytes(pid: int, key: str = "VmHWM") -> int:
    """Return a process's memory: its high-water mark, or VmRSS for now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def map_rate(client: Client, tasks: int) -> float:
    """Return empty tasks a second through map."""
    started_s = time.perf_counter()
    assert sum(1 for _ in client.map(empty, range(tasks))) == tasks
    return tasks / (time.perf_counter() - started_s)


def submit_rates(client: Client, tasks: int) -> tuple[float, float]:
    """Return submits a second, and submits with their results a second."""
    started_s = time.perf_counter()
    futures = [client.submit(empty, at) for at in range(tasks)]
    submitted_s = time.perf_counter() - started_s
    for future in futures:
        future.result()
    return tasks / submitted_s, tasks / (time.perf_counter() - started_s)


def lone_times(client: Client, count: int) -> list[float]:
    """Return round trips of one task at a time, in seconds."""
    taken = []
    for at in range(count):
        started_s = time.perf_counter()
        client.submit(empty, at).result()
        taken.append(time.perf_counter() - started_s)
    return taken


def job_times(client: Client, tasks: int, count: int) -> list[float]:
    """Return end-to-end times of jobs of so many tasks, in seconds."""
    taken = []
    for _ in range(count):
        started_s = time.perf_counter()
        assert sum(1 for _ in client.map(empty, range(tasks))) == tasks
        taken.append(time.perf_counter() - started_s)
    return taken


def wait(seconds: float) -> None:
    """Take a time without using a core, to measure the scheduling."""
    time.sleep(seconds)


def spin(seconds: float) -> None:
    """Keep a core busy for a time, in competition with the gateway."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass


def loop(task: Callable[[float], None], seconds: float, count: int) -> float:
    """Time so many tasks in a plain loop, in seconds."""
    started_s = time.perf_counter()
    for _ in range(count):
        task(seconds)
    return time.perf_counter() - started_s


def spread(values: list[float]) -> Iterator[float]:
    """Yield durations in an irregular order: every seventh, round and round."""
    for start in range(7):
        yield from values[start::7]
