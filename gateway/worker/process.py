"""One slot's process: started, spoken to, watched, and ended, whatever it is doing."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import trio

from gateway.child import wait_for_exit
from gateway.worker.cells import LIMIT, NO_LIMIT, SINCE_NS, STARTED, Cells
from gateway.worker.channel import Decoder, Nonsense, encode

READ_BYTES: Final = 1 << 18
STDERR_KEPT_BYTES: Final = 8192


class SlotProcess:
    """A slot's process and this agent's end of its channel.

    Args:
        environment: the slot's environment.
        memory_bytes: its memory limit, 0 for none.
        result_bytes_max: the largest result it may send.
    """

    def __init__(
        self, environment: dict[str, str], memory_bytes: int, result_bytes_max: int
    ) -> None:
        ours, theirs = socket.socketpair()
        self.cells = Cells.create()
        read_end, write_end = os.pipe()
        descriptors = (theirs.fileno(), self.cells.descriptor)
        command = [sys.executable, "-m", "gateway.worker.slot"]
        command += [str(number) for number in (*descriptors, os.getpid())]
        command += [str(memory_bytes), str(result_bytes_max)]
        # Not trio's own Process: the slot must be a child of this very thread, or its death
        # signal would come from another, and its group is ended by us alone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            pass_fds=descriptors,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        os.close(write_end)
        self.pid = self._process.pid
        self.doom: tuple[str, str] | None = None  # the failure kind and text it is killed for
        ours.setblocking(False)
        self._socket = ours
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self._writing = False  # something waits in `_outgoing`, or is on its way
        self._stderr = trio.lowlevel.FdStream(read_end)
        self._tail = bytearray()
        self._outgoing: list[bytes] = []
        self.started_at_end = -1
        self.since_ns_at_end = 0
        self._wake = trio.Event()

    @property
    def started(self) -> int:
        """The number of the last task that it came to."""
        return int(self.cells.view[STARTED])

    @property
    def since_ns(self) -> int:
        """Since when it is at that task, by the monotonic clock; 0 when it is at none."""
        return int(self.cells.view[SINCE_NS])

    def limit(self, number: int = NO_LIMIT) -> None:
        """Let it start no task of this number or above."""
        self.cells.view[LIMIT] = number

    def send(self, message: list[Any]) -> None:
        """Queue a message for it."""
        data = encode(message)
        if not self._writing:
            # The common case: the slot waits for it, and the channel takes it whole.
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # it is ending; _read notices
            if sent == len(data):
                return
            data = data[sent:]
        self._writing = True
        self._outgoing.append(data)
        self._wake.set()

    def kill(self, kind: str = "", text: str = "") -> None:
        """End it and all it has started; the task it is at fails for this reason."""
        if self.doom is None and kind:
            self.doom = kind, text
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it is dead already, and so is its group

    async def run(self, on_messages: Callable[[list[list[Any]]], None]) -> None:
        """Carry messages both ways until it ends; its last ones are taken too.

        `on_messages` is given all that have arrived together.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            nursery.start_soon(self._drain_stderr)
            await self._read(on_messages)
            with trio.move_on_after(0.5):
                await self._reap()
            self.kill()  # whatever it left behind in its group, and itself if it only hung up
            await self._reap()
            nursery.cancel_scope.cancel()

    async def _read(self, on_messages: Callable[[list[list[Any]]], None]) -> None:
        decoder = Decoder()
        while True:
            try:
                data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    return
                messages = list(decoder.feed(data))
                if messages:
                    on_messages(messages)
            except (trio.BrokenResourceError, OSError):
                return
            except Nonsense as error:
                self.kill("crash", f"the slot's channel was tampered with: {error}")
                return

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            try:
                while self._outgoing:
                    waiting, self._outgoing = self._outgoing, []
                    for data in waiting:
                        await self._stream.send_all(data)
            except (trio.BrokenResourceError, OSError):
                return  # it is ending; _read notices
            self._writing = False

    async def _drain_stderr(self) -> None:
        """Keep the end of what the process itself wrote; a task's prints go another way."""
        async for data in self._stderr:
            self._tail += data
            del self._tail[:-STDERR_KEPT_BYTES]

    async def _reap(self) -> None:
        await wait_for_exit(self._process)

    def describe_end(self) -> str:
        """How it ended, in words, with the last it said."""
        code = self._process.returncode
        if code is None:
            words = "it closed its channel"
        elif code < 0:
            words = f"signal {signal.Signals(-code).name}"
        else:
            words = f"exit code {code}"
        tail = bytes(self._tail).decode(errors="replace").strip()
        return f"{words}\n{tail[-4096:]}" if tail else words

    async def close(self) -> None:
        """Let go of every descriptor."""
        with trio.CancelScope(shield=True):
            self.kill()
            await self._reap()
        self.started_at_end, self.since_ns_at_end = self.started, self.since_ns
        self._stream.socket.close()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stderr)
        self.cells.close()


def memory_bytes(pid: int) -> int:
    """Resident memory of a slot: its process, and what it has started in its session."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for name in (pid, *_children(pid)):
        try:
            with open(f"/proc/{name}/statm", encoding="ascii") as file:
                resident, shared = map(int, file.read().split()[1:3])
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Pages that a forked child shares with its parent are counted once.
        total += resident if name == pid else resident - shared
    return total * page


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return found
    for child in children:
        found.append(child)
        found.extend(_children(child))
    return found
