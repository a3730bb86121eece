"""The object host: the process that keeps the bytes of a site's objects, beside the gateway.

    python -m gateway.objects.host ADDRESS CONTROL

It takes sealed files from clients of its host, hashes them, and hands them to agents and clients by
descriptor. It decides nothing: its gateway says what is kept and what is dropped, by the socket
pair CONTROL. When that closes the gateway is gone, and the process ends; so its memory is never
left over.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from federation.errors import ProtocolError
from federation.messages.objects import (
    DropObject,
    GetObject,
    HostOpen,
    HostReady,
    ObjectHere,
    ObjectKept,
    ObjectMissing,
    OpenHost,
    PutObject,
    SealedObject,
    SettleObject,
    SetUpHost,
)
from federation.objects.bodies import BadBody, parts_of
from federation.objects.manifests import digest_text, make_manifest
from federation.objects.segments import Segment, SegmentError, adopt
from gateway.objects.catalogue import ObjectKey, no_room
from gateway.objects.tickets import CLIENT, ObjectTicket, read_ticket
from gateway.worker.isolation.limits import die_with_parent
from gateway.worker.isolation.secrecy import hide_memory
from gateway.worker.object_pipe import ObjectPipe

CONNECTIONS_MAX: Final = 1024
OPEN_S: Final = 5.0  # time to show a ticket
HASHERS: Final = 2  # threads


@dataclass(slots=True)
class _Offered:
    """An object that was put, until the gateway has settled whether it is kept."""

    pipe: ObjectPipe
    request: int
    key: ObjectKey
    segment: Segment


class ObjectHost:
    """Objects, by project and digest.

    Args:
        control: to the gateway.
        listener: for clients and agents.
    """

    def __init__(self, control: ObjectPipe, listener: trio.socket.SocketType) -> None:
        self._control = control
        self._listener = listener
        self._held: dict[ObjectKey, Segment] = {}
        self._readers: dict[ObjectKey, set[ObjectPipe]] = {}
        self._offered: dict[int, _Offered] = {}
        self._requests = 0
        self._bytes = 0  # held, offered, and being hashed
        self._connections = 0
        self._tickets: dict[ObjectPipe, ObjectTicket] = {}
        self._hashers = trio.CapacityLimiter(HASHERS)

    async def run(self) -> None:
        """Serve until the gateway is gone."""
        (first, _), *rest = await self._control.receive() or [(None, -1)]
        if not isinstance(first, SetUpHost):
            return
        self._key, self._bytes_max = first.key, first.bytes_max
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._accept)
            await self._control.send(HostReady(os.getpid()))
            messages = rest
            while True:
                for message, _ in messages:
                    await self._obey(message)
                messages = await self._control.receive()
                if not messages:
                    self._nursery.cancel_scope.cancel()
                    return

    async def _obey(self, message: Any) -> None:
        match message:
            case SettleObject(request, reason):
                await self._settle(self._offered.pop(request), reason)
            case DropObject(scope, digest):
                key = ObjectKey(scope, digest)
                segment = self._held.pop(key, None)
                if segment is not None:
                    self._bytes -= segment.size
                    segment.close()
                for pipe in self._readers.pop(key, set()):
                    self._nursery.start_soon(pipe.send, message)

    async def _settle(self, offered: _Offered, reason: str) -> None:
        if reason or offered.key in self._held:
            self._bytes -= offered.segment.size
            offered.segment.close()
        else:
            self._held[offered.key] = offered.segment
        answer: Any = ObjectKept(offered.request, offered.key.digest)
        if reason:
            answer = ObjectMissing(offered.request, reason)
        self._nursery.start_soon(offered.pipe.send, answer)

    async def _accept(self) -> None:
        while True:
            connection, _ = await self._listener.accept()
            if self._connections >= CONNECTIONS_MAX:
                connection.close()
                continue
            self._connections += 1
            self._nursery.start_soon(self._serve, ObjectPipe(connection))

    async def _serve(self, pipe: ObjectPipe) -> None:
        try:
            with suppress(OSError, ProtocolError):
                with trio.move_on_after(OPEN_S):
                    for message, file in await pipe.receive():
                        await self._hear(pipe, message, file)
                while pipe in self._tickets and (messages := await pipe.receive()):
                    for message, file in messages:
                        await self._hear(pipe, message, file)
        finally:
            pipe.close()
            self._tickets.pop(pipe, None)
            self._connections -= 1
            for readers in self._readers.values():
                readers.discard(pipe)

    async def _hear(self, pipe: ObjectPipe, message: Any, file: int) -> None:
        known = self._tickets.get(pipe)
        match message:
            case OpenHost(ticket) if known is None:
                self._tickets[pipe] = read_ticket(ticket, self._key)
                await pipe.send(HostOpen(self._bytes_max))
            case PutObject() if known is not None and known.role == CLIENT:
                await self._put(pipe, known, message, file)
            case GetObject(request, scope, digest) if known is not None:
                await self._get(pipe, known, request, ObjectKey(scope, digest))
            case _:
                if file >= 0:
                    os.close(file)
                raise ProtocolError(f"message {message.kind!r} is not expected here")

    async def _put(
        self, pipe: ObjectPipe, ticket: ObjectTicket, message: PutObject, file: int
    ) -> None:
        size = message.size
        reason = no_room(self._bytes_max, self._bytes, size)
        if reason:
            os.close(file)
            await pipe.send(ObjectMissing(message.request, reason))
            return
        self._bytes += size
        try:
            segment, digest = await trio.to_thread.run_sync(
                partial(_measure, file, size), limiter=self._hashers
            )
        except (SegmentError, BadBody) as error:
            self._bytes -= size
            await pipe.send(ObjectMissing(message.request, f"the object was not taken: {error}"))
            return
        self._requests += 1
        key = ObjectKey(ticket.scope, digest)
        self._offered[self._requests] = _Offered(pipe, message.request, key, segment)
        named = (message.name, message.for_s)
        await self._control.send(
            SealedObject(
                *(self._requests, ticket.holder, ticket.user, key.scope, digest, size, *named)
            )
        )

    async def _get(
        self, pipe: ObjectPipe, ticket: ObjectTicket, request: int, key: ObjectKey
    ) -> None:
        segment = self._held.get(key) if ticket.may_read(key.scope) else None
        if segment is None:
            reason = f"project {key.scope} has no object {digest_text(key.digest)} here"
            await pipe.send(ObjectMissing(request, reason))
            return
        self._readers.setdefault(key, set()).add(pipe)
        await pipe.send(ObjectHere(request, segment.size), segment.descriptor)


def _measure(file: int, size: int) -> tuple[Segment, bytes]:
    """Seal a file, and return it with its digest: in this order, so that neither can change."""
    segment = adopt(file, size)
    try:
        with segment.view() as view:
            parts = parts_of(view)
            digest = make_manifest(parts).digest
            for part in parts:
                part.release()
    except BaseException:
        segment.close()
        raise
    return segment, digest


async def serve(address: str, control: int, started: Callable[[], None] = lambda: None) -> None:
    """Run the object host of an address until its gateway is gone."""
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await listener.bind("\0" + address.removeprefix("@"))
    listener.listen(128)
    started()
    pipe = ObjectPipe(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    try:
        await ObjectHost(pipe, listener).run()
    finally:
        listener.close()


def main() -> None:
    """Run the object host; the gateway starts it."""
    address, control, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    die_with_parent(parent)
    hide_memory()
    with suppress(KeyboardInterrupt, OSError):
        trio.run(serve, address, control)


if __name__ == "__main__":
    main()
