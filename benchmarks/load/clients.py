"""One process that simulates clients with many open jobs, and measures the gateway's response.

    python -m benchmarks.load.clients ADDRESS CLIENTS JOBS TASKS [detached]

Each of CLIENTS keeps its part of JOBS jobs of TASKS tasks open: when one has ended it opens
another. With "detached" each submits its part of JOBS detached jobs at once, and counts them when
the gateway has acknowledged that they are on its disk. Arguments are sent whole, in one message. A
separate session asks `status` again and again: its longest response time is the longest silence.
"""

import hashlib
import sys
from typing import Any

import trio

from benchmarks.load.sessions import LoadSession, play
from federation.ids import new_id
from federation.messages.messages import (
    Answer,
    Ask,
    CloseJob,
    Dropped,
    Kept,
    OpenJob,
    PutFunction,
    RejectJob,
    Results,
    Tasks,
)
from federation.sessions.handshake import Opened

BODY = b"never unpickled: agents only pretend"
DIGEST = hashlib.sha256(BODY).digest()
ARGUMENTS = b"\x80\x05K\x01."
ASK_S = 0.02


class JobClient:
    """A client that keeps so many jobs open, or submits so many detached ones."""

    def __init__(self, load: "Load", number: int, jobs: int) -> None:
        self._load = load
        self._most = jobs
        self._left: dict[str, int] = {}
        self.session = LoadSession(load.address, "client", f"client-{number}", {}, self._hear)

    def _hear(self, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case Opened(resumed=False):
                    self._load.sessions += 1
                    self._left.clear()
                    self.session.post(PutFunction(DIGEST, BODY))
                case Kept(closed=True):
                    self._load.jobs += 1
                case Results():
                    self._end(message.job, len(message.values))
                    self._load.failed += len(message.failures)
                case Dropped():
                    self._load.failed += sum(stop - first for first, stop in message.ranges)
                    self._end(message.job, sum(stop - first for first, stop in message.ranges))
                case RejectJob():
                    self._load.rejected += self._left.pop(message.job, None) is not None
                    print(message, file=sys.stderr)
        while len(self._left) < self._most and self.session.is_open:
            self._open()
        self.session.flush()

    def _end(self, job: str, tasks: int) -> None:
        self._load.ended += tasks
        self._left[job] -= tasks
        if not self._left[job]:
            del self._left[job]
            self._load.jobs += 1

    def _open(self) -> None:
        job, tasks = new_id(), self._load.tasks
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._left[job] = tasks
        self.session.post(
            OpenJob(
                job=job, name="load", function=DIGEST, detached=self._load.detached, project="load",
                priority=0.0, tags={}, timeout_s=None, retries=0, max_cost_nanos=None, currency="",
                python=python, prints=False, again=False, wishes={}, tasks=tasks,
            )
        )  # fmt: skip
        self.session.post(Tasks(job, 0, [ARGUMENTS] * tasks))
        self.session.post(CloseJob(job, tasks, []))


class StatusProber:
    """Asks for the status, one question after the other."""

    def __init__(self, address: str) -> None:
        self.taken_s: list[float] = []
        self._asked_s = 0.0
        self._opened, self._answered = trio.Event(), trio.Event()
        self._session = LoadSession(address, "client", "prober", {}, self._hear)

    def _hear(self, messages: list[Any]) -> None:
        if any(isinstance(message, Opened) for message in messages):
            self._opened.set()
        if any(isinstance(message, Answer) for message in messages):
            self.taken_s.append(trio.current_time() - self._asked_s)
            self._asked_s = 0.0
            self._answered.set()

    async def run(self) -> None:
        """Ask for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._session.run)
            await self._opened.wait()
            while True:
                self._answered = trio.Event()
                self._asked_s = trio.current_time()
                self._session.post(Ask(1, "status", {}))
                self._session.flush()
                await self._answered.wait()
                await trio.sleep(ASK_S)

    def take(self) -> list[float]:
        """Return the response times since the last call, including that of a pending question."""
        taken, self.taken_s = self.taken_s, []
        if self._asked_s:
            taken.append(trio.current_time() - self._asked_s)
        return taken


class Load:
    """All clients of the process, and the outcome of their tasks."""

    def __init__(
        self, address: str, clients: int, jobs: int, tasks: int, *, detached: bool
    ) -> None:
        self.address, self.tasks, self.detached = address, tasks, detached
        self.ended = self.jobs = self.failed = self.rejected = self.sessions = 0
        parts = [jobs // clients + (number < jobs % clients) for number in range(clients)]
        self._clients = [JobClient(self, number, part) for number, part in enumerate(parts)]
        self._prober = StatusProber(address)

    async def run(self) -> None:
        """Run all clients."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._prober.run)
            for each in self._clients:
                nursery.start_soon(each.session.run)

    def figures(self) -> dict[str, Any]:
        """Return the outcomes so far, and the response times since the last figures."""
        return {
            "ended": self.ended,
            "jobs": self.jobs,
            "failed": self.failed,
            "rejected": self.rejected,
            "sessions": self.sessions,
            "answers_s": self._prober.take(),
        }


if __name__ == "__main__":
    chosen = Load(sys.argv[1], *map(int, sys.argv[2:5]), detached=sys.argv[5:] == ["detached"])
    play(chosen.run, chosen.figures)
