"""Comparisons of our sales: answers to buyers, and comparisons that we want of them."""

from dataclasses import dataclass, field

import trio

from federation.messages.reconciliation import (
    CONTRACTS_MAX,
    ENTRIES_MAX,
    AskEntries,
    AskReconcile,
    Entries,
    Reconcile,
    Reconciled,
)
from gateway.scheduler.model.effects import PeerSide
from gateway.settlement.book_access import BookAccess, ComparisonResult
from gateway.settlement.book_age import BookAge
from gateway.settlement.comparing import (
    ComparisonSpan,
    difference,
    named,
    state_of,
    window_of,
)
from gateway.settlement.context import SettlementContext


@dataclass(slots=True)
class WantedComparison:
    """A comparison that we want of a buyer, and its outcome."""

    state: str = ""
    details: str = ""
    answered: trio.Event = field(default_factory=trio.Event)


class SellerComparisons:
    """The answers to buyers.

    Attributes:
        wanted: comparisons that we want of buyers, by buyer and window.
        early: buyers whose clock is ahead, reported since the last look.
    """

    def __init__(self, context: SettlementContext, books: BookAccess, age: BookAge) -> None:
        self._context = context
        self._books = books
        self._age = age
        self._day_ms = context.rules.day_ms
        self.wanted: dict[tuple[str, ComparisonSpan], WantedComparison] = {}
        self.early: set[str] = set()

    async def compare_for(self, buyer: str, message: Reconcile, envelope: bytes) -> None:
        """Answer a buyer that compares a window of its purchases with our sales."""
        window = window_of(message)
        if window.is_kept(self._day_ms) and window.stop_ms > self._context.now_ms:
            # More may still be booked into it, so any answer could be wrong. The buyer asks again.
            if buyer not in self.early:
                self.early.add(buyer)
                self._context.say(
                    f"books: {buyer} asks for {named(window)}, which has not ended here"
                )
            return
        if window.is_kept(self._day_ms):
            # Note it first, so that it holds even if our clock is set back while we read.
            self._context.note_settled("sell", buyer, window.stop_ms)
        tally = await self._books.tally("sell", buyer, window)
        if self._age.judge("sell", buyer, window, tally, message.sums):
            self.want(buyer, window)
        contracts: dict[str, bytes] = {}
        state = state_of(tally, message)
        if state != "agreed":
            contracts = await self._books.digests("sell", buyer, window)
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
            found = ComparisonResult(tally, state, details, ours.envelope, envelope)
            await self._books.keep("sell", buyer, window, found)
        self._context.post.carry(buyer, PeerSide.BUYER, ours)
        wanted = self.wanted.pop((buyer, window), None)
        if wanted is not None:
            wanted.state, wanted.details = state, details
            wanted.answered.set()

    async def tell_entries(self, buyer: str, message: AskEntries) -> None:
        """Send a buyer our entries of a contract, or that they are too many for a message."""
        first_ms, stop_ms = message.first_ms, message.stop_ms
        found = await self._books.entries(
            "sell", buyer, first_ms, stop_ms, message.contract, ENTRIES_MAX + 1
        )
        is_all = len(found) <= ENTRIES_MAX
        rows = [each.row for each in found] if is_all else []
        answer = Entries(message.contract, first_ms, stop_ms, rows, is_all)
        self._context.post.carry(buyer, PeerSide.BUYER, answer)

    def want(self, buyer: str, window: ComparisonSpan) -> WantedComparison:
        """Ask a buyer to compare a window with us."""
        wanted = self.wanted.setdefault((buyer, window), WantedComparison())
        ask = AskReconcile(window.first_ms, window.stop_ms)
        self._context.post.carry(buyer, PeerSide.BUYER, ask)
        return wanted
