"""The carrier as its gateway has it: started when it is needed, and again when it has ended.

A site with a bulk port needs it at once, another one when it first fetches an object. It ends with
its gateway: the connection between the two closes, and no transfer is worth more than that. One
that does not answer for a time hangs: it is killed, and the next one gets its orders.
"""

import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import trio

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
from gateway.base.child import wait_for_exit
from gateway.base.interpreter import run_module
from gateway.config.limits import OBJECT_BYTES_MAX
from gateway.worker.object_pipe import ObjectPipe

START_S: Final = 30.0
STOP_S: Final = 5.0
AGAIN_S: Final = 1.0
BEAT_S: Final = 3.0
# Beats in a row without an answer: then it hangs. By their number, and not by the clock: a gateway
# that was stopped itself hears the answer after its next beat.
MISSED_MAX: Final = 5
CARRIERS_MAX: Final = 5  # that may end under one transfer
ENDED: Final = "the carrier of this site has ended"


@dataclass(frozen=True, slots=True)
class CarrierSettings:
    """How a carrier is set up.

    Attributes:
        site: this one.
        listen: the bulk port, `tls+tcp://HOST:PORT`; empty: none.
        advertise: its address for other sites, if it is another.
        folder: of the TLS leaf and the pins.
        bytes_max: the memory for objects on their way to here, all together.
    """

    site: str
    listen: str = ""
    advertise: str = ""
    folder: str = ""
    bytes_max: int = OBJECT_BYTES_MAX


@dataclass(frozen=True, slots=True)
class PullSource:
    """A site that holds an object: where its bulk port is, and its ticket for us."""

    site: str
    address: str
    ticket: bytes


@dataclass(frozen=True, slots=True)
class PullOutcome:
    """The end of a transfer: why it failed, or empty; and the bytes that came from each site.

    `is_ours`: the cause of a failure is at this site.
    """

    reason: str
    moved: tuple[tuple[str, int], ...] = ()
    is_ours: bool = False


class CarrierProcess:
    """The carrier of a site.

    Args:
        settings: see CarrierSettings.
        keys: returns the keys by which our tickets may be signed.
        host: returns the address of the object host and an agent's ticket for it, once it runs.
        say: takes lines for the operator.
    """

    def __init__(
        self,
        settings: CarrierSettings,
        keys: Callable[[], Iterable[bytes]],
        host: Callable[[], tuple[str, str]],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._host = host
        self._say = say
        self._wanted = trio.Event()
        self._ready = trio.Event()
        self._pipe: ObjectPipe | None = None
        self._requests = 0
        self._waiting: dict[int, tuple[trio.Event, list[PullOutcome]]] = {}
        self._cut: dict[str, CutSite] = {}
        self._known_keys: list[bytes] = []
        self._missed = 0  # beats since its last answer
        self.pid = 0
        self._port = ""

    @property
    def address(self) -> str:
        """Where other sites dial the bulk port; empty while there is none."""
        return (self._settings.advertise or self._port) if self._port else ""

    @property
    def listens(self) -> bool:
        """Whether it is to open a bulk port, by the configuration."""
        return bool(self._settings.listen)

    async def run(self) -> None:
        """Keep the carrier running from the moment on at which it is needed; until cancelled."""
        if self._settings.listen:
            self._wanted.set()
        while True:
            await self._wanted.wait()
            await self._run_once()
            await trio.sleep(AGAIN_S)

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        command = run_module("gateway.objects.bulk.carrier")
        try:
            process = subprocess.Popen(  # noqa: ASYNC220
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._say(f"the carrier of objects can't be started: {error}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        pipe = ObjectPipe(trio.socket.from_stdlib_socket(ours), takes_files=False)
        self._pipe = pipe
        try:
            await self._set_up(pipe)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, pipe, nursery.cancel_scope)
                nursery.start_soon(self._watch, pipe, process)
                await wait_for_exit(process)
                nursery.cancel_scope.cancel()
            self._say(f"{ENDED}: transfers begin again")
        finally:
            self._pipe, self._port, self._ready = None, "", trio.Event()
            pipe.close()
            self._fail_all()
            await self._stop(process)

    async def _watch(self, pipe: ObjectPipe, process: "subprocess.Popen[bytes]") -> None:
        """Kill a carrier that does not answer."""
        with trio.move_on_after(START_S):
            await self._ready.wait()
        self._missed, number = 0, 0
        while self._missed < MISSED_MAX:
            self._missed, number = self._missed + 1, number + 1
            with trio.move_on_after(BEAT_S):  # one that reads nothing may block this
                await pipe.send(CarrierBeat(number))
                await trio.sleep_forever()
        silent_s = BEAT_S * MISSED_MAX
        self._say(f"the carrier of this site has not answered for {silent_s:.0f} s: it is killed")
        process.kill()

    async def _stop(self, process: "subprocess.Popen[bytes]") -> None:
        """End the process, which ends by itself when its pipe is closed. Shielded."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(STOP_S):
                await wait_for_exit(process)
                return
            process.kill()
            await wait_for_exit(process)

    async def _set_up(self, pipe: ObjectPipe) -> None:
        settings = self._settings
        host, ticket = self._host()
        self._known_keys = list(self._keys())
        await pipe.send(
            SetUpCarrier(
                host,
                bytes.fromhex(ticket),
                settings.listen,
                settings.site,
                self._known_keys,
                settings.folder,
                settings.bytes_max,
            )
        )
        for each in self._cut.values():
            await pipe.send(each)

    async def _listen(self, pipe: ObjectPipe, scope: trio.CancelScope) -> None:
        try:
            while messages := await pipe.receive():
                for message, _ in messages:
                    self._hear(message)
        except (OSError, ProtocolError) as error:
            self._say(f"the connection to the carrier is lost: {error}")
        scope.cancel()

    def _hear(self, message: Any) -> None:
        match message:
            case CarrierReady(pid, address, reason):
                self.pid, self._port = pid, address
                if reason:
                    self._say(
                        f"the bulk port can't be opened: {reason}: other sites can't fetch objects "
                        "from here, and calls that refer to objects stay here"
                    )
                self._ready.set()
            case CarrierBeat():
                self._missed = 0
            case ObjectPulled(request, reason, moved, is_ours) if request in self._waiting:
                arrived, found = self._waiting.pop(request)
                rows = tuple((str(s), int(n)) for s, n in moved)
                found.append(PullOutcome(reason, rows, is_ours))
                arrived.set()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for arrived, found in waiting.values():
            found.append(PullOutcome(ENDED, is_ours=True))
            arrived.set()

    # --- for the gateway -------------------------------------------------------------------------

    async def ready(self) -> bool:
        """Start the carrier if it does not run; return whether it does."""
        self._wanted.set()
        with trio.move_on_after(START_S):
            await self._ready.wait()
        return self._ready.is_set()

    async def pull(
        self,
        scope: str,
        digest: bytes,
        size: int,
        user: str,
        job: str,
        sources: Iterable[PullSource],
        *,
        is_input: bool = True,
    ) -> PullOutcome:
        """Fetch an object for the calls of a job, or as a result of it, that another site made.

        Return once it is at the object host, or can't be.

        One that ends with the carrier begins again in the next one. When this is cancelled, so is
        the transfer.
        """
        rows = [[each.site, each.address, each.ticket.hex()] for each in sources]
        found = PullOutcome(ENDED, is_ours=True)
        for _ in range(CARRIERS_MAX):
            if not await self.ready() or self._pipe is None:
                return PullOutcome("the carrier of this site does not run", is_ours=True)
            self._requests += 1
            order = PullObject(
                *(self._requests, scope, digest, size, user, job, rows),
                is_input=is_input,
            )
            found = await self._pull(self._pipe, order)
            if found.reason != ENDED:
                break
        return found

    async def _pull(self, pipe: ObjectPipe, order: PullObject) -> PullOutcome:
        request = order.request
        arrived, found = self._waiting[request] = trio.Event(), []
        try:
            await pipe.send(order)
            await arrived.wait()
        finally:
            if self._waiting.pop(request, None) is not None:
                with trio.CancelScope(shield=True):
                    await pipe.send(StopPull(request))
        return found[0]

    async def keep_keys(self) -> None:
        """Tell the carrier of our keys, if they have changed."""
        keys = list(self._keys())
        if self._pipe is not None and keys != self._known_keys:
            self._known_keys = keys
            await self._pipe.send(RenewKeys(keys))

    async def cut(self, site: str, reason: str, at_s: UtcS) -> None:
        """End the streams of a site that is approved no more; its tickets so far are void."""
        message = self._cut[site] = CutSite(site, reason, float(at_s))
        if self._pipe is not None:
            await self._pipe.send(message)
