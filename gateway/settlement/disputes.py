"""Disputes: a buyer names wrongly charged deliveries; its seller reverses or rejects them.

The buyer repeats a dispute until it is answered; the seller finds its answer in its books when the
dispute is repeated. Accepted deliveries are reversed in both books as of the time of the answer: no
booked entry is changed.
"""

from collections import defaultdict
from collections.abc import Iterable

from federation.clocks import UtcS
from federation.messages.reconciliation import ENTRIES_MAX, REASON_CHARS_MAX, Dispute, DisputeAnswer
from gateway.contracts.model.purchase import shown
from gateway.ledger.db.contracts.records import PostingRow
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import Disputed, DisputeRow, DisputeSettled
from gateway.scheduler.model.effects import PeerSide
from gateway.settlement.context import AHEAD_MAX_MS, NoSuchEntry, SettlementContext


class Disputes:
    """One site's disputes, as buyer and as seller."""

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self._mistimed: set[str] = set()  # sellers reported since the last look

    async def rows(self, side: str, contract: str, site: str = "") -> list[DisputeRow]:
        """The disputes of one side about a contract with a site; empty: any site."""
        return [
            each
            for each in await self._context.read(self._context.store.settlement.disputes, contract)
            if each.side == side and site in ("", each.site)
        ]

    async def dispute(
        self, contract: str, deliveries: Iterable[tuple[int, int]] | None, reason: str
    ) -> list[DisputeRow]:
        """Dispute paid deliveries under a contract that we bought: all of them, or the given ones.

        Raises:
            NoSuchEntry: there is no such contract, nothing of it was paid in time, or all chosen
                deliveries are disputed already.
        """
        row = await self._context.contract("buy", contract)
        if row is None:
            raise NoSuchEntry(
                f"contract {contract!r} not found among our purchases: see "
                "`gridfed deliveries SITE`"
            )
        since_s = self._context.utc_s() - self._context.rules.dispute_days * 86_400
        wanted = None if deliveries is None else set(deliveries)
        found = [
            each
            for each in await self._context.read(
                self._context.store.contracts.postings, "buy", contract
            )
            if each.state == "post"
            and each.records == 1
            and each.posted_at_s >= since_s
            and (wanted is None or (each.epoch, each.first) in wanted)
        ]
        if not found:
            which = "no delivery" if wanted is None else "none of these deliveries"
            raise NoSuchEntry(
                f"{which} of contract {contract} was paid for in the last "
                f"{self._context.rules.dispute_days:g} days: see "
                f"`gridfed deliveries {row.site} --contract {contract}`"
            )
        before = {(each.epoch, each.first) for each in await self.rows("buy", contract, row.site)}
        new = [each for each in found if (each.epoch, each.first) not in before]
        if not new:
            raise NoSuchEntry(
                f"these deliveries of contract {contract} are disputed already, and their "
                "reason stays: see `gridfed disputes`"
            )
        utc_s = self._context.utc_s()
        await self._context.write(
            *(
                Disputed("buy", contract, each.epoch, each.first, row.site, reason, utc_s)
                for each in new
            )
        )
        await self.say_again()
        return await self.rows("buy", contract, row.site)

    async def say_again(self) -> None:
        """Repeat unanswered disputes to sellers, in case a message was lost."""
        self._mistimed.clear()
        told: dict[tuple[str, str, str], list[list[int]]] = defaultdict(list)
        for each in await self._context.read(self._context.store.settlement.disputes, "", True):
            if each.side == "buy" and self._context.is_partner(each.site):
                told[each.site, each.contract, each.reason].append([each.epoch, each.first])
        for (site, contract, reason), rows in told.items():
            for at in range(0, len(rows), ENTRIES_MAX):
                message = Dispute(contract, rows[at : at + ENTRIES_MAX], reason)
                self._context.tell(site, PeerSide.SELLER, message)

    async def disputed(self, buyer: str, message: Dispute) -> None:
        """Note a buyer's disputes; answer those that were answered before, or can't be disputed."""
        contract, reason = message.contract, shown(message.reason)
        row = await self._context.contract("sell", contract, buyer)
        postings = await self._context.read(
            self._context.store.contracts.postings, "sell", contract
        )
        delivered = {
            (each.epoch, each.first): each for each in (postings if row is not None else ())
        }
        known = {
            (each.epoch, each.first): each for each in await self.rows("sell", contract, buyer)
        }
        utc_s, days = self._context.utc_s(), self._context.rules.dispute_days
        new: list[Record] = []
        answers: dict[str, list[list[int]]] = defaultdict(list)
        for epoch, first in message.deliveries:
            before, posting = known.get((epoch, first)), delivered.get((epoch, first))
            if before is not None and before.settled_at_s is not None:
                at_ms = round(before.settled_at_s * 1000)
                is_accepted = before.state == "accepted"
                answers[before.answer].append([epoch, first, at_ms, int(is_accepted)])
            elif before is not None:
                continue  # it waits for an answer
            elif posting is not None and posting.state == "pending":
                continue  # the verdict is in flight, and the dispute is repeated
            elif (why := _why_not(posting, utc_s, days)) is not None:
                answers[why].append([epoch, first, self._context.now_ms, 0])
            else:
                new.append(Disputed("sell", contract, epoch, first, buyer, reason, utc_s))
        await self._context.write(*new)
        if new:
            what = f"{len(new)} deliveries of contract {contract}"
            self._context.say(f"books: {buyer} disputes {what}: {reason}")
        for text, rows in answers.items():
            self._context.tell(buyer, PeerSide.BUYER, DisputeAnswer(contract, rows, text))

    async def answer(
        self, contract: str, deliveries: Iterable[tuple[int, int]] | None, *, accept: bool,
        reason: str,
    ) -> list[DisputeRow]:  # fmt: skip
        """Accept or reject a buyer's disputes about a contract: all open ones, or the given ones.

        Raises NoSuchEntry: none of them is open.
        """
        wanted = None if deliveries is None else set(deliveries)
        found = [
            each
            for each in await self.rows("sell", contract)
            if each.state == "open" and (wanted is None or (each.epoch, each.first) in wanted)
        ]
        if not found:
            raise NoSuchEntry(
                f"contract {contract} has no disputed delivery that awaits an answer here: see "
                "`gridfed disputes`"
            )
        # Not within the agreed time, even if our clock has been set back.
        at_ms = max(self._context.now_ms, self._context.settled_ms("sell", found[0].site))
        await self._context.write(*(_settlement(each, accept, reason, at_ms) for each in found))
        buyer = found[0].site
        for at in range(0, len(found), ENTRIES_MAX):
            rows = [
                [each.epoch, each.first, at_ms, int(accept)]
                for each in found[at : at + ENTRIES_MAX]
            ]
            self._context.tell(buyer, PeerSide.BUYER, DisputeAnswer(contract, rows, reason))
        return await self.rows("sell", contract, buyer)

    async def answered(self, seller: str, message: DisputeAnswer) -> None:
        """Book a seller's answers."""
        contract, reason = message.contract, shown(message.reason)
        open_ = {
            (each.epoch, each.first): each
            for each in await self.rows("buy", contract, seller)
            if each.state == "open"
        }
        new, mistimed = [], 0
        for epoch, first, at_ms, is_accepted in message.answers:
            each = open_.pop((epoch, first), None)
            if each is None:
                continue
            since_ms = each.disputed_at_s * 1000 - AHEAD_MAX_MS
            if is_accepted:  # a reversal is not booked into a time that both have agreed on
                since_ms = max(since_ms, self._context.settled_ms("buy", seller))
            if not since_ms <= at_ms <= self._context.now_ms + AHEAD_MAX_MS:
                mistimed += 1
                continue
            new.append(_settlement(each, bool(is_accepted), reason, at_ms))
        await self._context.write(*new)
        if mistimed and seller not in self._mistimed:
            self._mistimed.add(seller)
            what = f"{mistimed:,} disputed deliveries of contract {contract}"
            self._context.say(
                f"books: {seller} answers {what} with an invalid time: they stay open"
            )
        for word in sorted({each.state for each in new}):
            count = sum(each.state == word for each in new)
            self._context.say(
                f"books: {seller} has {word} {count} disputed deliveries of contract "
                f"{contract}: {reason}"
            )


def _why_not(posting: PostingRow | None, utc_s: UtcS, days: float) -> str | None:
    """Why a delivery can't be disputed, or None."""
    if posting is None or posting.state != "post":
        return "no such delivery was paid for"
    if posting.records > 1 or posting.posted_at_s < utc_s - days * 86_400:
        return f"the delivery is older than {days:g} days, and counts as accepted"
    return None


def _settlement(row: DisputeRow, is_accepted: bool, reason: str, at_ms: int) -> DisputeSettled:
    return DisputeSettled(
        side=row.side,  # type: ignore[arg-type]
        contract=row.contract,
        epoch=row.epoch,
        first=row.first,
        site=row.site,
        state="accepted" if is_accepted else "rejected",
        answer=reason[:REASON_CHARS_MAX],
        settled_at_s=UtcS(at_ms / 1000),
        cost_nanos=row.cost_nanos,
        currency=row.currency,
    )
