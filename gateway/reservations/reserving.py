"""Reservations of this site at other sites, and of other sites here. No loops, no waiting.

The coordination protocol is in policies.reservations.coallocation; this module connects it to the
store and the sessions. A coordinator's decision is in the store, a row for each part (side "buy"),
before it is sent. This site's own part of a booking over several sites is one of its reservations
(side "sell"), and takes the same steps as any other part, at once.

The coordinator asks a seller that has ended a reservation for its bill by sending the step "keep"
again.

A used name is never held again: a hold waits until a lookup in the books has shown that its name is
new, and is answered then.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages.payments import TIME_MS_MAX
from federation.messages.registry import Receiver
from federation.messages.reserving import Reserve, Reserved, Step
from federation.money import check_currency
from federation.words import count
from gateway.base.handlers import MessageHandler, handles
from gateway.contracts.model.dealing import Permits
from gateway.contracts.model.purchase import shown
from gateway.contracts.model.sale import number_of
from gateway.contracts.selling.names import Names
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.reservations.bookings import (
    Bookings,
    Named,
    bill_of,
    delivered,
    kept_as,
    paid,
    reservation_of,
)
from gateway.scheduler.model.effects import Effect, PeerSide, Remark, SendToSite, Write
from policies.costs.pricelist import PRICE_NANOS_MAX
from policies.parties import NAME_CHARS_MAX, Owner, Party, PartyKind
from policies.reservations import coallocation
from policies.reservations.coallocation import OVER, BookingPhase, Coallocation, Decide
from policies.reservations.reservations import (
    OPEN,
    CantReserve,
    Reservation,
    ReservationState,
    ReservationUse,
    advanced,
)
from policies.tariffs import MILLION

SITES_MAX: Final = 16  # of one booking
OPEN_MAX: Final = 100  # of one buyer, here
WHOLES_MAX: Final = 1_000
SETTLED: Final = "settled"  # a seller's answer: it knows that its bill is paid
_NOT_NEW: Final = "{} is the name of a contract: a reservation needs an unused name"
_ANSWERS: Final = (coallocation.REFUSED, SETTLED)
ASK_BILL_S: Final = 1.0  # until a second request, then twice as long, up to:
ASK_BILL_MAX_S: Final = 30.0
AHEAD_MAX_S: Final = 3_600.0  # how far a biller's clock may be ahead of this one
SLOTS_MAX: Final = 10**8
CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 500  # of a site's text that is shown to people
_STATE: Final = {
    BookingPhase.BOOKING: ReservationState.BOOKING,
    BookingPhase.BOOKED: ReservationState.BOOKED,
    BookingPhase.RELEASING: ReservationState.RELEASING,
    BookingPhase.RELEASED: ReservationState.CANCELLED,
}
_PHASE: Final = {state: phase for phase, state in _STATE.items()}


@dataclass(slots=True)
class _LookUp:
    """A lookup of a name in the books: how many holds wait for it, and whether one is wanted."""

    said: int = 1
    is_wanted: bool = True


class Selling(MessageHandler[[UtcS], Iterator[Effect]], receiver=Receiver.RESERVED_HERE):
    """The reservations of other sites in this site's pools.

    Args:
        permits: the rights of other sites.
        names: the names of contracts sold to other sites; reservations add theirs.
        utc_s: the time of day.
    """

    def __init__(
        self,
        site: str,
        bookings: Bookings,
        permits: Permits,
        names: Names,
        utc_s: Callable[[], UtcS],
    ) -> None:
        self._site = site
        self._bookings = bookings
        self._permits = permits
        self._names = names
        self._utc_s = utc_s
        self._look_ups: dict[tuple[str, str], _LookUp] = {}  # by buyer and name

    @handles(Reserve)
    def _asked(self, buyer: str, message: Reserve, utc_s: UtcS) -> Iterator[Effect]:
        """Take a step that a buyer asks for, and answer; ProtocolError when it may not ask."""
        _check(buyer, message)
        known = self._bookings.find(message.reservation)
        if known is None and message.step == Step.HOLD:
            yield from self._look_up(buyer, message, utc_s)
            return
        if known is None:
            if look_up := self._look_ups.get((buyer, message.reservation)):
                look_up.is_wanted = False
            yield SendToSite(buyer, PeerSide.BUYER, _expired(message.reservation))
            return
        if message.step == Step.SETTLE:
            if (
                known.state in (ReservationState.ENDED, ReservationState.CANCELLED)
                and known.billed_nanos
            ):
                yield Write(paid(known, "sell", buyer, utc_s), durable=True)
            yield SendToSite(buyer, PeerSide.BUYER, replace(_answer(known, utc_s), state=SETTLED))
            return
        yield from self.advance(known, message.step, utc_s)
        now = self._bookings.find(message.reservation)
        yield SendToSite(buyer, PeerSide.BUYER, _answer(now or known, utc_s))

    def _look_up(self, buyer: str, message: Reserve, utc_s: UtcS) -> Iterator[Effect]:
        """Refuse an impossible hold; for any other, look up whether its name is new."""
        name = message.reservation
        if look_up := self._look_ups.get((buyer, name)):
            look_up.said += 1
            return
        try:
            if self._names.is_sold(buyer, name):
                raise CantReserve(_NOT_NEW.format(name))
            self._hold(buyer, message, utc_s)
        except CantReserve as error:
            yield SendToSite(buyer, PeerSide.BUYER, _refused(name, str(error)))
            return
        self._names.reserve(buyer, name)
        self._look_ups[buyer, name] = _LookUp()
        self._bookings.look_up(name, partial(self._found, buyer, message))

    def _found(self, buyer: str, message: Reserve, found: Named | str) -> Iterator[Effect]:
        """Hold the slots if the name is new to the books; answer every request for this hold."""
        name, utc_s = message.reservation, self._utc_s()
        look_up = self._look_ups.pop((buyer, name))
        if not isinstance(found, str) and found.reservation is not None:
            # It ended so long ago that it was forgotten here.
            answer = _answer(reservation_of(found.reservation), utc_s)
        elif not look_up.is_wanted:
            answer = _expired(name)
        else:
            try:
                if isinstance(found, str):
                    raise CantReserve(f"the books of {self._site} can't be read: {found}")
                if found.is_contract:
                    raise CantReserve(_NOT_NEW.format(name))
                held = self._hold(buyer, message, utc_s)
            except CantReserve as error:
                answer = _refused(name, str(error))
            else:
                yield self._bookings.keep(held)
                answer = _answer(held, utc_s)
        for _ in range(look_up.said):
            yield SendToSite(buyer, PeerSide.BUYER, answer)

    def advance(self, known: Reservation, step: str, utc_s: UtcS) -> Iterator[Effect]:
        """Take a step with a part that is known here; do nothing if the step does not apply."""
        now = advanced(known, step, utc_s)
        if now != known and known.id in self._bookings.open:
            yield self._bookings.keep(now)

    def _hold(self, buyer: str, message: Reserve, utc_s: UtcS) -> Reservation:
        """Return the reservation to hold, without holding it yet. Raises CantReserve."""
        open_ = [each for each in self._bookings.open.values() if each.by.site == buyer]
        if len(open_) + sum(of == buyer for of, _ in self._look_ups) >= OPEN_MAX:
            raise CantReserve(
                f"too many open reservations of {buyer} here: {OPEN_MAX} is the limit"
            )
        user = f"{message.user}@{buyer}" if message.user else ""
        if len(user) > NAME_CHARS_MAX:
            raise CantReserve(f"the user's name is too long, {len(user)} characters: {user[:60]}…")
        who = Party(PartyKind.USER, user) if user else Party(PartyKind.SITE, buyer)
        by = Owner(user or buyer, "", message.project, buyer)
        from_s, until_s = UtcS(message.from_ms / 1000), UtcS(message.until_ms / 1000)
        asked = message.slots, from_s, until_s, str(who), by, utc_s, message.pool
        found = self._bookings.ask(*asked)
        had = sum(
            each.slots
            for each in open_
            if each.pool == found.pool and each.from_s < until_s and from_s < each.ends_at_s
        )
        slots, project = had + found.slots, message.project
        if self._permits.may_send(buyer, buyer, found.pool, project, slots, found.tariff):
            wanted = f"{count(slots, 'slot')} of {found.pool}"
            reason = f"the rules of {self._site} do not permit {buyer} {wanted}"
            raise CantReserve(reason)
        return replace(found, id=message.reservation, whole=message.reservation)


@dataclass(slots=True)
class Whole:
    """A booking of this site over several sites.

    Attributes:
        parts: by site, in the state that its site has reported.
        own: the id of this site's own part, if there is one.
        is_operators: as in `Bookings.ask`; after a restart it is not needed any more.
        steps: how often each part was written.
        ended: the sites whose part is over, and billed.
    """

    id: str
    machine: Coallocation
    parts: dict[str, Reservation]
    own: str = ""
    steps: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    ask_bills_at_s: MonoS = MonoS(0.0)
    bills_asked: int = 0  # how often, since a part of it was over
    is_operators: bool = False

    @property
    def by(self) -> Owner:
        """The owner of the booking."""
        return next(iter(self.parts.values())).by

    @property
    def is_settled(self) -> bool:
        """Whether the outcome can be reported."""
        return self.machine.phase in (
            BookingPhase.BOOKED,
            BookingPhase.RELEASING,
            BookingPhase.RELEASED,
        )


class Buying(MessageHandler[[MonoS, UtcS], Iterator[Effect]], receiver=Receiver.RESERVED_THERE):
    """The bookings of this site over several sites, itself among them or not.

    Args:
        new_name: names a part at another site.
    """

    def __init__(
        self, site: str, bookings: Bookings, selling: Selling, new_name: Callable[[], str]
    ) -> None:
        self._site = site
        self._bookings = bookings
        self._selling = selling
        self._new_name = new_name
        self.wholes: dict[str, Whole] = {}
        self._of_part: dict[str, str] = {}

    def recover(self, kept: Iterable[ReservationKept], mono_s: MonoS) -> Iterator[Effect]:
        """Take up the decisions of the last run of the gateway, and carry them on."""
        rows: dict[str, list[ReservationKept]] = {}
        for row in kept:
            if row.side == "buy":
                rows.setdefault(row.whole, []).append(row)
        for name, parts in rows.items():
            phases = {
                _PHASE[ReservationState(each.state)]
                for each in parts
                if ReservationState(each.state) in _PHASE
            }
            own = [each for each in self._bookings.open.values() if each.whole == name]
            whole = Whole(name, Coallocation(tuple(each.site for each in parts)), {})
            if own:
                whole.own, whole.parts[self._site] = own[0].id, own[0]
            for row in parts:
                part = whole.parts[row.site] = reservation_of(row)
                if part.state in OPEN:
                    self._bookings.reserved.hold(part, row.site)
                whole.steps[row.site] = row.step
                self._of_part[row.reservation] = name
            whole.machine = Coallocation(tuple(whole.parts))
            self.wholes[name] = whole
            # All parts of a decision are written together.
            yield from self._do(whole, whole.machine.resume(min(phases), mono_s), mono_s, UtcS(0.0))

    def begin(
        self,
        sites: Iterable[str],
        wanted: Reservation,
        mono_s: MonoS,
        utc_s: UtcS,
        *,
        is_operators: bool = False,
    ) -> tuple[Whole, list[Effect]]:
        """Begin to book slots at each of these sites; the id of `wanted` is that of the whole."""
        if len(self.wholes) >= WHOLES_MAX:
            raise CantReserve(f"too many open bookings at other sites: {WHOLES_MAX:,} is the limit")
        # As it travels: else a site would count and bill a little more than this one expects.
        from_s, until_s = round(wanted.from_s, 3), round(wanted.until_s, 3)
        wanted = replace(wanted, from_s=from_s, until_s=until_s)
        parts, own = {}, ""
        for site in sorted(set(sites)):
            if site == self._site:
                own = wanted.id
                parts[site] = replace(wanted, whole=wanted.id)
            else:
                parts[site] = replace(wanted, id=self._new_name(), whole=wanted.id)
        whole = Whole(wanted.id, Coallocation(tuple(parts)), parts, own, is_operators=is_operators)
        self.wholes[whole.id] = whole
        for site, part in parts.items():
            if site != self._site:
                self._of_part[part.id] = whole.id
        acts = whole.machine.begin(mono_s)
        return whole, list(self._do(whole, acts, mono_s, utc_s))

    def find(self, name: str) -> Whole | None:
        """Return a booking by its name, or by that of a part."""
        parts = ((each, part) for each in self.wholes.values() for part in each.parts.values())
        return self.wholes.get(name) or next(
            (each for each, part in parts if part.id == name), None
        )

    def cancel(self, whole: Whole, mono_s: MonoS, utc_s: UtcS) -> list[Effect]:
        """Release all parts; each site bills by its rules."""
        acts = whole.machine.release("it was cancelled", mono_s)
        return list(self._do(whole, acts, mono_s, utc_s))

    @handles(Reserved)
    def _answered(
        self, seller: str, message: Reserved, mono_s: MonoS, utc_s: UtcS
    ) -> Iterator[Effect]:
        """Handle a seller's report of the state of a part; ProtocolError if it is invalid."""
        _check_answer(message)
        whole = self.wholes.get(self._of_part.get(message.reservation, ""))
        part = whole.parts.get(seller) if whole is not None else None
        if whole is None or part is None or part.id != message.reservation:
            if message.state in (ReservationState.HELD, ReservationState.BOOKING):
                # A part that was never decided here, or was forgotten, is not wanted.
                yield SendToSite(
                    seller, PeerSide.SELLER, _wish(message.reservation, None, "release")
                )
            return
        if message.state == ReservationState.HELD and whole.machine.phase is BookingPhase.HOLDING:
            _check_offer(message)
            part = replace(
                part,
                pool=message.pool,
                price_nanos=message.price_nanos,
                currency=message.currency,
                unused_factor=message.unused_factor,
                cancel_factor=message.cancel_factor,
            )
            whole.parts[seller] = part
            objection = self._bookings.reserved.objection(part.by, part.total_nanos, part.currency)
            if objection:
                message = replace(message, state=coallocation.REFUSED, reason=objection)
                yield SendToSite(seller, PeerSide.SELLER, _wish(part.id, part, "release"))
            else:
                self._bookings.reserved.hold(part, seller)
        elif message.state == SETTLED:
            yield from self._settled(whole, seller)
            return
        elif message.state in OVER and message.state != coallocation.REFUSED:
            yield from self._over(whole, seller, message, utc_s)
        until_s = mono_s + message.lease_ms / 1000
        state = message.state
        before = whole.machine.phase
        acts = whole.machine.heard(seller, state, mono_s, until_s)
        if whole.machine.phase is not before and state == coallocation.REFUSED:
            whole.machine.reason = f"{seller}: {shown(message.reason, REASON_CHARS_MAX)}"
        yield from self._do(whole, acts, mono_s, utc_s)

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> Iterator[Effect]:
        """Handle the passing of time: repeat unanswered messages, and ask for bills."""
        for whole in list(self.wholes.values()):
            if mono_s >= whole.ask_bills_at_s:
                yield from self._ask_bills(whole, mono_s, utc_s)
            yield from self._do(whole, whole.machine.tick(mono_s), mono_s, utc_s)
            self._forget(whole)

    def _ask_bills(self, whole: Whole, mono_s: MonoS, utc_s: UtcS) -> Iterator[Effect]:
        """Ask for the bills of parts whose time is over, or that were released."""
        awaited = [
            (site, part)
            for site, part in whole.parts.items()
            if (utc_s >= part.until_s or whole.machine.phase is BookingPhase.RELEASED)
            and site not in (self._site, *whole.ended)
        ]
        if not whole.steps or not awaited:
            return
        # The seller may be about to bill: the last task has to end first.
        wait_s = min(ASK_BILL_MAX_S, ASK_BILL_S * 2.0 ** min(whole.bills_asked, 10))
        whole.bills_asked, whole.ask_bills_at_s = whole.bills_asked + 1, mono_s + wait_s
        for site, part in awaited:
            yield SendToSite(site, PeerSide.SELLER, _wish(part.id, part, Step.KEEP))

    def _over(self, whole: Whole, seller: str, message: Reserved, utc_s: UtcS) -> Iterator[Effect]:
        """Book and settle a seller's bill for a part that is over, if it keeps to the agreed terms.

        The bill is booked and settled at both sites; repeating that changes nothing.
        """
        part = whole.parts[seller]
        was_booked = seller in whole.steps and whole.machine.phase is not BookingPhase.BOOKING
        if not was_booked or seller in whole.ended:
            return
        if message.state == ReservationState.EXPIRED and whole.machine.phase is BookingPhase.BOOKED:
            yield Remark(f"{seller} released reservation {part.id}: it received no confirmation")
        billed_s = UtcS(message.at_ms / 1000)
        is_back = whole.machine.phase in (BookingPhase.RELEASING, BookingPhase.RELEASED)
        most_nanos = _most_nanos(part) if is_back or utc_s >= part.until_s else 0
        if message.billed_nanos > most_nanos or billed_s > utc_s + AHEAD_MAX_S:
            yield Remark(
                f"{seller} bills {message.billed_nanos} for reservation {part.id} as of "
                f"{message.at_ms}; its terms allow at most {most_nanos}: the bill is not "
                "booked"
            )
            return
        state = (
            ReservationState.ENDED
            if message.state == ReservationState.ENDED
            else ReservationState.CANCELLED
        )
        part = whole.parts[seller] = replace(
            part,
            state=state,
            used_ns=message.used_ns,
            billed_nanos=message.billed_nanos,
            billed_at_s=billed_s,
        )
        self._bookings.reserved.end(part, utc_s, seller)
        if not part.billed_nanos:
            yield from self._settled(whole, seller)
            return
        for record in (bill_of(part, seller), *delivered(part, "buy", seller)):
            yield Write(record, durable=True)
        yield SendToSite(seller, PeerSide.SELLER, _wish(part.id, part, Step.SETTLE))

    def _settled(self, whole: Whole, seller: str) -> Iterator[Effect]:
        """Note that no more messages are due about a part."""
        part = whole.parts[seller]
        if part.state in OPEN or seller in whole.ended:
            return
        whole.ended.add(seller)
        yield self._write(whole, seller, part)

    def _forget(self, whole: Whole) -> None:
        """Forget a booking that has no part left to settle."""
        others = {site for site in whole.parts if site != self._site}
        # A booking that was never decided has nothing to bill.
        is_over = others <= whole.ended or not whole.steps
        if is_over and whole.machine.phase in (BookingPhase.BOOKED, BookingPhase.RELEASED):
            del self.wholes[whole.id]
            for site in others:
                part = replace(whole.parts[site], billed_nanos=0)
                self._bookings.reserved.end(part, UtcS(0.0), site)
                self._of_part.pop(whole.parts[site].id, None)

    def _do(
        self, whole: Whole, acts: Iterable[coallocation.Act], mono_s: MonoS, utc_s: UtcS
    ) -> Iterator[Effect]:
        """Carry out decisions; this site's own part answers at once."""
        left = list(acts)
        while left:
            act = left.pop(0)
            if isinstance(act, Decide):
                # A booking that was never decided has left nothing behind.
                is_new = act.phase is BookingPhase.BOOKING
                for site, part in whole.parts.items():
                    is_open = site not in whole.ended and (is_new or site in whole.steps)
                    if site != self._site and is_open:
                        whole.parts[site] = replace(part, state=_STATE[act.phase])
                        yield self._write(whole, site, whole.parts[site])
            elif act.site == self._site:
                answered: list[coallocation.Act] = []
                yield from self._own(whole, act.step, mono_s, utc_s, answered)
                left += answered
            else:
                part = whole.parts[act.site]
                yield SendToSite(act.site, PeerSide.SELLER, _wish(part.id, part, act.step))

    def _own(
        self,
        whole: Whole,
        step: str,
        mono_s: MonoS,
        utc_s: UtcS,
        answered: list[coallocation.Act],
    ) -> Iterator[Effect]:
        """Take a step with this site's own part, as any seller would."""
        part, bookings = whole.parts[self._site], self._bookings
        known = bookings.find(part.id)
        if known is None and step == Step.HOLD:
            asked = part.slots, part.from_s, part.until_s, str(part.who), part.by
            try:
                found = bookings.ask(*asked, utc_s, part.pool, is_operators=whole.is_operators)
            except CantReserve as error:
                answered += whole.machine.heard(self._site, coallocation.REFUSED, mono_s)
                whole.machine.reason = f"{self._site}: {error}"
                return
            known = replace(found, id=part.id, whole=whole.id)
            yield bookings.keep(known)
        state, held_until_s = ReservationState.EXPIRED, mono_s
        if known is not None:
            yield from self._selling.advance(known, step, utc_s)
            known = bookings.find(part.id) or known
            whole.parts[self._site] = known
            # A part that its user has released waits for its bill, which concerns no other site.
            state = ReservationState.CANCELLED if known.left_at_s is not None else known.state
            held_until_s = mono_s + (known.held_until_s - utc_s)
        answered += whole.machine.heard(self._site, state, mono_s, held_until_s)

    def _write(self, whole: Whole, site: str, part: Reservation) -> Effect:
        step = whole.steps.get(site, -1) + 1
        whole.steps[site] = step
        return Write(kept_as(part, "buy", step, site), durable=True)


def _most_nanos(part: Reservation) -> int:
    """Return the most that a part may be billed: all of it unused, or all of it released."""
    return max(
        part.bill_nanos(ReservationUse()),
        replace(part, left_at_s=part.from_s).bill_nanos(ReservationUse()),
    )


# --- messages ------------------------------------------------------------------------------------


def _wish(name: str, part: Reservation | None, step: str) -> Reserve:
    if part is None:
        return Reserve(name, step, "", 1, 0, 1, "", "")
    by = part.by
    user = part.who.name if part.who.kind is PartyKind.USER else ""
    from_ms, until_ms = round(part.from_s * 1000), round(part.until_s * 1000)
    return Reserve(name, step, part.pool, part.slots, from_ms, until_ms, user, by.project)


def _answer(known: Reservation, utc_s: UtcS) -> Reserved:
    return Reserved(
        known.id,
        ReservationState.EXPIRED if known.has_lapsed(utc_s) else known.state,
        "",
        known.pool,
        known.price_nanos,
        known.currency,
        known.unused_factor,
        known.cancel_factor,
        max(0, round((known.held_until_s - utc_s) * 1000)),
        known.used_ns,
        known.billed_nanos,
        round(known.billed_at_s * 1000),
    )


def _refused(name: str, reason: str) -> Reserved:
    return Reserved(name, coallocation.REFUSED, reason[:1_000], "", 0, "", 0, 0, 0, 0, 0, 0)


def _expired(name: str) -> Reserved:
    return Reserved(name, ReservationState.EXPIRED, "", "", 0, "", 0, 0, 0, 0, 0, 0)


def _check(buyer: str, message: Reserve) -> None:
    """Raise ProtocolError for a message that no buyer may send."""
    number_of(buyer, message.reservation)  # it is billed as a contract of that name
    if message.step not in set(Step):
        raise ProtocolError("unknown step of a reservation")
    if not 0 <= message.slots <= SLOTS_MAX:
        raise ProtocolError("a reservation with an impossible number of slots")
    if not (0 <= message.from_ms <= TIME_MS_MAX and 0 <= message.until_ms <= TIME_MS_MAX):
        raise ProtocolError("a reservation at an invalid time")
    for text in (message.pool, message.user, message.project):
        if len(text) > CHARS_MAX or not (text == "" or text.isprintable()):
            raise ProtocolError("a reservation with an invalid name")


def _check_answer(message: Reserved) -> None:
    """Raise ProtocolError for a message that no seller may send."""
    numbers = message.used_ns, message.billed_nanos, message.price_nanos, message.lease_ms
    if not all(0 <= each <= NUMBER_LIMIT for each in numbers):
        raise ProtocolError("a reservation with a number out of range")
    if not 0 <= message.at_ms <= TIME_MS_MAX or message.state not in (*ReservationState, *_ANSWERS):
        raise ProtocolError("a reservation in an unknown state, or at an invalid time")
    try:
        check_currency(message.currency or "USD")
    except ValueError as error:
        raise ProtocolError(f"a reservation in an unknown currency: {error}") from None


def _check_offer(message: Reserved) -> None:
    """Raise ProtocolError for impossible terms."""
    factors = message.unused_factor, message.cancel_factor
    if not message.pool or len(message.pool) > CHARS_MAX or not message.pool.isprintable():
        raise ProtocolError("a reservation in an invalid pool")
    is_known = bool(message.currency) and message.price_nanos <= PRICE_NANOS_MAX
    if not is_known or not all(0 <= each <= MILLION for each in factors):
        raise ProtocolError("a reservation on invalid terms")
