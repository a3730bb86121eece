"""One slot, kept by a dedicated process: for hosts of another grid, without trio.

It does for one slot, bundle by bundle, the work of an agent (gateway.worker.agent): it enforces
time and memory limits, names the task at fault when the slot dies, and starts another slot. It
needs only the standard library, msgpack and cloudpickle.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.base.interpreter import run_module
from gateway.worker.isolation.limits import (
    describe_exit,
    describe_memory,
    kill_session,
    memory_used_bytes,
)
from gateway.worker.slot.cells import SINCE_NS, STARTED, create_cells
from gateway.worker.slot.channel import Decoder, NonsenseError, encode, is_part
from gateway.worker.slot.functions import Lent
from gateway.worker.slot.meter import Meter, Moment

LOOK_S: Final = 0.05
READ_BYTES: Final = 1 << 18
TAIL_BYTES: Final = 4096
BAD_STARTS_MAX: Final = 3
WAY_NS: Final = 5 * 10**9  # time for work to travel to the slot and back
_SENT_AT_ONCE: Final = 1 << 16


class SlotUnfitError(Exception):
    """No slot can be started here; the text says why."""


@dataclass(slots=True)
class Ran:
    """The outcome of calls, with the fields of a Report (federation.messages.messages)."""

    values: list[bytes] = field(default_factory=list)
    failures: list[list[Any]] = field(default_factory=list)
    prints: list[list[Any]] = field(default_factory=list)
    wall_ns: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0

    def fail(self, kind: str, text: str, wall_ns: int) -> None:
        """Add a failure of the next call."""
        self.failures.append([len(self.values), kind, text, b""])
        self.values.append(b"")
        self.wall_ns += wall_ns

    def fits(self, part: list[Any], total: int) -> bool:
        """Whether a part has at most the outstanding calls, and all of them if it is the last."""
        reported = len(self.values) + len(part[2])
        return reported == total if part[-1] else reported <= total

    def add(self, part: list[Any], meter: Meter) -> None:
        """Add a part that the slot reports."""
        _, _, values, failures, prints, wall_ns, cpu_ns, peak, _ = part
        wall_ns = meter.charge(wall_ns, len(values), _moment())
        at = len(self.values)
        self.failures += [[offset + at, *rest] for offset, *rest in failures]
        self.prints += [[offset + at, *piece] for offset, *piece in prints]
        self.values += values
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self.peak_memory_bytes = max(self.peak_memory_bytes, peak)


@dataclass(frozen=True, slots=True)
class LoneCalls:
    """Calls of one function; `result_bytes_max` is the limit of each result."""

    digest: bytes
    job: str
    arguments: list[bytes]
    prints: bool
    timeout_s: float | None
    result_bytes_max: int


class _Process:
    """A slot's process, without trio: the part of SlotProcess that one slot needs."""

    def __init__(self, memory_bytes: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.cells, cells_fd = create_cells()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as this lives
        descriptors = (theirs.fileno(), cells_fd)
        command = run_module("gateway.worker.slot.slot")
        command += [str(number) for number in (*descriptors, os.getpid(), memory_bytes)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=descriptors,
            start_new_session=True,
        )
        theirs.close()
        os.close(cells_fd)
        self.socket.setblocking(False)
        self.pid = self._process.pid
        self.functions = Lent()
        self.decoder = Decoder()
        self.outgoing = bytearray()
        self.next_number = 0
        self.has_begun = False
        self.meter = Meter()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill it and all processes that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        kill_session(self.pid)

    def describe_end(self) -> str:
        """Describe how it ended, with its last output."""
        code = self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - TAIL_BYTES))
        return describe_exit(code, self._said.read())

    def close(self) -> None:
        """Kill it and release its resources."""
        self.kill()
        self.socket.close()
        self._said.close()


def _moment() -> Moment:
    now_ns = time.monotonic_ns()
    return Moment(now_ns, now_ns)


class LoneSlot:
    """Runs batches of calls in a slot, one after the other.

    Args:
        memory_bytes: the limit of the slot; 0: none.
        look: called periodically while calls run; an exception that it raises ends them.
    """

    def __init__(self, memory_bytes: int = 0, look: Callable[[], None] = lambda: None) -> None:
        self._memory_bytes = memory_bytes
        self._look = look
        self._process: _Process | None = None
        self._bad_starts = 0

    def run(self, calls: LoneCalls, bodies: dict[bytes, bytes]) -> Ran:
        """Run calls in order. Raises SlotUnfitError when no slot can be started."""
        ran, total = Ran(), len(calls.arguments)
        known: dict[int, tuple[str, str, int]] = {}  # calls with a known failure
        alone_until = 0
        while (at := len(ran.values)) < total:
            if at in known:
                ran.fail(*known.pop(at))
                continue
            # Calls that ended along with one that took the slot down are tried one by one.
            stop = at + 1 if at < alone_until else min([*known, total])
            fault = self._attempt(calls, calls.arguments[at:stop], bodies, ran)
            if fault is not None:
                number, how = fault
                known[at + number] = how
                alone_until = at + number
        return ran

    def close(self) -> None:
        """End the slot."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _attempt(
        self, calls: LoneCalls, arguments: list[bytes], bodies: dict[bytes, bytes], ran: Ran
    ) -> tuple[int, tuple[str, str, int]] | None:
        """Run calls in a slot; return the number of the call that ends it, and how, if one does."""
        if self._process is not None and self._process.has_ended:
            self.close()  # it ended while idle: no call is at fault
        process = self._process = self._process or _Process(self._memory_bytes)
        first, before = process.next_number, len(ran.values)
        total = before + len(arguments)
        self._give(process, calls, arguments, bodies)
        if process.has_begun:
            process.meter.hand(_moment())
        kill_reason: tuple[str, str] | None = None
        while True:
            parts = self._exchange(process)
            for message in parts or ():
                if message[0] == "ready":
                    process.has_begun, self._bad_starts = True, 0
                    process.meter.hand(_moment())
                elif message[0] == "part" and is_part(message[2:]) and ran.fits(message, total):
                    ran.add(message, process.meter)
                    if message[-1]:
                        process.meter.rest()
                        return None
                else:
                    parts = None
            if parts is None:
                break
            kill_reason = self._look_at(process, calls.timeout_s)
            if kill_reason is not None:
                break
        started, since_ns = process.cells.view[STARTED], process.cells.view[SINCE_NS]
        process.kill()
        text = kill_reason[1] if kill_reason else process.describe_end()
        self.close()
        if not process.has_begun:
            self._bad_starts += 1
            if self._bad_starts >= BAD_STARTS_MAX:
                raise SlotUnfitError(f"slots can't start: {text}")
            return None
        wall_ns = max(0, time.monotonic_ns() - since_ns) if since_ns else 0
        wall_ns = process.meter.charge(wall_ns, 1, _moment())
        # A task can write anything into the cells, so they decide only between calls that the slot
        # has not reported.
        low = len(ran.values) - before
        is_one = since_ns > 0 and low <= started - first < len(arguments)
        number = started - first if is_one else low
        return number, (kill_reason[0] if kill_reason else "crash", text, wall_ns)

    def _give(
        self,
        process: _Process,
        calls: LoneCalls,
        arguments: list[bytes],
        bodies: dict[bytes, bytes],
    ) -> None:
        is_new, forgotten = process.functions.lend(calls.digest)
        if forgotten is not None:
            process.outgoing += encode(["forget", forgotten])
        if is_new:
            process.outgoing += encode(["function", calls.digest, bodies[calls.digest]])
        process.outgoing += encode(
            [
                *("chunk", process.next_number, calls.digest, arguments, calls.prints, calls.job),
                *(calls.result_bytes_max, calls.timeout_s),
                *(None, f"host {socket.gethostname()}", False),
            ]
        )
        process.next_number += len(arguments)

    def _exchange(self, process: _Process) -> list[list[Any]] | None:
        """Send pending bytes, receive messages; None when the slot is gone, or sends nonsense."""
        wanted = [process.socket] if process.outgoing else []
        readable, writable, _ = select.select([process.socket], wanted, [], LOOK_S)
        try:
            if writable:
                sent = process.socket.send(process.outgoing[:_SENT_AT_ONCE])
                del process.outgoing[:sent]
            data = process.socket.recv(READ_BYTES) if readable else None
            if data == b"":
                return None
            return list(process.decoder.feed(data)) if data else []
        except (OSError, NonsenseError):
            return None

    def _look_at(self, process: _Process, timeout_s: float | None) -> tuple[str, str] | None:
        """Return the kind and text of the failure if the slot must be killed."""
        self._look()
        since_ns = process.cells.view[SINCE_NS]
        busy_s = (time.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0
        if process.has_begun and not process.outgoing:
            # A task can write that it has just begun, or that there is none.
            busy_s = max(busy_s, (process.meter.silent_ns(_moment()) - WAY_NS) / 1e9)
        if timeout_s is not None and busy_s > timeout_s:
            return "timeout", f"the task exceeded its time limit of {timeout_s:g} s and was stopped"
        if self._memory_bytes:
            used_bytes = memory_used_bytes(process.pid, self._memory_bytes)
            if used_bytes > self._memory_bytes:
                return "memory", describe_memory(used_bytes, self._memory_bytes)
        return None
