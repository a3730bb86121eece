"""Windows: spans of the calendar with rules of their own for a pool, and which of them holds. Pure.

At each moment one window holds, or none: of those that are open the one of the highest priority;
of equal ones, which the configuration refuses where they meet within a year, the first. Spans are
half-open, so that there is never a moment of two windows, nor of none between two that meet.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import inf
from operator import itemgetter
from typing import Final

from policies.claims import Claims
from policies.crons import Cron
from policies.hours import Hours, open_spans
from policies.parties import Whose
from policies.tariffs import MILLION
from policies.weeks import DAY_S, WEEK_S

WINDOWS_MAX: Final = 64  # of one pool
AHEAD_S: Final = 14 * DAY_S
EDGES_MAX: Final = 20_000  # that are looked at for windows that meet
EDGES_AHEAD_MAX: Final = 2_000  # of one pool in AHEAD_S, which are looked at each time one comes
EVERYBODY: Final = Claims()


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a pool.

    Attributes:
        claims: who may use how much while it holds.
        price_factor: of the pool's price, in millionths.
        preempts: whether work that is over its claim is stopped, when it begins and later.
        is_dry: nothing is stopped, but it is said what would be.
        stops_per_minute: at most so many tasks; 0: as many as it takes.
        drain_lead_s: how long before that such work is told, and none that has no known end begins.
        grace_s: how long after that, or after a guaranteed slot is called back, it may still run.
        spill_s: how far into it work may run that is over its claim then.
        place: where it is written, for people.
    """

    name: str
    when: Hours | Cron
    claims: Claims = EVERYBODY
    priority: int = 0
    price_factor: int = MILLION
    preempts: bool = True
    is_dry: bool = False
    stops_per_minute: int = 0
    drain_lead_s: float = 0.0
    grace_s: float = 0.0
    spill_s: float = 0.0
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A window that holds in [from_s, until_s), UTC; None where none does.

    Attributes:
        named: the window of the calendar, as rules name it, whatever is laid over it; empty: none.
    """

    from_s: float
    until_s: float
    window: Window | None
    claims: Claims
    named: str = ""

    def most(self, whose: Whose, total: int) -> int:
        """The slots that somebody's work may have in it, of so many."""
        return self.claims.levels(total)[self.claims.of(whose)].most

    def room(self, total: int) -> int:
        """The slots in it, of so many, that are not reserved."""
        return total - min(total, sum(each.slots for each in self.claims.reserved))

    def reserved(self, whose: Whose) -> int:
        """The slots in it that are reserved for somebody."""
        return sum(each.slots for each in self.claims.reserved if each.who.includes(whose))


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows of a pool; `base` are the claims while none of them is open.

    Raises:
        ValueError: two have the same name.
    """

    windows: tuple[Window, ...] = ()
    base: Claims = EVERYBODY

    def __post_init__(self) -> None:
        names = [each.name for each in self.windows]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"there are two windows {name!r}")
        if len(names) > WINDOWS_MAX:
            raise ValueError(f"there may be {WINDOWS_MAX} windows at most")

    @property
    def is_trivial(self) -> bool:
        """Whether everybody may always use everything, at one price."""
        return not self.windows and self.base.is_trivial

    def open_at(self, utc_s: float) -> list[Window]:
        """The windows that are open at a moment, the one that holds first."""
        found = [each for each in self.windows if each.when.is_open(utc_s)]
        return sorted(found, key=lambda each: -each.priority)  # stable: of equal ones the first

    def at(self, utc_s: float) -> Window | None:
        """The window that holds at a moment."""
        return next(iter(self.open_at(utc_s)), None)

    def spans(self, start_s: float, end_s: float) -> Iterator[Span]:
        """Which window holds when, over [start_s, end_s): no gaps, each change in a new span."""
        from_s, holds = start_s, None
        for at_s, open_now in self._turns(start_s, end_s):
            window = open_now[0] if open_now else None
            if window is not holds:
                if at_s > from_s:
                    yield self._span(from_s, at_s, holds)
                from_s, holds = at_s, window
        yield self._span(from_s, end_s, holds)

    def _turns(self, start_s: float, end_s: float) -> Iterator[tuple[float, list[Window]]]:
        """Where in [start_s, end_s) a window opens or closes, and which are open then, in order.

        The one that holds comes first. Each window is asked for its own times alone: to ask all of
        them at each moment took seconds for many.
        """
        order = sorted(range(len(self.windows)), key=lambda at: (-self.windows[at].priority, at))
        turns: list[tuple[float, bool, int]] = []
        for place, at in enumerate(order):
            for from_s, until_s in open_spans(self.windows[at].when, start_s, end_s):
                turns += [(from_s, True, place), (until_s, False, place)]
        is_open: set[int] = set()
        for at_s, group in groupby(sorted(turns), key=itemgetter(0)):
            if at_s >= end_s:
                return
            for _, opens, place in group:  # a window that closes and opens at once stays open
                (is_open.add if opens else is_open.discard)(place)
            yield at_s, [self.windows[order[place]] for place in sorted(is_open)]

    def _span(self, from_s: float, until_s: float, window: Window | None) -> Span:
        if window is None:
            return Span(from_s, until_s, None, self.base)
        return Span(from_s, until_s, window, window.claims, window.name)

    def edges(self, start_s: float, end_s: float) -> list[float]:
        """All moments in (start_s, end_s) at which a window may open or close, in order, UTC."""
        return sorted({at_s for each in self.windows for at_s in each.when.edges(start_s, end_s)})

    def busiest(self, start_s: float, end_s: float) -> Window | None:
        """The window with which there are too many edges in some AHEAD_S of [start_s, end_s)."""
        while start_s < end_s:
            left = EDGES_AHEAD_MAX
            for each in self.windows:
                left -= len(each.when.edges(start_s, start_s + AHEAD_S))
                if left < 0:
                    return each
            start_s += AHEAD_S
        return None

    def clash(self, start_s: float, end_s: float) -> tuple[Window, Window, float] | None:
        """Two windows of one priority that are open at once, and when that is first so.

        Looked for week by week, in as many as EDGES_MAX beginnings and ends take.
        """
        if len({each.priority for each in self.windows}) == len(self.windows):
            return None
        left = EDGES_MAX
        while start_s < end_s and left > 0:
            until_s = min(end_s, start_s + WEEK_S)
            for at_s, open_now in self._turns(start_s, until_s):
                left -= 1
                for first, second in pairwise(open_now):
                    if first.priority == second.priority:
                        return first, second, at_s
            start_s = until_s
        return None


NO_WINDOWS: Final = Plan()


@dataclass(frozen=True, slots=True)
class Difference:
    """What another plan makes of [from_s, until_s)."""

    from_s: float
    until_s: float
    before: Span
    after: Span


def differences(before: Plan, after: Plan, start_s: float, end_s: float) -> Iterator[Difference]:
    """Where two plans have other windows, or the same ones with other rules; [start_s, end_s)."""
    old, new = before.spans(start_s, end_s), after.spans(start_s, end_s)
    one, other = next(old, None), next(new, None)
    at_s = start_s
    while one is not None and other is not None:
        until_s = min(one.until_s, other.until_s)
        if (_rules_of(one.window), one.claims) != (_rules_of(other.window), other.claims):
            yield Difference(at_s, until_s, one, other)
        at_s = until_s
        if one.until_s == at_s:
            one = next(old, None)
        if other.until_s == at_s:
            other = next(new, None)


def _rules_of(window: Window | None) -> tuple[object, ...] | None:
    """All that a window says, but for when it is open and whom it wins against."""
    if window is None:
        return None
    return (
        window.name,
        window.price_factor,
        *(window.preempts, window.is_dry, window.stops_per_minute),
        *(window.drain_lead_s, window.grace_s, window.spill_s),
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for a pool, and what is known to come.

    Attributes:
        spans: the present one first, from when it was looked at; the last ends when nothing more
            is known.
        begun_s: when the window that holds began, no longer ago than its `spill_s`.
    """

    spans: tuple[Span, ...]
    begun_s: float

    @property
    def now(self) -> Span:
        """The span that holds."""
        return self.spans[0]

    def span_at(self, utc_s: float) -> Span:
        """The span of a moment; the last for later ones."""
        return next((each for each in self.spans if utc_s < each.until_s), self.spans[-1])


def rules_at(plan: Plan, utc_s: float, ahead_s: float = AHEAD_S) -> Rules:
    """What holds at a moment, and comes after it."""
    spans = tuple(plan.spans(utc_s, utc_s + ahead_s))
    window, begun_s = spans[0].window, utc_s
    if window is not None and window.spill_s > 0:
        *_, before = plan.spans(utc_s - window.spill_s, utc_s)
        begun_s = before.from_s if before.window == window else utc_s
    return Rules(spans, begun_s)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What somebody's work may have of a pool from now on, span by span: [from_s, until_s)."""

    from_s: float
    until_s: float
    slots: int
    price_factor: int


class _Most:
    """Span.most of somebody, of many spans: their claims are few."""

    def __init__(self, whose: Whose, total: int) -> None:
        self._whose, self._total = whose, total
        self._known: dict[int, tuple[Claims, int]] = {}  # by identity: to compare them costs more

    def of(self, span: Span) -> int:
        known = self._known.get(id(span.claims))
        if known is None:
            known = span.claims, span.most(self._whose, self._total)
            self._known[id(span.claims)] = known
        return known[1]


def allowed(
    spans: Iterable[Span], whose: Whose, total: int, cap: Callable[[Span], float] | None = None
) -> list[Allowed]:
    """What somebody's work may have of a pool in each of these spans; alike ones are one.

    What is reserved for it is counted. `cap` says what else limits its slots in one.
    """
    found: list[Allowed] = []
    most = _Most(whose, total)
    for span in spans:
        slots = min(total, most.of(span) + span.reserved(whose))
        if cap is not None:
            slots = int(min(slots, cap(span)))
        factor = span.window.price_factor if span.window is not None else MILLION
        last = found[-1] if found else None
        if last is not None and (last.slots, last.price_factor) == (slots, factor):
            found[-1] = Allowed(last.from_s, span.until_s, slots, factor)
        else:
            found.append(Allowed(span.from_s, span.until_s, slots, factor))
    return found


@dataclass(frozen=True, slots=True)
class Closing:
    """When somebody's work has less of a pool than now, and what becomes of what still runs.

    Attributes:
        at_s: UTC.
        ends_s: until when what is planned to run may run, `spill_s` after that.
        told_s: from when on it is told, and nothing begins of which nobody knows how long it takes.
        stops_s: when it is stopped; inf when it is not.
        slots: what it has then, with all else that belongs to the same claim.
        window: the one that begins; empty where none does: one that gave it more has ended.
        claim: of the claims that hold then, the one that it belongs to.
        room: what all work has then that is not in a reservation.
    """

    at_s: float
    ends_s: float
    told_s: float
    stops_s: float
    slots: int
    window: str
    claim: int
    room: int


def closings(rules: Rules, whose: Whose, total: int) -> tuple[Closing, ...]:
    """When somebody's work, or all that is not reserved, has fewer slots than ever before.

    In order: what does not end before one of them must fit into what is left then.
    """
    found = []
    slots, room = rules.now.most(whose, total), rules.now.room(total)
    most = _Most(whose, total)
    for span in rules.spans[1:]:
        slots_then, room_then = most.of(span), span.room(total)
        if slots_then < slots or room_then < room:
            slots, room = min(slots, slots_then), min(room, room_then)
            found.append(closing_at(span, slots, whose, room))
    return tuple(found)


def closing_at(span: Span, slots: int, whose: Whose, room: int) -> Closing:
    """What the beginning of a span means for those who have so many slots in it."""
    at_s, window, claim = span.from_s, span.window, span.claims.of(whose)
    if window is None:  # claims outside of windows stop nothing, but what begins is to end in time
        return Closing(at_s, at_s, at_s, inf, slots, "", claim, room)
    ends_s = at_s + window.spill_s
    stops_s = ends_s + window.grace_s if window.preempts else inf
    told_s = at_s - window.drain_lead_s
    return Closing(at_s, ends_s, told_s, stops_s, slots, window.name, claim, room)
