"""The gateway's side of objects: its catalogue, and the object host that it starts when first
asked.

The gateway's loop never sees a byte of an object: it hears of digests and sizes, decides by the
catalogue, and tells the host what to drop. A host that dies takes its objects along; the next one
begins empty, and calls that refer to lost objects fail with ObjectLost. A host whose gateway was
lost, or was stopped while objects were held, is taken over by the next run of the gateway, with its
objects.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages.objects import (
    NAMED_MAX_S,
    DropName,
    DropObject,
    HeldBefore,
    HolderBefore,
    HolderGone,
    HostReady,
    NamedBefore,
    NoteLabel,
    SealedObject,
    SettleObject,
)
from federation.objects.labels import UNLABELLED, DataLabel, conflict, read_label
from federation.objects.manifests import is_digest
from federation.ranges import Range
from federation.wishes import NAME_CHARS_MAX
from federation.words import clean, duration_text, size_text
from gateway.config.limits import ObjectRoom
from gateway.objects.catalogue import (
    HeldObject,
    JobProgress,
    ObjectCatalogue,
    ObjectKey,
)
from gateway.objects.holdings import Holdings, ObjectBooks
from gateway.objects.host_process import (
    FILE,
    ORPHAN_S,
    HostPlace,
    HostProcess,
    dial_lost,
    listen_at,
    read_place,
)
from gateway.objects.tickets import AGENT, CLIENT, SHOW_S, EndedSessions, ObjectTicket
from gateway.worker.object_pipe import ObjectPipe

START_S: Final = 30.0
AGAIN_S: Final = 1.0
SAVE_AGAIN_S: Final = 10.0


def host_bytes() -> int:
    """Return the memory of this host."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


class _EarlyHold(NamedTuple):
    """Objects that a job is to hold: see ObjectCatalogue.hold."""

    job: str
    scope: str
    digests: tuple[bytes, ...]
    calls: Range | None
    waited: bool


class ObjectKeeper:
    """Objects of one site, on its gateway's host.

    Args:
        is_here: whether a session, by its number, is still there.
        owner_of: the user and the project of an unfinished job; None: there is no such job.
        utc_s: the time of day.
        say: takes lines for the operator.
        room: for objects.
        folder: of the site's state, where the next run finds the object host.
        return_s: how long the objects of a lost gateway wait for its clients.
        books: take the bytes that are held.
    """

    def __init__(
        self,
        is_here: Callable[[int], bool],
        owner_of: Callable[[str], tuple[str, str] | None],
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
        room: ObjectRoom,
        folder: Path,
        return_s: float,
        books: ObjectBooks,
    ) -> None:
        self._place = HostPlace.make()
        self._file = folder / FILE
        self._return_s = return_s
        self._listener: socket.socket | None = None
        self._lost: HostPlace | None = None
        self._is_saved = True  # where the host is, for the next run
        self._is_here = is_here
        self._owner_of = owner_of
        self._utc_s = utc_s
        self._say = say
        self._room = room
        self.catalogue = ObjectCatalogue(room)
        self._books = books
        self.holdings = Holdings(self.catalogue, books, utc_s, say, self._order)
        self.pid = 0  # of the object host
        self.label_of: Callable[[str], DataLabel] = lambda _job: UNLABELLED  # of a job's data
        # Of the job whose task a session is, by the session's number; none: of another client.
        self.label_of_session: Callable[[int], DataLabel] = lambda _session: UNLABELLED
        # Lets the labels of objects that were found late hold for calls of a job; None: for all.
        self.narrow: Callable[[str, list[DataLabel], Range | None], None] = lambda *_: None
        self.why_not_here: Callable[[DataLabel], str] = lambda _label: ""  # why data can't lie here
        self.on_lost: Callable[[], None] = lambda: None  # is called when all objects are lost
        self._host = HostReady(0)  # what the object host can do: one of before can do less
        self._ticketed: set[int] = set()  # sessions that have a ticket, of this host or the last
        self._ended = EndedSessions()  # of those: the next host takes the same tickets
        self._wanted = trio.Event()
        self._ready = trio.Event()
        self._settled = trio.Event()  # the host of the last run is ours, or gone
        self._early: list[_EarlyHold] = []  # of jobs, before that
        self._orders = trio.open_memory_channel[Any](math.inf)

    @property
    def address(self) -> str:
        """The address of the object host; it stays the same for this run."""
        return self._place.address

    @property
    def agent_ticket(self) -> str:
        """The ticket of this host's agents, for their environment."""
        return ObjectTicket(AGENT).sign(self._place.key).hex()

    def for_agents(self) -> tuple[str, str]:
        """Return the address and the agents' ticket; both are final once this is `settled`."""
        return self.address, self.agent_ticket

    def ticket(self, session: int, user: str, scope: str) -> bytes:
        """Return the ticket of a client's session for a project, once the host is `ready`."""
        show_by_s = None
        if self._host.ends_sessions:
            self._ticketed.add(session)
            show_by_s = MonoS(time.monotonic() + SHOW_S)
        return ObjectTicket(CLIENT, session, user, scope, show_by_s).sign(self._place.key)

    async def ready(self) -> bool:
        """Start the object host if it does not run; return whether it listens."""
        self._wanted.set()
        with trio.move_on_after(START_S):
            await self._ready.wait()
        return self._ready.is_set()

    async def settled(self) -> None:
        """Wait until the objects of a lost gateway, if there was one, are in the catalogue."""
        await self._settled.wait()

    def look(self) -> None:
        """Look whether a gateway was lost, whose object host `run` takes over; else listen for one.

        Once, before `run`. Raises OSError.
        """
        before = read_place(self._file)
        if before is None:
            self._file.unlink(missing_ok=True)
            self._listener = listen_at(self._place)
            return
        self._lost = before
        self._place = HostPlace(before.address, self._place.key)

    async def run(self) -> None:
        """Keep the object host running from the first request on; until cancelled."""
        if self._lost is not None:
            try:
                why = await self._take_over(self._lost)
            except OSError as error:
                why = str(error)
            if why:
                self._say(
                    f"the object host of the last run could not be taken over: {why}: its objects "
                    "are lost, and clients put them again"
                )
                self._file.unlink(missing_ok=True)
                self._place = HostPlace.make()
        self._settle()
        try:
            while True:
                await self._run_next()
                await trio.sleep(AGAIN_S)
        finally:
            if self._listener is not None:
                self._listener.close()

    async def _take_over(self, lost: HostPlace) -> str:
        """Run the object host of a lost gateway until it ends, or say why it can't be.

        Raises OSError, as where it has ended meanwhile.
        """
        connection = await self._dial(lost)
        if connection is None:
            return "it has ended"
        host = await HostProcess.adopt(connection, lost, self._place.key, self._room)
        return "" if await self._run_once(host) else "it refuses, or is silent"

    async def _dial(self, lost: HostPlace) -> socket.socket | None:
        """Connect to it; again for START_S where it is too busy. Raises OSError after that."""
        until_s = trio.current_time() + START_S
        has_said = False
        while True:
            try:
                return dial_lost(lost)
            except OSError as error:
                if trio.current_time() >= until_s:
                    raise
                if not has_said:
                    self._say(f"the object host of the last run is tried again: {error}")
                    has_said = True
            await trio.sleep(AGAIN_S)

    async def _run_next(self) -> None:
        """Run an object host from the moment on at which it is asked for, or dialled."""
        try:
            if self._listener is None:  # the host that was taken over had its own
                self._listener = listen_at(self._place)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._note_dialled, self._listener)
                await self._wanted.wait()
                nursery.cancel_scope.cancel()
            host = await HostProcess.start(self._place, self._room, self._listener)
        except OSError as error:
            self._say(f"the object host can't be started: {error}")
            return
        await self._run_once(host)

    async def _note_dialled(self, listener: socket.socket) -> None:
        await trio.lowlevel.wait_readable(listener)
        self._wanted.set()

    async def _run_once(self, host: HostProcess) -> bool:
        """Serve one object host until it has ended; return whether it was ever ready."""
        self._orders = trio.open_memory_channel[Any](math.inf)
        for session in self._ended.recent(MonoS(time.monotonic())):
            self._order(HolderGone(session))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_orders, host.pipe)
                nursery.start_soon(self._listen, host.pipe, nursery.cancel_scope)
                nursery.start_soon(self._give_up, nursery.cancel_scope)
                nursery.start_soon(self._save_again)
                nursery.start_soon(self.holdings.resume, self._ready)
                await host.wait()
                nursery.cancel_scope.cancel()
        except BaseException:  # the gateway stops
            self.holdings.stop()
            if not self._leave(host):
                await self._stop(host)
            raise
        await self._stop(host)
        was_ready, lost = self._ready.is_set(), len(self.catalogue)
        self.catalogue.clear(self._utc_s())
        self.on_lost()
        self.holdings.host_ended()
        self._host = HostReady(0)
        self._ready = trio.Event()
        if was_ready:
            self._say(f"the object host has ended: {lost:,} objects are lost")
        return was_ready

    async def _stop(self, host: HostProcess) -> None:
        await host.stop()
        self._file.unlink(missing_ok=True)

    def _leave(self, host: HostProcess) -> bool:
        """Let the host wait for the next run of this gateway, if it has objects that are held.

        Without one it ends by itself.
        """
        number = len(self.catalogue)
        if not (number and self._ready.is_set() and self._is_saved):
            return False
        host.close()
        self._say(
            f"{number:,} objects of {size_text(self.catalogue.bytes)} are still held: the object "
            f"host, process {self.pid}, keeps them for {duration_text(ORPHAN_S)}, and ends then "
            "unless this gateway is started again"
        )
        return True

    async def _give_up(self, scope: trio.CancelScope) -> None:
        """End a host that does not begin to listen."""
        with trio.move_on_after(START_S) as waiting:
            await self._ready.wait()
        if waiting.cancelled_caught:
            scope.cancel()

    def _save(self) -> bool:
        """Write down where the host is, for the next run; return whether that went well.

        A failure is said when it begins: objects are kept without it.
        """
        try:
            self._place.save(self._file)
        except OSError as error:
            if self._is_saved:
                self._say(
                    f"{self._file} can't be written, and is tried again: {error}: until then a "
                    "gateway that is lost loses its objects"
                )
            return False
        if not self._is_saved:
            self._say(f"{self._file} is written")
        return True

    async def _save_again(self) -> None:
        await self._ready.wait()
        while not self._is_saved:
            await trio.sleep(SAVE_AGAIN_S)
            self._is_saved = self._save()

    def _order(self, message: Any) -> None:
        self._orders[0].send_nowait(message)

    async def _send_orders(self, pipe: ObjectPipe) -> None:
        async for message in self._orders[1]:
            await pipe.send(message)

    async def _listen(self, pipe: ObjectPipe, scope: trio.CancelScope) -> None:
        """Take the messages of a host; at its end nothing more is to be expected of it."""
        try:
            while messages := await pipe.receive():
                for message, _ in messages:
                    self._hear(message)
        except (OSError, ProtocolError) as error:
            self._say(f"the connection to the object host is lost: {error}")
        scope.cancel()

    def _hear(self, message: Any) -> None:
        match message:
            case HostReady():
                self.pid, self._host = message.pid, message
                self.holdings.host_ready(notes_holders=message.notes_holders)
                self._is_saved = self._save()
                self._settle()
                self._ready.set()
            case SealedObject():
                utc_s = self._utc_s()
                reason, user = self._put(message, utc_s), self._user_of(message)
                held = self.catalogue.find(message.scope, message.digest)
                label = [] if held is None else list(held.label.words)
                self._order(SettleObject(message.request, reason, float(utc_s), user, label))
                self.catalogue.labelled.clear()
                self.holdings.account(utc_s)
            case HeldBefore(scope, digest, size, user, put_at_s, words):
                until_s = self._utc_s() + self._return_s
                key, kept = ObjectKey(scope, digest), read_label(words)
                self.catalogue.adopt(key, size, user, UtcS(put_at_s), until_s, kept)
            case NamedBefore(scope, digest, user, name, ends_at_s):
                self.catalogue.name(ObjectKey(scope, digest), user, name, UtcS(ends_at_s))
            case HolderBefore(scope, digest, user, since_s):
                self.holdings.told(ObjectKey(scope, digest), user, UtcS(since_s))

    def _settle(self) -> None:
        """Go on with the objects of the last run: jobs that were taken up hold theirs."""
        if not self._settled.is_set():
            self._settled.set()
            if len(self.catalogue):
                self._say(f"{len(self.catalogue):,} objects of the last run are still held")
            early, self._early = self._early, []
            for hold in early:
                self._hold(hold)
                labels = self.catalogue.labels_of(hold.scope, hold.digests)
                if labels:
                    self.narrow(hold.job, labels, hold.calls)

    def _user_of(self, message: SealedObject) -> str:
        """Return the user that an object is kept for; empty for a job that is over."""
        owner = self._owner_of(message.job) if message.job else (message.user, "")
        return "" if owner is None else owner[0]

    def _put(self, message: SealedObject, utc_s: UtcS) -> str:
        """Enter an object that was put; return why not, or an empty text."""
        name = message.name
        if message.job:
            return self._put_result(message, utc_s)
        if not self._is_here(message.holder):
            return "the session of the client is over"
        if not is_digest(message.digest):
            return "the digest is not valid"
        if len(name) > NAME_CHARS_MAX or not (name.isprintable() and name == clean(name)):
            return f"the name must be at most {NAME_CHARS_MAX} printable characters"
        if name and not 0 < (message.for_s or 0) <= NAMED_MAX_S:
            return f"a name is for at most {NAMED_MAX_S:,.0f} seconds (for_s)"
        key = ObjectKey(message.scope, message.digest)
        try:
            given = read_label(message.label).named("the value")
        except (TypeError, ValueError) as error:
            return str(error)
        read = self.label_of_session(message.holder).named("what the task has read")
        label = given.within(read)
        reason = (
            conflict([given, read])
            or self._why_not_kept(label)
            or self._books.objection(message.user, message.scope)
            or self.catalogue.put(key, message.size, message.user, message.holder, utc_s, label)
        )
        if not reason and name:
            until_s = utc_s + (message.for_s or 0)
            self._drop(self.catalogue.name(key, message.user, name, until_s), utc_s)
        return reason

    def _why_not_kept(self, label: DataLabel) -> str:
        """Return why an object with a label can't be kept here, or an empty text."""
        if label and not self._host.keeps_labels:
            return (
                "the object host is of an older version, which keeps no labels of objects "
                "(residency): restart the gateway once no object is held (`gridfed objects`)"
            )
        return self.why_not_here(label)

    def _put_result(self, message: SealedObject, utc_s: UtcS) -> str:
        """Enter a result of a job, or an input of its calls; return why not, or empty."""
        owner = self._owner_of(message.job)
        if owner is None or owner[1] != message.scope:
            return "its job is over"
        if not is_digest(message.digest):
            return "the digest is not valid"
        key = ObjectKey(message.scope, message.digest)
        take = self.catalogue.put_input if message.is_input else self.catalogue.put_result
        label = self.label_of(message.job)
        return (
            self._why_not_kept(label)
            or self._books.objection(owner[0], message.scope)
            or take(key, message.size, owner[0], message.job, utc_s, label)
        )

    # --- for the gateway
    # ---------------------------------------------------------------------------

    def hold(
        self,
        job: str,
        scope: str,
        digests: Iterable[bytes],
        calls: Range | None = None,
        *,
        waited: bool = False,
    ) -> None:
        """Let a job hold the objects that calls of it refer to: see ObjectCatalogue.hold."""
        hold = _EarlyHold(job, scope, tuple(digests), calls, waited)
        if self._settled.is_set():
            self._hold(hold)
        else:
            self._early.append(hold)

    def _hold(self, hold: _EarlyHold) -> None:
        owner = self._owner_of(hold.job)
        if owner is not None:
            self.catalogue.hold(
                *(hold.job, owner[0], hold.scope, hold.digests, hold.calls), waited=hold.waited
            )
            self.holdings.account()

    def calls_ended(self, jobs: Mapping[str, JobProgress]) -> None:
        """Let go of what unfinished jobs held for calls that have ended."""
        gone = self.catalogue.calls_ended(jobs)
        if gone or self.catalogue.changes:
            self._drop(gone)

    def take_again(
        self, session: int, user: str, scope: str, digests: Iterable[bytes]
    ) -> list[bytes]:
        """Let the session of a user hold the objects that it held at a gateway that was lost.

        Return those that are not here.
        """
        keys = [ObjectKey(scope, digest) for digest in digests]
        if not self._is_here(session):
            return [key.digest for key in keys]
        lost = [key.digest for key in keys if not self.catalogue.take(key, session, user)]
        self.holdings.account()
        return lost

    def deliver(self, session: int, job: str, scope: str, digests: Iterable[bytes]) -> None:
        """Hand results of a job over to the session of its client."""
        taker = session if self._is_here(session) else None
        for digest in digests:
            self._drop(self.catalogue.deliver(ObjectKey(scope, digest), job, taker))

    def hold_result(self, job: str, scope: str, digest: bytes) -> str:
        """Let a job hold an object that is here as one more result of it.

        Return why it can't be held, or an empty text.
        """
        owner, held = self._owner_of(job), self.catalogue.find(scope, digest)
        if owner is None or held is None:
            return "its job is over" if owner is None else "it is not here any more"
        label = self.label_of(job)
        reason = self._why_not_kept(label) or self.catalogue.put_result(
            *(held.key, held.size, owner[0], job, self._utc_s(), label)
        )
        for each in self.catalogue.labelled:
            self._order(NoteLabel(scope, each.key.digest, list(each.label.words)))
        self.catalogue.labelled.clear()
        return reason

    def take(self, session: int, user: str, held: HeldObject) -> str:
        """Let the session of a user hold an object that it has found by its name.

        Return why not, or an empty text: it counts for this user, too.
        """
        reason = self.catalogue.why_not(held, user)
        if not reason:
            self.catalogue.take(held.key, session, user)
            self.holdings.account()
        return reason

    def unname(self, held: HeldObject, user: str, name: str) -> bool:
        """Take a user's name of an object back; return whether it is still held."""
        gone = self.catalogue.unname(held.key.scope, user, name)
        if self._host.drops_names and not gone:  # the next gateway would hear of it
            self._order(DropName(held.key.scope, user, name))
        self._drop(gone)
        return not gone

    def let_go(self, session: int, scope: str, digests: Iterable[bytes]) -> None:
        """Let go of objects that a session needs no more."""
        for digest in digests:
            self._drop(self.catalogue.let_go(session, scope, digest))

    def session_ended(self, session: int) -> None:
        """Let go of what a session held, and of its connections to the object host."""
        if session in self._ticketed:
            self._ticketed.discard(session)
            self._ended.add(session, MonoS(time.monotonic()))
            self._order(HolderGone(session))
        self._drop(self.catalogue.session_ended(session))

    def sweep(self, jobs: Set[str]) -> None:
        """Let go of what ended jobs, and names that have expired, held."""
        self._drop(self.catalogue.sweep(jobs, self._utc_s()))
        self.holdings.close()

    def _drop(self, gone: Iterable[ObjectKey], at_s: UtcS | None = None) -> None:
        """Drop objects that nothing holds any more, and count holdings until now, or then."""
        for key in gone:
            self._order(DropObject(key.scope, key.digest))
        self.holdings.account(at_s)
