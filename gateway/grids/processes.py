"""Processes of this host as a grid: a pool that exists only while there is work.

Each pilot is a worker agent in a session of its own. It outlives its gateway, which finds it again
by a mark in its environment (gateway.grids.marked). An order is recorded in a file before it is
begun, so that it is never begun twice.
"""

import errno
import fcntl
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE
from federation.clocks import UtcS
from gateway.base.values import check_known, count
from gateway.grids import marked
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    GridKind,
    Launch,
    Limits,
    Order,
    PilotState,
    Shape,
    Sighting,
    check_order,
)
from gateway.worker.isolation.secrecy import PILOT_VARIABLE

AGENT: Final = "gateway.worker.agent"
SLOTS_MAX: Final = 1024
STOP_S: Final = 12.0  # a pilot that was told to end is killed after this time, …
KILL_S: Final = 5.0  # … and given up after this time
LOOK_S: Final = 0.05
KEPT_S: Final = 86_400.0  # logs and records of orders are removed after this time
TAIL_BYTES: Final = 1_000  # of an ended pilot's log that its fault shows
TICKS: Final = os.sysconf("SC_CLK_TCK")
EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessesConfig:
    """`slots_max`: of all pilots together."""

    slots_max: int


class ProcessGrid:
    """Runs pilots as processes of this host and user."""

    def __init__(self, config: ProcessesConfig, launch: Launch) -> None:
        self._slots_max = config.slots_max
        self._launch = launch
        self._children: dict[int, str] = {}  # pid → pilot: those that this object has started
        self._ended: deque[Sighting] = deque(maxlen=SLOTS_MAX)
        self._ending: set[str] = set()
        self._lock = threading.Lock()  # no child is reaped twice

    async def check(self) -> str:
        """Check that records can be kept here; remove old ones."""
        await _in_thread(self._sweep)
        return f"processes on {os.uname().nodename}, at most {self._slots_max} slots (slots_max)"

    async def limits(self) -> Limits:
        """Return as many pilots as slots, for pilots of one slot."""
        return Limits(pilots_max=self._slots_max, orders_max=600)

    async def capacity(self, shape: Shape) -> Capacity:
        """Return the unused slots."""
        used = await _in_thread(self._used)
        slots = max(0, self._slots_max - used) // shape.slots * shape.slots
        return Capacity(slots, slots)

    async def pilots(self) -> Sequence[Sighting]:
        """Return running pilots, and those of this run of the site that have ended."""
        return await _in_thread(self._pilots)

    async def start(self, order: Order) -> None:
        """Start the processes of an order, unless it is recorded already."""
        check_order(order, await self.limits())
        if order.shape.gpus:
            raise GridFault(FailureClass.NEVER, "a pool of processes has no GPUs: set gpus to 0")
        await _in_thread(self._start, order)

    async def stop(self, names: Collection[str]) -> None:
        """Tell pilots to end; kill the remaining ones after a time."""
        await _in_thread(self._signal, names, signal.SIGTERM)
        with trio.move_on_after(STOP_S):
            while await _in_thread(self._signal, names, None):  # noqa: ASYNC110 - no event tells
                await trio.sleep(LOOK_S)
        with trio.move_on_after(KILL_S):
            while await _in_thread(self._signal, names, signal.SIGKILL):  # noqa: ASYNC110
                await trio.sleep(LOOK_S)
            return
        raise GridFault(FailureClass.AGAIN, "a pilot's process does not end, even after a kill")

    # --- in a thread -----------------------------------------------------------------------------

    def _start(self, order: Order) -> None:
        folder = self._launch.folder
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # against another object of the same pool
            note = folder / f"{order.name}.order"
            if note.exists():
                return
            free, wanted = self._slots_max - self._used(), order.pilots * order.shape.slots
            if wanted > free:
                text = (
                    f"{free} of {self._slots_max} slots (slots_max) are free, {wanted} are needed"
                )
                raise GridFault(FailureClass.ELSEWHERE, text)
            note.touch()
            try:
                for name in order.names():
                    pid = self._spawn(name, order.shape)
                    self._children[pid] = name
                    marked.wait_until_shown(pid, PILOT_VARIABLE)
            except OSError:
                self._signal(order.names(), signal.SIGKILL)
                note.unlink()
                raise

    def _command(self, name: str, shape: Shape) -> list[str]:
        return self._launch.command(name, shape)

    def _spawn(self, name: str, shape: Shape) -> int:
        environment = dict(os.environ)
        for ours in (SECRET_VARIABLE, TOKEN_VARIABLE):  # they grant more than any pilot needs
            environment.pop(ours, None)
        environment |= self._launch.environment
        environment[PILOT_VARIABLE] = f"{self._launch.mark}/{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self._log(name), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        command = self._command(name, shape)
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)

    def _find(self) -> tuple[dict[str, marked.Marked], list[tuple[str, marked.Marked]]]:
        """Return the running pilots, and all processes with the pilot that they come from."""
        all_ = [(each.said, each) for each in marked.find(PILOT_VARIABLE, f"{self._launch.mark}/")]
        # A pilot's child looks like it until it runs its own program: the oldest is the pilot.
        oldest_last = sorted(all_, key=lambda each: (each[1].since, each[1].pid), reverse=True)
        return {name: each for name, each in oldest_last if {AGENT, name} <= {*each.command}}, all_

    def _used(self) -> int:
        return sum(map(_slots, self._find()[0].values()))

    def _pilots(self) -> list[Sighting]:
        with self._lock:
            self._reap()
        alive, all_ = self._find()
        for name, each in all_:
            if name not in alive:
                marked.send(each, signal.SIGKILL)  # a task has left it behind
        self._ending &= alive.keys()
        boot_at_s = UtcS(time.time()) - time.clock_gettime(time.CLOCK_BOOTTIME)
        running = []
        for name, each in alive.items():
            state = PilotState.ENDING if name in self._ending else PilotState.RUNNING
            paid_at_s = boot_at_s + each.since / TICKS
            running.append(Sighting(name, state, f"pid {each.pid}", _slots(each), paid_at_s))
        return [*running, *(each for each in self._ended if each.name not in alive)]

    def _reap(self) -> None:
        """Note which of our pilots have ended."""
        for pid, name in list(self._children.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                del self._children[pid]
                said = Path(self._log(name)).read_bytes()[-TAIL_BYTES:].decode(errors="replace")
                last = "".join(said.strip().splitlines()[-1:])
                fault = f"the process ended with code {os.waitstatus_to_exitcode(status)}: {last}"
                self._ended.append(Sighting(name, PilotState.ENDED, f"pid {pid}", 0, fault=fault))

    def _signal(self, names: Collection[str], number: signal.Signals | None) -> bool:
        """Send a signal to pilots, SIGKILL to all their processes too; return whether any exist."""
        alive, all_ = self._find()
        doomed = [(name, each) for name, each in all_ if name in names]
        if number is not signal.SIGKILL:
            doomed = [(name, each) for name, each in doomed if alive.get(name) is each]
        for name, each in doomed:
            self._ending.add(name)
            if number is not None:
                marked.send(each, number)
        return bool(doomed)

    def _log(self, name: str) -> str:
        return str(self._launch.folder / f"{name}.log")

    def _sweep(self) -> None:
        """Remove old records of orders, which are not made again, and logs of ended pilots."""
        alive, _ = self._find()
        for path in self._launch.folder.iterdir():
            is_old = path.stat().st_mtime < time.time() - KEPT_S
            if is_old and path.suffix in (".log", ".order") and path.stem not in alive:
                path.unlink()


def _slots(pilot: marked.Marked) -> int:
    return int(pilot.command[pilot.command.index("--slots") + 1])


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run work on /proc or files in a thread; an OSError becomes a fault of the grid."""
    try:
        return await trio.to_thread.run_sync(work, *arguments)
    except OSError as error:
        failure_class = FailureClass.ELSEWHERE if error.errno in EXHAUSTED else FailureClass.NEVER
        raise GridFault(failure_class, f"processes of this host: {error}") from error


def read(table: Mapping[str, Any]) -> ProcessesConfig:
    """Read `[pool.processes]`. Raises SettingError."""
    check_known(table, ["slots_max"])
    cores = len(os.sched_getaffinity(0))
    return ProcessesConfig(count("slots_max", table.get("slots_max", cores), 1, SLOTS_MAX))


KIND: Final = GridKind("processes", read, ProcessGrid, is_here=True)
