"""The view of objects: `gridfed objects`."""

import sys
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from federation.money import format_amount, rounded_amount
from federation.words import duration_text, size_text
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    errors_to_exit_codes,
    json_option,
    of_users,
    reach_options,
)

_GB_HOUR: Final = 3_600 * 10**9  # byte-seconds
_DIGEST_CHARS: Final = 15  # of those shown of a digest: enough to tell objects apart

_COLUMNS: Final = (
    *("digest", "size", "user", "project", "put", "sessions", "jobs", "GB-hours", "cost"),
    *("residency", "names"),
)


class _Objects(click.Group):
    """`gridfed objects` lists; `gridfed objects drop` is another command. An object may have that
    name, too: `gridfed objects list drop`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        if not is_help and not (args and args[0] in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Objects)
def objects() -> None:
    """List the objects at a site and their holders (list); drop a name (drop).

    Without a command it lists: `gridfed objects [OBJECT]`, with the options of `list --help`.
    """


@objects.command()
@click.argument("name")
@click.option("--project", help="The project of the object, by default your usual one.")
@click.option("--user", help="Of this user: for operators.")
@reach_options
@json_option
@errors_to_exit_codes
def drop(
    name: str, project: str | None, user: str | None, reach: DialOptions, as_json: bool
) -> None:
    """Take the NAME of an object back before it expires.

    The object is freed once no client, job or other name holds it. Users drop their own names, an
    operator those of others; the gateway's log has it.
    """
    wanted = {"name": name, "project": project, "user": user}
    found = ask(
        reach, "drop_object", **{key: value for key, value in wanted.items() if value is not None}
    )
    if as_json:
        show.as_json(found)
    else:
        show.say(found["text"])


@objects.command("list")
@click.argument("wanted", required=False, metavar="[OBJECT]")
@click.option("--project", help="Of this project.")
@click.option(
    "--by", type=click.Choice(["project", "user"]), help="Show their sums, by project or user."
)
@click.option("--lost", is_flag=True, help="Show the latest that were lost, and when.")
@reach_options
@json_option
@all_users_option
@errors_to_exit_codes
def listed(
    wanted: str | None,
    project: str | None,
    by: str | None,
    lost: bool,
    reach: DialOptions,
    as_json: bool,
    all_users: bool,
) -> None:
    """List the objects at a site, the largest first, and what holds each.

    OBJECT is a name, or the beginning of a digest ("b3:daa82a"): then only objects that match it
    are shown. An object lives as long as a session, a job or a name holds it. It is lost with the
    object host, as by kill -9 or a lack of memory; the latest 1,000 are remembered.
    """
    if by is not None and (lost or wanted is not None):
        raise click.UsageError("--by shows sums of all objects: give neither OBJECT nor --lost")
    details = of_users(all_users=all_users) | ({} if project is None else {"project": project})
    details |= ({} if by is None else {"by": by}) | ({"lost": True} if lost else {})
    found = ask(reach, "objects", **details)
    if by is not None:
        _show_sums(found, by, as_json=as_json)
        return
    if wanted is not None:
        found = [each for each in found if _is_meant(each, wanted)]
    if as_json:
        show.as_json(found)
    else:
        now_s = time.time()
        none = "no objects: `client.put(value)` makes one, see docs/data.md"
        if lost:
            none = "no object was lost since this gateway was started"
        if wanted is not None:
            none = f"no object here has the name or digest {wanted}"
        show.table(
            (*_COLUMNS, "lost") if lost else _COLUMNS,
            [_row(each, now_s) for each in found],
            none,
        )
    if wanted is not None and not found:
        sys.exit(1)


def _show_sums(rows: Sequence[Mapping[str, Any]], by: str, *, as_json: bool) -> None:
    if as_json:
        show.as_json(rows)
        return
    cells = [
        (row[by], row["objects"], size_text(row["bytes"]), row["named"], *_cost(row))
        for row in rows
    ]
    show.table((by, "objects", "size", "named", "GB-hours", "cost"), cells, "no objects")


def _is_meant(row: Mapping[str, Any], wanted: str) -> bool:
    return row["digest"].startswith(wanted) or wanted in [each["name"] for each in row["names"]]


def _row(row: Mapping[str, Any], now_s: float) -> Sequence[Any]:
    return [
        row["digest"][:_DIGEST_CHARS],
        size_text(row["bytes"]),
        row["user"],
        row["project"],
        show.ago(row["put_at_s"], now_s),
        row["sessions"],
        len(row["jobs"]),
        *_cost(row),
        " ".join(row.get("residency", [])),
        ", ".join(_name(each, now_s) for each in row["names"]),
        *([show.ago(row["lost_at_s"], now_s)] if "lost_at_s" in row else []),
    ]


def _cost(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the GB-hours of all users until now, and their cost; a lost object has none."""
    if "cost_nanos" not in row:
        return "", ""
    hours = Decimal(row["held_byte_s"]) / _GB_HOUR
    money = rounded_amount(format_amount(row["cost_nanos"]), row["currency"])
    return f"{hours:.3g}", f"{money} {row['currency']}"


def _name(row: Mapping[str, Any], now_s: float) -> str:
    left = duration_text(max(0.0, row["ends_at_s"] - now_s))
    return f"{row['name']} of {row['user']} ({left} left)"
