"""The rules of a site over time: gridfed window, gridfed rules."""

import functools
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import tomlkit
from tomlkit.exceptions import TOMLKitError

from federation.clocks import UtcS
from federation.errors import GridError
from federation.words import count
from gateway.base.toml_lines import check_depth, find_places, toml_fault
from gateway.base.values import ConfigError, SettingError, suggest
from gateway.cli.operate.host_groups import members, read_pairs, with_members
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
    site_zone,
)
from gateway.cli.shared.moments import LengthType, ShareType, moment
from gateway.cli.shared.rule_changes import say_change
from gateway.config.scale import OF_RULES
from gateway.config.site import ConfigFile, read_file
from gateway.rules.document import KEYS, SCALE, TABLES, rules_of, with_rules
from gateway.rules.history import (
    CHANGED_SINCE,
    RuleChange,
    RuleEdit,
    RuleHistory,
    RuleKey,
    RuleKind,
)

_Command = Callable[..., Any]
TAKE_TRIES: Final = 3  # of take-groups, while others change the rules
_KINDS: Final = [each.value for each in RuleKind]
_CONTENT_CHARS: Final = 60  # of a rule in a table


def _change_options(command: _Command) -> _Command:
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


# Option, key of [[pool.window]], type, help.
_WINDOW: Final[tuple[tuple[str, str, Any, str], ...]] = (
    ("--days", "days", str, "Its days: daily, mon-fri, business, month-end. [default: daily]"),
    ("--from", "from", str, "When it begins on these days, as in 17:00. [default: 00:00]"),
    ("--to", "to", str, "When it ends, as in 23:00 or on the next day 06:00. [default: 24:00]"),
    ("--zone", "zone", str, "The time zone of its clock, as in Europe/London. [default: UTC]"),
    ("--calendar", "calendar", str, "The calendar of its business days."),
    ("--follows-work", "follows_work", click.BOOL, "On half days it begins when work ends."),
    ("--cron", "cron", str, "Its start as five fields of cron, instead of days and hours."),
    ("--lasts-s", "lasts_s", LengthType(), "With --cron: its duration, as in 4h."),
    (
        "--priority",
        "priority",
        int,
        "Of the open windows, that of the highest applies. [default: 0]",
    ),
    (
        "--price-factor",
        "price_factor",
        ShareType(),
        "The factor of the pool's price: 0.5 or 50%. [default: 1]",
    ),
    (
        *("--preempt", "preempt", click.Choice(["true", "false", "dry-run"])),
        "Whether it stops tasks over their claim. [default: true]",
    ),
    (
        "--preempt-per-minute",
        "preempt_per_minute",
        int,
        "The most tasks that it stops a minute; 0: no limit.",
    ),
    (
        "--drain-lead-s",
        "drain_lead_s",
        LengthType(),
        "How long before its start those tasks are warned, as in 30s.",
    ),
    ("--grace-s", "grace_s", LengthType(), "How long after its start those tasks may still run."),
    ("--spill-s", "spill_s", LengthType(), "How far into it other work may be planned to run."),
)


def _window_options(command: _Command) -> _Command:
    """Give a command the keys of a window as options, and pass those given as `keys`."""

    @functools.wraps(command)
    def wrapped(*args: Any, also: Any, never: Any, claims: Any, **kwargs: Any) -> Any:
        keys = {key: kwargs.pop(key) for _, key, *_ in _WINDOW}
        found = {key: value for key, value in keys.items() if value is not None}
        if found.get("preempt") in ("true", "false"):
            found["preempt"] = found["preempt"] == "true"
        found |= {key: list(each) for key, each in (("also", also), ("never", never)) if each}
        if claims:
            found["claims"] = [_claim(text) for text in claims]
        return command(*args, keys=found, **kwargs)

    wrapped = click.option(
        "--claim",
        "claims",
        multiple=True,
        metavar="CLAIM",
        help='Repeatable: "others, borrows=0", "project:risk, guaranteed=80%, lends=0".',
    )(wrapped)
    for key, text in (("never", "does not begin"), ("also", "begins, too")):
        about = f"A date on which it {text}; repeatable."
        wrapped = click.option(f"--{key}", key, multiple=True, metavar="DATE", help=about)(wrapped)
    for option, key, kind, about in reversed(_WINDOW):
        wrapped = click.option(option, key, type=kind, help=about)(wrapped)
    return wrapped


def _claim(text: str) -> dict[str, Any]:
    who, *parts = (part.strip() for part in text.split(","))
    found: dict[str, Any] = {"who": who}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r}: write KEY=VALUE, as in borrows=0")
        found[key.strip()] = int(value) if value.strip().isdigit() else value.strip()
    return found


# --- gridfed window ------------------------------------------------------------------------------


@click.group()
def window() -> None:
    """Add, change and end the windows of a pool while its gateway runs.

    A change is in the gateway's database before it counts. It may be planned for a later time,
    and it may end by itself. `gridfed windows` shows which window holds when.
    """


@window.command("add")
@click.argument("pool")
@click.argument("name")
@_window_options
@_change_options
def add_window(pool: str, name: str, keys: dict[str, Any], **more: Any) -> None:
    """Add window NAME to POOL."""
    if _window_of(more["reach"], pool, name, more["at"]) is not None:
        raise click.ClickException(
            f"pool {pool} has a window {name!r} at that time: use `gridfed window change`"
        )
    with _naming_options():
        _change([_window_edit(pool, name, [{"name": name, **keys}])], **more)


@window.command("change")
@click.argument("pool")
@click.argument("name")
@_window_options
@click.option("--unset", multiple=True, metavar="KEY", help="A key to remove from it; repeatable.")
@_change_options
def change_window(
    pool: str, name: str, keys: dict[str, Any], unset: tuple[str, ...], **more: Any
) -> None:
    """Change keys of window NAME of POOL; the others stay as they are at that time."""
    present = _window_of(more["reach"], pool, name, more["at"])
    if present is None:
        raise click.ClickException(
            f"pool {pool} has no window {name!r} at that time: use `gridfed window add`"
        )
    if len(present) > 1:
        raise click.ClickException(f"window {name!r} has several tables: use `gridfed rules apply`")
    if not keys and not unset:
        raise click.UsageError("nothing to change: give a key, as in --to 22:00")
    kept = {key: value for key, value in present[0].items() if key not in unset}
    with _naming_options():
        _change([_window_edit(pool, name, [{**kept, **keys}])], **more)


@window.command("end")
@click.argument("pool")
@click.argument("name")
@_change_options
def end_window(pool: str, name: str, **more: Any) -> None:
    """End window NAME of POOL: it counts no more from then on; with --until it comes back."""
    names = _names_of_windows(more["reach"], pool, more["at"])
    if names and name not in names:
        raise click.ClickException(
            f"pool {pool} has no window {name!r}{suggest(name, names)}; its windows: "
            f"{', '.join(names)}"
        )
    _change([_window_edit(pool, name, None)], **more)


@window.command("list")
@click.argument("pool", required=False)
@reach_options
@json_option
@errors_to_exit_codes
def list_windows(pool: str | None, reach: DialOptions, as_json: bool) -> None:
    """Print the windows in force and the planned changes, of all pools or one."""
    _list(reach, as_json=as_json, kind=RuleKind.WINDOW, pool=pool)


@window.command("history")
@click.argument("pool", required=False)
@click.argument("name", required=False)
@reach_options
@json_option
@errors_to_exit_codes
def window_history(pool: str | None, name: str | None, reach: DialOptions, as_json: bool) -> None:
    """Print the changes of windows, the newest first: who, when, why, from what to what."""
    _history(reach, as_json=as_json, kind=RuleKind.WINDOW, pool=pool, name=name)


@contextmanager
def _naming_options() -> Iterator[None]:
    """Let errors about keys of a window name the options that were typed."""
    try:
        yield
    except GridError as error:
        raise GridError(by_option(str(error))) from None


def by_option(text: str) -> str:
    """Return the gateway's text about keys of a window, with the options in their place."""
    return _OF_KEY.sub(lambda found: _option_of(found[1], found[2]), text)


def _option_of(key: str, number: str | None) -> str:
    if key == "claims":
        return f"--claim {number}" if number else "--claim"
    return _OPTIONS.get(key, f"--{key}")


_OPTIONS: Final = {key: option for option, key, *_ in _WINDOW}
# The key that an error begins with, after the name of its window, if there is one.
_OF_KEY: Final = re.compile(
    r"(?m)^(?:line \d+: )?\[\[pool\.window\]\] '[^'\n]*' of [^:\n]*: "
    rf"({'|'.join([*_OPTIONS, 'also', 'never', 'claims'])})\b(?:\[(\d+)\])?"
)


def _window_edit(pool: str, name: str, content: Any) -> dict[str, Any]:
    return {"kind": RuleKind.WINDOW, "pool": pool, "name": name, "content": content}


def _names_of_windows(reach: DialOptions, pool: str, at: str | None) -> list[str]:
    """Return the windows that a pool has at a time; none if that can't be asked.

    A gateway that is older, or that refuses this question, says itself what the change lacks.
    """
    try:
        found = ask(reach, "rules", kind=RuleKind.WINDOW, pool=pool, **_at(at, reach))
    except GridError:
        return []
    return [each["name"] for each in found["rules"]]


def _window_of(
    reach: DialOptions, pool: str, name: str, at: str | None
) -> list[dict[str, Any]] | None:
    try:
        found = ask(reach, "rules", kind=RuleKind.WINDOW, pool=pool, **_at(at, reach))
    except GridError as error:
        # A right that is missing for the change is said before one that is missing for this
        # question.
        try:
            ask(reach, "change_rules", edits=[], dry_run=True)
        except GridError as of_change:
            if "edits" not in str(of_change):  # which lists none
                raise
        raise error from None
    return next((each["content"] for each in found["rules"] if each["name"] == name), None)


def _at(at: str | None, reach: DialOptions) -> dict[str, UtcS]:
    return {} if at is None else {"at_s": _moment(at, "--at", reach)}


def _moment(text: str, option: str, reach: DialOptions) -> UtcS:
    return moment(text, end_of_day=False, option=option, zone=site_zone(reach))


def _change(  # noqa: PLR0913 - each is an option of its commands
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


# --- gridfed rules -------------------------------------------------------------------------------


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
    _list(reach, as_json=as_json, kind=kind, pool=pool, version=version, **_at(at, reach))


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
    _history(reach, as_json=as_json, limit=limit, **which)


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
@_change_options
def apply_rules(path: str, replace_windows: bool, source: str, **more: Any) -> None:
    """Set the rules that FILE has, in the form of gateway.toml; all others stay as they are.

    `-` reads them from standard input.

    \b
    [[pool]]
    name = "risk"
    price = "0.08 USD"
    """
    try:
        file = _from_input() if path == "-" else read_file(path)
        found: dict[RuleKey, Any] = rules_of(file)
    except (ConfigError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    except (KeyError, TypeError, AttributeError):
        raise click.UsageError(f"{path}: a pool, window or budget has no name") from None
    _check_only_rules(file)
    if not found:
        raise click.UsageError(f"{path} has no rules")
    if replace_windows:
        present = ask(
            more["reach"], "rules", kind=RuleKind.WINDOW, **_at(more["at"], more["reach"])
        )["rules"]
        pools = {key.pool for key in found if key.kind is RuleKind.WINDOW}
        keys = (RuleKey(RuleKind.WINDOW, each["pool"], each["name"]) for each in present)
        found |= {key: None for key in keys if key.pool in pools and key not in found}
    edits = [{**key._asdict(), "content": each} for key, each in found.items()]
    _change(edits, source=source, **more)


def _from_input() -> ConfigFile:
    text = sys.stdin.read()
    try:
        check_depth(text)
        return ConfigFile("-", tomllib.loads(text), find_places(text))
    except (ValueError, RecursionError) as error:
        text = toml_fault(error) if isinstance(error, ValueError) else str(error)
        raise ConfigError(f"standard input: {text}") from None


def _check_only_rules(file: ConfigFile) -> None:
    """Refuse what is no rule, which would be left out without a word."""
    others = [key for key in file.table if key not in TABLES and key != "pool"]
    for row in file.table.get("pool", ()):
        others += [f"[[pool]] {key}" for key in row if key not in {*KEYS, "name", SCALE}]
        others += [f"[pool.scale] {key}" for key in row.get(SCALE, ()) if key not in OF_RULES]
    if others:
        raise click.UsageError(
            f"{file.path}: {others[0]} is not a rule: it belongs in gateway.toml, and takes effect "
            "after a restart"
        )


@rules.command("take-groups")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP[=GROUP_OF_THE_HOST]...")
@click.option("--allow-empty", is_flag=True, help="A group may end up without members.")
@_change_options
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
        rows = ask(more["reach"], "rules", kind=RuleKind.GROUPS, **_at(more["at"], more["reach"]))
        present: dict[str, list[str]] = next((each["content"] for each in rows["rules"]), {})
        content = with_members(present, found, may_be_empty=allow_empty)
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    if list(content.items()) == list(present.items()):
        _say_unchanged(as_json=more["as_json"])
        return
    edit = {"kind": RuleKind.GROUPS, "pool": "", "name": "", "content": content}
    _change([edit], source="host groups", version=rows.get("version"), **more)


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
@_change_options
def remove_rule(kind: str, named: str, pool: str, name: str, **more: Any) -> None:
    """Remove a rule: it counts no more from then on. NAME: of a budget, calendar or window."""
    if named and name and named != name:
        raise click.UsageError(f"two names are given, {named!r} and --name {name!r}: give one")
    name = name or named
    _change([{"kind": kind, "pool": pool, "name": name, "content": None}], **more)


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
    found = ask(reach, "rules", **_at(at, reach))
    contents = {
        RuleKey(RuleKind(each["kind"]), each["pool"], each["name"]): each["content"]
        for each in found["rules"]
    }
    if path is not None:
        _write_into(Path(path), contents)
    if as_json:
        data = {"version": found["version"], "file": path}
        show.as_json(found["rules"], data)
        return
    if path is None:
        names = dict.fromkeys(key.pool for key in contents if key.pool)
        bare = ConfigFile("", {"pool": [{"name": name} for name in names]}, {})
        whole = {key: value for key, value in _written(bare, contents).items() if value}
        for line in tomlkit.dumps(_as_tables(whole)).splitlines():
            show.say(line)
        return
    show.say(f"{count(len(contents), 'rule')} of version {found['version']} written into {path}")


def _written(file: ConfigFile, contents: Mapping[RuleKey, Any]) -> dict[str, Any]:
    edits = tuple(RuleEdit(key, each) for key, each in contents.items())
    begun_s = UtcS(0.0)
    history = RuleHistory([RuleChange(1, begun_s, begun_s, "", "file", edits)])
    return with_rules(file, {}, history, begun_s).table


def _write_into(path: Path, contents: Mapping[RuleKey, Any]) -> None:
    """Replace the rules that differ; comments, and all other tables, stay as they are."""
    text = path.read_text()
    try:
        document = tomlkit.parse(text)
        file = ConfigFile(str(path), tomllib.loads(text), find_places(text))
    except (TOMLKitError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    unknown = {key.pool for key in contents if key.pool} - {
        row.get("name") for row in file.table.get("pool", ())
    }
    if unknown:
        raise click.UsageError(f"{path} has no [[pool]] {', '.join(sorted(unknown))}")
    new = _written(file, contents)
    for key in TABLES:
        _put(document, key, file.table.get(key), new.get(key))
    for at, row in enumerate(file.table.get("pool", ())):
        for key in sorted(KEYS):
            _put(document["pool"][at], key, row.get(key), new["pool"][at].get(key))
        before, after = row.get(SCALE, {}), new["pool"][at].get(SCALE, {})
        for key in sorted(before.keys() | after.keys()):
            _put(document["pool"][at][SCALE], key, before.get(key), after.get(key))
    path.write_text(tomlkit.dumps(document))


def _put(table: Any, key: str, before: Any, after: Any) -> None:
    if (before or None) == (after or None):
        return
    if after:
        table[key] = _as_tables({key: after})[key]
    else:
        table.pop(key, None)


def _as_tables(value: Mapping[str, Any]) -> Any:
    """Return a table for TOML: lists of tables as [[tables]], claims and the like in one line."""
    made = tomlkit.document()
    for key, each in _plain_first(value):
        made[key] = _item(key, each)
    return made


def _plain_first(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a table in an order that TOML can write: values before tables."""
    items = list(value.items())
    yield from (item for item in items if not _is_table(*item))
    yield from (item for item in items if _is_table(*item))


def _is_table(key: str, value: Any) -> bool:
    is_rows = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict) or (is_rows and key not in _INLINE)


_INLINE: Final = frozenset({"claims", "bands", "volume"})


def _item(key: str, value: Any) -> Any:
    if not _is_table(key, value):
        return tomlkit.item(value) if key not in _INLINE else _inline(value)
    if isinstance(value, dict):
        table = tomlkit.table()
        for name, each in _plain_first(value):
            table[name] = _item(name, each)
        return table
    rows = tomlkit.aot()
    for row in value:
        rows.append(_item("", row))
    return rows


def _inline(value: list[Any]) -> Any:
    array = tomlkit.array()
    for each in value:
        table = tomlkit.inline_table()
        table.update(each)
        array.append(table)
    return array.multiline(len(value) > 1)


# --- tables --------------------------------------------------------------------------------------


def _list(reach: DialOptions, *, as_json: bool, **which: Any) -> None:
    found = ask(reach, "rules", **{key: each for key, each in which.items() if each is not None})
    if which.get("kind") is not None or which.get("pool") is not None:
        found["planned"] = [each for each in found["planned"] if each["edits"]]
    if as_json:
        show.as_json(found["rules"], {key: found[key] for key in found if key != "rules"})
        return
    _check_pool(reach, which.get("pool"), is_there=bool(found["rules"] or found["planned"]))
    show.say(f"version {found['version']} of the rules, in force at {show.moment(found['at_s'])}")
    show.table(
        ("rule", "content", show.timed("since"), "by", "change", "reason"),
        [
            [
                _named(each),
                _short(each["content"]),
                show.when(each["change"]["from_s"]),
                _by(each["change"]),
                each["change"]["change"],
                each["change"]["reason"],
            ]
            for each in found["rules"]
        ],
        "no rules",
    )
    if found["planned"]:
        show.say()
        show.say("planned:")
        _table_of_changes(found["planned"])


def _history(reach: DialOptions, *, as_json: bool, **which: Any) -> None:
    details = {key: each for key, each in which.items() if each is not None}
    found = ask(reach, "rule_history", **details)
    if as_json:
        show.as_json(found)
        return
    _check_pool(reach, which.get("pool"), is_there=bool(found))
    _table_of_changes(found)


def _check_pool(reach: DialOptions, pool: str | None, *, is_there: bool) -> None:
    """Raise ClickException for a pool without rules that the site does not have: it is a slip."""
    if pool is None or is_there:
        return
    known = sorted({str(each["pool"]) for each in ask(reach, "status")["pools"]})
    if pool not in known:
        meant = suggest(pool, known)
        raise click.ClickException(f"no pool {pool!r} here{meant}; known pools: {', '.join(known)}")


def _table_of_changes(changes: list[Any]) -> None:
    rows = []
    for each in changes:
        head = [
            each["change"],
            show.when(each["from_s"]),
            show.when(each["until_s"]) if each["until_s"] else "",
            _by(each),
        ]
        state = f"cancelled at {show.moment(each['cancelled_s'])}" if each["cancelled_s"] else ""
        why = "; ".join(filter(None, (each["reason"], state)))
        if each["ends"]:
            rows.append([*head, f"the end of change {each['ends']}", "", "", why])
        for edit in each["edits"]:
            values = _short(edit["before"]), _short(edit["after"])
            rows.append([*head, _named(edit), *values, why])
            head = [""] * len(head)
            why = ""
    show.table(
        ("change", show.timed("from"), "until", "by", "rule", "before", "after", "reason"),
        rows,
        "no changes",
    )


def _by(change: Mapping[str, Any]) -> str:
    author, source = change["author"], change["source"]
    return f"{author}, {source}" if author else str(source)


def _named(rule: Mapping[str, Any]) -> str:
    return str(RuleKey(RuleKind(rule["kind"]), rule["pool"], rule["name"]))


def _short(content: Any) -> str:
    """Return a rule's content in a line."""
    if content is None:
        return "none"
    rows = content if isinstance(content, list) else [content]
    text = "; ".join(
        ", ".join(f"{key} {_value(each)}" for key, each in row.items() if key != "name")
        if isinstance(row, dict)
        else str(row)
        for row in rows
    )
    is_cut = len(text) > _CONTENT_CHARS and sys.stdout.isatty()  # piped output has room
    return text[: _CONTENT_CHARS - 1] + "…" if is_cut else text


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return " ".join(map(str, value.values()))
    return str(value)
