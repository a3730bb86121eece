"""Processes of a run: each is started with a mark in its environment, and ended by its id."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from support.processes import Process

MARK = "GRIDFED_CHAOS"  # in the environment of all that a run starts, however deep
START_S = 120.0  # how long a gateway may take to be ready, on a busy host
END_S = 10.0


def mark(run: str) -> None:
    """Have all that this process starts from now on carry the mark of the run."""
    os.environ[MARK] = run


def marked(run: str) -> Iterator[psutil.Process]:
    """The processes that a run has started and that have not ended, this one left out."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get(MARK) == run
            ):
                yield process


def end(processes: Sequence[psutil.Process]) -> None:
    """End processes for good, those that are stopped too."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, END_S)


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes; skip those that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; empty when it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def slots_below(pid: int) -> list[int]:
    """The slots of the agents at or below a process, by their command lines."""
    found = []
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            if "gateway.worker.slot.slot" in process.cmdline():
                found.append(process.pid)
    return found


def wait_ready(process: Process) -> dict[str, object]:
    """The gateway's output when it is ready; a gateway that takes too long is killed.

    Raises:
        AssertionError: it ended before, or was killed.
    """
    late = threading.Timer(START_S, process.process.kill)
    late.start()
    try:
        return process.wait_ready()
    finally:
        late.cancel()


class Script:
    """A module of this package as a process, with its output in a log."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=Path(__file__).resolve().parents[2],
            )
        self.log = log
        self.pid = self.process.pid

    def kill(self) -> None:
        """End it for good, and wait for that."""
        self.process.kill()
        self.process.wait()

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end, one way or another."""
        return self.process.poll() is not None
