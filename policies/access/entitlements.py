"""Entitlements: which parties may use which pools in which windows, and how much. Pure.

A rule allows or denies. A denial overrides any allowance. Once a rule allows anything to a kind of
principal (this site's users, or other sites), everything that no rule allows is forbidden to that
kind. The order of rules never matters. Each allowing rule stands by itself: work must fit into one
of them whole, with its priority, its class and all limits; rules are not added up.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from federation.clocks import UtcS
from policies.access.windows import WindowPlan, WindowSpan
from policies.parties import ANOTHER_SITE, Owner, Party, PartyKind
from policies.tariffs import PriceClass

# In a rule's pools: all pools of other sites.
ELSEWHERE: Final = "elsewhere"
RULES_MAX: Final = 1_000
NO_WINDOW: Final = ""
# The kinds of party that make a rule an allow-list; members of a project may be from any site.
_OF_OTHERS: Final = frozenset({PartyKind.SITE, PartyKind.OTHERS, PartyKind.ALL})
_OF_OURS: Final = frozenset({PartyKind.GROUP, PartyKind.PROJECT, PartyKind.OURS, PartyKind.ALL})


@dataclass(frozen=True, slots=True)
class EntitlementRule:
    """One rule. An empty set or None does not narrow it.

    Attributes:
        allows: whether it allows or denies.
        who: the parties that it applies to, any of them.
        pools: this site's pools by name, or ELSEWHERE.
        windows: of those pools; the rule applies while one of them is open.
        slots_max: slots that all work of these parties may hold at one time in those of this site's
            pools.
        user_slots_max: the same, of each user.
        queued_max: their tasks at this gateway that have not ended, for any pool.
        user_queued_max: the same, of each user.
        priority_max: the highest priority of their jobs.
        classes: the price classes of their jobs.
        line: its line in the file; 0: the file does not have it.
        change: the change that made a rule without a line, as "change 15, by root".

    Raises:
        ValueError: it denies, and has limits.
    """

    allows: bool
    who: tuple[Party, ...]
    pools: frozenset[str] = frozenset()
    windows: frozenset[str] = frozenset()
    slots_max: int | None = None
    user_slots_max: int | None = None
    queued_max: int | None = None
    user_queued_max: int | None = None
    priority_max: float | None = None
    classes: frozenset[PriceClass] = frozenset()
    line: int = field(default=0, compare=False)
    change: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        has_limits = any(each is not None for each in (*self.limits, self.priority_max))
        if not self.allows and (has_limits or self.classes):
            raise ValueError("a rule that denies can't have limits")

    @property
    def limits(self) -> tuple[int | None, ...]:
        """All the limits that are counted."""
        return self.slots_max, self.user_slots_max, self.queued_max, self.user_queued_max

    @property
    def slots_each(self) -> float:
        """The slots that one user may have by it, if no other user has any."""
        return min(_or_inf(self.slots_max), _or_inf(self.user_slots_max))

    def includes(self, whose: Owner) -> bool:
        """Whether the rule applies to an owner's work."""
        return any(party.includes(whose) for party in self.who)

    def covers(self, pool: str) -> bool:
        """Whether it applies to a pool."""
        return not self.pools or pool in self.pools

    def holds_in(self, window: str) -> bool:
        """Whether it applies while this window of a pool is open; NO_WINDOW: while none is."""
        return not self.windows or window in self.windows

    def __str__(self) -> str:
        """Format as its owner might have written it, in a line."""
        words = ["allows" if self.allows else "denies", ", ".join(map(str, self.who))]
        for what, names in (("pools", self.pools), ("windows", self.windows)):
            words += [f"{what} {', '.join(sorted(names))}"] if names else []
        for key in ("slots_max", "user_slots_max", "queued_max", "user_queued_max", "priority_max"):
            value = getattr(self, key)
            words += [] if value is None else [f"{key} {value:g}"]
        words += [f"classes {', '.join(sorted(self.classes))}"] if self.classes else []
        return "; ".join([" ".join(words[:2]), *words[2:]])


@dataclass(frozen=True, slots=True)
class Work:
    """Work that a user wants to run; without a class, any class.

    `is_operators`: the operator orders it for the site; no entitlement applies to it.
    """

    whose: Owner
    priority: float = -inf
    price_class: PriceClass | None = None
    is_operators: bool = False


class EntitlementReason(StrEnum):
    """The reason of a verdict. Answers carry the value."""

    OPEN = "open"  # no rule allows their kind anything by name: all may
    ALLOWED = "allowed"
    OVER_PRIORITY = "over-priority"
    OTHER_CLASS = "other-class"
    NOT_NOW = "not-now"  # it is allowed in another window
    NOT_ALLOWED = "not-allowed"
    DENIED = "denied"


YES: Final = frozenset({EntitlementReason.OPEN, EntitlementReason.ALLOWED})


@dataclass(frozen=True, slots=True)
class EntitlementVerdict:
    """Yes or no, the reason, and the rule that decided, if any.

    Attributes:
        rule: the deciding rule; of several that allow, the one with most slots.
        fits: all rules that allow it.
        slots_max: the most that one user's work may have, if no other user has any; inf: all.
    """

    why: EntitlementReason
    rule: EntitlementRule | None = None
    fits: tuple[EntitlementRule, ...] = ()
    slots_max: float = 0

    @property
    def is_yes(self) -> bool:
        """Whether it may run at all; limits come on top."""
        return self.why in YES


_OPEN: Final = EntitlementVerdict(EntitlementReason.OPEN, slots_max=inf)
_NOT_ALLOWED: Final = EntitlementVerdict(EntitlementReason.NOT_ALLOWED)


@dataclass(frozen=True, slots=True)
class Entitlements:
    """The rules of a site.

    Attributes:
        file: the file that contains them.
    """

    rules: tuple[EntitlementRule, ...] = ()
    file: str = field(default="", compare=False)

    def place(self, rule: EntitlementRule) -> str:
        """Return the location of a rule, `site.toml:12`; or the change that made it."""
        if not rule.line and rule.change:
            return rule.change
        return f"{self.file}:{rule.line}" if self.file else f"line {rule.line}"

    @property
    def _change(self) -> str:
        """The change by command that set the list; empty: its file did."""
        return next((each.change for each in self.rules if not each.line), "")

    def is_closed(self, whose: Owner) -> bool:
        """Whether this kind, this site's users or other sites, may do only what a rule allows."""
        return any(rule.allows and _is_list(rule, bool(whose.site)) for rule in self.rules)

    def verdict(self, work: Work, pool: str, window: str) -> EntitlementVerdict:
        """Return whether work may run in a pool during a window of it, or NO_WINDOW."""
        if work.is_operators:
            return _OPEN
        about = sorted(
            (each for each in self.rules if each.covers(pool) and each.includes(work.whose)),
            key=_key,
        )
        denied = next((r for r in about if not r.allows and r.holds_in(window)), None)
        if denied is not None:
            return EntitlementVerdict(EntitlementReason.DENIED, denied)
        if not self.is_closed(work.whose):
            return _OPEN
        allowing = [rule for rule in about if rule.allows]
        if not allowing:
            return _NOT_ALLOWED
        holding = [rule for rule in allowing if rule.holds_in(window)]
        if not holding:
            return EntitlementVerdict(EntitlementReason.NOT_NOW, allowing[0])
        return _fit(work, holding)

    def fitting(self, work: Work) -> EntitlementVerdict:
        """Return the rules that work fits into in some pool at some time, apart from denials."""
        if work.is_operators or not self.is_closed(work.whose):
            return _OPEN
        about = [each for each in self.rules if each.allows and each.includes(work.whose)]
        return _fit(work, sorted(about, key=_key)) if about else _NOT_ALLOWED

    def explain(self, verdict: EntitlementVerdict, work: Work) -> str:
        """Explain a negative verdict, with its rule and the rule's location."""
        rule, user = verdict.rule, work.whose.user
        if rule is None:
            where = f" of {self.file}" if self.file else ""
            if change := self._change:
                where = f" ({change})"
            return f"no [[entitlement]]{where} allows the work of {user}"
        end = f"({self.place(rule)}: {rule})"
        match verdict.why:
            case EntitlementReason.NOT_NOW:
                windows = ", ".join(sorted(rule.windows))
                return f"the work of {user} is allowed only in window {windows} {end}"
            case EntitlementReason.OVER_PRIORITY:
                most = _or_inf(rule.priority_max)
                return (
                    f"the priority of the work is {work.priority:g}, the limit of {user} is "
                    f"{most:g} {end}"
                )
            case EntitlementReason.OTHER_CLASS:
                classes = " or ".join(sorted(rule.classes))
                return (
                    f"the price class of the work is {work.price_class}, {user} may use "
                    f"{classes} {end}"
                )
        return f"the work of {user} is {verdict.why} {end}"

    def most_of_others(self, pool: str, window: str) -> float:
        """Return the most slots that work of another site may have; inf: all."""
        about = [each for each in self.rules if each.covers(pool) and each.holds_in(window)]
        if any(not each.allows and each.includes(ANOTHER_SITE) for each in about):
            return 0
        if not self.is_closed(ANOTHER_SITE):
            return inf
        found = (_or_inf(r.slots_max) for r in about if r.allows and _may_be_others(r))
        return max(found, default=0)

    @property
    def users(self) -> Iterator[tuple[str, EntitlementRule]]:
        """All users that rules name."""
        for rule in self.rules:
            for party in rule.who:
                if party.kind is PartyKind.USER:
                    yield party.name, rule


NO_ENTITLEMENTS: Final = Entitlements()

# The order of verdicts of which one suffices: the best first.
RANKS: Final = {why: at for at, why in enumerate(EntitlementReason)}


def room(
    verdict: EntitlementVerdict,
    user: str,
    used: Callable[[EntitlementRule, str], int],
    *,
    of_queue: bool = False,
) -> float:
    """Return how many more slots, or queued or running tasks, a user may have; inf: any number.

    Args:
        used: the count of all a rule's parties, or of one user of them if that is not empty.
    """
    if verdict.why is EntitlementReason.OPEN:
        return inf
    return max((_left(rule, user, used, of_queue) for rule in verdict.fits), default=0)


def _left(
    rule: EntitlementRule, user: str, used: Callable[[EntitlementRule, str], int], of_queue: bool
) -> float:
    together, each = rule.slots_max, rule.user_slots_max
    if of_queue:
        together, each = rule.queued_max, rule.user_queued_max
    left = inf if together is None else together - used(rule, "")
    if each is not None:
        left = min(left, each - used(rule, user))
    return max(0, left)


def next_change(
    entitlements: Entitlements, work: Work, pool: str, plan: WindowPlan, from_s: UtcS, until_s: UtcS
) -> tuple[WindowSpan, EntitlementVerdict] | None:
    """Return the next change of the verdict on work in a pool, and its time; None: none by then."""
    spans = plan.spans(from_s, until_s)
    now = entitlements.verdict(work, pool, next(spans).named)
    for span in spans:
        found = entitlements.verdict(work, pool, span.named)
        if found != now:
            return span, found
    return None


def _fit(work: Work, rules: Iterable[EntitlementRule]) -> EntitlementVerdict:
    """Return which of the allowing rules the work fits into, by priority and class only."""
    low = [each for each in rules if work.priority <= _or_inf(each.priority_max)]
    if not low:
        return EntitlementVerdict(
            EntitlementReason.OVER_PRIORITY, max(rules, key=lambda each: _or_inf(each.priority_max))
        )
    fits = [
        each
        for each in low
        if not each.classes or work.price_class is None or work.price_class in each.classes
    ]
    if not fits:
        return EntitlementVerdict(EntitlementReason.OTHER_CLASS, low[0])
    widest = max(fits, key=lambda each: each.slots_each)
    return EntitlementVerdict(EntitlementReason.ALLOWED, widest, tuple(fits), widest.slots_each)


def _is_list(rule: EntitlementRule, of_others: bool) -> bool:
    """Whether a rule names other sites or their users, or, otherwise, this site's users."""
    kinds = _OF_OTHERS if of_others else _OF_OURS
    return any(
        party.kind in kinds or (party.kind is PartyKind.USER and ("@" in party.name) is of_others)
        for party in rule.who
    )


def _may_be_others(rule: EntitlementRule) -> bool:
    """Whether a rule applies to work of other sites, all or some of it."""
    return _is_list(rule, True) or any(party.kind is PartyKind.PROJECT for party in rule.who)


def _or_inf(limit: float | None) -> float:
    return inf if limit is None else limit


def _key(rule: EntitlementRule) -> str:
    """A sort key that does not depend on the order of rules."""
    return str(rule)
