"""The running site: the nursery tree that joins port, lobby, broker, store and local grids.

    run
    ├── _receive       frames from the port → lobby → events → broker → outbox
    ├── _watch_pipes   pipes that were closed
    ├── _tick          heartbeats, sessions that ran out, jobs without an owner
    ├── desk           one task for each question that has to wait for the store
    └── LocalGrid.run  one for each local pool

Everything that decides is elsewhere; everything here runs in one thread, and state is whole
between any two awaits. The store's writer thread comes back in through `_stored`.
"""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import trio

from federation.address import OTHERS_MAX, is_home
from federation.errors import GridError
from federation.messages import Ask
from federation.transport import Port, TlsSettings
from gateway.broker import Broker
from gateway.circle import Circle
from gateway.config import SiteConfig
from gateway.dealings import Dealings
from gateway.desk import Desk
from gateway.events import Event
from gateway.exchange import Exchange
from gateway.grids.local import LocalGrid
from gateway.ledger.store import Store
from gateway.links import LinkNews
from gateway.lobby import Guest, Lobby, News
from gateway.notary import SigningNotary
from gateway.passes import Passes
from gateway.peers import Peers
from gateway.permits import BookPermits
from gateway.reception import Reception, Seat
from gateway.surroundings import Surroundings

TICK_S: Final = 0.05
# Records waiting for the store, beyond which no new frames are taken until it catches up.
BACKLOG_MAX: Final = 50_000


class Site:
    """One gateway. `run` serves until cancelled; `say` takes lines for the operator."""

    def __init__(
        self,
        config: SiteConfig,
        say: Callable[[str], None],
        surroundings: Surroundings | None = None,
    ) -> None:
        self.config = config
        self._say = say
        self.surroundings = surroundings or Surroundings()
        self.failed = False
        self.addresses: list[str] = []
        self._handles = itertools.count(1)
        self._dealings: Dealings | None = None
        self.peers: Peers | None = None
        if Peers.exists(config):
            self.peers = Peers(config, self._handles, self._hear_peers, self._hear_link, say)
        elif config.federation is not None:
            say(f"site {config.name} is single: no keys in {config.trust_path} (gridfed init)")

    @property
    def broker(self) -> Broker:
        """Whoever decides here."""
        return self.reception.broker

    @property
    def exchange(self) -> Exchange:
        """What we have to do with other sites."""
        return self.reception.exchange

    @property
    def circle(self) -> Circle | None:
        """The federation as we see it; None for a single site."""
        return self._dealings.circle if self._dealings is not None else None

    @property
    def lobby(self) -> Lobby:
        """Who is here."""
        return self.reception.lobby

    @property
    def pulses(self) -> dict[int, Any]:
        """What workers last said of their slots, by handle."""
        return self.reception.pulses

    async def run(self, *, task_status: trio.TaskStatus[list[str]]) -> None:
        """Open the store and the port, take up what the last gateway left, and serve.

        `task_status` is told the addresses once it is ready. Raises StoreError or AddressError
        when the database or an address can't be used.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._wake = trio.Event()
        self._progress = trio.Event()
        self._pipes_changed = trio.Event()
        under = self.surroundings
        self.store: Store = under.open_store(
            self.config, on_trouble=self._on_trouble, on_fatal=self._on_fatal
        )
        try:
            port = under.open_port(self._listen_addresses(), self._on_pipe_change, self._tls())
        except GridError:
            self.store.close()
            raise
        self._port = port
        self.desk = Desk(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self.peers is not None:
                    await nursery.start(self.peers.run)
                # No await from here on to the end of `_open`: nobody can have said anything yet.
                self._open(port)
                nursery.start_soon(self._receive)
                nursery.start_soon(self._watch_pipes)
                nursery.start_soon(self._tick)
                for pool in self.config.pools:
                    if pool.kind == "local":
                        own = next(filter(is_home, port.addresses), port.addresses[0])
                        grid = LocalGrid(pool, own, self.config.rules.secret, self._say)
                        nursery.start_soon(grid.run)
                self.addresses = port.addresses
                task_status.started(port.addresses)
        finally:
            if hasattr(self, "reception"):
                self.reception.goodbye("the gateway stops")
            try:
                self.store.close()
            finally:
                port.close()

    def _open(self, port: Port) -> None:
        """Put together what decides, and take up what the last gateway left."""
        under, peers = self.surroundings, self.peers
        seat = Seat(handles=self._handles)
        if peers is not None:
            registry = peers.registry
            permits = BookPermits(registry, under.now_s)
            passes = Passes(lambda: registry.book, under.utc_s)
            notary = SigningNotary(registry)
            seat = Seat(registry.boot, permits, self._handles, passes, notary)
        self.reception = Reception(
            self.config,
            port,
            self.store,
            surroundings=under,
            seat=seat,
            on_stored=self._from_thread,
            ask=self._ask,
            say=self._say,
        )
        self.lobby.set_others(list(self.config.others))
        if peers is not None:
            self._dealings = Dealings(peers, self.reception, under, self._say)
        self.reception.recover()

    def _hear_peers(self, news: list[News]) -> None:
        """News of the sessions by which other sites have dialled us."""
        assert self._dealings is not None
        self._dealings.hear_peers(news)
        self._note_progress()

    def _hear_link(self, news: LinkNews) -> None:
        """News of the sessions by which we dial other sites."""
        assert self._dealings is not None
        self._dealings.hear_link(news)
        self._note_progress()

    def _listen_addresses(self) -> tuple[str, ...]:
        for address in self.config.addresses:
            if address.startswith("ipc://"):
                # The folder is for its owner alone: the socket lets in whoever reaches it.
                folder = Path(address.removeprefix("ipc://")).parent
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.config.addresses

    def _tls(self) -> TlsSettings:
        return TlsSettings(
            self.config.tls_certificate_file or None, self.config.tls_ca_file or None
        )

    # --- news from other threads ---------------------------------------------------------------

    def _from_thread(self, call: Callable[[], None]) -> None:
        """Run something in the site's own thread, soon, and send what it posted."""

        def run_and_flush() -> None:
            call()
            self.nudge()

        try:
            self._token.run_sync_soon(run_and_flush)
        except trio.RunFinishedError:
            return  # the site has stopped; nobody is left to be told

    def nudge(self) -> None:
        """Something was posted or stored: send it, and wake who waits for it."""
        self.reception.flush()
        self._note_progress()

    def _on_pipe_change(self) -> None:
        try:
            self._token.run_sync_soon(lambda: self._pipes_changed.set(), idempotent=True)
        except trio.RunFinishedError:
            return

    def _on_trouble(self, reason: str | None) -> None:
        def note() -> None:
            self.broker.trouble = reason or ""
            self._say(f"store: {reason}" if reason else "store: works again")

        self._from_thread(note)

    def _on_fatal(self, error: BaseException) -> None:
        def stop() -> None:
            self.failed = True
            self._say(f"store: {error}: the gateway stops, for it can't record what it does")
            self._nursery.cancel_scope.cancel()

        self._from_thread(stop)

    def _note_progress(self) -> None:
        """Wake whoever waits for a job to get on."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    def _ask(self, guest: Guest, question: Ask) -> None:
        self._nursery.start_soon(self.desk.answer, guest, question)

    async def wait_for_progress(self, at_most_s: float) -> None:
        """Return when anything has been stored or told, or after so many seconds."""
        with trio.move_on_after(at_most_s):
            await self._progress.wait()

    async def wait_for_local_pools(self, at_most_s: float) -> None:
        """Return when each local pool has a worker, or after so many seconds."""
        wanted = {pool.name for pool in self.config.pools if pool.kind == "local"}
        with trio.move_on_after(at_most_s):
            while not wanted <= {each.offer.pool for each in self.broker.workers.values()}:
                await self.wait_for_progress(TICK_S)

    # --- the loops -----------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            while self.store.backlog > BACKLOG_MAX:
                await self.wait_for_progress(TICK_S)
            # Always through the poll: asking nng once more whether it is empty costs as much,
            # and this lets every other task run between two batches.
            await trio.lowlevel.wait_readable(self._port.fileno())
            self.reception.take_frames(self._port.receive())
            self._note_progress()  # a small commit is done by now, without the store's thread

    async def _watch_pipes(self) -> None:
        while True:
            await self._pipes_changed.wait()
            self._pipes_changed = trio.Event()
            self.reception.pipes_came(self._port.came())
            self.reception.pipes_gone(self._port.gone())

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            if self.reception.tick():
                self._note_progress()
            if self._dealings is not None:
                self._dealings.tick()

    # --- what the desk needs -------------------------------------------------------------------

    def expect(self, event: Event) -> None:
        """Take an event that did not come in by the port (an operator's order)."""
        self.reception.expect(event)
        self._note_progress()

    def set_others(self, found: Iterable[str]) -> None:
        """Tell our clients where else they could go: the configured first, then these, best first.

        As many as one may tell of; the rest is left out.
        """
        both = dict.fromkeys((*self.config.others, *found))
        self.lobby.set_others(list(both)[:OTHERS_MAX])
        self.lobby.flush(trio.current_time())

    def tell_operator(self, line: str) -> None:
        """Say something where the operator looks."""
        self._say(line)

    def uptime_s(self, guest: Guest) -> float:
        """How long a guest has been here."""
        return round(trio.current_time() - guest.since_s, 1)
