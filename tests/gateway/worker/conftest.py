"""A scripted gateway, and real agent processes that work for it."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from support.forked import Forked

from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import (
    HANDSHAKE,
    MESSAGES,
    Assign,
    Hello,
    NeedFunction,
    Preparing,
    PutFunction,
    Recall,
    Refused,
    Report,
    Returned,
    TaskOutput,
    Welcome,
)
from federation.ranges import RangeSet
from federation.sessions.handshake import Greeting, SharedSecret
from federation.sessions.nng import NngPort
from federation.sessions.session import DIALLER_WINDOW, Session
from gateway.worker.isolation.cgroups import CgroupsUnavailable, open_cgroups

DEADLINE_S = 200.0
MAKING_S = 60.0  # of an environment


@dataclass
class WorkerSession:
    """A worker's session, as the scripted gateway sees it."""

    id: str
    hello: Hello
    session: Session
    pipe: int | None
    heard: list[Any] = field(default_factory=list)

    def all(self, kind: type) -> list[Any]:
        return [message for message in self.heard if type(message) is kind]


class ScriptedGateway:
    """Lets workers in, keeps their messages, and sends a test's own."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.address = f"ipc://{folder}/gw"
        self.secret = rules.pop("secret", "")
        self.rules = {
            "heartbeat_s": 0.5,
            "grace_s": 30.0,
            "message_bytes_max": 64 << 20,
            **rules,
        }
        self.workers: list[WorkerSession] = []
        self.functions: dict[bytes, bytes] = {}
        self.withheld: set[bytes] = set()
        self.refuses_resumption = False
        self.refusal: SessionRefused | None = None  # of everybody
        self._greetings: dict[int, Greeting] = {}
        self._assignments = 0
        self.open()

    # --- its life ---

    def open(self) -> None:
        self._wake_read, self._wake_write = os.pipe()
        self._port = NngPort([self.address], lambda: os.write(self._wake_write, b"x") and None)

    def close(self) -> None:
        """Vanish, as if killed; `open` is another gateway at the same address."""
        self._port.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        for worker in self.workers:
            worker.pipe = None

    def hang_up(self, worker: WorkerSession) -> None:
        """Cut the pipe under a session."""
        assert worker.pipe is not None
        self._port.drop(worker.pipe)
        worker.pipe = None

    # --- the conversation ---

    def pump(self, wait_s: float = 0.1) -> None:
        """Take messages that arrive within `wait_s`, and answer them."""
        readable, _, _ = select.select([self._port.fileno(), self._wake_read], [], [], wait_s)
        if self._wake_read in readable:
            os.read(self._wake_read, 1 << 16)
        for pipe in self._port.gone():
            for worker in self.workers:
                if worker.pipe == pipe:
                    worker.pipe = None
        frames = self._port.receive()
        for pipe, frame in frames:
            self._take(pipe, frame)
        self.flush(is_quiet=not frames)

    def flush(self, *, is_quiet: bool = False) -> None:
        for worker in self.workers:
            if worker.pipe is not None:
                # As the real one: a bare acknowledgement only when it must be, or nothing happens.
                owes = worker.session.owes
                due = owes * 2 >= DIALLER_WINDOW or (is_quiet and owes > 0)
                frame = worker.session.next_frame(acknowledge=due)
                if frame is not None:
                    self._port.send(worker.pipe, frame)

    def _take(self, pipe: int, frame: bytes) -> None:
        worker = next((worker for worker in self.workers if worker.pipe == pipe), None)
        if worker is None:
            self._greet(pipe, frame)
            return
        for data in worker.session.accept(frame):
            message = MESSAGES.decode(data, self.rules["message_bytes_max"])
            worker.heard.append(message)
            if isinstance(message, NeedFunction) and message.digest not in self.withheld:
                self.say(worker, PutFunction(message.digest, self.functions[message.digest]))

    def _greet(self, pipe: int, frame: bytes) -> None:
        greeting = self._greetings.setdefault(
            pipe, Greeting("test", 0, SharedSecret(self.secret), os.urandom(16))
        )
        try:
            answer = greeting.receive(frame)
            if self.refusal is not None:
                raise self.refusal
        except (SessionRefused, ProtocolError) as error:
            refused = Refused(getattr(error, "code", "protocol"), str(error))
            self._port.send(pipe, HANDSHAKE.encode(refused))
            return
        if isinstance(answer, bytes):
            self._port.send(pipe, answer)
            return
        worker = None if self.refuses_resumption else self._find(answer.resume)
        resumed = worker is not None
        if worker is None:
            session = Session(
                window=1,
                peer_window=DIALLER_WINDOW,
                numbers_acks=True,
                message_bytes_max=self.rules["message_bytes_max"],
            )
            worker = WorkerSession(f"s{len(self.workers)}", answer, session, pipe)
            self.workers.append(worker)
        else:
            worker.session.rewind(answer.received)
        worker.pipe = pipe
        welcome = Welcome(
            worker.id,
            resumed,
            worker.session.received,
            greeting.proof(),
            DIALLER_WINDOW,
            self.rules["heartbeat_s"],
            self.rules["grace_s"],
            1000,
            1 << 30,
            self.rules["message_bytes_max"],
            [],
        )
        self._port.send(pipe, HANDSHAKE.encode(welcome))

    def _find(self, session: str) -> WorkerSession | None:
        return next((worker for worker in self.workers if worker.id == session), None)

    def say(self, worker: WorkerSession, message: Any) -> None:
        worker.session.post(MESSAGES.encode(message))

    def wait_for(self, found: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
        """Converse until `found` gives something true; return it."""
        end_s = time.monotonic() + deadline_s
        while True:
            value = found()
            if value:
                return value
            assert time.monotonic() < end_s, f"waited {deadline_s} s in vain"
            self.pump()

    # --- what tests do with it ---

    def worker(self, number: int = 0) -> WorkerSession:
        """The session number so much, once it is there."""
        self.wait_for(lambda: len(self.workers) > number)
        return self.workers[number]

    def put(self, function: Callable[..., Any] | bytes) -> bytes:
        """Have a function ready for its workers; return its digest."""
        body = function if isinstance(function, bytes) else cloudpickle.dumps(function)
        digest = sha256(body).digest()
        self.functions[digest] = body
        return digest

    def assign(
        self,
        worker: WorkerSession,
        function: Callable[..., Any] | bytes,
        calls: list[Any],
        *,
        first: int = 0,
        timeout_s: float | None = None,
        prints: bool = False,
        origin: str = "",
        holds: str = "",
        logs: bool = False,
        objects: str = "",
        results: str = "",
    ) -> "Watched":
        """Assign calls (tuples of arguments, or ready payloads) and watch their ends."""
        self._assignments += 1
        payloads = [call if type(call) is bytes else cloudpickle.dumps(call) for call in calls]
        digest = self.put(function)
        self.say(
            worker,
            Assign(
                *(self._assignments, "job", digest, first, payloads, timeout_s, prints),
                *(origin, holds),
                logs=logs,
                objects=objects,
                results=results,
                project="risk" if results else "",
            ),
        )
        return Watched(self, worker, self._assignments, first, first + len(calls))

    def work(
        self,
        worker: WorkerSession,
        function: Callable[..., Any] | bytes,
        calls: list[Any],
        **terms: Any,
    ) -> "Watched":
        """Assign calls and wait for them; again, when their environment was still in the making."""
        digest = self.put(function)
        work = self.assign(worker, function, calls, **terms)
        while work.wait(MAKING_S).returned:
            self.wait_for(lambda: digest not in worker.all(Preparing)[-1].functions, MAKING_S)
            work = self.assign(worker, function, calls, **terms)
        return work


@dataclass
class Watched:
    """An assignment, and the worker's messages about it so far."""

    gateway: ScriptedGateway
    worker: WorkerSession
    number: int
    first: int
    stop: int

    @property
    def reports(self) -> list[Report]:
        return [each for each in self.worker.all(Report) if each.assignment == self.number]

    @property
    def returned(self) -> list[list[int]]:
        answers = [each for each in self.worker.all(Returned) if each.assignment == self.number]
        return [pair for each in answers for pair in each.ranges]

    def reported(self) -> RangeSet:
        """The tasks that were reported; fails when one was reported twice, or returned too."""
        done = RangeSet()
        for first, stop in [[r.first, r.first + len(r.values)] for r in self.reports]:
            assert self.first <= first < stop <= self.stop, "a report of what was not assigned"
            assert not done.within(first, stop), "reported twice"
            done.add(first, stop)
        for first, stop in self.returned:
            assert not done.within(first, stop), "reported and returned"
        return done

    def settled(self) -> RangeSet:
        done = self.reported()
        for first, stop in self.returned:
            done.add(first, stop)
        return done

    def wait(self, deadline_s: float = DEADLINE_S) -> "Watched":
        """Until every task is reported or returned."""
        self.gateway.wait_for(lambda: len(self.settled()) == self.stop - self.first, deadline_s)
        return self

    def values(self) -> dict[int, Any]:
        """The results by task, without those that failed."""
        found = {}
        for report in self.reports:
            failed = {failure[0] for failure in report.failures}
            for at, value in enumerate(report.values):
                if at not in failed:
                    found[report.first + at] = cloudpickle.loads(value)
        return found

    def failures(self) -> dict[int, list[Any]]:
        """Kind, text and payload of those that failed, by task."""
        return {
            report.first + at: [kind, text, payload]
            for report in self.reports
            for at, kind, text, payload in report.failures
        }

    def prints(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for report in self.reports:
            for at, text in report.prints:
                found[report.first + at] = found.get(report.first + at, "") + text
        return found

    def said(self) -> list[tuple[int, int, str]]:
        """The output sent while it ran: task, stream and text."""
        messages = [each for each in self.worker.all(TaskOutput) if each.assignment == self.number]
        return [(*piece,) for each in messages for piece in each.pieces]

    def recall(self, first: int, stop: int, *, kill: bool = False) -> None:
        self.gateway.say(self.worker, Recall(self.number, first, stop, kill))

    def wait_answer(self) -> list[list[int]]:
        """The ranges of the first Returned for it."""

        def found() -> list[Returned]:
            return [each for each in self.worker.all(Returned) if each.assignment == self.number]

        answer = self.gateway.wait_for(found)[0]
        ranges: list[list[int]] = answer.ranges
        return ranges


class AgentProcess:
    """A real agent, started as a local pool does."""

    def __init__(self, folder: Path, address: str, slots: int, *more: str, **env: str) -> None:
        self.log = folder / f"agent-{time.monotonic_ns()}.log"
        arguments = ["--gateway", address, "--slots", str(slots), "--pool", "local", "--name", "w"]
        self.process = Forked(
            "gateway.worker.agent:main",
            [*arguments, *more],
            folder,
            self.log,
            {**os.environ, "TMPDIR": str(folder), **env},
            is_heard=False,
        )
        self.me = psutil.Process(self.process.pid)

    def slots(self) -> list[psutil.Process]:
        """Its slot processes that live."""
        found = []
        for child in self.me.children():
            try:
                if "gateway.worker.slot.slot" in child.cmdline() and child.status() != "zombie":
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def text(self) -> str:
        return self.log.read_text()

    def stop(self) -> None:
        """Kill it; its slots must go with it."""
        family, watched = [], []
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, and is gone
            family = self.me.children()
        for child in family:
            with contextlib.suppress(ProcessLookupError):
                watched.append(os.pidfd_open(child.pid))
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for pidfd in watched:
            readable, _, _ = select.select([pidfd], [], [], DEADLINE_S)
            os.close(pidfd)
            assert readable, "a slot outlived its agent"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended, reaped by any process."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    readable, _, _ = select.select([pidfd], [], [], DEADLINE_S)
    os.close(pidfd)
    assert readable, f"process {pid} did not end"


@pytest.fixture
def ended() -> Callable[[int], None]:
    """Wait for the end of a process that is not our child."""
    return wait_for_end


@pytest.fixture
def open_gateway(tmp_path: Path) -> Iterator[Callable[..., ScriptedGateway]]:
    """Open a scripted gateway; closed in the end."""
    opened: list[ScriptedGateway] = []

    def open_(folder: str = "", **rules: Any) -> ScriptedGateway:
        (tmp_path / folder).mkdir(exist_ok=True)
        opened.append(ScriptedGateway(tmp_path / folder, **rules))
        return opened[-1]

    yield open_
    for gateway in opened:
        gateway.close()


@pytest.fixture
def gateway(open_gateway: Callable[..., ScriptedGateway]) -> ScriptedGateway:
    return open_gateway()


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Start an agent for a gateway; it and its slots are gone in the end."""
    started: list[AgentProcess] = []

    def start(gateway: ScriptedGateway, slots: int = 1, *more: str, **env: str) -> AgentProcess:
        started.append(AgentProcess(tmp_path, gateway.address, slots, *more, **env))
        return started[-1]

    yield start
    for agent in started:
        agent.stop()
    # Of agents that were killed groups stay, for the next to take away.
    with contextlib.suppress(CgroupsUnavailable, OSError):
        open_cgroups(os.getppid()).close()
