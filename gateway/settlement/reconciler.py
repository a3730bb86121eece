"""Compares our books with other sites', day by day and period by period, and settles disputes.

A single task does one thing at a time, one site after the other (gateway.settlement.turns); a lost
message is asked for again. federation.messages.reconciliation computes differences and their mends,
gateway.settlement.comparing words them; as_buyer and as_seller ask and answer.

A day is compared some time after its end; a day that agrees is not compared again. A period is
closed when all of its days agree. Work never waits for the books: it goes on while they differ.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.messages.payments import Match, Payments
from federation.messages.reconciliation import (
    AskEntries,
    AskReconcile,
    Dispute,
    DisputeAnswer,
    Entries,
    Reconcile,
    Reconciled,
)
from federation.messages.registry import GatewayMessage, Receiver
from federation.messages.wire import pack
from gateway.base.faults import describe_fault
from gateway.base.handlers import MessageHandler, handles
from gateway.ledger.accounting.settlement import settled_until, void_share
from gateway.ledger.db.contracts.records import ContractSide
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.settlement.records import StatementKept
from gateway.settlement.as_buyer import ASKED_AT_ONCE, BuyerComparisons
from gateway.settlement.as_seller import SellerComparisons, WantedComparison
from gateway.settlement.book_access import BookAccess
from gateway.settlement.book_age import BookAge
from gateway.settlement.comparing import (
    DETAILS_CHARS_MAX,
    ComparisonSpan,
    check,
    subject_of,
)
from gateway.settlement.context import SettlementContext
from gateway.settlement.disputes import Disputes
from gateway.settlement.payments import PaymentsDesk
from gateway.settlement.turns import OURS, Job, Turns

WAITING_MAX: Final = ASKED_AT_ONCE + 10  # messages of one site; further ones are asked for again
ANSWER_S: Final = 20.0  # time for a seller to answer an operator's question
WATCHED_DAYS: Final = 7  # the days of a buyer's verdicts that are examined
VOID_MIN: Final = 10  # deliveries: an occasional late one is no reason

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of an operator's comparison.

    Attributes:
        state: of the deliveries; empty when the seller has not answered in time.
        details: the differences, for people.
        paid: all payments, side by side.
    """

    state: str
    details: str
    paid: list[Match]

    @property
    def unmatched(self) -> list[Match]:
        """The payments that are missing or differ in one side's books, as far as we know."""
        return [each for each in self.paid if not each.is_even]


class Reconciler(MessageHandler[[bytes], None], receiver=Receiver.BOOKS):
    """One site's side of the books.

    Attributes:
        buying: comparisons of our purchases, selling: of our sales, age: are our books older?
        disputes, payments: the disputes and the payments.
        turns: the queued jobs.
    """

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self.books = BookAccess(context)
        self.age = BookAge(context)
        self.buying = BuyerComparisons(context, self.books, self.age)
        self.selling = SellerComparisons(context, self.books, self.age)
        self.disputes = Disputes(context)
        self.payments = PaymentsDesk(context)
        self._shunning: set[str] = set()  # buyers that have been reported
        self._day_ms = context.rules.day_ms
        self._turn = trio.Lock()
        self.turns = Turns(WAITING_MAX)

    # --- the queue of jobs ---------------------------------------------------------------------

    async def run(self) -> None:
        """Do the queued jobs, and look for due comparisons regularly."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look)
            while True:
                site, job = await self.turns.next()
                try:
                    await self.in_turn(job)
                except (StoreError, SQLAlchemyError) as error:  # it may work another time
                    self._context.say(f"books: the database can't be used: {error}"[:300])
                except Exception as error:  # noqa: BLE001 - no other site may end ours
                    self._context.say(
                        describe_fault(f"the books with {site or 'other sites'}", error)
                    )

    async def in_turn(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job while no other job runs, and send the messages that it queued."""
        async with self._turn:
            try:
                return await job()
            finally:
                self._context.post.flush()

    async def _look(self) -> None:
        self._later(OURS, self._recall)
        while True:
            self._later(OURS, self.look, "look")
            await trio.sleep(self._context.rules.reconcile_s)

    def _later(self, site: str, job: Job, about: Hashable = None) -> None:
        """Queue a job for a site, replacing a queued job about the same subject.

        Jobs over the limit are dropped: the other site asks again.
        """
        self.turns.add(site, job, about)

    async def look(self) -> None:
        """Compare what is due, and repeat unanswered questions."""
        self.buying.begin_look()
        self.selling.early.clear()
        for seller in await self._context.read(self._context.store.contracts.partners, "buy"):
            if self._context.is_partner(seller):
                await self.buying.look_at(seller)
        await self.disputes.say_again()
        await self.payments.say_again()
        await self._watch_verdicts()

    async def _watch_verdicts(self) -> None:
        """Report, once each, the buyers that pay for less of the deliveries than they should."""
        store, limit = self._context.store, self._context.rules.void_share_max
        stop_ms = self._context.now_ms
        first_ms = stop_ms - WATCHED_DAYS * self._day_ms
        since = datetime.fromtimestamp(first_ms / 1000, UTC).strftime("%Y-%m-%d")
        for buyer in await self._context.read(store.contracts.partners, "sell"):
            asked = "sell", buyer, first_ms, stop_ms
            delivered, void = await self._context.read(store.settlement.verdict_sums, *asked)
            share = void_share(delivered, void)
            count = sum(each.deliveries for each in void.values())
            if share <= limit or count < VOID_MIN:
                self._shunning.discard(buyer)
            elif buyer not in self._shunning:
                self._shunning.add(buyer)
                self._context.say(
                    f"books: {buyer} has voided {share:.0%} of its slot time in a week, "
                    f"{count:,} deliveries: see "
                    f"`gridfed deliveries {buyer} --state void --from {since}`"
                )

    async def _recall(self) -> None:
        """Note, by side and site, the moment before which nothing may be booked."""
        found: dict[tuple[str, str], list[StatementKept]] = {}
        for each in await self._context.read(self._context.store.settlement.statements):
            found.setdefault((each.side, each.site), []).append(each)
        for (side, site), kept in found.items():
            self._context.note_settled(side, site, settled_until(kept))

    # --- messages of other sites ---------------------------------------------------------------

    def hear(self, site: str, message: GatewayMessage, envelope: bytes) -> None:
        """Handle a message of a site about the books; ProtocolError when it breaks the rules.

        Answers to no question of ours are ignored. Each handler runs when its site has its turn.
        """
        check(message, envelope, self._context.now_ms, self._day_ms)
        if self.buying.is_awaited(site, message):
            job = partial(self.handler(message), site, message, envelope)
            self._later(site, job, subject_of(message))

    @handles(Reconcile)
    async def _compare_for(self, buyer: str, message: Reconcile, envelope: bytes) -> None:
        await self.selling.compare_for(buyer, message, envelope)

    @handles(Reconciled)
    async def _compared(self, seller: str, message: Reconciled, envelope: bytes) -> None:
        await self.buying.compared(seller, message, envelope)

    @handles(AskEntries)
    async def _tell_entries(self, buyer: str, message: AskEntries, _: bytes) -> None:
        await self.selling.tell_entries(buyer, message)

    @handles(Entries)
    async def _mend(self, seller: str, message: Entries, _: bytes) -> None:
        await self.buying.mend(seller, message)

    @handles(AskReconcile)
    async def _compare_as_asked(self, seller: str, message: AskReconcile, _: bytes) -> None:
        await self.buying.compare_as_asked(seller, message)

    @handles(Dispute)
    async def _disputed(self, buyer: str, message: Dispute, _: bytes) -> None:
        await self.disputes.disputed(buyer, message)

    @handles(DisputeAnswer)
    async def _answered(self, seller: str, message: DisputeAnswer, _: bytes) -> None:
        await self.disputes.answered(seller, message)

    @handles(Payments)
    async def _paid(self, site: str, message: Payments, envelope: bytes) -> None:
        await self.payments.heard(site, message, envelope)

    # --- after a start: are our books older than others'? --------------------------------------

    def met(self, site: str) -> None:
        """Queue a catch-up when a session with a site opens: our books may be an older copy."""
        self._later(site, lambda: self._catch_up(site), "catch-up")

    async def _catch_up(self, site: str) -> None:
        """Compare all that is not agreed yet with a site, once in this run of the gateway."""
        for side in ("buy", "sell"):
            partners = await self._context.read(self._context.store.contracts.partners, side)
            if (side, site) in self.age.compared or site not in partners:
                continue
            window = await self._open_window(side, site)
            if window is None:
                continue
            if side == "buy":
                await self.buying.ask(site, window, is_catch_up=True)
            else:
                self.selling.want(site, window)

    async def _open_window(self, side: str, site: str) -> ComparisonSpan | None:
        """The part of the last days that is neither agreed nor accepted; None if there is none."""
        kept = await self._context.read(self._context.store.settlement.statements, side, site)
        accepted_ms = max((each.stop_ms for each in kept if each.state == "accepted"), default=0)
        stop_ms = self._context.now_ms
        agreed_ms = await self.books.closed_until_ms(side, site, is_final=False)
        first_ms = max(accepted_ms, agreed_ms, stop_ms - WATCHED_DAYS * self._day_ms)
        return ComparisonSpan(first_ms, stop_ms) if first_ms < stop_ms else None

    @property
    def older_books(self) -> list[str]:
        """The entries that our books lack and other sites' have, by site."""
        return list(self._context.older.behind.values())

    async def accept(self, site: str) -> None:
        """Record that an operator goes on although our books lack entries that a site has."""
        now_ms = self._context.now_ms
        sides: tuple[ContractSide, ...] = ("buy", "sell")
        details = self._context.older.behind.get(site, "")
        for side in sides:
            first_ms = await self.books.closed_until_ms(side, site, is_final=False)
            await self._context.write(
                StatementKept(
                    *(side, site, first_ms, max(now_ms, first_ms + 1), False, "accepted"),
                    *(pack({}), b"", details[:DETAILS_CHARS_MAX], b"", b"", self._context.utc_s()),
                )
            )
        self._context.older.forget(site)
        self._context.say(f"books: an operator accepts our books although {details or site}")

    # --- orders of operators -------------------------------------------------------------------

    async def compare(self, seller: str, first_ms: int, stop_ms: int) -> Comparison:
        """Compare a window with a seller now, and all payments.

        The window is cut at the present.
        """
        window = ComparisonSpan(first_ms, max(first_ms + 1, min(stop_ms, self._context.now_ms)))
        asked = await self.in_turn(lambda: self.buying.ask(seller, window, waiting=1))
        try:
            told = await self.in_turn(lambda: self.payments.ask(seller))
            with trio.move_on_after(ANSWER_S):
                await asked.answered.wait()
                await told.wait()
        finally:
            asked.waiting -= 1
        return Comparison(asked.state, asked.details, await self.payments.matches(seller))

    async def compare_sold(self, buyer: str, first_ms: int, stop_ms: int) -> tuple[str, str]:
        """Have a buyer compare a window with us now; return state and details.

        The state is empty without an answer. The window is cut at the present.
        """
        window = ComparisonSpan(first_ms, max(first_ms + 1, min(stop_ms, self._context.now_ms)))

        async def want() -> WantedComparison:
            return self.selling.want(buyer, window)

        wanted = await self.in_turn(want)
        with trio.move_on_after(ANSWER_S):
            await wanted.answered.wait()
        self.selling.wanted.pop((buyer, window), None)
        return wanted.state, wanted.details
