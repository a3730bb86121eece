"""The tables [alerts] and [[alert]]: the watched conditions, and the actions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from federation.money import parse_money
from gateway.base.toml_lines import Passage, line_about
from gateway.base.toml_lines import Path as Place
from gateway.base.values import SettingError, check_known, count, number, percent, text_of
from policies.calendar.periods import PeriodLength, read_zone
from policies.costs.alerts import (
    CLEAR_PERCENT,
    LEVELS,
    PENDING_H,
    AlertBudget,
    AlertScope,
    PriceLimit,
    Rule,
    Severity,
    Unacknowledged,
)

ALERTS_MAX: Final = 100
WEBHOOKS_MAX: Final = 4
LEVELS_MAX: Final = 20
LEVEL_MAX: Final = 1000  # per cent
ARGUMENTS_MAX: Final = 64
TEXT_CHARS_MAX: Final = 2000
NAME_CHARS_MAX: Final = 60
HOURS_MAX: Final = 24.0 * 366

_OF_ALL: Final = frozenset({"name", "kind", "severity", "webhook", "command"})
_WHOSE: Final = ("project", "user", "group", "site", "origin")
_OF_KIND: Final = {
    "budget": frozenset({"amount", "period", "zone", "levels", *_WHOSE}),
    "price": frozenset({"limit", "site", "pool", "clear_percent"}),
    "unacknowledged": frozenset({"hours", "site", "side"}),
}
ALERT_KEYS: Final = _OF_ALL.union(*_OF_KIND.values())


@dataclass(frozen=True, slots=True)
class AlertPace:
    """How often rules are checked, and how patient actions are: the table [alerts]."""

    interval_s: float = 60.0
    webhook_timeout_s: float = 10.0
    command_timeout_s: float = 30.0
    tries: int = 4
    retry_s: float = 2.0
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """A rule, and its actions besides the log: addresses to post to, a program to run."""

    rule: Rule
    webhooks: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """All settings of a site about alerts."""

    pace: AlertPace = field(default_factory=AlertPace)
    watched: tuple[Watched, ...] = ()


_PACE_LIMITS: Final[dict[str, tuple[float, float]]] = {
    "interval_s": (0.05, 86_400),
    "webhook_timeout_s": (0.1, 300),
    "command_timeout_s": (0.1, 3_600),
    "retry_s": (0.01, 3_600),
}


def read_alerts(pace: Passage, tables: Sequence[Passage]) -> AlertsConfig:
    """Read [alerts] and the [[alert]] tables. Raises ConfigError, with the line."""
    with pace.about():
        made = _pace(pace.table)
    watched: dict[str, Watched] = {}
    for at, each in enumerate(tables, start=1):
        if at > ALERTS_MAX:
            raise each.error(f"too many: at most {ALERTS_MAX} are allowed")
        found = _watched(each)
        name = found.rule.name
        if name in watched:
            raise replace(each, named=f"[[alert]] {name}:").error("the name is used twice")
        watched[name] = found
    return AlertsConfig(made, tuple(watched.values()))


def check_pools(
    config: AlertsConfig, site: str, pools: Collection[str], places: Mapping[Place, int]
) -> None:
    """Raise SettingError for the price of a pool that this site does not have.

    The pools that other sites have, and will have, are unknown when a gateway starts: `gridfed
    alerts` and the log report the missing ones.
    """
    for at, watched in enumerate(config.watched):
        rule = watched.rule
        if isinstance(rule, PriceLimit) and rule.site == site and rule.pool not in ("", *pools):
            known = ", ".join(pools) or "none"
            line = line_about(places, ("alert", at), ("pool",))
            raise SettingError(
                f"{line}[[alert]] {rule.name}: pool {rule.pool!r} not found at this site; its "
                f"pools: {known}"
            )


def _pace(table: dict[str, Any]) -> AlertPace:
    check_known(table, {field.name for field in fields(AlertPace)})
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "ca_file":
            values[key] = value if value == "" else _file(key, value)
        elif key == "tries":
            values[key] = count(key, value, 1, 10)
        else:
            values[key] = number(key, value, *_PACE_LIMITS[key])
    return AlertPace(**values)


def _file(key: str, value: Any) -> str:
    path = text_of(key, value, TEXT_CHARS_MAX, is_printable=False)
    if not Path(path).expanduser().is_file():
        raise SettingError(f"{key}: file {path!r} not found")
    return path


def _watched(given: Passage) -> Watched:
    table, name = given.table, given.table.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise given.error(f"needs a name of 1 to {NAME_CHARS_MAX} printable characters")
    with replace(given, named=f"[[alert]] {name}:").about():
        return Watched(_rule(name, table), _webhooks(table), _command(table))


def _rule(name: str, table: dict[str, Any]) -> Rule:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _OF_KIND:
        raise SettingError(f"kind is {kind!r}: it must be {_either(_OF_KIND)}")
    check_known(table, _OF_ALL | _OF_KIND[kind])
    severity = Severity(_choice(table, "severity", Severity.WARNING, list(Severity)))
    match kind:
        case "budget":
            return _budget(name, severity, table)
        case "price":
            nanos, currency = _money(table, "limit")
            return PriceLimit(
                name,
                nanos,
                currency,
                site=text_of("site", table.get("site", ""), TEXT_CHARS_MAX, is_printable=False),
                pool=text_of("pool", table.get("pool", ""), TEXT_CHARS_MAX, is_printable=False),
                clear_percent=number(
                    "clear_percent", table.get("clear_percent", CLEAR_PERCENT), 0.0, 100.0
                ),
                severity=severity,
            )
        case _:
            hours = number("hours", table.get("hours", PENDING_H), 0.0, HOURS_MAX)
            return Unacknowledged(
                name,
                hours * 3600.0,
                site=text_of("site", table.get("site", ""), TEXT_CHARS_MAX, is_printable=False),
                side=_choice(table, "side", "", ["buy", "sell"]),
                severity=severity,
            )


def _budget(name: str, severity: Severity, table: dict[str, Any]) -> AlertBudget:
    nanos, currency = _money(table, "amount")
    if not nanos:
        raise SettingError("amount must be above zero")
    given = [key for key in _WHOSE if key in table]
    if len(given) > 1:
        raise SettingError(
            f"{given[0]} and {given[1]}: give only one of them, or neither for all users"
        )
    of = text_of(given[0], table[given[0]], TEXT_CHARS_MAX, is_printable=False) if given else ""
    if given and not of:
        raise SettingError(f"{given[0]} is empty: omit it for all users")
    try:
        zone = read_zone(
            text_of("zone", table.get("zone", "UTC"), TEXT_CHARS_MAX, is_printable=False)
        )
    except ValueError as error:
        raise SettingError(f"zone: {error}") from None
    return AlertBudget(
        name,
        nanos,
        currency,
        AlertScope(given[0]) if given else AlertScope.ALL,
        of,
        PeriodLength(_choice(table, "period", PeriodLength.MONTH, list(PeriodLength))),
        zone,
        _levels(table.get("levels", list(LEVELS))),
        severity,
    )


def _levels(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= LEVELS_MAX:
        raise SettingError(
            f"levels must be a list of 1 to {LEVELS_MAX} numbers, as in [50, 80, 100]"
        )
    given = [percent(each, each) if isinstance(each, str) else each for each in value]
    return tuple(sorted({count("each value of levels", each, 1, LEVEL_MAX) for each in given}))


def _webhooks(table: dict[str, Any]) -> tuple[str, ...]:
    value = table.get("webhook", [])
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list) or len(urls) > WEBHOOKS_MAX:
        raise SettingError(
            f"webhook must be an address, or a list of up to {WEBHOOKS_MAX} addresses"
        )
    for url in urls:
        _check_url(url)
    return tuple(urls)


def _check_url(url: Any) -> None:
    # Not shown: anyone who knows such an address may often post to it.
    text = text_of("webhook", url, TEXT_CHARS_MAX, is_printable=False)
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        raise SettingError(f"webhook: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise SettingError("webhook must begin with https:// or http://")
    if not parts.hostname:
        raise SettingError("webhook has no host: write https://HOST/PATH")
    if not all(char.isprintable() and not char.isspace() for char in text):
        raise SettingError("webhook must be printable, without spaces")


def _command(table: dict[str, Any]) -> tuple[str, ...]:
    value = table.get("command", [])
    example = 'as in ["/usr/local/bin/page", "--team", "risk"]: it is run without a shell'
    if not isinstance(value, list) or len(value) > ARGUMENTS_MAX:
        raise SettingError(f"command must be a list of up to {ARGUMENTS_MAX} strings, {example}")
    if not all(isinstance(each, str) and "\0" not in each for each in value):
        raise SettingError(f"command must be a list of strings, {example}")
    if "command" in table and (not value or not value[0]):
        raise SettingError(f"command has no program, {example}")
    return tuple(value)


def _money(table: dict[str, Any], key: str) -> tuple[int, str]:
    text = table.get(key)
    if not isinstance(text, str):
        raise SettingError(f'{key} must be an amount of money, as in "1000 USD"')
    try:
        return parse_money(text)
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from None


def _choice(table: dict[str, Any], key: str, default: str, known: list[str]) -> str:
    value = table.get(key, default)
    if value != default and (not isinstance(value, str) or value not in known):
        raise SettingError(f"{key} is {value!r}: it must be {_either(known)}")
    return str(value)


def _either(known: Collection[str]) -> str:
    return " or ".join(map(str, known))
