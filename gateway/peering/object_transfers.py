"""Objects that move between this site and others, for calls that were forwarded.

    a buyer forwards calls ─► PullObjects ─► AskTickets ══► the buyer: ticket, or why not
                                   ◄── here, or why not ── carrier ══ bulk port of the buyer
                              Receipts ══► the buyer

    a seller delivers results that it has kept ─► the same from buyer to seller ─► the delivery

The tasks of the contract wait at the seller until all that they refer to is there; its job holds
that until it ends. An object that can't come sends the tasks back, with the reason. A delivery with
a result that can't be fetched from its seller is refused: it is not paid, and its tasks run again
elsewhere. Where the cause is at this site, the seller has done its part: the delivery counts, and
those tasks have no result. They run again, unless for want of money: they would be paid twice.
The bytes go from carrier to carrier; this gateway sees digests and numbers.
"""

import math
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import trio

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.deals import Deliver
from federation.messages.registry import GatewayMessage, Receiver
from federation.messages.transferring import DIGESTS_MAX, AskTickets, Receipts, Tickets
from federation.objects.labels import UNLABELLED, DataLabel
from federation.objects.left import left_in
from federation.objects.manifests import digest_text
from federation.signed.declarations import ADDRESS
from federation.signed.transfers import TransferReceipt, TransferTicket
from federation.words import clean, count, size_text
from gateway.base.faults import describe_fault
from gateway.base.handlers import MessageHandler, handles
from gateway.contracts.model.moved import PROOFS_MAX, RECEIVE, SEND, MovedObject, MoveProof
from gateway.contracts.selling.unsettled import size_of
from gateway.objects.bulk.carrier_process import CarrierProcess, PullOutcome, PullSource
from gateway.objects.bulk.office import moved, proved, ticket_for, why_not_fetch
from gateway.objects.catalogue import ObjectKey
from gateway.objects.keeper import ObjectKeeper
from gateway.peering.bulk_addresses import BulkAddresses
from gateway.peering.ticket_turns import TicketQuestion, TicketTurns
from gateway.runtime.left_results import lost_results, without_results
from gateway.runtime.server import GatewayServer
from gateway.scheduler.model.effects import PeerSide, PullObjects
from gateway.scheduler.model.jobs import Job
from gateway.trust.ticket_signer import TicketSigner
from policies.access.residency import both

ANSWER_S: Final = 10.0  # for an answer; then it is asked again: messages may be lost with a session
ASKS_MAX: Final = 3
# Of one seller's deliveries that wait for objects: twice what it lets a buyer leave unsettled.
WAITING_BYTES_MAX: Final = 512 << 20
ROUNDS_MAX: Final = 3  # of fetching what is missing: objects go when their last holder ends
REASON_CHARS_MAX: Final = 500  # of another site's text
TURN_S: Final = 0.01  # between two turns of signing: a third of the loop's time at most
AHEAD: Final = 32  # objects of one order that have a ticket; a carrier fetches a few at a time
BOOKED_KEPT: Final = 2_000  # receipts, with their tickets: each has less than 2 kB
TICKETS_MAX: Final = 20  # for one object: hours in the queue
EXPIRED: Final = "has expired"  # in the words of the site that refuses the ticket
NOT_HELD: Final = "its site did not give it"
ADVERT_S: Final = 10.0  # for the advert that names a bulk port, which may come after a ticket
ADVERT_LOOK_S: Final = 0.2
LOOK_S: Final = 1.0  # how often it is checked whether a job still needs its objects
OURS_STAY: Final = (
    "this site has no bulk port from which other sites fetch objects (bulk_listen in [federation])"
)


class TransferRouter(Protocol):
    """How messages reach other sites: gateway.peering.message_router."""

    def carry(self, site: str, side: PeerSide, message: GatewayMessage) -> None:
        """Send a message to a site."""

    def hear_later(self, site: str, delivery: Deliver) -> None:
        """Handle a delivery of a seller that has waited for its results."""

    def refuse_later(self, site: str, delivery: Deliver, why: str) -> None:
        """Refuse a delivery of a seller that has waited for results that it does not give."""


@dataclass(frozen=True, slots=True)
class _LeftDelivery:
    """A delivery of a seller, some of whose results are objects there."""

    seller: str
    message: Deliver
    size: int  # in bytes, as it came
    refused: str = ""  # why it is not fetched at all


class _NotBrought(Exception):
    """An object can't be fetched; the text says why.

    Attributes:
        is_ours: the cause is at this site.
        is_short: it is that the money of the contract does not pay for its way.
    """

    def __init__(self, why: str, *, is_ours: bool = False, is_short: bool = False) -> None:
        super().__init__(why)
        self.is_ours = is_ours
        self.is_short = is_short


class _Expired(Exception):
    """The ticket for an object has expired before its transfer began; the text says so."""


def _why_refused(why: str = "") -> str:
    return clean(why)[:REASON_CHARS_MAX] or "it is refused"


async def _releasing(room: trio.Semaphore, bring: Callable[[], Awaitable[None]]) -> None:
    """Fetch one object, and make room for the next then."""
    try:
        await bring()
    finally:
        room.release()


class ObjectTransfers(MessageHandler[[], None], receiver=Receiver.OBJECTS):
    """The transfers of one site.

    Args:
        router: to other sites.
        server: its broker and contracts are read, and told when objects are here.
        keeper: the objects of this site.
        carrier: the process that moves their bytes.
        signer: signs and opens tickets and receipts.
        addresses: where other sites' bulk ports may be dialled.
        utc_s: the time of day.
        on_moved: takes objects that came here at no cost; the others are deliveries of contracts.
        say: takes lines for the operator.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        router: TransferRouter,
        server: GatewayServer,
        keeper: ObjectKeeper,
        carrier: CarrierProcess,
        signer: TicketSigner,
        addresses: BulkAddresses,
        utc_s: Callable[[], UtcS],
        on_moved: Callable[[MovedObject], None],
        say: Callable[[str], None],
    ) -> None:
        self._router = router
        self._server = server
        self._site = server.config.name
        self._jurisdiction = server.config.host_jurisdiction
        self._keeper = keeper
        self._carrier = carrier
        self._signer = signer
        self._addresses = addresses
        self._pools = {pool.name: pool.facts for pool in server.config.pools}
        self._utc_s = utc_s
        self._on_moved = on_moved
        self._say = say
        self._orders = trio.open_memory_channel[PullObjects | _LeftDelivery](math.inf)
        self._asks = 0
        self._asked: dict[int, tuple[str, trio.Event]] = {}
        self._answers: dict[int, Tickets] = {}
        self._coming: dict[ObjectKey, trio.Event] = {}
        self._turns, self._is_asked = TicketTurns(), trio.Event()
        self._coming_bytes = 0
        self._waiting_bytes: Counter[str] = Counter()  # of deliveries, by seller
        self._booked: dict[tuple[str, bytes, bytes], None] = {}  # sites, and their latest receipts

    @property
    def address(self) -> str:
        """The bulk port of this site, for its advert; empty: other sites can fetch nothing here."""
        address = self._carrier.address
        return address if re.fullmatch(ADDRESS, address, re.ASCII) else ""

    def why_ours_stay(self) -> str:
        """Return why other sites can't fetch objects from here; empty if they can."""
        return "" if self._carrier.address else OURS_STAY

    def pull(self, order: PullObjects) -> None:
        """Fetch objects for the calls of a contract; `Sales.objects_came` has the outcome.

        Those that are here are held from now on: another job that holds them may end meanwhile.
        """
        self._keeper.hold(order.job, order.scope, order.digests)
        self._orders[0].send_nowait(order)

    async def run(self) -> None:
        """Carry out orders until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_keys)
            nursery.start_soon(self._answer_questions)
            async for order in self._orders[1]:
                if isinstance(order, PullObjects):
                    nursery.start_soon(self._carry_out, order)
                else:
                    nursery.start_soon(self._take_results, order)

    async def _keep_keys(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            await self._carrier.keep_keys()

    # --- the receiver ----------------------------------------------------------------------------

    async def _carry_out(self, order: PullObjects) -> None:
        reason = "its job is over"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, order.job, nursery.cancel_scope)
                missed = await self._bring_all(order, set())
                reason = "" if missed is None else str(missed)
                nursery.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - other transfers go on
            reason = f"the transfer failed: {type(error).__name__}"
            self._say(f"objects for contract {order.contract} of {order.buyer}: {error!r}")
        self._server.exchange.sales.objects_came(order.buyer, order.contract, reason)
        self._server.act([])

    def fetch_results(self, seller: str, delivery: Deliver) -> None:
        """Fetch results that a seller has kept, and pass the delivery on after that.

        While deliveries of many bytes wait here already, nothing is fetched, and it is refused.
        """
        size, refused = size_of(delivery), ""
        waiting = self._waiting_bytes[seller]
        if waiting and waiting + size > WAITING_BYTES_MAX:
            refused = (
                f"{size_text(waiting)} of deliveries of site {seller} wait for objects already"
            )
        self._waiting_bytes[seller] += size
        self._orders[0].send_nowait(_LeftDelivery(seller, delivery, size, refused))

    async def _take_results(self, order: _LeftDelivery) -> None:
        seller, message = order.seller, order.message
        purchase = self._server.exchange.purchases.purchases.get(message.contract)
        is_ours = purchase is not None and purchase.site == seller and purchase.is_live
        job = self._server.broker.jobs.get(purchase.job) if purchase and is_ours else None
        missed: _NotBrought | None = None
        if job is not None and job.spec.results and not order.refused:
            try:
                missed = await self._bring_results(seller, message, job)
            except Exception as error:  # noqa: BLE001 - the tasks then have no result, and run again
                self._say(f"results of contract {message.contract} at {seller}: {error!r}")
                missed = _NotBrought(f"the transfer failed: {type(error).__name__}", is_ours=True)
        lost = lost_results(message, job, self._keeper.catalogue)
        self._waiting_bytes[seller] -= order.size
        if not self._waiting_bytes[seller]:
            del self._waiting_bytes[seller]
        why = order.refused or (str(missed) if missed is not None else NOT_HELD)
        if lost and job is not None and (missed is None or not missed.is_ours):
            text = f"{next(iter(lost.values()))}: {why}"
            self._say(
                f"a delivery of site {seller} under contract {message.contract} is refused, and "
                f"not paid: {text}"
            )
            self._router.refuse_later(seller, message, text)
        else:
            # Run again, a task would be paid again, and its result would cost the same way.
            kind = "result" if missed is not None and missed.is_short else "object"
            self._router.hear_later(seller, without_results(message, lost, why, kind))

    async def _bring_results(self, seller: str, message: Deliver, job: Job) -> _NotBrought | None:
        """Fetch results, each object once, and let the job hold each result.

        Return why some did not come; None: all are here.
        """
        digests = left_in(message.values)
        spec, new = job.spec, set[bytes]()
        order = PullObjects(
            *(seller, message.contract, job.id, spec.user, spec.scope),
            tuple(dict.fromkeys(digests)),
        )
        why: _NotBrought | None = _NotBrought("the job is over", is_ours=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, job.id, nursery.cancel_scope)
            why = await self._bring_all(order, new, is_input=False)
            nursery.cancel_scope.cancel()
        for digest in digests:
            if digest in new:
                new.discard(digest)  # the object host has put it as the first of them
                continue
            refused = self._keeper.hold_result(job.id, spec.scope, digest)
            if refused and why is None:
                text = f"a result can't be held at {self._site}: {refused}"
                why = _NotBrought(text, is_ours=True)  # the seller has given it
        return why

    async def _watch(self, job: str, scope: trio.CancelScope) -> None:
        """End the transfers of a job that is over."""
        while job in self._server.broker.jobs:  # noqa: ASYNC110 - jobs end in many ways
            await trio.sleep(LOOK_S)
        scope.cancel()

    async def _bring_all(
        self, order: PullObjects, new: set[bytes], *, is_input: bool = True
    ) -> _NotBrought | None:
        """Fetch the objects that are not here; return why not all are, or None.

        Those that were fetched for this order are added to `new`. What has gone meanwhile, as
        nothing held it, is fetched again.
        """
        await self._keeper.settled()
        reasons: list[_NotBrought] = []
        for _ in range(ROUNDS_MAX):
            missing = [each for each in order.digests if not self._is_here(order.scope, each)]
            if reasons or not missing:
                break
            await self._bring_missing(order, missing, new, reasons, is_input=is_input)
            if is_input:
                self._keeper.hold(order.job, order.scope, order.digests)
        else:
            if not reasons and not all(self._is_here(order.scope, at) for at in order.digests):
                reasons.append(_NotBrought("it was lost with the object host", is_ours=True))
        if not reasons:
            return None
        self._say(
            f"objects for contract {order.contract} of {order.buyer} did not come: {reasons[0]}"
        )
        what = "an object of its calls" if is_input else "a result"
        return _NotBrought(
            f"{what} can't come to {self._site}: {reasons[0]}",
            is_ours=all(each.is_ours for each in reasons),
            is_short=any(each.is_short for each in reasons),
        )

    async def _bring_missing(
        self,
        order: PullObjects,
        missing: list[bytes],
        new: set[bytes],
        reasons: list[_NotBrought],
        *,
        is_input: bool,
    ) -> None:
        """Fetch objects once; add to `reasons` why one did not come.

        Tickets are valid for minutes: they are asked for as transfers begin, not all at first.
        """
        async with trio.open_nursery() as nursery:
            room, at = trio.Semaphore(AHEAD), 0
            while at < len(missing) and not reasons:
                await room.acquire()
                wanted = min(1 + room.value, len(missing) - at)
                for _ in range(wanted - 1):
                    room.acquire_nowait()
                part, at = missing[at : at + wanted], at + wanted
                found = await self._ask(order, part)
                if found is None or len(found.tickets) != len(part):
                    reasons.append(_NotBrought(f"site {order.buyer} does not answer"))
                    break
                whys = [*found.reasons, *[""] * len(part)]
                for digest, ticket, why in zip(part, found.tickets, whys, strict=False):
                    if not ticket:
                        reasons.append(_NotBrought(_why_refused(why)))
                        continue
                    what = order, digest, ticket, found.address
                    bring = partial(self._bring, *what, new=new, reasons=reasons, is_input=is_input)
                    nursery.start_soon(_releasing, room, bring)

    def _is_here(self, scope: str, digest: bytes) -> bool:
        return self._keeper.catalogue.find(scope, digest) is not None

    async def _ask(self, order: PullObjects, digests: list[bytes]) -> Tickets | None:
        """Ask a buyer for tickets; None: it does not answer."""
        for _ in range(ASKS_MAX):
            self._asks += 1
            request, arrived = self._asks, trio.Event()
            self._asked[request] = order.buyer, arrived
            ask = AskTickets(request, order.contract, digests)
            self._router.carry(order.buyer, PeerSide.BUYER, ask)
            self._server.flush()
            with trio.move_on_after(ANSWER_S):
                await arrived.wait()
            self._asked.pop(request, None)
            if request in self._answers:
                return self._answers.pop(request)
        return None

    @handles(Tickets)
    def _answered(self, site: str, message: Tickets) -> None:
        asked, arrived = self._asked.get(message.request, ("", trio.Event()))
        if asked == site and not arrived.is_set():
            self._answers[message.request] = message
            arrived.set()

    async def _bring(
        self,
        order: PullObjects,
        digest: bytes,
        raw: bytes,
        address: str,
        *,
        new: set[bytes],
        reasons: list[_NotBrought],
        is_input: bool,
    ) -> None:
        """Fetch one object, unless another contract of this buyer is doing so."""
        key = ObjectKey(order.scope, digest)
        while key in self._coming:
            await self._coming[key].wait()
            if self._is_here(key.scope, key.digest):
                if is_input:
                    self._keeper.hold(order.job, order.scope, [digest])
                return
        self._coming[key] = trio.Event()
        try:
            await self._fetch_in_time(order, key, raw, address, is_input=is_input)
            new.add(digest)
        except _NotBrought as error:
            text = f"object {digest_text(digest)[:15]}…: {error}"
            how = {"is_ours": error.is_ours, "is_short": error.is_short}
            reasons.append(_NotBrought(text, **how))
        finally:
            if digest not in new:  # also where its job is over; a receipt has settled it otherwise
                purchases = self._server.exchange.purchases
                purchases.give_up(order.buyer, order.contract, digest, SEND)
            self._coming.pop(key).set()

    async def _fetch_in_time(
        self, order: PullObjects, key: ObjectKey, raw: bytes, address: str, *, is_input: bool
    ) -> None:
        """Fetch an object; with a new ticket if the one so far has expired in the queue.

        So, too, if the other site has another bulk port by now: its carrier has started again.
        """
        for _ in range(TICKETS_MAX):
            try:
                await self._fetch(order, key, raw, address, is_input=is_input)
                return
            except (_Expired, _NotBrought) as error:
                if isinstance(error, _NotBrought) and error.is_ours:
                    raise
                found = await self._ask(order, [key.digest])
                has_moved = found is not None and found.address != address
                if isinstance(error, _NotBrought) and not has_moved:
                    raise
                if found is None or len(found.tickets) != 1:
                    raise _NotBrought(str(error)) from None
                [raw], address = found.tickets, found.address
                if not raw:
                    raise _NotBrought(_why_refused(*found.reasons[:1])) from None
        raise _NotBrought(f"{TICKETS_MAX} tickets have expired before its transfer began")

    async def _fetch(
        self, order: PullObjects, key: ObjectKey, raw: bytes, address: str, *, is_input: bool
    ) -> None:
        try:
            ticket = self._signer.open_ticket(order.buyer, raw, self._utc_s())
        except ProtocolError as error:
            raise _NotBrought(str(error)) from None
        if not re.fullmatch(ADDRESS, address, re.ASCII):
            raise _NotBrought(f"site {order.buyer} names no address of a bulk port")
        with trio.move_on_after(ADVERT_S):  # a port that has just opened is in its next advert
            while not self._addresses.is_named(order.buyer, address):  # noqa: ASYNC110
                await trio.sleep(ADVERT_LOOK_S)
        if why := self._addresses.why_not(order.buyer, address, self._utc_s()):
            raise _NotBrought(why)
        self._check(order, key, ticket)
        self._coming_bytes += ticket.size
        try:
            found = await self._carrier.pull(
                *(key.scope, key.digest, ticket.size, order.user, order.job),
                [PullSource(order.buyer, address, raw)],
                is_input=is_input,
            )
        finally:
            self._coming_bytes -= ticket.size
        if found.reason and (EXPIRED in found.reason or self._utc_s() >= ticket.expires_s):
            raise _Expired(found.reason)
        if found.reason:
            raise _NotBrought(found.reason, is_ours=found.is_ours)
        self._receipt(order, ticket, raw, found)

    def _check(self, order: PullObjects, key: ObjectKey, ticket: TransferTicket) -> None:
        """Check that this site wants an object, and has room for it. Raises _NotBrought."""
        sale = self._server.exchange.sales.sales.get((order.buyer, order.contract))
        facts = self._pools.get(sale.pool) if sale is not None else None
        where = self._jurisdiction if facts is None else facts.jurisdiction
        why = why_not_fetch(ticket, self._site, key.digest, order.contract, where)
        if why:
            raise _NotBrought(why)
        why = self._why_not_here(order, where)
        catalogue = self._keeper.catalogue
        why = why or catalogue.refuses(key, ticket.size, order.user, self._coming_bytes)
        if not why and sale is None:  # a result of what we buy
            purchases = self._server.exchange.purchases
            what = order.contract, key.digest, ticket.size
            if why := purchases.pledge(order.buyer, *what, SEND, self._utc_s()):
                raise _NotBrought(why, is_ours=True, is_short=True)
        if why:
            raise _NotBrought(why, is_ours=True)

    def _why_not_here(self, order: PullObjects, where: str) -> str:
        """Return why the label of a job forbids that its objects come here, or an empty text.

        The object host is on the gateway's host; the tasks are in the pool, which may be elsewhere.
        """
        job = self._server.broker.jobs.get(order.job)
        label = UNLABELLED if job is None else job.spec.wishes.label
        whys = (label.why_not(self._site, each) for each in (self._jurisdiction, where))
        return next(filter(None, whys), "")

    def _receipt(
        self, order: PullObjects, ticket: TransferTicket, raw: bytes, found: PullOutcome
    ) -> None:
        """Sign for an object that has come, and book it.

        The contract proves a move that costs something to the other side, with its bill.
        """
        moved_bytes = min(ticket.size, sum(number for _, number in found.moved))
        exchange, utc_s = self._server.exchange, self._utc_s()
        is_sold = (order.buyer, order.contract) in exchange.sales.sales
        settled_ms = exchange.settled_ms("sell" if is_sold else "buy", order.buyer)
        at_ms = max(int(utc_s * 1000), settled_ms)  # agreed amounts stay, if our clock was set back
        receipt = TransferReceipt(
            ticket.id, ticket.source, ticket.to, ticket.digest, moved_bytes, at_ms
        )
        # In these books it is of the user and the project of the job here.
        fact = replace(moved(ticket, receipt), user=order.user, scope=order.scope)
        proof = MoveProof(raw, self._signer.receipt(receipt))
        if not exchange.moved(fact, proof, utc_s):
            self._on_moved(fact)
            message = Receipts([proof.receipt], [proof.ticket])
            side = PeerSide.BUYER if is_sold else PeerSide.SELLER
            self._router.carry(ticket.source, side, message)
        self._server.act([])
        self._server.flush()

    # --- the site that holds the object ----------------------------------------------------------

    @handles(AskTickets)
    def _asked_for(self, site: str, message: AskTickets) -> None:
        if len(message.digests) > DIGESTS_MAX:
            raise ProtocolError(f"over {DIGESTS_MAX} tickets are asked for at a time")
        if self._turns.add(site, message):
            self._is_asked.set()

    async def _answer_questions(self) -> None:
        """Sign tickets in turns, at a pace that leaves the loop to others."""
        while True:
            question = self._turns.take()
            if question is None:
                self._is_asked = trio.Event()
                await self._is_asked.wait()
                continue
            if self._carrier.listens and not self._carrier.address:
                await self._carrier.ready()  # it starts, or starts again: soon it has a port
            try:
                self._answer(question)
            except Exception as error:  # noqa: BLE001 - other questions are answered
                self._say(describe_fault(f"a question of {question.site} for tickets", error))
            await trio.sleep(TURN_S)

    def _answer(self, question: TicketQuestion) -> None:
        """Answer the next part of a question; send the answer when it is whole."""
        site, message = question.site, question.message
        for digest in question.turn:
            found = self._ticket(site, message.contract, digest)
            question.tickets.append(found if isinstance(found, bytes) else b"")
            question.reasons.append("" if isinstance(found, bytes) else found)
        if not question.is_answered:
            self._turns.put_back(question)
            return
        address = self._carrier.address
        answer = Tickets(message.request, address, question.tickets, question.reasons)
        self._router.carry(site, PeerSide.SELLER, answer)
        self._server.flush()

    def _ticket(self, site: str, contract: str, digest: bytes) -> bytes | str:
        """Return a sealed ticket for an object under a contract, or why there is none."""
        exchange = self._server.exchange
        job = self._job_under(site, contract)
        if job is None:
            return f"site {site} has no such contract with {self._site}"
        held = self._keeper.catalogue.find(job.spec.scope, digest)
        if held is None or not (job.id in held.jobs or held.results[job.id]):
            return f"site {self._site} does not hold the object for this contract any more"
        if not self._carrier.address:
            return f"site {self._site} has no bulk port now"
        label = held.label.named(held.title).within(job.spec.wishes.label)
        why = self._why_not_there(site, contract, label)
        why = why or exchange.purchases.pledge(
            *(site, contract, digest, held.size, RECEIVE, self._utc_s())
        )
        if why:
            return why
        regions = label.jurisdictions  # results go back to their own site
        if not job.spec.path or job.id != f"{site}:{contract}":
            wishes = self._server.broker.entitling.wishes_of(job.spec)
            regions = both(wishes.jurisdictions, regions)
        ticket = ticket_for(
            *(secrets.token_hex(16), self._site, self._signer.federation, site, held),
            *(job.spec.user, contract, regions, self._utc_s()),
        )
        try:
            return self._signer.ticket(ticket)
        except ValueError as error:
            exchange.purchases.give_up(site, contract, digest, RECEIVE)
            return f"site {self._site} can't make a ticket: {error}"[:300]

    def _why_not_there(self, site: str, contract: str, label: DataLabel) -> str:
        """Return why an object with a label may not go to a site, or an empty text."""
        if not label:
            return ""
        advert = self._server.exchange.market.advert(site)
        purchase = self._server.exchange.purchases.purchases.get(contract)
        pool = purchase.pool if purchase is not None and purchase.site == site else None
        pools = [each for each in advert.pools if each.pool == pool] if advert else []
        if pool is None:  # a result goes back to its buyer
            return self._server.exchange.reach.why_not_at(label, site)
        whys = [
            label.why_not(site, each.jurisdiction)
            or ("" if each.labels else f"{label.title}, and site {site} knows no labels of data")
            for each in pools
        ]
        return next(filter(None, whys), "" if whys else f"site {site} has no such pool")

    def _job_under(self, site: str, contract: str) -> Job | None:
        """Return the job here of a contract with a site: one that it sells to us, or buys."""
        exchange, jobs = self._server.exchange, self._server.broker.jobs
        purchase = exchange.purchases.purchases.get(contract)
        if purchase is not None and purchase.site == site and purchase.is_live:
            return jobs.get(purchase.job)
        sale = exchange.sales.sales.get((site, contract))
        return jobs.get(sale.job) if sale is not None and sale.is_live else None

    @handles(Receipts)
    def _receipted(self, site: str, message: Receipts) -> None:
        """Book objects that have gone from here; our own tickets come back with the receipts.

        A site of an older version sends no tickets: objects that move to it are free. A pair that
        can't be taken is left out, and its move is void once billed: proofs come again with bills,
        and would close each session of these sites.
        """
        if max(len(message.receipts), len(message.tickets)) > PROOFS_MAX:
            raise ProtocolError(f"over {PROOFS_MAX} receipts come at a time")
        refused: list[str] = []
        for raw, raw_ticket in zip(message.receipts, message.tickets, strict=False):
            pair = site, raw_ticket, raw
            if pair in self._booked:
                continue  # two signatures take longer to check than all the rest
            try:
                receipt = self._signer.open_receipt(site, raw)
                fact = proved(self._signer.open_given(raw_ticket), receipt)
                if self._server.exchange.moved(fact, MoveProof(raw_ticket, raw), self._utc_s()):
                    self._booked[pair] = None
            except ProtocolError as error:
                refused.append(str(error))
        while len(self._booked) > BOOKED_KEPT:
            del self._booked[next(iter(self._booked))]
        if refused:
            self._say(
                f"{count(len(refused), 'receipt')} of site {site} for objects not taken, and the "
                f"moves not paid: {clean(refused[0])[:REASON_CHARS_MAX]}"
            )
        self._server.act([])
