"""The running site: the nursery tree that joins port, listener, broker, store and local grids.

    run
    ├── _receive       frames from the port → listener → events → broker → outbox
    ├── _go_on         the rest of that, part by part, while other tasks have their turns
    ├── _watch_pipes   pipes that were closed
    ├── _keep_door     connections that never finish their handshake
    ├── _tick          heartbeats, expired sessions, jobs without an owner
    ├── RuleKeeper.run planned changes of the rules
    ├── watch          alerts, where some are configured
    ├── watch_credit   debts of other sites, where they have a limit
    ├── CapacityRecorder.run  the slots that there were, for the books
    ├── Meters.run     the carbon intensity of the pools' electricity, where that changes
    ├── desk           one task for each question that has to wait for the store
    ├── LocalGrid.run  one for each local pool
    ├── EnginePool.run one for each pool of a delegating grid
    └── PoolController.run  one for each pool whose workers a grid starts

All decisions are made elsewhere. This module runs in one thread, and state is consistent between
any two awaits. The store's writer thread calls back in through `_from_thread`.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.address import OTHERS_MAX, is_home
from federation.clocks import UtcS
from federation.errors import GridError
from federation.messages.messages import Ask
from federation.messages.wire import Maps
from federation.sessions.task_passes import WORKER
from federation.transport import Port, TlsSettings
from federation.words import count
from gateway.alerts.watch import Watch
from gateway.api import federation_desk
from gateway.api.budgets_desk import watch_credit
from gateway.api.context import BadQuestion
from gateway.api.desk import Desk
from gateway.api.rule_keeper import RuleKeeper
from gateway.base.clocks import mono_now
from gateway.base.faults import describe_fault
from gateway.base.store_lookup import T
from gateway.base.values import ConfigError
from gateway.carbon.meters import Meters
from gateway.config.environments import OWN_USER, TAKES_NONE
from gateway.config.federation import FederationConfig
from gateway.config.site import SiteConfig, make_folder
from gateway.contracts.exchange import Exchange
from gateway.contracts.model.moved import MovedObject
from gateway.grids.kinds import Installed
from gateway.grids.local import LocalGrid
from gateway.grids.scaling.opening import open_controllers, open_engine_pools
from gateway.grids.scaling.pool_controller import PoolController
from gateway.ledger.db.database import READERS
from gateway.ledger.db.errors import StoreError, trouble_text
from gateway.ledger.db.jobs.records import JobForgotten
from gateway.ledger.db.records import Record
from gateway.ledger.store.store import Store
from gateway.ledger.store.waiting import open_patiently
from gateway.logs.task_logs import TaskLogs
from gateway.objects.bulk.carrier_process import CarrierProcess, CarrierSettings
from gateway.objects.bulk.office import moved_record
from gateway.objects.keeper import ObjectKeeper, host_bytes
from gateway.peering.bulk_addresses import BulkAddresses
from gateway.peering.gossip_loop import GossipLoop
from gateway.peering.message_router import MessageRouter
from gateway.peering.neighbours import FederationSide
from gateway.peering.object_transfers import ObjectTransfers
from gateway.peering.peers import open_federation
from gateway.runtime.capacity_recorder import CapacityRecorder
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.making import Seat
from gateway.runtime.object_books import SiteObjectBooks
from gateway.runtime.outbox import Pieces
from gateway.runtime.server import SLOW_TICKS, GatewayServer
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.events import Event
from gateway.sessions.doorkeeper import keep_door
from gateway.sessions.links import ApprovalEnded, LinkNews
from gateway.sessions.listener import News, PeerSession, SessionListener
from gateway.sessions.peer_sessions import TICK_S, PipeWatch
from gateway.sessions.token_bucket import TokenBucket
from gateway.settlement.context import SettlementContext
from gateway.settlement.reconciler import Reconciler
from gateway.trust.ticket_signer import TicketSigner
from policies.parties import Owner

FORGET_S: Final = 60.0  # old results are looked for so often at least
FORGET_JOBS: Final = 100  # in one transaction
ROLL_UP_S: Final = 3_600.0  # the books are searched for old details so often
ROLL_UP_PAUSE_S: Final = 0.1
SOCKET: Final = "gateway.sock"  # in the folder for local pools
STORE_AGAIN_S: Final = 0.5  # pause before an unreadable store is read again
RETURNING: Final = 2.0  # objects wait for the clients of the last run as often as grace_s
DOOR_LOOK_S: Final = 1.0
DOOR_LINE_S: Final = 60.0  # strangers can lengthen the log by one line in this time


OpenFederation = Callable[..., FederationSide | None]


class Site:
    """One gateway. `run` serves until cancelled; `say` takes lines for the operator.

    `open_federation` returns its side in a federation, or None for a single site.
    """

    server: GatewayServer  # from `_open` on
    store: Store  # from `run` on

    def __init__(
        self,
        config: SiteConfig,
        say: Callable[[str], None],
        runtime: RuntimeEnvironment | None = None,
        open_federation: OpenFederation = open_federation,
    ) -> None:
        self.config = config
        self._say = say
        self.runtime = runtime or RuntimeEnvironment()
        self.keeper = RuleKeeper(self, Installed(), say)
        self.local_grids: list[LocalGrid] = []
        self.controllers: list[PoolController] = []  # of the pools whose workers grids start
        self.failed = False
        self.logs: TaskLogs | None = None  # None where no output of tasks is kept
        self.objects: ObjectKeeper | None = None  # only where slots are on this host
        if any(pool.kind == "local" for pool in config.pools):
            self.objects = ObjectKeeper(
                lambda session: session in self.listener.peers,
                self._owner_of,
                self.runtime.utc_s,
                say,
                config.objects.room(host_bytes()),
                config.state_path,
                RETURNING * config.rules.grace_s,
                SiteObjectBooks(self),
            )
        self.transfers: ObjectTransfers | None = None  # of objects, where they move
        self._carrier: CarrierProcess | None = None
        self._scope: trio.CancelScope | None = None  # of all that serves
        self._more_results: WeakValueDictionary[str, trio.Event] = WeakValueDictionary()
        self._more_output: WeakValueDictionary[str, trio.Event] = WeakValueDictionary()
        self.addresses: list[str] = []
        self._handles = itertools.count(1)
        self._router: MessageRouter | None = None
        self.reconciler: Reconciler | None = None
        self.peers: FederationSide | None = open_federation(
            config, self._handles, self._hear_peers, self._hear_link, self._heard_all, say
        )

    @property
    def broker(self) -> Broker:
        """The broker, which makes this site's decisions."""
        return self.server.broker

    @property
    def exchange(self) -> Exchange:
        """This site's dealings with other sites."""
        return self.server.exchange

    @property
    def gossip(self) -> GossipLoop | None:
        """The federation as this site sees it; None for a single site."""
        return self._router.gossip if self._router is not None else None

    @property
    def listener(self) -> SessionListener:
        """The present peers."""
        return self.server.listener

    @property
    def pulses(self) -> dict[int, Maps]:
        """The latest reports of workers about their slots, by handle."""
        return self.server.pulses

    async def run(self, *, task_status: trio.TaskStatus[list[str]]) -> None:
        """Open the store and the port, take up the state of the last run, and serve.

        `task_status` is told the addresses once the site is ready. Raises StoreError or
        AddressError when the database or an address can't be used, GridError when a series of
        intensities can't.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._progress = trio.Event()
        self._unfinished = trio.Event()
        self._pipe_watch = PipeWatch()
        # Returning peers must not wait for reports: one reader is kept for look-ups.
        self._readers = trio.CapacityLimiter(READERS - 1)
        self._looking_up = trio.CapacityLimiter(1)
        under = self.runtime
        # Before anything is opened: a series may be broken.
        folder_of_carbon = self.config.state_path / "carbon"
        meters = Meters(self.config.pools, folder_of_carbon, under.utc_s, self._say)
        self.store = await open_patiently(self._open_store, self.config.database_wait_s, self._say)
        try:
            await self._take_up_rules()
        except (GridError, trio.Cancelled):
            self.store.close()
            raise
        self.logs = under.open_logs(self.config, self._say_from_thread)
        folder = self._folder_for_pools()
        try:
            listen = self._listen_addresses() + ((f"ipc://{folder}/{SOCKET}",) if folder else ())
            port = under.open_port(listen, self._pipe_watch.note, self._tls())
            self._open_door(folder)
        except GridError:
            self._close_files()
            _remove(folder)
            raise
        self._port, self._folder = port, folder
        self.desk = Desk(self, self.keeper)
        self.recorder = CapacityRecorder(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._scope = nursery.cancel_scope
                if self.peers is not None:
                    await nursery.start(self.peers.run)
                # No await from here on to the end of `_open`: no peer can have said anything yet.
                self._open(port)
                self.addresses = port.addresses[: len(self.config.addresses)]
                nursery.start_soon(self._receive)
                nursery.start_soon(self._go_on)
                nursery.start_soon(self._watch_pipes)
                nursery.start_soon(self._keep_door)
                nursery.start_soon(self._tick)
                for event in meters.news():  # before anything has run
                    self.expect(event)
                nursery.start_soon(meters.run, self.expect)
                self._start_looking_after(nursery)
                self._start_pools(nursery, port)
                task_status.started(self.addresses)
        finally:
            if hasattr(self, "server"):
                self.server.goodbye("the gateway is shutting down")
                self.recorder.close()
            try:
                self._close_files()
            finally:
                port.close()
                _remove(folder)

    def _close_files(self) -> None:
        if self.logs is not None:
            self.logs.close()
        self.store.close()

    def _open_store(self) -> Store:
        return self.runtime.open_store(
            self.config, on_trouble=self._on_trouble, on_fatal=self._on_fatal
        )

    async def _take_up_rules(self) -> None:
        """Go on by the rules in the database, with what has changed in the file. GridError."""
        try:
            found = await self.runtime.read(self.keeper.open, self.store.rules)
        except ConfigError as error:
            raise GridError(str(error)) from None
        self.config, records = found
        if records:
            kept = trio.Event()
            self.store.write(records, True, lambda: self._token.run_sync_soon(kept.set))
            await kept.wait()

    def _start_looking_after(self, nursery: trio.Nursery) -> None:
        """Start the tasks that look after books and people."""
        if self.reconciler is not None:
            nursery.start_soon(self.reconciler.run)
        nursery.start_soon(self.recorder.run)
        if self.objects is not None:
            self.objects.look()
            nursery.start_soon(self.objects.run)
            if self.transfers is not None and self._carrier is not None:
                nursery.start_soon(self._run_carrier, self.objects, self._carrier)
                nursery.start_soon(self.transfers.run)
        nursery.start_soon(self.keeper.run)
        if self.config.results_s:
            nursery.start_soon(self._forget_old)
        if self.config.alerts.watched:
            nursery.start_soon(self.watch.run)
        if self.config.books.detail_days:
            nursery.start_soon(self._roll_up)
        if self.config.credit:
            nursery.start_soon(watch_credit, self)

    def _start_pools(self, nursery: trio.Nursery, port: Port) -> None:
        """Start the workers of pools. Raises GridError where a grid can't be used."""
        for pool in self.config.pools:
            if pool.kind == "local":
                address = nearest(port.addresses)
                if self.config.federation is not None and not pool.takes_others:
                    self._say(f"pool {pool.name}: {TAKES_NONE}")
                credential = str(self.server.task_passes.give(WORKER))
                door = f"ipc://{self._folder}/{SOCKET}" if self._has_slot_users else ""
                assert self.objects is not None
                grid = LocalGrid(
                    *(pool, address, credential, self._say, door, self.objects.for_agents),
                    *(self._has_worker, self.config.rules.grace_s),
                )
                self.local_grids.append(grid)
                nursery.start_soon(self._run_local, grid)
        for engine_pool in open_engine_pools(self.config, nearest(port.addresses), self._say):
            nursery.start_soon(engine_pool.run)
        self.controllers = open_controllers(
            *(self.config, self.addresses, self.broker),
            expect=self.expect,
            utc_s=self.runtime.utc_s,
            say=self._say,
            reprice=self.server.reprice,
        )
        for controller in self.controllers:
            nursery.start_soon(controller.run)

    def _has_worker(self, name: str) -> bool:
        """Whether a worker of this name has a session."""
        peers = self.listener.peers.values()
        return any(each.role == "worker" and each.name == name for each in peers)

    def _owner_of(self, job: str) -> tuple[str, str] | None:
        found = self.broker.jobs.get(job)
        return None if found is None else (found.spec.user, found.spec.scope)

    async def _run_local(self, grid: LocalGrid) -> None:
        """Run a local pool: its tasks may refer to objects of a gateway that was lost."""
        assert self.objects is not None
        await self.objects.settled()
        await grid.run()

    def _folder_for_pools(self) -> str | None:
        """Return a folder for a socket for local pools; private, unless slots have own users.

        None if they can dial a configured address, which demands neither TLS nor a token.
        """
        has_pools = any(pool.kind == "local" or pool.is_delegated for pool in self.config.pools)
        near = nearest(self.config.addresses)
        needs_token = self.config.token_required and not is_home(near)
        is_needed = has_pools and (needs_token or near.startswith("tls+tcp://"))
        if is_needed or self._has_slot_users:
            return tempfile.mkdtemp(prefix="gridfed-")
        return None

    @property
    def _has_slot_users(self) -> bool:
        """Whether slots may run as other users, which can't reach a socket in private folders."""
        users = {pool.user for pool in self.config.pools if pool.kind == "local"}
        return os.geteuid() == 0 and bool(users - {OWN_USER})

    def _open_door(self, folder: str | None) -> None:
        """Let slots of other users reach the local pools' socket: each must prove its identity."""
        if folder is not None and self._has_slot_users:
            Path(folder, SOCKET).chmod(0o666)
            Path(folder).chmod(0o711)

    def _open(self, port: Port) -> None:
        """Put the deciding parts together, and take up the state of the last run."""
        under, peers = self.runtime, self.peers
        seat = peers.seat if peers is not None else Seat(handles=self._handles)
        self.server = GatewayServer(
            self.config,
            port,
            self.store,
            runtime=under,
            seat=seat,
            on_stored=self._from_thread,
            ask=self._ask,
            say=self._say,
            recall=self._recall,
            on_results=self._note_results,
            on_unfinished=self._note_unfinished,
            keep_output=self._keep_output if self.logs is not None else None,
            objects=self.objects,
        )
        self.listener.set_others(list(self.config.others))
        if peers is not None:
            self._router = MessageRouter(
                *(peers, self.server, under, self._say),
                lambda router: self._open_books(peers, router),
            )
            if self.objects is not None and seat.ticket_signer is not None:
                ways = BulkAddresses(self._bulk_of, peers.directory.addresses_of)
                self._open_transfers(self.objects, seat.ticket_signer, self._router, ways)
        self.watch = Watch(
            self.config.alerts,
            self.config.name,
            self.store,
            read=self.read,
            record=self.record,
            prices=lambda: federation_desk.prices(self),
            say=self._say,
            utc_s=under.utc_s,
        )
        self.server.recover()

    def _open_transfers(
        self,
        objects: ObjectKeeper,
        signer: TicketSigner,
        router: MessageRouter,
        ways: BulkAddresses,
    ) -> None:
        """Let objects move between this site and others."""
        federation = self.config.federation or FederationConfig()
        carrier = self._carrier = CarrierProcess(
            CarrierSettings(
                self.config.name,
                federation.bulk_listen,
                federation.bulk_advertise,
                str(self.config.trust_path),
                self.config.objects.room(host_bytes()).memory,
            ),
            signer.own_keys,
            objects.for_agents,
            self._say,
        )
        self.transfers = ObjectTransfers(
            *(router, self.server, objects, carrier, signer, ways),
            self.runtime.utc_s,
            self._book_moved,
            self._say,
        )
        router.transfers = self.transfers
        self.server.on_pull = self.transfers.pull
        objects.on_lost = self.exchange.sales.objects_lost
        self.exchange.moves.open(
            lambda: bool(carrier.address),
            self.transfers.why_ours_stay,
            lambda: self.config.objects.move_prices(),
            objects.catalogue.bytes_for,
        )

    def _bulk_of(self, site: str) -> str:
        advert = self.exchange.market.advert(site)
        return advert.bulk if advert is not None else ""

    def _book_moved(self, fact: MovedObject) -> None:
        """Book an object that has come to this site at no cost."""
        if fact.to == self.config.name and fact.moved_bytes:
            books, utc_s = SiteObjectBooks(self), self.runtime.utc_s()
            terms = books.terms()
            group = terms.group_of(fact.user)
            books.book([moved_record(fact, utc_s, terms.price.currency, group)])

    async def _run_carrier(self, objects: ObjectKeeper, carrier: CarrierProcess) -> None:
        await objects.settled()
        await carrier.run()

    def _open_books(self, peers: FederationSide, router: MessageRouter) -> Reconciler:
        """Open the comparison of our books with other sites', which sends by the router."""
        self.reconciler = Reconciler(
            SettlementContext(
                self.config.books,
                self.store,
                self.read,
                self.harden,
                router,
                is_live=self.exchange.purchases.purchases.__contains__,
                is_partner=lambda name: name in peers.registry.approved,
                note_settled=self.exchange.note_settled,
                settled_ms=self.exchange.settled_ms,
                utc_s=self.runtime.utc_s,
                say=self._say,
                older=peers.older_books,
                note_paid=self._note_paid,
            )
        )
        return self.reconciler

    def _note_paid(self, site: str) -> None:
        """Ask a seller again at once that refused for our debt, as it has booked a payment."""
        self.exchange.paid(site)
        self._note_progress()

    def _hear_peers(self, news: list[News]) -> None:
        """Take news of the sessions that other sites have dialled."""
        assert self._router is not None
        self._router.hear_peers(news)
        self._note_progress()

    def _hear_link(self, news: LinkNews) -> None:
        """Take news of the sessions that this site dials."""
        assert self._router is not None
        self._router.hear_link(news)
        if isinstance(news, ApprovalEnded) and self._carrier is not None:
            cut = partial(self._carrier.cut, news.site, news.reason, self.runtime.utc_s())
            self._nursery.start_soon(cut)

    def _heard_all(self) -> None:
        """Note that all news of one batch on the dialled sessions has been taken."""
        assert self._router is not None
        self._router.heard_all()
        self._note_progress()

    def _listen_addresses(self) -> tuple[str, ...]:
        for address in self.config.addresses:
            if address.startswith("ipc://"):
                # The folder is for its owner alone: the socket admits every process that reaches
                # it.
                make_folder(Path(address.removeprefix("ipc://")).parent)
        return self.config.addresses

    def _tls(self) -> TlsSettings:
        return TlsSettings(
            self.config.tls_certificate_file or None, self.config.tls_ca_file or None
        )

    # --- news from other threads ---------------------------------------------------------------

    def _from_thread(self, call: Callable[[], None]) -> None:
        """Run a call in the site's own thread, soon, and send what it posted."""

        def run_and_flush() -> None:
            call()
            self.nudge()

        try:
            self._token.run_sync_soon(run_and_flush)
        except trio.RunFinishedError:
            return  # the site has stopped; no peer is left to be told

    def _say_from_thread(self, line: str) -> None:
        self._from_thread(lambda: self._say(line))

    def nudge(self) -> None:
        """Send posted or newly stored messages, and wake the tasks that wait for them."""
        self.server.catch_up()
        self.server.flush()
        self._note_progress()

    def _on_trouble(self, reason: str | None) -> None:
        def note() -> None:
            self.broker.note_trouble(reason or "", self.runtime.mono_s())
            self._say(f"store: {reason}" if reason else "store: works again")

        self._from_thread(note)

    def _on_fatal(self, error: BaseException) -> None:
        def stop() -> None:
            self.failed = True
            self._say(
                f"store: {error}: the gateway is shutting down, because its database can't be "
                "written"
            )
            if self._scope is not None:  # else it is not serving yet, and won't
                self._scope.cancel()

        self._from_thread(stop)

    def take_in(self, config: SiteConfig, used_ns: Mapping[Owner, int]) -> None:
        """Adopt the windows, prices and shares of another configuration: see GatewayServer."""
        self.config = config
        self.server.take_in(config, used_ns)
        pools = {pool.name: pool for pool in config.pools}
        for controller in self.controllers:
            controller.take_in(pools[controller.pool.name])

    async def reload_on_hangup(self) -> None:
        """Reload the configuration file as `gridfed reload` does; log the result."""
        if not self.addresses:
            self._say("SIGHUP: the gateway is starting: nothing was reloaded")
            return
        try:
            found = await self.desk.reload_from_file("", is_dry=False)
        except (BadQuestion, StoreError, SQLAlchemyError) as error:
            self._say(f"SIGHUP: {error}")
            return
        for each in found["warnings"]:
            self._say(f"SIGHUP: warning: {each}")
        for each in found["later"]:
            self._say(f"SIGHUP: takes effect after a restart: {each}")

    def _note_progress(self) -> None:
        """Wake all tasks that wait for progress of a job."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    def _ask(self, peer: PeerSession, question: Ask) -> None:
        if self.desk.takes(peer, question):
            self._nursery.start_soon(self.desk.answer, peer, question)

    def _recall(self, find: Callable[[], T], then: Callable[[T | str], None]) -> None:
        async def look_up() -> None:
            found: T | str
            try:
                found = await self._look_up(find)
            except (StoreError, SQLAlchemyError) as error:
                found = self.tell_store_trouble(error)
            then(found)

        self._nursery.start_soon(look_up)

    async def _look_up(self, find: Callable[[], T]) -> T:
        """Read from the store; retry an unreadable one for as long as jobs are still taken.

        Raises StoreError or SQLAlchemyError after that.
        """
        until_s = self.runtime.mono_s() + self.broker.limits.store_wait_s
        while True:
            await self._catch_up_store()  # queued writes count too
            try:
                async with self._looking_up:
                    found: T = await self.runtime.read(find)
                    return found
            except (StoreError, SQLAlchemyError):
                if self.runtime.mono_s() >= until_s:
                    raise
            await trio.sleep(STORE_AGAIN_S)

    async def _catch_up_store(self) -> None:
        """Return when all earlier writes are in the store."""
        done = trio.Event()
        self.store.write((), False, lambda: self._from_thread(done.set))
        while not done.is_set():
            if self.broker.is_stuck(self.runtime.mono_s()):
                raise StoreError(self.broker.trouble)
            with trio.move_on_after(STORE_AGAIN_S):
                await done.wait()

    def _note_unfinished(self) -> None:
        self._unfinished.set()

    def _note_results(self, jobs: Iterable[str]) -> None:
        """Wake all tasks that wait for results of these jobs."""
        for job in jobs:
            for waiting in (self._more_results, self._more_output):
                more = waiting.pop(job, None)
                if more is not None:
                    more.set()

    def results_of(self, job: str) -> trio.Event:
        """Return an event that is set when more results of a job, or its end, can be read."""
        return self._more_results.setdefault(job, trio.Event())

    def _keep_output(self, job: str, pieces: Pieces) -> None:
        """Keep output of a job's tasks, and wake all tasks that wait for it."""
        assert self.logs is not None
        self.logs.add(job, self.runtime.utc_s(), pieces)
        more = self._more_output.pop(job, None)
        if more is not None:
            more.set()

    def output_of(self, job: str) -> trio.Event:
        """Return an event that is set when more output of a job is kept, or it has ended."""
        return self._more_output.setdefault(job, trio.Event())

    async def wait_for_results(self, more: trio.Event, at_most_s: float) -> None:
        """Return when an event of `results_of` or `output_of` is set, or after so many seconds."""
        with trio.move_on_after(at_most_s):
            await more.wait()

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the store, in turn: a read may take as long as it likes."""
        async with self._readers:
            return await self.runtime.read(query, *arguments)

    async def record(self, *records: Record, durable: bool = False) -> None:
        """Write records to the store; return when they, and all earlier writes, are committed."""
        done = trio.Event()
        if self.broker.budget_accounts.has_credit:
            for each in records:
                self.broker.budget_accounts.note(each)
        self.store.write(records, durable, lambda: self._from_thread(done.set))
        await done.wait()

    async def harden(self, *records: Record) -> None:
        """Write records like `record`, safe from a power cut."""
        await self.record(*records, durable=True)

    async def forget(self, jobs: Sequence[str]) -> None:
        """Drop the results of jobs that have ended; return when they are gone."""
        await self.record(*map(JobForgotten, jobs))
        if self.logs is not None:
            self.logs.forget(jobs)
        self._note_results(jobs)

    async def wait_for_progress(self, at_most_s: float) -> None:
        """Return when anything has been stored or told, or after so many seconds."""
        with trio.move_on_after(at_most_s):
            await self._progress.wait()

    async def wait_for_local_pools(self, at_most_s: float) -> list[str]:
        """Wait until each local pool has a worker, or so many seconds; return those without."""
        wanted = {pool.name for pool in self.config.pools if pool.kind == "local"}
        with trio.move_on_after(at_most_s):
            while missing := wanted - {each.offer.pool for each in self.broker.workers.values()}:
                await self.wait_for_progress(TICK_S)
        return sorted(missing)

    async def wind_up(self, at_most_s: float) -> None:
        """Take back unstarted tasks, wait so long for running ones, and say goodbye.

        Results that come meanwhile still reach their clients; tasks that run on after that are
        lost.
        """
        if not self.addresses:
            return
        for handle in list(self.broker.workers):
            self.expect(events.DrainAsked(handle, on=True))
            await trio.lowlevel.checkpoint()  # one of thousands of workers a turn of the loop
        with trio.move_on_after(at_most_s):
            while self._is_busy():
                await self.wait_for_progress(TICK_S)
        # Now, so that local workers don't wait for the gateway to hear their own goodbye.
        self.listener.goodbye("the gateway is shutting down", mono_now())

    def _is_busy(self) -> bool:
        """Whether work is in flight, or connected peers have not received all messages."""
        peers = self.listener.peers.values()
        return (
            self.store.backlog > 0
            or any(job.in_flight for job in self.broker.jobs.values())
            or any(peer.pipe is not None and not peer.session.is_idle for peer in peers)
        )

    # --- the loops -----------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            # Always through the poll: asking nng once more whether it is empty costs as much, and
            # this lets every other task run between two batches.
            await trio.lowlevel.wait_readable(self._port.fileno())
            self.server.take_frames(self._port.receive())
            self._note_progress()  # a small commit is done by now, without the store's thread

    async def _go_on(self) -> None:
        while True:
            await self._unfinished.wait()
            # A checkpoint lets all other tasks run: `_receive`, `_tick`, the desk's answers.
            await trio.lowlevel.checkpoint()
            self._unfinished = trio.Event()
            self.server.go_on()
            self._note_progress()

    async def _watch_pipes(self) -> None:
        while True:
            await self._pipe_watch.wait()
            self.server.pipes_came(self._port.came())
            self.server.pipes_gone(self._port.gone())

    async def _keep_door(self) -> None:
        rules = self.config.rules
        doorkeeper = keep_door(
            [self._port], most=rules.strangers_max, most_of_host=rules.host_strangers_max
        )
        lines, shut = TokenBucket(1 / DOOR_LINE_S, mono_now()), 0
        while doorkeeper is not None:
            await trio.sleep(DOOR_LOOK_S)
            shut += await doorkeeper.look()
            mono_s = mono_now()
            if shut and lines.allows(mono_s):
                lines.note(mono_s)
                self._say(f"{count(shut, 'connection')} without a handshake were closed")
                shut = 0

    async def _tick(self) -> None:
        for ticks in itertools.count():
            await trio.sleep(TICK_S)
            if self.server.tick():
                self._note_progress()
            if ticks % SLOW_TICKS == 0:
                self.recorder.look()
            if self._router is not None:
                self._router.tick()
                if ticks % SLOW_TICKS == 0:
                    self._set_others(self._router.gossip.doors)

    async def _forget_old(self) -> None:
        looked_s = UtcS(0.0)  # jobs that ended before this have been forgotten
        keep_s = self.config.results_s
        while True:
            old_s = self.runtime.utc_s() - keep_s
            try:
                while jobs := await self.read(
                    self.store.jobs.forgettable, looked_s, old_s, FORGET_JOBS
                ):
                    await self.forget(jobs)
                looked_s = old_s
                if self.logs is not None:  # an attached job has no results that are forgotten
                    self.logs.forget_silent(old_s, self.broker.jobs.keys())
            except (StoreError, SQLAlchemyError) as error:
                self.tell_store_trouble(error)
            await trio.sleep(min(keep_s, FORGET_S))

    async def _roll_up(self) -> None:
        keep_s = self.config.books.detail_days * 86_400
        wait_s = ROLL_UP_PAUSE_S
        while True:
            await trio.sleep(wait_s)
            wait_s = ROLL_UP_S
            try:
                if await self.read(self.store.roll_up, self.runtime.utc_s(), keep_s):
                    wait_s = ROLL_UP_PAUSE_S  # there is more, and other tasks want to write, too
            except (StoreError, SQLAlchemyError) as error:
                self.tell_store_trouble(error)

    # --- for the desk --------------------------------------------------------------------------

    def expect(self, event: Event) -> None:
        """Take an event that did not come in by the port (an operator's order)."""
        self.server.expect(event)
        self._note_progress()

    def _set_others(self, doors: Iterable[str]) -> None:
        """Tell clients which other gateways they can use: the configured first, then these.

        At most OTHERS_MAX; the rest is left out.
        """
        both = dict.fromkeys((*self.config.others, *doors))
        self.listener.set_others(list(both)[:OTHERS_MAX])
        self.listener.flush(mono_now())

    def tell_store_trouble(self, error: Exception) -> str:
        """Log that the store can't be read, and return the sentence."""
        reason = trouble_text(error)
        self._say(f"store: {reason}")
        return reason

    def tell_fault(self, where: str, error: Exception) -> None:
        """Log a fault of the gateway, and go on."""
        self._say(describe_fault(where, error))

    def uptime_s(self, peer: PeerSession) -> float:
        """Return how long a peer has been here."""
        return round(mono_now() - peer.since_s, 1)


def nearest(addresses: Sequence[str]) -> str:
    """Return the address for a worker on this host: a socket file, or else one without TLS."""
    return min(addresses, key=lambda each: (not each.startswith("ipc"), each.startswith("tls")))


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
