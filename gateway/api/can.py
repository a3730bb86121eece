"""Answers what a user may do at a site, and by which rule: `gridfed can`.

Two files decide: the trust book, whether a site's work may come here at all, and [[entitlement]] of
the configuration, which narrows that and says what our own users may do. A running gateway, which
knows the current usage, and the files alone give the same answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from federation.clocks import UtcS
from federation.errors import GridError
from federation.signed.identity import site_id
from federation.wishes import NAME_CHARS_MAX, USUAL_PROJECT
from gateway.base.values import suggest
from gateway.config.groups import Groups, names_of, owner_of
from gateway.config.pools import USUAL_POOL
from gateway.config.site import PoolConfig, SiteConfig
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.dealing_partners import DATA_CLASS
from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.invitations import Invitations
from gateway.trust.permissions import PermissionRequest, PermissionRule, Verb
from gateway.trust.permissions import to_plain as rule_to_plain
from policies.access import entitlements
from policies.access.entitlements import (
    ELSEWHERE,
    NO_WINDOW,
    Entitlements,
    EntitlementVerdict,
    Work,
)
from policies.access.windows import AHEAD_S, NO_WINDOWS
from policies.parties import Owner

Used = Callable[[entitlements.EntitlementRule, str], int]


class BadCanQuestion(GridError):
    """A question that has no answer; the text says why."""


@dataclass(frozen=True, slots=True)
class CanQuestion:
    """The subject of a question.

    Attributes:
        user: the name at the user's own site.
        group: None: as [groups] says.
        site: the user's site; empty for ours.
        pool: None: all of them.
        at_s: the moment asked about, UTC.
    """

    user: str
    project: str
    group: str | None
    site: str
    pool: str | None
    at_s: UtcS

    def whose(self, groups: Groups) -> Owner:
        """The principal of the work in question."""
        if self.site:
            return Owner(f"{self.user}@{self.site}", "", self.project, self.site)
        if self.group is None:
            return owner_of(groups, self.user, self.project)
        return Owner(self.user, self.group, self.project)


@dataclass(frozen=True, slots=True)
class Usage:
    """The current usage, as entitlements count it."""

    slots: Used
    queued: Used


@dataclass(frozen=True, slots=True)
class TrustFiles:
    """A trust book, and its file."""

    book: TrustBook
    invitations: Invitations
    path: Path


def read_question(details: Mapping[str, Any], utc_s: UtcS) -> CanQuestion:
    """Read a question; raises BadCanQuestion."""
    at_s = details.get("at_s")
    if at_s is not None and (type(at_s) not in (int, float) or not 0 <= at_s < 1e11):
        raise BadCanQuestion("at_s must be seconds since 1970, UTC")
    user = _name(details, "user")
    if user is None:
        raise BadCanQuestion("the detail `user` is missing")
    site = _name(details, "site") or ""
    if site:
        try:
            site_id(site)
        except ValueError as error:
            raise BadCanQuestion(f"site: {error}") from None
    group = _name(details, "group")
    if site and group:
        raise BadCanQuestion("groups are of our own users: omit the site or the group")
    return CanQuestion(
        user,
        _name(details, "project") or USUAL_PROJECT,
        group,
        site,
        _name(details, "pool"),
        utc_s if at_s is None else UtcS(at_s),
    )


def load_trust(config: SiteConfig) -> TrustFiles | None:
    """Load the trust book of a federation member; None for another site. Raises GridError."""
    if config.federation is None:
        return None
    path = config.trust_path / TRUST_FILE
    return TrustFiles(*book_file.load(path, config.federation.follow), path)


def answer(
    config: SiteConfig,
    trust: TrustFiles | None,
    question: CanQuestion,
    usage: Usage | None = None,
    uncovered: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Say, pool by pool, what a user may do; BadCanQuestion for an unknown group or pool.

    Args:
        uncovered: why the token of the question itself permits no such job, as code and sentence.
    """
    pools = {each.name: each for each in config.pools or (PoolConfig(USUAL_POOL),)}
    whose = question.whose(config.groups)
    groups = names_of(config.groups)
    if question.group is not None and question.group not in groups:
        known = ", ".join(sorted(groups)) or "none"
        raise BadCanQuestion(f"no group {question.group!r} in [groups]; known groups: {known}")
    names = [*pools, *([ELSEWHERE] if trust is not None and not question.site else [])]
    if question.pool is not None:
        if question.pool not in names:
            meant = suggest(question.pool, names)
            raise BadCanQuestion(
                f"no pool {question.pool!r} here{meant}; known pools: {', '.join(names)}"
            )
        names = [question.pool]
    work = Work(whose)
    rows = [_row(config, pools.get(name), name, work, question, trust, usage) for name in names]
    if uncovered is not None:  # a job would be refused by its token, before any rule
        why, text = uncovered
        no = {"may": False, "why": why, "text": text, "rule": None, "next": None}
        rows = [row | no for row in rows]
    return {
        "user": whose.user,
        "group": whose.group,
        "more_groups": sorted(whose.more_groups),
        "project": whose.project,
        "site": whose.site,
        "at_s": question.at_s,
        "file": config.source,
        "warnings": list(_warnings(config, whose)),
        "pools": rows,
    }


def unknown_users(rules: Entitlements, known: frozenset[str]) -> list[str]:
    """Warn of users that rules name and this site has never seen; tokens are not kept here."""
    return [
        f"{rules.place(rule)}: user {user!r} is in no group and has never run anything here: "
        "check that the name is spelt as in the token"
        for user, rule in rules.users
        if user not in known
    ]


def _warnings(config: SiteConfig, whose: Owner) -> list[str]:
    rules = config.entitlements
    found = []
    if not rules.is_closed(whose):
        kind = "work of other sites" if whose.site else "our own users"
        found.append(
            (
                f"no [[entitlement]] allows {kind} anything by name, so everything is allowed "
                "that none denies"
            )
            + (" and the trust book permits" if whose.site else "")
        )
    return found


def _row(
    config: SiteConfig,
    pool: PoolConfig | None,
    name: str,
    work: Work,
    question: CanQuestion,
    trust: TrustFiles | None,
    usage: Usage | None,
) -> dict[str, Any]:
    rules, at_s = config.entitlements, question.at_s
    plan = pool.plan if pool is not None else NO_WINDOWS
    window = plan.at(at_s)
    verdict = rules.verdict(work, name, window.name if window is not None else NO_WINDOW)
    row: dict[str, Any] = {"pool": name, "window": window.name if window is not None else None}
    row |= _told(rules, verdict, work, usage)
    row["rule"] = _place(config, verdict)
    change = entitlements.next_change(rules, work, name, plan, at_s, at_s + AHEAD_S)
    row["next"] = None
    if change is not None:
        span, then = change
        row["next"] = {
            "at_s": span.from_s,
            "window": span.window.name if span.window is not None else None,
            "may": then.is_yes,
            "slots_max": _or_none(then.slots_max),
        }
    if question.site and pool is not None:
        trusted = _ask_trust(trust, question, pool)
        row["trust"] = trusted
        if not trusted["may"]:
            row |= {"may": False, "why": trusted["why"], "text": trusted["text"]}
            row |= {"rule": trusted["rule"], "next": None}
    return row


def _told(
    rules: Entitlements, verdict: EntitlementVerdict, work: Work, usage: Usage | None
) -> dict[str, Any]:
    rule, user = verdict.rule, work.whose.user
    row: dict[str, Any] = {
        "may": verdict.is_yes,
        "why": verdict.why.value,
        "text": "" if verdict.is_yes else rules.explain(verdict, work),
    }
    limits = rule if verdict.is_yes else None
    for key in ("slots_max", "user_slots_max", "queued_max", "user_queued_max", "priority_max"):
        row[key] = None if limits is None else getattr(limits, key)
    row["classes"] = [] if limits is None else sorted(limits.classes)
    if usage is not None and limits is not None:
        row["slots"], row["user_slots"] = usage.slots(limits, ""), usage.slots(limits, user)
        row["queued"], row["user_queued"] = usage.queued(limits, ""), usage.queued(limits, user)
    return row


def _place(config: SiteConfig, verdict: EntitlementVerdict) -> dict[str, Any] | None:
    rule = verdict.rule
    if rule is None:
        return None
    place = {"file": config.source, "line": rule.line, "text": str(rule)}
    return place | {"change": rule.change} if rule.change else place


def _ask_trust(trust: TrustFiles | None, question: CanQuestion, pool: PoolConfig) -> dict[str, Any]:
    """The verdict of the trust book on a slot for a site's work, cost aside."""
    if trust is None:
        text = "this site is in no federation"
        return {"may": False, "why": "not-approved", "text": text, "rule": None}
    site, book = question.site, trust.book
    request = PermissionRequest(
        Verb.SEND, site, pool.name, question.project, DATA_CLASS, site, 1, 0, pool.prices.currency
    )
    found = book.decide(request)
    rule, why = found.rule, found.why.value
    if rule is None:
        texts = {
            "not-approved": f"site {site} is not approved here (`gridfed approve`)",
            "site-expelled": f"site {site} is expelled",
            "not-permitted": f"no rule permits site {site} to send work (`gridfed trust`)",
        }
        text = f"{texts.get(why, why)}: {trust.path}"
        return {"may": found.is_yes, "why": why, "text": text, "rule": None}
    line = book_file.line_of(book, trust.invitations, site, rule)
    place = {"file": str(trust.path), "line": line, "text": _shown(rule)}
    text = (
        ""
        if found.is_yes
        else f"refused by the trust book: {why}, site {site} ({trust.path.name}:{line})"
    )
    return {"may": found.is_yes, "why": why, "text": text, "rule": place}


def _shown(rule: PermissionRule) -> str:
    """Format a rule of the trust book as one line."""
    told = rule_to_plain(rule).items()
    return "; ".join(
        f"{key} {', '.join(each) if isinstance(each, list) else each}" for key, each in told
    )


def _or_none(slots: float) -> int | None:
    return None if slots == inf else int(slots)


def _name(details: Mapping[str, Any], key: str) -> str | None:
    value = details.get(key)
    if value is None:
        return None
    is_name = isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX and value.isprintable()
    if not is_name:
        raise BadCanQuestion(f"{key} must be a name of 1 to {NAME_CHARS_MAX} printable characters")
    return str(value)
