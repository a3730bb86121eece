"""The slot: a child process that runs one task at a time. The only place that opens payloads.

Its agent starts it as `python -m gateway.worker.slot.slot CHANNEL CELLS PARENT MEMORY`, the first
two being inherited descriptors. A task may do anything to this process: the agent knows from the
cells which task was running.
"""

import faulthandler
import os
import pickle
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, Final, NoReturn

import cloudpickle

from federation import running
from federation.address import TOKEN_VARIABLE
from federation.errors import ObjectLost
from federation.objects import inputs, references
from federation.objects.bodies import body_of, load
from federation.objects.inputs import has_inputs, read_head
from federation.objects.left import AUTO, INLINE_BYTES, LEFT, REF, WHOLE, read_left
from federation.objects.manifests import digest_text
from federation.objects.references import pickle_of
from federation.objects.room import too_large
from federation.objects.segments import Segment, create
from federation.payload import NONE, PROTOCOL, SCALARS, pickle_result
from federation.raised import (
    EXCEPTION_BYTES_MAX,
    add_note,
    call_text,
    clip,
    seal_exception,
    traceback_text,
    type_name,
    unpicklable_text,
)
from federation.words import NOTE
from gateway.worker.isolation.limits import die_with_parent, limit_this_process
from gateway.worker.slot.cells import (
    LIMIT,
    SINCE_NS,
    STARTED,
    STOPS_NS,
    STOPS_WHICH,
    Cells,
    open_cells,
)
from gateway.worker.slot.channel import (
    CHANNEL_LOST,
    FAILED,
    UNSENT,
    BlockingChannel,
    ChannelClosedError,
)
from gateway.worker.slot.prints import Prints

# Results leave at least this often, if tasks end that often, and before they exceed this size.
PART_NS: Final = 50_000_000
PART_BYTES: Final = 256 << 10
ALL_LEFT: Final = -1
INLINE_MAX: Final = {AUTO: INLINE_BYTES, REF: ALL_LEFT}
# The channel's descriptor: far from those that a task which closes and opens files gets.
CHANNEL_DESCRIPTOR: Final = 900
# Kept out of reach of a task that patches the module `time`, or a library for frozen time.
_CLOCKS: Final = (time.monotonic_ns, time.process_time_ns)
READ_ONLY: Final = (
    "arguments that come from a reference are read-only: change a copy of them, x.copy()"
)
_NOW_NS: Final = time.time_ns
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


class _RefusedError(Exception):
    """A result that can't travel; its text says why."""


class _BrokenError(Exception):
    """Arguments or a function that can't be unpickled; its text says why."""


class _Part:
    """Results since the last report of a bundle. Task numbers are the slot's."""

    __slots__ = ("bytes", "cpu_ns", "failures", "first", "prints", "values", "wall_ns")

    def __init__(self, first: int) -> None:
        self.first = first
        self.values: list[bytes] = []
        self.failures: list[list[Any]] = []
        self.prints: list[list[Any]] = []
        self.bytes = 0
        self.wall_ns, self.cpu_ns = _CLOCKS[0](), _CLOCKS[1]()

    def fail(self, kind: str, text: str, payload: bytes) -> None:
        """Add a failure of the next task."""
        self.failures.append([len(self.values), kind, text, payload])
        self.values.append(b"")
        self.bytes += len(text) + len(payload)

    def add_prints(self, offset: int, pieces: list[list[Any]]) -> None:
        """Add the output of a task: pieces [text, stream]."""
        self.prints += [[offset, *piece] for piece in pieces]
        self.bytes += sum(len(text) for text, _ in pieces)

    def message(self, *, is_over: bool) -> list[Any]:
        """Return the message for the agent: see gateway.worker.slot.channel."""
        wall_ns, cpu_ns = _CLOCKS[0]() - self.wall_ns, _CLOCKS[1]() - self.cpu_ns
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        used = (wall_ns, cpu_ns, peak)
        return ["part", self.first, self.values, self.failures, self.prints, *used, is_over]


class Slot:
    """Runs bundles of tasks and reports on them."""

    def __init__(self, channel: BlockingChannel, cells: Cells) -> None:
        self._channel = channel
        self._cells = cells.view
        self._bodies: dict[bytes, bytes] = {}
        self._functions: dict[bytes, Any] = {}
        self._prints = Prints(lambda: self._cells[STARTED], channel.send_said)
        self._objects: dict[bytes, memoryview | str] = {}  # mapped; or why they are not here
        self._inputs: tuple[inputs.Input, ...] = ()  # of the call that is opened
        # Of a chain: the results of the tasks of this bundle, by their numbers in the job.
        self._chain: dict[int, bytes] | None = None
        self._result_bytes_max = 0
        self._inline_max: int | None = None  # larger results are left as objects; None: none is
        self._is_fork = False
        self._timeout_s: float | None = None  # of the tasks of this bundle
        # From the slot's number of a task to its number in its job; None if that is not known.
        self._ahead: int | None = None
        self._worker = ""  # the worker, its host and its pool, for people
        running.set_source(self._deadline)
        references.set_source(self._fill)
        inputs.set_source(self._input)

    def serve(self) -> None:
        """Take messages until the agent is gone. Raises ChannelClosedError."""
        self._channel.send(["ready"])
        while True:
            match self._channel.receive():
                case ["function", digest, body]:
                    self._bodies[digest] = body
                case ["pass", text]:
                    self._take_pass(text)
                case ["object", digest, size]:
                    segment = Segment(self._channel.take_file(), size, is_sealed=True)
                    self._objects[digest] = segment.view()
                    segment.close()
                case ["lost", digest, text]:
                    self._objects[digest] = text
                case ["drop", digests]:
                    for digest in digests or list(self._objects):
                        self._objects.pop(digest, None)
                case ["forget", digest]:
                    self._bodies.pop(digest, None)
                    self._functions.pop(digest, None)
                case ["chunk", number, digest, arguments, prints, job, *rest]:
                    self._result_bytes_max, self._timeout_s, first, self._worker, *live = rest
                    self._prints.install(keep=prints, live=bool(live and live[0]))
                    self._ahead = None if first is None else first - number
                    self._inline_max = INLINE_MAX.get(live[1] if len(live) > 1 else "")
                    self._chain = {} if len(live) > 2 and live[2] and first is not None else None
                    self._run_bundle(number, digest, arguments, job)

    @staticmethod
    def _take_pass(text: str) -> None:
        """Set the pass by which the next tasks may be clients of the grid, or remove it."""
        if text:
            os.environ[TOKEN_VARIABLE] = text
        else:
            os.environ.pop(TOKEN_VARIABLE, None)

    def disown(self) -> None:
        """Mark this process as a child that a task has forked: it is no slot."""
        self._is_fork = True
        self._prints.disown()
        self._channel.close()

    def _deadline(self) -> float | None:
        """Return when the running task is stopped, by the clock of the day; None if it isn't."""
        cells, since_ns = self._cells, self._cells[SINCE_NS]
        if not since_ns or self._is_fork:
            return None
        known_ns = []
        if self._timeout_s is not None:
            known_ns.append(since_ns + round(self._timeout_s * 1e9))
        if cells[STOPS_WHICH] == cells[STARTED]:
            known_ns.append(cells[STOPS_NS])
        if not known_ns:
            return None
        return (_NOW_NS() + min(known_ns) - _CLOCKS[0]()) / 1e9

    def _run_bundle(self, number: int, digest: bytes, arguments: list[bytes], job: str) -> None:
        part = _Part(number)
        if self._come_to(number):
            function = self._functions.get(digest)
            if function is None:
                # Loading counts as part of the first task for limits and crashes; it is charged
                # only beyond the allowance of the agent (gateway.worker.slot.meter).
                function = self._load(digest, job)
                part = _Part(number)
            part = self._run(part, function, arguments, job)
        self._cells[SINCE_NS] = 0
        self._send(part, is_over=True)

    def _send(self, part: _Part, *, is_over: bool) -> None:
        """Send a part, after the output of its tasks."""
        rows = self._prints.rows()
        if rows:
            self._channel.send(["said", rows])
        self._channel.send(part.message(is_over=is_over))

    def _come_to(self, number: int) -> bool:
        """Announce the start of a task; return whether it may start. See
        gateway.worker.slot.cells."""
        self._cells[SINCE_NS] = _CLOCKS[0]()
        self._cells[STARTED] = number
        return number < self._cells[LIMIT]

    def _load(self, digest: bytes, job: str) -> Any:
        """Unpickle a function; if that fails, return one that raises the reason."""
        try:
            function = self._functions[digest] = pickle.loads(self._bodies[digest])  # noqa: S301
        except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
            self._exit_if_fork()
            text = _explain_unpickling(f"the function of job {job}, on {self._worker},", error)

            def broken(*_args: Any, **_kwargs: Any) -> None:
                raise _BrokenError(text)

            return broken
        self._exit_if_fork()
        del self._bodies[digest]
        return function

    def _run(  # noqa: C901 - a call of a function for each part would be felt by small tasks
        self, part: _Part, function: Any, arguments: list[bytes], job: str
    ) -> _Part:
        """Run a bundle's tasks in order; return the part that is not reported yet."""
        # The innermost loop of the whole system: its variables are local names.
        cells, loads, dumps, clock = self._cells, pickle.loads, pickle.dumps, _CLOCKS[0]
        prints, inline_max, chain = self._prints, self._inline_max, self._chain
        values, due_ns, number = part.values, part.wall_ns + PART_NS, part.first
        for payload in arguments:
            now_ns = clock()
            if (now_ns > due_ns or part.bytes > PART_BYTES) and values:
                self._send(part, is_over=False)
                part = _Part(number)
                values, due_ns = part.values, part.wall_ns + PART_NS
            # In this order: the agent must never overestimate the age of a task, and must know of
            # the start before the limit is read.
            cells[SINCE_NS] = now_ns
            cells[STARTED] = number
            if number >= cells[LIMIT] or (chain is not None and not self._may_open(payload, job)):
                break
            call = value = self  # stands for "not yet"
            try:
                call = loads(payload if payload[0] else self._pickle_of(payload))
                if type(call) is tuple:
                    value = function(*call)
                else:
                    value = function(*call.args, **call.kwargs)
                if value is None and inline_max != ALL_LEFT:
                    values.append(NONE)
                else:
                    if inline_max is not None:
                        data = self._pack(part, value, inline_max)
                    else:
                        data = dumps(value, PROTOCOL) if type(value) in SCALARS else _pickle(value)
                    if len(data) > self._result_bytes_max:
                        raise _RefusedError(
                            too_large(type_name(value), len(data), self._result_bytes_max)
                        )
                    values.append(data)
                    part.bytes += len(data)
            except BaseException as error:  # noqa: BLE001 - a task may raise anything
                self._exit_if_fork()
                called = function, None if call is self else call
                self._fail(part, error, called, payload, self._which(number, job))
            if self._is_fork:
                os._exit(0)
            if chain is not None and values:
                self._keep_for_next(chain, number, part)
            if prints.is_dirty:
                part.add_prints(number - part.first, prints.take())
                if prints.unsent_chars > PART_BYTES:
                    self._channel.send(["said", prints.rows()])
            number += 1
        return part

    def _pack(self, part: _Part, value: Any, inline_max: int) -> bytes:
        """Pickle a result, or leave it as an object if it is larger than that; then return LEFT.

        Raises _RefusedError.
        """
        if type(value) in SCALARS and inline_max != ALL_LEFT:
            data = pickle.dumps(value, PROTOCOL)
            if len(data) <= inline_max:
                return data
        try:
            packed = pickle_result(value, inline_max)
        except Exception as error:  # noqa: BLE001 - foreign __reduce__ methods raise any exception
            raise _RefusedError(unpicklable_text(value, error)) from None
        if isinstance(packed, bytes):
            return packed
        body = body_of(*packed)
        try:
            segment = create(body.size)
            segment.write(body.pieces())
            segment.seal()
        except OSError as error:
            raise _RefusedError(
                f"this host has no memory for the result, of type {type_name(value)}, of "
                f"{body.size:,} bytes: {error}"
            ) from None
        self._channel.send_file(["left", segment.size], segment.descriptor)
        segment.close()
        part.bytes += PART_BYTES + 1  # the part leaves before another result
        return LEFT

    @staticmethod
    def _fail(
        part: _Part, error: BaseException, called: tuple[Any, Any], payload: bytes, which: str
    ) -> None:
        """Add the failure of a call (function, arguments); no arguments if they did not open."""
        function, call = called
        if call is None and isinstance(error, ObjectLost):
            part.fail(*_explain(error, which))
        elif call is None:
            what = f"the arguments of {which}"
            part.fail(FAILED, _explain_unpickling(what, error), b"")
        else:
            note = f"{which}: {call_text(function, call)}"
            if not payload[0] and "read-only" in str(error):
                note += f"\n{READ_ONLY}"
            part.fail(*_explain(error, note))

    def _fill(self, digest: bytes) -> Any:
        """Return the value of an object that a task's arguments refer to. Raises ObjectLost.

        It is loaded anew for each task, as a task may change what is not in its buffers.
        """
        found = self._objects.get(digest, "it was not handed to this slot")
        if isinstance(found, str):
            raise ObjectLost(f"object {digest_text(digest)}: {found}")
        return load(found)

    def _pickle_of(self, call: bytes) -> memoryview:
        """Return the pickle of a call with a head, and have its inputs at hand."""
        if not has_inputs(call):
            return pickle_of(call)
        head = read_head(call)
        self._inputs = head.inputs
        if self._chain is not None and head.rows:
            found: list[inputs.Input] = []
            for each in head.inputs:
                if isinstance(each, bytes):
                    found.append(each)
                else:
                    found += [self._chain[task] for task in range(each[1], each[2])]
            self._inputs = tuple(found)
        return memoryview(call)[head.start :]

    def _may_open(self, call: bytes, job: str) -> bool:
        """Whether the results that a call of a chain waits for are all here."""
        chain = self._chain
        if chain is None or not has_inputs(call):
            return True
        return all(
            name == job and all(task in chain for task in range(low, high))
            for name, low, high in read_head(call).rows
        )

    def _keep_for_next(self, chain: dict[int, bytes], number: int, part: _Part) -> None:
        """Keep the last result for the calls behind it; not one that is left as an object."""
        value = part.values[-1]
        is_failure = bool(part.failures) and part.failures[-1][0] == len(part.values) - 1
        if self._ahead is not None and not is_failure and value != LEFT:
            chain[number + self._ahead] = value

    def _input(self, number: int) -> Any:
        """Return the value of an input of the call that is opened, made anew for each call.

        Raises ObjectLost, or any error of its pickle.
        """
        value = self._inputs[number] if number < len(self._inputs) else None
        if not isinstance(value, bytes):
            raise ObjectLost(f"input {number} of the call did not come with it")
        left = read_left(value)
        if left is not None:
            return self._fill(left[0])
        if value[:1] == WHOLE:
            return load(memoryview(value)[1:])
        return pickle.loads(value)  # noqa: S301 - the result of another task of this user

    def _which(self, number: int, job: str) -> str:
        which = "a task" if self._ahead is None else f"task {number + self._ahead}"
        of = "" if ":" in job else f" of job {job}"  # another site's job has its own name there
        return f"{which}{of}, on {self._worker}"

    def _exit_if_fork(self) -> None:
        """Exit in a child that a task forked, which must not go on as the slot."""
        if self._is_fork:
            os._exit(0)


def _pickle(value: Any) -> bytes:
    """Pickle a result, by value where it has to be. Raises _RefusedError."""
    try:
        data: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    except Exception as error:  # noqa: BLE001 - foreign __reduce__ methods may raise anything
        raise _RefusedError(unpicklable_text(value, error)) from None
    return data


def _explain(error: BaseException, note: str) -> tuple[str, str, bytes]:
    """Return a failure's kind, its text from the task's own frames on, and a pickle if possible.

    The `note` says which call it is; it is added to the exception.
    """
    if isinstance(error, _RefusedError):
        return UNSENT, clip(f"{error}\n{NOTE}{note}"), b""
    if isinstance(error, _BrokenError):
        return FAILED, clip(f"{error}\n{NOTE}{note}"), b""
    add_note(error, note)
    text = traceback_text(error)
    return FAILED, text, seal_exception(error, text, EXCEPTION_BYTES_MAX)


def _explain_unpickling(what: str, error: BaseException) -> str:
    cure = ""
    if isinstance(error, ModuleNotFoundError):
        cure = (
            f"\nModule {error.name} is not installed for {sys.executable}. Install it there, or "
            'let each task have it: client.options(environment=Path("requirements.txt")).'
        )
    shown = traceback_text(error).rstrip()
    return clip(f"{what} can't be unpickled by the worker's Python {PYTHON}:\n{shown}{cure}")


def _open_channel(descriptor: int) -> BlockingChannel:
    ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    place = min(CHANNEL_DESCRIPTOR, ceiling - 1)
    os.dup2(descriptor, place, inheritable=False)
    os.close(descriptor)
    return BlockingChannel(socket.socket(fileno=place))


def main() -> None:
    """Run one slot until the agent is gone."""
    channel_fd, cells_fd, parent, memory_bytes = map(int, sys.argv[1:5])
    if parent:
        die_with_parent(parent)
    serve(channel_fd, cells_fd, memory_bytes)


def serve(channel_fd: int, cells_fd: int, memory_bytes: int) -> NoReturn:
    """Run the slot of a channel and its cells."""
    limit_this_process(memory_bytes)
    faulthandler.enable()
    # An agent in a shell's background ignores Ctrl-C; tasks should not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A batch system that stops a pilot sends this to all its processes. The agent lets running
    # tasks end, as long as there is time. Children of a task can be ended by it as usual.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    slot = Slot(_open_channel(channel_fd), open_cells(cells_fd))
    os.register_at_fork(after_in_child=slot.disown)
    with suppress(ChannelClosedError, OSError):
        slot.serve()
    # The agent is gone, or a task has closed the channel. Threads and exit handlers of tasks must
    # not delay the end of a slot.
    os._exit(CHANNEL_LOST)


if __name__ == "__main__":
    main()
