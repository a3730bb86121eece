"""The interface through `soamapi`, in a side process of its own Python (soam/side.py).

The library is for some minor versions of Python only, and its process aborts when it ends: so it is
not imported here. The script exits before the library's own end: with code 1 after a fault of its
own. When the process dies another opens its sessions again.
"""

import json
import os
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from federation.words import duration_text
from gateway.base.child import first_of, wait_for_exit
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.symphony.settings import SymphonySettings
from gateway.grids.symphony.ways import ConnectionCut, Gone, Heard, SymphonyOutcome, is_id, words

SCRIPT: Final = Path(__file__).parent / "soam" / "side.py"
HEADER: Final = struct.Struct("!II")
READ_BYTES: Final = 1 << 18
ANSWER_S: Final = 60.0  # without an answer of the library for this time the process is killed
END_S: Final = 10.0  # for closing sessions
LAST_WORDS_S: Final = 1.0  # for reading its last output
TAIL_BYTES: Final = 4096
SAID_BYTES_MAX: Final = 1 << 20
DATA_BYTES_MAX: Final = 512 << 20  # of an outcome
# The messages of a Python that the library was not built for, or without its environment.
UNFIT_SAYS: Final = ("bad magic number", "No module named 'soamapi'", "cannot open shared object")
UNFIT: Final = (
    "interpreter must be a Python that can `import soamapi`: a minor version with a "
    "library in your release of Symphony, and the environment of its profile.soam"
)


class SideInterface:
    """See Way."""

    def __init__(self, settings: SymphonySettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._answers: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._number = 0
        self._outgoing: deque[bytes] = deque()
        self._more = trio.Event()
        self._tail = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._leaves = False

    async def check(self) -> str:
        """See Way."""
        fault: GridFault | None = None
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.run, lambda _heard: None, False)
                nursery.cancel_scope.cancel()
        except* GridFault as faults:
            fault = first_of(faults)
        if fault is not None:
            raise fault
        return f"application {self._settings.application} by soamapi"

    async def run(
        self,
        hear: Callable[[Heard], None],
        leaves: bool,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See Way."""
        user, password = self._settings.login()
        self._leaves = leaves
        process = self._process = self._start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process, hear)
                nursery.start_soon(self._write, process)
                nursery.start_soon(self._drain, process)
                await self._ask(
                    "connect",
                    application=self._settings.application,
                    user=user,
                    password=password,
                    keep=self._settings.take_up_s > 0,
                )
                task_status.started()
        finally:
            await self._end(process)

    def leave(self) -> None:
        """See Way."""
        self._leaves = self._settings.take_up_s > 0

    # --- calls ---------------------------------------------------------------------------------

    async def open(self, name: str, common: bytes) -> str:
        """See Way."""
        settings = self._settings
        answer = await self._ask(
            "open",
            common,
            name=name,
            type=settings.session_type,
            priority=settings.priority,
            resource_group=settings.resource_group,
            service=settings.service,
            tag=settings.tag,
        )
        return _id_in(answer, "session")

    async def reopen(self, session: str, tasks: Sequence[str]) -> bool:
        """See Way."""
        answer = await self._ask("reopen", session=session)
        return answer.get("open") is True

    async def send(self, session: str, inputs: Sequence[bytes]) -> list[str | None]:
        """See Way."""
        tasks: list[str | None] = []
        for data in inputs:
            answer = await self._ask("send", data, session=session)
            tasks.append(_id_in(answer, "task"))
        return tasks

    async def kill(self, session: str, tasks: Sequence[str]) -> None:
        """See Way."""
        await self._ask("kill", session=session, tasks=list(tasks))

    async def close(self, session: str) -> None:
        """See Way."""
        await self._ask("close", session=session)

    async def _ask(self, verb: str, data: bytes = b"", **details: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        give, take = trio.open_memory_channel[dict[str, Any]](1)
        self._answers[number] = give
        said = json.dumps({"n": number, "do": verb, **details}).encode()
        self._outgoing.append(HEADER.pack(len(said), len(data)) + said + data)
        self._more.set()
        try:
            with trio.fail_after(ANSWER_S):
                answer = await take.receive()
        except trio.TooSlowError:
            if self._process is not None:
                self._process.kill()  # it hangs: its reader ends this run
            raise ConnectionCut(
                FailureClass.AGAIN, f"soamapi did not {verb} within {duration_text(ANSWER_S)}"
            ) from None
        except trio.EndOfChannel:
            raise ConnectionCut(FailureClass.AGAIN, self._describe_end()) from None
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            raise GridFault(
                FailureClass.AGAIN, f"soamapi did not {verb}: {words(answer['error'], 1000)}"
            )
        return answer

    # --- the process ---------------------------------------------------------------------------

    def _start(self) -> "subprocess.Popen[bytes]":
        self._outgoing.clear()
        self._tail.clear()
        environment = dict(os.environ)
        environment.pop("GRIDFED_SECRET", None)
        try:
            return subprocess.Popen(
                [self._settings.interpreter, str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            text = f"interpreter {self._settings.interpreter}: {error.strerror}"
            raise GridFault(FailureClass.NEVER, text) from None

    async def _read(
        self, process: "subprocess.Popen[bytes]", hear: Callable[[Heard], None]
    ) -> None:
        """Take answers and news until the process ends, which is a fault."""
        assert process.stdout is not None
        buffer = bytearray()
        async with trio.lowlevel.FdStream(os.dup(process.stdout.fileno())) as stream:
            while data := await stream.receive_some(READ_BYTES):
                buffer += data
                while (whole := _take(buffer)) is not None:
                    self._heard(*whole, hear)
        for give in self._answers.values():
            give.close()
        with trio.move_on_after(1.0):
            await wait_for_exit(process)
        raise GridFault(FailureClass.AGAIN, self._describe_end())

    def _heard(self, said: dict[str, Any], data: bytes, hear: Callable[[Heard], None]) -> None:
        match said:
            case {"on": "outcome", "session": str(session), "task": str(task), "ok": bool(is_ok)}:
                hear(SymphonyOutcome(session, task, is_ok, data, words(said.get("text", ""))))
            case {"on": "gone", "session": str(session), "text": str(text)}:
                hear(Gone(session, words(text)))
            case {"n": int(number)} if number in self._answers:
                self._answers.pop(number).send_nowait(said)

    async def _write(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        async with trio.lowlevel.FdStream(os.dup(process.stdin.fileno())) as stream:
            while True:
                while self._outgoing:
                    try:
                        with trio.CancelScope(shield=True) as whole:  # no partial messages
                            whole.deadline = trio.current_time() + ANSWER_S
                            await stream.send_all(self._outgoing.popleft())
                    except trio.BrokenResourceError:
                        return  # it has ended: the reader reports it
                    if whole.cancelled_caught:
                        process.kill()  # it does not read any more
                        return
                self._more = trio.Event()
                await self._more.wait()

    async def _drain(self, process: "subprocess.Popen[bytes]") -> None:
        """Keep the end of its standard error: the library is talkative."""
        assert process.stderr is not None
        async with trio.lowlevel.FdStream(os.dup(process.stderr.fileno())) as stream:
            while data := await stream.receive_some(READ_BYTES):
                self._tail += data
                del self._tail[:-TAIL_BYTES]

    def _describe_end(self) -> str:
        code = self._process.poll() if self._process is not None else None
        tail = self._tail.decode(errors="replace").strip()
        last = f"; its last output:\n{tail}" if tail else ""
        hint = f"; {UNFIT}" if any(each in tail for each in UNFIT_SAYS) else ""
        return f"the process of soamapi ended (code {code}){hint}{last}"

    async def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Let it close its sessions, or leave them, and end it. Shielded: it never outlives us.

        Its last news are ignored; a fault of its own is reported.
        """
        assert process.stdout is not None
        process.stdout.close()
        had_ended = process.poll() is not None
        with trio.CancelScope(shield=True):
            with trio.move_on_after(END_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._drain, process)
                    await self._say_end(process)
                    await wait_for_exit(process)
                    # Its last output may not be read yet; a child of its own could keep the pipe
                    # open for ever.
                    nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS_S
            was_hung = process.poll() is None
            if was_hung:
                process.kill()
                await wait_for_exit(process)
        if was_hung:
            self._say(
                f"the process of soamapi did not end within {duration_text(END_S)}, and was killed"
            )
        elif process.returncode > 0 and not had_ended:  # else the fault of this run reports it
            self._say(self._describe_end())
        assert process.stderr is not None
        process.stderr.close()

    async def _say_end(self, process: "subprocess.Popen[bytes]") -> None:
        """Tell the process whether to close its sessions.

        The end of its input alone would mean that the gateway was killed.
        """
        assert process.stdin is not None
        said = json.dumps({"n": 0, "do": "end", "close": not self._leaves}).encode()
        async with trio.lowlevel.FdStream(os.dup(process.stdin.fileno())) as stream:
            process.stdin.close()
            with suppress(trio.BrokenResourceError):  # it has ended
                await stream.send_all(HEADER.pack(len(said), 0) + said)


def _id_in(answer: dict[str, Any], key: str) -> str:
    if not is_id(answer.get(key)):
        raise GridFault(FailureClass.AGAIN, f"soamapi returned no {key}")
    return str(answer[key])


def _take(buffer: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """Take the next whole message from the buffer; None if there is none yet."""
    if len(buffer) < HEADER.size:
        return None
    length, size = HEADER.unpack_from(buffer)
    if length > SAID_BYTES_MAX or size > DATA_BYTES_MAX:
        raise GridFault(FailureClass.AGAIN, "the process of soamapi sent an invalid message")
    end = HEADER.size + length + size
    if len(buffer) < end:
        return None
    try:
        said = json.loads(bytes(buffer[HEADER.size : HEADER.size + length]))
    except (ValueError, RecursionError):
        raise GridFault(
            FailureClass.AGAIN, "the process of soamapi sent an invalid message"
        ) from None
    data = bytes(buffer[HEADER.size + length : end])
    del buffer[:end]
    return (said, data) if isinstance(said, dict) else ({}, b"")
