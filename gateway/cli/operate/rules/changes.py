"""Changes of rules at a running gateway: the options that they share, the order, its answer."""

from collections.abc import Callable
from typing import Any

import click

from federation.clocks import UtcS
from federation.errors import GridError
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
    site_zone,
)
from gateway.cli.shared.moments import moment
from gateway.cli.shared.rule_changes import say_change
from gateway.rules.history import RuleKind

_Command = Callable[..., Any]


def change_options(command: _Command) -> _Command:
    """Give a command the options of a change."""
    for option in reversed(
        (
            click.option(
                "--at", metavar="WHEN", help="The time at which it takes effect. [default: now]"
            ),
            click.option("--until", metavar="WHEN", help="The time at which it ends by itself."),
            click.option("--reason", default="", help="The reason, which is kept with the change."),
            click.option("--dry-run", "is_dry", is_flag=True, help="Only show what it would do."),
            reach_options,
            json_option,
            errors_to_exit_codes,
        )
    ):
        command = option(command)
    return command


def at_details(at: str | None, reach: DialOptions) -> dict[str, UtcS]:
    """Return the detail of a question about rules that the option --at gives; none without it."""
    return {} if at is None else {"at_s": _moment(at, "--at", reach)}


def change_rules(  # noqa: PLR0913 - each is an option of its commands
    edits: list[dict[str, Any]],
    *,
    at: str | None,
    until: str | None,
    reason: str,
    is_dry: bool,
    reach: DialOptions,
    as_json: bool,
    source: str = "command",
    version: int | None = None,
) -> None:
    """Order a change of rules, and print its effects.

    Args:
        edits: each a rule's kind, pool, name and new content; None: without content from then on.
        at, until, reason, is_dry, reach, as_json: see `change_options`.
        source: the origin of the rules, which the history shows.
        version: the version of the rules on which the edits are based; None: any.
    """
    details: dict[str, Any] = {"edits": edits, "reason": reason, "dry_run": is_dry}
    details["source"] = source
    if at is not None:
        details["from_s"] = _moment(at, "--at", reach)
    if until is not None:
        details["until_s"] = _moment(until, "--until", reach)
    found = _changed(reach, details, version)
    when = show.moment(details["from_s"]) if at is not None else None
    rows = edits[0]["content"] if len(edits) == 1 else None
    is_window = edits[0]["kind"] == RuleKind.WINDOW and isinstance(rows, list)
    zone = str(rows[0].get("zone", "")) if is_window and rows else ""
    _say_changed(found, is_dry=is_dry, as_json=as_json, at=when, zone=zone)


def _changed(reach: DialOptions, details: dict[str, Any], version: int | None) -> Any:
    """Order a change, made of the rules of a version; an older gateway does not compare it."""
    if version is not None:
        try:
            return ask(reach, "change_rules", version=version, **details)
        except GridError as error:
            if "has no detail 'version'" not in str(error):
                raise
    return ask(reach, "change_rules", **details)


def _say_changed(
    found: Any, *, is_dry: bool, as_json: bool, at: str | None, zone: str = ""
) -> None:
    if as_json:
        show.as_json(found)
        return
    say_change(found, zone)
    when = f"takes effect at {at}" if at is not None else "is in force"
    rest = ", but for what takes effect after a restart" if found["later"] else ""
    done = f"change {found['change']} {when}{rest}"
    show.say("nothing was changed: a dry run" if is_dry else done)


def _moment(text: str, option: str, reach: DialOptions) -> UtcS:
    return moment(text, end_of_day=False, option=option, zone=site_zone(reach))
