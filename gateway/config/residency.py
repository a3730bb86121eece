"""The tables [[residency]]: where work and data may go. Every mistake has its line.

[[residency]]
who = "project:risk"                    # a party, or a list; as in [[entitlement]]
data = ["personal"]                     # classes of data, of client.options(data=…); without: all
home = true                             # at this site alone; or, in its place, any of these:
sites = ["london", "paris"]             # at these sites alone
not_sites = ["tokyo"]                   # not at these
jurisdictions = ["EU"]                  # in pools of these jurisdictions alone
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import located
from gateway.base.values import SettingError, check_known, flag, guarded
from gateway.config.entitlements import read_parties
from policies.access.residency import ResidencyRule, at_home
from policies.parties import PartyKind

RULES_MAX: Final = 1_000
NAMES_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 60
_PLACES: Final = ("sites", "not_sites", "jurisdictions")
KEYS: Final = frozenset({"who", "data", "home", *_PLACES})


def read_residency(
    rows: Any, places: Mapping[Place, int], groups: Iterable[str], site: str
) -> tuple[ResidencyRule, ...]:
    """Read [[residency]] tables; SettingError has line and key. `groups` are all known groups."""
    if not isinstance(rows, list):
        raise SettingError("residency must be an array of tables, written as [[residency]]")
    if len(rows) > RULES_MAX:
        raise SettingError(f"too many: at most {RULES_MAX:,} [[residency]] are allowed")
    known, found = frozenset(groups), []
    for at, row in enumerate(rows):
        place = ("residency", at)
        read = partial(_rule, row, known, site, places.get(place, 0))
        found.append(located(places, place, row, "[[residency]]", read))
    return tuple(found)


def _rule(row: Any, groups: frozenset[str], site: str, line: int) -> ResidencyRule:
    if not isinstance(row, dict):
        raise SettingError("residency must be an array of tables, written as [[residency]]")
    check_known(row, KEYS)
    if "who" not in row:
        raise SettingError('it needs who, as in who = "project:risk"')
    who = guarded("who", lambda: read_parties(row["who"], groups))
    for party in who:
        if party.kind in (PartyKind.SITE, PartyKind.OTHERS):
            raise SettingError(f"who: {party}: the places of other sites' work are their concern")
    given: dict[str, Any] = {key: _names(key, row[key]) for key in ("data", *_PLACES) if key in row}
    if "data" in given and not given["data"]:
        raise SettingError("data: the list is empty: omit it for all data")
    rule = ResidencyRule(who, **given, line=line)
    is_home = flag("home", row.get("home", False))
    if is_home and (other := next((key for key in _PLACES if key in row), "")):
        raise SettingError(f"home and {other} exclude each other: remove one of them")
    if not is_home and not any(key in row for key in _PLACES):
        raise SettingError(f"it needs home = true, or one of {', '.join(_PLACES)}")
    return at_home(rule, site) if is_home else rule


def _names(key: str, value: Any) -> frozenset[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > NAMES_MAX:
        raise SettingError(f"{key} must be a list of up to {NAMES_MAX:,} names")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise SettingError(f"{key}: {name!r:.80} must be 1 to {NAME_CHARS_MAX} characters")
    return frozenset(names)
