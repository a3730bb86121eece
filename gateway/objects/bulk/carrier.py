"""The carrier: the process that moves the bytes of a site's objects to and from other hosts.

    python -m gateway.objects.bulk.carrier CONTROL

It takes connections at the bulk port, and fetches objects from other sites' bulk ports when its
gateway orders that. It gets files from the object host and puts them there, and keeps none itself:
each is a descriptor, which ends with the streams that use it.
Strangers talk to this process and not to the gateway or to the object host: one that is overrun, or
ends, loses transfers, which begin again, and no object. It decides nothing but who may use a port
(gateway.objects.bulk.admission); each stream blocks in a thread of its own.
"""

import os
import socket
import ssl
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from federation.address import host_and_port
from federation.bulk.pull import BlockPull
from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.carrying import (
    CarrierBeat,
    CarrierReady,
    CutSite,
    ObjectPulled,
    PullObject,
    RenewKeys,
    SetUpCarrier,
    StopPull,
)
from federation.objects.manifests import digest_text
from federation.objects.segments import Segment, create
from federation.sessions.bulk_fetch import OWED_BYTES, BlockFetch, BulkSource
from federation.sessions.bulk_socket import (
    TLS,
    BulkSocket,
    dialler_context,
    listener_context,
)
from federation.signed.transfers import TransferTicket, open_ticket
from gateway.objects.bulk.admission import (
    PULLS_MAX,
    STRANGERS_MAX,
    STREAMS_MAX,
    PullQueue,
    StreamAdmission,
)
from gateway.objects.bulk.serving import NotServed, OpenedObject, serve_stream
from gateway.objects.descriptors import raise_descriptors
from gateway.worker.held_objects import HeldObjects
from gateway.worker.isolation.secrecy import hide_memory
from gateway.worker.object_pipe import ObjectPipe

BACKLOG: Final = 64
OPEN_S: Final = 5.0  # time to show a ticket, with the handshake
ACCEPT_AGAIN_S: Final = 0.1
TIDY_S: Final = 60.0
PULL_STREAMS: Final = 2  # to one holder at a time: one receives while the other hashes
ATTEMPTS: Final = 5
AGAIN_S: Final = 0.5  # before the second attempt; then twice as long, and so on


class BulkConnection:
    """A connection to the bulk port, before and after its TLS handshake."""

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain
        plain.settimeout(OPEN_S)

    def secure(self, context: ssl.SSLContext | None) -> BulkSocket:
        """Do the handshake, if there is one; blocks. Raises OSError."""
        if context is not None:
            secured = context.wrap_socket(
                self._socket, server_side=True, do_handshake_on_connect=False
            )
            self._socket = secured
            secured.do_handshake()
        return BulkSocket(self._socket)

    def stop(self) -> None:
        """End it, from any thread."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class ObjectPull:
    """One object on its way to here."""

    def __init__(self, order: PullObject) -> None:
        self.order = order
        self.site = str(order.sources[0][0]) if order.sources else ""  # it counts for this one
        self.scope = trio.CancelScope()
        self.fetch: BlockFetch | None = None

    def stop(self) -> None:
        """End it: the object is needed no more."""
        self.scope.cancel()
        if self.fetch is not None:
            self.fetch.stop()


class ObjectCarrier:
    """The streams of one site; `run` it until its gateway is gone."""

    def __init__(self, control: ObjectPipe) -> None:
        self._control = control
        self._admission: StreamAdmission[BulkConnection] = StreamAdmission()
        self._pulls: dict[int, ObjectPull] = {}
        threads = STREAMS_MAX + STRANGERS_MAX + PULLS_MAX * PULL_STREAMS + 8
        self._threads = trio.CapacityLimiter(threads)
        self._opening: Counter[tuple[str, bytes]] = Counter()  # streams by the object they ask for
        self._context: tuple[tuple[int, ...], ssl.SSLContext] | None = None

    async def run(self) -> None:
        """Serve until the gateway closes the connection."""
        (first, _), *rest = await self._control.receive() or [(None, -1)]
        if not isinstance(first, SetUpCarrier):
            return
        self._site, self._keys, self._folder = first.site, first.keys, Path(first.folder)
        self._is_tls = first.listen.startswith(TLS)
        self._queue: PullQueue[ObjectPull] = PullQueue(first.bytes_max)
        self._held = HeldObjects(first.host, first.ticket.hex(), lambda _digests: None)
        async with trio.open_nursery() as self._nursery:
            await self._listen(first.listen)
            for message, _ in rest:
                self._obey(message)
            with suppress(OSError, ProtocolError):
                while messages := await self._control.receive():
                    for message, _ in messages:
                        if isinstance(message, CarrierBeat):
                            await self._control.send(message)
                        self._obey(message)
            for pull in self._pulls.values():
                pull.stop()
            os._exit(0)  # threads that block in sockets are not waited for

    async def _listen(self, address: str) -> None:
        ready = CarrierReady(os.getpid())
        if address:
            try:
                if self._is_tls:
                    self._listener_context()
                host, port = host_and_port(address)
                listener = socket.create_server((host, int(port)), backlog=BACKLOG)
            except (OSError, ValueError) as error:
                ready = CarrierReady(os.getpid(), reason=f"{address}: {error}"[:500])
            else:
                listener.setblocking(False)
                head = address.partition("://")[0]
                ready = CarrierReady(os.getpid(), f"{head}://{host}:{listener.getsockname()[1]}")
                self._nursery.start_soon(self._accept, listener)
        await self._control.send(ready)

    def _obey(self, message: Any) -> None:
        match message:
            case PullObject():
                pull = self._pulls[message.request] = ObjectPull(message)
                self._queue.add(pull.site, message.user, message.size, pull)
                self._begin_pulls()
            case StopPull(request):
                if request in self._pulls:
                    self._pulls[request].stop()
            case CutSite(site, reason, at_s):
                for connection in self._admission.cut(site, reason, UtcS(at_s)):
                    connection.stop()
            case RenewKeys(keys):
                self._keys = keys

    # --- the bulk port ---------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        self._nursery.start_soon(self._tidy)
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                plain, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                await trio.sleep(ACCEPT_AGAIN_S)
                continue
            connection = BulkConnection(plain)
            surplus = self._admission.arrived(connection)
            if surplus is not None:
                surplus.stop()
            self._nursery.start_soon(self._serve, connection)

    async def _tidy(self) -> None:
        while True:
            await trio.sleep(TIDY_S)
            self._admission.tidy(UtcS(time.time()))

    async def _serve(self, connection: BulkConnection) -> None:
        shown: list[TransferTicket] = []

        def admit(raw: bytes, leaf: bytes) -> OpenedObject:
            return trio.from_thread.run(self._admit, connection, raw, leaf, shown)

        def may_send(size: int) -> bool:
            return trio.from_thread.run_sync(self._admission.sent, connection, size)

        def serve() -> None:
            context = self._listener_context() if self._is_tls else None
            serve_stream(connection.secure(context), admit, may_send, os.close)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hurry, connection, shown)
            try:
                with suppress(OSError, ProtocolError, ValueError):
                    await trio.to_thread.run_sync(serve, limiter=self._threads)
            except Exception:  # noqa: BLE001 - other streams go on
                traceback.print_exc()
            finally:
                connection.close()
                self._admission.left(connection)
            nursery.cancel_scope.cancel()

    async def _hurry(self, connection: BulkConnection, shown: list[TransferTicket]) -> None:
        """End a connection that does not show a good ticket in time."""
        await trio.sleep(OPEN_S)
        if not shown:
            connection.stop()

    def _listener_context(self) -> ssl.SSLContext:
        """Return the TLS context, read anew when the files have changed: keys rotate, sites come.

        Raises OSError.
        """
        leaf, pins = self._folder / "leaf.pem", self._folder / "pins.pem"
        marks = tuple(n for path in (leaf, pins) for n in _mark(path))
        if self._context is None or self._context[0] != marks:
            self._context = marks, listener_context(str(leaf), str(pins))
        return self._context[1]

    async def _admit(
        self, connection: BulkConnection, raw: bytes, leaf: bytes, shown: list[TransferTicket]
    ) -> OpenedObject:
        """Open the object of a ticket. Raises NotServed."""
        try:
            ticket = open_ticket(raw, self._keys, UtcS(time.time()))
        except ProtocolError as error:
            raise NotServed(f"site {self._site}: {error}") from None
        if ticket.source != self._site:
            raise NotServed(f"the ticket is for site {ticket.source}, and this is {self._site}")
        if self._is_tls and ticket.to != self._site and not self._is_pinned(ticket.to, leaf):
            raise NotServed(f"the ticket is for site {ticket.to}, which shows another leaf")
        if why := self._admission.why_not(connection, ticket):
            raise NotServed(why)
        shown.append(ticket)
        key = ticket.scope, ticket.digest
        self._opening[key] += 1
        try:
            return await self._open(ticket)
        finally:  # a stream has a descriptor of its own
            self._opening[key] -= 1
            if not self._opening[key]:
                del self._opening[key]
                self._held.release(*key)

    async def _open(self, ticket: TransferTicket) -> OpenedObject:
        """Open an object that is at the object host. Raises NotServed."""
        name = digest_text(ticket.digest)
        await self._held.fetch(ticket.scope, [ticket.digest], self._nursery)
        manifest = await self._held.manifest(ticket.scope, ticket.digest, self._nursery)
        found = self._held.find(ticket.scope, ticket.digest)
        if found is None or isinstance(manifest, str):
            raise NotServed(f"site {self._site} does not have object {name} any more")
        if found.size != ticket.size:
            raise NotServed(f"object {name} has {found.size:,} bytes and not {ticket.size:,}")
        return OpenedObject(os.dup(found.descriptor), found.size, ticket.digest, manifest)

    def _is_pinned(self, site: str, leaf: bytes) -> bool:
        """Whether a leaf (DER) is one of those that are pinned as a site's."""
        try:
            pins = (self._folder / "pins" / f"{site}.pem").read_text()
        except OSError:
            return False
        return bool(leaf) and ssl.DER_cert_to_PEM_cert(leaf).strip() in pins

    # --- objects that are fetched ----------------------------------------------------------------

    def _begin_pulls(self) -> None:
        for pull in self._queue.begin():
            self._nursery.start_soon(self._pull, pull)

    async def _pull(self, pull: ObjectPull) -> None:
        order = pull.order
        moved: Counter[str] = Counter()
        reason, is_ours = "the gateway needs it no more", True
        try:
            with pull.scope:
                reason, is_ours = await self._bring(pull, moved)
        except Exception as error:  # noqa: BLE001 - others go on
            traceback.print_exc()
            reason = f"the carrier failed: {type(error).__name__}: {error}"
        finally:
            del self._pulls[order.request]
            self._queue.ended(pull.site, order.user, order.size)
        rows = [[site, number] for site, number in moved.items()]
        await self._control.send(ObjectPulled(order.request, reason[:2_000], rows, is_ours))
        self._begin_pulls()

    async def _bring(self, pull: ObjectPull, moved: Counter[str]) -> tuple[str, bool]:
        """Fetch an object and put it at the object host.

        Return why not, or an empty text; and whether the reason is at this site.
        """
        order = pull.order
        plan = BlockPull(order.digest, order.size)
        try:
            file = create(order.size)
        except OSError as error:
            return f"there is no room for {order.size:,} bytes: {error}", True
        try:
            why = await self._fetch(pull, plan, file, moved)
            if why:
                return why, False
            return await self._leave(order, file), True
        finally:
            file.close()

    async def _fetch(
        self, pull: ObjectPull, plan: BlockPull, file: Segment, moved: Counter[str]
    ) -> str:
        """Fetch an object into a file, in a few attempts; return why it is not whole."""
        sources = [(str(row[0]), str(row[1]), str(row[2])) for row in pull.order.sources]
        is_small = pull.order.size <= OWED_BYTES
        streams = 1 if is_small or len(sources) > 1 else PULL_STREAMS
        wait_s = AGAIN_S
        for attempt in range(ATTEMPTS):
            if attempt:
                await trio.sleep(wait_s)
                wait_s *= 2
            pull.fetch = BlockFetch(plan, file.descriptor)
            async with trio.open_nursery() as nursery:
                for site, address, ticket in sources:
                    for number in range(streams):
                        nursery.start_soon(
                            self._stream, pull.fetch, site, number, address, bytes.fromhex(ticket)
                        )
            for site, _, _ in sources:
                moved[site] = sum(plan.sent_bytes(_holder(site, n)) for n in range(streams))
            if plan.is_done:
                return ""
            if pull.fetch.refused.issuperset(_holder(site, 0) for site, _, _ in sources):
                break  # they have said why
        return plan.why_stuck() or "no holder of it could be reached"

    async def _stream(
        self, fetch: BlockFetch, site: str, number: int, address: str, ticket: bytes
    ) -> None:
        context = None
        holder = _holder(site, number)
        if address.startswith(TLS):
            pins = self._folder / "pins" / f"{site}.pem"
            try:
                context = dialler_context(str(self._folder / "leaf.pem"), str(pins))
            except OSError as error:
                fetch.plan.lost(holder, f"no leaf of {site} is pinned here: {error}")
                return
        source = BulkSource(holder, address, ticket, context, site)
        await trio.to_thread.run_sync(fetch.run, source, limiter=self._threads)

    async def _leave(self, order: PullObject, file: Segment) -> str:
        """Put a whole object at the object host; return why not, or an empty text."""
        kept = await self._held.leave(
            order.scope, order.job, file, self._nursery, is_input=order.is_input
        )
        if isinstance(kept, str):
            return kept
        if kept != order.digest:
            return f"the object host found object {digest_text(kept)} in its place"
        return ""


def _holder(site: str, number: int) -> str:
    """Return the name of a stream to a site, for people; sites have no blanks in their names."""
    return f"{site} (stream {number + 1})" if number else site


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


async def serve(control: int) -> None:
    """Run the carrier of a gateway until that is gone."""
    own = socket.socket(fileno=control)
    own.setblocking(False)
    pipe = ObjectPipe(trio.socket.from_stdlib_socket(own))
    await ObjectCarrier(pipe).run()


def main() -> None:
    """Run the carrier; the gateway starts it."""
    hide_memory()
    raise_descriptors()
    with suppress(KeyboardInterrupt, OSError):
        trio.run(serve, int(sys.argv[1]))


if __name__ == "__main__":
    main()
