"""The pools of a gateway by its rules, as it tells them: for commands without its configuration."""

from typing import Any, Final

import click

from federation.clocks import UtcS
from gateway.base.values import ConfigError, SettingError
from gateway.cli.shared.common import DialOptions
from gateway.config.site import ConfigFile, SiteConfig, parse
from gateway.grids.kinds import Installed
from gateway.rules.document import with_rules
from gateway.rules.history import (
    RuleChange,
    RuleHistory,
    RuleKey,
    RuleKind,
    Rules,
    difference,
)

# Of which windows are made; the rest of a site's rules is not needed for them.
_KINDS: Final = frozenset({RuleKind.CALENDAR, RuleKind.WINDOW, RuleKind.CLAIMS})
EDGES_MAX: Final = 200  # planned changes that are looked at


def asked_rules(reach: DialOptions, utc_s: UtcS, at_s: UtcS | None) -> tuple[SiteConfig, int]:
    """Ask a gateway for its rules about windows; return them as a configuration, and their version.

    Args:
        reach: the gateway.
        utc_s: the time from which the rules are wanted.
        at_s: the same, if it is not now.

    Raises:
        GridError: the gateway does not answer, or refuses.
        click.UsageError: its rules are of a newer version than this command.
    """
    with reach.client() as client:
        first = client.ask("rules", **({} if at_s is None else {"at_s": at_s}))
        before = _rules(first)
        changes = [_change(1, UtcS(0.0), {}, before)]
        edges = sorted({UtcS(each["from_s"]) for each in first["planned"]})
        for edge_s in edges[:EDGES_MAX]:
            after = _rules(client.ask("rules", at_s=edge_s))
            changes.append(_change(len(changes) + 1, edge_s, before, after))
            before = after
        site = str(client.gateway["site"])
        names = [row["pool"] for row in client.ask("pools") if row["site"] == site]
    table = {"site": {"name": site}, "pool": [{"name": name} for name in names]}
    try:
        file = with_rules(ConfigFile("", table, {}), {}, RuleHistory(changes), utc_s)
        config = parse(file, Installed())
    except (ConfigError, SettingError) as error:
        raise click.UsageError(f"the rules of {site} can't be read: {error}") from None
    return config, int(first["version"])


def _rules(answer: dict[str, Any]) -> Rules:
    return {
        RuleKey(RuleKind(each["kind"]), each["pool"], each["name"]): each["content"]
        for each in answer["rules"]
        if each["kind"] in _KINDS
    }


def _change(number: int, from_s: UtcS, before: Rules, after: Rules) -> RuleChange:
    return RuleChange(number, from_s, from_s, "", "gateway", difference(before, after))
