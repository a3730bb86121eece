"""Reservations: slots of a pool that are kept for a party in a span of time, and their price. Pure.

A reservation is for [from_s, until_s), UTC. What may be reserved at a moment is what no window or
claim guarantees to anybody, less what is reserved already, and never more than the owner's `most`
of a pool and what its party may use then. In its span it is a claim of its own (policies.claims),
with its own price; what does not fit beside it makes way as before any window.

    free(t) = min(N - Σ guaranteed(t), most) - Σ reserved(t)      at each t in the span, N slots
    price   = ⌊Σ p_i·t_i / T + ½⌋ per slot-hour                   p_i public in t_i, T = Σ t_i
    unused  = max(0, slots·T' - used)                             T' until it ends, or is cancelled
    bill    = price · (unused · unused_factor + slots·(T - T') · cancel_factor)

`used` is charged as it is used, like all work, at the reservation's price. Prices go by the pool's
list when it is booked, and stay.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

from policies.claims import Amount, Claims, Seats
from policies.coallocation import KEEP_S
from policies.hours import Hours
from policies.parties import Kind, Party, Whose
from policies.pricelist import Adjustment, PriceList
from policies.tariffs import HOUR_NS, MILLION, Tariff, cost_nanos, round_half_up
from policies.weeks import DAY_S
from policies.windows import AHEAD_S, Plan, Rules, Span, Window

NAMED: Final = "reservation "  # before its id: a tariff's version, and a window's name
BOOKED_MAX: Final = 1_000  # that are to come, of a site
ONES_MAX: Final = 250  # of these one user's: the shortest cost nothing, and would keep others out
HALF: Final = Amount(part=5_000)
LAST_S: Final = 253_402_300_799.0  # the end of the year 9999
CLOCK_S: Final = 60.0  # so long before now one may still begin: it takes time to ask


class State(StrEnum):
    """What has become of a reservation. The value is what the books and people see.

    held → booking → booked → ended, or cancelled; a hold that nobody books in time has expired.
    What is one of several parts is `booking` until all of them are booked (policies.coallocation);
    of one site alone it never is. What we have at other sites is `releasing` until they have heard
    that we don't want it.
    """

    HELD = "held"
    BOOKING = "booking"
    BOOKED = "booked"
    RELEASING = "releasing"
    ENDED = "ended"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


OPEN: Final = frozenset({State.HELD, State.BOOKING, State.BOOKED, State.RELEASING})


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """What an owner says about reservations.

    Attributes:
        most: of a pool, reserved at one time.
        longest_s, ahead_s: how long one may be, and how far ahead it may end.
        unused_factor, cancel_factor: of the price, in millionths: for reserved time that is not
            used, and for what is left of it when it is cancelled.
        hold_s: so long slots are held for who has not booked yet.
        drain_lead_s, grace_s: as a window's, where no window says so.
    """

    most: Amount = HALF
    longest_s: float = DAY_S
    ahead_s: float = AHEAD_S
    unused_factor: int = MILLION
    cancel_factor: int = MILLION // 10
    hold_s: float = 30.0
    drain_lead_s: float = 0.0
    grace_s: float = 30.0


class Used(NamedTuple):
    """What was used of a reservation: slot time, what was charged for it, in so many records."""

    ns: int = 0
    nanos: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Slots of a pool for a party, in [from_s, until_s).

    Attributes:
        whole: the booking that it is a part of, over several sites; its own id if of one.
        by: who made it, in whose name it is billed.
        site: the site that asked for it; empty: a user of ours.
        price_nanos: of a slot-hour.
        lease_s: until when it is held, while it is.
        left_s: when it was cancelled.
        used_ns, billed_nanos: slot time that was used, and the bill for what was not, at its end,
            booked at `billed_s`.
    """

    id: str
    pool: str
    who: Party
    slots: int
    from_s: float
    until_s: float
    price_nanos: int
    currency: str
    by: Whose
    made_s: float
    state: State = State.HELD
    lease_s: float = 0.0
    unused_factor: int = MILLION
    cancel_factor: int = 0
    left_s: float | None = None
    used_ns: int = 0
    billed_nanos: int = 0
    billed_s: float = 0.0
    whole: str = ""

    @property
    def tariff_name(self) -> str:
        """Names it on usage records."""
        return NAMED + self.id

    @property
    def tariff(self) -> Tariff:
        """What a slot-hour of it costs."""
        return Tariff(self.price_nanos, self.currency, self.tariff_name)

    @property
    def total_nanos(self) -> int:
        """What all of its time costs."""
        return cost_nanos(self.price_nanos, self.slot_ns(self.until_s))

    @property
    def ends_s(self) -> float:
        """Until when it keeps slots: shorter when it was cancelled."""
        if self.left_s is None:
            return self.until_s
        return max(self.from_s, min(self.until_s, self.left_s))

    def slot_ns(self, until_s: float) -> int:
        """Its slot time up to a moment."""
        return round(max(0.0, until_s - self.from_s) * 1e9) * self.slots

    def takes_slots(self, utc_s: float) -> bool:
        """Whether it still stands in the way of others, now or later."""
        is_over = self.left_s is not None or utc_s >= self.until_s or self.has_lapsed(utc_s)
        return self.state in OPEN and not is_over

    @property
    def lapses_s(self) -> float:
        """When it lapses, unless it is booked by then; inf once it is."""
        match self.state:
            case State.HELD:
                return min(self.lease_s, self.until_s)
            case State.BOOKING:
                return min(max(self.from_s, self.lease_s), self.until_s)
        return inf

    def has_lapsed(self, utc_s: float) -> bool:
        """Whether it was held, or is one of several parts, and nobody has confirmed it in time."""
        return utc_s >= self.lapses_s

    def standing(self, utc_s: float) -> str:
        """Its state in a word, as people see it."""
        if self.has_lapsed(utc_s):
            return State.EXPIRED
        if self.state is not State.BOOKED:
            return self.state
        if self.left_s is not None or utc_s >= self.until_s:
            return "ending"
        return self.state if utc_s < self.from_s else "running"

    def bill_nanos(self, used: "Used") -> int:
        """What is charged at its end, besides what was used.

        Each record of what was used is rounded by itself: what that comes to is taken off, so that
        all together costs no more than was booked. What tags added to a price is no rounding.
        """
        unused_ns = max(0, self.slot_ns(self.ends_s) - used.ns)
        left_ns = self.slot_ns(self.until_s) - self.slot_ns(self.ends_s)
        parts = unused_ns * self.unused_factor + left_ns * self.cancel_factor
        nanos = round_half_up(Fraction(self.price_nanos * parts, HOUR_NS * MILLION))
        rounded_nanos = used.nanos - cost_nanos(self.price_nanos, used.ns)
        is_rounding = 0 < rounded_nanos <= used.records
        return max(0, nanos - rounded_nanos) if is_rounding else nanos


def advanced(reservation: Reservation, step: str, utc_s: float) -> Reservation:
    """What becomes of a part that another site wants to book, keep or release; maybe nothing.

    See policies.coallocation. What is over stays over, and what was done is not done twice.
    """
    if reservation.has_lapsed(utc_s):
        return replace(reservation, state=State.EXPIRED)
    match step, reservation.state:
        case "book", State.HELD:
            return replace(reservation, state=State.BOOKING, lease_s=utc_s + KEEP_S)
        case "keep", State.BOOKING:
            return replace(reservation, state=State.BOOKED)
        case "release", State.HELD | State.BOOKING:
            return replace(reservation, state=State.CANCELLED)
        case "release", State.BOOKED if reservation.left_s is None:
            return replace(reservation, left_s=utc_s)  # it has begun to cost something
    return reservation


class CantReserve(Exception):
    """Slots that can't be reserved; the text says why, with figures, and what could be."""


def check_span(
    rules: ReservationRules, slots: int, from_s: float, until_s: float, utc_s: float
) -> None:
    """Refuse what no pool could give. Raises CantReserve."""
    if slots < 1:
        raise CantReserve(f"a reservation is of one slot at least, not {slots}")
    if until_s <= from_s:
        raise CantReserve("a reservation that ends when it begins, or before: it has no length")
    if from_s < utc_s - CLOCK_S or until_s <= utc_s:
        raise CantReserve(f"it would begin at {clock(from_s)}, which is past: it is {clock(utc_s)}")
    if until_s - from_s > rules.longest_s:
        asked = length(until_s - from_s)
        raise CantReserve(f"{asked} is longer than {length(rules.longest_s)}, the longest here")
    if until_s > utc_s + rules.ahead_s:
        latest = clock(utc_s + rules.ahead_s)
        raise CantReserve(f"it would end at {clock(until_s)}: here at the latest at {latest}")


def check_who(who: Party, by: Whose) -> None:
    """Refuse to reserve for anybody but oneself, one's group or project. Raises CantReserve."""
    own = (Party(Kind.USER, by.user), Party(Kind.GROUP, by.group), Party(Kind.PROJECT, by.project))
    if who not in own:
        names = ", ".join(str(each) for each in own if each.name)
        raise CantReserve(f"you can't reserve for {who}: for {names} you can")


@dataclass(frozen=True, slots=True)
class Book:
    """What is reserved of a pool, and could be.

    Attributes:
        plan: its windows and claims.
        total: slots that it has.
        made: the reservations of it.
        entitled: how many slots somebody's work may have in all in a span, by what else counts.
    """

    plan: Plan
    total: int
    rules: ReservationRules
    made: Sequence[Reservation] = ()
    entitled: Callable[[Whose, Span], float] = lambda *_: inf

    def free(self, whose: Whose, from_s: float, until_s: float, utc_s: float) -> int:
        """How many slots may be reserved for somebody's work over all of a span; 0 or more."""
        return max(0, min(slots for _, slots in self._steps(whose, from_s, until_s, utc_s)))

    def _steps(
        self, whose: Whose, from_s: float, until_s: float, utc_s: float
    ) -> Iterator[tuple[float, int]]:
        """From when on how many slots may be reserved, over a span; below zero: too many are."""
        changes: dict[float, tuple[int, int]] = {}
        for each in self.made:
            if each.takes_slots(utc_s):
                had = each.slots if each.who.includes(whose) else 0
                for at_s, sign in ((each.from_s, 1), (each.ends_s, -1)):
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

    def check(self, whose: Whose, slots: int, from_s: float, until_s: float, utc_s: float) -> None:
        """Refuse what does not fit, and say what does. Raises CantReserve."""
        free = self.free(whose, from_s, until_s, utc_s)
        if slots <= free:
            return
        if slots > self.total:
            raise CantReserve(f"{slots} slots are more than the {self.total} that there are")
        instead = f"{free} slots could be then" if free else "none could be then"
        later_s = self.first_fit(whose, slots, until_s - from_s, from_s, utc_s)
        if later_s is not None:
            instead += f"; {slots} from {clock(later_s)} on"
        kept = f"the others are reserved, guaranteed or not to be reserved by {whose.user}"
        raise CantReserve(
            f"{slots} of {self.total} slots can't be reserved from {clock(from_s)} to "
            f"{clock(until_s)}: {instead} ({kept})"
        )

    def first_fit(
        self, whose: Whose, slots: int, lasts_s: float, after_s: float, utc_s: float
    ) -> float | None:
        """The first moment after one from which so many slots could be had for so long.

        All is gone through once, however much is reserved: anybody may ask, again and again.
        """
        end_s = utc_s + self.rules.ahead_s
        if end_s - lasts_s <= after_s:
            return None
        since_s: float | None = None
        for at_s, free in self._steps(whose, after_s, end_s, utc_s):
            if since_s is not None and at_s - since_s >= lasts_s:
                break
            if free < slots:
                since_s = None
            elif since_s is None and at_s > after_s:
                since_s = at_s
        return since_s if since_s is not None and since_s + lasts_s < end_s else None


def edges_in(edges: Iterable[float], start_s: float, end_s: float) -> Iterator[float]:
    """Those in (start_s, end_s)."""
    return (each for each in edges if start_s < each < end_s)


def price_over(prices: PriceList, level: int, from_s: float, until_s: float, site: str = "") -> int:
    """What a slot-hour costs on the mean over a span, as the list is now.

    Args:
        level: of the spot price now, which nobody knows ahead.
        site: that buys; by its contract it may pay less.
    """
    adjust = prices.contracts.get(site) if site else None
    total, at_s = Fraction(0), from_s
    while at_s < until_s:
        end_s = min(until_s, at_s + DAY_S)
        changes = {*prices.band_changes(at_s), *prices.plan.edges(at_s, end_s)}
        for first_s, last_s in pairwise([at_s, *sorted(edges_in(changes, at_s, end_s)), end_s]):
            nanos = prices.public_nanos(first_s, level)
            total += _own(adjust, nanos) * Fraction(last_s - first_s)
        at_s = end_s
    return round_half_up(total / Fraction(until_s - from_s))


def _own(adjust: Adjustment | None, nanos: int) -> int:
    return nanos if adjust is None else min(nanos, adjust.of(nanos))


# --- in windows ----------------------------------------------------------------------------------


def overlay(
    rules: Rules, made: Iterable[Reservation], owner: ReservationRules, utc_s: float
) -> Rules:
    """What holds for a pool with its reservations: spans change where one begins or ends.

    Holds are in it too, but only from when they lapse: nothing that would have to be stopped begins
    meanwhile, and nobody makes way for slots that nobody has booked.
    """
    standing = sorted(
        (_confirmed(each) for each in made if each.takes_slots(utc_s)),
        key=lambda each: (each.made_s, each.id),
    )
    if not standing:
        return rules
    edges = {edge for each in standing for edge in (each.from_s, each.ends_s)}
    seats = [
        Seats(each.who, each.slots, each.tariff, each.ends_s, each.state is not State.HELD)
        for each in standing
    ]
    spans = []
    # Who looks at them tells them apart by identity. Of a thousand reservations it takes seconds to
    # compare all that each span has: their places in the list say as much.
    alike: dict[tuple[Claims, tuple[int, ...]], Claims] = {}
    for span in rules.spans:
        cuts = [span.from_s, *sorted(edges_in(edges, span.from_s, span.until_s)), span.until_s]
        for from_s, until_s in pairwise(cuts):
            there = tuple(
                at for at, each in enumerate(standing) if each.from_s <= from_s < each.ends_s
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
    begun = (each.from_s for each in standing if each.from_s <= rules.now.from_s < each.ends_s)
    return Rules(tuple(spans), max(rules.begun_s, *begun, 0.0))


def _confirmed(reservation: Reservation) -> Reservation:
    """As it would be if it were booked just before it lapses."""
    if reservation.state is not State.HELD:
        return reservation
    return replace(reservation, from_s=max(reservation.from_s, reservation.lapses_s))


def _window(window: Window | None, first: Reservation, owner: ReservationRules) -> Window:
    """What a span is called in which something is reserved.

    By the first alone: who has been told to make room is not told anew when another is booked.
    """
    name = first.tariff_name
    if window is not None:
        return replace(window, name=f"{window.name}, {name}")
    return Window(name, Hours(), drain_lead_s=owner.drain_lead_s, grace_s=owner.grace_s)


# --- for people ----------------------------------------------------------------------------------


def clock(at_s: float) -> str:
    """A moment, as errors have it; what is beyond all calendars, as the last that there is."""
    at_s = min(at_s, LAST_S)
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def length(lasts_s: float) -> str:
    """A length of time: `90 s`, `45 min`, `2 h`, `14 d`."""
    for unit, unit_s in (("d", DAY_S), ("h", 3600), ("min", 60)):
        if lasts_s >= 2 * unit_s or lasts_s == unit_s:
            return f"{lasts_s / unit_s:g} {unit}"
    return f"{lasts_s:g} s"
