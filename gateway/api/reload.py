"""Compare the configuration of a running gateway with a changed one: what changes, and when.

An owner changes these from day to day, and a reload applies them: windows, claims, calendars, price
lists, shares, groups, entitlements, terms of reservations, how pools grow and the amounts of
budgets. Every other change is reported, and waits for the next start.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import format_money
from gateway.api.budget_amendments import Told, amend, amend_credit
from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig, SiteConfig
from policies.access.entitlements import EntitlementRule
from policies.access.windows import AHEAD_S, Difference, differences

DIFFERENCES_MAX: Final = 200  # of one pool, that are reported
TAKEN_IN: Final = frozenset({"plan", "price", "tariff"})  # of a pool; and of its [pool.scale]:
SCALE_TAKEN_IN: Final = ("rules", "walltime_s", "look_s", "dry_run", "currency", "markup")
# Attributes of the site that are not compared; the command line may have set listen and state.
NOT_COMPARED: Final = frozenset(
    {
        "pools",
        "given",
        "source",
        "places",
        "rules_version",
        "listen",
        "state",
        "fair_share",
        "budgets",
        "credit",
    }
    | {"entitlements", "residency", "reservations", "groups"}
)
# The keys of [pool.scale] by attribute, where their names differ. Durations also drop their unit.
SCALE_KEYS: Final = {
    "slots_max": "max",
    "slots_min": "min",
    "starts_max": "starts_per_minute",
    "stops_max": "stops_per_minute",
    "hourly_nanos": "hourly_cost",
}
TABLES: Final = {
    "log": "[log]",
    "rules": "[limits]",
    "deals": "[contracts]",
    "preferences": "[placement]",
    "shows": "[[show]]",
    "alerts": "[alerts]",
    "federation": "[federation]",
    "books": "[books]",
    "objects": "[objects]",
}


@dataclass(frozen=True, slots=True)
class Change:
    """The changes from the present configuration to another.

    Attributes:
        config: the present one, with the changes that a reload applies.
        windows: by pool, the changes in open windows over two weeks.
        prices: by pool, the names of the price lists before and after.
        budgets: the changes in budgets, and in the credit of other sites.
        shares: whether the rules of sharing slots have changed.
        entitlements: the rules that are gone, and those that are new.
        reservations: whether the terms of reservations have changed.
        residency: whether the rules about places have changed.
        groups: the users whose groups change: (user, before, after).
        scales: the changes in how pools grow: (pool, key, before, after).
        later: the other changes, which count from the next start on.
    """

    config: SiteConfig
    windows: Mapping[str, list[Difference]]
    prices: Mapping[str, tuple[str, str]]
    budgets: list[Told]
    shares: bool
    entitlements: tuple[list[EntitlementRule], list[EntitlementRule]]
    reservations: bool
    residency: bool
    groups: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
    scales: list[tuple[str, str, str, str]]
    later: list[str]

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data for an answer."""
        return {
            "windows": [
                {
                    "pool": pool,
                    "from_s": each.from_s,
                    "until_s": each.until_s,
                    "before": each.before.window.name if each.before.window else None,
                    "after": each.after.window.name if each.after.window else None,
                }
                for pool, found in self.windows.items()
                for each in found
            ],
            "prices": [
                {"pool": pool, "before": before, "after": after}
                for pool, (before, after) in self.prices.items()
            ],
            "budgets": [each._asdict() for each in self.budgets],
            "shares": self.shares,
            "entitlements": {
                name: [
                    {"line": each.line, "change": each.change, "rule": str(each)} for each in rules
                ]
                for name, rules in zip(("gone", "new"), self.entitlements, strict=True)
            },
            "reservations": self.reservations,
            "residency": self.residency,
            "groups": [
                {"user": user, "before": list(before), "after": list(after)}
                for user, before, after in self.groups[:DIFFERENCES_MAX]
            ],
            "scales": [
                dict(zip(("pool", "key", "before", "after"), each, strict=True))
                for each in self.scales
            ],
            "later": self.later,
        }


def compare(now: SiteConfig, new: SiteConfig, utc_s: UtcS) -> Change:
    """Return the changes from one configuration to another, and those that a reload applies."""
    others = {pool.name: pool for pool in new.pools}
    windows: dict[str, list[Difference]] = {}
    prices: dict[str, tuple[str, str]] = {}
    pools = []
    for pool in now.pools:
        other = others.get(pool.name, pool)
        found = differences(pool.plan, other.plan, utc_s, utc_s + AHEAD_S)
        windows[pool.name] = list(islice(found, DIFFERENCES_MAX))
        if pool.prices.version != other.prices.version:
            prices[pool.name] = pool.prices.version, other.prices.version
        taken: dict[str, Any] = {name: getattr(other, name) for name in TAKEN_IN}
        pools.append(replace(pool, scale=_scale(pool, other), **taken))
    scales = [
        (old.name, *each)
        for old, pool in zip(now.pools, pools, strict=True)
        for each in _scale_changes(old.scale, pool.scale)
    ]
    shares = now.fair_share != new.fair_share
    reservations = now.reservations != new.reservations
    residency = now.residency != new.residency
    budgets = amend(now.budgets, new.budgets)
    credit = amend_credit(now.credit, new.credit)
    before, after = now.entitlements.rules, new.entitlements.rules
    rules = (
        [each for each in before if each not in after],
        [each for each in after if each not in before],
    )
    config = replace(
        now,
        pools=tuple(pools),
        fair_share=new.fair_share,
        budgets=budgets.taken,
        credit=credit.taken,
        # Taken even where only line numbers differ: explanations name them.
        entitlements=new.entitlements,
        residency=new.residency,
        reservations=new.reservations,
        groups=new.groups,
        rules_version=new.rules_version,
    )
    told = [*budgets.told, *credit.told]
    later = [*_later(now, new), *budgets.later, *credit.later]
    groups = [
        (user, now.groups.get(user, ()), new.groups.get(user, ()))
        for user in sorted(now.groups.keys() | new.groups.keys())
        if now.groups.get(user, ()) != new.groups.get(user, ())
    ]
    return Change(
        *(config, windows, prices, told, shares, rules, reservations, residency),
        *(groups, scales, later),
    )


def _scale(pool: PoolConfig, other: PoolConfig) -> ScaleConfig | None:
    """Return how a pool grows from now on; settings of its pilots wait for the next start."""
    if pool.scale is None or other.scale is None:
        return pool.scale
    return replace(pool.scale, **{name: getattr(other.scale, name) for name in SCALE_TAKEN_IN})


def _later(now: SiteConfig, new: SiteConfig) -> Iterator[str]:
    """Yield the changes that only count after a restart, in the words of the file."""
    # The rules repeat the site's name and secret, which are reported on their own.
    alike = replace(new.rules, site=now.rules.site, secret=now.rules.secret)
    new = replace(new, rules=alike)
    for each in fields(now):
        if each.name not in NOT_COMPARED and getattr(now, each.name) != getattr(new, each.name):
            yield TABLES.get(each.name, f"[site] {each.name}")
    before, after = ({pool.name: pool for pool in each.pools} for each in (now, new))
    for name in sorted(before.keys() ^ after.keys()):
        yield f"[[pool]] {name}, which is {'removed' if name in before else 'new'}"
    for name in sorted(before.keys() & after.keys()):
        for field in fields(PoolConfig):
            known, other = (getattr(pools[name], field.name) for pools in (before, after))
            if field.name == "scale":
                known = _scale(before[name], after[name])
            if field.name not in TAKEN_IN and known != other:
                yield f"[[pool]] {name}: {_in_file(field.name, after[name], known, other)}"


def _in_file(field: str, pool: PoolConfig, known: object, other: object) -> str:
    """Return the changed part of a pool as its owner knows it: a key, or a table."""
    if field == "grid":
        return f"[pool.{pool.kind}]"  # the table of its kind
    if field != "scale":
        return field
    keys = [key for key, *_ in _scale_changes(known, other)]
    return " ".join(["[pool.scale]", ", ".join(keys)]).rstrip()


def _scale_changes(old: object, new: object) -> list[tuple[str, str, str]]:
    """Return the changes in how a pool grows: key, before, after."""
    if not isinstance(old, ScaleConfig) or not isinstance(new, ScaleConfig):
        return []
    found = []
    for before, after in ((old.rules, new.rules), (old, new)):
        for name in (field.name for field in fields(before)):
            was = _shown(name, getattr(before, name), old)
            now = _shown(name, getattr(after, name), new)
            if name not in ("rules", "currency") and was != now:
                found.append((SCALE_KEYS.get(name, name.removesuffix("_s")), was, now))
    return found


def _shown(name: str, value: object, scale: ScaleConfig) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case int() if name == "hourly_nanos":
            return format_money(value, scale.currency)
        case int() | float():
            return f"{value:.12g}" + "s" * name.endswith("_s")  # never 1e+06
    return str(value)
