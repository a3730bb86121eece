"""Compares our books with other sites', day by day and period by period, and settles disputes.

federation.messages.reconciliation says what is found and what follows, gateway.settlement.comparing
what may be said of it; this module reads, writes and sends. The buyer asks: all verdicts are its
own, so it can mend differences that concern only verdicts. A single task does one thing at a time,
one site after the other (gateway.settlement.turns); a lost message is asked for again.

A day is compared some time after its end; a day that agrees is not compared again. A period is
closed when all of its days agree. Work never waits for the books: it goes on while they differ.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import trio
from sqlalchemy.exc import SQLAlchemyError

from federation.errors import ProtocolError
from federation.messages.contracts import Verdict
from federation.messages.deals import Settle
from federation.messages.payments import Match, Payments
from federation.messages.reconciliation import (
    CONTRACTS_MAX,
    ENTRIES_MAX,
    AskEntries,
    AskReconcile,
    BookEntry,
    Dispute,
    DisputeAnswer,
    Entries,
    Reconcile,
    Reconciled,
    Tally,
    by_contract,
    compare,
    sums_of,
    tally_of,
)
from federation.messages.registry import GatewayMessage, Receiver
from federation.messages.wire import pack
from gateway.base.faults import describe_fault
from gateway.base.handlers import MessageHandler, handles
from gateway.config.books import period_of
from gateway.ledger.accounting.settlement import settled_until, void_share
from gateway.ledger.db.contracts.records import ContractSide, settled
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.settlement.records import StatementKept
from gateway.ledger.store import owed
from gateway.scheduler.model.effects import PeerSide
from gateway.settlement.comparing import (
    DETAILS_CHARS_MAX,
    ComparisonSpan,
    check,
    difference,
    named,
    question_of,
    state_of,
    subject_of,
    told_sums,
    window_of,
)
from gateway.settlement.context import SettlementContext
from gateway.settlement.disputes import Disputes
from gateway.settlement.payments import PaymentsDesk
from gateway.settlement.turns import OURS, Job, Turns

TOLD_MAX: Final = 5  # differences of a contract in the log
UNCLEAR_MAX: Final = 50  # kept with the comparison
ASKED_AT_ONCE: Final = 50  # contracts whose entries are requested in one round
WAITING_MAX: Final = ASKED_AT_ONCE + 10  # messages of one site; further ones are asked for again
QUESTIONS_MAX: Final = 2_000  # for entries, to one seller between two looks
QUESTIONS_OPEN_MAX: Final = 20_000  # of these to all sellers, unanswered for several looks
OPEN_MAX: Final = 100  # unanswered comparisons with one seller
SUSPECTED_MAX: Final = 100  # windows of one site in which our books may lack entries
ANSWER_S: Final = 20.0  # time for a seller to answer an operator's question
TRIES_MAX: Final = 3  # of a day that differs, and may be mended on the way
TRY_AGAIN_S: Final = 6 * 3600.0  # at most, or this many looks if sooner:
TRY_AGAIN_LOOKS: Final = 36
WATCHED_DAYS: Final = 7  # the days of a buyer's verdicts that are examined
WANTS_MAX: Final = 20  # comparisons that a seller may request between two looks
VOID_MIN: Final = 10  # deliveries: an occasional late one is no reason


T = TypeVar("T")


@dataclass(slots=True)
class _Asked:
    """A question to a seller, and the differences since then that can't be mended."""

    tally: Tally
    envelope: bytes
    unclear: list[str] = field(default_factory=list)
    waiting: int = 0  # operators waiting for the answer
    is_catch_up: bool = False  # reported only when our books are older
    state: str = ""  # set once it is answered
    details: str = ""
    answered: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True)
class _Wanted:
    """A comparison that we want of a buyer, and its outcome."""

    state: str = ""
    details: str = ""
    answered: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True, slots=True)
class _Found:
    """The outcome of a comparison: state, differences, and the signed envelopes that prove them."""

    tally: Tally
    state: str
    details: str
    ours: bytes
    theirs: bytes = b""


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
    """One site's side of the books; `disputes` has the disputes, `payments` the payments."""

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self.disputes = Disputes(context)
        self.payments = PaymentsDesk(context)
        self._asked: dict[tuple[str, ComparisonSpan], _Asked] = {}
        self._tries: Counter[tuple[str, ComparisonSpan]] = Counter()
        self._tries_since_s = context.utc_s()
        self._shunning: set[str] = set()  # buyers that have been reported
        self._early: set[str] = set()  # buyers whose clock is ahead, reported since the last look
        # Questions for entries, the oldest first.
        self._entries_asked: dict[tuple[str, str, int, int], None] = {}
        self._questions: Counter[str] = Counter()  # for entries, by seller, since the last look
        self._day_ms = context.rules.day_ms
        self._wanted: dict[tuple[str, ComparisonSpan], _Wanted] = {}  # comparisons wanted of buyers
        # Where ours lack entries, the oldest first.
        self._suspected: dict[tuple[str, str, ComparisonSpan], None] = {}
        self._caught_up: set[tuple[str, str]] = set()  # sides and sites, in this run of the gateway
        self._wants: Counter[str] = Counter()  # comparisons wanted, by seller, since the last look
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

    def hear(self, site: str, message: GatewayMessage, envelope: bytes) -> None:
        """Handle a message of a site about the books; ProtocolError when it breaks the rules.

        Answers to no question of ours are ignored. Each handler runs when its site has its turn.
        """
        check(message, envelope, self._context.now_ms, self._day_ms)
        if self._is_awaited(site, message):
            job = partial(self.handler(message), site, message, envelope)
            self._later(site, job, subject_of(message))

    def _is_awaited(self, site: str, message: GatewayMessage) -> bool:
        """Whether a message is no answer, or the first answer to an open question of ours."""
        match message:
            case Reconciled():
                asked = self._asked.get((site, window_of(message)))
                return asked is not None and not asked.answered.is_set()
            case Entries():
                return question_of(site, message) in self._entries_asked
            case _:
                return True

    @handles(Dispute)
    async def _disputed(self, buyer: str, message: Dispute, _: bytes) -> None:
        await self.disputes.disputed(buyer, message)

    @handles(DisputeAnswer)
    async def _answered(self, seller: str, message: DisputeAnswer, _: bytes) -> None:
        await self.disputes.answered(seller, message)

    @handles(Payments)
    async def _paid(self, site: str, message: Payments, envelope: bytes) -> None:
        await self.payments.heard(site, message, envelope)

    async def look(self) -> None:
        """Compare what is due, and repeat unanswered questions."""
        # Keep open questions: a seller with much to do may answer only after several looks, and we
        # may be asking for another window by then.
        self._asked = {
            key: each
            for key, each in self._asked.items()
            if each.waiting or not each.answered.is_set()
        }
        self._questions.clear()
        self._wants.clear()
        self._early.clear()
        again_s = min(TRY_AGAIN_S, TRY_AGAIN_LOOKS * self._context.rules.reconcile_s)
        if not 0 <= self._context.utc_s() - self._tries_since_s < again_s:
            self._tries.clear()
            self._asked = {key: each for key, each in self._asked.items() if each.waiting}
            self._entries_asked.clear()
            self._tries_since_s = self._context.utc_s()
        for seller in await self._context.read(self._context.store.contracts.partners, "buy"):
            if self._context.is_partner(seller):
                await self._look_at(seller)
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

    async def _look_at(self, seller: str) -> None:
        window = await self._due(seller)
        if window is not None:
            await self._ask(seller, window)

    async def _due(self, seller: str) -> ComparisonSpan | None:
        """The next window to compare with a seller: the first day that does not agree yet.

        When all days of a period agree, the period. A day that keeps differing holds up no other:
        it is tried a few times, and again some hours later.
        """
        store, day_ms = self._context.store.settlement, self._day_ms
        over_ms = self._context.now_ms - int(self._context.rules.settle_s * 1000)

        def find() -> ComparisonSpan | None:
            kept = store.statements("buy", seller)
            next_ms = partial(store.next_delivery_ms, "buy", seller)
            agreed_ms = next_ms(owed.agreed_until_ms(store, kept, "buy", seller))
            open_ms = next_ms(owed.agreed_until_ms(store, kept, "buy", seller, is_final=True))
            if open_ms is not None:
                first_ms, stop_ms = period_of(open_ms, self._context.rules.period, day_ms)
                if stop_ms <= over_ms and (agreed_ms is None or agreed_ms >= stop_ms):
                    return ComparisonSpan(first_ms, stop_ms, is_final=True)
            agreed = {each.first_ms for each in kept if each.state == "agreed"}
            while agreed_ms is not None:
                first_ms = agreed_ms // day_ms * day_ms
                window = ComparisonSpan(first_ms, first_ms + day_ms)
                if window.stop_ms > over_ms:
                    break
                if first_ms not in agreed and self._tries[seller, window] < TRIES_MAX:
                    return window
                agreed_ms = next_ms(window.stop_ms)
            return None

        due: ComparisonSpan | None = await self._context.read(find)
        return due

    async def closed_until_ms(self, side: str, site: str, *, is_final: bool = True) -> int:
        """The moment up to which one side's deliveries are closed, or else agreed."""
        store = self._context.store.settlement

        def find() -> int:
            kept = store.statements(side, site)
            return owed.agreed_until_ms(store, kept, side, site, is_final=is_final)

        until_ms: int = await self._context.read(find)
        return until_ms

    @property
    def older_books(self) -> list[str]:
        """The entries that our books lack and other sites' have, by site."""
        return list(self._context.older.behind.values())

    # --- after a start: are our books older than others'? --------------------------------------

    def met(self, site: str) -> None:
        """Queue a catch-up when a session with a site opens: our books may be an older copy."""
        self._later(site, lambda: self._catch_up(site), "catch-up")

    async def _catch_up(self, site: str) -> None:
        """Compare all that is not agreed yet with a site, once in this run of the gateway."""
        for side in ("buy", "sell"):
            partners = await self._context.read(self._context.store.contracts.partners, side)
            if (side, site) in self._caught_up or site not in partners:
                continue
            window = await self._open_window(side, site)
            if window is None:
                continue
            if side == "buy":
                await self._ask(site, window, is_catch_up=True)
            else:
                self._want(site, window)

    async def _open_window(self, side: str, site: str) -> ComparisonSpan | None:
        """The part of the last days that is neither agreed nor accepted; None if there is none."""
        kept = await self._context.read(self._context.store.settlement.statements, side, site)
        accepted_ms = max((each.stop_ms for each in kept if each.state == "accepted"), default=0)
        stop_ms = self._context.now_ms
        agreed_ms = await self.closed_until_ms(side, site, is_final=False)
        first_ms = max(accepted_ms, agreed_ms, stop_ms - WATCHED_DAYS * self._day_ms)
        return ComparisonSpan(first_ms, stop_ms) if first_ms < stop_ms else None

    def _want(self, buyer: str, window: ComparisonSpan) -> _Wanted:
        """Ask a buyer to compare a window with us."""
        wanted = self._wanted.setdefault((buyer, window), _Wanted())
        ask = AskReconcile(window.first_ms, window.stop_ms)
        self._context.post.carry(buyer, PeerSide.BUYER, ask)
        return wanted

    @handles(AskReconcile)
    async def _compare_as_asked(self, seller: str, message: AskReconcile, _: bytes) -> None:
        """Compare a window that a seller asks for, a limited number of times between two looks."""
        if self._wants[seller] < WANTS_MAX:
            self._wants[seller] += 1
            await self._ask(seller, window_of(message), is_catch_up=True)

    async def _judge_age(
        self, side: str, site: str, window: ComparisonSpan, ours: Tally, theirs: dict[str, Any]
    ) -> None:
        """Note whether a comparison shows that our books are older; the log says it once.

        Deliveries and payments between the two sites' looks are no sign of it, so the same window
        is compared twice.
        """
        self._caught_up.add((side, site))
        older, sums = self._context.older, sums_of(theirs)
        if not older.lacks(ours.sums, sums):
            self._suspected.pop((side, site, window), None)
        elif (side, site, window) in self._suspected:
            del self._suspected[side, site, window]
            if older.judge(side, site, ours.sums, sums):
                self._context.say(
                    f"books: {older.why_not(site)}. No new contracts are made with it"
                )
        elif site not in older.behind:
            self._suspected[side, site, window] = None
            of_site = [each for each in self._suspected if each[:2] == (side, site)]
            if len(of_site) > SUSPECTED_MAX:
                del self._suspected[of_site[0]]
            if side == "buy":
                self._asked.pop((site, window), None)
                await self._ask(site, window, is_catch_up=True)
            else:
                self._want(site, window)

    async def accept(self, site: str) -> None:
        """Record that an operator goes on although our books lack entries that a site has."""
        now_ms = self._context.now_ms
        sides: tuple[ContractSide, ...] = ("buy", "sell")
        details = self._context.older.behind.get(site, "")
        for side in sides:
            first_ms = await self.closed_until_ms(side, site, is_final=False)
            await self._context.write(
                StatementKept(
                    *(side, site, first_ms, max(now_ms, first_ms + 1), False, "accepted"),
                    *(pack({}), b"", details[:DETAILS_CHARS_MAX], b"", b"", self._context.utc_s()),
                )
            )
        self._context.older.forget(site)
        self._context.say(f"books: an operator accepts our books although {details or site}")

    # --- as a buyer ----------------------------------------------------------------------------

    async def compare(self, seller: str, first_ms: int, stop_ms: int) -> Comparison:
        """Compare a window with a seller now, and all payments.

        The window is cut at the present.
        """
        window = ComparisonSpan(first_ms, max(first_ms + 1, min(stop_ms, self._context.now_ms)))
        asked = await self.in_turn(lambda: self._ask(seller, window, waiting=1))
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

        async def want() -> _Wanted:
            return self._want(buyer, window)

        wanted = await self.in_turn(want)
        with trio.move_on_after(ANSWER_S):
            await wanted.answered.wait()
        self._wanted.pop((buyer, window), None)
        return wanted.state, wanted.details

    async def _ask(
        self, seller: str, window: ComparisonSpan, *, waiting: int = 0, is_catch_up: bool = False
    ) -> _Asked:
        before = self._asked.get((seller, window))
        if before is not None and before.waiting and not before.answered.is_set():
            before.waiting += waiting
            return before
        self._tries[seller, window] += 1
        self._asked.pop((seller, window), None)
        opened = [key for key, each in self._asked.items() if key[0] == seller and not each.waiting]
        for key in opened[: max(0, len(opened) - OPEN_MAX + 1)]:
            del self._asked[key]
        tally = await self._tally("buy", seller, window)
        envelope = self._tell_ours(seller, window, tally)
        asked = self._asked[seller, window] = _Asked(
            tally, envelope, waiting=waiting, is_catch_up=is_catch_up
        )
        return asked

    def _tell_ours(self, seller: str, window: ComparisonSpan, tally: Tally) -> bytes:
        """Send a seller our sums of a window; return the envelope."""
        message = Reconcile(
            window.first_ms, window.stop_ms, window.is_final, tally.plain, tally.digest
        )
        return self._context.tell(seller, PeerSide.SELLER, message)

    @handles(Reconciled)
    async def _compared(self, seller: str, message: Reconciled, envelope: bytes) -> None:
        window = window_of(message)
        asked = self._asked.get((seller, window))
        if asked is None or asked.answered.is_set():
            return  # a newer question has replaced it
        await self._judge_age("buy", seller, window, asked.tally, message.sums)
        states = {state_of(asked.tally, message), message.state}
        is_agreed = states == {"agreed"}
        if is_agreed and window.is_kept(self._day_ms):
            # From here on nothing is booked into it, but something may have been since we asked.
            self._context.note_settled("buy", seller, window.stop_ms)
            tally = await self._tally("buy", seller, window)
            if tally.digest != asked.tally.digest:
                asked.tally, asked.envelope = tally, self._tell_ours(seller, window, tally)
                return
        state = "agreed" if is_agreed else "pending" if "differs" not in states else "differs"
        details = "" if is_agreed else difference(asked.tally, message)
        proof = envelope if is_agreed else b""
        found = _Found(asked.tally, state, details, asked.envelope, proof)
        await self._keep("buy", seller, window, found)
        asked.state, asked.details = state, details
        asked.answered.set()
        if is_agreed:
            del self._asked[seller, window]
            if asked.is_catch_up:
                return
            told = told_sums(asked.tally)
            self._context.say(f"books: {named(window)} agrees with {seller}: {told}")
            await self._look_at(seller)
            return
        if not asked.is_catch_up:  # after a start, pending is no news
            self._context.say(f"books: {named(window)} {state} with {seller}: {details[:300]}")
        ours = await self._read(self._digests, seller, window)
        names = sorted(ours.keys() | message.contracts.keys())
        for name in [
            name
            for name in names
            if state == "pending" or ours.get(name) != message.contracts.get(name)
        ][:ASKED_AT_ONCE]:
            self._ask_entries(seller, name, window.first_ms, window.stop_ms)

    def _ask_entries(self, seller: str, contract: str, first_ms: int, stop_ms: int) -> None:
        if not self._context.is_live(contract) and self._questions[seller] < QUESTIONS_MAX:
            self._questions[seller] += 1
            self._entries_asked[seller, contract, first_ms, stop_ms] = None
            while len(self._entries_asked) > QUESTIONS_OPEN_MAX:
                del self._entries_asked[next(iter(self._entries_asked))]
            ask = AskEntries(contract, first_ms, stop_ms)
            self._context.post.carry(seller, PeerSide.SELLER, ask)

    @handles(Entries)
    async def _mend(self, seller: str, message: Entries, _: bytes) -> None:
        """Give each delivery the same verdict on both sides, where only the verdict differs."""
        contract, first_ms, stop_ms = message.contract, message.first_ms, message.stop_ms
        if question_of(seller, message) not in self._entries_asked:
            return  # a second answer
        del self._entries_asked[question_of(seller, message)]
        row = await self._context.contract("buy", contract, seller)
        if row is None or self._context.is_live(contract):
            return
        if not message.is_all:
            middle_ms = (first_ms + stop_ms) // 2
            if first_ms < middle_ms:
                self._ask_entries(seller, contract, first_ms, middle_ms)
                self._ask_entries(seller, contract, middle_ms, stop_ms)
            return
        ours = await self._read(self._entries, "buy", seller, first_ms, stop_ms, contract)
        try:
            found = compare(ours, message.rows)
        except ProtocolError as error:
            self._context.say(f"books: contract {contract} with {seller}: {error}")
            return
        verdicts = [(each, Verdict.POST) for each in found.post]
        verdicts += [(each, Verdict.VOID) for each in found.void]
        await self._context.write(
            *(
                settled(contract, "buy", seller, each, verdict, row.currency, self._context.utc_s())
                for each, verdict in verdicts
            )
        )
        if found.say:
            self._context.tell(seller, PeerSide.SELLER, Settle(contract, found.say))
        for each in found.unclear[:TOLD_MAX]:
            self._context.say(f"books: contract {contract} with {seller}: {each}")
        if found.unclear:
            self._context.say(
                f"books: {len(found.unclear):,} entries of contract {contract} differ from "
                f"those of {seller}"
            )
            await self._note_unclear(seller, contract, first_ms, stop_ms, found.unclear)

    async def _note_unclear(
        self, seller: str, contract: str, first_ms: int, stop_ms: int, unclear: Iterable[str]
    ) -> None:
        for (site, window), asked in self._asked.items():
            if site == seller and window.first_ms <= first_ms and stop_ms <= window.stop_ms:
                told = (f"{contract}: {each}" for each in unclear)
                asked.unclear += islice(told, UNCLEAR_MAX - len(asked.unclear))
                details = "; ".join(asked.unclear)
                found = _Found(asked.tally, "differs", details, asked.envelope)
                await self._keep("buy", seller, window, found)

    # --- as a seller ---------------------------------------------------------------------------

    @handles(Reconcile)
    async def _compare_for(self, buyer: str, message: Reconcile, envelope: bytes) -> None:
        window = window_of(message)
        if window.is_kept(self._day_ms) and window.stop_ms > self._context.now_ms:
            # More may still be booked into it, so any answer could be wrong. The buyer asks again.
            if buyer not in self._early:
                self._early.add(buyer)
                self._context.say(
                    f"books: {buyer} asks for {named(window)}, which has not ended here"
                )
            return
        if window.is_kept(self._day_ms):
            # Note it first, so that it holds even if our clock is set back while we read.
            self._context.note_settled("sell", buyer, window.stop_ms)
        tally = await self._tally("sell", buyer, window)
        await self._judge_age("sell", buyer, window, tally, message.sums)
        contracts: dict[str, bytes] = {}
        state = state_of(tally, message)
        if state != "agreed":
            contracts = await self._read(self._digests, buyer, window, "sell")
        answer = Reconciled(
            *(window.first_ms, window.stop_ms, window.is_final, state),
            *(tally.plain, tally.digest),
            dict(list(contracts.items())[:CONTRACTS_MAX]),
        )
        ours = self._context.post.seal(buyer, answer)
        details = "" if state == "agreed" else difference(tally, message)
        # Keep only periods with deliveries: else a buyer could fill our disk with empty
        # comparisons.
        if tally.sums and window.is_period(self._day_ms):
            # Before the answer is sent: else a power cut could lose part of our agreement.
            found = _Found(tally, state, details, ours.envelope, envelope)
            await self._keep("sell", buyer, window, found)
        self._context.post.carry(buyer, PeerSide.BUYER, ours)
        wanted = self._wanted.pop((buyer, window), None)
        if wanted is not None:
            wanted.state, wanted.details = state, details
            wanted.answered.set()

    @handles(AskEntries)
    async def _tell_entries(self, buyer: str, message: AskEntries, _: bytes) -> None:
        first_ms, stop_ms = message.first_ms, message.stop_ms
        found = await self._read(
            self._entries, "sell", buyer, first_ms, stop_ms, message.contract, ENTRIES_MAX + 1
        )
        is_all = len(found) <= ENTRIES_MAX
        rows = [each.row for each in found] if is_all else []
        answer = Entries(message.contract, first_ms, stop_ms, rows, is_all)
        self._context.post.carry(buyer, PeerSide.BUYER, answer)

    # --- the books -----------------------------------------------------------------------------

    async def _tally(self, side: str, site: str, window: ComparisonSpan) -> Tally:
        entries = self._context.store.settlement.entries
        return await self._read(
            lambda: tally_of(entries(side, site, window.first_ms, window.stop_ms))
        )

    async def _read(self, query: Callable[..., T], *arguments: Any) -> T:
        """Read deliveries after all pending writes, so that none looks absent.

        Other sites are told the result and book by it, so a power cut must not lose any of it.
        """
        await self._context.write()
        found: T = await self._context.read(query, *arguments)
        return found

    def _digests(self, site: str, window: ComparisonSpan, side: str = "buy") -> dict[str, bytes]:
        return by_contract(
            self._context.store.settlement.entries(side, site, window.first_ms, window.stop_ms)
        )

    def _entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str, limit: int = 0
    ) -> list[BookEntry]:
        found: list[BookEntry] = []
        for each in self._context.store.settlement.entries(side, site, first_ms, stop_ms, contract):
            found.append(each)
            if len(found) == limit:
                break
        return found

    async def _keep(
        self, side: ContractSide, site: str, window: ComparisonSpan, found: _Found
    ) -> None:
        if window.is_kept(self._day_ms):
            await self._context.write(
                StatementKept(
                    side,
                    site,
                    window.first_ms,
                    window.stop_ms,
                    window.is_final,
                    found.state,
                    pack(found.tally.plain),
                    found.tally.digest,
                    found.details[:DETAILS_CHARS_MAX],
                    found.ours,
                    found.theirs,
                    self._context.utc_s(),
                )
            )
            if found.state == "agreed":
                self._context.note_settled(side, site, window.stop_ms)
