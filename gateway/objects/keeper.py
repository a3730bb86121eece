"""The gateway's side of objects: its catalogue, and the object host that it starts when first
asked.

The gateway's loop never sees a byte of an object: it hears of digests and sizes, decides by the
catalogue, and tells the host what to drop. A host that dies takes its objects along; the next one
begins empty, and calls that refer to lost objects fail with ObjectLost.
"""

import math
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterable, Set
from typing import Any, Final

import trio

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.objects import (
    DropObject,
    HostReady,
    SealedObject,
    SettleObject,
    SetUpHost,
)
from federation.objects.manifests import is_digest
from federation.wishes import NAME_CHARS_MAX
from federation.words import clean
from gateway.base.child import wait_for_exit
from gateway.base.interpreter import run_module
from gateway.objects.catalogue import (
    NAMED_MAX_S,
    HeldObject,
    ObjectCatalogue,
    ObjectKey,
)
from gateway.objects.tickets import AGENT, CLIENT, KEY_BYTES, ObjectTicket
from gateway.worker.object_pipe import ObjectPipe

START_S: Final = 30.0
AGAIN_S: Final = 1.0
MEMORY_SHARE: Final = 0.3  # of this host's memory, for objects


def usual_bytes() -> int:
    """Return the room for objects on this host: a share of its memory."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)


class ObjectKeeper:
    """Objects of one site, on its gateway's host.

    Args:
        is_here: whether a session, by its number, is still there.
        utc_s: the time of day.
        say: takes lines for the operator.
        bytes_max: the room for all objects.
    """

    def __init__(
        self,
        is_here: Callable[[int], bool],
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
        bytes_max: int,
    ) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        # In the abstract namespace of this host: there is no file that could be left behind.
        self.address: Final = f"@gridfed-objects-{secrets.token_hex(8)}"
        self._is_here = is_here
        self._utc_s = utc_s
        self._say = say
        self._bytes_max = bytes_max
        self.catalogue = ObjectCatalogue(bytes_max)
        self.pid = 0  # of the object host
        self._wanted = trio.Event()
        self._ready = trio.Event()
        self._orders = trio.open_memory_channel[Any](math.inf)

    @property
    def agent_ticket(self) -> str:
        """The ticket of this host's agents, for their environment."""
        return ObjectTicket(AGENT).sign(self._key).hex()

    def ticket(self, session: int, user: str, scope: str) -> bytes:
        """Return the ticket of a client's session for a project."""
        return ObjectTicket(CLIENT, session, user, scope).sign(self._key)

    async def ready(self) -> bool:
        """Start the object host if it does not run; return whether it listens."""
        self._wanted.set()
        with trio.move_on_after(START_S):
            await self._ready.wait()
        return self._ready.is_set()

    async def run(self) -> None:
        """Keep the object host running from the first request on; until cancelled."""
        await self._wanted.wait()
        while True:
            code = await self._run_once()
            lost = len(self.catalogue)
            self.catalogue.clear()
            self._ready = trio.Event()
            self._say(f"the object host ended with code {code}; {lost:,} objects are lost")
            await trio.sleep(AGAIN_S)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        descriptor = str(theirs.fileno())
        command = run_module("gateway.objects.host")
        # In this very thread: the host is killed when the thread that started it ends.
        process = subprocess.Popen(  # noqa: ASYNC220
            [*command, self.address, descriptor, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        pipe = ObjectPipe(trio.socket.from_stdlib_socket(ours))
        self._orders = trio.open_memory_channel[Any](math.inf)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_orders, pipe)
                nursery.start_soon(self._listen, pipe)
                self._order(SetUpHost(self._key, self._bytes_max))
                code = await wait_for_exit(process)
                nursery.cancel_scope.cancel()
            return code
        finally:
            pipe.close()
            with trio.CancelScope(shield=True):
                process.kill()
                await wait_for_exit(process)

    def _order(self, message: Any) -> None:
        self._orders[0].send_nowait(message)

    async def _send_orders(self, pipe: ObjectPipe) -> None:
        async for message in self._orders[1]:
            await pipe.send(message)

    async def _listen(self, pipe: ObjectPipe) -> None:
        try:
            while messages := await pipe.receive():
                for message, _ in messages:
                    self._hear(message)
        except (OSError, ProtocolError) as error:
            self._say(f"the connection to the object host is lost: {error}")

    def _hear(self, message: Any) -> None:
        match message:
            case HostReady():
                self.pid = message.pid
                self._ready.set()
            case SealedObject():
                self._order(SettleObject(message.request, self._put(message)))

    def _put(self, message: SealedObject) -> str:
        """Enter an object that was put; return why not, or an empty text."""
        name, utc_s = message.name, self._utc_s()
        if not self._is_here(message.holder):
            return "the session of the client is over"
        if not is_digest(message.digest):
            return "the digest is not valid"
        if len(name) > NAME_CHARS_MAX or not (name.isprintable() and name == clean(name)):
            return f"the name must be at most {NAME_CHARS_MAX} printable characters"
        if name and not 0 < (message.for_s or 0) <= NAMED_MAX_S:
            return f"a name is for at most {NAMED_MAX_S:,.0f} seconds (for_s)"
        key = ObjectKey(message.scope, message.digest)
        reason = self.catalogue.put(key, message.size, message.user, message.holder, utc_s)
        if not reason and name:
            until_s = utc_s + (message.for_s or 0)
            self._drop(self.catalogue.name(key, message.user, name, until_s))
        return reason

    # --- for the gateway
    # ---------------------------------------------------------------------------

    def hold(self, job: str, scope: str, digests: Iterable[bytes]) -> None:
        """Let a job hold the objects that calls of it refer to."""
        self.catalogue.hold(job, scope, digests)

    def take(self, session: int, held: HeldObject) -> None:
        """Let a session hold an object that it has found by its name."""
        self.catalogue.take(held.key, session)

    def let_go(self, session: int, scope: str, digests: Iterable[bytes]) -> None:
        """Let go of objects that a session needs no more."""
        for digest in digests:
            self._drop(self.catalogue.let_go(session, scope, digest))

    def session_ended(self, session: int) -> None:
        """Let go of what a session held."""
        self._drop(self.catalogue.session_ended(session))

    def sweep(self, jobs: Set[str]) -> None:
        """Let go of what ended jobs, and names that have expired, held."""
        self._drop(self.catalogue.sweep(jobs, self._utc_s()))

    def _drop(self, gone: Iterable[ObjectKey]) -> None:
        for key in gone:
            self._order(DropObject(key.scope, key.digest))
