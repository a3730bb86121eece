"""Two sites with real books; a test carries the messages between them by hand.

Everything that decides or books is the gateway's own: Purchases and Sales, EffectOutbox, Reconciler
with Disputes, and a store of its own each. In place of brokers and sessions there are their
results: tasks that are out, and messages that wait in `TwoSitesWorld.mail` until they are carried,
lost or doubled.
"""

import contextlib
import itertools
import shutil
from collections import Counter, defaultdict, deque
from functools import cache
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import trio
from sqlalchemy import NullPool, create_engine
from support.exports import traded
from support.pure.books import envelope
from support.pure.moves import fact_of, proof_of

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.deals import Sealed
from federation.messages.messages import MESSAGES
from federation.messages.reconciliation import DAY_MS, EntryState, Sums
from federation.messages.registry import Receiver
from federation.ranges import RangeSet
from federation.signed.envelopes import body_of
from gateway.api import books_desk
from gateway.config.books import BookRules
from gateway.config.contracts import DealRules
from gateway.contracts.buying.purchases import Purchases
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.model.moved import MOVE_EPOCH, MovedObject, MoveProof, delivery_of
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.model.purchase import from_books
from gateway.contracts.model.sale import former_sale
from gateway.contracts.selling.sales import Sales
from gateway.ledger.audit.audit import audit
from gateway.ledger.db.contracts.records import ContractOpened
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store import owed
from gateway.ledger.store.store import SqlStore
from gateway.runtime.outbox import EffectOutbox
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import Harden, SendToSite, Write
from gateway.scheduler.quotas.reserved import ReservedAmounts
from gateway.settlement.context import NoSuchEntry, SettlementContext
from gateway.settlement.reconciler import Reconciler
from policies.tariffs import Tariff

DAY_S = 86_400.0
BEGIN_S = 1_793_491_200.0 + 9 * 3600  # 2026-11-01, 9 o'clock
DEADLINE_S = 200.0
TASKS = 10  # of a bundle
PRICE_NANOS = 10**12
RECEIVE_NANOS, SEND_NANOS = 2_000, 9_000  # of a GB
RULES = BookRules(reconcile_s=1e6, dispute_days=3.0, period="day", detail_days=5.0)


@cache
def _reader(url):
    """A database that is asked the same questions again and again, also after it was replaced."""
    return create_engine(url, poolclass=NullPool)


class Crash(BaseException):
    """The process ends here; no code of it may go on."""


class SiteDisk:
    """Where a site's books are: an SQLite file, which a power cut sets back, or a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        path = Path(url.removeprefix("sqlite:///"))
        self._files = [path, path.with_name(f"{path.name}-wal")] if "sqlite" in url else []
        self._kept: list[bytes] = []

    def keep(self) -> None:
        """All writes until now are on the disk."""
        self._kept = [each.read_bytes() if each.exists() else b"" for each in self._files]

    def cut(self) -> None:
        """The power fails, and all writes since `keep` are gone; no file is open."""
        for path, content in zip(self._files, self._kept, strict=True):
            path.write_bytes(content)


class BookedSite:
    """One of the two sites: by its `side` it buys from the other one or sells to it."""

    def __init__(self, name, other, side, url, world):
        self.name, self.other, self.side, self.world = name, other, side, world
        self.disk = SiteDisk(url)
        self.fuse = None  # how many writes until it crashes, and whether the last is committed
        self.start()

    # --- its lives -------------------------------------------------------------------------------

    def start(self):
        self.store = SqlStore(self.disk.url)
        self.disk.keep()
        self.told, self.stored = [], SimpleQueue()
        self.settled = {}
        self.outcome = Consequences()
        self.broker = SimpleNamespace(
            workers={},
            jobs={},
            clients={},
            reserved=ReservedAmounts(BudgetAccounts()),
            entitling=SimpleNamespace(wishes_of=lambda spec: spec.wishes),
            charging=SimpleNamespace(rules=0),
        )
        self.outbox = EffectOutbox(None, self, None, self.stored.put, lambda jobs: None)
        self.outbox.attach_peers(self)
        everybody = SimpleNamespace(readable=lambda: {"london", "paris"})
        handles = itertools.count(1)
        arguments = DealRules(), everybody, SimpleNamespace(), self.outcome, handles
        self.purchases = Purchases(self.name, 1, self.broker, *arguments, ObjectMoves())
        self.sales = Sales(self.name, self.broker, DealRules(), None, {}, self.outcome, handles)
        self.reconciler = Reconciler(
            SettlementContext(
                RULES,
                self.store,
                self._read,
                self._write,
                self,
                is_live=self.purchases.purchases.__contains__,
                is_partner=lambda name: True,
                note_settled=self._note_settled,
                settled_ms=lambda side, site: self._settled_ms(side).get(site, 0),
                utc_s=lambda: self.world.utc_s,
                say=self.told.append,
            )
        )
        for row in self.store.contracts.open():
            postings = self.store.contracts.postings(self.side, row.contract)
            found = self.store.contracts.proofs(self.side, row.contract).items()
            proofs = {key: MoveProof(*each) for key, each in found}
            if self.side == "sell":
                self.sales.recover(row, postings, 0.0, proofs)
            else:
                self.purchases.recover(row, postings, 0.0, None, proofs)
        # The part of a gateway that an operator's order uses.
        self.desk = SimpleNamespace(
            store=self.store,
            reconciler=self.reconciler,
            read=self._read,
            harden=self._write,
            runtime=SimpleNamespace(utc_s=lambda: self.world.utc_s),
        )
        self.ask(self.reconciler._recall)
        self.perform()

    def crash(self, *, power=False):
        """Lose the state in memory; after a power cut, also writes that are not on the disk."""
        self.store.close()
        if power:
            self.disk.cut()
        self.fuse = None
        self.world.cut()
        self.start()
        self.world.meet()

    def close(self):
        self.store.close()

    @contextlib.contextmanager
    def alive(self):
        """Do something; should it crash in the middle, it is up again afterwards."""
        try:
            yield
        except Crash:
            self.crash()

    # --- its store, as the outbox sees it ------------------------------------------------------

    def write(self, records, durable, done):
        """As Store.write, but that it may be the last."""
        is_committed = True
        if self.fuse is not None:
            writes, is_committed = self.fuse
            self.fuse = (writes - 1, is_committed) if writes else None
            if not writes and not is_committed:
                raise Crash
            is_last = not writes
        else:
            is_last = False
        waiting = SimpleQueue()
        self.store.write(records, durable, lambda: waiting.put(None))
        waiting.get(timeout=DEADLINE_S)
        if durable:
            self.disk.keep()
        if is_last:
            raise Crash
        done()

    @property
    def contracts(self):
        return self.store.contracts

    async def _read(self, query, *arguments):
        await trio.lowlevel.checkpoint()
        return query(*arguments)

    async def _write(self, *records):
        await trio.lowlevel.checkpoint()
        self.write(records, True, lambda: None)

    def _settled_ms(self, side):
        return self.sales.settled_ms if side == "sell" else self.purchases.deliveries.settled_ms

    def _note_settled(self, side, site, until_ms):
        found = self._settled_ms(side)
        found[site] = max(until_ms, found.get(site, 0))

    # --- messages ------------------------------------------------------------------------------

    def seal(self, site, message):
        return Sealed(envelope(message))

    def carry(self, site, side, message):
        self.world.mail[self.name].append(message)

    def reach(self, site, message):
        self.world.mail[self.name].append(message)

    def flush(self):
        pass

    def perform(self):
        """Carry out the decisions, and report their results."""
        for event in self.outcome.events:
            self._happened(event)
        effects, self.outcome.effects = self.outcome.effects, []
        self.outcome.events.clear()
        self.purchases.deliveries.acted()
        self.outbox.perform(
            [each for each in effects if isinstance(each, (Write, Harden, SendToSite))]
        )
        for each in effects:
            if not isinstance(each, (Write, Harden, SendToSite)):
                self.outbox.perform([each])

    def _happened(self, event):
        """Act as a broker: count tasks as back, and write their cost."""
        if isinstance(event, events.MoveCharged):
            self.outcome.effects.insert(0, Write(event.record))
        if not isinstance(event, events.Reported):
            return
        worker = self.broker.workers[event.worker]
        stop = event.first + len(event.values)
        worker.assignments[event.assignment].left.remove(event.first, stop)
        self.outcome.effects.insert(0, Write(usage(
            f"job-{worker.contract}", "paris/fast", event.assignment, event.first,
            len(event.values), event.cost_nanos, event.wall_ns, self.world.utc_s,
        )))  # fmt: skip

    def ask(self, work):
        """Let the reconciler do something in its turn."""
        return trio.run(self.reconciler.in_turn, work)

    def order(self, verb, **details):
        """Let the reconciler carry out an operator's order."""
        trio.run(books_desk.ORDERS[verb], self.desk, {"site": self.other, **details})

    def hear(self, message):
        raw = b""
        if isinstance(message, Sealed):
            raw = message.envelope
            message = MESSAGES.decode(body_of(raw), len(raw))
        if message.row.to is Receiver.OBJECTS:
            for receipt in message.receipts:
                self.book_move(fact_of(receipt))
            return
        if message.row.to is not Receiver.BOOKS:
            now = 0.0, self.world.utc_s
            (self.sales if self.side == "sell" else self.purchases).hear(self.other, message, *now)
            self.perform()
            return
        self.reconciler.hear(self.other, message, raw)
        while (found := self.reconciler.turns.take()) is not None:
            self.ask(found[1])

    def book_move(self, fact):
        """Take a receipt, which the other one has signed, or this one."""
        proof = proof_of(fact)
        with contextlib.suppress(ProtocolError):  # of a time that is agreed on
            if self.side == "sell":
                self.sales.moved(fact, proof)
            else:
                self.purchases.moved(fact, proof, self.world.utc_s)
        self.perform()

    # --- its books -----------------------------------------------------------------------------

    def audit(self):
        with _reader(self.disk.url).begin() as connection:
            return audit(connection)

    def exported(self):
        """Its sales to the other one less its purchases, as its exports have them."""
        with _reader(self.disk.url).begin() as connection:
            return traded(connection, self.name, self.other)

    def moved(self):
        """The part of its statement that is of moved bytes."""
        found, sign = Counter(), 1 if self.side == "sell" else -1
        for each in self.store.settlement.entries(self.side, self.other, 0, 10**15):
            if each.delivery.epoch == MOVE_EPOCH:
                is_back = each.state is EntryState.REVERSAL
                found[each.currency] += sign * each.delivery.cost_nanos * (-1 if is_back else 1)
        return found

    def days(self):
        """Return the delivered and reversed amounts, by day and currency."""
        found = defaultdict(Sums)
        for each in self.store.settlement.entries(self.side, self.other, 0, 10**15):
            found[each.delivery.at_ms // DAY_MS, each.currency].add(each)
        for each in found.values():
            each.deliveries = 0  # of old ones one row may stand for many
        return dict(found)

    def paid(self):
        """Return the payments in the books of both, side by side."""
        return owed.paid_with(
            self.store.settlement, self.other, self.store.settlement.payments(self.other)
        )

    def statement(self):
        """Return the debt of the other site by our books, by currency."""
        found = owed.statements(self.store.settlement, self.other, 0.0, 1e10)
        return {each.currency: each for each in found}


def usage(job, pool, epoch, first, tasks, cost_nanos, wall_ns, at_s):
    return UsageRecord(
        *(job, first, tasks, epoch, "ada", "risk", "var", pool, "w", "ok", at_s - 1, at_s),
        *(wall_ns, wall_ns, 1, PRICE_NANOS, "USD", "1", cost_nanos),
    )


class TwoSitesWorld:
    """London buys from Paris. Their messages wait in `mail`, by sender."""

    def __init__(self, urls):
        self.utc_s = BEGIN_S
        self.mail = {"london": deque(), "paris": deque()}
        self.opened = 0
        self.epochs = 0
        self.delivered = {}  # (contract, epoch, first) → tasks, cost: all that Paris ever did
        self.moves = {}  # (contract, object, whether it is a result) → cost, however often it moved
        self.paris = self.london = None
        self.paris = BookedSite("paris", "london", "sell", urls[0], self)
        self.london = BookedSite("london", "paris", "buy", urls[1], self)

    @property
    def sites(self):
        return self.london, self.paris

    def close(self):
        for each in self.sites:
            each.close()

    # --- the post ------------------------------------------------------------------------------

    def carry(self, sender, at=0):
        """Carry one message; the first of a deal overtakes nothing, those about books may."""
        receiver = self.paris if sender == "london" else self.london
        queue = self.mail[sender]
        message = queue[at]
        del queue[at]
        with receiver.alive():
            receiver.hear(message)

    def carry_all(self):
        """Carry everything, and all that is answered."""
        while any(self.mail.values()):
            for sender, queue in self.mail.items():
                if queue:
                    self.carry(sender)

    def cut(self):
        """The session is gone, with all that was on its way."""
        for queue in self.mail.values():
            queue.clear()

    def meet(self):
        """Open a new session: messages that may be lost are sent again."""
        if self.paris is not None and self.london is not None:
            with self.paris.alive():
                self.paris.sales.buyer_came("london")
                self.bill()

    # --- work ----------------------------------------------------------------------------------

    def open(self):
        """A contract that both have in their books."""
        self.opened += 1
        contract = f"london-1-{self.opened}"
        for site, job in ((self.london, f"job-{contract}"), (self.paris, f"london:{contract}")):
            record = ContractOpened(
                *(contract, site.side, site.other, job, "fast", 2, PRICE_NANOS, "USD", 30.0),
                self.utc_s,
                step_ns=0,
                receive_nanos=RECEIVE_NANOS,
                send_nanos=SEND_NANOS,
            )
            site.fuse = None
            site.write([record], True, lambda: None)
            row = site.store.contracts.get(site.side, contract)
            if site is self.london:
                purchase = from_books(row, [], 0.0)
                purchase.handle = self.opened
                site.purchases._book.add(purchase)
                site.broker.workers[purchase.handle] = SimpleNamespace(
                    contract=contract, assignments={}, in_flight=0
                )
            else:
                sale = former_sale(row, [])
                sale.phase, sale.job = ContractPhase.OPEN, job
                site.sales.sales["london", contract] = sale

    @property
    def open_contracts(self):
        """The contracts under which both go on."""
        ours = self.london.purchases.purchases
        return sorted(
            contract
            for (_, contract), sale in self.paris.sales.sales.items()
            if sale.phase is ContractPhase.OPEN
            and contract in ours
            and ours[contract].handle in self.london.broker.workers
        )

    def forward(self, contract):
        """London gives out a bundle: under which epoch, and its first task."""
        self.epochs += 1
        purchase = self.london.purchases.purchases[contract]
        first = TASKS * self.epochs
        left = RangeSet([(first, first + TASKS)])
        assignment = SimpleNamespace(left=left, given_at_s=self.utc_s - 1e6, recalls=0)
        self.london.broker.workers[purchase.handle].assignments[self.epochs] = assignment
        return self.epochs, first

    def recall(self, contract, epoch):
        """London does not want it any more, and places it elsewhere."""
        purchase = self.london.purchases.purchases[contract]
        self.london.broker.workers[purchase.handle].assignments.pop(epoch, None)

    def do(self, contract, epoch, first, tasks, cost_nanos):
        """Paris did some of it: it books, and delivers."""
        message = self.delivery(contract, epoch, first, tasks, cost_nanos)
        site, wall_ns = self.paris, message.wall_ns
        with site.alive():
            used = usage(
                f"london:{contract}", "local", epoch, first, tasks, cost_nanos, wall_ns, self.utc_s
            )
            site.outcome.write(used)
            site.sales._post(site.sales.sales["london", contract], message)
            self.delivered[contract, epoch, first] = tasks, cost_nanos
            site.perform()

    def move(self, contract, name, size, *, is_result):
        """An object of this name comes to Paris for a contract, or goes to London as a result."""
        sites = ("paris", "london") if is_result else ("london", "paris")
        digest = b"\x02" + name.encode().ljust(32, b".")
        at_ms = int(self.utc_s * 1000)
        fact = MovedObject("t", *sites, digest, "risk", "ada", contract, size, at_ms)
        seller = "paris"
        tariff = Tariff(0, "USD", "1", receive_nanos=RECEIVE_NANOS, send_nanos=SEND_NANOS)
        delivery = delivery_of(fact, tariff, seller)
        if delivery is not None:
            key = contract, delivery.epoch, delivery.first
            known = self.delivered.get(key, (0, delivery.cost_nanos))
            self.delivered[key] = known
            self.moves[contract, name, is_result] = delivery.cost_nanos
            site = self.london if is_result else self.paris
            with site.alive():
                site.book_move(fact)

    def delivery(self, contract, epoch, first, tasks, cost_nanos):
        wall_ns = cost_nanos * 3_600 * 10**9 // PRICE_NANOS + 1
        return deals.Deliver(
            *(contract, epoch, first, [b"r"] * tasks, [], [], wall_ns, wall_ns, 1, cost_nanos),
            *(int(self.utc_s * 1000), []),
        )

    def bill(self):
        """Let Paris bill its unbilled deliveries, and end the contracts that are over."""
        with self.paris.alive():
            for sale in list(self.paris.sales.sales.values()):
                self.paris.sales._bill(sale)
                self.paris.sales._end(sale, self.utc_s)
            self.paris.perform()

    def close_contract(self, contract):
        """London wants nothing more under it."""
        with self.london.alive():
            self.london.purchases.purchases[contract].phase = ContractPhase.CLOSING
            self.london.purchases._say(
                self.london.purchases.purchases[contract], deals.CloseContract(contract)
            )
            self.london.perform()

    def lapse(self):
        """All leases are over, as London counts them: it waits for nothing any more."""
        with self.london.alive():
            for now_s in (1e3, 1e6):
                self.london.purchases.tick(now_s, self.utc_s)
            self.london.perform()

    def look(self):
        for site in self.sites:
            with site.alive():
                site.ask(site.reconciler.look)

    # --- the end -------------------------------------------------------------------------------

    def come_to_rest(self):
        """Every contract ends, everything is carried, disputes are answered, days compared."""
        for site in self.sites:
            site.fuse = None
        for contract in sorted(self.london.purchases.purchases):
            self.close_contract(contract)
        self.meet()
        self.carry_all()
        for _ in range(2):
            for sale in list(self.paris.sales.sales.values()):
                if sale.phase is ContractPhase.OPEN:
                    self.paris.sales._stop(sale, "lapsed")
            self.meet()
            self.carry_all()
        self.lapse()
        self.carry_all()
        self.bill()
        self.carry_all()
        self.look()
        self.carry_all()
        for each in self.paris.store.settlement.disputes():
            if each.state == "open":
                with contextlib.suppress(NoSuchEntry):  # answered with another of it
                    self.answer(each.contract, accept=bool(each.epoch % 2))
        self.carry_all()
        for _ in range(3):
            self.utc_s += 2 * DAY_S
            for _ in range(4):
                self.look()
                self.carry_all()

    def answer(self, contract, *, accept):
        with self.paris.alive():
            disputes = self.paris.reconciler.disputes
            self.paris.ask(lambda: disputes.answer(contract, None, accept=accept, reason="so"))


def copies(template: Path, folder: Path, names):
    """URLs of new databases, as the template."""
    for name in names:
        path = folder / f"{name}.db"
        for each in chain(folder.glob(f"{name}.db-*"), [path]):
            each.unlink(missing_ok=True)
        shutil.copyfile(template, path)
        yield f"sqlite:///{path}"
