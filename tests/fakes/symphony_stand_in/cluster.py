"""A cluster for the stand-in `soamapi`: applications, sessions, tasks, and services as processes.

It runs in threads of the test, which can take slots away, kill services and cut connections.
"""

import contextlib
import itertools
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).parent / "python"
SERVICE = Path(__file__).parents[3] / "gateway" / "grids" / "symphony" / "soam" / "service.py"


@dataclass
class Task:
    name: str
    given: list[bytes]
    state: str = "Pending"
    tries: int = 0


@dataclass
class FakeSession:
    name: str
    values: dict[str, Any]
    owner: Any = None  # whom outcomes are pushed to; None: they are kept
    state: str = "Open"
    tasks: dict[str, Task] = field(default_factory=dict)
    waiting: deque = field(default_factory=deque)
    kept: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    given: dict[str, dict[str, Any]] = field(default_factory=dict)  # all outcomes so far

    @property
    def priority(self) -> int:
        return self.values.get("priority", 1)


class FakeService:
    """A service process; one slot."""

    def __init__(self, cluster: "FakeSymphony", number: int) -> None:
        self.name = str(number)
        self.session: FakeSession | None = None
        self.task: Task | None = None
        self.pipe: Connection | None = None
        self.reclaimed = False
        self.work: queue.Queue = queue.Queue()
        self._cluster = cluster
        self.connected = threading.Event()
        environment = {
            **os.environ,
            "PYTHONPATH": str(PYTHON),
            "SYMPHONY_STAND_IN": cluster.address,
            "SYMPHONY_STAND_IN_INSTANCE": self.name,
            "GRIDFED_PYTHON": sys.executable,
            "GRIDFED_LIBRARY": cluster.library,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(cluster.service)],
            stdin=subprocess.DEVNULL,
            env=environment,
            stderr=cluster.log,
            stdout=cluster.log,
        )
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self.connected.wait(0.05) and self.process.poll() is None:
            pass
        entered: FakeSession | None = None
        while (given := self.work.get()) is not None:
            session, task = given
            try:
                if entered is not session:
                    if entered is not None:
                        self._ask("leave", None)
                    answer = self._ask("enter", session.values.get("common", []))
                    entered = session
                    if not answer["ok"]:
                        entered = None
                        self._cluster.ended(self, session, task, answer)
                        continue
                self._cluster.ended(self, session, task, self._ask("invoke", task.given))
            except (EOFError, OSError):
                break
        self.process.kill()
        self.process.wait()
        self._cluster.gone(self)

    def _ask(self, verb: str, parts: Any) -> dict[str, Any]:
        if self.pipe is None:
            raise EOFError
        self.pipe.send((verb, parts))
        return self.pipe.recv()


class FakeSymphony:
    """All of it; `slots` is how many services it runs at a time."""

    def __init__(
        self,
        folder: Path,
        slots: int = 2,
        users: dict[str, str] | None = None,
        applications: tuple[str, ...] = ("gridfed",),
        retries: int = 1,
        service: Path = SERVICE,
        library: str = str(SERVICE.parents[4]),
    ) -> None:
        self.library = library
        self.address = str(folder / "cluster.sock")
        self.slots = slots
        self.users = users or {"Guest": "Guest"}
        self.applications = applications
        self.retries = retries
        self.service = service
        self.started: list[str] = []  # a line for each time that a task was begun
        self.hangs = ""  # calls of this name are not answered
        self.early = False  # outcomes are told before `send` returns
        self.echoes = False  # and told twice
        self.aborts_orphans = True  # abortSessionIfClientDisconnect
        self.sessions: dict[str, FakeSession] = {}
        self.log = (folder / "services.log").open("ab")
        self._numbers = itertools.count(1)
        self._instances: list[FakeService] = []
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._clients: list[Any] = []
        self._is_closed = False
        self._listener = Listener(self.address, "AF_UNIX", backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    # --- what tests ask ---

    @property
    def open_sessions(self) -> list[str]:
        with self.lock:
            return [each.name for each in self.sessions.values() if each.state == "Open"]

    @property
    def running(self) -> list[Task]:
        with self.lock:
            return [each.task for each in self._instances if each.task is not None]

    def reclaim(self, count: int = 1) -> None:
        """Take slots away, those at work first: their tasks are pending again."""
        with self.lock:
            self.slots -= count
            busy = sorted(self._instances, key=lambda each: each.task is None)
            for instance in busy[:count]:
                instance.reclaimed = True
                instance.process.kill()

    def lend(self, count: int = 1) -> None:
        with self.lock:
            self.slots += count
            self._schedule()

    def kill_services(self) -> None:
        with self.lock:
            for instance in self._instances:
                instance.process.kill()

    def abort(self, session: str, why: str = "the session was killed by an administrator") -> None:
        with self.lock:
            self._end(self.sessions[session], "Aborted")
            self._push(self.sessions[session], None, {"text": why})

    def cut(self) -> None:
        """Drop the connections of all clients."""
        for pipe in list(self._clients):
            pipe.cut()

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self.slots = 0
            instances = list(self._instances)
        self.cut()
        self._listener.close()
        for instance in instances:
            instance.work.put(None)
            instance.process.kill()
            instance.process.wait()
        self.log.close()

    # --- sessions and tasks ---

    def login(self, user: str, password: str) -> None:
        if self.users.get(user) != password:
            raise ValueError(f"user {user} can't log on: wrong name or password")

    def create(self, application: str, values: dict[str, Any], owner: Any) -> str:
        with self.lock:
            if application not in self.applications:
                raise ValueError(f"there is no application {application}")
            name = str(next(self._numbers))
            self.sessions[name] = FakeSession(name, values, owner)
            return name

    def send(self, session: str, parts: list[bytes]) -> str:
        with self.lock:
            found = self.sessions.get(session)
            if found is None or found.state != "Open":
                raise ValueError(f"session {session} is not open")
            task = Task(str(len(found.tasks) + 1), parts)
            found.tasks[task.name] = task
            found.waiting.append(task)
            self._schedule()
            if self.early:
                self.changed.wait_for(lambda: task.state in ("Done", "Error"), 5.0)
            return task.name

    def kill(self, session: str, task: str) -> None:
        with self.lock:
            found = self.sessions.get(session)
            wanted = found.tasks.get(task) if found else None
            if wanted is None:
                raise ValueError(f"session {session} has no task {task}")
            if wanted.state in ("Pending", "Running"):
                self._cancel(found, wanted)
                self._push(found, task, {"ok": False, "text": "the task was killed"})

    def end(self, session: str) -> None:
        with self.lock:
            if session not in self.sessions:
                raise ValueError(f"there is no session {session}")
            self._end(self.sessions[session], "Closed")

    def detach(self, session: str) -> None:
        with self.lock:
            self.sessions[session].owner = None

    def reopen(self, session: str, owner: Any) -> str:
        with self.lock:
            found = self.sessions.get(session)
            if found is None or found.state != "Open":
                raise ValueError(f"session {session} is not open")
            found.owner = owner
            for task, outcome in list(found.given.items()):  # to whomever it was given before
                self._push(found, task, outcome)
            found.kept.clear()
            return session

    def results(
        self, session: str, count: int, wait_s: float, names: Sequence[str] = ()
    ) -> list[tuple[str, dict[str, Any]]]:
        """Outcomes that were not fetched yet, of a session without an owner; of tasks that are
        named those that were as well.
        """
        with self.lock:
            found = self.sessions.get(session)
            if found is None or found.state != "Open":
                raise ValueError(f"session {session} is not open")
            if names:
                ready = [(name, found.given[name]) for name in names if name in found.given]
                found.kept = [each for each in found.kept if each[0] not in names]
                return ready[:count]
            self.changed.wait_for(lambda: found.kept or found.state != "Open", wait_s)
            taken, found.kept = found.kept[:count], found.kept[count:]
            return taken

    def _end(self, session: FakeSession, state: str) -> None:
        if session.state == "Open":
            session.state = state
            for task in session.tasks.values():
                if task.state in ("Pending", "Running"):
                    self._cancel(session, task)
            self.changed.notify_all()

    def _cancel(self, session: FakeSession, task: Task) -> None:
        if task in session.waiting:
            session.waiting.remove(task)
        for instance in self._instances:
            if instance.task is task:
                instance.task = None
                instance.process.kill()
        task.state = "Canceled"

    # --- running them ---

    def _schedule(self) -> None:
        for session in sorted(self.sessions.values(), key=lambda each: -each.priority):
            while session.waiting and session.state == "Open" and not self._is_closed:
                idle = [each for each in self._instances if each.task is None and _lives(each)]
                idle.sort(key=lambda each: each.session is not session)
                if idle and len(self._instances) <= self.slots:
                    instance = idle[0]
                elif len(self._instances) < self.slots:
                    instance = FakeService(self, next(self._numbers))
                    self._instances.append(instance)
                else:
                    return
                task = session.waiting.popleft()
                task.state, task.tries = "Running", task.tries + 1
                instance.task, instance.session = task, session
                self.started.append(f"{session.name}/{task.name}")
                instance.work.put((session, task))

    def ended(self, instance: FakeService, session: FakeSession, task: Task, answer: dict) -> None:
        """A service has answered."""
        with self.lock:
            if instance.task is task:
                instance.task = None
            if task.state == "Running":
                if answer["ok"]:
                    task.state = "Done"
                    self._push(session, task.name, {"ok": True, "output": answer["output"]})
                else:
                    embedded = answer["text"]
                    self._failed(session, task, "the service failed", embedded, answer["fatal"])
            self._schedule()

    def gone(self, instance: FakeService) -> None:
        """A service has ended."""
        with self.lock:
            self._instances.remove(instance)
            task, session = instance.task, instance.session
            instance.task = None
            if task is not None and session is not None and task.state == "Running":
                if instance.reclaimed:
                    task.state, task.tries = "Pending", task.tries - 1
                    session.waiting.appendleft(task)
                else:
                    self._failed(session, task, "the service ended", None, False)
            if not self._is_closed:
                self._schedule()

    def _failed(
        self, session: FakeSession, task: Task, text: str, embedded: Any, fatal: bool
    ) -> None:
        if not fatal and task.tries <= self.retries:
            task.state = "Pending"
            session.waiting.append(task)
            return
        task.state = "Error"
        self._push(session, task.name, {"ok": False, "text": text, "embedded": embedded})

    def _push(self, session: FakeSession, task: str | None, outcome: dict[str, Any]) -> None:
        if task is not None:
            session.given[task] = outcome
        for _ in range(2 if self.echoes else 1):
            if session.owner is not None:
                session.owner.tell((session.name, task, outcome))
            elif task is not None:
                session.kept.append((task, outcome))
        self.changed.notify_all()

    # --- who comes ---

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                pipe = self._listener.accept()
            except (OSError, EOFError):
                return
            threading.Thread(target=self._greet, args=(pipe,), daemon=True).start()

    def _greet(self, pipe: Connection) -> None:
        try:
            number, verb, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        if verb == "service":
            with self.lock:
                for instance in self._instances:
                    if instance.name == arguments[0]:
                        instance.pipe = pipe
                        instance.connected.set()
            return
        client = _Client(self, pipe)
        self._clients.append(client)
        client.serve((number, verb, arguments))
        self._clients.remove(client)
        with self.lock:
            for session in self.sessions.values():
                if session.owner is client:
                    session.owner = None
                    if self.aborts_orphans:
                        self._end(session, "Aborted")


def _lives(instance: FakeService) -> bool:
    return instance.process.poll() is None


class _Client:
    """One connection of the stand-in `soamapi`."""

    def __init__(self, cluster: FakeSymphony, pipe: Connection) -> None:
        self._cluster = cluster
        self._pipe = pipe
        self._lock = threading.Lock()
        self._application = ""

    def tell(self, news: Any) -> None:
        self._send((0, news, None))

    def _send(self, said: Any) -> None:
        with self._lock, contextlib.suppress(OSError):  # it is gone; `serve` notices
            self._pipe.send(said)

    def cut(self) -> None:
        with socket.socket(fileno=os.dup(self._pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def serve(self, request: Any) -> None:
        while True:
            number, verb, arguments = request
            try:
                self._send((number, self._do(verb, *arguments), None))
            except ValueError as error:
                self._send((number, None, str(error)))
            try:
                request = self._pipe.recv()
            except (EOFError, OSError):
                return

    def _do(self, verb: str, *arguments: Any) -> Any:
        cluster = self._cluster
        while verb == cluster.hangs:
            time.sleep(0.05)
        if verb == "connect":
            application, user, password = arguments
            cluster.login(user, password)
            if application not in cluster.applications:
                raise ValueError(f"there is no application {application}")
            self._application = application
            return f"connection {id(self)}"
        if verb == "create":
            return cluster.create(self._application, arguments[0], self)
        if verb == "reopen":
            return cluster.reopen(arguments[0]["session"], self)
        if verb == "send":
            return cluster.send(*arguments)
        if verb == "kill":
            return cluster.kill(*arguments)
        assert verb == "close"
        session, destroy = arguments
        if destroy:
            cluster.end(session)
        else:
            cluster.detach(session)
        return None
