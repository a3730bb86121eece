"""Rules over time: gridfed rules."""

from pathlib import Path
from typing import Any, Final

import click

from federation.errors import GridError
from federation.words import count
from gateway.base.values import SettingError
from gateway.cli.operate.rules.changes import at_details, change_options, change_rules
from gateway.cli.operate.rules.files import read_rules, rules_as_toml, write_rules
from gateway.cli.operate.rules.host_groups import members, read_pairs, with_members
from gateway.cli.operate.rules.tables import show_history, show_rules
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
)
from gateway.cli.shared.rule_changes import say_change
from gateway.rules.history import (
    CHANGED_SINCE,
    RuleKey,
    RuleKind,
)

TAKE_TRIES: Final = 3  # of take-groups, while others change the rules
_KINDS: Final = [each.value for each in RuleKind]


@click.group()
def rules() -> None:
    """All rules that change while a site runs: windows, calendars, claims, prices, budgets, …

    They are in the gateway's database, with their history; the configuration file is one source.
    """


@rules.command("list")
@click.option("--at", metavar="WHEN", help="The rules at that time, past or future.")
@click.option(
    "--version",
    type=click.IntRange(0, 1 << 62),
    help="The rules of that version, which usage records name.",
)
@click.option("--kind", type=click.Choice(_KINDS), help="Only of this kind.")
@click.option("--pool", help="Only of this pool.")
@reach_options
@json_option
@errors_to_exit_codes
def list_rules(
    at: str | None,
    version: int | None,
    kind: str | None,
    pool: str | None,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Print the rules in force, who set each, and the planned changes."""
    which = {"kind": kind, "pool": pool, "version": version, **at_details(at, reach)}
    show_rules(reach, as_json=as_json, **which)


@rules.command("history")
@click.option("--kind", type=click.Choice(_KINDS), help="Only of this kind.")
@click.option("--pool", help="Only of this pool.")
@click.option("--name", help="Only of this name.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@reach_options
@json_option
@errors_to_exit_codes
def history_of_rules(reach: DialOptions, as_json: bool, limit: int, **which: str | None) -> None:
    """Print the changes of the rules, the newest first: who, when, why, from what to what."""
    show_history(reach, as_json=as_json, limit=limit, **which)


@rules.command("apply")
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "--replace-windows",
    is_flag=True,
    help="Windows of its pools that FILE does not have end: for a plan that is imported again.",
)
@click.option(
    "--source",
    default="command",
    show_default=True,
    help="The source of the rules, which the history shows.",
)
@change_options
def apply_rules(path: str, replace_windows: bool, source: str, **more: Any) -> None:
    """Set the rules that FILE has, in the form of gateway.toml; all others stay as they are.

    `-` reads them from standard input.

    \b
    [[pool]]
    name = "risk"
    price = "0.08 USD"
    """
    found = read_rules(path)
    if replace_windows:
        at = at_details(more["at"], more["reach"])
        present = ask(more["reach"], "rules", kind=RuleKind.WINDOW, **at)["rules"]
        pools = {key.pool for key in found if key.kind is RuleKind.WINDOW}
        keys = (RuleKey(RuleKind.WINDOW, each["pool"], each["name"]) for each in present)
        found |= {key: None for key in keys if key.pool in pools and key not in found}
    edits = [{**key._asdict(), "content": each} for key, each in found.items()]
    change_rules(edits, source=source, **more)


@rules.command("take-groups")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP[=GROUP_OF_THE_HOST]...")
@click.option("--allow-empty", is_flag=True, help="A group may end up without members.")
@change_options
def take_groups(groups: tuple[str, ...], allow_empty: bool, **more: Any) -> None:
    """Set the members of each GROUP to those that this host's group of that name has.

    The host asks what it asks for logins: files, or a directory (LDAP, Active Directory) by SSSD.
    Other groups stay as they are, and so does the order of groups. Without a difference nothing
    is changed: a timer may run it every few minutes.

    \b
    gridfed rules take-groups quants production=ldn-prod --reason "directory"
    """
    for tries_left in reversed(range(TAKE_TRIES)):
        try:
            _take_groups(groups, allow_empty=allow_empty, **more)
        except GridError as error:
            if not tries_left or CHANGED_SINCE not in str(error):
                raise
        else:
            return


def _take_groups(groups: tuple[str, ...], *, allow_empty: bool, **more: Any) -> None:
    """Read the groups here and there, and order the difference; GridError if they changed since."""
    try:
        found = {group: members(on_host) for group, on_host in read_pairs(groups).items()}
        at = at_details(more["at"], more["reach"])
        rows = ask(more["reach"], "rules", kind=RuleKind.GROUPS, **at)
        present: dict[str, list[str]] = next((each["content"] for each in rows["rules"]), {})
        content = with_members(present, found, may_be_empty=allow_empty)
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    if list(content.items()) == list(present.items()):
        _say_unchanged(as_json=more["as_json"])
        return
    edit = {"kind": RuleKind.GROUPS, "pool": "", "name": "", "content": content}
    change_rules([edit], source="host groups", version=rows.get("version"), **more)


def _say_unchanged(*, as_json: bool) -> None:
    if as_json:
        show.as_json({"change": None, "groups": []})
    else:
        show.say("nothing was changed: the groups have these members already")


@rules.command("remove")
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("named", metavar="[NAME]", default="")
@click.option("--pool", default="", help="Of this pool.")
@click.option("--name", default="", help="The same as NAME.")
@change_options
def remove_rule(kind: str, named: str, pool: str, name: str, **more: Any) -> None:
    """Remove a rule: it counts no more from then on.

    NAME is that of a budget, a calendar or a window. Windows, and the other rules of a pool, need
    --pool as well.
    """
    if named and name and named != name:
        raise click.UsageError(f"two names are given, {named!r} and --name {name!r}: give one")
    name = name or named
    change_rules([{"kind": kind, "pool": pool, "name": name, "content": None}], **more)


@rules.command("cancel")
@click.argument("change", type=int)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what it would do.")
@reach_options
@json_option
@errors_to_exit_codes
def cancel_change(change: int, is_dry: bool, reach: DialOptions, as_json: bool) -> None:
    """Cancel planned change number CHANGE."""
    found = ask(reach, "cancel_change", change=change, dry_run=is_dry)
    if as_json:
        show.as_json(found)
        return
    say_change(found)
    done = f"change {change} is cancelled"
    show.say("nothing was changed: a dry run" if is_dry else done)


@rules.command("export")
@click.option("--at", metavar="WHEN", help="The rules at that time. [default: now]")
@click.option(
    "--into",
    "path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, writable=True),
    help="Write them into this configuration file, whose other content is kept.",
)
@reach_options
@json_option
@errors_to_exit_codes
def export_rules(at: str | None, path: str | None, reach: DialOptions, as_json: bool) -> None:
    """Print the rules in force as a configuration file has them."""
    found = ask(reach, "rules", **at_details(at, reach))
    contents = {
        RuleKey(RuleKind(each["kind"]), each["pool"], each["name"]): each["content"]
        for each in found["rules"]
    }
    if path is not None:
        write_rules(Path(path), contents)
    if as_json:
        data = {"version": found["version"], "file": path}
        show.as_json(found["rules"], data)
        return
    if path is None:
        for line in rules_as_toml(contents).splitlines():
            show.say(line)
        return
    show.say(f"{count(len(contents), 'rule')} of version {found['version']} written into {path}")
