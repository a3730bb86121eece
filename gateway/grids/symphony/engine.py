"""Symphony as an engine: a session for each function, whose common data it is; a task a parcel.

    put(digest, body)  ─► (nothing yet)
    send(parcel)       ─► session of its function, opened by its first parcel ─► tasks
    cancel             ─► a task that was not sent is taken back; one that was is killed

Symphony tries a task again by itself when a slot is reclaimed, and says nothing of it. What it
can't do is to take a task back only if it has not begun: so what was sent counts as begun.

What is open stands in a file (journal). A life that begins opens the sessions of the last one again
and tells of the parcels in them as Found; those without any are closed, and so nothing runs on
unseen. So it goes, too, when only the connection was lost, or the side process: the parcels are
ours all the time, and their sessions are opened again by the next `run`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from gateway.child import first_of
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
from gateway.grids.symphony.journal import Journal
from gateway.grids.symphony.parcel_bytes import pack_common, pack_input, unpack_output
from gateway.grids.symphony.settings import SymphonySettings
from gateway.grids.symphony.ways import Cut, Gone, Heard, Outcome, Way

TRIP_S: Final = 0.1  # of a task through Symphony and back, of which nothing is known here
SEND_TASKS_MAX: Final = 50
SEND_BYTES_MAX: Final = 8 << 20
IDLE_S: Final = 60.0  # a session without tasks is closed after so long,
CROWDED_S: Final = 1.0  # and after so long while there are more than so many
SESSIONS_KEPT: Final = 32


class AskRoom(Protocol):
    """Who knows how many slots are ours."""

    async def __call__(self) -> int:
        """So many, now. Raises GridFault."""
        ...

    async def close(self) -> None:
        """Let go of what asking needs; it may be asked again."""
        ...


@dataclass(eq=False, slots=True)
class _Session:
    """One function's session. `tasks` are its parcels by Symphony's ids, `sent` the other way.

    One that was opened again (`is_old`) takes nothing new: its function is not at hand, and what
    the settings say may have changed.
    """

    digest: bytes
    is_old: bool = False
    id: str = ""
    waiting: OrderedDict[str, Parcel] = field(default_factory=OrderedDict)
    tasks: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    kills: set[str] = field(default_factory=set)  # parcels that are to be killed
    dying: set[str] = field(default_factory=set)  # those that are being
    is_sending: bool = False
    early: dict[str, Outcome] = field(default_factory=dict)
    more: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def wake(self) -> None:
        """There is something to do."""
        self.more.set()


class SymphonyEngine:
    """See gateway.grids.delegating.Engine.

    Args:
        way: how Symphony is spoken to.
        ask_room: knows how many slots are ours; None: as many as the settings say.
    """

    def __init__(
        self, settings: SymphonySettings, home: Home, way: Way, ask_room: AskRoom | None
    ) -> None:
        self._settings = settings
        self._home = home
        self._way = way
        self._ask_room = ask_room
        self._bodies: dict[bytes, bytes] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._by_id: dict[str, _Session] = {}
        self._left: dict[str, _Session] = {}  # to be opened again, by their ids
        self._cut_since_s: float | None = None
        self._journal = Journal(home.folder, settings.application, home.say)
        self._has_looked = False  # into it, for what a former life has left
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
            return f"{words}; {self._settings.slots} slots are ours by our own word"
        try:
            return f"{words}; {await self._ask_room()} slots are ours by EGO's"
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

    # --- what outlives a connection, and us ----------------------------------------------------

    def _find_left(self) -> None:
        """Read what a former life has left, and tell of it."""
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
        """Open again the sessions that have something of ours, and close what else is open."""
        for id_ in list(self._journal.sessions):
            session = self._left.get(id_)
            if session is None or not session.sent:
                self._left.pop(id_, None)
                self._home.say(f"closes session {id_}, which a former life has left")
                await self._close(id_)  # or not: the rest goes on
                continue
            self._by_id[id_] = session  # what has ended there may be told at once
            if not await self._way.reopen(id_, list(session.tasks)):
                self._lost_session(session, "it is not open any more")
                self._journal.closed(id_)
            if self._left.pop(id_, None) is not None:  # else it is gone, as was told meanwhile
                self._home.say(f"goes on with session {id_}: {len(session.sent)} tasks are in it")
                nursery.start_soon(self._serve, session)

    def _disconnected(self, *, is_fault: bool) -> None:
        """There is no connection any more: what is at Symphony waits for the next, or is lost."""
        sessions = {*self._sessions.values(), *self._by_id.values(), *self._left.values()}
        now_s = trio.current_time()
        if self._cut_since_s is None:
            self._cut_since_s = now_s
        is_kept = now_s - self._cut_since_s < self.take_up_s if is_fault else self.detaches
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
                    self._tell(Room(min(slots, most), "" if slots else "EGO has none for us now"))
                    said = ""
                except GridFault as fault:
                    if str(fault) != said:  # what it had goes on being ours
                        said = str(fault)
                        self._home.say(f"can't ask EGO for its slots: {said}")
                await trio.sleep(self._settings.capacity_s)
        finally:
            with trio.CancelScope(shield=True):
                await ask_room.close()

    # --- what the delegate asks ----------------------------------------------------------------

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

        Raises GridFault when none can be opened: then nothing can be done here.
        """
        with session.scope:
            if not session.is_old:
                await self._open(session)
            try:
                while await self._go_on(session):
                    pass
            except Cut:
                self._way.leave()  # the next connection goes on with it
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
            self._way.leave()  # it is not for the other sessions to suffer
            raise
        self._by_id[session.id] = session
        try:
            self._journal.opened(session.id)
        except GridFault:
            await self._close(session.id)  # nobody would know of it after our death
            self._way.leave()
            raise

    async def _go_on(self, session: _Session) -> bool:
        """Do the next thing for a session; False when it has been idle for long."""
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
            if task is None or task in session.tasks:  # of two with one id nobody could tell
                del session.sent[parcel.name]
                self._end(Lost(parcel.name, "Symphony did not take it"))
                continue
            session.tasks[task] = parcel.name
            session.sent[parcel.name] = task
            if (outcome := session.early.get(task)) is not None:
                self._take(session, outcome)
        session.early.clear()

    def _note_sent(self, session: _Session, batch: list[Parcel], tasks: list[str | None]) -> None:
        """Write down which parcels are which tasks, but for those that have ended already."""
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
        except Cut:
            session.kills.update(names)  # by the next connection, then
            raise
        finally:
            session.dying.clear()
        for name in names:
            task = session.sent.pop(name, None)
            if task is not None:  # else its outcome was quicker
                session.tasks.pop(task, None)
                self._end(Cancelled(name))

    async def _close(self, id_: str) -> None:
        self._by_id.pop(id_, None)
        try:
            await self._way.close(id_)
        except GridFault as fault:
            self._home.say(f"can't close session {id_}, tries again at the next start: {fault}")
            return
        self._journal.closed(id_)

    def _forget(self, session: _Session) -> None:
        """Nothing more is sent to a session."""
        if self._sessions.get(session.digest) is session:
            del self._sessions[session.digest]

    def _drop(self, session: _Session, why: str, *, but_sent: bool = False) -> None:
        """A session is of no use any more: its parcels run again, in another.

        Args:
            but_sent: those that are tasks there are kept.
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
        """A session is no more, and what was in it is lost."""
        self._home.say(f"lost session {session.id}: {text}")
        self._by_id.pop(session.id, None)
        self._left.pop(session.id, None)
        self._drop(session, f"its session ended: {text}")

    # --- what Symphony tells -------------------------------------------------------------------

    def _hear(self, heard: Heard) -> None:
        session = self._by_id.get(heard.session)
        if session is None:
            return
        match heard:
            case Gone(_, text):
                self._lost_session(session, text)
                session.scope.cancel()
                if self._nursery is not None:  # whoever says so may be wrong: nothing runs on
                    self._nursery.start_soon(self._close, session.id)
            case Outcome():
                self._take(session, heard)

    def _take(self, session: _Session, outcome: Outcome) -> None:
        name = session.tasks.pop(outcome.task, None)
        if name is None:
            if session.is_sending:
                session.early[outcome.task] = outcome
            return
        session.sent.pop(name, None)
        if session.is_old:
            session.wake()  # with its last task it ends
        if outcome.is_ok:
            self._end(unpack_output(name, outcome.data))
        elif name in session.dying or name in session.kills:
            self._end(Cancelled(name))  # of our doing, and told of before the answer to it
        else:
            self._end(Broken(name, f"Symphony gave up its task: {outcome.text}"[:2000]))

    def _end(self, news: Ended) -> None:
        if self._parcels.pop(news.parcel, None) is not None:
            self._journal.ended(news.parcel)
            self._tell(news)
