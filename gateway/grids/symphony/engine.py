"""Symphony as an engine: a session for each function, its common data; a task for each parcel.

    put(digest, body)  ─► (nothing yet)
    send(parcel)       ─► session of its function, opened by its first parcel ─► tasks
    cancel             ─► a task that was not sent is taken back; one that was is killed

Symphony retries a task by itself when a slot is reclaimed, without a report. It can't take a task
back only if it has not begun: so a task that was sent counts as begun.

Open sessions are recorded in a file (journal). A new run opens the sessions of the last one again
and reports the parcels in them as Found; sessions without any are closed, so nothing runs on
unseen. The same happens after a loss of the connection, or of the side process: the parcels stay
ours, and the next `run` opens their sessions again.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from federation.clocks import MonoS
from federation.words import count
from gateway.base.child import first_of
from gateway.base.clocks import mono_now
from gateway.grids.contract import GridFault
from gateway.grids.delegating import (
    Begun,
    Broken,
    Cancelled,
    Ended,
    Found,
    Home,
    Lost,
    News,
    Parcel,
    Room,
)
from gateway.grids.symphony.journal import ParcelJournal
from gateway.grids.symphony.parcel_bytes import pack_common, pack_input, unpack_output
from gateway.grids.symphony.settings import SymphonySettings
from gateway.grids.symphony.ways import (
    ConnectionCut,
    Gone,
    Heard,
    SymphonyInterface,
    SymphonyOutcome,
)

TRIP_S: Final = 0.1  # an estimate of a task's round trip through Symphony
SEND_TASKS_MAX: Final = 50
SEND_BYTES_MAX: Final = 8 << 20
IDLE_S: Final = 60.0  # a session without tasks is closed after this time,
CROWDED_S: Final = 1.0  # and after this time while there are more than SESSIONS_KEPT
SESSIONS_KEPT: Final = 32


class AskRoom(Protocol):
    """Returns the number of slots that are ours."""

    async def __call__(self) -> int:
        """Return the present number. Raises GridFault."""
        ...

    async def close(self) -> None:
        """Release its resources; it may be called again."""
        ...


@dataclass(eq=False, slots=True)
class _Session:
    """One function's session. `tasks` are its parcels by Symphony's ids, `sent` the reverse.

    A reopened session (`is_old`) takes no new parcels: its function is not at hand, and the
    settings may have changed.
    """

    digest: bytes
    is_old: bool = False
    id: str = ""
    waiting: OrderedDict[str, Parcel] = field(default_factory=OrderedDict)
    tasks: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    kills: set[str] = field(default_factory=set)  # parcels that are to be killed
    dying: set[str] = field(default_factory=set)  # those that are being killed
    is_sending: bool = False
    early: dict[str, SymphonyOutcome] = field(default_factory=dict)
    more: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def wake(self) -> None:
        """Signal that there is work."""
        self.more.set()


class SymphonyEngine:
    """See gateway.grids.delegating.Engine.

    Args:
        way: the interface to Symphony.
        ask_room: returns the number of slots that are ours; None: the number in the settings.
    """

    def __init__(
        self,
        settings: SymphonySettings,
        home: Home,
        way: SymphonyInterface,
        ask_room: AskRoom | None,
    ) -> None:
        self._settings = settings
        self._home = home
        self._way = way
        self._ask_room = ask_room
        self._bodies: dict[bytes, bytes] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._by_id: dict[str, _Session] = {}
        self._left: dict[str, _Session] = {}  # to be opened again, by their ids
        self._cut_since_s: MonoS | None = None
        self._journal = ParcelJournal(home.folder, settings.application, home.say)
        self._has_looked = False  # into it, for leftovers of a former run
        self._parcels: dict[str, _Session] = {}
        self._tell: Callable[[News], None] = lambda _news: None
        self._nursery: trio.Nursery | None = None

    @property
    def python(self) -> str:
        """See Engine."""
        return self._settings.python

    @property
    def round_trip_s(self) -> float:
        """See Engine."""
        return TRIP_S

    @property
    def take_up_s(self) -> float:
        """See Keeping."""
        return self._settings.take_up_s

    @property
    def detaches(self) -> bool:
        """See Keeping."""
        return self._settings.on_stop == "detach"

    async def check(self) -> str:
        """See Engine."""
        words = await self._way.check()
        if self._ask_room is None:
            return f"{words}; {self._settings.slots} slots by configuration"
        try:
            return f"{words}; {await self._ask_room()} slots by EGO"
        finally:
            await self._ask_room.close()

    async def run(self, tell: Callable[[News], None]) -> None:
        """See Engine."""
        self._tell = tell
        if not self._has_looked:
            self._find_left()
        fault: GridFault | None = None
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._way.run, self._hear, self.detaches)
                self._nursery = nursery
                try:
                    await self._take_up(nursery)
                except GridFault:
                    self._way.leave()
                    raise
                self._cut_since_s = None
                nursery.start_soon(self._watch_room)
        except* GridFault as faults:
            fault = first_of(faults)
        finally:
            self._nursery = None
            self._disconnected(is_fault=fault is not None)
        if fault is not None:
            raise fault

    # --- surviving a connection, or our process ------------------------------------------------

    def _find_left(self) -> None:
        """Read the leftovers of a former run, and report them."""
        self._journal.load()
        self._has_looked = True
        if not self.take_up_s:
            return
        for id_, tasks in self._journal.sessions.items():
            if tasks:
                session = self._left[id_] = _Session(b"", is_old=True, id=id_)
                for task, (name, label) in tasks.items():
                    session.tasks[task] = name
                    session.sent[name] = task
                    self._parcels[name] = session
                    self._tell(Found(name, label))

    async def _take_up(self, nursery: trio.Nursery) -> None:
        """Reopen the sessions that have parcels of ours, and close the others."""
        for id_ in list(self._journal.sessions):
            session = self._left.get(id_)
            if session is None or not session.sent:
                self._left.pop(id_, None)
                self._home.say(f"closes session {id_}, which an earlier run left behind")
                await self._close(id_)  # even if it fails the rest goes on
                continue
            self._by_id[id_] = session  # outcomes may be reported at once
            if not await self._way.reopen(id_, list(session.tasks)):
                self._lost_session(session, "the session is no longer open")
                self._journal.closed(id_)
            if self._left.pop(id_, None) is not None:  # else it was reported as gone meanwhile
                self._home.say(f"resumes session {id_} with {count(len(session.sent), 'task')}")
                nursery.start_soon(self._serve, session)

    def _disconnected(self, *, is_fault: bool) -> None:
        """Keep the parcels at Symphony for the next connection, or report them as lost."""
        sessions = {*self._sessions.values(), *self._by_id.values(), *self._left.values()}
        mono_s = mono_now()
        if self._cut_since_s is None:
            self._cut_since_s = mono_s
        is_kept = mono_s - self._cut_since_s < self.take_up_s if is_fault else self.detaches
        self._sessions.clear()
        self._by_id.clear()
        self._left.clear()
        for session in sessions:
            self._drop(session, "the connection to Symphony ended", but_sent=is_kept)
            if session.sent:
                again = _Session(session.digest, is_old=True, id=session.id)
                again.tasks, again.sent = session.tasks, session.sent
                again.kills = session.kills
                self._left[session.id] = again
                self._parcels |= dict.fromkeys(again.sent, again)
        self._journal.close()

    async def _watch_room(self) -> None:
        ask_room = self._ask_room
        if ask_room is None:
            self._tell(Room(self._settings.slots))
            await trio.sleep_forever()
        said = ""
        try:
            while True:
                try:
                    slots = await ask_room()
                    most = self._settings.slots or slots
                    self._tell(
                        Room(
                            min(slots, most),
                            "" if slots else "EGO has no slots for this consumer now",
                        )
                    )
                    said = ""
                except GridFault as fault:
                    if str(fault) != said:  # the last known slots stay ours
                        said = str(fault)
                        self._home.say(f"can't get the slots from EGO: {said}")
                await trio.sleep(self._settings.capacity_s)
        finally:
            with trio.CancelScope(shield=True):
                await ask_room.close()

    # --- calls of the delegate -----------------------------------------------------------------

    def put(self, digest: bytes, body: bytes) -> None:
        """See Engine."""
        self._bodies[digest] = body

    def forget(self, digest: bytes) -> None:
        """See Engine."""
        self._bodies.pop(digest, None)

    def send(self, parcel: Parcel) -> None:
        """See Engine."""
        if self._nursery is None:
            self._tell(Lost(parcel.name, "there is no connection to Symphony"))
            return
        session = self._sessions.get(parcel.function)
        if session is None:
            session = self._sessions[parcel.function] = _Session(parcel.function)
            self._nursery.start_soon(self._serve, session)
        self._parcels[parcel.name] = session
        session.waiting[parcel.name] = parcel
        session.wake()

    def cancel(self, names: Collection[str], *, running: bool) -> None:
        """See Engine."""
        for name in names:
            session = self._parcels.get(name)
            if session is None:
                continue
            if session.waiting.pop(name, None) is not None:
                self._end(Cancelled(name))
            elif running:
                session.kills.add(name)
                session.wake()
            else:
                self._tell(Begun(name))

    def holds(self, name: str) -> bool:
        """See Engine."""
        return name in self._parcels

    # --- sessions ------------------------------------------------------------------------------

    async def _serve(self, session: _Session) -> None:
        """Keep a session for as long as it has work, and a while longer.

        Raises GridFault when none can be opened: the engine can't work then.
        """
        with session.scope:
            if not session.is_old:
                await self._open(session)
            try:
                while await self._go_on(session):
                    pass
            except ConnectionCut:
                self._way.leave()  # the next connection continues it
                raise
            except GridFault as fault:
                self._home.say(f"lost session {session.id}: {fault}")
                self._drop(session, str(fault))
            await self._close(session.id)

    async def _open(self, session: _Session) -> None:
        name = f"gridfed {self._home.mark}"
        common = pack_common(session.digest, self._bodies[session.digest])
        try:
            session.id = await self._way.open(name, common)
        except GridFault:
            self._way.leave()  # other sessions must not suffer
            raise
        self._by_id[session.id] = session
        try:
            self._journal.opened(session.id)
        except GridFault:
            await self._close(session.id)  # no later run would know of it
            self._way.leave()
            raise

    async def _go_on(self, session: _Session) -> bool:
        """Do the next step for a session; return False when it has been idle for long."""
        session.more = trio.Event()
        if session.kills:
            await self._kill(session)
        elif session.waiting:
            await self._send(session)
        elif session.is_old and not session.sent:
            return False
        else:
            with trio.move_on_after(IDLE_S if len(self._sessions) <= SESSIONS_KEPT else CROWDED_S):
                await session.more.wait()
                return True
            if not session.sent and not session.waiting:
                self._forget(session)
                return False
        return True

    async def _send(self, session: _Session) -> None:
        batch: list[Parcel] = []
        inputs: list[bytes] = []
        while session.waiting and len(batch) < SEND_TASKS_MAX:
            if batch and sum(map(len, inputs)) > SEND_BYTES_MAX:
                break
            batch.append(session.waiting.popitem(last=False)[1])
            inputs.append(pack_input(batch[-1]))
        session.sent |= dict.fromkeys((each.name for each in batch), "")
        session.is_sending = True
        try:
            tasks = await self._way.send(session.id, inputs)
        finally:
            session.is_sending = False
        if self.take_up_s:
            self._note_sent(session, batch, tasks)
        for parcel, task in zip(batch, tasks, strict=True):
            if parcel.name not in session.sent:
                continue  # the session was dropped meanwhile
            if task is None or task in session.tasks:  # two tasks with one id are indistinguishable
                del session.sent[parcel.name]
                self._end(Lost(parcel.name, "Symphony did not accept the task"))
                continue
            session.tasks[task] = parcel.name
            session.sent[parcel.name] = task
            if (outcome := session.early.get(task)) is not None:
                self._take(session, outcome)
        session.early.clear()

    def _note_sent(self, session: _Session, batch: list[Parcel], tasks: list[str | None]) -> None:
        """Record the tasks of parcels, except for those that have ended already."""
        self._journal.sent(
            session.id,
            [
                (task, parcel.name, parcel.label)
                for parcel, task in zip(batch, tasks, strict=True)
                if task is not None and task not in session.early and parcel.name in session.sent
            ],
        )

    async def _kill(self, session: _Session) -> None:
        names = [name for name in session.kills if session.sent.get(name)]
        session.kills.clear()
        session.dying.update(names)
        try:
            if names:
                await self._way.kill(session.id, [session.sent[name] for name in names])
        except ConnectionCut:
            session.kills.update(names)  # to be killed by the next connection
            raise
        finally:
            session.dying.clear()
        for name in names:
            task = session.sent.pop(name, None)
            if task is not None:  # else its outcome was faster
                session.tasks.pop(task, None)
                self._end(Cancelled(name))

    async def _close(self, id_: str) -> None:
        self._by_id.pop(id_, None)
        try:
            await self._way.close(id_)
        except GridFault as fault:
            self._home.say(f"can't close session {id_}, retrying at the next start: {fault}")
            return
        self._journal.closed(id_)

    def _forget(self, session: _Session) -> None:
        """Send nothing more to a session."""
        if self._sessions.get(session.digest) is session:
            del self._sessions[session.digest]

    def _drop(self, session: _Session, why: str, *, but_sent: bool = False) -> None:
        """Give up a session: its parcels run again, in another.

        Args:
            but_sent: keep those that are tasks there.
        """
        self._forget(session)
        for name in [*session.waiting, *session.sent]:
            if not (but_sent and session.sent.get(name)):
                session.sent.pop(name, None)
                self._end(Lost(name, why))
        if not but_sent:
            session.tasks.clear()
        session.waiting.clear()

    def _lost_session(self, session: _Session, text: str) -> None:
        """Report the parcels of a session that has ended as lost."""
        self._home.say(f"lost session {session.id}: {text}")
        self._by_id.pop(session.id, None)
        self._left.pop(session.id, None)
        self._drop(session, f"the session ended: {text}")

    # --- news of Symphony ----------------------------------------------------------------------

    def _hear(self, heard: Heard) -> None:
        session = self._by_id.get(heard.session)
        if session is None:
            return
        match heard:
            case Gone(_, text):
                self._lost_session(session, text)
                session.scope.cancel()
                if self._nursery is not None:  # the report may be wrong: let no task run on
                    self._nursery.start_soon(self._close, session.id)
            case SymphonyOutcome():
                self._take(session, heard)

    def _take(self, session: _Session, outcome: SymphonyOutcome) -> None:
        name = session.tasks.pop(outcome.task, None)
        if name is None:
            if session.is_sending:
                session.early[outcome.task] = outcome
            return
        session.sent.pop(name, None)
        if session.is_old:
            session.wake()  # it ends with its last task
        if outcome.is_ok:
            self._end(unpack_output(name, outcome.data))
        elif name in session.dying or name in session.kills:
            self._end(Cancelled(name))  # killed by us, and reported before the answer
        else:
            self._end(Broken(name, f"Symphony gave up the task: {outcome.text}"[:2000]))

    def _end(self, news: Ended) -> None:
        if self._parcels.pop(news.parcel, None) is not None:
            self._journal.ended(news.parcel)
            self._tell(news)
