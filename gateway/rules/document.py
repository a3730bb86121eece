"""Takes the rules out of a configuration file, and puts those in force into it.

The reader of the configuration knows one document. The rules in force at a moment are therefore
written into the document of the file, in place of the file's own, and are read and checked like it.
Holidays are read from the files of calendars.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from math import isfinite
from pathlib import Path
from typing import Any, Final

from federation.clocks import UtcS
from gateway.base.toml_lines import Path as Place
from gateway.config.scale import OF_RULES
from gateway.config.site import ConfigFile
from gateway.config.windows import read_calendars, read_validity
from gateway.rules.contents import from_text, to_text
from gateway.rules.history import Content, RuleHistory, RuleKey, RuleKind, Rules, RuleSpan

# The tables of the site that are one rule each, and the keys of a pool that are.
OF_SITE: Final = {
    RuleKind.GROUPS: "groups",
    RuleKind.FAIR_SHARE: "fair_share",
    RuleKind.ENTITLEMENTS: "entitlement",
    RuleKind.RESIDENCY: "residency",
    RuleKind.RESERVATIONS: "reservations",
    RuleKind.CREDIT: "credit",
}
OF_POOL: Final = {
    RuleKind.CLAIMS: "claims",
    RuleKind.PRICE: "price",
    RuleKind.TARIFF: "tariff",
}
_NAMED: Final = {RuleKind.CALENDAR: "calendar", RuleKind.BUDGET: "budget"}
TABLES: Final = frozenset({*OF_SITE.values(), *_NAMED.values()})
KEYS: Final = frozenset({*OF_POOL.values(), "window"})
SCALE: Final = "scale"  # a table of a pool of which some keys are a rule
VALID: Final = ("valid_from", "valid_until")


def rules_of(file: ConfigFile) -> dict[RuleKey, Content]:
    """Return the rules of a file whose values have been checked, as JSON can hold them.

    Holidays that stand in a file of their own are among the dates of their calendar.

    Raises:
        SettingError: a calendar's file can't be read.
    """
    table = file.table
    found: dict[RuleKey, Content] = {}
    calendars = table.get("calendar", {})
    folder = Path(file.path).parent
    for name, calendar in read_calendars(calendars, folder, file.places).items():
        whole = dict(calendars[name])
        if whole.pop("holidays", None) is not None:
            whole["dates"] = list(_dates(calendar.holidays, calendar.half_days))
        found[RuleKey(RuleKind.CALENDAR, "", name)] = whole
    for kind, key in OF_SITE.items():
        if table.get(key):
            found[RuleKey(kind)] = table[key]
    for row in table.get("budget", ()):
        found[RuleKey(RuleKind.BUDGET, "", row["name"])] = row
    for pool in table.get("pool", ()):
        for kind, key in OF_POOL.items():
            if key in pool:
                found[RuleKey(kind, pool["name"])] = pool[key]
        if scale := {key: pool[SCALE][key] for key in pool.get(SCALE, {}) if key in OF_RULES}:
            found[RuleKey(RuleKind.SCALE, pool["name"])] = scale
        for row in pool.get("window", ()):
            found.setdefault(RuleKey(RuleKind.WINDOW, pool["name"], row["name"]), []).append(row)
    return {key: from_text(to_text(content)) for key, content in found.items()}


def _dates(holidays: Iterable[date], half_days: Mapping[date, time]) -> Iterator[str]:
    yield from (day.isoformat() for day in sorted(holidays))
    yield from (f"{day} {at:%H:%M}" for day, at in sorted(half_days.items()))


def with_rules(file: ConfigFile, own: Rules, history: RuleHistory, utc_s: UtcS) -> ConfigFile:
    """Return a file with the rules that are in force at a time in place of its own.

    Windows that are planned are in it as well, each valid from its time on. A rule that is as in
    the file keeps its line; `own` are the rules of the file.
    """
    rules = history.at(utc_s)
    made = _Document(file, {key for key, content in rules.items() if own.get(key) == content})
    for kind, key in OF_SITE.items():
        made.table.pop(key, None)
        if RuleKey(kind) in rules:
            made.table[key] = rules[RuleKey(kind)]
            made.keep(RuleKey(kind), (key,), (key,))
    _put_named(made, file, rules)
    windows = history.ahead(utc_s, RuleKind.WINDOW)
    made.table["pool"] = [
        _pool(made, at, row, rules, windows) for at, row in enumerate(file.table.get("pool", ()))
    ]
    return replace(file, table=made.table, places=made.places)


@dataclass
class _Document:
    """A document as it is made.

    Attributes:
        same: the rules that are as in the file.
        places: the lines of everything; those of rules are added where they still stand.
    """

    file: ConfigFile
    same: set[RuleKey]
    table: dict[str, Any] = field(init=False)
    places: dict[Place, int] = field(init=False)

    def __post_init__(self) -> None:
        self.table = dict(self.file.table)
        self.places = {at: line for at, line in self.file.places.items() if not _is_rule(at)}

    def keep(self, key: RuleKey, before: Place, after: Place) -> None:
        """Keep the lines of a rule that is as in the file, at its new place."""
        if key not in self.same:
            return
        size = len(before)
        for at, line in self.file.places.items():
            if at[:size] == before:
                self.places[*after, *at[size:]] = line


def _is_rule(place: Place) -> bool:
    if place[:1] == ("pool",):
        is_scale = len(place) > 3 and place[2] == SCALE and place[3] in OF_RULES
        return is_scale or (len(place) > 2 and place[2] in KEYS)
    return bool(place) and place[0] in TABLES


def _put_named(made: _Document, file: ConfigFile, rules: Rules) -> None:
    calendars = {key.name: each for key, each in rules.items() if key.kind is RuleKind.CALENDAR}
    made.table["calendar"] = calendars
    for name in calendars:
        place: Place = ("calendar", name)
        made.keep(RuleKey(RuleKind.CALENDAR, "", name), place, place)
    at_first = {row["name"]: at for at, row in enumerate(file.table.get("budget", ()))}
    budgets = [(key, each) for key, each in rules.items() if key.kind is RuleKind.BUDGET]
    made.table["budget"] = [each for _, each in budgets]
    for at, (key, _) in enumerate(budgets):
        made.keep(key, ("budget", at_first.get(key.name, -1)), ("budget", at))


def _pool(
    made: _Document,
    at: int,
    row: Mapping[str, Any],
    rules: Rules,
    windows: Mapping[RuleKey, list[RuleSpan]],
) -> dict[str, Any]:
    name = row["name"]
    pool = {key: value for key, value in row.items() if key not in KEYS}
    for kind, key in OF_POOL.items():
        if RuleKey(kind, name) in rules:
            pool[key] = rules[RuleKey(kind, name)]
            made.keep(RuleKey(kind, name), ("pool", at, key), ("pool", at, key))
    scale = {key: value for key, value in row.get(SCALE, {}).items() if key not in OF_RULES}
    scale |= rules.get(RuleKey(RuleKind.SCALE, name), {})
    if scale or SCALE in row:
        pool[SCALE] = scale
    for key in scale.keys() & OF_RULES:
        place: Place = ("pool", at, SCALE, key)
        made.keep(RuleKey(RuleKind.SCALE, name), place, place)
    at_first: dict[str, list[int]] = {}
    for number, each in enumerate(row.get("window", ())):
        at_first.setdefault(each["name"], []).append(number)
    rows: list[dict[str, Any]] = []
    for window, spans in windows.items():
        if window.pool != name:
            continue
        before = at_first.get(window.name, [])
        for number, each in enumerate(_rows(spans)):
            old: Place = ("pool", at, "window", before[number] if number < len(before) else -1)
            made.keep(window, old, ("pool", at, "window", len(rows)))
            rows.append(each)
    if rows:
        pool["window"] = rows
    return pool


def _rows(spans: Iterable[RuleSpan]) -> Iterator[dict[str, Any]]:
    """Yield the tables of a window, one for each span in which it is something else."""
    for from_s, until_s, content in spans:
        for row in content or ():
            if not isfinite(from_s) and not isfinite(until_s):
                yield dict(row)
                continue
            first_s, last_s = read_validity(row)
            first_s, last_s = max(first_s, from_s), min(last_s, until_s)
            if first_s < last_s:
                valid = zip(VALID, (first_s, last_s), strict=True)
                yield {**row, **{key: _iso_text(at_s) for key, at_s in valid if isfinite(at_s)}}


def _iso_text(at_s: UtcS) -> str:
    return datetime.fromtimestamp(float(at_s), UTC).isoformat()


def texts_in(content: Content) -> Iterator[str]:
    """Yield every text in the content of rules, at any depth."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for each in content.values():
            yield from texts_in(each)
    elif isinstance(content, Iterable):
        for each in content:
            yield from texts_in(each)
