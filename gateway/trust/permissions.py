"""A site's permissions here: rules that permit or forbid, and one pure decision.

Nothing is allowed without a rule that permits it. A rule that forbids overrides all that permit,
and the order of rules never matters. Each permitting rule stands alone: a request must fit into one
of them whole, with its slots and its cost; permits are not added up.

Two directions are decided separately: SEND, a peer sends work to us, and RUN, we send work to a
peer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from federation.money import format_money
from federation.signed import strict
from federation.signed.identity import site_id

ANY: Final = "*"
# In a rule's `sites`: the site that the rule is about.
ITSELF: Final = "@self"
NAMES_MAX: Final = 256
_NAME_CHARS_MAX: Final = 200
_ALL: Final = dict.fromkeys(("pools", "projects", "classes"), frozenset({ANY}))


class Verb(StrEnum):
    """The direction of the work."""

    SEND = "send"  # the site sends work to us
    RUN = "run"  # the site runs our work


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One rule, best made by `permit` or `forbid`.

    A set holds names, or ANY; the rule does not apply to names outside the set.

    Args:
        permits: permit, or forbid.
        verb: the direction of the work.
        pools: our pools for SEND, theirs for RUN.
        projects: the projects of the users that own the work.
        classes: the data classes of the work ("public", "internal", …).
        sites: relaying. For SEND the sites whose work it may bring, for RUN those where it may let
            our work run; ITSELF stands for the neighbour.
        slots_max: the most slots at one time, of a rule that permits; None for no limit.
        budget_nanos: the most that may be unsettled or held at one time; None for no limit.
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
            raise ValueError(
                "a rule that forbids takes no limits: it forbids everything that it covers"
            )
        if (self.budget_nanos is None) != (self.currency == ""):
            raise ValueError("budget and currency must be set together")

    def is_about(self, request: "PermissionRequest") -> bool:
        """Whether the rule applies to this request, its limits aside."""
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
class PermissionRequest:
    """One question.

    Args:
        verb: the direction of the work.
        site: the neighbour that sends the work, or that would run it.
        pool: our pool for SEND, theirs for RUN.
        project: the user's project.
        data_class: the data class of the work.
        other: the site that owns the work (SEND), or where it would finally run (RUN); the
            neighbour
            itself unless it relays.
        slots: the total of slots that it would have, this work included.
        open_nanos: the total unsettled balance between us, this work included.
        currency: of `open_nanos`.
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


class PermissionReason(StrEnum):
    """The reason of an answer. The value is the text in logs and `explain`."""

    PERMITTED = "permitted"
    NOT_APPROVED = "not-approved"
    EXPELLED = "site-expelled"
    ORIGIN_UNKNOWN = "origin-unknown"
    FORBIDDEN = "forbidden"
    NOT_PERMITTED = "not-permitted"
    OVER_SLOTS = "over-slots"
    OVER_BUDGET = "over-budget"


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """The decision, its reason, and the rule that decided it, if one did."""

    why: PermissionReason
    rule: PermissionRule | None = None

    @property
    def is_yes(self) -> bool:
        """Whether the request is permitted."""
        return self.why is PermissionReason.PERMITTED


def permit(verb: Verb, **details: Any) -> PermissionRule:
    """Return a rule that permits everything that `details` do not narrow, except relaying."""
    return PermissionRule(True, verb, **{**_ALL, "sites": frozenset({ITSELF}), **details})


def forbid(verb: Verb, **details: Any) -> PermissionRule:
    """Return a rule that forbids everything that `details` do not narrow."""
    return PermissionRule(False, verb, **{**_ALL, "sites": frozenset({ANY}), **details})


def decide(rules: Iterable[PermissionRule], request: PermissionRequest) -> PermissionAnswer:
    """Answer a request by a site's rules alone; TrustBook.decide checks the site first."""
    about = sorted((rule for rule in rules if rule.is_about(request)), key=_key)
    for rule in about:
        if not rule.permits:
            return PermissionAnswer(PermissionReason.FORBIDDEN, rule)
    answers = [PermissionAnswer(_limits(rule, request), rule) for rule in about]
    for why in (
        PermissionReason.PERMITTED,
        PermissionReason.OVER_BUDGET,
        PermissionReason.OVER_SLOTS,
    ):
        for answer in answers:
            if answer.why is why:
                return answer
    return PermissionAnswer(PermissionReason.NOT_PERMITTED)


def _limits(rule: PermissionRule, request: PermissionRequest) -> PermissionReason:
    if rule.slots_max is not None and request.slots > rule.slots_max:
        return PermissionReason.OVER_SLOTS
    if rule.budget_nanos is not None and (
        request.currency != rule.currency or request.open_nanos > rule.budget_nanos
    ):
        return PermissionReason.OVER_BUDGET
    return PermissionReason.PERMITTED


# --- words -------------------------------------------------------------------------------------


def explain(
    rules: Iterable[PermissionRule], request: PermissionRequest, answer: PermissionAnswer
) -> str:
    """Say which rule refused a request, as a sentence for its site; empty if it is permitted.

    The sentence names only what the request names, and the limits of the rule: it is sent to the
    other site, which must not learn of projects and sites that it did not ask about.

    Args:
        rules: the rules of `request.site`.
        request: the question.
        answer: what `decide` said to it.
    """
    match answer.why:
        case PermissionReason.PERMITTED:
            return ""
        case PermissionReason.NOT_APPROVED:
            return f"{request.site} is not approved"
        case PermissionReason.EXPELLED:
            return f"{request.site}, or the site that it works for, is expelled"
        case PermissionReason.ORIGIN_UNKNOWN:
            return f"{request.other}, whose work it is, is not known"
        case PermissionReason.FORBIDDEN:
            return f"a never-{request.verb} rule forbids {_subject(answer.rule, request)}"
        case PermissionReason.NOT_PERMITTED:
            return _not_permitted(rules, request)
        case PermissionReason.OVER_SLOTS:
            most = max((rule.slots_max or 0 for rule in rules if rule.is_about(request)), default=0)
            return f"the may-{request.verb} rule with slots={most} allows no more at a time"
        case PermissionReason.OVER_BUDGET:
            rule = answer.rule
            assert rule is not None
            assert rule.budget_nanos is not None
            most_text = format_money(rule.budget_nanos, rule.currency)
            asked = format_money(request.open_nanos, request.currency)
            return (
                f"the may-{request.verb} rule with budget={most_text.replace(' ', '')} "
                f"allows {most_text} at a time, and {request.slots:,} slots cost {asked} an hour"
            )


def _subject(rule: PermissionRule | None, request: PermissionRequest) -> str:
    """What a request has in common with the sets of a rule, as in "work of project eod"."""
    found = [
        text
        for name, text in _texts(request).items()
        if rule is not None and ANY not in getattr(rule, name)
    ]
    return " ".join(["work", *found]) if found else "any work"


def _not_permitted(rules: Iterable[PermissionRule], request: PermissionRequest) -> str:
    """Which part of a request no rule that permits covers."""
    option = f"may-{request.verb}"
    permits = [rule for rule in rules if rule.permits and rule.verb is request.verb]
    if not permits:
        return f"there is no {option} rule"
    other = ITSELF if request.other == request.site else request.other
    asked = (request.pool, request.project, request.data_class, other)
    for (name, text), one in zip(_texts(request).items(), asked, strict=True):
        if not any({ANY, one} & getattr(rule, name) for rule in permits):
            return f"no {option} rule permits work {text}"
    texts = " ".join(_texts(request).values())
    return f"no {option} rule permits all of this: work {texts}"


def _texts(request: PermissionRequest) -> dict[str, str]:
    """What a request asks for, by the name of the set in a rule."""
    return {
        "pools": f"in pool {request.pool}",
        "projects": f"of project {request.project}",
        "classes": f"of class {request.data_class}",
        "sites": f"of site {request.other}",
    }


# --- rules as plain data -------------------------------------------------------------------------

_NAMES: Final = ("pools", "projects", "classes", "sites")
_NUMBERS: Final = ("slots_max", "budget_nanos")


def to_plain(rule: PermissionRule) -> dict[str, Any]:
    """Return a rule in the trust file's format; defaults are left out."""
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


def from_plain(plain: Any) -> PermissionRule:
    """Read a rule; ValueError says what is wrong with it."""
    known = ("rule", "verb", *_NAMES, *_NUMBERS, "currency")
    if type(plain) is not dict or not plain.keys() <= set(known):
        raise ValueError(f"a rule must be a table of {', '.join(known)}")
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


def _key(rule: PermissionRule) -> str:
    return repr(to_plain(rule))
