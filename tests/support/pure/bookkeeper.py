"""Two bookkeepers, their books in SQLite, a clock that the test sets, and a post that may lose."""

import threading
from collections import deque

import trio
from support.pure.books import envelope

from federation.messages.contracts import Delivery, Verdict
from federation.messages.deals import Sealed, Settle
from federation.messages.messages import MESSAGES
from federation.messages.reconciliation import DAY_MS
from federation.signed.envelopes import body_of
from gateway.config.books import BookRules
from gateway.ledger.audit.audit import audit
from gateway.ledger.db.contracts.records import ContractEnded, ContractOpened, posted, settled
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.settlement.records import Payment
from gateway.ledger.store.store import SqlStore
from gateway.settlement.context import SettlementContext
from gateway.settlement.reconciler import Reconciler

# 2026-11-01 is a Sunday; the clock begins on the 3rd.
DAY_S = 86_400.0
NOVEMBER_S = 1_793_491_200.0
MORNING_S = NOVEMBER_S + 2 * DAY_S + 9 * 3600
CONTRACT = "london-1-1"


class SiteBooks:
    """One site with its books."""

    def __init__(self, name, other, side, folder, world):
        self.name, self.other, self.side, self.world = name, other, side, world
        self.url = f"sqlite:///{folder}/{name}.db"
        self.store = SqlStore(self.url)
        self.told, self.waiting = [], []  # `waiting`: for the disk
        self.live, self.strangers, self.settled = set(), set(), {}
        self.noted = []  # sites that told other payments than before
        context = SettlementContext(
            BookRules(reconcile_s=1e6),
            self.store,
            self._read,
            self._write,
            self,
            is_live=self.live.__contains__,
            is_partner=lambda name: name not in self.strangers,
            note_settled=lambda side, site, at_ms: self.settled.update({(side, site): at_ms}),
            settled_ms=lambda side, site: self.settled.get((side, site), 0),
            utc_s=lambda: world.utc_s,
            say=self.told.append,
            note_paid=self.noted.append,
        )
        self.reconciler = Reconciler(context)

    async def _read(self, query, *arguments):
        await trio.lowlevel.checkpoint()
        return query(*arguments)

    async def _write(self, *records):
        """Write them after the waiting ones."""
        await trio.lowlevel.checkpoint()
        waiting, self.waiting = self.waiting, []
        self.write(*waiting, *records)

    def write(self, *records):
        if records:
            done = threading.Event()
            self.store.write(records, False, done.set)
            assert done.wait(200)

    def seal(self, site, message):
        return Sealed(envelope(message))

    def carry(self, site, side, message):
        if site == self.other:
            self.world.mail.append((self.name, message))

    def reach(self, site, message):
        self.carry(site, None, message)

    def flush(self):
        pass

    def pay(self, reference, nanos, direction, through="bank", attempt=0):
        at_s = self.world.utc_s
        self.write(
            Payment(self.other, reference, "USD", direction, through, nanos, "", at_s, attempt)
        )

    def undo(self, reference):
        [row] = [each for each in self.store.settlement.payments() if each.reference == reference]
        self.write(row.undone("a slip", self.world.utc_s))

    async def paid(self):
        found = await self.reconciler.payments.matches(self.other)
        return {each.line.reference: str(each.standing) for each in found}

    def posted(self, delivery, verdict=None):
        self.write(posted(CONTRACT, self.side, self.other, delivery, "USD"))
        if verdict is not None:
            self.settle(delivery, verdict)

    def settle(self, delivery, verdict):
        record = settled(CONTRACT, self.side, self.other, delivery, verdict, "USD", 5.0)
        self.write(record)

    def entries(self):
        found = self.store.settlement.entries(self.side, self.other, 0, 10**15)
        return [(each.delivery, each.state) for each in found]

    def statements(self):
        return [
            (each.first_ms, each.state, each.is_final)
            for each in self.store.settlement.statements()
        ]

    def clean(self):
        with snapshot(self.url) as connection:
            return audit(connection).is_clean


class BooksWorld:
    """London buys of Paris; their messages go through `mail`."""

    def __init__(self, folder):
        self.utc_s = MORNING_S
        self.mail = deque()
        self.london = SiteBooks("london", "paris", "buy", folder, self)
        self.paris = SiteBooks("paris", "london", "sell", folder, self)
        for each in (self.london, self.paris):
            each.write(
                ContractOpened(CONTRACT, each.side, each.other, "job", "fast", 2, 5, "USD", 30.0,
                               MORNING_S - 10),
                ContractEnded(CONTRACT, each.side, "settled", MORNING_S),
            )  # fmt: skip

    async def deliver(self, messages_max=1_000):
        """Carry all messages and their answers, until all is quiet."""
        while self.mail and messages_max:
            messages_max -= 1
            sender, message = self.mail.popleft()
            receiver = self.london if sender == "paris" else self.paris
            raw = b""
            if isinstance(message, Sealed):
                raw = message.envelope
                message = MESSAGES.decode(body_of(raw), len(raw))
            if isinstance(message, Settle):
                self._settle(message)
                continue
            receiver.reconciler.hear(sender, message, raw)
            await self.work()

    async def work(self):
        for each in (self.london, self.paris):
            while (found := each.reconciler.turns.take()) is not None:
                await each.reconciler.in_turn(found[1])

    def _settle(self, message):
        """As Sales does: pending deliveries alone get their verdict."""
        pending = {(d.epoch, d.first): d for d, state in self.paris.entries() if state == 0}
        for epoch, first, is_paid in message.verdicts:
            if (epoch, first) in pending:
                verdict = Verdict.POST if is_paid else Verdict.VOID
                self.paris.settle(pending[epoch, first], verdict)

    async def look(self, *sites):
        for each in sites or [self.london]:
            await each.reconciler.in_turn(each.reconciler.look)
            await self.deliver()

    def told(self):
        return self.london.told + self.paris.told

    def close(self):
        for each in (self.london, self.paris):
            each.store.close()


def delivery(first, at_s=MORNING_S, cost_nanos=100):
    return Delivery(1, first, first + 10, cost_nanos, 7, int(at_s * 1000))


def both(world, *deliveries):
    for each in deliveries:
        world.london.posted(each, Verdict.POST)
        world.paris.posted(each, Verdict.POST)


DAY_3_MS, DAY_4_MS = (int(NOVEMBER_S * 1000) + n * DAY_MS for n in (2, 3))
