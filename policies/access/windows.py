"""Windows: calendar spans with their own rules for a pool, and which of them is in force. Pure.

At each time one window is in force, or none: of the open ones, the one of the highest priority; of
equal ones, which the configuration refuses where they meet within a year, the first. Spans are
half-open, so that no time has two windows, and there is no gap between two adjacent ones.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

from federation.clocks import NEVER_S, UtcS
from policies.access.claims import Claims
from policies.calendar.hours import open_spans
from policies.calendar.validity import Schedule, valid_span
from policies.calendar.weeks import DAY_S, WEEK_S
from policies.parties import Owner
from policies.tariffs import MILLION

WINDOWS_MAX: Final = 64  # of one pool
AHEAD_S: Final = 14 * DAY_S
EDGES_MAX: Final = 20_000  # that are examined for overlapping windows
EDGES_AHEAD_MAX: Final = 2_000  # of one pool in AHEAD_S, all examined at each change
EVERYBODY: Final = Claims()


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a pool.

    Attributes:
        claims: the claims while it is in force.
        price_factor: of the pool's price, in millionths.
        preempts: whether work beyond its claim is stopped, when it begins and later.
        is_dry: nothing is stopped; the gateway reports the tasks that it would stop.
        stops_per_minute: the maximum of stopped tasks; 0: no limit.
        drain_lead_s: how long before that such work is notified; work of unknown end no longer
            begins.
        grace_s: how long after that, or after a guaranteed slot is called back, it may still run.
        spill_s: how far into the window work beyond its claim may run.
        place: where it is configured, for people.
    """

    name: str
    when: Schedule
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
class WindowSpan:
    """A window that is in force in [from_s, until_s), UTC; None where none is.

    Attributes:
        named: the calendar window, as rules name it, without overlays; empty: none.
    """

    from_s: UtcS
    until_s: UtcS
    window: Window | None
    claims: Claims
    named: str = ""

    def most(self, whose: Owner, total: int) -> int:
        """Return the slots that an owner's work may have in it, of a total."""
        return self.claims.levels(total)[self.claims.of(whose)].most

    def room(self, total: int) -> int:
        """Return the slots in it that are not reserved, of a total."""
        return total - min(total, sum(each.slots for each in self.claims.reserved))

    def reserved(self, whose: Owner) -> int:
        """Return the slots in it that are reserved for an owner."""
        return sum(each.slots for each in self.claims.reserved if each.who.includes(whose))


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The windows of a pool; `base` are the claims while none of them is open.

    A window that changes at a known time is in it twice: as it is until then, and as it is after.

    Raises:
        ValueError: two have the same name, and are valid at the same time.
    """

    windows: tuple[Window, ...] = ()
    base: Claims = EVERYBODY

    def __post_init__(self) -> None:
        spans: dict[str, list[tuple[UtcS, UtcS]]] = {}
        for each in self.windows:
            spans.setdefault(each.name, []).append(valid_span(each.when))
        for name, found in spans.items():
            if any(one[1] > other[0] for one, other in pairwise(sorted(found))):
                raise ValueError(f"two windows are named {name!r}")
        if len(self.windows) > WINDOWS_MAX:
            raise ValueError(f"more than {WINDOWS_MAX} windows are defined")

    @property
    def is_trivial(self) -> bool:
        """Whether all slots are always open to all, at one price."""
        return not self.windows and self.base.is_trivial

    def open_at(self, utc_s: UtcS) -> list[Window]:
        """Return the windows that are open at a time, the one in force first."""
        found = [each for each in self.windows if each.when.is_open(utc_s)]
        return sorted(found, key=lambda each: -each.priority)  # stable: of equal ones the first

    def at(self, utc_s: UtcS) -> Window | None:
        """Return the window in force at a time."""
        return next(iter(self.open_at(utc_s)), None)

    def spans(self, start_at_s: UtcS, end_at_s: UtcS) -> Iterator[WindowSpan]:
        """Yield the window in force over [start, end): no gaps, each change in a new span."""
        from_s, holds = start_at_s, None
        for at_s, open_now in self._turns(start_at_s, end_at_s):
            window = open_now[0] if open_now else None
            if window is not holds:
                if at_s > from_s:
                    yield self._span(from_s, at_s, holds)
                from_s, holds = at_s, window
        yield self._span(from_s, end_at_s, holds)

    def _turns(self, start_at_s: UtcS, end_at_s: UtcS) -> Iterator[tuple[UtcS, list[Window]]]:
        """Yield the times in [start, end) when a window opens or closes, with the open ones.

        The one in force comes first. Each window is asked only for its own times: asking all of
        them at each time took seconds for many.
        """
        order = sorted(range(len(self.windows)), key=lambda at: (-self.windows[at].priority, at))
        turns: list[tuple[UtcS, bool, int]] = []
        for place, at in enumerate(order):
            for from_s, until_s in open_spans(self.windows[at].when, start_at_s, end_at_s):
                turns += [(from_s, True, place), (until_s, False, place)]
        is_open: set[int] = set()
        for at_s, group in groupby(sorted(turns), key=itemgetter(0)):
            if at_s >= end_at_s:
                return
            for _, opens, place in group:  # a window that closes and opens at once stays open
                (is_open.add if opens else is_open.discard)(place)
            yield at_s, [self.windows[order[place]] for place in sorted(is_open)]

    def _span(self, from_s: UtcS, until_s: UtcS, window: Window | None) -> WindowSpan:
        if window is None:
            return WindowSpan(from_s, until_s, None, self.base)
        return WindowSpan(from_s, until_s, window, window.claims, window.name)

    def edges(self, start_at_s: UtcS, end_at_s: UtcS) -> list[UtcS]:
        """Return all times in (start, end) at which a window may open or close, sorted, UTC."""
        return sorted(
            {at_s for each in self.windows for at_s in each.when.edges(start_at_s, end_at_s)}
        )

    def busiest(self, start_at_s: UtcS, end_at_s: UtcS) -> Window | None:
        """Return the window that exceeds the limit of edges in some AHEAD_S of [start, end)."""
        while start_at_s < end_at_s:
            left = EDGES_AHEAD_MAX
            for each in self.windows:
                left -= len(each.when.edges(start_at_s, start_at_s + AHEAD_S))
                if left < 0:
                    return each
            start_at_s += AHEAD_S
        return None

    def clash(self, start_at_s: UtcS, end_at_s: UtcS) -> tuple[Window, Window, UtcS] | None:
        """Return two windows of one priority that are open at once, and the first time of that.

        The search goes week by week, and stops after EDGES_MAX edges.
        """
        if len({each.priority for each in self.windows}) == len(self.windows):
            return None
        left = EDGES_MAX
        while start_at_s < end_at_s and left > 0:
            until_s = min(end_at_s, start_at_s + WEEK_S)
            for at_s, open_now in self._turns(start_at_s, until_s):
                left -= 1
                for first, second in pairwise(open_now):
                    if first.priority == second.priority:
                        return first, second, at_s
            start_at_s = until_s
        return None


NO_WINDOWS: Final = WindowPlan()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two plans in [from_s, until_s)."""

    from_s: UtcS
    until_s: UtcS
    before: WindowSpan
    after: WindowSpan


def differences(
    before: WindowPlan, after: WindowPlan, start_at_s: UtcS, end_at_s: UtcS
) -> Iterator[Difference]:
    """Yield where two plans differ in windows or in their rules, in [start_at_s, end_at_s)."""
    old, new = before.spans(start_at_s, end_at_s), after.spans(start_at_s, end_at_s)
    one, other = next(old, None), next(new, None)
    at_s = start_at_s
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
    """Return all rules of a window, except its hours and its priority."""
    if window is None:
        return None
    return (
        window.name,
        window.price_factor,
        *(window.preempts, window.is_dry, window.stops_per_minute),
        *(window.drain_lead_s, window.grace_s, window.spill_s),
    )


@dataclass(frozen=True, slots=True)
class PoolRules:
    """The rules of a pool that are in force, and those that are known to come.

    Attributes:
        spans: the present one first, from the time of the query; the last ends at the limit of
            knowledge.
        begun_at_s: when the present window began, at most its `spill_s` ago.
    """

    spans: tuple[WindowSpan, ...]
    begun_at_s: UtcS

    @property
    def now(self) -> WindowSpan:
        """The present span."""
        return self.spans[0]

    def span_at(self, utc_s: UtcS) -> WindowSpan:
        """Return the span of a time; the last for later ones."""
        return next((each for each in self.spans if utc_s < each.until_s), self.spans[-1])


def rules_at(plan: WindowPlan, utc_s: UtcS, ahead_s: float = AHEAD_S) -> PoolRules:
    """Return the rules at a time, and after it."""
    spans = tuple(plan.spans(utc_s, utc_s + ahead_s))
    window, begun_s = spans[0].window, utc_s
    if window is not None and window.spill_s > 0:
        *_, before = plan.spans(utc_s - window.spill_s, utc_s)
        begun_s = before.from_s if before.window == window else utc_s
    return PoolRules(spans, begun_s)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The slots and the price factor of an owner's work in a pool in [from_s, until_s)."""

    from_s: UtcS
    until_s: UtcS
    slots: int
    price_factor: int


class _Most:
    """A cache of WindowSpan.most for one owner over many spans, which share few claims."""

    def __init__(self, whose: Owner, total: int) -> None:
        self._whose, self._total = whose, total
        self._known: dict[int, tuple[Claims, int]] = {}  # by identity: comparison costs more

    def of(self, span: WindowSpan) -> int:
        known = self._known.get(id(span.claims))
        if known is None:
            known = span.claims, span.most(self._whose, self._total)
            self._known[id(span.claims)] = known
        return known[1]


def allowed(
    spans: Iterable[WindowSpan],
    whose: Owner,
    total: int,
    cap: Callable[[WindowSpan], float] | None = None,
) -> list[Allowed]:
    """Return the slots of an owner's work in each of these spans; equal neighbours are merged.

    Its reserved slots are counted. `cap` gives a further limit on its slots in a span.
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
    """A time at which an owner's work has fewer slots than now, and the fate of work still running.

    Attributes:
        at_s: UTC.
        ends_at_s: until when work may be planned to run, `spill_s` after that.
        told_at_s: when the notice begins; from then on no work of unknown duration begins.
        stops_at_s: when it is stopped; inf when it is not.
        slots: its slots then, shared with all else of the same claim.
        window: the one that begins; empty where none does: a window that gave it more has ended.
        claim: the index of its claim among those in force then.
        room: the slots then for all work outside reservations.
    """

    at_s: UtcS
    ends_at_s: UtcS
    told_at_s: UtcS
    stops_at_s: UtcS
    slots: int
    window: str
    claim: int
    room: int


def closings(rules: PoolRules, whose: Owner, total: int) -> tuple[Closing, ...]:
    """Return when an owner's work, or all that is not reserved, has a new minimum of slots.

    In order: work that does not end before one of them must fit into the remaining slots.
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


def closing_at(span: WindowSpan, slots: int, whose: Owner, room: int) -> Closing:
    """Return the effect of the beginning of a span on owners with so many slots in it."""
    at_s, window, claim = span.from_s, span.window, span.claims.of(whose)
    if window is None:  # claims without a window stop nothing, but new work must end in time
        return Closing(at_s, at_s, at_s, NEVER_S, slots, "", claim, room)
    ends_s = at_s + window.spill_s
    stops_s = ends_s + window.grace_s if window.preempts else NEVER_S
    told_s = at_s - window.drain_lead_s
    return Closing(at_s, ends_s, told_s, stops_s, slots, window.name, claim, room)
