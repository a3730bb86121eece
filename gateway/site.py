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

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import trio

from federation.errors import GridError, ProtocolError
from federation.ids import id_time_ms
from federation.messages import (
    Ask,
    Kept,
    NeedFunction,
    OpenJob,
    Pulse,
    PutFunction,
    RejectJob,
)
from federation.nng import NngPort
from federation.reasons import Reason
from federation.transport import TlsSettings
from gateway import events
from gateway.broker import Broker, Limits
from gateway.config import SiteConfig, make_folder, python_minor
from gateway.desk import Desk
from gateway.effects import Effect
from gateway.events import Event
from gateway.functions import Functions
from gateway.grids.local import LocalGrid
from gateway.intake import BadJob, BadWorker, client_event, job_event, worker_event, worker_joined
from gateway.ledger.store import SqlStore
from gateway.lobby import CameIn, Guest, Left, Lobby, News, Said
from gateway.outbox import Outbox
from gateway.recovery import history_of, recovered
from policies.placement import Offer

TICK_S: Final = 0.05
SLOW_TICKS: Final = 20  # some things are looked at every so many ticks
# Records waiting for the store, beyond which no new frames are taken until it catches up.
BACKLOG_MAX: Final = 50_000


class Site:
    """One gateway. `run` serves until cancelled; `say` takes lines for the operator."""

    def __init__(self, config: SiteConfig, say: Callable[[str], None]) -> None:
        self.config = config
        self._say = say
        self._pools = {pool.name: dict(pool.tags) for pool in config.pools}
        rules = config.rules
        self.broker = Broker(
            {pool.name: pool.tariff for pool in config.pools},
            {
                f"pool {pool.name}": Offer(
                    f"pool {pool.name}",
                    pool.name,
                    pool.tags,
                    python_minor(),
                    pool.tariff.currency,
                )
                for pool in config.pools
                if pool.kind == "local"
            },
            # Slack for what is under way while a client counts its results.
            Limits(rules.tasks_max * 2, rules.bytes_max * 2),
        )
        self.functions = Functions()
        self.pulses: dict[int, Any] = {}
        self._unread: set[int] = set()
        self.failed = False
        self._started_s = time.time()
        self.addresses: list[str] = []

    async def run(self, *, task_status: trio.TaskStatus[list[str]]) -> None:
        """Open the store and the port, take up what the last gateway left, and serve.

        `task_status` is told the addresses once it is ready. Raises StoreError or AddressError
        when the database or an address can't be used.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._wake = trio.Event()
        self._progress = trio.Event()
        self._pipes_changed = trio.Event()
        make_folder(self.config.state_path)
        self.store = SqlStore(
            self.config.database_url, on_trouble=self._on_trouble, on_fatal=self._on_fatal
        )
        try:
            port = NngPort(self._listen_addresses(), self._on_pipe_change, self._tls())
        except GridError:
            self.store.close()
            raise
        self._port = port
        self.lobby = Lobby(port, self.config.rules)
        self.outbox = Outbox(self.lobby, self.store, self.functions, self._from_thread)
        self.desk = Desk(self)
        try:
            self._recover()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._receive)
                nursery.start_soon(self._watch_pipes)
                nursery.start_soon(self._tick)
                for pool in self.config.pools:
                    if pool.kind == "local":
                        grid = LocalGrid(
                            pool, port.addresses[0], self.config.rules.secret, self._say
                        )
                        nursery.start_soon(grid.run)
                self.addresses = port.addresses
                task_status.started(port.addresses)
        finally:
            self.lobby.goodbye("the gateway stops", trio.current_time())
            try:
                self.store.close()
            finally:
                port.close()

    def _listen_addresses(self) -> tuple[str, ...]:
        for address in self.config.addresses:
            if address.startswith("ipc://"):
                # The folder is for its owner alone: the socket lets in whoever reaches it.
                make_folder(Path(address.removeprefix("ipc://")).parent)
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
            self.lobby.flush(trio.current_time())
            self._note_progress()

        try:
            self._token.run_sync_soon(run_and_flush)
        except trio.RunFinishedError:
            return  # the site has stopped; nobody is left to be told

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

    async def wind_up(self, at_most_s: float) -> None:
        """Take back what has not started, wait so long for what runs, and say goodbye.

        Results that come meanwhile still reach their clients; what runs on after that is lost.
        """
        if not self.addresses:
            return
        for handle in list(self.broker.workers):
            self.expect(events.DrainAsked(handle, on=True))
        with trio.move_on_after(at_most_s):
            while self._is_busy():
                await self.wait_for_progress(TICK_S)
        # Now, so that local workers don't wait for us to hear their own goodbye.
        self.lobby.goodbye("the gateway stops", trio.current_time())

    def _is_busy(self) -> bool:
        """Whether work is under way, or guests who are here have not had all that we said."""
        guests = self.lobby.guests.values()
        return (
            self.store.backlog > 0
            or any(job.in_flight for job in self.broker.jobs.values())
            or any(guest.pipe is not None and not guest.session.is_idle for guest in guests)
        )

    # --- the loops -----------------------------------------------------------------------------

    def _recover(self) -> None:
        now_s = time.time()
        self.store.mark_lost(now_s)
        effects: list[Effect] = []
        for event in recovered(self.store):
            effects += self.broker.handle(event, now_s)
            if isinstance(event, events.JobRecovered) and event.spec is not None:
                body = self.store.function(event.spec.function)
                if body is not None:
                    self.functions.put(event.spec.function, body, 0)
        self.outbox.perform(effects)

    async def _receive(self) -> None:
        while True:
            while self.store.backlog > BACKLOG_MAX:
                await self.wait_for_progress(TICK_S)
            # Always through the poll: asking nng once more whether it is empty costs as much,
            # and this lets every other task run between two batches.
            await trio.lowlevel.wait_readable(self._port.fileno())
            now_s = trio.current_time()
            happened: list[Event] = []
            for pipe, frame in self._port.receive():
                self._take(self.lobby.receive(pipe, frame, now_s), happened)
            self._act(happened)

    async def _watch_pipes(self) -> None:
        while True:
            await self._pipes_changed.wait()
            self._pipes_changed = trio.Event()
            self.lobby.pipes_gone(self._port.gone(), trio.current_time())

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await trio.sleep(TICK_S)
            ticks += 1
            now_s = trio.current_time()
            happened: list[Event] = []
            self._take(self.lobby.tick(now_s), happened)
            self._watch_readers(happened)
            if ticks % SLOW_TICKS == 0:
                happened.append(events.Ticked())
                used = {job.spec.function for job in self.broker.jobs.values()}
                self.functions.sweep(used, set(self.lobby.guests))
            if happened or self.broker.is_uneven:
                self._act(happened)

    def _watch_readers(self, happened: list[Event]) -> None:
        """Hold back the work of clients that leave their results unread."""
        for guest in self.lobby.guests.values():
            if guest.role != "client":
                continue
            unread = guest.session.backlog_bytes > self.config.unread_bytes
            if unread != (guest.handle in self._unread):
                (self._unread.add if unread else self._unread.discard)(guest.handle)
                happened.append(events.ClientReading(guest.handle, not unread))

    def _act(self, happened: Iterable[Event]) -> None:
        """Let the broker decide about what happened, hand out work, and carry it all out."""
        now_s = time.time()
        effects: list[Effect] = []
        for event in happened:
            effects += self.broker.handle(event, now_s)
        effects += self.broker.settle(now_s)
        expels = self.outbox.perform(effects)
        if expels:
            gone: list[Event] = []
            for expel in expels:
                guest = self.lobby.guests.get(expel.guest)
                if guest is not None:
                    self._take(self.lobby.expel(guest, expel.reason, trio.current_time()), gone)
            self._act(gone)
        self.lobby.flush(trio.current_time())
        self._note_progress()  # a small commit is done by now, without the store's thread

    # --- from news to events -------------------------------------------------------------------

    def _take(self, news: Iterable[News], happened: list[Event]) -> None:
        for item in news:
            match item:
                case Said(guest, message):
                    self._hear(guest, message, happened)
                case CameIn(guest):
                    self._meet(guest, happened)
                case Left(guest, reason):
                    self._part(guest, reason, happened)

    def _meet(self, guest: Guest, happened: list[Event]) -> None:
        if guest.role == "client":
            happened.append(events.ClientJoined(guest.handle, guest.user))
            return
        try:
            happened.append(worker_joined(guest.about, guest.handle, guest.name, self._pools))
        except BadWorker as error:
            self._take(self.lobby.expel(guest, str(error), trio.current_time()), happened)
            return
        slots = guest.about["slots"]
        self._say(f"worker {guest.name} joined with {slots} slot{'s' * (slots != 1)}")

    def _part(self, guest: Guest, reason: str, happened: list[Event]) -> None:
        self._unread.discard(guest.handle)
        if guest.role == "client":
            happened.append(events.ClientGone(guest.handle))
        else:
            happened.append(events.WorkerGone(guest.handle, reason))
            self.functions.forget_worker(guest.handle)
            self.pulses.pop(guest.handle, None)
            self._say(f"worker {guest.name} left: {reason}")

    def _hear(self, guest: Guest, message: Any, happened: list[Event]) -> None:
        try:
            event = self._event(guest, message, happened)
        except ProtocolError as error:
            reason = f"protocol error: {error}"
            self._take(self.lobby.expel(guest, reason, trio.current_time()), happened)
            return
        if event is not None:
            happened.append(event)

    def _event(self, guest: Guest, message: Any, happened: list[Event]) -> Event | None:
        match guest.role, message:
            case "worker", NeedFunction():
                self._fetch_function(guest, message.digest)
                return None
            case "worker", Pulse():
                self.pulses[guest.handle] = message.slots
                return None
            case "worker", _:
                return worker_event(message, guest.handle)
            case _, PutFunction():
                waiting = self.functions.put(message.digest, message.body, guest.handle)
                self.outbox.hand_function(message.digest, waiting)
                return None
            case _, OpenJob():
                return self._open(guest, message, happened)
            case _, Ask():
                self._nursery.start_soon(self.desk.answer, guest, message)
                return None
            case _:
                return client_event(message, guest.handle)

    def _open(self, guest: Guest, message: OpenJob, happened: list[Event]) -> Event | None:
        try:
            event = job_event(message, guest.handle, guest.user)
        except BadJob as error:
            reject = RejectJob(message.job[:64], Reason.BAD_REQUEST, f"job refused: {error}")
            self.lobby.post(guest, reject)
            return None
        if self.functions.body(message.function) is None:
            if message.detached:
                reason = "the function of a detached job must be sent before the job"
                self.lobby.post(guest, RejectJob(message.job, Reason.BAD_REQUEST, reason))
                return None
            self.outbox.need_function(guest, message.function)
        if self.broker.remembers(message.job) or self._is_fresh(message):
            return event
        row = self.store.job(message.job)
        if row is None:
            return event
        if row.user != guest.user:
            reason = f"job {message.job} is somebody else's"
        elif row.detached and row.state != "open":
            self.lobby.post(guest, Kept(message.job, row.total or 0, True))
            return None
        elif row.state in ("done", "cancelled") and not message.again:
            reason = f"there was a job {message.job} before: each needs an id of its own"
        else:
            # The client sends again what it misses, and none of that is charged twice.
            happened.append(history_of(self.store, row))
            return event
        self.lobby.post(guest, RejectJob(message.job, Reason.BAD_REQUEST, reason))
        return None

    def _is_fresh(self, message: OpenJob) -> bool:
        """Whether there can't have been a job of this id: the store need not be asked.

        Ids begin with their time. One that was made since we started, by somebody who has not
        opened it before, could only be of a job that ended in this very run.
        """
        made_ms = id_time_ms(message.job)
        is_new = made_ms is not None and made_ms / 1000 > self._started_s
        return is_new and not message.again and not self.broker.has_ended(message.job)

    def _fetch_function(self, worker: Guest, digest: bytes) -> None:
        """A worker lacks a function: send it, or have its client send it."""
        body = self.functions.want(worker.handle, digest)
        if body is not None:
            self.lobby.post(worker, PutFunction(digest, body))
            return
        for job in self.broker.jobs.values():
            client = self.lobby.guests.get(job.client)
            if job.spec.function == digest and client is not None:
                self.outbox.need_function(client, digest)

    def expect(self, event: Event) -> None:
        """Take an event that did not come in by the port (an operator's order)."""
        self._act([event])

    def tell_operator(self, line: str) -> None:
        """Say something where the operator looks."""
        self._say(line)

    def uptime_s(self, guest: Guest) -> float:
        """How long a guest has been here."""
        return round(trio.current_time() - guest.since_s, 1)
