"""A gateway without its loops: frames become news, events, decisions and effects.

The owner of the loops (gateway.site, or a simulation) calls `take_frames`, `pipes_gone` and `tick`.
Nothing here blocks; the clock and randomness come from outside.

A call does a bounded part of the pending work, so that no flood from one peer delays heartbeats,
acknowledgements or other peers. If work remains, `on_unfinished` is called: the owner must call
`go_on` soon, after everything else that is runnable.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import ProtocolError, SessionRefused
from federation.ids import id_time_ms
from federation.messages.messages import (
    Answer,
    Ask,
    Cancel,
    CloseJob,
    LetGo,
    NeedFunction,
    OpenJob,
    Pulse,
    PutFunction,
    RejectJob,
    Tasks,
)
from federation.messages.registry import GatewayMessage
from federation.messages.wire import Maps
from federation.objects.labels import UNLABELLED, DataLabel
from federation.reasons import Reason
from federation.sessions.task_passes import ABOUT, WORKER
from federation.transport import Port
from federation.words import count
from gateway.base.job_states import ENDS_ORDERED
from gateway.base.store_lookup import StoreLookup, recall_now
from gateway.config.entitlements import window_names
from gateway.config.site import PoolConfig, SiteConfig
from gateway.ledger.db.jobs.records import JobRow, may_return
from gateway.ledger.store.store import Store
from gateway.objects.keeper import ObjectKeeper
from gateway.reservations.bookings import OVER_MAX, Bookings
from gateway.reservations.reserving import Buying, Selling
from gateway.runtime.budget_books import read_known
from gateway.runtime.credentials import ListenerCredentials
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.functions import FunctionStore
from gateway.runtime.kernel import Kernel
from gateway.runtime.left_results import proven
from gateway.runtime.making import Seat, make_broker, make_exchange
from gateway.runtime.order_log import OrderLog
from gateway.runtime.outbox import EffectOutbox, OutboxUses, Pieces
from gateway.runtime.outcome_reader import not_read, read_outcomes
from gateway.runtime.prices import Prices
from gateway.runtime.recovery import history_of, recovered, used_before
from gateway.runtime.timetable import WindowTimetable
from gateway.scheduler.lifecycle.refusals import RefusedJob
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import (
    Effect,
    HoldObjects,
    LogOrder,
    PullObjects,
    ReadOutcomes,
    TakeObjects,
)
from gateway.scheduler.model.events import Event
from gateway.scheduler.model.intake import (
    JOB_ID_CHARS_MAX,
    BadJob,
    BadWorker,
    check_worker_name,
    client_event,
    job_event,
    of_operator,
    worker_event,
    worker_joined,
)
from gateway.scheduler.model.stored_terms import answer_ended, id_used
from gateway.sessions.inbox import Inbox
from gateway.sessions.listener import (
    News,
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerSession,
    PeerTurnedAway,
    SessionListener,
)
from gateway.sessions.token_bucket import RateLimitedLines
from gateway.trust.rights import Denied, is_operator, title_of
from gateway.trust.task_passes import JobPass, TaskPasses
from gateway.trust.token_checker import (
    ShownToken,
)
from policies.parties import Owner
from policies.reservations.reservations import OPEN

LINES_PER_S: Final = 5.0  # about workers that join and leave
SLOW_TICKS: Final = 20  # some checks run once in so many ticks
# Records queued for the store, and their bytes, beyond which peers are held until it catches up.
BACKLOG_MAX: Final = 50_000
BACKLOG_BYTES_MAX: Final = 256 << 20
BUNDLES_COUNTED: Final = 4  # bundles in flight that add one to the weight of a worker that leaves
OFFERS_COUNTED: Final = 128  # offers to compare that add one to the weight of a new job
HELD_TURN_MAX: Final = 32  # held peers released per turn

# The stored row of a job that was here before, and its charges.
Recalled = tuple[JobRow, Event] | None


class GatewayServer:
    """Joins listener, broker, outbox and functions behind one port.

    Args:
        runtime: the clock and randomness.
        seat: the site's place in its federation.
        on_stored: see EffectOutbox.
        ask: takes a peer's question; the answer is posted when it is ready.
        say: takes lines for the operator.
        recall: looks things up in the store without blocking.
        on_results: see EffectOutbox.
        on_unfinished: called when `go_on` must be called soon.
        objects: the objects of this site; None where there are none.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        config: SiteConfig,
        port: Port,
        store: Store,
        *,
        runtime: RuntimeEnvironment,
        seat: Seat,
        on_stored: Callable[[Callable[[], None]], None],
        ask: Callable[[PeerSession, Ask], None],
        say: Callable[[str], None],
        recall: StoreLookup = recall_now,
        on_results: Callable[[Iterable[str]], None] = lambda jobs: None,
        on_unfinished: Callable[[], None],
        keep_output: Callable[[str, Pieces], None] | None = None,
        objects: ObjectKeeper | None = None,
    ) -> None:
        self.objects = objects
        self.on_pull: Callable[[PullObjects], None] | None = None  # set by the site
        self.config = config
        self.store = store
        self._clock = runtime
        self._ask = ask
        self._say = say
        self._site = config.name
        self._on_unfinished = on_unfinished
        mono_s = runtime.mono_s()
        self.order_log = OrderLog(say, runtime.mono_s)
        self._comings = RateLimitedLines(say, "joins and leaves of workers", LINES_PER_S, mono_s)
        self._pools = {pool.name: dict(pool.tags) for pool in config.pools}
        self.functions = FunctionStore(config.rules.function_bytes_max, self._functions_used)
        self._prices = Prices(config.pools, runtime.utc_s(), config.rules_version)
        self.timetable = WindowTimetable({pool.name: pool.plan for pool in config.pools})
        budget_accounts = BudgetAccounts(config.budgets, config.credit, runtime.utc_s())
        self.kernel = Kernel(
            lambda peers: make_broker(
                *(config, seat.boot, self._prices, budget_accounts, peers),
                keeps_output=keep_output is not None,
            ),
            lambda broker: make_exchange(config, seat, broker, self._has_function),
        )
        self.broker, self.exchange = self.kernel.broker, self.kernel.exchange
        if objects is not None:
            self.broker.labels_of = objects.catalogue.labels_of
            objects.label_of, objects.narrow = self._label_of, self.broker.narrow
            objects.label_of_session = self._label_of_session
            objects.why_not_here = self.why_not_here
        self.exchange.reach.why_not_here = self.why_not_here
        self.exchange.reach.jurisdiction = lambda: self.config.host_jurisdiction
        self._token_checker = seat.token_checker
        self._tokens: dict[int, ShownToken] = {}  # by peer, of those that came with a token
        self.task_passes = TaskPasses(
            config.name,
            config.rules.secret,
            runtime.random_bytes,
            self.broker.jobs,
            seat.token_checker.welcomes if seat.token_checker is not None else lambda _site: False,
            seat.token_checker.is_revoked if seat.token_checker is not None else lambda *_: False,
            runtime.utc_s,
            {pool.name for pool in config.pools if pool.is_grown or pool.is_delegated},
        )
        credentials = ListenerCredentials(config, self.task_passes, seat.token_checker, say)
        self.listener = SessionListener(
            port,
            config.rules,
            runtime.random_bytes,
            credentials=credentials.usual,
            handles=seat.handles,
            at_home=credentials.at_home,
            nearby=credentials.nearby,
            in_the_clear=credentials.in_the_clear if seat.token_checker is not None else None,
        )
        self._inbox = Inbox(self.listener)
        self.outbox = EffectOutbox(
            *(self.listener, store, self.functions, on_stored, on_results),
            OutboxUses(
                recall,
                remark=say,
                pass_key=self.task_passes.sealed_for,
                on_write=self.broker.budget_accounts.note
                if self.broker.budget_accounts.has_credit
                else None,
                on_order=self._log_order,
                keep_output=keep_output,
                hold_objects=self._hold_objects,
                take_objects=self._take_objects,
                pull_objects=self._pull_objects,
                read_outcomes=self._read_outcomes,
            ),
        )
        self._recall = recall
        self.bookings = Bookings(
            config,
            self.broker,
            store,
            random_bytes=runtime.random_bytes,
            recall=recall,
            perform=self.perform,
        )
        self.selling = Selling(
            config.name,
            self.bookings,
            seat.permits,
            self.exchange.sales.names,
            runtime.utc_s,
        )
        new_name = self.exchange.purchases.enquiries.new_name
        self.buying = Buying(config.name, self.bookings, self.selling, new_name)
        self.pulses: dict[int, Maps] = {}
        self._own_names = frozenset(pool.name for pool in config.pools if pool.kind == "local")
        # Workers of pools that grids scale: handle by pool and name, and the reverse.
        self._grown = {pool.name for pool in config.pools if pool.is_grown}
        self._pilots: dict[tuple[str, str], int] = {}
        self._pilot_of: dict[int, tuple[str, str]] = {}
        self._unread: set[int] = set()
        # Messages that wait for the store, by peer.
        self._held: dict[int, deque[Any]] = {}
        self._looked_up: set[int] = set()  # the peers among them that wait for a look-up
        self._looks = 0  # offers to compare for the job opened last
        self._is_behind = False  # whether the store is behind, so that every peer waits
        self._started_s = runtime.utc_s()
        self._ticks = 0

    def token_of(self, peer: PeerSession) -> ShownToken | None:
        """Return the pass of a client; None for the operator and for holders of the secret."""
        return self._tokens.get(peer.handle)

    def title(self, peer: PeerSession) -> str:
        """Say who a peer is, for the log."""
        held = self.token_of(peer)
        return title_of(peer, held.token if held is not None else None)

    def _log_order(self, order: LogOrder) -> None:
        peer = self.listener.peers.get(order.client)
        if peer is None:
            return  # another site: its messages are logged as its own
        who = self.title(peer)
        (self.order_log.refused if order.is_refused else self.order_log.done)(who, order.text)

    def recover(self) -> None:
        """Restore the state that the last run of the gateway left in the store."""
        utc_s = self._clock.utc_s()
        self.store.mark_lost(utc_s)
        effects: list[Effect] = self.broker.handle(
            events.VolumesKnown(self._prices.had_ns(self.store.usage, utc_s)), utc_s
        )
        spending = read_known(self.store, self.broker.budget_accounts, utc_s)
        effects += self.broker.handle(events.SpendingKnown(spending.spent, spending.owed), utc_s)
        self.exchange.lending.recover(self.store.budgets.lent(), utc_s)
        self.exchange.borrowing.recover(spending.accounts, utc_s)
        if self.config.fair_share is not None:
            used_ns = used_before(self.store.usage, self.config.fair_share, utc_s)
            known = events.SharesKnown(self.config.fair_share, used_ns)
            effects += self.broker.handle(known, utc_s)
        effects += self.broker.handle(self._entitlements, utc_s)
        for drain in self.store.drains.all():
            ordered = events.DrainOrdered(events.DrainKind(drain.kind), drain.name, on=True)
            effects += self.broker.handle(ordered, utc_s)
        for event in recovered(self.store):
            effects += self.broker.handle(event, utc_s)
            if isinstance(event, events.JobRecovered) and event.spec is not None:
                body = self.store.jobs.function(event.spec.function)
                if body is not None:
                    self.functions.put(event.spec.function, body, 0)
        self.outbox.perform(effects)
        # Reservations come before contracts: for a contract in reserved slots nothing is held.
        kept = self.store.reservations.latest(OVER_MAX)[::-1]
        self.bookings.recover(each for each in kept if each.state not in OPEN)
        kept = self.store.reservations.latest(0, is_open=True)
        self.bookings.recover(kept)
        self.outbox.perform(self.buying.recover(kept, self._clock.mono_s()))
        contracts = [
            (row, self.store.contracts.postings(row.side, row.contract))
            for row in self.store.contracts.open()
        ]
        self.exchange.recover(
            contracts,
            self.store.contracts.newest("sell"),
            self._clock.mono_s(),
            self.store.reservations.names("sell"),
            self.store.contracts.proofs,
        )
        self.act(self._news_of_the_calendar())  # before any task is dispatched

    def take_frames(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Take the frames that have arrived at the port."""
        self._inbox.add_frames(frames, self._clock.mono_s())
        self.go_on()

    def go_on(self) -> None:
        """Do the next part of the pending work."""
        happened: list[Event] = []
        self._look_behind()
        self._take_turn(happened)
        self.act(happened)

    def _take_turn(self, happened: list[Event]) -> None:
        for news in self._inbox.take():
            self._take((news,), happened)
            self._inbox.spend(self._work_of(news))

    def _work_of(self, news: News) -> int:
        """Return the weight of the work that a piece of news makes, in addition to its own."""
        looks, self._looks = self._looks, 0
        match news:
            case PeerSaid(_, OpenJob()):
                return looks // OFFERS_COUNTED
            case PeerLeft(peer) if peer.handle in self.broker.workers:
                return len(self.broker.workers[peer.handle].assignments) // BUNDLES_COUNTED
            case _:
                return 0

    def pipes_came(self, pipes: list[int]) -> None:
        """Take newly connected pipes."""
        happened: list[Event] = []
        self._take(self.listener.pipes_came(pipes, self._clock.mono_s()), happened)
        self.act(happened)

    def pipes_gone(self, pipes: list[int]) -> None:
        """Take closed pipes; frames that came by them earlier are processed first."""
        self._inbox.pipes_gone(pipes, self._clock.mono_s())

    def tick(self) -> bool:
        """Handle the passing of time: heartbeats, expired sessions, jobs without an owner.

        Return whether there was anything to do.
        """
        self._ticks += 1
        self.catch_up()
        happened: list[Event] = []
        ended = list(self.listener.tick(self._clock.mono_s()))
        if ended:
            self._inbox.add_news(ended)
        self._take_turn(happened)
        self._watch_readers(happened)
        if self.objects is not None:
            self.objects.calls_ended(self.broker.jobs)
        if self._ticks % SLOW_TICKS == 0:
            is_behind = any(each in self.broker.workers for each in self._held)
            happened.append(events.Ticked(is_behind))
            self._comings.tick(self._clock.mono_s())
            self.order_log.tick()
            self._watch_tokens(happened)
            self.functions.sweep(set(self.listener.peers))
            if self.objects is not None:
                self.objects.sweep(self.broker.jobs.keys())
            for line in self.broker.spending.news():
                self._say(f"budget: {line}")
        utc_s = self._clock.utc_s()
        self.outbox.perform(self.bookings.tick(utc_s))
        self.outbox.perform(self.buying.tick(self._clock.mono_s(), utc_s))
        happened += self._news_of_the_calendar()
        is_due = self.kernel.tick(self._clock.mono_s(), self._clock.utc_s())
        if not happened and not is_due and not self.broker.is_uneven:
            return False
        self.act(happened)
        return True

    @property
    def _entitlements(self) -> events.EntitlementsKnown:
        plans = {pool.name: pool.plan for pool in self.config.pools}
        return events.EntitlementsKnown(
            self.config.entitlements, window_names(plans), self.config.residency
        )

    def reprice(self, pool: PoolConfig) -> None:
        """Charge for a pool by this price list from now on."""
        self._prices.reprice(pool)

    def take_in(self, config: SiteConfig, used_ns: Mapping[Owner, int]) -> None:
        """Adopt a configuration of the same pools, as `gateway.api.reload` takes it in.

        `used_ns` is the usage of all parties by the books, for changed shares.
        """
        if config.fair_share != self.config.fair_share:
            self.expect(events.SharesKnown(config.fair_share, used_ns))
        self.config = config
        self.timetable.replace({pool.name: pool.plan for pool in config.pools})
        self._prices.replace(config.pools, config.rules_version)
        self.bookings.take_in(config)
        self.broker.budget_accounts.take_in(config.budgets, config.credit)
        self.act([self._entitlements, *self._news_of_the_calendar()])

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry out decisions about reservations, and act on their consequences."""
        self.outbox.perform(effects)
        self.act(self._news_of_the_calendar())

    def hear_reserve(self, buyer: str, message: GatewayMessage) -> None:
        """Handle a buyer's message about a reservation in this site's pools."""
        self.perform(self.selling.hear(buyer, message, self._clock.utc_s()))

    def hear_reserved(self, seller: str, message: GatewayMessage) -> None:
        """Handle a seller's message about a reservation of this site."""
        mono_s, utc_s = self._clock.mono_s(), self._clock.utc_s()
        self.perform(self.buying.hear(seller, message, mono_s, utc_s))

    def _news_of_the_calendar(self) -> list[Event]:
        utc_s = self._clock.utc_s()
        if self.bookings.has_changed:
            self.bookings.has_changed = False
            self.timetable.reserve(self.bookings.open.values(), self.bookings.rules)
        found = (self.timetable.renew(utc_s), self._prices.renew(self.broker, utc_s))
        return [each for each in found if each is not None]

    def _look_behind(self) -> None:
        store = self.store
        self._is_behind = store.backlog > BACKLOG_MAX or store.backlog_bytes > BACKLOG_BYTES_MAX

    def catch_up(self) -> None:
        """Process the messages of peers held while the store was behind, until it is behind again.

        Frames are read all the while, so heartbeats go on in both directions. The messages of a
        peer whose session has ended are processed when it ends (see `_part`).
        """
        here = self.listener.peers
        held = (each for each in self._held if each not in self._looked_up and each in here)
        for handle in [*islice(held, HELD_TURN_MAX)]:
            self._look_behind()
            if self._is_behind:
                return
            if handle in self._held and handle in here:
                happened: list[Event] = []
                self._take_up(here[handle], happened)
                self.act(happened)

    def expect(self, event: Event) -> None:
        """Take an event that did not come in by the port (an operator's order)."""
        self.act([event])

    def flush(self) -> None:
        """Send all posted messages."""
        self.listener.flush(self._clock.mono_s())
        if self.outbox.peers is not None:
            self.outbox.peers.flush()

    def goodbye(self, reason: str) -> None:
        """Tell all peers that the gateway stops, and log the orders that wait for their line."""
        self.order_log.flush()
        self.listener.goodbye(reason, self._clock.mono_s())

    def _watch_readers(self, happened: list[Event]) -> None:
        """Hold back the work of clients that leave their results unread."""
        for handle in self.broker.clients:
            peer = self.listener.peers.get(handle)
            if peer is None:
                continue  # this client is another site
            unread = peer.session.backlog_bytes > self.config.unread_bytes
            if unread != (peer.handle in self._unread):
                (self._unread.add if unread else self._unread.discard)(peer.handle)
                happened.append(events.ClientReading(peer.handle, not unread))

    def _watch_tokens(self, happened: list[Event]) -> None:
        """End the sessions of peers whose token has expired or was revoked."""
        for handle, held in list(self._tokens.items()):
            peer = self.listener.peers.get(handle)
            if peer is None:
                continue  # the news that its session is over is still queued
            if isinstance(held, JobPass):
                end = self.task_passes.find_end(peer.about[ABOUT])
            else:
                end = self._token_checker.find_end(held) if self._token_checker else None
            if end is not None:
                self._turn_out(peer, end, happened)

    def end_revoked(self) -> None:
        """End the sessions of tokens that were revoked just now; `tick` would do so later."""
        gone: list[Event] = []
        self._watch_tokens(gone)
        self.act(gone)

    def _turn_out(self, peer: PeerSession, end: SessionRefused, happened: list[Event]) -> None:
        self._take(self.listener.expel(peer, str(end), self._clock.mono_s(), end.code), happened)

    def _expel(self, peer: PeerSession, reason: str, happened: list[Event]) -> None:
        self._take(self.listener.expel(peer, reason, self._clock.mono_s()), happened)

    def act(self, happened: Iterable[Event]) -> None:
        """Let the kernel decide about events, and carry out its effects."""
        effects = self.kernel.act(happened, self._clock.mono_s(), self._clock.utc_s())
        expels = self.outbox.perform(effects)
        if expels:
            gone: list[Event] = []
            for expel in expels:
                peer = self.listener.peers.get(expel.peer)
                if peer is not None:
                    self._expel(peer, expel.reason, gone)
            self.act(gone)
        self.flush()
        if self._inbox or not self.broker.is_settled:
            self._on_unfinished()

    # --- from news to events -------------------------------------------------------------------

    def _take(self, news: Iterable[News], happened: list[Event]) -> None:
        for item in news:
            match item:
                case PeerSaid(peer, message):
                    self._hear(peer, message, happened)
                case PeerCameIn(peer):
                    self._meet(peer, happened)
                case PeerLeft():
                    self._part(item, happened)
                case PeerTurnedAway():
                    continue  # it was told why; a log line for each would let anyone flood the log

    def _meet(self, peer: PeerSession, happened: list[Event]) -> None:
        try:
            if peer.role == "client" and ABOUT in peer.about:
                self._tokens[peer.handle] = self.task_passes.read(peer.about[ABOUT])
            elif self._token_checker is not None and "token" in peer.about:
                shown = self._tokens[peer.handle] = self._token_checker.read(peer.about["token"])
                self._token_checker.note_use(shown, peer.origin.host)
        except SessionRefused as end:  # it has expired since the hello
            self._turn_out(peer, end, happened)
            return
        if peer.role == "client":
            held = self._tokens.get(peer.handle)
            may_all = is_operator(peer, held.token if held is not None else None)
            happened.append(events.ClientJoined(peer.handle, peer.user, is_operator=may_all))
            return
        try:
            is_own = peer.about.get(ABOUT) == WORKER
            check_worker_name(peer.name, self._own_names, is_own=is_own)
            joined = worker_joined(peer.about, peer.handle, peer.name, self._pools)
            held = self._tokens.get(peer.handle)
            if held is not None:
                if not held.token.may_work_in(joined.pool):
                    raise BadWorker(f"its token does not cover pool {joined.pool}")
                joined = replace(joined, token=held.token.id)
            self._note_pilot(peer, joined.pool, happened)
        except BadWorker as error:
            self._expel(peer, str(error), happened)
            return
        happened.append(joined)
        slots = count(peer.about["slots"], "slot")
        self._comings.say(f"worker {peer.name} joined with {slots}", self._clock.mono_s())

    def _note_pilot(self, peer: PeerSession, pool: str, happened: list[Event]) -> None:
        """Record the worker of a pilot; refuse a second one of that name in the pool.

        A second worker of one name would hide the first from the pool's controller. A connected
        worker stays, and the new one is told so (BadWorker). A worker whose pipe is lost gives way:
        it has most likely restarted.
        """
        if pool not in self._grown:
            return
        key = pool, peer.name
        known = self.listener.peers.get(self._pilots[key]) if key in self._pilots else None
        if known is not None and known.pipe is not None:
            raise BadWorker(
                f"a worker named {peer.name} is in pool {pool} already: give each worker of "
                "a pool its own name"
            )
        if known is not None:
            self._expel(known, "it opened a new session", happened)
        self._pilots[key], self._pilot_of[peer.handle] = peer.handle, key

    def _part(self, left: PeerLeft, happened: list[Event]) -> None:
        peer, reason = left.peer, left.reason
        self._unread.discard(peer.handle)
        held = self._tokens.pop(peer.handle, None)
        if held is not None and self._token_checker is not None and not isinstance(held, JobPass):
            self._token_checker.note_use(held, peer.origin.host)
        for message in self._held.pop(peer.handle, ()):
            if peer.role == "worker":  # work done before it left is not repeated
                self._heed(peer, message, happened)
        if peer.role == "client":
            happened.append(events.ClientGone(peer.handle))
            if self.objects is not None:
                self.objects.session_ended(peer.handle)
        else:
            silent_s = self._clock.mono_s() - peer.hearing.word_at_s
            happened.append(
                events.WorkerGone(
                    peer.handle, reason, left.said_goodbye, max(0.0, silent_s), left.was_late
                )
            )
            self.functions.forget(peer.handle)
            self.pulses.pop(peer.handle, None)
            pilot = self._pilot_of.pop(peer.handle, None)
            if pilot is not None:
                self._pilots.pop(pilot)
            self._comings.say(f"worker {peer.name} left: {reason}", self._clock.mono_s())

    def _hear(self, peer: PeerSession, message: Any, happened: list[Event]) -> None:
        if self._is_behind and peer.handle not in self._held:
            self._hold(peer)
        is_question = isinstance(message, Ask) and peer.handle not in self._looked_up
        if peer.handle in self._held and not is_question:
            self._held[peer.handle].append(message)
        else:
            self._heed(peer, message, happened)

    def _heed(self, peer: PeerSession, message: Any, happened: list[Event]) -> None:
        try:
            held = self._tokens.get(peer.handle) if peer.role == "client" else None
            if held is not None:
                message = held.complete(message)
                held.check(message)
                self._check_project(held, message)
            event = self._event(peer, message, happened)
        except Denied as denial:
            self._deny(peer, message, denial)
            return
        except ProtocolError as error:
            self._expel(peer, f"protocol error: {error}", happened)
            return
        if event is not None:
            happened.append(event)

    def _check_project(self, held: ShownToken, message: Any) -> None:
        """Raise Denied when a message is about a job of a project that the token does not name."""
        if isinstance(message, (Cancel, Tasks, CloseJob)):
            job, left = self.broker.jobs.get(message.job), self.broker.left_job(message.job)
            if job is not None:
                held.check_project(job.spec.project)
            elif left is not None:
                held.check_project(left.project)

    def _deny(self, peer: PeerSession, message: Any, denial: Denied) -> None:
        """Tell a client what its token does not permit; drop a message that needs no answer."""
        match message:
            case OpenJob():
                self._refuse_job(peer, message, denial.code, str(denial))
            case Ask() | Cancel() if message.request:
                self.listener.post(peer, Answer(message.request, denial.code, str(denial), None))
        if isinstance(message, Cancel) and not message.ranges:
            order = LogOrder(peer.handle, f"cancel of job {message.job[:64]!r}: {denial}", True)
            self._log_order(order)

    def _event(self, peer: PeerSession, message: Any, happened: list[Event]) -> Event | None:
        match peer.role, message:
            case "worker", NeedFunction():
                self._fetch_function(peer, message.digest)
                return None
            case "worker", Pulse():
                self.pulses[peer.handle] = message.slots
                return None
            case "worker", _:
                event = worker_event(message, peer.handle)
                if isinstance(event, events.Reported) and event.left:
                    return self._proven(event)
                return event
            case _, PutFunction():
                return self.put_function(message, peer.handle)
            case _, OpenJob():
                return self._open(peer, message, happened)
            case _, Ask():
                self._ask(peer, message)
                return None
            case _, Cancel() if self._may_have_left(message):
                self._find_left(peer, message, happened)
                return None
            case _, LetGo(project, digests):
                if self.objects is not None:
                    self.objects.let_go(peer.handle, project, digests)
                return None
            case _:
                return client_event(message, peer.handle)

    def _proven(self, event: events.Reported) -> events.Reported:
        """Return a report with those results as failures that are not at the object host."""
        worker = self.broker.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker is not None else None
        if worker is None or assignment is None:
            return event  # the broker drops it
        catalogue = self.objects.catalogue if self.objects is not None else None
        event, lost = proven(event, assignment.job, catalogue, self._site)
        if lost:
            first = next(iter(lost.values()))
            text = f"worker {worker.title} has {count(len(lost), 'task')} without a result: {first}"
            self._comings.say(text, self._clock.mono_s())
        return event

    def put_function(self, message: PutFunction, sender: int) -> Event:
        """Store a received function, and send it to the workers that wait for it."""
        waiting = self.functions.put(message.digest, message.body, sender)
        self.outbox.hand_function(message.digest, waiting)
        return events.FunctionArrived(message.digest)

    def _label_of(self, job: str) -> DataLabel:
        """Return where the data of a job may lie."""
        found = self.broker.jobs.get(job)
        return UNLABELLED if found is None else found.spec.wishes.label

    def _label_of_session(self, session: int) -> DataLabel:
        """Return where the data that the task of a session has read may lie."""
        held = self._tokens.get(session)
        return held.label() if isinstance(held, JobPass) else UNLABELLED

    def why_not_here(self, label: DataLabel) -> str:
        """Return why data with a label may not lie at this site; empty if it may."""
        why = label.why_not(self._site, self.config.host_jurisdiction)
        return f"{why} (residency)" if why else ""

    def _hold_objects(self, effect: HoldObjects) -> None:
        if self.objects is not None:
            self.objects.hold(
                *(effect.job, effect.project, effect.digests, effect.calls),
                waited=effect.calls is None,
            )

    def _take_objects(self, effect: TakeObjects) -> None:
        if self.objects is not None:
            self.objects.deliver(effect.client, effect.job, effect.project, effect.digests)

    def _pull_objects(self, effect: PullObjects) -> None:
        if self.on_pull is not None:
            self.on_pull(effect)
            return
        reason = f"site {self._site} fetches no objects of other sites"
        self.exchange.sales.objects_came(effect.buyer, effect.contract, reason)

    def _read_outcomes(self, effect: ReadOutcomes) -> None:
        def then(found: list[events.OutcomesRead] | str) -> None:
            self.act(not_read(effect, found) if isinstance(found, str) else found)

        self._recall(lambda: read_outcomes(self.store.jobs, effect), then)

    def _functions_used(self) -> set[bytes]:
        return {job.spec.function for job in self.broker.jobs.values()} | self.exchange.functions

    def _open(self, peer: PeerSession, message: OpenJob, happened: list[Event]) -> Event | None:
        try:
            event = job_event(message, peer.handle, peer.user, self.config.groups)
            held = self._tokens.get(peer.handle)
            if held is not None:
                event = replace(event, spec=replace(event.spec, warrant=held.warrant))
            if is_operator(peer, held.token if held is not None else None):
                event = replace(event, spec=of_operator(event.spec))
        except BadJob as error:
            self._refuse_job(peer, message, Reason.BAD_REQUEST, f"job refused: {error}")
            return None
        self._looks = self.broker.looks(event.spec)
        if self.functions.body(message.function) is None:
            if message.detached:
                reason = "the function of a detached job must be sent before the job"
                self.listener.post(peer, RejectJob(message.job, Reason.BAD_REQUEST, reason))
                return None
            self.outbox.need_function(peer, message.function)
            event = replace(event, has_function=False)
        if self.broker.remembers(message.job) or self._is_fresh(message):
            return event
        self._hold(peer)
        self._looked_up.add(peer.handle)
        waiting: list[Event] | None = happened  # None once `_open` has returned

        def find() -> Recalled:
            row = self.store.jobs.get(message.job)
            return None if row is None else (row, history_of(self.store.usage, row))

        def then(found: Recalled | str) -> None:
            opened = [] if waiting is None else waiting
            self._found(peer, message, event, found, opened)
            if waiting is None:
                self.act(opened)

        self._recall(find, then)
        waiting = None
        return None

    def _refuse_job(self, peer: PeerSession, message: OpenJob, code: str, reason: str) -> None:
        """Tell a client that its job is refused, and remember it for `gridfed jobs`."""
        self.listener.post(peer, RejectJob(message.job[:JOB_ID_CHARS_MAX], code, reason))
        terms = (message.name, peer.user, message.project, message.detached, message.tasks)
        now_s = self._clock.utc_s()
        self.broker.refusals.note(RefusedJob(message.job, *terms, str(code), reason, now_s))

    def _found(
        self,
        peer: PeerSession,
        message: OpenJob,
        event: events.JobOpened,
        found: Recalled | str,
        happened: list[Event],
    ) -> None:
        """Open a job as the store remembers it, and process its client's messages since."""
        self._looked_up.discard(peer.handle)
        if peer.handle not in self.listener.peers:
            return
        if isinstance(found, str):
            self._refuse_job(peer, message, Reason.STORE_TROUBLE, found)
        elif self._may_open(peer, message, found):
            if found is not None and not self.broker.remembers(message.job):
                # The client sends again the tasks that it misses; none of them is charged twice.
                happened.append(found[1])
            has_function = self._has_function(message.function)
            happened.append(replace(event, has_function=has_function))
        self._take_up(peer, happened)

    def _may_have_left(self, message: Cancel) -> bool:
        """Whether the books may have the job of a cancel, so that its client may return."""
        is_whole = not message.ranges
        known = message.job in self.broker.jobs or self.broker.has_ended(message.job)
        return is_whole and not known

    def _find_left(self, peer: PeerSession, message: Cancel, happened: list[Event]) -> None:
        """Cancel a job that is not known here, if its client may return for it by the books."""
        self._hold(peer)
        self._looked_up.add(peer.handle)
        waiting: list[Event] | None = happened  # None once `_find_left` has returned

        def then(found: JobRow | str | None) -> None:
            asked = [] if waiting is None else waiting
            self._looked_up.discard(peer.handle)
            if peer.handle not in self.listener.peers:
                return
            if isinstance(found, str):
                answer = Answer(message.request, Reason.STORE_TROUBLE, found, None)
                if message.request:
                    self.listener.post(peer, answer)
            else:
                self._cancel_left(peer, message, found, asked)
            self._take_up(peer, asked)
            if waiting is None:
                self.act(asked)

        self._recall(lambda: self.store.jobs.get(message.job), then)
        waiting = None

    def _cancel_left(
        self, peer: PeerSession, message: Cancel, row: JobRow | None, happened: list[Event]
    ) -> None:
        left = None
        if row is not None and may_return(row):
            left = events.LeftJob(row.user, row.project)
        held = self._tokens.get(peer.handle)
        try:
            if held is not None and left is not None:
                held.check_project(left.project)
        except Denied as denial:
            self._deny(peer, message, denial)
            return
        event = client_event(message, peer.handle)
        if isinstance(event, events.CancelAsked):
            happened.append(replace(event, left=left))

    def _may_open(self, peer: PeerSession, message: OpenJob, found: Recalled) -> bool:
        """Whether a job that may have been here before may be opened; tell its client if not."""
        if found is None:
            return True
        row, _ = found
        if (row.user, row.project) != (peer.user, message.project):
            reason = id_used(message.job)
        elif row.detached and row.state != "open":
            state = ENDS_ORDERED.get(row.state, row.state)
            self.listener.post(peer, answer_ended(row.job, state, row.reason, row.total))
            return False
        elif ENDS_ORDERED.get(row.state, row.state) == "cancelled" and message.again:
            self.listener.post(peer, RejectJob(row.job, Reason.JOB_NOT_FOUND, row.reason))
            return False
        elif row.state in ("done", "cancelled") and not message.again:
            reason = id_used(message.job)
        else:
            return True
        self.listener.post(peer, RejectJob(message.job, Reason.BAD_REQUEST, reason))
        return False

    def _hold(self, peer: PeerSession) -> None:
        """Queue a peer's messages from now on, and limit it to its send window."""
        self._held.setdefault(peer.handle, deque())
        self.listener.hold(peer)

    def _take_up(self, peer: PeerSession, happened: list[Event]) -> None:
        """Process the messages of a held peer: a worker's at once, a client's in its turn."""
        self.listener.release(peer)
        messages = self._held.pop(peer.handle, deque())
        if peer.role == "client" and messages and peer.pipe is not None:
            self._inbox.add_said(peer, messages)
            return
        for message in messages:
            if peer.handle in self.listener.peers:
                self._hear(peer, message, happened)

    def _is_fresh(self, message: OpenJob) -> bool:
        """Whether the store can't know a job of this id, so that it need not be asked.

        Ids begin with their time. An id that was made since the gateway started, and that its
        client has not opened before, could only be of a job that ended in this very run.
        """
        made_ms = id_time_ms(message.job)
        is_new = made_ms is not None and UtcS(made_ms / 1000) > self._started_s
        return is_new and not message.again and not self.broker.has_ended(message.job)

    def _has_function(self, digest: bytes) -> bool:
        return self.functions.body(digest) is not None

    def _fetch_function(self, worker: PeerSession, digest: bytes) -> None:
        """Send a function to a worker that lacks it, or request it from the job's client."""
        body = self.functions.want(worker.handle, digest)
        if body is not None:
            self.listener.post(worker, PutFunction(digest, body))
            return
        for job in self.broker.jobs.values():
            client = self.listener.peers.get(job.client)
            if job.spec.function != digest:
                continue
            if client is not None:
                self.outbox.need_function(client, digest)
            else:  # the client is another site, or has left
                self.exchange.need_function(job.client, digest)
