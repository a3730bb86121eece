"""The object host: the process that keeps the bytes of a site's objects, beside the gateway.

    python -m gateway.objects.host LISTENER CONTROL

It takes sealed files from clients of its host, hashes them, and hands them to agents and clients by
descriptor. It decides nothing: its gateway says which objects are kept and dropped, by the socket
pair CONTROL (the consequences: gateway.objects.shelf). A gateway that stops says so, and
the process ends. When CONTROL closes without a word the gateway was lost: the objects wait for the
next one, which adopts this process, and hears of them. Without one it ends after ORPHAN_S; so
its memory is never left over.

Each object and each connection is a descriptor of this process. Any process of this computer can
connect, so connections have a share of them, and one without a ticket gives way to a newer one.
"""

import os
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages.objects import (
    AdoptHost,
    DropName,
    DropObject,
    GetManifest,
    GetObject,
    HeldBefore,
    HolderBefore,
    HolderGone,
    HostOpen,
    HostReady,
    ManifestPart,
    NamedBefore,
    NoteHolder,
    NoteLabel,
    ObjectHere,
    ObjectKept,
    ObjectMissing,
    ObjectMoved,
    OpenHost,
    PutObject,
    SealedObject,
    SettleObject,
    SetUpHost,
    StopHost,
)
from federation.objects.bodies import BadBody, parts_of
from federation.objects.manifests import BLOCK_BYTES, Spread, make_manifest
from federation.objects.segments import Segment, SegmentError, adopt
from gateway.objects.catalogue import ObjectKey
from gateway.objects.descriptors import DESCRIPTORS_MAX, raise_descriptors
from gateway.objects.host_process import BACKLOG, ORPHAN_S
from gateway.objects.shelf import ObjectShelf, OfferedObject
from gateway.objects.spilling import clear_folder, spill
from gateway.objects.tickets import CLIENT, GATEWAY, EndedSessions, ObjectTicket, read_ticket
from gateway.worker.isolation.secrecy import hide_memory
from gateway.worker.object_pipe import ObjectPipe, close_files

CONNECTIONS_MAX: Final = 1024
SPARE: Final = 8  # one descriptor in so many is for neither objects nor connections
LOSS_S: Final = 5.0  # for the loss of the gateway to be noticed, where the next one is here already
ACCEPT_AGAIN_S: Final = 0.1  # after an accept that has failed
MANIFEST_PART_BYTES: Final = 32 << 10
OPEN_S: Final = 5.0  # time to show a ticket
HASHERS: Final = 2  # objects that are hashed at a time, …
THREADS: Final = min(4, os.cpu_count() or 1)  # … by so many threads, if they are …
SPREAD_BYTES: Final = 2 * BLOCK_BYTES  # … larger than this


def shares(descriptors: int) -> tuple[int, int]:
    """Return how many connections and how many objects a process with so many descriptors takes."""
    connections = min(CONNECTIONS_MAX, descriptors // 4)
    return connections, descriptors - connections - descriptors // SPARE


@dataclass(frozen=True, slots=True)
class HostedFile:
    """The file of an object, and its manifest as it travels."""

    segment: Segment
    manifest: bytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.segment.size

    @property
    def descriptor(self) -> int:
        """The file's."""
        return self.segment.descriptor

    def close(self) -> None:
        """Release it."""
        self.segment.close()


class ObjectHost:
    """Objects, by project and digest.

    Args:
        control: to the gateway that has started it.
        listener: for clients and agents, and for the gateway that follows a lost one.
        orphan_s: how long it waits for that one.
        descriptors: how many this process may have.
        leave_stderr: closes that of the gateway that has started it.
    """

    def __init__(
        self,
        control: ObjectPipe,
        listener: trio.socket.SocketType,
        orphan_s: float = ORPHAN_S,
        descriptors: int = DESCRIPTORS_MAX,
        leave_stderr: Callable[[], None] = lambda: None,
    ) -> None:
        self._leave_stderr = leave_stderr
        self._connections_max, self._objects_max = shares(descriptors)
        self._control = control
        self._listener = listener
        self._orphan_s = orphan_s
        self._tickets: dict[ObjectPipe, ObjectTicket] = {}
        self._ended = EndedSessions()
        self._pipes: dict[ObjectPipe, None] = {}  # the oldest first
        self._threads = ThreadPoolExecutor(THREADS, "hash")
        self._hashers = trio.CapacityLimiter(HASHERS)
        self._spilling = trio.Lock()
        self._folder: Path | None = None  # for objects that have no room in memory
        self._is_orphan = False
        self._orphaned = trio.Event()
        self._adopted = trio.Event()
        self._adopters: set[ObjectPipe] = set()  # that wait for the loss of the last gateway

    async def run(self) -> None:
        """Serve until the gateway says stop, or is gone and none has adopted this host in time."""
        (first, _), *rest = await self._control.receive() or [(None, -1)]
        if not isinstance(first, SetUpHost):
            return
        self._key = first.key
        self._shelf: ObjectShelf[HostedFile, ObjectPipe] = ObjectShelf(
            first.bytes_max, self._objects_max, first.user_max
        )
        self._spill_to(first.spill_dir, first.spill_max)
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._accept)
            await self._control.send(self._ready())
            while await self._serve_gateway(rest):
                self._become_orphan()
                with trio.move_on_after(self._orphan_s):
                    await self._adopted.wait()
                if self._is_orphan:
                    break
                rest = []
            self._nursery.cancel_scope.cancel()
        self._control.close()

    @staticmethod
    def _ready() -> HostReady:
        return HostReady(
            os.getpid(),
            ends_sessions=True,
            notes_holders=True,
            keeps_labels=True,
            drops_names=True,
        )

    async def _serve_gateway(self, messages: list[tuple[Any, int]]) -> bool:
        """Obey the gateway until it is gone (True) or says stop (False)."""
        with suppress(OSError, ProtocolError):
            while True:
                for message, _ in messages:
                    if isinstance(message, StopHost):
                        return False
                    try:
                        self._obey(message)
                    except Exception:  # noqa: BLE001 - as in `_serve`
                        traceback.print_exc()
                messages = await self._control.receive()
                if not messages:
                    break
        return True

    def _become_orphan(self) -> None:
        """Close all connections: their tickets are of a gateway that is gone.

        Its stderr too: a reader of that waits for its end.
        """
        self._leave_stderr()
        self._is_orphan, self._adopted = True, trio.Event()
        self._orphaned.set()
        self._control.close()
        self._shelf.forget_offers()
        self._tickets.clear()
        self._ended.clear()
        for pipe in self._pipes:
            if pipe not in self._adopters:
                pipe.close()

    def _obey(self, message: Any) -> None:
        match message:
            case SettleObject(request, reason, at_s, user, label):
                offered = self._shelf.settle(request, reason, UtcS(at_s), user, label)
                if offered is not None:
                    answer: Any = ObjectKept(offered.request, offered.key.digest, label)
                    if reason:
                        answer = ObjectMissing(offered.request, reason)
                    self._nursery.start_soon(_tell, offered.by, answer)
            case NoteLabel(scope, digest, label):
                self._shelf.note_label(ObjectKey(scope, digest), label)
            case DropObject(scope, digest):
                for pipe in self._shelf.drop(ObjectKey(scope, digest)):
                    self._nursery.start_soon(_tell, pipe, message)
            case DropName(scope, user, name):
                self._shelf.unname(scope, user, name)
            case NoteHolder(scope, digest, user, since_s):
                at = None if since_s is None else UtcS(since_s)
                self._shelf.note_holder(ObjectKey(scope, digest), user, at)
            case HolderGone(holder):
                self._end_session(holder)

    def _end_session(self, holder: int) -> None:
        """End the connections of a session that is over, as when its token was revoked.

        Files that were handed out stay with those that have them.
        """
        self._ended.add(holder, _mono_s())
        for pipe, ticket in list(self._tickets.items()):
            if ticket.role == CLIENT and ticket.holder == holder:
                del self._tickets[pipe]  # the current put is not kept
                pipe.close()

    async def _accept(self) -> None:
        """Take connections; a failed accept, as without a free descriptor, ends nothing."""
        while True:
            try:
                connection, _ = await self._listener.accept()
            except OSError:
                self._close_stranger()
                await trio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._pipes) >= self._connections_max and not self._close_stranger():
                connection.close()
                continue
            pipe = ObjectPipe(connection, takes_files=False)
            self._pipes[pipe] = None
            self._nursery.start_soon(self._serve, pipe)

    def _close_stranger(self) -> bool:
        """Close the oldest connection that has shown no ticket; return whether there was one."""
        for pipe in self._pipes:
            is_known = pipe in self._tickets or pipe in self._adopters
            if not is_known and pipe is not self._control:
                del self._pipes[pipe]
                pipe.close()
                return True
        return False

    async def _serve(self, pipe: ObjectPipe) -> None:
        try:
            with suppress(OSError, ProtocolError, trio.ClosedResourceError):
                messages: list[tuple[Any, int]] = []
                with trio.move_on_after(OPEN_S):
                    messages = await pipe.receive()
                await self._hear_all(pipe, messages)
                while pipe in self._tickets and (messages := await pipe.receive()):
                    await self._hear_all(pipe, messages)
        except Exception:  # noqa: BLE001 - the objects of all are worth more than one connection
            traceback.print_exc()
        finally:
            if pipe is not self._control:
                pipe.close()
            self._tickets.pop(pipe, None)
            self._pipes.pop(pipe, None)
            self._shelf.leave(pipe)

    async def _hear_all(self, pipe: ObjectPipe, messages: list[tuple[Any, int]]) -> None:
        """Hear messages that came together; those after a bad one are closed with it."""
        left = deque(messages)
        try:
            while left:
                await self._hear(pipe, *left.popleft())
        finally:
            close_files(left)

    async def _hear(self, pipe: ObjectPipe, message: Any, file: int) -> None:
        known = self._tickets.get(pipe)
        match message:
            case OpenHost(ticket) if known is None and not self._is_orphan:
                shown = read_ticket(ticket, self._key)
                if why := self._ended.why_not(shown, _mono_s()):
                    raise ProtocolError(why)
                self._tickets[pipe] = self._let_in(shown)
                pipe.takes_files = True
                await pipe.send(
                    HostOpen(self._shelf.bytes_max, spills=self._folder is not None, labels=True)
                )
            case AdoptHost() if known is None:
                await self._adopt(pipe, message)
            case PutObject() if known is not None and (known.role == CLIENT or message.job):
                await self._put(pipe, known, message, file)
            case GetObject(request, scope, digest) if known is not None:
                found = self._shelf.take(known, ObjectKey(scope, digest), pipe)
                if isinstance(found, str):
                    await pipe.send(ObjectMissing(request, found))
                else:
                    await pipe.send(ObjectHere(request, found.size), found.descriptor)
            case GetManifest(request, scope, digest, at) if known is not None:
                found = self._shelf.take(known, ObjectKey(scope, digest), pipe)
                if isinstance(found, str):
                    await pipe.send(ObjectMissing(request, found))
                else:
                    part = found.manifest[at : at + MANIFEST_PART_BYTES]
                    await pipe.send(ManifestPart(request, len(found.manifest), part))
            case _:
                close_files([(message, file)])
                raise ProtocolError(f"message {message.kind!r} is not expected here")

    def _let_in(self, ticket: ObjectTicket) -> ObjectTicket:
        """Return a ticket that is good; ProtocolError for one user's too many connections."""
        if ticket.role == CLIENT:
            own = sum(each.user == ticket.user for each in self._tickets.values())
            if own >= self._connections_max * 3 // 4:
                raise ProtocolError(f"user {ticket.user} has {own:,} connections already")
        return ticket

    async def _adopt(self, pipe: ObjectPipe, message: AdoptHost) -> None:
        """Take this connection's gateway for ours, and tell it of all objects."""
        if read_ticket(message.ticket, self._key).role != GATEWAY:
            raise ProtocolError("the ticket is not that of a gateway")
        self._adopters.add(pipe)
        try:
            with trio.move_on_after(LOSS_S):
                await self._orphaned.wait()
        finally:
            self._adopters.discard(pipe)
        if not self._is_orphan:
            raise ProtocolError("this host has a gateway")
        self._is_orphan, self._orphaned = False, trio.Event()  # another one comes too late
        self._key, self._shelf.bytes_max = message.key, message.bytes_max
        self._shelf.user_max = message.user_max
        self._spill_to(message.spill_dir, message.spill_max)
        self._control = pipe
        for key, size, record in list(self._shelf.records()):
            named = (key.scope, key.digest)
            await pipe.send(
                HeldBefore(*named, size, record.user, float(record.put_at_s), list(record.label))
            )
            for (user, name), ends_at_s in record.names.items():
                await pipe.send(NamedBefore(*named, user, name, float(ends_at_s)))
            for user, since_s in record.holders.items() if message.wants_holders else ():
                await pipe.send(HolderBefore(*named, user, float(since_s)))
        await pipe.send(self._ready())
        self._adopted.set()

    async def _put(
        self, pipe: ObjectPipe, ticket: ObjectTicket, message: PutObject, file: int
    ) -> None:
        size = message.size
        try:
            reason = await self._reserve(size, ticket.user)
        except BaseException:
            os.close(file)
            raise
        if reason:
            os.close(file)
            await pipe.send(ObjectMissing(message.request, reason))
            return
        is_offered = False
        try:
            found = await self._seal(file, size)
            if isinstance(found, str):
                why = f"the object was not taken: {found}"
                await pipe.send(ObjectMissing(message.request, why))
            elif self._tickets.get(pipe) is not ticket:  # its gateway was lost meanwhile
                found[0].close()
            else:
                is_offered = True
                await self._offer(pipe, ticket, message, *found)
        finally:
            if not is_offered:
                self._shelf.give_back(size, ticket.user)

    # --- the disk
    # ---------------------------------------------------------------------------

    def _spill_to(self, folder: str, bytes_max: int) -> None:
        """Write objects to this folder from now on, where memory is short; empty: to none."""
        self._folder = Path(folder) if folder else None
        self._shelf.spill_max = bytes_max if folder else 0
        if self._folder is not None:
            try:
                clear_folder(self._folder)
            except OSError:  # said again to each put that has no room
                traceback.print_exc()

    async def _reserve(self, size: int, user: str) -> str:
        """Count a file that is about to be put; return why not, or an empty text.

        Others are written to disk for it, one at a time, if nothing but memory is short.
        """
        reason = self._shelf.reserve(size, user)
        if not reason or self._folder is None:
            return reason
        async with self._spilling:
            while reason := self._shelf.reserve(size, user):
                if why := self._shelf.why_not_spill(size, user):
                    return why
                if (found := self._shelf.to_spill(size)) is None:
                    return reason
                if why := await self._spill(self._folder, *found):
                    return f"{reason}; nor can others be written to {self._folder}: {why}"
        return ""

    async def _spill(self, folder: Path, key: ObjectKey, hosted: HostedFile) -> str:
        """Write one object to disk, and have its readers take that file; return why not."""
        copied = os.dup(hosted.descriptor)  # it may be dropped meanwhile
        try:
            with trio.CancelScope(shield=True):
                file = await trio.to_thread.run_sync(spill, copied, hosted.size, folder)
        except OSError as error:
            return str(error)
        finally:
            os.close(copied)
        moved = HostedFile(Segment(file, hosted.size, is_sealed=True), hosted.manifest)
        readers = self._shelf.spilled(key, hosted, moved)
        if readers is None:
            moved.close()
        for pipe in readers or ():
            self._nursery.start_soon(self._tell_moved, pipe, key, moved.size, os.dup(file))
        return ""

    @staticmethod
    async def _tell_moved(pipe: ObjectPipe, key: ObjectKey, size: int, file: int) -> None:
        try:
            await _tell(pipe, ObjectMoved(key.scope, key.digest, size), file)
        finally:
            os.close(file)

    async def _seal(self, file: int, size: int) -> tuple[HostedFile, bytes] | str:
        """Seal and hash a file; return it with its digest, or why it is not taken."""
        spread: Spread = self._threads.map if size > SPREAD_BYTES else map
        try:
            await self._hashers.acquire()
        except BaseException:
            os.close(file)
            raise
        try:
            with trio.CancelScope(shield=True):  # from here on the file is the thread's
                found = await trio.to_thread.run_sync(partial(_measure, file, size, spread))
        except (SegmentError, BadBody) as error:
            return str(error)
        except (OSError, ValueError, MemoryError) as error:  # it can't be mapped
            return f"it can't be read: {error}"
        else:
            return found
        finally:
            self._hashers.release()

    async def _offer(
        self,
        pipe: ObjectPipe,
        ticket: ObjectTicket,
        message: PutObject,
        hosted: HostedFile,
        digest: bytes,
    ) -> None:
        """Ask the gateway whether an object is kept; until then it is offered."""
        if ticket.role == CLIENT:
            scope, job, named, is_input = ticket.scope, "", (message.name, message.for_s), False
        else:
            scope, job, named = message.scope, message.job, ("", None)
            is_input = message.is_input
        key = ObjectKey(scope, digest)
        number = self._shelf.offer(
            OfferedObject(pipe, message.request, key, hosted, ticket.user, *named)
        )
        who = (ticket.holder, ticket.user, key.scope)
        await self._control.send(
            SealedObject(
                *(number, *who, digest, hosted.size, *named, job, is_input),
                label=[] if job else message.label,
            )
        )


def _mono_s() -> MonoS:
    """Return the time by the clock that the gateway reads as well: it is one computer."""
    return MonoS(time.monotonic())


async def _tell(pipe: ObjectPipe, message: Any, file: int = -1) -> None:
    """Send a message; a fault with its reader ends nothing else."""
    try:
        await pipe.send(message, file)
    except Exception:  # noqa: BLE001 - as in `_serve`
        traceback.print_exc()


def _measure(file: int, size: int, spread: Spread) -> tuple[HostedFile, bytes]:
    """Seal a file, and return it with its digest: in this order, so that neither can change."""
    segment = adopt(file, size)
    try:
        with segment.view() as view:
            parts = parts_of(view)
            manifest = make_manifest(parts, spread=spread)
            for part in parts:
                part.release()
    except BaseException:
        segment.close()
        raise
    return HostedFile(segment, manifest.to_bytes()), manifest.digest


def _leave_stderr() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


async def serve(listening: int, control: int, descriptors: int = DESCRIPTORS_MAX) -> None:
    """Run the object host of a listening socket until its gateway is gone."""
    own = socket.socket(fileno=listening)
    own.listen(BACKLOG)  # so that the kernel names this process to those that connect
    listener = trio.socket.from_stdlib_socket(own)
    pipe = ObjectPipe(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    try:
        host = ObjectHost(pipe, listener, descriptors=descriptors, leave_stderr=_leave_stderr)
        await host.run()
    finally:
        listener.close()


def main() -> None:
    """Run the object host; the gateway starts it."""
    listening, control = int(sys.argv[1]), int(sys.argv[2])
    hide_memory()
    with suppress(KeyboardInterrupt, OSError):
        trio.run(serve, listening, control, raise_descriptors())


if __name__ == "__main__":
    main()
