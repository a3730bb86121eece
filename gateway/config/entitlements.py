"""The tables [[entitlement]]: access to pools and windows, by user, with quotas.

    [[entitlement]]
    allow = "group:quants"          # or deny; see policies.parties; or a list: any of them
    pools = ["risk", "elsewhere"]   # ours, and all of other sites; without it: every pool
    windows = ["risk run"]          # while one of these holds; without it: always
    slots_max = 40                  # at one time, all of them together, in these pools
    user_slots_max = 10             # and each of their users
    queued_max = 100000             # their unfinished tasks here
    user_queued_max = 10000
    priority_max = 10               # the highest priority of their jobs
    classes = ["preemptible"]       # the price classes that they may use

    [[entitlement]]
    deny = "project:legacy"

Every error has its line number. Users and projects come from tokens, so not all are known here.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from federation.wishes import NAME_CHARS_MAX, PRIORITY_MAX
from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import line_about, located
from gateway.base.values import SettingError, check_known, count, guarded, number, suggest
from policies.access.entitlements import (
    ELSEWHERE,
    NO_WINDOW,
    RULES_MAX,
    EntitlementRule,
    Entitlements,
)
from policies.access.windows import WindowPlan
from policies.parties import Party, PartyKind, read_party

NAMES_MAX: Final = 256
SLOTS_MAX: Final = 10**9
TASKS_MAX: Final = 10**12
CLASSES: Final = ("guaranteed", "preemptible")
_LIMITS: Final = {
    "slots_max": SLOTS_MAX,
    "user_slots_max": SLOTS_MAX,
    "queued_max": TASKS_MAX,
    "user_queued_max": TASKS_MAX,
}
KEYS: Final = frozenset({"allow", "deny", "pools", "windows", "priority_max", "classes", *_LIMITS})


def read_entitlements(
    rows: Any, places: Mapping[Place, int], groups: Iterable[str]
) -> Entitlements:
    """Read [[entitlement]] tables; SettingError has line and key. `groups` are all known groups."""
    if not isinstance(rows, list):
        raise SettingError("entitlement must be an array of tables, written as [[entitlement]]")
    if len(rows) > RULES_MAX:
        raise SettingError(f"too many: at most {RULES_MAX:,} [[entitlement]] are allowed")
    known = frozenset(groups)
    rules = []
    for at, row in enumerate(rows):
        place = ("entitlement", at)
        read = partial(_rule, row, known, places.get(place, 0))
        rules.append(located(places, place, row, "[[entitlement]]", read))
    return Entitlements(tuple(rules))


def check_entitlements(
    entitlements: Entitlements, plans: Mapping[str, WindowPlan], places: Mapping[Place, int]
) -> None:
    """Refuse rules with unknown pools or windows; SettingError has the line."""
    windows = window_names(plans)
    for at, rule in enumerate(entitlements.rules):
        where = f"{line_about(places, ('entitlement', at), ('pools',))}[[entitlement]]"
        for name in sorted(rule.pools - plans.keys() - {ELSEWHERE}):
            known = ", ".join([*sorted(plans), ELSEWHERE])
            meant = suggest(name, plans)
            raise SettingError(
                f"{where}: pools: pool {name!r} not found here{meant}; known pools: {known}"
            )
        if ELSEWHERE in plans and rule.pools:
            raise SettingError(
                f"{where}: pools: {ELSEWHERE!r} means the pools of other sites, but a pool of "
                "this site has that name: rename it"
            )
        about = [names for pool, names in windows.items() if rule.covers(pool)]
        there_are = frozenset[str]().union(*about)
        where = f"{line_about(places, ('entitlement', at), ('windows',))}[[entitlement]]"
        for name in sorted(rule.windows - there_are):
            known = ", ".join(sorted(there_are)) or "none"
            raise SettingError(
                f"{where}: windows: no window {name!r} in the pools of this rule; their "
                f"windows: {known}"
            )


def window_names(plans: Mapping[str, WindowPlan]) -> dict[str, frozenset[str]]:
    """The names of each pool's windows."""
    return {pool: frozenset(each.name for each in plan.windows) for pool, plan in plans.items()}


def _rule(row: Any, groups: frozenset[str], line: int) -> EntitlementRule:
    if not isinstance(row, dict):
        raise SettingError("entitlement must be an array of tables, written as [[entitlement]]")
    check_known(row, KEYS)
    ways = [key for key in ("allow", "deny") if key in row]
    if len(ways) != 1:
        raise SettingError('it needs either allow or deny, as in allow = "group:quants"')
    [way] = ways
    who = guarded(way, lambda: read_parties(row[way], groups))
    limits: dict[str, Any] = {
        key: count(key, row[key], 0, most) for key, most in _LIMITS.items() if key in row
    }
    priority = row.get("priority_max")
    if priority is not None:
        priority = float(number("priority_max", priority, -PRIORITY_MAX, PRIORITY_MAX))
    classes = _names("classes", row)
    for name in sorted(classes - set(CLASSES)):
        raise SettingError(
            f"classes: unknown class {name!r:.40}; known classes: {', '.join(CLASSES)}"
        )
    windows = _names("windows", row)
    if NO_WINDOW in windows:
        raise SettingError("windows: the name of a window is empty")
    return EntitlementRule(
        way == "allow",
        who,
        _names("pools", row),
        windows,
        **limits,
        priority_max=priority,
        classes=frozenset(each for each in CLASSES if each in classes),
        line=line,
    )


def read_parties(value: Any, groups: frozenset[str]) -> tuple[Party, ...]:
    """Read a party, or a list of parties; SettingError. `groups` are all known groups."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= NAMES_MAX:
        raise SettingError(f"it must be a party, or a list of up to {NAMES_MAX} parties")
    found = []
    for name in names:
        if not isinstance(name, str):
            raise SettingError(f"{name!r:.40} is not a party: a party is text")
        party = read_party(name)
        if party.kind is PartyKind.GROUP and party.name not in groups:
            known = ", ".join(sorted(groups)[:8]) or "none"
            raise SettingError(
                f"group {party.name!r:.60} not found in [groups]; known groups: {known}"
            )
        found.append(party)
    return tuple(found)


def _names(key: str, row: Mapping[str, Any]) -> frozenset[str]:
    if key not in row:
        return frozenset()
    value = row[key]
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not is_list or not 1 <= len(value) <= NAMES_MAX:
        raise SettingError(f"{key} must be a list of 1 to {NAMES_MAX} names")
    if any(len(each) > NAME_CHARS_MAX for each in value):
        raise SettingError(f"{key}: a name has at most {NAME_CHARS_MAX} characters")
    return frozenset(value)
