"""One slot's process: starts it, exchanges messages with it, and ends it in any state."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from federation.messages.printed import STDERR, STDOUT
from federation.sessions.object_socket import FILES_MAX
from federation.words import size_text
from gateway.worker.isolation.handover import Handover
from gateway.worker.isolation.launch import SlotLaunch
from gateway.worker.isolation.limits import (
    cores_of_children,
    descendants,
    describe_exit,
    kill_session,
    memory_used_bytes,
)
from gateway.worker.slot.cells import (
    LIMIT,
    NO_LIMIT,
    SINCE_NS,
    STARTED,
    STOPS_NS,
    STOPS_WHICH,
    create_cells,
)
from gateway.worker.slot.channel import (
    CHANNEL_LOST,
    Decoder,
    NonsenseError,
    SendQueue,
    encode_parts,
)
from gateway.worker.slot.container_init import OUT_OF_MEMORY
from gateway.worker.slot.functions import Lent
from gateway.worker.slot.lent_objects import LentObjects

READ_BYTES: Final = 1 << 18
STDERR_KEPT_BYTES: Final = 8192
STDERR_SHOWN_BYTES: Final = 4096
# A process that ends closes its channel a moment before it is gone.
LINGER_S: Final = 0.2
RUNTIME_LINGER_S: Final = 10.0  # for a container, whose runtime has yet to return its exit code
START_BYTES_MAX: Final = 1024  # the limit of a message before it has work: it has nothing to report
NOBODY: Final = -1  # in place of a task's number
# Once it has ended its pipe and its channel hold at most this many reads. Processes that have
# escaped from it may go on writing for ever.
LAST_READS: Final = 64
# The agent spends at most one part in this many of its time on a slot's memory: for a thousand
# processes one look takes a tenth of a second.
LOOK_SHARE: Final = 20
REMOVE_S: Final = 20.0
BREACHED: Final = (
    "another writer used or closed the slot's channel: check whether the task closes, or "
    "writes to, file descriptors that it did not open"
)


@dataclass(frozen=True, slots=True)
class KillReason:
    """The reason why the agent kills a slot: its task `number` fails with this kind and text."""

    number: int
    kind: str
    text: str


class SlotProcess:
    """A slot's process and this agent's end of its channel.

    Create it in the agent's main thread: the slot is killed when the thread that started it ends.
    trio's own Process uses another thread, and is not suitable.
    """

    def __init__(self, launch: SlotLaunch) -> None:
        self._socket, theirs = socket.socketpair()
        self._cells, cells_fd = create_cells()
        pipes = {stream: os.pipe() for stream in (STDOUT, STDERR)}
        self._outputs = {stream: ends[0] for stream, ends in pipes.items()}
        descriptors = (theirs.fileno(), cells_fd)
        filter_fd = launch.open_filter()
        inherited = descriptors if filter_fd is None else (*descriptors, filter_fd)
        self._handover = Handover(launch.socket, theirs, cells_fd) if launch.socket else None
        with cores_of_children(launch.cores):
            self._process = subprocess.Popen(
                launch.argv(descriptors, filter_fd),
                stdin=subprocess.DEVNULL,
                stdout=pipes[STDOUT][1],
                stderr=pipes[STDERR][1],
                pass_fds=() if launch.socket else inherited,
                env=dict(launch.environment),
                cwd=launch.folder or None,
                start_new_session=True,
            )
        for reading, writing in pipes.values():
            os.close(writing)
            os.set_blocking(reading, False)
        if filter_fd is not None:
            os.close(filter_fd)
        if self._handover is None:
            theirs.close()
            os.close(cells_fd)
        self._socket.setblocking(False)
        self._launch = launch
        self.leader = self._process.pid
        # Unknown for a container until it has connected.
        self.pid = 0 if launch.socket else self.leader
        self._pidfd = os.pidfd_open(self.leader)
        self.functions = Lent()
        self.objects = LentObjects()
        self.leaves = False  # whether its tasks may leave results as objects
        self._files: deque[int] = deque()  # of those
        self.task_pass = ""  # the last one sent to it
        self.kill_reason: KillReason | None = None
        self.is_breached = False
        self._is_over_memory = False  # killed by the kernel, or by its container, for that
        self.is_unfit = False  # its environment is useless, and will stay so
        self.born_ns = time.monotonic_ns()
        self.mute_since_ns: int | None = None  # when its channel was seen to be broken
        self.quiet_since_ns: int | None = None  # by the agent's clock (meter.Moment)
        self._tail = bytearray()  # of both
        self._on_output: Callable[[int, bytes], None] = lambda _stream, _data: None
        self._decoder = Decoder(START_BYTES_MAX)
        self._outgoing = SendQueue()
        self._has_outgoing = trio.Event()
        self._is_told_to_end = trio.Event()
        self._family = 0  # the number of its descendants when it came up
        self._used_bytes = 0
        self._looks_ns = 0  # the next look at its memory

    def came_up(self) -> None:
        """Count its own processes: it is up, and has run no task yet."""
        self._family = len(descendants(self.pid))

    @property
    def has_strays(self) -> bool:
        """Whether tasks have left processes behind; meaningful while it is idle."""
        return len(descendants(self.pid)) > self._family

    @property
    def started(self) -> int:
        """The number of the last task that it started, by its word."""
        return min(max(NOBODY, self._cells.view[STARTED]), NO_LIMIT - 1)

    @property
    def since_ns(self) -> int:
        """The start of the current task, by the monotonic clock; 0 when it is at none."""
        since_ns = self._cells.view[SINCE_NS]
        return max(self.born_ns, since_ns) if since_ns else 0

    def busy_s(self, now_ns: int) -> float:
        """Return how long it has been at its task."""
        since_ns = self.since_ns
        return max(0, now_ns - since_ns) / 1e9 if since_ns else 0.0

    def memory_bytes(self) -> int:
        """Return the memory of it and its descendants (limits.memory_used_bytes)."""
        before_ns = time.monotonic_ns()
        if before_ns >= self._looks_ns:
            self._used_bytes = memory_used_bytes(self.pid, self._launch.memory_bytes)
            now_ns = time.monotonic_ns()
            self._looks_ns = now_ns + (now_ns - before_ns) * LOOK_SHARE
        return self._used_bytes

    @property
    def _patience_s(self) -> float:
        """The time that it may take to end when it is killed; our own children end in any case."""
        return math.inf if self._handover is None else RUNTIME_LINGER_S

    @property
    def is_sending(self) -> bool:
        """Whether a message is being sent to it."""
        return bool(self._outgoing)

    def bound(self, bytes_max: int) -> None:
        """Accept no larger message from it."""
        self._decoder.bytes_max = bytes_max

    def limit(self, number: int = NO_LIMIT) -> None:
        """Let it start no task of this number or above."""
        self._cells.view[LIMIT] = number

    def tell_stop(self, number: int, at_ns: int) -> None:
        """Let its task of this number know when it is going to be stopped."""
        if (self._cells.view[STOPS_WHICH], self._cells.view[STOPS_NS]) != (number, at_ns):
            self._cells.view[STOPS_WHICH] = NOBODY  # no task may read the moment of another
            self._cells.view[STOPS_NS] = at_ns
            self._cells.view[STOPS_WHICH] = number

    def send(self, message: list[Any], file: int = -1) -> None:
        """Queue a message, with a descriptor if given; send it now if the channel takes it."""
        was_empty = not self._outgoing
        self._outgoing.add(encode_parts(message), file)
        if was_empty:
            self._push()
        if self._outgoing:
            self._has_outgoing.set()

    def _push(self) -> None:
        try:
            self._outgoing.send(self._socket)
        except OSError:
            self._outgoing.clear()  # it is ending, and will not read it

    def kill(self, kill_reason: KillReason | None = None) -> None:
        """Kill it and all processes that it has started, at once."""
        if self.kill_reason is None:
            self.kill_reason = kill_reason
        if self._process.returncode is not None:
            return
        if self._handover is not None and self._handover.is_through:
            self._handover.kill()  # its runtime cleans up
            self._is_told_to_end.set()
            return
        # A sandbox's first process should end with its parent, but a task may have taken it over.
        below = () if self._launch.is_child else descendants(self.leader)
        # A process that became another user's, by a setuid program, is not ours to kill.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, signal.SIGKILL)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def distrust(self) -> None:
        """Kill it because its channel is unreliable; the task that has broken it is not known."""
        self.is_breached = True
        self._is_mute()
        self.kill()

    def _is_mute(self) -> None:
        if self.mute_since_ns is None:
            self.mute_since_ns = time.monotonic_ns()

    async def run(
        self,
        on_messages: Callable[[list[list[Any]]], None],
        on_output: Callable[[int, bytes], None] = lambda _stream, _data: None,
    ) -> None:
        """Relay messages both ways until it ends, including its last ones.

        `on_output` is called with the stream and what was written to its file descriptor.
        """
        self._on_output = on_output
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, on_messages)
            nursery.start_soon(self._write)
            for stream in self._outputs:
                nursery.start_soon(self._drain, stream)
            if self._handover is not None:
                nursery.start_soon(self._let_in, self._handover)
                nursery.start_soon(self._insist)
            await trio.lowlevel.wait_readable(self._pidfd)
            nursery.cancel_scope.cancel()
        self.is_breached |= self._process.wait() == CHANNEL_LOST
        await self._end_what_is_left()
        takes = [partial(self._take_output, stream) for stream in self._outputs]
        for take in (*takes, partial(self._take_messages, on_messages)):
            for _ in range(LAST_READS):
                if not take():
                    break

    async def _let_in(self, handover: Handover) -> None:
        """Send a slot that is no child of ours its descriptors, when it connects."""
        try:
            self.pid = await handover.hand_over()
        except OSError as error:
            # It was killed just then; or an image's process other than ours has connected.
            self.kill(
                KillReason(
                    NOBODY, "environment", f"the slot process did not open its channel: {error}"
                )
            )
            return
        wanted = self._launch.python
        if wanted and handover.version != wanted:
            self.is_unfit = True
            text = f"the slot runs Python {handover.version:.20}, the job requires {wanted}"
            self.kill(KillReason(NOBODY, "environment", text))

    async def _insist(self) -> None:
        """Kill a container by its runtime if the process that connected is not its first one."""
        await self._is_told_to_end.wait()
        await trio.sleep(RUNTIME_LINGER_S)
        await self._remove()

    async def _remove(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(REMOVE_S):
            await trio.run_process(
                self._launch.remove, check=False, capture_stdout=True, capture_stderr=True
            )

    async def _end_what_is_left(self) -> None:
        kill_session(self.leader)
        group = self._launch.group
        if group is not None:
            self._is_over_memory |= self.lost_memory and self.code == -signal.SIGKILL
            group.close()
        if self._handover is None:
            return
        self._is_over_memory |= self.code == OUT_OF_MEMORY
        was_through = self._handover.is_through
        self._handover.close()
        if not was_through and self._launch.remove:
            # It may just have been made: its runtime was killed before it could report that.
            await self._remove()

    async def _read(self, on_messages: Callable[[list[list[Any]]], None]) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if not self._take_messages(on_messages):
                self._is_mute()
                await trio.sleep(LINGER_S if self._handover is None else RUNTIME_LINGER_S)
                self.distrust()
                return

    def _take_messages(self, on_messages: Callable[[list[list[Any]]], None]) -> bool:
        """Take messages that have arrived; return False when no more can come."""
        try:
            if self.leaves:
                data, files, *_ = socket.recv_fds(
                    self._socket, READ_BYTES, FILES_MAX, socket.MSG_CMSG_CLOEXEC
                )
                self._files += files
            else:
                data = self._socket.recv(READ_BYTES)
        except OSError as error:
            return isinstance(error, BlockingIOError) and self._process.returncode is None
        try:
            if len(self._files) > FILES_MAX:
                raise NonsenseError("more descriptors than results")
            on_messages(list(self._decoder.feed(data)))
        except NonsenseError:
            self.distrust()
            return False
        return bool(data)

    @property
    def has_file(self) -> bool:
        """Whether the file of a result has come from it, and was not taken."""
        return bool(self._files)

    def take_file(self) -> int:
        """Return the descriptor of the result that it has left first."""
        return self._files.popleft()

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            while self._outgoing:
                await trio.lowlevel.wait_writable(self._socket)
                self._push()
            self._has_outgoing = trio.Event()

    async def _drain(self, stream: int) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._outputs[stream])
            if not self._take_output(stream):
                return

    def take_output(self) -> None:
        """Take what it has written to its file descriptors until now."""
        for stream in self._outputs:
            self._take_output(stream)

    def _take_output(self, stream: int) -> bool:
        """Take output to descriptor 1 or 2, and keep its end; return False at its end."""
        try:
            data = os.read(self._outputs[stream], READ_BYTES)
        except BlockingIOError:
            return self._process.returncode is None
        self._tail += data
        del self._tail[:-STDERR_KEPT_BYTES]
        if data:
            self._on_output(stream, data)
        return bool(data)

    @property
    def lost_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for its memory."""
        return self._launch.group is not None and self._launch.group.oom_kills() > 0

    @property
    def failure(self) -> str:
        """The kind of failure of its current task."""
        if self.kill_reason is not None:
            return self.kill_reason.kind
        return "memory" if self._is_over_memory else "crash"

    @property
    def code(self) -> int | None:
        """Its exit code, when it has ended; the runtime's for a container."""
        return self._process.returncode

    def describe_end(self) -> str:
        """Describe how it ended, with its last output."""
        if self.kill_reason is None and self._is_over_memory:
            return (
                "the process exceeded the memory limit of its slot, "
                f"{size_text(self._launch.memory_bytes)}"
            )
        why = BREACHED if self.is_breached else ""
        if self.kill_reason is not None:
            why = self.kill_reason.text
        return describe_exit(self._process.returncode, self._tail[-STDERR_SHOWN_BYTES:], why)

    async def close(self) -> None:
        """Kill it, if it has not ended, and close every descriptor."""
        if self._process.returncode is None:
            self.kill()
            with trio.CancelScope(shield=True), trio.move_on_after(self._patience_s):
                await trio.lowlevel.wait_readable(self._pidfd)
            if self._process.poll() is None:
                await self._remove()
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.leader, signal.SIGKILL)
            self._process.wait()
            await self._end_what_is_left()
        self._outgoing.clear()
        while self._files:
            os.close(self._files.popleft())
        self._socket.close()
        for reading in self._outputs.values():
            os.close(reading)
        os.close(self._pidfd)
