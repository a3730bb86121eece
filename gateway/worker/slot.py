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
PART_BYTES: Final = 1 << 20
LARGE_BYTES: Final = 4096  # results below this are not worth counting
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

    def _run(self, number: int, function: Any, arguments: list[bytes], prints: bool) -> int:  # noqa: C901
        """Run a chunk's tasks in order; return the number of the first that was not started."""
        # The innermost loop of the whole system: everything in it is bound to a local name, and
        # what is rare is elsewhere.
        cells, loads, dumps, clock = self._cells, pickle.loads, pickle.dumps, time.monotonic_ns
        part = _Part(number, clock())
        values = part.values
        for payload in arguments:
            now_ns = clock()
            if now_ns - part.since_ns > PART_NS or part.size > PART_BYTES:
                part = self._report(part, now_ns)
                values = part.values
            cells[STARTED] = number
            cells[SINCE_NS] = now_ns
            if number >= cells[LIMIT]:
                break
            try:
                call = loads(payload)
            except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
                part.fail("error", _explain_unpickling("arguments", error), b"")
            else:
                try:
                    if type(call) is tuple:
                        value = function(*call)
                    else:
                        value = function(*call.args, **call.kwargs)
                    if value is None:
                        values.append(NONE)
                    else:
                        body = dumps(value, 5) if type(value) in SCALARS else _seal(value)
                        if len(body) > LARGE_BYTES:
                            part = self._make_room(part, value, body)
                            values = part.values
                        values.append(body)
                except _ResultRefusedError as refusal:
                    part.fail("result", str(refusal), b"")
                except BaseException as error:  # noqa: BLE001 - whatever it raises is its failure
                    part.fail("error", *_explain(error))
            if self.forked:
                # A child that the task forked came back from it: this process is not the slot.
                os._exit(0)
            if prints:
                part.note(self.prints.take())
            number += 1
        self._report(part, clock())
        return number

    def _make_room(self, part: "_Part", value: Any, body: bytes) -> "_Part":
        """Check a large result against the limit; start a new part if this one gets too large."""
        if len(body) > self._result_bytes_max:
            raise _ResultRefusedError(
                f"the result, a {type(value).__qualname__}, is {len(body):,} bytes; the limit is "
                f"{self._result_bytes_max:,}: return less, or write it to a file"
            )
        if part.size + len(body) > PART_BYTES and part.values:
            part = self._report(part, time.monotonic_ns())
        part.size += len(body)
        return part

    def _report(self, part: "_Part", now_ns: int) -> "_Part":
        """Send a part, unless it is empty; the next one begins where it ends."""
        if part.values:
            cpu_ns = time.process_time_ns() - part.since_cpu_ns
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            message = ["part", part.first, part.values, part.failures, part.prints]
            self._channel.send([*message, now_ns - part.since_ns, cpu_ns, peak])
        return _Part(part.first + len(part.values), now_ns)


class _Part:
    """Results that wait to be sent together."""

    __slots__ = ("failures", "first", "prints", "since_cpu_ns", "since_ns", "size", "values")

    def __init__(self, first: int, since_ns: int) -> None:
        self.first = first
        self.since_ns = since_ns
        self.since_cpu_ns = time.process_time_ns()
        self.values: list[bytes] = []
        self.failures: list[Failure] = []
        self.prints: list[list[Any]] = []
        self.size = 0  # of the large values among them

    def fail(self, kind: str, text: str, payload: bytes) -> None:
        """The next task failed."""
        self.failures.append([len(self.values), kind, text, payload])
        self.values.append(b"")
        self.size += len(text) + len(payload)

    def note(self, text: str) -> None:
        """The last task printed this."""
        if text:
            self.prints.append([len(self.values) - 1, text])
            self.size += len(text)


def _seal(value: Any) -> bytes:
    """Pickle a result, by value where it has to be; _ResultRefusedError says why not."""
    try:
        body: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:  # noqa: BLE001 - foreign __reduce__ methods raise what they like
        raise _ResultRefusedError(
            f"the result, a {type(value).__qualname__}, can't be pickled: "
            f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
        ) from None
    return body


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
    sys.stdout = sys.stderr = slot.prints

    def disown() -> None:
        slot.forked = True
        channel.close()

    os.register_at_fork(after_in_child=disown)
    with contextlib.suppress(ChannelClosed, ConnectionError):
        slot.serve()
    os._exit(0)


if __name__ == "__main__":
    main()
