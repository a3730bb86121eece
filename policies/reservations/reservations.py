"""Reservations: slots of a pool that are kept for a party for a span of time, at a price. Pure.

A reservation is for [from_s, until_s), UTC. The slots that may be reserved at a time are those that
no window or claim guarantees, less those already reserved. They never exceed the owner's `most` of
a pool, nor the slots that its party may use then. In its span a reservation is a claim of its own
(policies.access.claims), with its own price; work that does not fit beside it makes room as before
any window.

    free(t) = min(N - Σ guaranteed(t), most) - Σ reserved(t)      at each t in the span, N slots
    price   = ⌊Σ p_i·t_i / T + ½⌋ per slot-hour                   p_i public in t_i, T = Σ t_i
    unused  = max(0, slots·T' - used)                             T' until it ends, or is cancelled
    bill    = price · (unused · unused_factor + slots·(T - T') · cancel_factor)

`used` is charged during use, like all work, at the reservation's price. Prices follow the pool's
list at booking time, and stay fixed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

from federation.clocks import CALENDAR_END_S, NEVER_S, UNIX_EPOCH_S, UtcS
from federation.offers import show_time
from federation.words import count, duration_text
from policies.access.claims import Amount, Claims, ReservedSlots
from policies.access.windows import AHEAD_S, PoolRules, Window, WindowPlan, WindowSpan
from policies.calendar.hours import Hours
from policies.calendar.weeks import DAY_S
from policies.costs.pricelist import Adjustment, PriceList
from policies.parties import Owner, Party, PartyKind
from policies.reservations.coallocation import KEEP_S
from policies.tariffs import HOUR_NS, MILLION, Tariff, cost_nanos, round_half_up

NAMED: Final = "reservation "  # before its id: a tariff's version, and a window's name
BOOKED_MAX: Final = 1_000  # of a site, not ended
ONES_MAX: Final = 250  # of these, one user's: the shortest cost nothing, and would block others
HALF: Final = Amount(part=5_000)
LAST_S: Final = CALENDAR_END_S - 1.0
CLOCK_S: Final = 60.0  # a reservation may begin this long before now: it takes time to ask


class ReservationState(StrEnum):
    """The state of a reservation. Books and people see the value.

    held → booking → booked → ended, or cancelled; a hold that is not booked in time has expired.
    One of several parts is `booking` until all of them are booked
    (policies.reservations.coallocation); one at a single site never is. This site's reservation at
    another is `releasing` until that site has acknowledged the release.
    """

    HELD = "held"
    BOOKING = "booking"
    BOOKED = "booked"
    RELEASING = "releasing"
    ENDED = "ended"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


OPEN: Final = frozenset(
    {
        ReservationState.HELD,
        ReservationState.BOOKING,
        ReservationState.BOOKED,
        ReservationState.RELEASING,
    }
)


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """An owner's rules for reservations.

    Attributes:
        most: of a pool, reserved at one time.
        longest_s, ahead_s: the maximum length, and how far ahead it may end.
        unused_factor, cancel_factor: of the price, in millionths: for reserved time that is not
            used, and for the time left at cancellation.
        hold_s: how long slots are held before booking.
        drain_lead_s, grace_s: as a window's, where no window sets them.
    """

    most: Amount = HALF
    longest_s: float = DAY_S
    ahead_s: float = AHEAD_S
    unused_factor: int = MILLION
    cancel_factor: int = MILLION // 10
    hold_s: float = 30.0
    drain_lead_s: float = 0.0
    grace_s: float = 30.0


def reservation_named(version: str) -> str:
    """Return the id of the reservation that messages and books name by a tariff's version.

    Empty if the version is that of a price list.
    """
    return version.removeprefix(NAMED) if version.startswith(NAMED) else ""


class ReservationUse(NamedTuple):
    """The use of a reservation: slot time, the charge for it, and the number of records."""

    ns: int = 0
    nanos: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Slots of a pool for a party, in [from_s, until_s).

    Attributes:
        whole: the booking over several sites that it is a part of; its own id if of one site.
        by: the owner in whose name it is made and billed.
        site: the site that asked for it; empty: a user of this site.
        price_nanos: of a slot-hour.
        held_until_s: until when it is held, while it is.
        left_at_s: when it was cancelled.
        used_ns, billed_nanos: slot time used, and the bill for unused time, at its end, booked at
            `billed_at_s`.
    """

    id: str
    pool: str
    who: Party
    slots: int
    from_s: UtcS
    until_s: UtcS
    price_nanos: int
    currency: str
    by: Owner
    made_at_s: UtcS
    state: ReservationState = ReservationState.HELD
    held_until_s: UtcS = UtcS(0.0)
    unused_factor: int = MILLION
    cancel_factor: int = 0
    left_at_s: UtcS | None = None
    used_ns: int = 0
    billed_nanos: int = 0
    billed_at_s: UtcS = UtcS(0.0)
    whole: str = ""

    @property
    def tariff_name(self) -> str:
        """Its name on usage records."""
        return NAMED + self.id

    @property
    def tariff(self) -> Tariff:
        """The tariff of its slot-hours."""
        return Tariff(self.price_nanos, self.currency, self.tariff_name, reservation=self.id)

    @property
    def total_nanos(self) -> int:
        """The price of all of its time."""
        return cost_nanos(self.price_nanos, self.slot_ns(self.until_s))

    @property
    def ends_at_s(self) -> UtcS:
        """Until when it keeps slots: earlier when it was cancelled."""
        if self.left_at_s is None:
            return self.until_s
        return max(self.from_s, min(self.until_s, self.left_at_s))

    def slot_ns(self, until_s: UtcS) -> int:
        """Return its slot time up to a time."""
        return round(max(0.0, until_s - self.from_s) * 1e9) * self.slots

    def takes_slots(self, utc_s: UtcS) -> bool:
        """Whether it takes slots from others, now or later."""
        is_over = self.left_at_s is not None or utc_s >= self.until_s or self.has_lapsed(utc_s)
        return self.state in OPEN and not is_over

    @property
    def lapses_at_s(self) -> UtcS:
        """When it lapses, unless it is booked by then; inf once it is."""
        match self.state:
            case ReservationState.HELD:
                return min(self.held_until_s, self.until_s)
            case ReservationState.BOOKING:
                return min(max(self.from_s, self.held_until_s), self.until_s)
        return NEVER_S

    def has_lapsed(self, utc_s: UtcS) -> bool:
        """Whether it was held, or is one of several parts, and was not confirmed in time."""
        return utc_s >= self.lapses_at_s

    def standing(self, utc_s: UtcS) -> str:
        """Return its state in a word, for people."""
        if self.has_lapsed(utc_s):
            return ReservationState.EXPIRED
        if self.state is not ReservationState.BOOKED:
            return self.state
        if self.left_at_s is not None or utc_s >= self.until_s:
            return "ending"
        return self.state if utc_s < self.from_s else "running"

    def bill_nanos(self, used: "ReservationUse") -> int:
        """Return the charge at its end, besides its use.

        Each record of use is rounded by itself. The sum of the roundings is subtracted, so that the
        total is no more than was booked. An addition to a price by tags is no rounding.
        """
        unused_ns = max(0, self.slot_ns(self.ends_at_s) - used.ns)
        left_ns = self.slot_ns(self.until_s) - self.slot_ns(self.ends_at_s)
        parts = unused_ns * self.unused_factor + left_ns * self.cancel_factor
        nanos = round_half_up(Fraction(self.price_nanos * parts, HOUR_NS * MILLION))
        rounded_nanos = used.nanos - cost_nanos(self.price_nanos, used.ns)
        is_rounding = 0 < rounded_nanos <= used.records
        return max(0, nanos - rounded_nanos) if is_rounding else nanos


def advanced(reservation: Reservation, step: str, utc_s: UtcS) -> Reservation:
    """Return a part after another site's request to book, keep or release it; maybe unchanged.

    See policies.reservations.coallocation. A finished part stays finished, and requests are
    idempotent.
    """
    if reservation.has_lapsed(utc_s):
        return replace(reservation, state=ReservationState.EXPIRED)
    match step, reservation.state:
        case "book", ReservationState.HELD:
            return replace(reservation, state=ReservationState.BOOKING, held_until_s=utc_s + KEEP_S)
        case "keep", ReservationState.BOOKING:
            return replace(reservation, state=ReservationState.BOOKED)
        case "release", ReservationState.HELD | ReservationState.BOOKING:
            return replace(reservation, state=ReservationState.CANCELLED)
        case "release", ReservationState.BOOKED if reservation.left_at_s is None:
            return replace(reservation, left_at_s=utc_s)  # it has begun to cost something
    return reservation


class CantReserve(Exception):
    """Slots can't be reserved; the text says why, with figures, and offers alternatives."""


def check_span(
    rules: ReservationRules, slots: int, from_s: UtcS, until_s: UtcS, utc_s: UtcS
) -> None:
    """Refuse spans and sizes that no pool could give. Raise CantReserve."""
    if slots < 1:
        raise CantReserve(f"a reservation needs at least one slot, not {slots}")
    if until_s <= from_s:
        raise CantReserve("a reservation must end after it begins")
    if from_s < utc_s - CLOCK_S or until_s <= utc_s:
        raise CantReserve(
            f"the reservation would begin at {clock(from_s)}, which is past: the time is "
            f"{clock(utc_s)}"
        )
    if until_s - from_s > rules.longest_s:
        asked = duration_text(until_s - from_s)
        raise CantReserve(
            f"{asked} exceeds the longest reservation here, {duration_text(rules.longest_s)}"
        )
    if until_s > utc_s + rules.ahead_s:
        latest = clock(utc_s + rules.ahead_s)
        raise CantReserve(
            f"the reservation would end at {clock(until_s)}, after the latest end here, {latest}"
        )


def check_who(who: Party, by: Owner) -> None:
    """Refuse a party other than the caller, its groups or its project. Raise CantReserve."""
    own = (
        Party(PartyKind.USER, by.user),
        *(Party(PartyKind.GROUP, each) for each in (by.group, *sorted(by.more_groups))),
        Party(PartyKind.PROJECT, by.project),
    )
    if who not in own:
        names = ", ".join(str(each) for each in own if each.name)
        raise CantReserve(f"you can't reserve for {who}, only for {names}")


@dataclass(frozen=True, slots=True)
class ReservationBook:
    """The reservations of a pool, and the slots that can still be reserved.

    Attributes:
        plan: its windows and claims.
        total: slots that it has.
        made: its reservations.
        entitled: the total slots that an owner's work may have in a span, by other rules.
    """

    plan: WindowPlan
    total: int
    rules: ReservationRules
    made: Sequence[Reservation] = ()
    entitled: Callable[[Owner, WindowSpan], float] = lambda *_: inf

    def free(self, whose: Owner, from_s: UtcS, until_s: UtcS, utc_s: UtcS) -> int:
        """Return how many slots may be reserved for an owner over all of a span; 0 or more."""
        return max(0, min(slots for _, slots in self._steps(whose, from_s, until_s, utc_s)))

    def _steps(
        self, whose: Owner, from_s: UtcS, until_s: UtcS, utc_s: UtcS
    ) -> Iterator[tuple[UtcS, int]]:
        """Yield each time at which the reservable slots change, with their number.

        A negative number means that too many are reserved.
        """
        changes: dict[UtcS, tuple[int, int]] = {}
        for each in self.made:
            if each.takes_slots(utc_s):
                had = each.slots if each.who.includes(whose) else 0
                for at_s, sign in ((each.from_s, 1), (each.ends_at_s, -1)):
                    slots, own = changes.get(at_s, (0, 0))
                    changes[at_s] = slots + sign * each.slots, own + sign * had
        edges = sorted(changes.items(), reverse=True)
        taken = had = 0
        for span in self.plan.spans(from_s, until_s):
            kept = sum(each.guaranteed for each in span.claims.levels(self.total))
            own = int(min(span.most(whose, self.total), self.entitled(whose, span)))
            most = min(self.total - kept, self.rules.most.of(self.total))
            at_s = span.from_s
            while True:
                while edges and edges[-1][0] <= at_s:
                    _, (slots, mine) = edges.pop()
                    taken, had = taken + slots, had + mine
                yield at_s, min(most - taken, own - had)
                if not edges or edges[-1][0] >= span.until_s:
                    break
                at_s = edges[-1][0]

    def check(self, whose: Owner, slots: int, from_s: UtcS, until_s: UtcS, utc_s: UtcS) -> None:
        """Refuse a request that does not fit, and offer one that does. Raise CantReserve."""
        free = self.free(whose, from_s, until_s, utc_s)
        if slots <= free:
            return
        if slots > self.total:
            raise CantReserve(f"{count(slots, 'slot')} exceed the pool's total of {self.total}")
        verb = "is" if free == 1 else "are"
        instead = f"{count(free, 'slot') if free else 'none'} {verb} available then"
        later_s = self.first_fit(whose, slots, until_s - from_s, from_s, utc_s)
        if later_s is not None:
            instead += f"; {slots} are available from {clock(later_s)} on"
        kept = f"the others are reserved, guaranteed, or can't be reserved by {whose.user}"
        raise CantReserve(
            f"{slots} of {self.total} slots can't be reserved from {clock(from_s)} to "
            f"{clock(until_s)}: {instead} ({kept})"
        )

    def first_fit(
        self, whose: Owner, slots: int, lasts_s: float, after_s: UtcS, utc_s: UtcS
    ) -> UtcS | None:
        """Return the first time after one from which so many slots are free for so long.

        It takes one pass over all reservations: any user may ask, again and again.
        """
        end_at_s = utc_s + self.rules.ahead_s
        if end_at_s - lasts_s <= after_s:
            return None
        since_s: UtcS | None = None
        for at_s, free in self._steps(whose, after_s, end_at_s, utc_s):
            if since_s is not None and at_s - since_s >= lasts_s:
                break
            if free < slots:
                since_s = None
            elif since_s is None and at_s > after_s:
                since_s = at_s
        return since_s if since_s is not None and since_s + lasts_s < end_at_s else None


def edges_in(edges: Iterable[UtcS], start_at_s: UtcS, end_at_s: UtcS) -> Iterator[UtcS]:
    """Return the edges in (start_at_s, end_at_s)."""
    return (each for each in edges if start_at_s < each < end_at_s)


def price_over(prices: PriceList, level: int, from_s: UtcS, until_s: UtcS, site: str = "") -> int:
    """Return the mean price of a slot-hour over a span, by the present list.

    Args:
        level: the present one of the spot price, which can't be forecast.
        site: the buyer; its contract may lower the price.
    """
    adjust = prices.contracts.get(site) if site else None
    total, at_s = Fraction(0), from_s
    while at_s < until_s:
        end_at_s = min(until_s, at_s + DAY_S)
        changes = {*prices.band_changes(at_s), *prices.plan.edges(at_s, end_at_s)}
        for first_s, last_s in pairwise(
            [at_s, *sorted(edges_in(changes, at_s, end_at_s)), end_at_s]
        ):
            nanos = prices.public_nanos(first_s, level)
            total += _own(adjust, nanos) * Fraction(last_s - first_s)
        at_s = end_at_s
    return round_half_up(total / Fraction(until_s - from_s))


def _own(adjust: Adjustment | None, nanos: int) -> int:
    return nanos if adjust is None else min(nanos, adjust.of(nanos))


# --- in windows ----------------------------------------------------------------------------------


def overlay(
    rules: PoolRules, made: Iterable[Reservation], owner: ReservationRules, utc_s: UtcS
) -> PoolRules:
    """Return a pool's rules with its reservations: spans change where one begins or ends.

    A hold counts only from when it lapses: no work that would have to be stopped begins meanwhile,
    and no work makes room for slots that are not booked.
    """
    standing = sorted(
        (_confirmed(each) for each in made if each.takes_slots(utc_s)),
        key=lambda each: (each.made_at_s, each.id),
    )
    if not standing:
        return rules
    edges = {edge for each in standing for edge in (each.from_s, each.ends_at_s)}
    seats = [
        ReservedSlots(
            each.who,
            each.slots,
            each.tariff,
            each.ends_at_s,
            each.state is not ReservationState.HELD,
        )
        for each in standing
    ]
    spans = []
    # Callers compare claims by identity. Comparing all reservations of each span takes seconds for
    # a thousand of them: their places in the list suffice as a key.
    alike: dict[tuple[Claims, tuple[int, ...]], Claims] = {}
    for span in rules.spans:
        cuts = [span.from_s, *sorted(edges_in(edges, span.from_s, span.until_s)), span.until_s]
        for from_s, until_s in pairwise(cuts):
            there = tuple(
                at for at, each in enumerate(standing) if each.from_s <= from_s < each.ends_at_s
            )
            part = replace(span, from_s=from_s, until_s=until_s)
            if there:
                claims = alike.get((span.claims, there))
                if claims is None:
                    claims = replace(span.claims, reserved=tuple(seats[at] for at in there))
                    alike[span.claims, there] = claims
                window = _window(span.window, standing[there[0]], owner)
                part = replace(part, window=window, claims=claims)
            spans.append(part)
    begun = (each.from_s for each in standing if each.from_s <= rules.now.from_s < each.ends_at_s)
    return PoolRules(tuple(spans), max(rules.begun_at_s, *begun, UNIX_EPOCH_S))


def _confirmed(reservation: Reservation) -> Reservation:
    """Return it as if it were booked just before it lapses."""
    if reservation.state is not ReservationState.HELD:
        return reservation
    return replace(reservation, from_s=max(reservation.from_s, reservation.lapses_at_s))


def _window(window: Window | None, first: Reservation, owner: ReservationRules) -> Window:
    """Name the window of a span with reservations.

    By the first alone: work that was told to make room is not told again when another is booked.
    """
    name = first.tariff_name
    if window is not None:
        return replace(window, name=f"{window.name}, {name}")
    return Window(name, Hours(), drain_lead_s=owner.drain_lead_s, grace_s=owner.grace_s)


# --- for people ----------------------------------------------------------------------------------


def clock(at_s: UtcS) -> str:
    """Format a time for errors; a time beyond the calendar as the last one in it."""
    return show_time(min(at_s, LAST_S))
