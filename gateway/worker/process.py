"""One slot's process: started, spoken to, and ended, whatever it is doing."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from gateway.worker.cells import (
    LIMIT,
    NO_LIMIT,
    SINCE_NS,
    STARTED,
    STOPS_NS,
    STOPS_WHICH,
    create_cells,
)
from gateway.worker.channel import CHANNEL_LOST, Decoder, NonsenseError, Outgoing, encode_parts
from gateway.worker.container_init import OUT_OF_MEMORY
from gateway.worker.functions import Lent
from gateway.worker.handover import Handover
from gateway.worker.launch import Launch
from gateway.worker.limits import (
    cores_of_children,
    descendants,
    kill_session,
    memory_used_bytes,
)

READ_BYTES: Final = 1 << 18
STDERR_KEPT_BYTES: Final = 8192
STDERR_SHOWN_BYTES: Final = 4096
# A process that ends closes its channel a moment before it is gone.
LINGER_S: Final = 0.2
RUNTIME_LINGER_S: Final = 10.0  # and a container, until its runtime has told its exit code
START_BYTES_MAX: Final = 1024  # of a message before it has work: it has nothing to tell
NOBODY: Final = -1  # in place of a task's number
# When it has ended its pipe and its channel hold no more reads than that. What has got away from it
# may go on writing for ever.
LAST_READS: Final = 64
# Looking at a slot's memory takes no more of the agent's time than that: of a thousand processes it
# takes a tenth of a second.
LOOK_SHARE: Final = 20
REMOVE_S: Final = 20.0
BREACHED: Final = (
    "the slot's channel was closed or written to by somebody else: did the task close, or write "
    "to, file descriptors that are not its own?"
)


@dataclass(frozen=True, slots=True)
class Doom:
    """Why we kill a slot: its task `number` fails with this kind and text."""

    number: int
    kind: str
    text: str


class SlotProcess:
    """A slot's process and this agent's end of its channel.

    Start it from the agent's main thread: the slot is killed when the thread that started it
    ends. Not with trio's own Process, which uses another.
    """

    def __init__(self, launch: Launch) -> None:
        self._socket, theirs = socket.socketpair()
        self._cells, cells_fd = create_cells()
        self._stderr, write_end = os.pipe()
        descriptors = (theirs.fileno(), cells_fd)
        filter_fd = launch.open_filter()
        inherited = descriptors if filter_fd is None else (*descriptors, filter_fd)
        self._handover = Handover(launch.socket, theirs, cells_fd) if launch.socket else None
        with cores_of_children(launch.cores):
            self._process = subprocess.Popen(
                launch.argv(descriptors, filter_fd),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=() if launch.socket else inherited,
                env=dict(launch.environment),
                cwd=launch.folder or None,
                start_new_session=True,
            )
        os.close(write_end)
        if filter_fd is not None:
            os.close(filter_fd)
        if self._handover is None:
            theirs.close()
            os.close(cells_fd)
        self._socket.setblocking(False)
        os.set_blocking(self._stderr, False)
        self._launch = launch
        self.leader = self._process.pid
        # In a container it is not known until it has come in: until then there is none.
        self.pid = 0 if launch.socket else self.leader
        self._pidfd = os.pidfd_open(self.leader)
        self.functions = Lent()
        self.task_pass = ""  # that it was told last
        self.doom: Doom | None = None
        self.is_breached = False
        self._is_over_memory = False  # ended by the kernel, or by its container, for that
        self.is_unfit = False  # what it was started in is of no use, and will not be
        self.born_ns = time.monotonic_ns()
        self.mute_since_ns: int | None = None  # when its channel was seen to be broken
        self.quiet_since_ns: int | None = None  # by what the agent has seen (meter.Moment)
        self._tail = bytearray()
        self._decoder = Decoder(START_BYTES_MAX)
        self._outgoing = Outgoing()
        self._has_outgoing = trio.Event()
        self._is_told_to_end = trio.Event()
        self._family = 0  # below it, when it came up
        self._used_bytes = 0
        self._looks_ns = 0  # when its memory is looked at again

    def came_up(self) -> None:
        """Count what belongs to it: it is there, and has run nothing of anybody's yet."""
        self._family = len(descendants(self.pid))

    @property
    def has_strays(self) -> bool:
        """Whether tasks have left processes behind; of use when it is at none."""
        return len(descendants(self.pid)) > self._family

    @property
    def started(self) -> int:
        """The number of the last task that it came to, as it says."""
        return min(max(NOBODY, self._cells.view[STARTED]), NO_LIMIT - 1)

    @property
    def since_ns(self) -> int:
        """Since when it is at that task, by the monotonic clock; 0 when it is at none."""
        since_ns = self._cells.view[SINCE_NS]
        return max(self.born_ns, since_ns) if since_ns else 0

    def busy_s(self, now_ns: int) -> float:
        """How long it has been at its task."""
        since_ns = self.since_ns
        return max(0, now_ns - since_ns) / 1e9 if since_ns else 0.0

    def memory_bytes(self) -> int:
        """What it, and what it has started, has in memory (limits.memory_used_bytes)."""
        before_ns = time.monotonic_ns()
        if before_ns >= self._looks_ns:
            self._used_bytes = memory_used_bytes(self.pid, self._launch.memory_bytes)
            now_ns = time.monotonic_ns()
            self._looks_ns = now_ns + (now_ns - before_ns) * LOOK_SHARE
        return self._used_bytes

    @property
    def _patience_s(self) -> float:
        """How long it may take to end when it is killed: our own children do in any case."""
        return math.inf if self._handover is None else RUNTIME_LINGER_S

    @property
    def is_sending(self) -> bool:
        """Whether a message is on its way to it."""
        return bool(self._outgoing)

    def bound(self, bytes_max: int) -> None:
        """Take no larger message from it."""
        self._decoder.bytes_max = bytes_max

    def limit(self, number: int = NO_LIMIT) -> None:
        """Let it start no task of this number or above."""
        self._cells.view[LIMIT] = number

    def tell_stop(self, number: int, at_ns: int) -> None:
        """Let its task of this number know when it is going to be stopped."""
        if (self._cells.view[STOPS_WHICH], self._cells.view[STOPS_NS]) != (number, at_ns):
            self._cells.view[STOPS_WHICH] = NOBODY  # a moment of another task is nobody's
            self._cells.view[STOPS_NS] = at_ns
            self._cells.view[STOPS_WHICH] = number

    def send(self, message: list[Any]) -> None:
        """Send it a message, now if its channel takes it."""
        was_empty = not self._outgoing
        self._outgoing.add(encode_parts(message))
        if was_empty:
            self._push()
        if self._outgoing:
            self._has_outgoing.set()

    def _push(self) -> None:
        try:
            self._outgoing.send(self._socket)
        except OSError:
            self._outgoing.clear()  # it is ending: nobody will read it

    def kill(self, doom: Doom | None = None) -> None:
        """End it and all it has started, at once."""
        if self.doom is None:
            self.doom = doom
        if self._process.returncode is not None:
            return
        if self._handover is not None and self._handover.is_through:
            self._handover.kill()  # and its runtime tidies up
            self._is_told_to_end.set()
            return
        # A sandbox's first process is to end with its parent, but a task may have got hold of it.
        below = () if self._launch.is_child else descendants(self.leader)
        # What has become another user's, by a program that lets it, is not ours to end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, signal.SIGKILL)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def distrust(self) -> None:
        """Its channel can't be relied on: end it. Which task has done that is not known."""
        self.is_breached = True
        self._is_mute()
        self.kill()

    def _is_mute(self) -> None:
        if self.mute_since_ns is None:
            self.mute_since_ns = time.monotonic_ns()

    async def run(self, on_messages: Callable[[list[list[Any]]], None]) -> None:
        """Carry messages both ways until it ends; its last ones are taken too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, on_messages)
            nursery.start_soon(self._write)
            nursery.start_soon(self._drain)
            if self._handover is not None:
                nursery.start_soon(self._let_in, self._handover)
                nursery.start_soon(self._insist)
            await trio.lowlevel.wait_readable(self._pidfd)
            nursery.cancel_scope.cancel()
        self.is_breached |= self._process.wait() == CHANNEL_LOST
        await self._end_what_is_left()
        for take in (self._take_stderr, lambda: self._take_messages(on_messages)):
            for _ in range(LAST_READS):
                if not take():
                    break

    async def _let_in(self, handover: Handover) -> None:
        """Hand its descriptors to a slot that is no child of ours, when it comes for them."""
        try:
            self.pid = await handover.hand_over()
        except OSError as error:
            # It was ended just then; or what came is none of ours, whatever the image has for one.
            self.kill(Doom(NOBODY, "environment", f"it did not take its channel: {error}"))
            return
        wanted = self._launch.python
        if wanted and handover.version != wanted:
            self.is_unfit = True
            text = f"its Python is {handover.version:.20}, and the job was made with {wanted}"
            self.kill(Doom(NOBODY, "environment", text))

    async def _insist(self) -> None:
        """End a container whose first process is not the one that came to us, by its runtime."""
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
            # It may just have been made: its runtime was killed before it could say so.
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
        """Take what has arrived; False when nothing more can come."""
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            return isinstance(error, BlockingIOError) and self._process.returncode is None
        try:
            on_messages(list(self._decoder.feed(data)))
        except NonsenseError:
            self.distrust()
            return False
        return bool(data)

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            while self._outgoing:
                await trio.lowlevel.wait_writable(self._socket)
                self._push()
            self._has_outgoing = trio.Event()

    async def _drain(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._stderr)
            if not self._take_stderr():
                return

    def _take_stderr(self) -> bool:
        """Keep the end of what it wrote to its descriptors 1 and 2; False when that is all."""
        try:
            data = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return self._process.returncode is None
        self._tail += data
        del self._tail[:-STDERR_KEPT_BYTES]
        return bool(data)

    @property
    def lost_memory(self) -> bool:
        """Whether the kernel has ended something of it for its memory."""
        return self._launch.group is not None and self._launch.group.oom_kills() > 0

    @property
    def failure(self) -> str:
        """The kind of failure of the task that it was at."""
        if self.doom is not None:
            return self.doom.kind
        return "memory" if self._is_over_memory else "crash"

    @property
    def code(self) -> int | None:
        """Its exit code, when it has ended; of a container its runtime's."""
        return self._process.returncode

    def describe_end(self) -> str:
        """How it ended, in words, with the last it said."""
        code = self._process.returncode
        words = f"its process ended with exit code {code}"
        if self.doom is None and self._is_over_memory:
            return f"it used more memory than its slot may, {self._launch.memory_bytes:,} bytes"
        if self.doom is not None:
            words = self.doom.text
        elif self.is_breached:
            words = BREACHED
        elif code is not None and code < 0:
            known = {each.value: each.name for each in signal.Signals}
            words = f"its process was ended by signal {known.get(-code, -code)}"
        tail = self._tail[-STDERR_SHOWN_BYTES:].decode(errors="replace").strip()
        return f"{words}; the last it wrote:\n{tail}" if tail else words

    async def close(self) -> None:
        """End it, if it has not ended, and let go of every descriptor."""
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
        self._socket.close()
        os.close(self._stderr)
        os.close(self._pidfd)
