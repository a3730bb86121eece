"""Processes of this host as a grid: a pool that is there only while there is work.

Each pilot is a worker agent in a session of its own. It outlives its gateway, which finds it again
by a mark in its environment: /proc shows that from the moment a process is there, so none is ever
lost between its start and a note of it. An order is noted in a file before it is begun: whatever
happens then, it is not begun twice.
"""

import contextlib
import errno
import fcntl
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from federation.address import TOKEN_VARIABLE
from gateway.grids.contract import (
    Blame,
    Capacity,
    GridFault,
    GridKind,
    Launch,
    Limits,
    Order,
    Shape,
    Sighting,
    Stand,
    check_order,
)
from gateway.knobs import check_known, count

VARIABLE: Final = "GRIDFED_PILOT"  # in a pilot's environment: our mark, "/", its name
AGENT: Final = b"gateway.worker.agent"
SLOTS_MAX: Final = 1024
STOP_S: Final = 12.0  # a pilot that was told to end is killed after so long, …
KILL_S: Final = 5.0  # … and is given up after so long
LOOK_S: Final = 0.05
KEPT_S: Final = 86_400.0  # logs and notes of orders are removed after so long
TAIL_BYTES: Final = 1_000  # of an ended pilot's log that its fault shows
TICKS: Final = os.sysconf("SC_CLK_TCK")
EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessesConfig:
    """`slots_max`: of all pilots together."""

    slots_max: int


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that carries our mark: a pilot, or what its tasks have started.

    `since`: in clock ticks since the host has started.
    """

    pid: int
    name: str
    is_pilot: bool
    slots: int
    since: int


class ProcessGrid:
    """Runs pilots as processes of this host and user."""

    def __init__(self, config: ProcessesConfig, launch: Launch) -> None:
        self._slots_max = config.slots_max
        self._launch = launch
        self._children: dict[int, str] = {}  # pid → pilot: those that this object has started
        self._ended: deque[Sighting] = deque(maxlen=SLOTS_MAX)
        self._ending: set[str] = set()

    async def check(self) -> str:
        """Whether notes can be kept here; old ones are removed."""
        await _in_thread(self._sweep)
        return f"processes of {os.uname().nodename}, {self._slots_max} slots at most"

    async def limits(self) -> Limits:
        """As many pilots as slots, if each has one."""
        return Limits(pilots_max=self._slots_max, orders_max=600)

    async def capacity(self, shape: Shape) -> Capacity:
        """What is not in use."""
        used = await _in_thread(self._used)
        slots = max(0, self._slots_max - used) // shape.slots * shape.slots
        return Capacity(slots, slots)

    async def pilots(self) -> Sequence[Sighting]:
        """Those that run, and those of this life that have ended."""
        return await _in_thread(self._pilots)

    async def start(self, order: Order) -> None:
        """Start processes. Those of an order that is noted already have been started."""
        check_order(order, await self.limits())
        if order.shape.gpus:
            raise GridFault(Blame.NEVER, "processes have no GPUs to give: set gpus to 0")
        await _in_thread(self._start, order)

    async def stop(self, names: Collection[str]) -> None:
        """Tell pilots to end; kill what is left of them in the end."""
        doomed = frozenset(names)
        look = partial(_in_thread, self._signal, doomed)
        await look(signal.SIGTERM, True)
        with trio.move_on_after(STOP_S):
            while await look(0, True):  # noqa: ASYNC110 - not our children, maybe
                await trio.sleep(LOOK_S)
        with trio.move_on_after(KILL_S):
            while await look(signal.SIGKILL, False):  # noqa: ASYNC110
                await trio.sleep(LOOK_S)
            return
        raise GridFault(Blame.AGAIN, "a pilot's process does not end, even when it is killed")

    # --- in a thread -----------------------------------------------------------------------------

    def _start(self, order: Order) -> None:
        folder = self._launch.folder
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # against another object of the same pool
            note = folder / f"{order.name}.order"
            if note.exists():
                return
            used = self._used()
            if used + order.pilots * order.shape.slots > self._slots_max:
                room = f"{self._slots_max - used} of {self._slots_max} slots are free"
                raise GridFault(Blame.ELSEWHERE, f"{room}: too few for {order.pilots} pilots")
            note.touch()
            try:
                for name in order.names():
                    self._children[self._spawn(name, order.shape)] = name
            except OSError:
                self._signal(order.names(), signal.SIGKILL, False)
                note.unlink()
                raise

    def _used(self) -> int:
        return sum(each.slots for each in self._processes())

    def _spawn(self, name: str, shape: Shape) -> int:
        environment = {**os.environ, **self._launch.environment}
        environment[VARIABLE] = f"{self._launch.mark}/{name}"
        environment.pop(TOKEN_VARIABLE, None)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self._log(name), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        command = self._launch.command(name, shape)
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)

    def _pilots(self) -> list[Sighting]:
        self._reap()
        found = list(self._processes())
        alive = {each.name: each for each in found if each.is_pilot}
        for each in found:
            if each.name not in alive:
                self._send(each, signal.SIGKILL)  # a task has left it behind
        self._ending &= alive.keys()
        boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        running = [
            Sighting(
                name,
                Stand.ENDING if name in self._ending else Stand.RUNNING,
                f"pid {each.pid}",
                each.slots,
                paid_s=boot_s + each.since / TICKS,
            )
            for name, each in alive.items()
        ]
        return [*running, *(each for each in self._ended if each.name not in alive)]

    def _reap(self) -> None:
        """Take note of the pilots of ours that have ended."""
        for pid, name in list(self._children.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if not reaped:
                continue
            del self._children[pid]
            said = ""
            with contextlib.suppress(FileNotFoundError):  # swept away
                said = Path(self._log(name)).read_bytes()[-TAIL_BYTES:].decode(errors="replace")
            fault = f"it ended with code {os.waitstatus_to_exitcode(status)}: {said.strip()}"
            self._ended.append(Sighting(name, Stand.ENDED, f"pid {pid}", 0, fault=fault))

    def _signal(self, names: Collection[str], number: int, pilots_only: bool) -> bool:
        """Send a signal, 0 for none, to what there is of these pilots; whether there was any."""
        found = [each for each in self._processes() if each.name in names]
        found = [each for each in found if each.is_pilot or not pilots_only]
        self._ending.update(each.name for each in found)
        for each in found:
            self._send(each, number)
        return bool(found)

    def _send(self, process: _Process, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                if self._look(process.pid) == process:  # nobody else's, by the same number
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def _processes(self) -> Iterator[_Process]:
        for entry in os.listdir("/proc"):
            found = self._look(int(entry)) if entry.isdecimal() else None
            if found is not None:
                yield found

    def _look(self, pid: int) -> _Process | None:
        """A process, if it carries our mark and has not ended."""
        begin = f"{VARIABLE}={self._launch.mark}/".encode()
        folder = Path(f"/proc/{pid}")
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            mark = next((each for each in variables if each.startswith(begin)), None)
            if mark is None:
                return None
            words = (folder / "cmdline").read_bytes().split(b"\0")
            since = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[19])
        except (OSError, IndexError):
            return None  # it has ended, or is another user's
        name = mark[len(begin) :]
        is_pilot = AGENT in words and name in words
        slots = int(words[words.index(b"--slots") + 1]) if is_pilot else 0
        return _Process(pid, name.decode(), is_pilot, slots, since)

    def _log(self, name: str) -> str:
        return str(self._launch.folder / f"{name}.log")

    def _sweep(self) -> None:
        """Remove old logs, and notes of orders that nobody will make again."""
        for path in (*self._launch.folder.glob("*.log"), *self._launch.folder.glob("*.order")):
            if path.stat().st_mtime < time.time() - KEPT_S:
                path.unlink(missing_ok=True)


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do what reads /proc or writes files; what goes wrong with that is a fault of the grid."""
    try:
        return await trio.to_thread.run_sync(work, *arguments)
    except OSError as error:
        blame = Blame.ELSEWHERE if error.errno in EXHAUSTED else Blame.NEVER
        raise GridFault(blame, f"processes of this host: {error}") from error


def read(table: Mapping[str, Any]) -> ProcessesConfig:
    """Read `[pool.processes]`. Raises KnobError."""
    check_known(table, ["slots_max"])
    cores = len(os.sched_getaffinity(0))
    return ProcessesConfig(count("slots_max", table.get("slots_max", cores), 1, SLOTS_MAX))


KIND: Final = GridKind("processes", read, ProcessGrid)
