"""A gateway in virtual time: the real gateway server, listener, broker, outbox and desk on the
heap.

Callbacks replace the loops of gateway.site; `_go_on` resumes the desk's coroutines after their
waits.
"""

import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from federation.clocks import UtcS
from federation.errors import GridError
from federation.messages import messages
from federation.messages.messages import Ask
from gateway.api import books_desk
from gateway.api.desk import Desk
from gateway.api.rule_keeper import RuleKeeper
from gateway.base.store_lookup import T
from gateway.config.pools import NO_GRIDS
from gateway.config.site import PoolConfig, SiteConfig
from gateway.ledger.db import records
from gateway.peering.gossip_loop import GossipLoop
from gateway.peering.message_router import MessageRouter
from gateway.runtime.capacity_recorder import CapacityRecorder
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.making import Seat
from gateway.runtime.server import GatewayServer
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import (
    Effect,
    Expel,
    PeerSide,
    SendToClient,
    SendToWorker,
    Write,
)
from gateway.scheduler.model.events import Event
from gateway.scheduler.model.ports import PortKind
from gateway.sessions.links import LinkNews
from gateway.sessions.listener import News, PeerSession, SessionListener
from gateway.sessions.peer_sessions import TICK_S
from gateway.settlement.context import SettlementContext
from gateway.trust.grant_signer import KeyGrantSigner
from simulations.world.host import Ground, SimHost
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore
from simulations.world.network import SimPort
from simulations.world.peers import SimPeers, SimRoll, roll_of
from simulations.world.plan import SitePlan
from simulations.world.reconciler import SimReconciler
from simulations.world.waits import AnyProgress, Stored

# All pools are alike, so that carbon is booked and checked everywhere, and decides nothing.
G_PER_KWH, SLOT_WATTS = 250.0, 12.0

# Reading is not simulated: a query of the desk takes no time.


async def read_now(query: Callable[..., Any], *args: Any) -> Any:
    """Query the store synchronously."""
    return query(*args)


class Ear(Protocol):
    """An observer of a gateway's decisions and messages."""

    def decided(self, effects: Sequence[Effect]) -> None:
        """Take effects that are about to be performed, in order."""

    def told(self, message: Any) -> None:
        """Take a message that leaves for a client, a worker or another site."""


class SimMember(SimHost):
    """The base of simulated gateways: a configuration, a disk, and observers."""

    def __init__(self, ground: Ground, plan: SitePlan) -> None:
        super().__init__(ground, plan.name, skew_s=plan.skew_s, drift=plan.drift)
        self.plan = plan
        self.disk = Disk()
        self.ears: list[Ear] = []
        self.commit_s: float | None = None  # while its disk is slow
        self.config = SiteConfig(
            name=plan.name,
            listen=(f"memory://{plan.name}",),
            rules=plan.rules,
            pools=tuple(PoolConfig(each.name, "remote", 0, 0, each.price, each.tags,
                                   carbon_g_per_kwh=G_PER_KWH, slot_watts=SLOT_WATTS,
                                   plan=each.windows)
                        for each in plan.pools),
            deals=plan.deals,
            preferences=plan.preferences,
            books=plan.books,
            fair_share=plan.fair_share,
            reservations=plan.reservations,
            budgets=plan.budgets,
            entitlements=plan.entitlements,
        )  # fmt: skip

    @property
    def server(self) -> GatewayServer | None:
        """The running gateway, or None."""
        raise NotImplementedError

    @property
    def older_books(self) -> list[str]:
        """Why this gateway takes its books for an old copy, by partner."""
        raise NotImplementedError

    @property
    def gossip(self) -> GossipLoop | None:
        """The federation as this gateway sees it; None for a single site, or a dead one."""
        return None

    def order(self, verb: str, details: Mapping[str, Any]) -> None:
        """Queue an order about the books (gateway.api.books_desk)."""
        raise NotImplementedError

    async def obey(self, site: Any, verb: str, details: Mapping[str, Any]) -> None:
        """Carry out an order; log a failure as an operator would read it."""
        try:
            await books_desk.ORDERS[verb](site, details)
        except GridError as error:
            self.note(f"can't {verb}", str(error))

    def open_store(self, settled: Callable[[], None] = lambda: None) -> MemoryStore:
        """Open a store on this host's disk."""
        return MemoryStore(self.disk, self.after, self._commit_s, settled)

    def _commit_s(self, durable: bool) -> float:
        if self.commit_s is not None:
            return self.commit_s
        return self.plan.sync_s if durable else self.plan.commit_s

    def next_boot(self) -> int:
        """Store the number of this run of the site before use, as gateway.trust.keys.next_boot."""
        self.disk.boot = max(self.disk.boot + 1, int(self.utc_s()))
        return self.disk.boot

    def watch(self, server: GatewayServer) -> None:
        """Trace a gateway's events, decisions and messages, unknown to it."""
        self._watch_broker(server.broker)
        if self.ears:
            self._listen(server)

    def _watch_broker(self, broker: Broker) -> None:
        handle, settle = broker.handle, broker.settle

        def handled(event: Event, utc_s: UtcS) -> list[Effect]:
            self._note_event(event)
            effects = handle(event, utc_s)
            self._note_effects(effects)
            return effects

        def settled(utc_s: UtcS) -> list[Effect]:
            effects = settle(utc_s)
            self._note_effects(effects)
            return effects

        vars(broker).update(handle=handled, settle=settled)

    def _listen(self, server: GatewayServer) -> None:
        outbox, listener = server.outbox, server.listener
        peers: Any = outbox.peers
        perform, post = outbox.perform, listener.post

        def performed(effects: Iterable[Effect]) -> list[Expel]:
            found = list(effects)
            for ear in self.ears:
                ear.decided(found)
            return perform(found)

        def posted(peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
            self._told(message)
            post(peer, message, urgent=urgent)

        vars(outbox).update(perform=performed)
        vars(listener).update(post=posted)
        if peers is not None:
            carry = peers.carry

            def carried(site: str, side: PeerSide, message: Any) -> None:
                self._told(message)
                carry(site, side, message)

            vars(peers).update(carry=carried)

    def _told(self, message: Any) -> None:
        for ear in self.ears:
            ear.told(message)

    def _note_event(self, event: Event) -> None:
        add, host = self.trace.add, self.name
        match event:
            case events.WorkerGone(worker, reason) if self._is_contract(worker):
                self._note_lapse(worker, reason)
            case events.TasksArrived(client, job, first, arguments):
                add(host, "takes", job, (first, first + len(arguments)), f"from {client}")
            case events.Reported(worker, number, first, values):
                assignment = self._assignment(worker, number)
                job = assignment.job.id if assignment else "?"
                note = f"from {worker} of {number}{'' if assignment else ', closed'}"
                add(host, "is reported", job, (first, first + len(values)), note)
            case events.HandedBack(worker, number, ranges):
                assignment = self._assignment(worker, number)
                for span in ranges if assignment else ():
                    add(host, "gets back", assignment.job.id, span, f"of {number}")
            case events.JobOpened(client, job) | events.JobClosed(client, job):
                add(host, type(event).__name__, job, note=f"by {client}")
            case events.CancelAsked(client, _, job, ranges, kill):
                note = f"{ranges} kill={kill} by {client}"
                add(host, "is asked to cancel", job, note=note, data=event)
            case events.JobRecovered(job):
                add(host, "recovers", job)
            case events.Ticked():
                pass
            case _:
                add(host, str(event))

    def _note_lapse(self, worker: int, reason: str) -> None:
        """Trace the end of a contract: its outstanding tasks will be placed again."""
        self.note(f"contract {worker} has ended", reason)
        server = self.server
        bought = server.broker.workers.get(worker) if server else None
        for assignment in bought.assignments.values() if bought else ():
            seller = assignment.worker.name.partition("/")[0]
            for span in assignment.left:
                self.trace.add(self.name, "gives up", assignment.job.id, span, reason, seller)

    def _is_contract(self, worker: int) -> bool:
        known = self.server.broker.workers.get(worker) if self.server else None
        return known is not None and known.port is PortKind.PEER

    def _assignment(self, worker: int, number: int) -> Any:
        server = self.server
        known = server.broker.workers.get(worker) if server else None
        return known.assignments.get(number) if known else None

    def _note_effects(self, effects: list[Effect]) -> None:
        add, host = self.trace.add, self.name
        for effect in effects:
            match effect:
                case SendToWorker(worker, messages.Assign() as message, port):
                    span = (message.first, message.first + len(message.arguments))
                    note = f"{message.assignment} to {worker}"
                    add(host, "assigns", message.job, span, note, (port, worker))
                case SendToWorker(worker, messages.Recall() as message):
                    add(host, "recalls", note=f"{message} from {worker}")
                case Write(records.UsageRecord() as usage):
                    span = (usage.first, usage.first + usage.tasks)
                    note = f"attempt {usage.attempt}, {usage.state}, {usage.cost_nanos} nanos"
                    add(host, "charges", usage.job, span, note, usage)
                case SendToClient(client, messages.Results() as message):
                    span = (message.first, message.first + len(message.values))
                    add(host, "tells results", message.job, span, f"to {client}")
                case SendToClient(client, messages.Dropped() as message):
                    for low, high in message.ranges:
                        note = f"to {client}: {message.failure}, {message.reason}"
                        add(host, "tells dropped", message.job, (low, high), note)
                case Expel(peer, reason):
                    add(host, "expels", note=f"{peer}: {reason}", data=effect)


class Gateway(SimMember):
    """A gateway on the heap."""

    def __init__(self, ground: Ground, plan: SitePlan) -> None:
        super().__init__(ground, plan)
        self._server: GatewayServer | None = None
        self.peers: SimPeers | None = None
        self._router: MessageRouter | None = None
        self.reconciler: SimReconciler | None = None
        self.runtime = RuntimeEnvironment(
            mono_s=self.mono_s, utc_s=self.utc_s, random_bytes=self.random_bytes, read=read_now
        )

    @property
    def server(self) -> GatewayServer | None:
        """The running gateway."""
        return self._server

    @property
    def older_books(self) -> list[str]:
        """See SimMember."""
        return self.reconciler.older_books if self.reconciler is not None else []

    @property
    def gossip(self) -> GossipLoop | None:
        """The federation as it is seen here."""
        return self._router.gossip if self._router is not None else None

    def boot(self) -> None:
        """Open port and store, recover, and tick."""
        self._is_looking = self._is_going_on = False
        self._waiting: dict[int, Coroutine[float | None, None, None]] = {}
        self._coroutines = 0
        self.port: SimPort = self.ground.network.listen(self.name, self._changed)
        self.store = self.open_store(self._stored)
        handles = itertools.count(1)
        seat = Seat(handles=handles)
        if self.plan.others:
            roll = roll_of(self.plan, self.next_boot())
            seat = Seat(roll.boot, roll, handles, signer=KeyGrantSigner(roll))
            news = self._hear_peers, self._hear_link, self._heard_all
            self.peers = SimPeers(self, roll, self.config.rules, handles, *news)
        self._server = GatewayServer(
            self.config,
            self.port,
            self.store,
            runtime=self.runtime,
            seat=seat,
            on_stored=lambda call: call(),
            ask=self._ask,
            say=self.note,
            recall=self._recall,
            on_unfinished=self._unfinished,
        )
        site = cast("Any", self)
        self.desk = Desk(site, RuleKeeper(site, NO_GRIDS, lambda _: None))
        self.recorder = CapacityRecorder(cast("Any", self))  # which is never run
        if self.peers is not None:
            self._router = MessageRouter(
                *(self.peers, self._server, self.runtime, self.note),
                lambda router: self._open_books(roll, router),
            )
        self.watch(self._server)
        self._server.recover()
        self.after(TICK_S, self._tick)

    def _open_books(self, roll: SimRoll, router: MessageRouter) -> SimReconciler:
        """Open the books as gateway.site does."""
        assert self._server is not None
        exchange = self._server.exchange
        context = SettlementContext(
            self.config.books,
            self.store,
            self.read,
            self.harden,
            router,
            is_live=exchange.purchases.purchases.__contains__,
            is_partner=lambda name: name in roll.approved,
            note_settled=exchange.note_settled,
            note_paid=exchange.paid,
            settled_ms=exchange.settled_ms,
            utc_s=self.utc_s,
            say=lambda line: self.note("says", line),
        )
        self.reconciler = SimReconciler(context, self)
        return self.reconciler

    def order(self, verb: str, details: Mapping[str, Any]) -> None:
        """See SimMember."""
        if self.reconciler is not None:
            self.reconciler.order(lambda: self.obey(self, verb, details))

    def die(self, *, power: bool) -> None:
        """Lose records queued for the store, and with the power the unsynced ones."""
        self.store.kill()
        if power:
            self.disk.cut_power()
        if self.reconciler is not None:
            self.reconciler.die()
        self._server = self._router = self.reconciler = None
        if self.peers is not None:
            self.peers.die()
            self.peers = None
        for coroutine in self._waiting.values():
            coroutine.close()

    def _hear_peers(self, news: list[News]) -> None:
        if self._router is not None:
            self._router.hear_peers(news)
            self._progress()

    def _hear_link(self, news: LinkNews) -> None:
        if self._router is not None:
            self._router.hear_link(news)

    def _heard_all(self) -> None:
        if self._router is not None:
            self._router.heard_all()
            self._progress()

    # --- the loops -----------------------------------------------------------------------------

    def _changed(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.clock.after(0.0, lambda: self.do(self._look))

    def _look(self) -> None:
        self._is_looking = False
        server = self._server
        if server is None:
            return
        came = self.port.came()
        if came:
            server.pipes_came(came)
        gone = self.port.gone()
        if gone:
            server.pipes_gone(gone)
        frames = self.port.receive()
        if frames:
            server.take_frames(frames)
            self._progress()

    def _unfinished(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.clock.after(0.0, lambda: self.do(self._go_on_turn))

    def _go_on_turn(self) -> None:
        self._is_going_on = False
        if self._server is not None:
            self._server.go_on()
            self._progress()

    def _tick(self) -> None:
        self.after(TICK_S, self._tick)
        if self._server is not None and self._server.tick():
            self._progress()
        if self._router is not None:
            self._router.tick()

    def _stored(self) -> None:
        if self._server is not None:
            self._server.catch_up()
            self._server.flush()
            self._progress()
        if self.reconciler is not None:
            self.after(0.0, self.reconciler.go_on)

    # --- the desk's view of a site -------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker."""
        assert self._server is not None
        return self._server.broker

    @property
    def listener(self) -> SessionListener:
        """The listener."""
        assert self._server is not None
        return self._server.listener

    def expect(self, event: Event) -> None:
        """Take an operator's order."""
        if self._server is not None:
            self._server.expect(event)

    def tell_store_trouble(self, error: Exception) -> str:
        """Log that the store can't be read; return the sentence."""
        self.note("says", f"store: {error}")
        return str(error)

    def tell_fault(self, where: str, error: Exception) -> None:
        """Raise: no fault is allowed here."""
        self.note("breaks", where)
        raise error

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the store."""
        return await read_now(query, *arguments)

    async def record(self, *written: records.Record, durable: bool = False) -> None:
        """See gateway.site: return when these, and all earlier records, are stored."""
        stored = Stored()
        if self.broker.budget_accounts.has_credit:
            for each in written:
                self.broker.budget_accounts.note(each)
        self.store.write(written, durable, stored.done)
        await stored

    async def harden(self, *written: records.Record) -> None:
        """Store them so that they survive a power cut."""
        await self.record(*written, durable=True)

    async def forget(self, jobs: Sequence[str]) -> None:
        """Drop the results of jobs that have ended; return when they are gone."""
        await self.record(*map(records.JobForgotten, jobs))

    def results_of(self, _job: str) -> None:
        """Return no signal for one job: waiting requests look after every event."""

    def wait_for_results(self, _more: None, at_most_s: float) -> AnyProgress:
        """Wait for any event, or for so many seconds."""
        return AnyProgress(at_most_s)

    def _ask(self, peer: PeerSession, question: Ask) -> None:
        if self.desk.takes(peer, question):
            self._carry(self.desk.answer(peer, question))

    def _recall(self, find: Callable[[], T], then: Callable[[T | str], None]) -> None:
        async def look_up() -> None:
            await self.record()  # queued records count too
            then(find())

        self._carry(look_up())

    def _carry(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine, and resume it after its waits."""
        self._coroutines += 1
        self._waiting[self._coroutines] = coroutine
        self._go_on(self._coroutines)

    def _go_on(self, number: int) -> None:
        coroutine = self._waiting.get(number)
        if coroutine is None:
            return
        try:
            wait_s = coroutine.send(None)
        except StopIteration:
            del self._waiting[number]
            return
        if wait_s is not None:
            self.after(wait_s, lambda: self._go_on(number))

    def _progress(self) -> None:
        for number in list(self._waiting):
            self._go_on(number)
