"""Payments between us and another site: exchange of both sites' lists, and their comparison.

No payment is posted on the other site's word alone. Each site's newest list is kept beside the
books and shown where ours differs. A site that has not acknowledged our newest list is told again.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

import trio

from federation.errors import ProtocolError
from federation.messages import payments
from federation.messages.payments import Line, Match, Payments, PaymentStanding, told
from federation.messages.wire import pack
from gateway.ledger.accounting.settlement import lines, matches
from gateway.ledger.db.settlement.records import PaymentsTold
from gateway.ledger.store import owed
from gateway.settlement.context import SettlementContext

TOLD_MAX: Final = 5  # payments of one message that are reported to people
ENVELOPE_BYTES_MAX: Final = 1 << 19
ANSWERS_MAX: Final = 10  # to one site between two checks: a short question has a long answer


def check(message: Payments, envelope: bytes) -> None:
    """Raise ProtocolError for an invalid list of payments."""
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise ProtocolError("the list of payments is too long")
    payments.check(message)


class PaymentsDesk:
    """One site's side of the exchange."""

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self._answered: Counter[str] = Counter()  # by site, since the last check
        self._asked: dict[str, trio.Event] = {}  # set when a site has answered
        # Sites that people were told of since the last check, with the lists already reported.
        self._said: dict[str, PaymentsTold] = {}

    async def matches(self, site: str) -> list[Match]:
        """Return the payments that a site and we have booked, side by side."""
        store = self._context.store
        found: list[Match] = await self._context.read(
            lambda: owed.paid_with(store.settlement, site, store.settlement.payments(site))
        )
        return found

    async def ask(self, site: str) -> trio.Event:
        """Send a site our list and ask for its own; the event is set when it has answered."""
        await self.tell(site, is_asking=True)
        return self._asked.setdefault(site, trio.Event())

    async def tell(self, site: str, *, is_asking: bool = False) -> None:
        """Send a site the payments that we have booked with it."""
        if not self._context.is_partner(site):
            return
        heard = None if is_asking else await self._told_by(site)
        self._context.reach(site, await self._ours(site, heard))

    async def say_again(self) -> None:
        """Resend our list to sites that have not acknowledged it, and report missed news."""
        context = self._context
        answered, self._answered = self._answered, Counter()
        known = {
            each.site: each for each in await context.read(context.store.settlement.payments_told)
        }
        said, self._said = self._said, {}
        for site, before in said.items():
            await self._say(site, before, known[site])
        paid = {each.site for each in await context.read(context.store.settlement.payments)}
        for site in sorted(paid | known.keys()):
            if not context.is_partner(site):
                continue
            theirs = known.get(site)
            ours = await self._ours(site, theirs)
            if theirs is None or theirs.heard != ours.digest:
                # The site's acknowledgement may have been lost, so ask for its list as well.
                context.reach(site, replace(ours, heard=b""))
            elif answered[site] > ANSWERS_MAX:
                context.reach(site, ours)

    async def heard(self, site: str, message: Payments, envelope: bytes) -> None:
        """Store a site's list, and send it ours if that is news to it.

        A site that asks too often is answered at the next check.
        """
        context = self._context
        if not context.is_partner(site) or site not in await context.read(
            context.store.contracts.partners
        ):
            return  # we never dealt with it
        before, packed = await self._told_by(site), pack(message.lines)
        now = PaymentsTold(
            *(site, packed, message.since_ms, message.heard, envelope, context.utc_s())
        )
        is_news = before is None or (before.lines, before.since_ms) != (packed, message.since_ms)
        # An empty `heard` asks, and acknowledges nothing.
        if before is None or is_news or (message.heard and before.heard != message.heard):
            await context.write(now)
        if is_news:
            if packed != (pack([]) if before is None else before.lines):
                context.note_paid(site)
            await self._say(site, before, now)
        ours = await self._ours(site, now)
        if is_news or message.heard != ours.digest:
            self._answered[site] += 1
            if self._answered[site] <= ANSWERS_MAX:
                context.reach(site, ours)
        if (asked := self._asked.pop(site, None)) is not None:
            asked.set()

    async def _say(self, site: str, before: PaymentsTold | None, now: PaymentsTold) -> None:
        """Tell people of payments that differ or are missing here and were not reported yet.

        At most once between two checks, or a site could fill the log: further ones follow at the
        next check.
        """
        if site in self._said:
            return
        ours = await self._context.read(self._context.store.settlement.payments, site)
        known = {_what(each.theirs) for each in matches(ours, before)}
        new = [
            each
            for each in matches(ours, now)
            if each.standing in (PaymentStanding.DIFFERS, PaymentStanding.THERE_ALONE)
            and _what(each.theirs) not in known
        ]
        if new:
            self._said[site] = now
        for each in new[:TOLD_MAX]:
            here = "not booked here" if each.ours is None else f"{each.ours} here"
            self._context.say(
                f"books: {site} reports that it {each.theirs} under {each.line.reference!r}, "
                f"which is {here}: see `gridfed payments`"
            )

    async def _ours(self, site: str, heard: PaymentsTold | None) -> Payments:
        """Return the message with all payments that we have booked with a site."""
        paid = await self._context.read(self._context.store.settlement.payments, site)
        return told(lines(paid), heard.digest if heard is not None else b"")

    async def _told_by(self, site: str) -> PaymentsTold | None:
        found: PaymentsTold | None = await self._context.read(
            owed.told_by, self._context.store.settlement, site
        )
        return found


def _what(line: Line | None) -> Line | None:
    """Return a payment without its time: a different time alone is no news to people."""
    return line and replace(line, at_ms=0)


def told_of(found: Match) -> str:
    """Describe a payment that is not the same in both books."""
    name = f"{found.line.reference!r}"
    if found.ours is None:
        return f"{name}: it {found.theirs}, and nothing is booked here"
    there = f"it {found.theirs}" if found.theirs is not None else "it has not booked it"
    return f"{name}: we {found.ours}, and {there}"
