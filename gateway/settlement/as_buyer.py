"""Comparisons of our purchases: questions to sellers, their answers, and mended verdicts.

The buyer asks: all verdicts are its own, so it can mend differences that concern only verdicts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import trio

from federation.errors import ProtocolError
from federation.messages.contracts import Verdict
from federation.messages.deals import Settle
from federation.messages.reconciliation import (
    AskEntries,
    AskReconcile,
    Entries,
    Reconcile,
    Reconciled,
    Tally,
    compare,
)
from federation.messages.registry import GatewayMessage
from gateway.config.books import period_of
from gateway.ledger.db.contracts.records import settled
from gateway.ledger.store import owed
from gateway.scheduler.model.effects import PeerSide
from gateway.settlement.book_access import BookAccess, ComparisonResult
from gateway.settlement.book_age import BookAge
from gateway.settlement.comparing import (
    ComparisonSpan,
    difference,
    named,
    question_of,
    state_of,
    told_sums,
    window_of,
)
from gateway.settlement.context import SettlementContext

TOLD_MAX: Final = 5  # differences of a contract in the log
UNCLEAR_MAX: Final = 50  # kept with the comparison
ASKED_AT_ONCE: Final = 50  # contracts whose entries are requested in one round
QUESTIONS_MAX: Final = 2_000  # for entries, to one seller between two looks
QUESTIONS_OPEN_MAX: Final = 20_000  # of these to all sellers, unanswered for several looks
OPEN_MAX: Final = 100  # unanswered comparisons with one seller
TRIES_MAX: Final = 3  # of a day that differs, and may be mended on the way
TRY_AGAIN_S: Final = 6 * 3600.0  # at most, or this many looks if sooner:
TRY_AGAIN_LOOKS: Final = 36
WANTS_MAX: Final = 20  # comparisons that a seller may request between two looks


@dataclass(slots=True)
class Question:
    """A question to a seller, and the differences since then that can't be mended."""

    tally: Tally
    envelope: bytes
    unclear: list[str] = field(default_factory=list)
    waiting: int = 0  # operators waiting for the answer
    is_catch_up: bool = False  # reported only when our books are older
    state: str = ""  # set once it is answered
    details: str = ""
    answered: trio.Event = field(default_factory=trio.Event)


class BuyerComparisons:
    """The questions to sellers, and the differences that their answers show.

    Attributes:
        asked: the questions, by seller and window.
    """

    def __init__(self, context: SettlementContext, books: BookAccess, age: BookAge) -> None:
        self._context = context
        self._books = books
        self._age = age
        self._day_ms = context.rules.day_ms
        self.asked: dict[tuple[str, ComparisonSpan], Question] = {}
        self._tries: Counter[tuple[str, ComparisonSpan]] = Counter()
        self._tries_since_s = context.utc_s()
        # Questions for entries, the oldest first.
        self._entries_asked: dict[tuple[str, str, int, int], None] = {}
        self._questions: Counter[str] = Counter()  # for entries, by seller, since the last look
        self._wants: Counter[str] = Counter()  # comparisons wanted, by seller, since the last look

    def is_awaited(self, site: str, message: GatewayMessage) -> bool:
        """Whether a message is no answer, or the first answer to an open question of ours."""
        match message:
            case Reconciled():
                asked = self.asked.get((site, window_of(message)))
                return asked is not None and not asked.answered.is_set()
            case Entries():
                return question_of(site, message) in self._entries_asked
            case _:
                return True

    def begin_look(self) -> None:
        """Drop answered questions, and let sellers be asked again."""
        # Keep open questions: a seller with much to do may answer only after several looks, and we
        # may be asking for another window by then.
        self.asked = {
            key: each
            for key, each in self.asked.items()
            if each.waiting or not each.answered.is_set()
        }
        self._questions.clear()
        self._wants.clear()
        again_s = min(TRY_AGAIN_S, TRY_AGAIN_LOOKS * self._context.rules.reconcile_s)
        if not 0 <= self._context.utc_s() - self._tries_since_s < again_s:
            self._tries.clear()
            self.asked = {key: each for key, each in self.asked.items() if each.waiting}
            self._entries_asked.clear()
            self._tries_since_s = self._context.utc_s()

    async def compare_as_asked(self, seller: str, message: AskReconcile) -> None:
        """Compare a window that a seller asks for, a limited number of times between two looks."""
        if self._wants[seller] < WANTS_MAX:
            self._wants[seller] += 1
            await self.ask(seller, window_of(message), is_catch_up=True)

    async def look_at(self, seller: str) -> None:
        """Ask a seller about the next window that is due, if there is one."""
        window = await self._due(seller)
        if window is not None:
            await self.ask(seller, window)

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

    async def ask(
        self, seller: str, window: ComparisonSpan, *, waiting: int = 0, is_catch_up: bool = False
    ) -> Question:
        """Send a seller our sums of a window; it answers with its own.

        Args:
            seller: it has sold to us.
            window: the days to compare.
            waiting: operators that wait for the answer.
            is_catch_up: reported only when our books are older.
        """
        before = self.asked.get((seller, window))
        if before is not None and before.waiting and not before.answered.is_set():
            before.waiting += waiting
            return before
        self._tries[seller, window] += 1
        self.asked.pop((seller, window), None)
        opened = [key for key, each in self.asked.items() if key[0] == seller and not each.waiting]
        for key in opened[: max(0, len(opened) - OPEN_MAX + 1)]:
            del self.asked[key]
        tally = await self._books.tally("buy", seller, window)
        envelope = self._tell_ours(seller, window, tally)
        asked = self.asked[seller, window] = Question(
            tally, envelope, waiting=waiting, is_catch_up=is_catch_up
        )
        return asked

    def _tell_ours(self, seller: str, window: ComparisonSpan, tally: Tally) -> bytes:
        """Send a seller our sums of a window; return the envelope."""
        message = Reconcile(
            window.first_ms, window.stop_ms, window.is_final, tally.plain, tally.digest
        )
        return self._context.tell(seller, PeerSide.SELLER, message)

    async def compared(self, seller: str, message: Reconciled, envelope: bytes) -> None:
        """Judge a seller's answer, and ask for the entries of contracts that differ."""
        window = window_of(message)
        asked = self.asked.get((seller, window))
        if asked is None or asked.answered.is_set():
            return  # a newer question has replaced it
        if self._age.judge("buy", seller, window, asked.tally, message.sums):
            self.asked.pop((seller, window), None)
            await self.ask(seller, window, is_catch_up=True)
        states = {state_of(asked.tally, message), message.state}
        is_agreed = states == {"agreed"}
        if is_agreed and window.is_kept(self._day_ms):
            # From here on nothing is booked into it, but something may have been since we asked.
            self._context.note_settled("buy", seller, window.stop_ms)
            tally = await self._books.tally("buy", seller, window)
            if tally.digest != asked.tally.digest:
                asked.tally, asked.envelope = tally, self._tell_ours(seller, window, tally)
                return
        state = "agreed" if is_agreed else "pending" if "differs" not in states else "differs"
        details = "" if is_agreed else difference(asked.tally, message)
        proof = envelope if is_agreed else b""
        found = ComparisonResult(asked.tally, state, details, asked.envelope, proof)
        await self._books.keep("buy", seller, window, found)
        asked.state, asked.details = state, details
        asked.answered.set()
        if is_agreed:
            del self.asked[seller, window]
            if asked.is_catch_up:
                return
            told = told_sums(asked.tally)
            self._context.say(f"books: {named(window)} agrees with {seller}: {told}")
            await self.look_at(seller)
            return
        if not asked.is_catch_up:  # after a start, pending is no news
            self._context.say(f"books: {named(window)} {state} with {seller}: {details[:300]}")
        ours = await self._books.digests("buy", seller, window)
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

    async def mend(self, seller: str, message: Entries) -> None:
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
        ours = await self._books.entries("buy", seller, first_ms, stop_ms, contract)
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
        for (site, window), asked in self.asked.items():
            if site == seller and window.first_ms <= first_ms and stop_ms <= window.stop_ms:
                told = (f"{contract}: {each}" for each in unclear)
                asked.unclear += islice(told, UNCLEAR_MAX - len(asked.unclear))
                details = "; ".join(asked.unclear)
                found = ComparisonResult(asked.tally, "differs", details, asked.envelope)
                await self._books.keep("buy", seller, window, found)
