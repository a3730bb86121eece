"""Windows of a pool over time: gridfed window."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from federation.errors import GridError
from gateway.base.clocks import utc_now
from gateway.base.values import suggest
from gateway.cli.operate.rules.changes import at_details, change_options, change_rules
from gateway.cli.operate.rules.tables import show_history, show_rules
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
)
from gateway.cli.shared.moments import LengthType, ShareType
from gateway.rules.history import RuleKind

_Command = Callable[..., Any]

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
_OPTIONS: Final = {key: option for option, key, *_ in _WINDOW}
# The key that an error begins with, after the name of its window, if there is one.
_OF_KEY: Final = re.compile(
    r"(?m)^(?:line \d+: )?\[\[pool\.window\]\] '[^'\n]*' of [^:\n]*: "
    rf"({'|'.join([*_OPTIONS, 'also', 'never', 'claims'])})\b(?:\[(\d+)\])?"
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
    if "=" in who:  # the gateway refuses it too, without a word of this option
        raise click.BadParameter(
            f"{who!r}: write a comma between the party and each KEY=VALUE, as in "
            '"project:risk, guaranteed=80%"',
            param_hint="--claim",
        )
    found: dict[str, Any] = {"who": who}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r}: write KEY=VALUE, as in borrows=0")
        found[key.strip()] = int(value) if value.strip().isdigit() else value.strip()
    return found


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
@change_options
def add_window(pool: str, name: str, keys: dict[str, Any], **more: Any) -> None:
    """Add window NAME to POOL."""
    if _window_of(more["reach"], pool, name, more["at"]) is not None:
        raise click.ClickException(
            f"pool {pool} has a window {name!r} at that time: use `gridfed window change`"
        )
    with _naming_options():
        change_rules([_window_edit(pool, name, [{"name": name, **keys}])], **more)


@window.command("change")
@click.argument("pool")
@click.argument("name")
@_window_options
@click.option("--unset", multiple=True, metavar="KEY", help="A key to remove from it; repeatable.")
@change_options
def change_window(
    pool: str, name: str, keys: dict[str, Any], unset: tuple[str, ...], **more: Any
) -> None:
    """Change keys of window NAME of POOL; the others stay as they are at that time."""
    present = _window_of(more["reach"], pool, name, more["at"])
    if present is None:
        _check_not_past(more["at"], more["reach"])
        raise click.ClickException(
            f"pool {pool} has no window {name!r} at that time: use `gridfed window add`"
        )
    if len(present) > 1:
        raise click.ClickException(f"window {name!r} has several tables: use `gridfed rules apply`")
    if not keys and not unset:
        raise click.UsageError("nothing to change: give a key, as in --to 22:00")
    kept = {key: value for key, value in present[0].items() if key not in unset}
    with _naming_options():
        change_rules([_window_edit(pool, name, [{**kept, **keys}])], **more)


@window.command("end")
@click.argument("pool")
@click.argument("name")
@change_options
def end_window(pool: str, name: str, **more: Any) -> None:
    """End window NAME of POOL: it counts no more from then on; with --until it comes back."""
    names = _names_of_windows(more["reach"], pool, more["at"])
    if names and name not in names:
        raise click.ClickException(
            f"pool {pool} has no window {name!r}{suggest(name, names)}; its windows: "
            f"{', '.join(names)}"
        )
    change_rules([_window_edit(pool, name, None)], **more)


@window.command("list")
@click.argument("pool", required=False)
@reach_options
@json_option
@errors_to_exit_codes
def list_windows(pool: str | None, reach: DialOptions, as_json: bool) -> None:
    """Print the windows in force and the planned changes, of all pools or one."""
    show_rules(reach, as_json=as_json, kind=RuleKind.WINDOW, pool=pool)


@window.command("history")
@click.argument("pool", required=False)
@click.argument("name", required=False)
@reach_options
@json_option
@errors_to_exit_codes
def window_history(pool: str | None, name: str | None, reach: DialOptions, as_json: bool) -> None:
    """Print the changes of windows, the newest first: who, when, why, from what to what."""
    show_history(reach, as_json=as_json, kind=RuleKind.WINDOW, pool=pool, name=name)


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


def _window_edit(pool: str, name: str, content: Any) -> dict[str, Any]:
    return {"kind": RuleKind.WINDOW, "pool": pool, "name": name, "content": content}


def _names_of_windows(reach: DialOptions, pool: str, at: str | None) -> list[str]:
    """Return the windows that a pool has at a time; none if that can't be asked.

    A gateway that is older, or that refuses this question, says itself what the change lacks.
    """
    try:
        found = ask(reach, "rules", kind=RuleKind.WINDOW, pool=pool, **at_details(at, reach))
    except GridError:
        return []
    return [each["name"] for each in found["rules"]]


def _check_not_past(at: str | None, reach: DialOptions) -> None:
    """Refuse a past time before a question about the rules of then is answered."""
    at_s = at_details(at, reach).get("at_s")
    if at_s is not None and at_s < utc_now():
        raise click.UsageError("--at: the time is past: a change takes effect now or later")


def _window_of(
    reach: DialOptions, pool: str, name: str, at: str | None
) -> list[dict[str, Any]] | None:
    try:
        found = ask(reach, "rules", kind=RuleKind.WINDOW, pool=pool, **at_details(at, reach))
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
