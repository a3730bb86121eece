"""The slot: a child process that runs one task at a time. The only place that opens payloads.

Started by its agent as `python -m gateway.worker.slot CHANNEL CELLS PARENT MEMORY RESULT_MAX`,
the first two being inherited descriptors. Whatever a task does to this process, the agent copes:
it knows from the cells which task was at it.
"""

import contextlib
import ctypes
import faulthandler
import io
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from typing import Any, Final

import cloudpickle

from federation.payload import NONE, SCALARS
from gateway.worker.cells import LIMIT, SINCE_NS, STARTED, Cells
from gateway.worker.channel import BlockingChannel, ChannelClosed

# A chunk's results are sent on at least this often, so that nobody waits for a slow neighbour.
PART_NS: Final = 20_000_000
TEXT_CHARS_MAX: Final = 64_000
PRINTS_CHARS_MAX: Final = 64_000
PR_SET_PDEATHSIG: Final = 1

Failure = list[Any]  # [offset, kind, text, payload]


class Prints(io.TextIOBase):
    """Stands for a task's stdout and stderr: keeps so much of it, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.keeping = False
        self._parts: list[str] = []
        self._chars = 0
        self._cut = 0

    def write(self, text: str) -> int:
        """Take text; what is over the limit is counted and let go."""
        if self.keeping:
            room = PRINTS_CHARS_MAX - self._chars
            if room > 0:
                self._parts.append(text[:room])
            self._chars += min(len(text), max(room, 0))
            self._cut += max(0, len(text) - max(room, 0))
        return len(text)

    def writable(self) -> bool:
        """It takes text, always."""
        return True

    def take(self) -> str:
        """What was printed since the last call."""
        text = "".join(self._parts)
        if self._cut:
            text += f"\n[gridfed: {self._cut:,} more characters were cut]\n"
        self._parts, self._chars, self._cut = [], 0, 0
        return text


class Slot:
    """Runs chunks of tasks and reports on them."""

    def __init__(self, channel: BlockingChannel, cells: Cells, result_bytes_max: int) -> None:
        self._channel = channel
        self._cells = cells.view
        self._result_bytes_max = result_bytes_max
        self._functions: dict[bytes, Any] = {}
        self._bodies: dict[bytes, bytes] = {}
        self.prints = Prints()
        self.forked = False

    def serve(self) -> None:
        """Take messages until the agent is gone."""
        self._channel.send(["ready"])
        while True:
            message = self._channel.receive()
            if message[0] == "function":
                self._bodies[message[1]] = message[2]
            else:
                self._run_chunk(*message[1:])

    def _run_chunk(self, number: int, digest: bytes, arguments: list[bytes], prints: bool) -> None:
        stop = number + len(arguments)
        if number >= self._cells[LIMIT]:
            self._channel.send(["end", number, stop])
            return
        try:
            function = self._function(digest)
        except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
            text = _explain_unpickling("function", error)
            failures = [[at, "error", text, b""] for at in range(len(arguments))]
            self._channel.send(["part", number, [b""] * len(arguments), failures, [], 0, 0, 0])
            self._channel.send(["end", stop, stop])
            return
        self.prints.keeping = prints
        reached = self._run(number, function, arguments, prints)
        self._cells[SINCE_NS] = 0
        self._channel.send(["end", reached, stop])

    def _function(self, digest: bytes) -> Any:
        function = self._functions.get(digest)
        if function is None:
            function = self._functions[digest] = pickle.loads(self._bodies[digest])  # noqa: S301
        return function

    def _run(self, number: int, function: Any, arguments: list[bytes], prints: bool) -> int:
        """Run a chunk's tasks in order; return the number of the first that was not started."""
        # The innermost loop of the whole system: everything in it is bound to a local name.
        cells, loads, dumps, clock = self._cells, pickle.loads, pickle.dumps, time.monotonic_ns
        values: list[bytes] = []
        failures: list[Failure] = []
        printed: list[list[Any]] = []
        first = number
        part_ns, part_cpu_ns = clock(), time.process_time_ns()
        for payload in arguments:
            now_ns = clock()
            if now_ns - part_ns > PART_NS and values:
                self._report(first, values, failures, printed, (part_ns, part_cpu_ns))
                first, values, failures, printed = number, [], [], []
                part_ns, part_cpu_ns = clock(), time.process_time_ns()
            cells[STARTED] = number
            cells[SINCE_NS] = now_ns
            if number >= cells[LIMIT]:
                break
            try:
                call = loads(payload)
            except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
                values.append(b"")
                text = _explain_unpickling("arguments", error)
                failures.append([number - first, "error", text, b""])
            else:
                try:
                    if type(call) is tuple:
                        value = function(*call)
                    else:
                        value = function(*call.args, **call.kwargs)
                    if value is None:
                        values.append(NONE)
                    elif type(value) in SCALARS:
                        values.append(dumps(value, 5))
                    else:
                        values.append(self._seal(value))
                except _ResultRefusedError as refusal:
                    values.append(b"")
                    failures.append([number - first, "result", str(refusal), b""])
                except BaseException as error:  # noqa: BLE001 - whatever it raises is its failure
                    values.append(b"")
                    failures.append([number - first, "error", *_explain(error)])
            if self.forked:
                # A child that the task forked came back from it: this process is not the slot.
                os._exit(0)
            if prints:
                text = self.prints.take()
                if text:
                    printed.append([number - first, text])
            number += 1
        if values:
            self._report(first, values, failures, printed, (part_ns, part_cpu_ns))
        return number

    def _seal(self, value: Any) -> bytes:
        """Pickle a result, by value where it has to be; _ResultRefusedError says why not."""
        try:
            body: bytes = cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            raise _ResultRefusedError(
                f"the result, a {type(value).__qualname__}, can't be pickled: "
                f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
            ) from None
        if len(body) > self._result_bytes_max:
            raise _ResultRefusedError(
                f"the result, a {type(value).__qualname__}, is {len(body):,} bytes; the limit is "
                f"{self._result_bytes_max:,}: return less, or write it to a file"
            )
        return body

    def _report(
        self,
        first: int,
        values: list[bytes],
        failures: list[Failure],
        printed: list[list[Any]],
        since: tuple[int, int],
    ) -> None:
        wall_ns = time.monotonic_ns() - since[0]
        cpu_ns = time.process_time_ns() - since[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self._channel.send(["part", first, values, failures, printed, wall_ns, cpu_ns, peak])


class _ResultRefusedError(Exception):
    """A result that can't travel."""


def _explain(error: BaseException) -> tuple[str, bytes]:
    """An exception as text, from the task's own frames on, and as a pickle if it survives one."""
    lines = traceback.TracebackException(type(error), error, _own_frames(error)).format()
    text = "".join(lines)
    if len(text) > TEXT_CHARS_MAX:
        half = TEXT_CHARS_MAX // 2
        text = f"{text[:half]}\n[gridfed: cut]\n{text[-half:]}"
    error.__traceback__ = None
    try:
        payload = cloudpickle.dumps(error, protocol=5)
        pickle.loads(payload)  # noqa: S301 - what can't be rebuilt here can't be in the client
    except BaseException:  # noqa: BLE001 - foreign code again; the text says what happened
        return text, b""
    return text, payload if len(payload) <= 1 << 20 else b""


def _own_frames(error: BaseException) -> Any:
    """The traceback without this module's frame; all of it when there is nothing else."""
    frames = error.__traceback__
    if frames is not None and frames.tb_next is not None:
        return frames.tb_next
    return frames


def _explain_unpickling(what: str, error: BaseException) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = "".join(traceback.format_exception(error))[-TEXT_CHARS_MAX:]
    return f"the {what} can't be unpickled on the worker (Python {version}):\n{text}"


def _live_and_die_with(parent: int) -> None:
    """Be killed when the agent dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before we could say so


def _limit_memory(limit_bytes: int) -> None:
    """A ceiling for one giant allocation; the agent enforces the limit itself (by RSS).

    Address space is not memory: libraries reserve far more than they use, so the ceiling is wide.
    """
    if limit_bytes:
        ceiling = 2 * limit_bytes + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def main() -> None:
    """Run one slot until the agent is gone."""
    channel_fd, cells_fd, parent, memory_bytes, result_max = map(int, sys.argv[1:6])
    _live_and_die_with(parent)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is the agent's matter
    _limit_memory(memory_bytes)
    connection = socket.socket(fileno=channel_fd)
    connection.set_inheritable(False)
    os.set_inheritable(cells_fd, False)
    channel = BlockingChannel(connection)
    slot = Slot(channel, Cells(cells_fd), result_max)
    sys.stdout = sys.stderr = slot.prints  # type: ignore[assignment]

    def disown() -> None:
        slot.forked = True
        channel.close()

    os.register_at_fork(after_in_child=disown)
    with contextlib.suppress(ChannelClosed, ConnectionError):
        slot.serve()
    os._exit(0)


if __name__ == "__main__":
    main()
