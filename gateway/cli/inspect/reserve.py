"""Slots reserved for a party in a span of time: gridfed reserve, gridfed reservations."""

from datetime import UTC, tzinfo
from typing import Any

import click

from federation.money import format_money
from federation.wishes import USUAL_PROJECT
from federation.words import count, read_length
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    errors_to_exit_codes,
    exact_option,
    json_option,
    of_users,
    reach_options,
    site_zone,
)
from gateway.cli.shared.moments import moment


@click.command()
@click.option("--slots", type=int, help="The number of slots, at each site.")
@click.option(
    "--from",
    "start",
    metavar="WHEN",
    help=(
        "The start, as in 2026-11-22T18:00 in the site's zone, or with an offset, "
        "2026-11-22T18:00+01:00. [default: now]"
    ),
)
@click.option("--for", "lasts", metavar="TIME", help="The duration: 90s, 30m, 2h, 1d.")
@click.option(
    "--site", "sites", multiple=True, help="The site; repeatable: all sites are booked, or none."
)
@click.option("--pool", default="", help="The pool. [default: the cheapest with free slots]")
@click.option(
    "--who",
    default="",
    help="The user: or group: or project:NAME that may use it. [default: yourself]",
)
@click.option("--user", default="", help="As --who user:NAME; for the operator.")
@click.option(
    "--project", default=USUAL_PROJECT, show_default=True, help="The project that is billed."
)
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Show only whether it is available, and its price."
)
@click.option("--cancel", "cancelled", metavar="ID", help="Cancel this reservation.")
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def reserve(  # noqa: PLR0913 - its options
    slots: int | None,
    start: str | None,
    lasts: str | None,
    sites: tuple[str, ...],
    pool: str,
    who: str,
    user: str,
    project: str,
    is_dry: bool,
    cancelled: str | None,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Reserve slots for a span of time, at a price that is fixed now.

    The operator reserves for any party of the site, by --who or --user: for a user who is entitled
    to the pool, and for any group or project. Unused time is billed at its end, by the rule of the
    site. Over several sites all of it is booked, or nothing.
    """
    zone: tzinfo = UTC if start is None else site_zone(reach)
    if cancelled is not None:
        if slots is not None or lasts is not None or sites or is_dry:
            raise click.UsageError("--cancel takes no other option")
        found = ask(reach, "unreserve", reservation=cancelled)
    else:
        if who and user:
            raise click.UsageError("give --who or --user, not both")
        if slots is None or lasts is None:
            raise click.UsageError("--slots and --for are missing, as in --slots 500 --for 2h")
        try:
            lasts_s = read_length(lasts)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--for") from None
        details: dict[str, Any] = {"slots": slots, "lasts_s": lasts_s}
        if start is not None:
            details["from_s"] = moment(start, end_of_day=False, option="--from", zone=zone)
        given = {"sites": list(sites), "pool": pool, "who": who or (user and f"user:{user}")}
        given |= {"project": project}
        details |= {key: value for key, value in given.items() if value}
        found = ask(reach, "reserve", **details, **({"dry_run": True} if is_dry else {}))
    if as_json:
        show.as_json(found)
        return
    for each in found:
        show.say(_sentence(each, is_dry=is_dry))


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include reservations that have ended.")
@reach_options
@json_option
@exact_option
@all_users_option
@errors_to_exit_codes
def reservations(everything: bool, reach: DialOptions, as_json: bool, all_users: bool) -> None:
    """List reservations: of the site's pools, and its users' at other sites."""
    details = of_users(all_users=all_users) | ({"all": True} if everything else {})
    found = ask(reach, "reservations", **details)
    if as_json:
        show.as_json(found)
        return
    columns = (
        *("id", "site", "pool", "state", "slots", show.timed("from"), "until", "for"),
        *("slot-hour", "in all", "used, s", "unused, s", "billed"),
    )
    show.table(columns, [_row(each) for each in found], "no reservations", keys=1)


def _row(each: dict[str, Any]) -> list[Any]:
    billed = each["billed_nanos"]
    return [
        *(each[key] for key in ("id", "site", "pool", "state", "slots")),
        show.when(each["from_s"]),
        show.when(each["until_s"]),
        each["who"],
        _money(each, "price_nanos"),
        _money(each, "total_nanos"),
        show.seconds(each["used_ns"]),
        show.seconds(each["unused_ns"]),
        _money(each, "billed_nanos") if billed is not None else "",
    ]


def _money(each: dict[str, Any], key: str) -> str:
    found = format_money(each[key], each["currency"])
    return found if key == "price_nanos" else show.money(found)  # a price is exact


def _sentence(each: dict[str, Any], *, is_dry: bool) -> str:
    what = f"{count(each['slots'], 'slot')} of {each['site']}/{each['pool']} for {each['who']}"
    if each["cancelled_s"] is not None:
        left = max(each["cancelled_s"], each["from_s"])
        since = show.moment(left)
        fee = f"{each['cancel_factor']:.0%} of the price of the time left from {since}"
        billed = each["billed_nanos"]
        told = f"is billed: {_money(each, 'billed_nanos')}" if billed is not None else "is billed"
        return f"reservation {each['id']} is cancelled: {what}; {fee} {told}"
    times = f"from {show.moment(each['from_s'])} to {show.moment(each['until_s'])}"
    price = f"{_money(each, 'total_nanos')}, {_money(each, 'price_nanos')} per slot-hour"
    rule = f"unused time is billed at {each['unused_factor']:.0%}"
    name = "available" if is_dry else f"reservation {each['id']} is {each['state']}"
    return f"{name}: {what}, {times}; {price}; {rule}"
