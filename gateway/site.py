"""The running site: the nursery tree that joins port, lobby, broker, store and local grids.

    run
    ├── _receive       frames from the port → lobby → events → broker → outbox
    ├── _watch_pipes   pipes that came, pipes that were closed
    ├── _tick          heartbeats, sessions that ran out, jobs without an owner
    ├── _look_up       one task for each job that the store may know from before
    ├── _forget_old    results that are older than the site keeps them
    ├── desk           one task for each question
    └── LocalGrid.run  one for each local pool

Everything that decides is elsewhere; everything here runs in one thread, and state is whole
between any two awaits. The store's writer thread comes back in through `_stored`.
"""

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import trio
from sqlalchemy.exc import SQLAlchemyError

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
from gateway.config import SiteConfig, python_minor
from gateway.desk import Desk
from gateway.effects import Effect
from gateway.events import Event
from gateway.functions import Functions
from gateway.grids.local import LocalGrid
from gateway.intake import BadJob, BadWorker, client_event, job_event, worker_event, worker_joined
from gateway.ledger.database import READERS
from gateway.ledger.errors import StoreError
from gateway.ledger.records import JobForgotten, Record
from gateway.ledger.store import JobRow, SqlStore
from gateway.lobby import CameIn, Guest, Left, Lobby, News, Said
from gateway.outbox import Outbox
from gateway.recovery import history_of, recovered
from policies.placement import Offer

T = TypeVar("T")

TICK_S: Final = 0.05
SLOW_TICKS: Final = 20  # some things are looked at every so many ticks
# Records waiting for the store, and their bytes, beyond which guests are held until it catches up.
BACKLOG_MAX: Final = 50_000
BACKLOG_BYTES_MAX: Final = 256 << 20
FORGET_S: Final = 60.0  # old results are looked for so often at least
FORGET_JOBS: Final = 100  # in one transaction


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
        # What guests have said that waits for the store, by guest.
        self._held: dict[int, deque[Any]] = {}
        self._looked_up: set[int] = set()  # the guests among them that wait for a look-up
        self._is_behind = False  # the store is, and everybody has to wait
        self._more_results: WeakValueDictionary[str, trio.Event] = WeakValueDictionary()
        self.failed = False
        self._scope: trio.CancelScope | None = None  # of all that serves
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
        # Whoever comes back must not wait for reports: one reader is kept for look-ups.
        self._readers = trio.CapacityLimiter(READERS - 1)
        self._looking_up = trio.CapacityLimiter(1)
        self.config.state_path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = SqlStore(
            self.config.database_url, on_trouble=self._on_trouble, on_fatal=self._on_fatal
        )
        folder = self._folder_for_pools()
        try:
            listen = self._listen_addresses() + (
                (f"ipc://{folder}/gateway.sock",) if folder else ()
            )
            port = NngPort(listen, self._on_pipe_change, self._tls())
        except GridError:
            self.store.close()
            _remove(folder)
            raise
        self._port = port
        self.lobby = Lobby(port, self.config.rules)
        self.outbox = Outbox(
            self.lobby, self.store, self.functions, self._from_thread, self._note_results
        )
        self.desk = Desk(self)
        try:
            self._recover()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._receive)
                nursery.start_soon(self._watch_pipes)
                nursery.start_soon(self._tick)
                if self.config.results_s:
                    nursery.start_soon(self._forget_old)
                for pool in self.config.pools:
                    if pool.kind == "local":
                        address = nearest(port.addresses)
                        grid = LocalGrid(pool, address, self.config.rules.secret, self._say)
                        nursery.start_soon(grid.run)
                self.addresses = port.addresses[: len(self.config.addresses)]
                task_status.started(self.addresses)
        finally:
            self.lobby.goodbye("the gateway stops", trio.current_time())
            try:
                self.store.close()
            finally:
                port.close()
                _remove(folder)

    def _folder_for_pools(self) -> str | None:
        """A folder, ours alone, for a socket that local pools can dial, if all others need TLS."""
        has_pools = any(pool.kind == "local" for pool in self.config.pools)
        if has_pools and nearest(self.config.addresses).startswith("tls+tcp://"):
            return tempfile.mkdtemp(prefix="gridfed-")
        return None

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
            self._catch_up()
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
            if self._scope is not None:  # else it is not serving yet, and won't
                self._scope.cancel()

        self._from_thread(stop)

    def _note_progress(self) -> None:
        """Wake whoever waits for a job to get on."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    def _note_results(self, jobs: Iterable[str]) -> None:
        """Wake whoever waits for results of these jobs."""
        for job in jobs:
            more = self._more_results.pop(job, None)
            if more is not None:
                more.set()

    def results_of(self, job: str) -> trio.Event:
        """What is set when more results of a job, or its end, can be read from the store."""
        return self._more_results.setdefault(job, trio.Event())

    async def read(self, read: Callable[..., T], *arguments: Any) -> T:
        """Read from the store in a thread, in turn: reading may take as long as it likes."""
        return await trio.to_thread.run_sync(read, *arguments, limiter=self._readers)

    async def record(self, *records: Record) -> None:
        """Have the store commit these; return when they are, and all that was written before."""
        done = trio.Event()
        self.store.write(records, False, lambda: self._from_thread(done.set))
        await done.wait()

    async def forget(self, jobs: Sequence[str]) -> None:
        """Drop the results of jobs that have ended; return when they are gone."""
        await self.record(*map(JobForgotten, jobs))
        self._note_results(jobs)

    async def wait_for_progress(self, at_most_s: float) -> None:
        """Return when anything has been stored or told, or after so many seconds."""
        with trio.move_on_after(at_most_s):
            await self._progress.wait()

    async def wait_for_local_pools(self, at_most_s: float) -> list[str]:
        """Return when each local pool has a worker, or after so many seconds: those without."""
        wanted = {pool.name for pool in self.config.pools if pool.kind == "local"}
        with trio.move_on_after(at_most_s):
            while missing := wanted - {each.offer.pool for each in self.broker.workers.values()}:
                await self.wait_for_progress(TICK_S)
        return sorted(missing)

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
            # Always through the poll: asking nng once more whether it is empty costs as much,
            # and this lets every other task run between two batches.
            await trio.lowlevel.wait_readable(self._port.fileno())
            now_s = trio.current_time()
            happened: list[Event] = []
            self._look_behind()
            for pipe, frame in self._port.receive():
                self._take(self.lobby.receive(pipe, frame, now_s), happened)
            self._act(happened)

    def _look_behind(self) -> None:
        store = self.store
        self._is_behind = store.backlog > BACKLOG_MAX or store.backlog_bytes > BACKLOG_BYTES_MAX

    def _catch_up(self) -> None:
        """Hear those who were held because the store was behind, for as long as it no longer is.

        Frames were taken all the while: who is held still shows that he lives, and so do we.
        """
        for handle in [each for each in self._held if each not in self._looked_up]:
            self._look_behind()
            if self._is_behind:
                return
            if handle in self._held:
                happened: list[Event] = []
                self._take_up(self.lobby.guests[handle], happened)
                self._act(happened)

    async def _watch_pipes(self) -> None:
        while True:
            await self._pipes_changed.wait()
            self._pipes_changed = trio.Event()
            self.lobby.pipes_came(self._port.came(), trio.current_time())
            self.lobby.pipes_gone(self._port.gone(), trio.current_time())

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await trio.sleep(TICK_S)
            ticks += 1
            self._catch_up()
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

    async def _forget_old(self) -> None:
        looked_s = 0.0  # what ended before this has been forgotten
        keep_s = self.config.results_s
        while True:
            old_s = time.time() - keep_s
            try:
                while jobs := await self.read(self.store.forgettable, looked_s, old_s, FORGET_JOBS):
                    await self.forget(jobs)
                looked_s = old_s
            except (StoreError, SQLAlchemyError) as error:
                self.tell_store_trouble(error)
            await trio.sleep(min(keep_s, FORGET_S))

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
        self._say(f"worker {guest.name} joined with {guest.about['slots']} slots")

    def _part(self, guest: Guest, reason: str, happened: list[Event]) -> None:
        self._unread.discard(guest.handle)
        for message in self._held.pop(guest.handle, ()):
            if guest.role == "worker":  # what was done before it left is not done again
                self._heed(guest, message, happened)
        if guest.role == "client":
            happened.append(events.ClientGone(guest.handle))
        else:
            happened.append(events.WorkerGone(guest.handle, reason))
            self.functions.forget_worker(guest.handle)
            self.pulses.pop(guest.handle, None)
            self._say(f"worker {guest.name} left: {reason}")

    def _hear(self, guest: Guest, message: Any, happened: list[Event]) -> None:
        if self._is_behind and guest.handle not in self._held:
            self._hold(guest)
        is_question = isinstance(message, Ask) and guest.handle not in self._looked_up
        if guest.handle in self._held and not is_question:
            self._held[guest.handle].append(message)
        else:
            self._heed(guest, message, happened)

    def _heed(self, guest: Guest, message: Any, happened: list[Event]) -> None:
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
                if self.desk.takes(guest, message):
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
        self._hold(guest)
        self._looked_up.add(guest.handle)
        self._nursery.start_soon(self._look_up, guest, message, event)
        return None

    async def _look_up(self, guest: Guest, message: OpenJob, event: Event) -> None:
        """Open a job as the store remembers it; what its client says meanwhile is held."""
        happened: list[Event] = []
        try:
            if not self.broker.trouble:
                await self.record()  # what is on its way there counts too
            found = await trio.to_thread.run_sync(
                self._recall, message.job, limiter=self._looking_up
            )
        except (StoreError, SQLAlchemyError) as error:
            reason = self.tell_store_trouble(error)
            self.lobby.post(guest, RejectJob(message.job, Reason.STORE_TROUBLE, reason))
        else:
            if guest.handle in self.lobby.guests and self._may_open(guest, message, found):
                if found is not None and not self.broker.remembers(message.job):
                    # The client sends again what it misses, and none of that is charged twice.
                    happened.append(found[1])
                happened.append(event)
        self._looked_up.discard(guest.handle)
        if guest.handle in self.lobby.guests:
            self._take_up(guest, happened)
            self._act(happened)

    def _recall(self, job: str) -> tuple[JobRow, Event] | None:
        """A job as the store knows it, and what it was charged; in a thread."""
        row = self.store.job(job)
        return None if row is None else (row, history_of(self.store, row))

    def _may_open(self, guest: Guest, message: OpenJob, found: tuple[JobRow, Event] | None) -> bool:
        """Whether a job that may have been here before may be opened; its client is told if not."""
        if found is None:
            return True
        row, _ = found
        if row.user != guest.user:
            reason = f"job {message.job} is somebody else's"
        elif row.detached and row.state != "open":
            self.lobby.post(guest, Kept(message.job, row.total or 0, True))
            return False
        elif row.state in ("done", "cancelled") and not message.again:
            reason = f"there was a job {message.job} before: each needs an id of its own"
        else:
            return True
        self.lobby.post(guest, RejectJob(message.job, Reason.BAD_REQUEST, reason))
        return False

    def _hold(self, guest: Guest) -> None:
        """Let what a guest says from now on wait, and have it send no more than its window."""
        self._held.setdefault(guest.handle, deque())
        self.lobby.hold(guest)

    def _take_up(self, guest: Guest, happened: list[Event]) -> None:
        """Hear what a guest has said while it was held."""
        self.lobby.release(guest)
        for message in self._held.pop(guest.handle, ()):
            if guest.handle in self.lobby.guests:
                self._hear(guest, message, happened)

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

    def tell_store_trouble(self, error: Exception) -> str:
        """Say that the store can't be read, where the operator looks; the sentence."""
        reason = f"the store can't be read: {type(error).__name__}: {error}"[:300]
        self._say(f"store: {reason}")
        return reason

    def uptime_s(self, guest: Guest) -> float:
        """How long a guest has been here."""
        return round(trio.current_time() - guest.since_s, 1)


def nearest(addresses: Sequence[str]) -> str:
    """The address that a worker on this very host dials: a socket file, or else one without TLS."""
    return min(addresses, key=lambda each: (not each.startswith("ipc"), each.startswith("tls")))


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
