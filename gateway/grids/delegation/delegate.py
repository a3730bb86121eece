"""The process that represents an engine: to its gateway it is some workers, one for each lot.

    Delegate.run
    ├── Engine.run          the engine itself; its news come in by `_told`
    ├── Lot.run             a worker's conversation with the gateway, and its book; one or more
    └── _watch              timers: notices, recalls, parcels that the engine has lost; pulses

As slots are lent and taken back, lots begin and end (_regroup).

The slots of a worker never change. When the engine has more of them another lot begins; when it has
fewer, one drains as any worker does, and ends with its tasks in flight. An engine without slots has
no workers, and so the broker gives it nothing.

The parcels that a Keeping engine has of a former run wait in the estate until their tasks are
assigned to a lot, and belong to that lot from then on.

The gateway starts the process (gateway.grids.delegation.engine_pool), and it ends with the gateway.
Its settings come on its standard input, as JSON; its pass in its environment.
"""

import json
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, assert_never

import trio

from federation.address import TOKEN_VARIABLE, login
from federation.clocks import MonoS
from federation.errors import GridError
from federation.messages.messages import (
    Assign,
    Bye,
    Drain,
    Hello,
    NeedFunction,
    Notice,
    Pulse,
    PutFunction,
    Recall,
    Report,
    Returned,
)
from federation.sessions.handshake import Opened, SharedSecret
from federation.sessions.task_passes import ABOUT, read_pass
from federation.transport import TlsSettings
from federation.words import count
from gateway.base import stderr_lines
from gateway.base.child import collect_seldom, first_of
from gateway.base.clocks import mono_now
from gateway.base.no_pickle import forbid_unpickling
from gateway.base.values import SettingError
from gateway.grids.contract import GridFault
from gateway.grids.delegating import (
    Begun,
    Broken,
    Cancelled,
    Done,
    Ended,
    Engine,
    Found,
    Home,
    Keeping,
    Lost,
    News,
    Room,
)
from gateway.grids.delegation.estate import Estate, label_of
from gateway.grids.delegation.parcels import ParcelBook, regroup
from gateway.grids.kinds import open_engine, read_settings
from gateway.sessions.conversation import Lapsed
from gateway.worker.conversation import WorkerConversation
from gateway.worker.isolation.limits import die_with_parent
from gateway.worker.isolation.secrecy import hide_memory, take_variable
from gateway.worker.outbox import WorkerOutbox
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.slot.functions import FunctionCache

WATCH_S: Final = 0.05
PULSE_SLOTS_MAX: Final = 200  # the number of a lot's slots that are shown
GONE_S: Final = 5.0  # a parcel that the engine does not hold for this time, without news, is lost
SHRINK_S: Final = 5.0  # a lot ends after this time with fewer slots
LOTS_MAX: Final = 16
LOT_SLOTS_MAX: Final = 4_096
STOP_S: Final = 10.0  # time for running parcels to end when the process stops
NOTICE_MAX_S: Final = 30 * 86_400.0
RESTART_MIN_S: Final = 0.5
RESTART_MAX_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class DelegateSettings:
    """The settings of the process. `tags` are the pool's, `name` is a prefix of worker names."""

    address: str
    pool: str
    name: str
    credential: str = ""  # a pass, or empty
    tags: dict[str, Any] = field(default_factory=dict)
    tls: TlsSettings = field(default_factory=TlsSettings)

    @property
    def credentials(self) -> SharedSecret:
        """The credentials that it shows to the gateway."""
        own = read_pass(self.credential)
        return SharedSecret("") if own is None else own.credentials

    def hello(self, lot: int, slots: int, engine: Engine) -> Hello:
        """Return the Hello of one of its workers."""
        about: dict[str, Any] = {
            "slots": slots,
            "tags": self.tags,
            "pool": self.pool,
            "python": engine.python,
            "round_trip_s": engine.round_trip_s,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "memory_bytes": 0,
            "others": True,  # its hosts are not the gateway's
        }
        if (own := read_pass(self.credential)) is not None:
            about[ABOUT] = own.subject
        return Hello([], "worker", f"{self.name}-{lot}", login(), b"", "", 0, about)


class Lot:
    """One worker: a conversation with the gateway, and the book of its assignments."""

    def __init__(self, owner: "Delegate", number: int, slots: int) -> None:
        self._owner = owner
        self._engine = owner.engine
        self.number = number
        self.slots = slots
        self.book = ParcelBook(f"{owner.settings.name}-{owner.life}-{number}", slots)
        self.is_ending = False
        self._is_draining = False
        self._said_bye = False
        self._pulse_at_s = MonoS(0.0)
        self._asked: set[bytes] = set()
        self._missing: dict[str, MonoS] = {}  # parcels that the engine does not hold, since when
        settings = owner.settings
        self._outbox = WorkerOutbox()
        self._gateway = WorkerConversation(
            address=settings.address,
            tls=settings.tls,
            credentials=settings.credentials,
            hello=settings.hello(number, slots, owner.engine),
            outbox=self._outbox,
            give_up_s=0.0,
            hear=self._hear,
            say=owner.say,
        )

    async def run(self) -> None:
        """Work for the gateway until ended. Raises GridError when it is refused for good."""
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            await self._gateway.run()

    # --- messages of the gateway ---------------------------------------------------------------

    def _hear(self, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case Opened(resumed=False):
                    self._drop_all()
                case Lapsed():
                    self._drop_all()
                case Assign():
                    self._assigned(message)
                case PutFunction(digest, body):
                    self._asked.discard(digest)
                    self._owner.put(digest, body)
                    self.book.known.add(digest)
                case Recall():
                    span = (message.assignment, message.first, message.stop)
                    names = self.book.recall(*span, mono_now(), kill=message.kill)
                    self._engine.cancel(names, running=message.kill)
                case Notice():
                    in_s = message.in_s
                    at_s = None if in_s is None else mono_now() + min(in_s, NOTICE_MAX_S)
                    self.book.note_stop(message.assignment, message.first, message.stop, at_s)
                case Drain(on):
                    self._is_draining = on
                case Bye():
                    self._part()
        self.feed()

    def _assigned(self, message: Assign) -> None:
        if self._is_draining or self.is_ending:
            span = [message.first, message.first + len(message.arguments)]
            self._outbox.add(Returned(message.assignment, [span]))
            return
        terms = AssignmentTerms(
            *(message.assignment, message.job, message.function),
            *(message.timeout_s, message.prints),
        )
        estate = self._owner.estate
        left = estate.find(terms, message.first, message.arguments)
        self.book.assign(terms, message.first, message.arguments, left, mono_now())
        for name, _, _ in left:
            outcome = estate.drop(name)
            if outcome is not None:
                self.hear_engine(outcome)
        if message.function in self.book.known or message.function in self._asked:
            return
        if self._owner.has(message.function):
            self.book.known.add(message.function)
            return
        self._asked.add(message.function)
        self._outbox.add(NeedFunction(message.function))

    def _drop_all(self) -> None:
        """Drop all tasks: the gateway has placed them elsewhere, or will."""
        self._is_draining = False
        self._asked.clear()
        self._outbox.take()
        self._engine.cancel(self.book.drop_all(), running=True)

    def _part(self) -> None:
        """Leave parcels at work as the gateway ends: if it returns it assigns their tasks again."""
        if self._owner.take_up_s:
            mono_s = mono_now()
            for name, sent in self.book.sent.items():
                piece = sent.piece
                label = label_of(piece.terms, piece.first, piece.arguments)
                self._owner.estate.add(name, label, mono_s)
            self.book.drop_all()  # so that nothing is cancelled below
        self._drop_all()

    # --- news of the engine --------------------------------------------------------------------

    def hear_engine(self, news: Begun | Ended) -> None:
        """Take news of a parcel of this lot."""
        book, mono_s = self.book, mono_now()
        reports: list[Report] = []
        match news:
            case Begun(name):
                book.begun(name, mono_s)
            case Done():
                reports = book.done(news, mono_s)
            case Lost(name, why):
                reports = book.lost(name, why)
            case Broken(name, why):
                reports = book.broken(name, why, mono_s)
            case Cancelled(name):
                reports = book.cancelled(name, mono_s)
            case _:
                assert_never(news)
        for report in reports:
            self._outbox.add_report(report)

    def feed(self) -> None:
        """Send the engine parcels that it has room for, and the gateway all pending messages."""
        if self.is_ending:
            for returned in self.book.withdraw_all():
                self._outbox.add(returned)
        else:
            self.book.result_bytes_max = self._gateway.result_bytes_max
            while parcels := self.book.feed():  # an engine may be done with them at once
                for parcel in parcels:
                    self._engine.send(parcel)
        for answer in self.book.answers(mono_now()):
            self._outbox.add(answer)
        self._gateway.flush()

    # --- timers --------------------------------------------------------------------------------

    def watch(self, mono_s: MonoS) -> None:
        """Cancel parcels that are due, and find those that the engine has lost silently."""
        if due := self.book.due(mono_s):
            self._engine.cancel(due, running=True)
        missing = {name for name in self.book.sent if not self._engine.holds(name)}
        self._missing = {name: self._missing.get(name, mono_s) for name in missing}
        for name in [each for each, since_s in self._missing.items() if mono_s - since_s > GONE_S]:
            del self._missing[name]
            self.hear_engine(Lost(name, "the engine no longer knows it"))
        is_heard = self._gateway.is_open and not self._said_bye
        if is_heard and mono_s - self._pulse_at_s > self._gateway.pulse_s:
            self._pulse_at_s = mono_s
            self._outbox.add(Pulse(self._pulse(mono_s)))
        self.feed()
        self._gateway.tick()

    def _pulse(self, mono_s: MonoS) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = [
            {
                "pid": 0,
                "state": "running",
                "job": sent.piece.terms.job,
                "task": sent.piece.first,
                "since_s": mono_s - sent.begun_at_s if sent.begun_at_s is not None else 0.0,
                "rss_bytes": 0,
            }
            for sent in list(self.book.sent.values())[: min(self.slots, PULSE_SLOTS_MAX)]
        ]
        idle = {"pid": 0, "state": "idle", "job": "", "task": None, "since_s": 0.0, "rss_bytes": 0}
        slots += [dict(idle) for _ in range(min(self.slots, PULSE_SLOTS_MAX) - len(slots))]
        return slots

    # --- its end -------------------------------------------------------------------------------

    async def detach(self) -> None:
        """Say goodbye, and leave running parcels at work."""
        self.is_ending = True
        self.feed()
        self.book.drop_all()
        await self._say_bye("detached")

    async def end(self, at_most_s: float = math.inf) -> None:
        """Refuse new work, let running parcels end, for a limited time, and say goodbye."""
        if not self.is_ending:
            self.is_ending = True
            self._outbox.add(Drain(True))
            self._engine.cancel(list(self.book.sent), running=False)
            self.feed()
        with trio.move_on_after(at_most_s):
            while not self.book.is_idle:  # noqa: ASYNC110 - seldom, and not for long
                await trio.sleep(WATCH_S)
        self._engine.cancel(self.book.drop_all(), running=True)
        await self._say_bye("drained")

    async def _say_bye(self, why: str) -> None:
        self._said_bye = True
        self._outbox.add(Bye(why))
        await self._gateway.settle()
        self._scope.cancel()


class Delegate:
    """All lots of one engine."""

    def __init__(
        self, settings: DelegateSettings, engine: Engine, say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.say = say
        self.exit_code = 0
        # in parcels' names, which differ from those of any former run
        self.life = secrets.token_hex(4)
        keeping = engine if isinstance(engine, Keeping) and engine.take_up_s else None
        self.take_up_s = keeping.take_up_s if keeping is not None else 0.0
        self._detaches = keeping is not None and keeping.detaches
        self._engine_scope = trio.CancelScope()
        self.estate = Estate()
        self._functions = FunctionCache()
        self._put: set[bytes] = set()  # bodies that the engine has
        self._lots: dict[int, Lot] = {}
        self._next_lot = 0
        self._room = 0
        self._fewer_since_s: MonoS | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Work until told to stop. Raises GridError when the gateway refuses us for good."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._watch)
            with self._engine_scope:
                await self._run_engine()

    async def _run_engine(self) -> None:
        """Run the engine, and restart it if it fails: `holds` tells which parcels it still has."""
        wait_s = RESTART_MIN_S
        while True:
            started_s = mono_now()
            try:
                await self.engine.run(self._told)
                return
            except GridFault as fault:
                self._told(Room(0, str(fault)))
            if mono_now() - started_s > RESTART_MAX_S:
                wait_s = RESTART_MIN_S
            await trio.sleep(wait_s)
            wait_s = min(2 * wait_s, RESTART_MAX_S)

    # --- functions -----------------------------------------------------------------------------

    def has(self, digest: bytes) -> bool:
        """Whether the engine has a function's body."""
        return digest in self._put

    def put(self, digest: bytes, body: bytes) -> None:
        """Keep a body, and give it to the engine unless it has it."""
        in_use = {each for lot in self._lots.values() for each in lot.book.functions}
        gone = self._functions.put(digest, body, in_use)
        for each in gone:
            self._put.discard(each)
            self.engine.forget(each)
            for lot in self._lots.values():
                lot.book.known.discard(each)
        if digest not in self._put:
            self._put.add(digest)
            self.engine.put(digest, body)

    # --- news of the engine --------------------------------------------------------------------

    def _told(self, news: News) -> None:
        if isinstance(news, Room):
            if news.why and (self._room or not self._lots):
                self.say(f"has no slots at the engine: {news.why}")
            self._room = news.slots
            self._regroup(mono_now())
            return
        if isinstance(news, Found):
            if self.take_up_s:
                self.estate.add(news.parcel, news.label, mono_now())
            return
        if news.parcel in self.estate:
            if isinstance(news, Done):
                self.estate.keep(news)
            elif not isinstance(news, Begun):
                self.estate.drop(news.parcel)  # the owner of its tasks sends them anew
            return
        for lot in self._lots.values():
            if news.parcel in lot.book.sent:
                lot.hear_engine(news)
                return

    def _clear_estate(self, mono_s: MonoS) -> None:
        """Cancel parcels whose tasks are not assigned to us: they were stopped or run elsewhere."""
        names = self.estate.stale(mono_s - self.take_up_s)
        if names:
            for name in names:
                self.estate.drop(name)
            self.say(
                f"cancels {len(names)} parcels of an earlier run: their tasks are assigned "
                "elsewhere or stopped"
            )
            self.engine.cancel(names, running=True)

    def _regroup(self, mono_s: MonoS) -> None:
        """Begin and end lots to match the number of slots that the engine has for us."""
        if self._is_stopping:
            return
        live = [(each.number, each.slots) for each in self._lots.values() if not each.is_ending]
        fewer = self._room < sum(size for _, size in live)
        self._fewer_since_s = (self._fewer_since_s or mono_s) if fewer else None
        waits = fewer and self._room > 0 and mono_s - (self._fewer_since_s or mono_s) < SHRINK_S
        if waits:
            return
        ended, more = regroup(live, self._room, LOTS_MAX)
        for number in ended:
            self._nursery.start_soon(self._end, self._lots[number])
        while more > 0:
            size = min(more, LOT_SLOTS_MAX)
            more -= size
            self._nursery.start_soon(self._keep, self._begin(size))

    def _begin(self, slots: int) -> Lot:
        self._next_lot += 1
        lot = self._lots[self._next_lot] = Lot(self, self._next_lot, slots)
        self.say(f"uses {count(slots, 'slot')} of the engine")
        return lot

    async def _keep(self, lot: Lot) -> None:
        try:
            await lot.run()
        finally:
            del self._lots[lot.number]
            if not self._detaches:  # otherwise the process is ending
                self.engine.cancel(lot.book.drop_all(), running=True)

    async def _end(self, lot: Lot) -> None:
        self.say(f"gives up {count(lot.slots, 'slot')}: the engine has fewer")
        await lot.end()

    # --- timers, and the end -------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await trio.sleep(WATCH_S)
            mono_s = mono_now()
            for lot in list(self._lots.values()):
                lot.watch(mono_s)
            if self._fewer_since_s is not None:
                self._regroup(mono_s)
            if self.estate:
                self._clear_estate(mono_s)

    def stop(self) -> None:
        """Let running parcels end, for a while; on the second call, stop at once."""
        if self._is_stopping:
            self._nursery.cancel_scope.cancel()
        self._is_stopping = True
        self._nursery.start_soon(self._wind_up)

    async def _wind_up(self) -> None:
        if self._detaches:
            self._engine_scope.cancel()  # an outcome that arrives now could not be reported
        async with trio.open_nursery() as nursery:
            for lot in list(self._lots.values()):
                if self._detaches:
                    nursery.start_soon(lot.detach)
                else:
                    nursery.start_soon(lot.end, STOP_S)
        self._nursery.cancel_scope.cancel()


async def run_delegate(told: dict[str, Any], credential: str) -> int:
    """Run the process with the settings from its standard input; return its exit code."""

    def say(line: str) -> None:
        stderr_lines.say(f"gridfed: pool {told['pool']} {line}")

    die_with_parent(told["parent"])
    collect_seldom()
    forbid_unpickling(say)
    kind = resolve_name(told["kind"])
    home = Home(told["pool"], told["mark"], Path(told["folder"]), say)
    try:
        engine = open_engine(kind, read_settings(kind, told["table"]), home)
    except SettingError as error:
        say(f"gives up: {error}")
        return 1
    settings = DelegateSettings(
        address=told["gateway"],
        pool=told["pool"],
        name=told["name"],
        credential=credential,
        tags=told["tags"],
        tls=TlsSettings().or_environment(),
    )
    delegate = Delegate(settings, engine, say)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, delegate)
            await delegate.run()
            nursery.cancel_scope.cancel()
    except* GridError as errors:
        say(f"gives up: {first_of(errors)}")
        delegate.exit_code = 1
    return delegate.exit_code


async def _stop_on_signal(delegate: Delegate) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            delegate.stop()


def main() -> None:
    """Start the process; called by the gateway."""
    told = json.loads(sys.stdin.buffer.readline())
    credential = take_variable(TOKEN_VARIABLE)
    hide_memory()
    sys.exit(trio.run(run_delegate, told, credential))


if __name__ == "__main__":
    main()
