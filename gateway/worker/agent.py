"""The agent: the worker's end of the conversation with a gateway, and the keeper of its slots.

    run_agent
    ├── _converse       dials, resumes, takes messages (federation.handshake.Dialogue)
    ├── _keep_slot      one a slot: start a process, carry its messages, start another when it ends
    ├── _watch          time limits, memory limits, the lease, heartbeats
    └── _stop_on_signal

The agent outlives its slots, names the task at fault when one dies, and never opens a payload.
What it may not decide, it does not: whether a failed task is tried again is the gateway's matter.
"""

import argparse
import math
import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from federation.errors import GridError, ProtocolError, SessionRefused
from federation.handshake import ACKNOWLEDGE_S, Dialogue, Opened
from federation.messages import (
    Assign,
    Bye,
    Drain,
    Hello,
    NeedFunction,
    Pulse,
    PutFunction,
    Recall,
    Report,
    Returned,
)
from federation.nng import NngLink
from federation.ranges import Range, RangeSet
from federation.transport import TlsSettings
from gateway.child import die_with_parent
from gateway.worker.cells import SETTLE_S
from gateway.worker.process import SlotProcess, memory_bytes
from gateway.worker.roster import Piece, Roster, SlotBook, Terms

WATCH_S: Final = 0.05
PULSE_S: Final = 2.0
REDIAL_MIN_S: Final = 0.1
REDIAL_MAX_S: Final = 5.0
STOP_S: Final = 10.0  # running tasks may take so long to end when the agent stops
BAD_STARTS_MAX: Final = 3
FUNCTIONS_BYTES_MAX: Final = 1 << 30
RESULT_SLACK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told at its start. `give_up_s` is 0 to dial for ever."""

    address: str
    name: str
    pool: str
    slots: int
    secret: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)
    tags: dict[str, bool | int | float] = field(default_factory=dict)
    memory_bytes: int = 0
    give_up_s: float = 0.0
    die_with_parent: bool = False


class Agent:
    """A worker: so many slots, one gateway."""

    def __init__(self, settings: AgentSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self.roster = Roster(settings.slots)
        self._processes: dict[int, SlotProcess] = {}
        self._functions: dict[bytes, bytes] = {}
        self._homeless: dict[bytes, list[Assign]] = {}  # assignments whose function is not here yet
        self._open: dict[int, RangeSet] = {}  # what each assignment still owes the gateway
        self._link: NngLink | None = None
        self._lost_s = time.monotonic()
        self._draining = False
        self._stopping = False
        self._bad_starts = 0
        self.exit_code = 0
        self._dialogue = Dialogue(
            hello=Hello([], "worker", settings.name, _user(), b"", "", 0, self._about()),
            secret=settings.secret,
            random_bytes=secrets.token_bytes,
        )

    def _about(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "slots": settings.slots,
            "tags": settings.tags,
            "pool": settings.pool,
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "memory_bytes": settings.memory_bytes,
        }

    async def run(self) -> None:
        """Work until told to stop."""
        self._token = trio.lowlevel.current_trio_token()
        self._changed = trio.Event()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._stop_on_signal)
            for book in list(self.roster.slots):
                nursery.start_soon(self._keep_slot, book.index)
            nursery.start_soon(self._watch)
            nursery.start_soon(self._converse)

    # --- the gateway ---------------------------------------------------------------------------

    async def _converse(self) -> None:
        wait_s = REDIAL_MIN_S
        while True:
            try:
                if await self._talk():
                    wait_s = REDIAL_MIN_S
            except SessionRefused as refusal:
                if refusal.code != "busy" and self._dialogue.welcome is None:
                    self._end(f"the gateway refuses this worker: {refusal}", 1)
                self._say(f"the gateway says: {refusal}")
                self._forget_session()
            except ProtocolError as error:
                self._say(f"the gateway broke the protocol: {error}")
            finally:
                self._hang_up()
            give_up_s = self._settings.give_up_s
            if give_up_s and time.monotonic() - self._lost_s > give_up_s:
                self._end(f"no gateway at {self._settings.address} for {give_up_s:g} s", 1)
            await trio.sleep(wait_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            wait_s = min(2 * wait_s, REDIAL_MAX_S)

    async def _talk(self) -> bool:
        """Hold one pipe for as long as it lasts; whether a session was opened on it."""
        link = NngLink(self._settings.address, self._on_change, self._settings.tls)
        self._link = link
        while not link.is_up:
            changed = self._changed
            if link.is_lost:
                return False
            with trio.move_on_after(1.0):
                await changed.wait()
            self._changed = trio.Event()
        self._dialogue.connected(time.monotonic())
        self._flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, link, nursery.cancel_scope)
            while not (link.is_lost or self._dialogue.is_silent(time.monotonic())):
                changed = self._changed
                with trio.move_on_after(0.25):
                    await changed.wait()
                    self._changed = trio.Event()
            nursery.cancel_scope.cancel()
        return self._dialogue.welcome is not None

    async def _receive(self, link: NngLink, scope: trio.CancelScope) -> None:
        while True:
            frames = link.receive()
            if not frames:
                wait_s = ACKNOWLEDGE_S if self._dialogue.owes else math.inf
                with trio.move_on_after(wait_s):
                    await trio.lowlevel.wait_readable(link.fileno())
                self._flush()
                continue
            for frame in frames:
                for message in self._dialogue.receive(frame, time.monotonic()):
                    self._hear(message)
                    if isinstance(message, Bye):
                        scope.cancel()
                        return
            self._feed()
            self._flush()
            await trio.lowlevel.checkpoint()

    def _on_change(self) -> None:
        try:
            self._token.run_sync_soon(lambda: self._changed.set(), idempotent=True)
        except trio.RunFinishedError:
            return

    def _hang_up(self) -> None:
        if self._dialogue.is_open:
            self._lost_s = time.monotonic()
        self._dialogue.lost()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _flush(self) -> None:
        if self._link is not None:
            self._dialogue.flush(self._link.send, time.monotonic())

    def _hear(self, message: Any) -> None:
        match message:
            case Opened(resumed=False):
                self._drop_everything()
                self._say(f"working for site {message.site} with {len(self.roster.slots)} slots")
            case Assign():
                self._assigned(message)
            case PutFunction():
                self._functions[message.digest] = message.body
                for assign in self._homeless.pop(message.digest, []):
                    self._assigned(assign)
            case Recall():
                self._nursery.start_soon(self._recall, message)
            case Drain():
                self._draining = message.on
            case Bye():
                self._say(f"the gateway says goodbye: {message.reason}")
                self._forget_session()
            case _:
                pass  # Opened(resumed=True) and Unknown need nothing done

    def _assigned(self, message: Assign) -> None:
        stop = message.first + len(message.arguments)
        self._open.setdefault(message.assignment, RangeSet([(message.first, stop)]))
        if message.function not in self._functions:
            if message.function not in self._homeless:
                self._dialogue.post(NeedFunction(message.function))
            self._homeless.setdefault(message.function, []).append(message)
            return
        terms = Terms(
            message.assignment, message.job, message.function, message.timeout_s, message.prints
        )
        self.roster.add(Piece(terms, message.first, message.arguments))

    def _report(self, terms: Terms, first: int, part: list[Any]) -> None:
        """Tell the gateway the results of tasks of an assignment that is still open."""
        values, failures, prints, wall_ns, cpu_ns, peak = part
        owed = self._open.get(terms.assignment)
        if owed is None:
            return
        owed.remove(first, first + len(values))
        if not owed:
            del self._open[terms.assignment]
        report = Report(terms.assignment, first, values, failures, prints, wall_ns, cpu_ns, peak)
        self._dialogue.post(report)

    def _fail(self, fault: tuple[Terms, int], kind: str, text: str, wall_ns: int) -> None:
        terms, task = fault
        failure = [0, kind, text, b""]
        self._report(terms, task, [[b""], [failure], [], max(0, wall_ns), 0, 0])

    def _drop_everything(self) -> None:
        """A new session, or the lease is over: no task of ours is ours any more."""
        self._open.clear()
        self._homeless.clear()
        self._functions.clear()
        self.roster.clear()
        for slot in self.roster.slots:
            slot.functions.clear()
            process = self._processes.get(slot.index)
            if slot.chunks and process is not None:
                process.kill("lost", "the session with the gateway ended")

    def _forget_session(self) -> None:
        self._drop_everything()

    # --- taking back ---------------------------------------------------------------------------

    async def _recall(self, message: Recall) -> None:
        """Hand back what has not started; with `kill`, end what has."""
        number, first, stop = message.assignment, message.first, message.stop
        for assigns in self._homeless.values():
            for assign in list(assigns):
                if assign.assignment == number:
                    assigns.remove(assign)
                    terms = Terms(number, assign.job, assign.function, None, False)
                    self.roster.add(Piece(terms, assign.first, assign.arguments))
        taken = self.roster.withdraw(number, first, stop)
        for slot in self.roster.holders(number, first, stop):
            await self._reclaim(slot)
        taken = sorted(taken + self.roster.withdraw(number, first, stop))
        self._hand_back(number, taken)
        if message.kill:
            for slot in self.roster.holders(number, first, stop):
                process = self._processes.get(slot.index)
                if process is not None:
                    process.kill("cancelled", "stopped on request")
        self._feed()
        self._flush()

    def _hand_back(self, assignment: int, taken: list[Range]) -> None:
        owed = self._open.get(assignment)
        if owed is None:
            taken = []
        else:
            for low, high in taken:
                owed.remove(low, high)
            if not owed:
                del self._open[assignment]
        whole = RangeSet(taken)
        self._dialogue.post(Returned(assignment, [list(pair) for pair in whole]))

    async def _reclaim(self, slot: SlotBook) -> None:
        """Take back what a slot has not started; see the module roster for why this is safe."""
        process = self._processes.get(slot.index)
        if process is None or slot.limited:
            return
        slot.limited = True
        bound = process.started + 1
        process.limit(bound)
        await trio.sleep(SETTLE_S)
        if self._processes.get(slot.index) is process and slot is self.roster.slots[slot.index]:
            self.roster.reclaim(slot, max(bound, process.started + 1))
            self._unlimit(slot, process)

    def _unlimit(self, slot: SlotBook, process: SlotProcess) -> None:
        if not slot.chunks:
            slot.limited = False
            process.limit()

    def _feed(self) -> None:
        """Give slots what they have room for, and level out what is left."""
        if self._stopping:
            return
        for slot, chunk in self.roster.feed():
            process = self._processes[slot.index]
            terms = chunk.piece.terms
            if terms.function not in slot.functions:
                slot.functions.add(terms.function)
                process.send(["function", terms.function, self._functions[terms.function]])
            process.send(
                ["chunk", chunk.number, terms.function, chunk.piece.arguments, terms.prints]
            )
        rich = self.roster.richest()
        if rich is not None:
            self._nursery.start_soon(self._level, rich)

    async def _level(self, slot: SlotBook) -> None:
        await self._reclaim(slot)
        self._feed()
        self._flush()

    # --- the slots -----------------------------------------------------------------------------

    async def _keep_slot(self, index: int) -> None:
        """Keep a process for one slot, for as long as the agent runs."""
        while True:
            welcome = self._dialogue.welcome
            limit = welcome.message_bytes_max if welcome else 64 << 20
            process = SlotProcess(
                self._environment(), self._settings.memory_bytes, limit - RESULT_SLACK_BYTES
            )
            self._processes[index] = process
            try:
                await process.run(lambda messages: self._slot_says(index, messages))
            finally:
                del self._processes[index]
                await process.close()
            self._slot_ended(index, process)

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        environment["GRIDFED_GATEWAY"] = self._settings.address
        environment["GRIDFED_SECRET"] = self._settings.secret
        environment["GRIDFED_IN_TASK"] = "1"
        return environment

    def _slot_says(self, index: int, messages: list[list[Any]]) -> None:
        slot, process = self.roster.slots[index], self._processes[index]
        for message in messages:
            if process.doom is None or process.doom[0] != "lost":
                self._slot_said(slot, process, message)
        self._feed()
        self._flush()

    def _slot_said(self, slot: SlotBook, process: SlotProcess, message: list[Any]) -> None:
        match message:
            case ["ready"]:
                slot.ready = True
                self._bad_starts = 0
            case ["part", int(number), list(values), list(), list(), int(wall), int(), int()]:
                found = self.roster.reported(slot, number, len(values), wall)
                if found is None:
                    process.kill("crash", "the slot reported tasks that it does not have")
                    return
                self._report(*found, message[2:])
            case ["end", int(number), int(stop)]:
                if not self.roster.ended(slot, number, stop):
                    process.kill("crash", "the slot ended a chunk that it does not have")
                    return
                self._unlimit(slot, process)
            case _:
                process.kill("crash", "the slot's channel was tampered with")

    def _slot_ended(self, index: int, process: SlotProcess) -> None:
        """A slot's process is gone: name the task at fault, if it was at one."""
        slot = self.roster.slots[index]
        why = process.doom[1] if process.doom else process.describe_end()
        self._say(f"slot {index} ended: {why}")
        if not slot.ready:
            self._bad_starts += 1
            if self._bad_starts >= BAD_STARTS_MAX:
                self._end(f"slots can't start: {process.describe_end()}", 1)
        since_ns = process.since_ns_at_end
        wall_ns = time.monotonic_ns() - since_ns if since_ns else 0
        fault = self.roster.died(slot, process.started_at_end, at_work=since_ns > 0)
        if process.doom is not None and process.doom[0] == "lost":
            self.roster.clear()
        elif fault is not None:
            kind, text = process.doom or ("crash", process.describe_end())
            self._fail(fault, kind, text, wall_ns)
        self._feed()
        self._flush()

    async def _watch(self) -> None:
        """Enforce what the agent must enforce by itself, and show that it is alive."""
        pulse_s = 0.0
        while True:
            await trio.sleep(WATCH_S)
            now_ns, now_s = time.monotonic_ns(), time.monotonic()
            for index, process in list(self._processes.items()):
                self._watch_slot(self.roster.slots[index], process, now_ns)
            welcome = self._dialogue.welcome
            if not self._dialogue.is_open and welcome is not None:
                # The lease: the gateway places our tasks elsewhere now, so they must stop here.
                if now_s - self._lost_s > welcome.grace_s and self._open:
                    self._say(f"no gateway for {welcome.grace_s:g} s: its tasks are stopped")
                    self._drop_everything()
            elif now_s - pulse_s > PULSE_S:
                pulse_s = now_s
                self._dialogue.post(Pulse(self._pulse(now_ns)))
            self._flush()

    def _watch_slot(self, slot: SlotBook, process: SlotProcess, now_ns: int) -> None:
        since_ns = process.since_ns
        if not since_ns:
            return
        running = self.roster.running(slot, process.started)
        if running is not None:
            limit_s = running[0].timeout_s
            if limit_s is not None and now_ns - since_ns > limit_s * 1e9:
                process.kill("timeout", f"it ran over its time limit of {limit_s:g} s")
        limit_bytes = self._settings.memory_bytes
        if limit_bytes:
            used = memory_bytes(process.pid)
            if used > limit_bytes:
                text = f"it used {used:,} bytes of memory; its slot's limit is {limit_bytes:,}"
                process.kill("memory", text)

    def _pulse(self, now_ns: int) -> list[dict[str, Any]]:
        slots = []
        for index, process in sorted(self._processes.items()):
            running = self.roster.running(self.roster.slots[index], process.started)
            at_work = process.since_ns and running is not None
            slots.append(
                {
                    "pid": process.pid,
                    "state": "running" if at_work else "idle",
                    "job": running[0].job if at_work and running else "",
                    "task": running[1] if at_work and running else None,
                    "since_s": (now_ns - process.since_ns) / 1e9 if at_work else 0.0,
                    "rss_bytes": memory_bytes(process.pid),
                }
            )
        return slots

    # --- the end -------------------------------------------------------------------------------

    async def _stop_on_signal(self) -> None:
        """First signal: hand back what waits, let what runs end. Second: stop at once."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if self._stopping:
                    self._end("stopped at once", 130)
                self._stopping = True
                self._nursery.start_soon(self._wind_up)

    async def _wind_up(self) -> None:
        for number in list(self._open):
            await self._recall(Recall(number, 0, 1 << 62, False))
        with trio.move_on_after(STOP_S):
            while not self.roster.is_idle:  # noqa: ASYNC110 - looked at as rarely as the rest
                await trio.sleep(WATCH_S)
        self._dialogue.post(Bye("the worker was stopped"))
        with trio.move_on_after(1.0):
            while self._dialogue.is_open and not self._settled():
                self._flush()
                await trio.sleep(0.01)
        self._end("stopped", 0)

    def _settled(self) -> bool:
        session = self._dialogue.session
        return session is None or session.is_idle

    def _end(self, reason: str, code: int) -> None:
        self._say(reason)
        self.exit_code = code
        self._nursery.cancel_scope.cancel()


async def run_agent(settings: AgentSettings) -> int:
    """Run a worker until it is stopped; return its exit code."""
    if settings.die_with_parent:
        die_with_parent()
    agent = Agent(settings, lambda line: print(f"worker {settings.name}: {line}", file=sys.stderr))  # noqa: T201
    try:
        await agent.run()
    except* GridError as errors:
        print(f"worker {settings.name}: {errors.exceptions[0]}", file=sys.stderr)  # noqa: T201
        agent.exit_code = 1
    return agent.exit_code


def _user() -> str:
    return os.environ.get("USER") or f"uid-{os.getuid()}"


def main() -> None:
    """The local pool's agents start here; people use `gridfed worker`."""
    parser = argparse.ArgumentParser(prog="gateway.worker.agent")
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tags", default="")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--die-with-parent", action="store_true")
    given = parser.parse_args()
    tags: dict[str, bool | int | float] = {}
    for part in filter(None, given.tags.split(",")):
        name, _, number = part.partition("=")
        tags[name] = float(number) if number else True
    settings = AgentSettings(
        address=given.gateway,
        name=given.name,
        pool=given.pool,
        slots=given.slots,
        secret=os.environ.get("GRIDFED_SECRET", ""),
        tags=tags,
        memory_bytes=given.memory,
        die_with_parent=given.die_with_parent,
    )
    sys.exit(trio.run(run_agent, settings))


if __name__ == "__main__":
    main()
