"""Names in a configuration that fit nothing else: groups, sites, projects, currencies.

Users and projects come from tokens, so no list of them exists. A name that is written once, and
resembles another that is written too, is probably a mistake.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from gateway.base.toml_lines import Path as Place
from gateway.base.values import suggest
from gateway.checking.findings import FindingList
from gateway.checking.users import check_users
from gateway.config.groups import names_of
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from policies.access.claims import Claims
from policies.costs.alerts import AlertBudget, AlertScope, PriceLimit, Unacknowledged
from policies.parties import Party, PartyKind

ANY: Final = "*"
_ALIKE: Final = 0.75  # how similar two names are of which one is probably a mistake
# As in EU, UK, US-NY: a code that two sites write alike.
_JURISDICTION: Final = re.compile(r"[A-Z]{2,5}(?:-[A-Z0-9]{1,6})*", re.ASCII)
_SCOPES: Final = {
    AlertScope.PROJECT: PartyKind.PROJECT,
    AlertScope.USER: PartyKind.USER,
    AlertScope.GROUP: PartyKind.GROUP,
    AlertScope.SITE: PartyKind.SITE,
    AlertScope.ORIGIN: PartyKind.SITE,
}


class Mention(NamedTuple):
    """A party that the configuration names."""

    kind: PartyKind
    name: str
    subject: str
    place: Place


def check_names(config: SiteConfig, known_sites: Collection[str], findings: FindingList) -> None:
    """Check all names.

    Args:
        config: the configuration.
        known_sites: the other sites that this one knows; empty: none are known yet.
        findings: the list of findings.
    """
    mentions = list(_mentions(config))
    _check_groups(config, mentions, findings)
    if config.federation is None:
        _check_without_federation(config, mentions, findings)
    elif known_sites:
        _check_sites({*known_sites, config.name}, mentions, findings)
    _check_projects(mentions, findings)
    check_users(
        [(each.name, each.subject, each.place) for each in mentions if each.kind is PartyKind.USER],
        config.groups,
        findings,
    )
    _check_currencies(config, findings)
    _check_jurisdictions(config, findings)


def _check_groups(config: SiteConfig, mentions: list[Mention], findings: FindingList) -> None:
    groups = names_of(config.groups)
    for each in mentions:
        if each.kind is PartyKind.GROUP and each.name not in groups:
            known = ", ".join(sorted(groups)[:8]) or "none"
            text = (
                f"group {each.name!r} not found in [groups]{suggest(each.name, groups)}; known "
                f"groups: {known}"
            )
            findings.error("unknown-group", each.subject, text, each.place)


def _check_without_federation(
    config: SiteConfig, mentions: list[Mention], findings: FindingList
) -> None:
    for each in mentions:
        if each.kind is PartyKind.SITE and each.name != config.name:
            text = f"site {each.name!r}: this site is in no federation, so it has no such partner"
            findings.warn("unknown-site", each.subject, text, each.place)


def _check_sites(known: set[str], mentions: list[Mention], findings: FindingList) -> None:
    for each in mentions:
        if each.kind is PartyKind.SITE and each.name not in known:
            text = (
                f"site {each.name!r} is not known here{suggest(each.name, known)}; `gridfed known` "
                "lists the sites"
            )
            findings.warn("unknown-site", each.subject, text, each.place)


def _check_projects(mentions: list[Mention], findings: FindingList) -> None:
    """Warn of projects that are written once and resemble another."""
    of_kind = [each for each in mentions if each.kind is PartyKind.PROJECT]
    times: dict[str, int] = {}
    for each in of_kind:
        times[each.name] = times.get(each.name, 0) + 1
    for each in of_kind:
        others = [name for name, number in times.items() if name != each.name and number]
        alike = difflib.get_close_matches(each.name, others, 1, _ALIKE)
        if times[each.name] == 1 and alike and times[alike[0]] >= 1:
            if times[alike[0]] == 1 and each.name < alike[0]:
                continue  # told once, about the other
            text = f"project {each.name!r} is named nowhere else (did you mean {alike[0]!r}?)"
            findings.warn("unknown-project", each.subject, text, each.place)


def _check_currencies(config: SiteConfig, findings: FindingList) -> None:
    charged = {pool.prices.currency for pool in config.pools}
    if not charged:
        return
    for at, pool in enumerate(config.pools):
        if config.preferences.rate(pool.prices.currency) is None:
            text = (
                f"it charges in {pool.prices.currency}, of which [placement] has no exchange rate "
                f"to {config.preferences.currency}, so none of our own work runs here: "
                "set currency or rates there"
            )
            findings.warn("no-rate", f"[[pool]] {pool.name}", text, ("pool", at, "price"))
    said = f"no pool here charges in it: they charge {', '.join(sorted(charged))}"
    for at, budget in enumerate(config.budgets):
        if budget.is_money and not budget.owner and budget.unit not in charged:
            text = f"amount is in {budget.unit}, but {said}"
            place: Place = ("budget", at, "amount")
            findings.warn("unknown-currency", f"[[budget]] {budget.name}", text, place)
    for at, watched in enumerate(config.alerts.watched):
        rule = watched.rule
        currency = getattr(rule, "currency", "")
        if not isinstance(rule, AlertBudget | PriceLimit) or currency in charged:
            continue
        if isinstance(rule, PriceLimit) and rule.site != config.name:
            continue  # of pools of other sites
        if isinstance(rule, AlertBudget) and rule.whose is AlertScope.SITE:
            continue
        text = (
            f"{'amount' if isinstance(rule, AlertBudget) else 'limit'} is in {currency}, but {said}"
        )
        findings.warn("unknown-currency", f"[[alert]] {rule.name}", text, ("alert", at))


def _check_jurisdictions(config: SiteConfig, findings: FindingList) -> None:
    for at, pool in enumerate(config.pools):
        if pool.jurisdiction and not _JURISDICTION.fullmatch(pool.jurisdiction):
            _odd(pool.jurisdiction, f"[[pool]] {pool.name}", ("pool", at, "jurisdiction"), findings)
    own = {pool.jurisdiction for pool in config.pools if pool.jurisdiction}
    for at, rule in enumerate(config.residency):
        place: Place = ("residency", at, "jurisdictions")
        for name in sorted(rule.jurisdictions or ()):
            alike = difflib.get_close_matches(name, own - {name}, 1, _ALIKE)
            if not _JURISDICTION.fullmatch(name):
                _odd(name, "[[residency]]", place, findings)
            elif name not in own and alike:
                text = f"jurisdictions: no pool here is in {name!r} (did you mean {alike[0]!r}?)"
                findings.warn("unknown-jurisdiction", "[[residency]]", text, place)


def _odd(name: str, subject: str, place: Place, findings: FindingList) -> None:
    text = (
        f"jurisdiction {name!r} is not a code such as EU, UK or US-NY: jobs and rules must use "
        "exactly this text"
    )
    findings.warn("odd-jurisdiction", subject, text, place)


# --- named parties --------------------------------------------------------------------------------


def _mentions(config: SiteConfig) -> Iterator[Mention]:
    """Yield the parties that the configuration names, table by table."""
    yield from _of_access(config)
    yield from _of_money(config)
    yield from _of_alerts(config)
    for at, show in enumerate(config.shows):
        yield from _sites(show.readers or (), "[[show]] readers", ("show", at, "readers"))
    for at, pool in enumerate(config.pools):
        yield from _of_pool(pool, ("pool", at))


def _of_access(config: SiteConfig) -> Iterator[Mention]:
    for at, entitlement in enumerate(config.entitlements.rules):
        key = "allow" if entitlement.allows else "deny"
        for party in entitlement.who:
            yield from _party(party, f"[[entitlement]] {key}", ("entitlement", at, key))
    for at, rule in enumerate(config.residency):
        for party in rule.who:
            yield from _party(party, "[[residency]] who", ("residency", at, "who"))
        for key in ("sites", "not_sites"):
            place: Place = ("residency", at, key)
            yield from _sites(getattr(rule, key) or (), f"[[residency]] {key}", place)
    if config.fair_share is not None:
        for at, share in enumerate(config.fair_share.shares):
            subject = f"[fair_share] share {share.name!r}, who"
            if share.who is not None:
                yield from _party(share.who, subject, ("fair_share", "share", at, "who"))


def _of_money(config: SiteConfig) -> Iterator[Mention]:
    for at, budget in enumerate(config.budgets):
        subject = f"[[budget]] {budget.name}"
        yield from _party(budget.party, f"{subject}, who", ("budget", at, "who"))
        yield from _sites(budget.sites, f"{subject}, sites", ("budget", at, "sites"))
        owner = (budget.owner,) if budget.owner else ()
        yield from _sites(owner, f"{subject}, owner", ("budget", at, "owner"))
    for site in config.credit:
        yield from _sites((site,), "[credit]", ("credit", site))


def _of_alerts(config: SiteConfig) -> Iterator[Mention]:
    for at, watched in enumerate(config.alerts.watched):
        rule, subject = watched.rule, f"[[alert]] {watched.rule.name}"
        if isinstance(rule, AlertBudget) and rule.of and rule.whose in _SCOPES:
            key = str(rule.whose)
            yield Mention(_SCOPES[rule.whose], rule.of, f"{subject}, {key}", ("alert", at, key))
        elif isinstance(rule, PriceLimit | Unacknowledged) and rule.site:
            yield from _sites((rule.site,), f"{subject}, site", ("alert", at, "site"))


def _of_pool(pool: PoolConfig, place: Place) -> Iterator[Mention]:
    named = f"[[pool]] {pool.name}"
    yield from _claims(pool.plan.base, named, (*place, "claims"))
    for at, window in enumerate(pool.plan.windows):
        subject = f"[[pool.window]] {window.name!r} of {pool.name}"
        yield from _claims(window.claims, subject, (*place, "window", at, "claims"))
    contracts = pool.tariff.get("contracts", {})
    where: Place = (*place, "tariff", "contracts")
    yield from _sites(contracts, f"{named}, [pool.tariff] contracts", where)


def _claims(claims: Claims, subject: str, place: Place) -> Iterator[Mention]:
    for number, claim in enumerate(claims.named, 1):
        yield from _party(claim.who, f"{subject}, claims[{number}].who", place)


def _party(party: Party, subject: str, place: Place) -> Iterator[Mention]:
    if party.name:
        yield Mention(party.kind, party.name, subject, place)


def _sites(names: Iterable[str], subject: str, place: Place) -> Iterator[Mention]:
    for name in names:
        if name != ANY:
            yield Mention(PartyKind.SITE, name, subject, place)
