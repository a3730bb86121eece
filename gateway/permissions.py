"""What a site may do here: rules that permit or forbid, and one pure answer.

Nothing is allowed that no rule permits; what a rule forbids no other can permit; the order of
rules never matters. Each rule that permits stands by itself: a request must fit into one of them
whole, with its slots and its cost; permits are not added up.

Two directions, decided apart: SEND, a peer sends work to us, and RUN, we send work to a peer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from federation import strict
from federation.identity import site_id

ANY: Final = "*"
# In a rule's `sites`: the very site that the rule is about.
ITSELF: Final = "@self"
NAMES_MAX: Final = 256
_NAME_CHARS_MAX: Final = 200
_ALL: Final = dict.fromkeys(("pools", "projects", "classes"), frozenset({ANY}))


class Verb(StrEnum):
    """Which way the work goes."""

    SEND = "send"  # the site sends work to us
    RUN = "run"  # the site runs work of ours


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, best made by `permit` or `forbid`. A set holds names, or ANY; what it does not
    hold, the rule is not about.

    Args:
        permits: permit, or forbid.
        verb: which way the work goes.
        pools: of ours for SEND, of theirs for RUN.
        projects: of the users whose work it is.
        classes: the data classes of the work ("public", "internal", …).
        sites: relaying. For SEND the sites whose work it may bring, for RUN those where it may let
            our work run; ITSELF stands for the neighbour.
        slots_max: the most slots at one time, of a rule that permits; None for no limit.
        budget_nanos: the most that may be open at one time, held or not settled; None likewise.
        currency: of the budget.
    """

    permits: bool
    verb: Verb
    pools: frozenset[str]
    projects: frozenset[str]
    classes: frozenset[str]
    sites: frozenset[str]
    slots_max: int | None = None
    budget_nanos: int | None = None
    currency: str = ""

    def __post_init__(self) -> None:
        if not self.permits and (self.slots_max is not None or self.budget_nanos is not None):
            raise ValueError("a rule that forbids has no limits: it forbids all of what it names")
        if (self.budget_nanos is None) != (self.currency == ""):
            raise ValueError("a budget and its currency go together")

    def is_about(self, request: "Request") -> bool:
        """Whether it speaks of this request at all, its limits aside."""
        other = ITSELF if request.other == request.site else request.other
        return self.verb is request.verb and all(
            ANY in names or asked in names
            for names, asked in (
                (self.pools, request.pool),
                (self.projects, request.project),
                (self.classes, request.data_class),
                (self.sites, other),
            )
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One question.

    Args:
        verb: which way the work goes.
        site: the neighbour that sends it, or that would run it.
        pool: of ours for SEND, of theirs for RUN.
        project: of the user.
        data_class: of the work.
        other: whose work it is (SEND), or where it would run in the end (RUN); the neighbour
            itself unless it relays.
        slots: that it would have in all, this work included.
        open_nanos: what would be open between us in all, this work included.
        currency: of that.
    """

    verb: Verb
    site: str
    pool: str
    project: str
    data_class: str
    other: str
    slots: int
    open_nanos: int
    currency: str


class Why(StrEnum):
    """The reason of an answer. The value is what logs and `explain` carry."""

    PERMITTED = "permitted"
    NOT_APPROVED = "not-approved"
    EXPELLED = "site-expelled"
    ORIGIN_UNKNOWN = "origin-unknown"
    FORBIDDEN = "forbidden"
    NOT_PERMITTED = "not-permitted"
    OVER_SLOTS = "over-slots"
    OVER_BUDGET = "over-budget"


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes or no, why, and by which rule if it was one."""

    why: Why
    rule: Rule | None = None

    @property
    def is_yes(self) -> bool:
        """Whether it may be done."""
        return self.why is Why.PERMITTED


def permit(verb: Verb, **details: Any) -> Rule:
    """A rule that permits, for everything that is not narrowed, but without relaying."""
    return Rule(True, verb, **{**_ALL, "sites": frozenset({ITSELF}), **details})


def forbid(verb: Verb, **details: Any) -> Rule:
    """A rule that forbids everything that is not narrowed."""
    return Rule(False, verb, **{**_ALL, "sites": frozenset({ANY}), **details})


def decide(rules: Iterable[Rule], request: Request) -> Answer:
    """Answer a request by a site's rules alone; TrustBook.decide looks at the site first."""
    about = sorted((rule for rule in rules if rule.is_about(request)), key=_key)
    for rule in about:
        if not rule.permits:
            return Answer(Why.FORBIDDEN, rule)
    answers = [Answer(_limits(rule, request), rule) for rule in about]
    for why in (Why.PERMITTED, Why.OVER_BUDGET, Why.OVER_SLOTS):
        for answer in answers:
            if answer.why is why:
                return answer
    return Answer(Why.NOT_PERMITTED)


def _limits(rule: Rule, request: Request) -> Why:
    if rule.slots_max is not None and request.slots > rule.slots_max:
        return Why.OVER_SLOTS
    if rule.budget_nanos is not None and (
        request.currency != rule.currency or request.open_nanos > rule.budget_nanos
    ):
        return Why.OVER_BUDGET
    return Why.PERMITTED


# --- rules as plain data -------------------------------------------------------------------------

_NAMES: Final = ("pools", "projects", "classes", "sites")
_NUMBERS: Final = ("slots_max", "budget_nanos")


def to_plain(rule: Rule) -> dict[str, Any]:
    """A rule as the trust file holds it; what is as by default is left out."""
    default = (permit if rule.permits else forbid)(rule.verb)
    plain: dict[str, Any] = {
        "rule": "permit" if rule.permits else "forbid",
        "verb": rule.verb.value,
    }
    for name in (*_NAMES, *_NUMBERS, "currency"):
        value = getattr(rule, name)
        if value != getattr(default, name):
            plain[name] = sorted(value) if name in _NAMES else value
    return plain


def from_plain(plain: Any) -> Rule:
    """Read a rule; ValueError says what is wrong with it."""
    known = ("rule", "verb", *_NAMES, *_NUMBERS, "currency")
    if type(plain) is not dict or not plain.keys() <= set(known):
        raise ValueError(f"a rule is a table of {', '.join(known)}")
    makers = {"permit": permit, "forbid": forbid}
    if plain.get("rule") not in makers:
        raise ValueError('a rule must "permit" or "forbid"')
    details: dict[str, Any] = {}
    for name in (each for each in _NAMES if each in plain):
        check = _site_name if name == "sites" else strict.line(_NAME_CHARS_MAX)
        details[name] = frozenset(strict.several(check, 1, NAMES_MAX)(plain[name]))
    for name in (each for each in _NUMBERS if each in plain):
        details[name] = strict.count(plain[name])
    if "currency" in plain:
        details["currency"] = strict.matching("[A-Z]{3}")(plain["currency"])
    return makers[plain["rule"]](Verb(plain.get("verb", "")), **details)


def _site_name(value: object) -> str:
    return str(value) if value in (ANY, ITSELF) else str(site_id(value))


def _key(rule: Rule) -> str:
    return repr(to_plain(rule))
