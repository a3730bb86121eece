"""Budgets: their state, and the order to write off a lost site's part."""

from typing import Any

import click

from federation.money import format_amount
from federation.words import duration_text
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    confirm,
    consequences,
    errors_to_exit_codes,
    exact_option,
    json_option,
    of_users,
    reach_options,
    yes_option,
)


@click.group(invoke_without_command=True)
@reach_options
@json_option
@exact_option
@all_users_option
@click.pass_context
@errors_to_exit_codes
def budgets(context: click.Context, reach: DialOptions, as_json: bool, all_users: bool) -> None:
    """Show every budget, quota and credit: spent, held, with other sites, left, and next renewal.

    For a budget that another site owns, this site's own part is shown.
    """
    if context.invoked_subcommand is not None:
        if reach != DialOptions(None, None, None, None) or as_json or all_users:
            raise click.UsageError(f"write the options after {context.invoked_subcommand}")
        return
    found = ask(reach, "budgets", **of_users(all_users=all_users))
    if as_json:
        show.as_json(found)
        return
    show.table(
        (
            *("budget", "party", "period", "amount", "spent", "held", "leased out"),
            *("spent elsewhere", "left", show.timed("renews"), "rule"),
        ),
        [_row(each) for each in found],
        "no budgets are configured: see [[budget]] in docs/configuration.md",
        keys=1,
    )
    for each in found:
        name = show.clean(each["name"])
        for held in each["sites"]:
            heard = show.moment(held["heard_at_s"])
            unspent = _amount(held["unspent_nanos"], each["unit"])
            spent = _amount(held["spent_nanos"], each["unit"])
            site = show.clean(held["site"])
            show.say(f"{name}: {site} holds {unspent}, has spent {spent}, last report {heard}")
        if each["refused"]:
            show.say(f"{name}: {show.clean(each['owner'])} says: {show.clean(each['refused'])}")


@budgets.command("write-off")
@click.argument("name")
@click.argument("site")
@yes_option
@reach_options
@json_option
@errors_to_exit_codes
def write_off(name: str, site: str, is_sure: bool, reach: DialOptions, as_json: bool) -> None:
    """Free the part of the budget NAME that SITE holds: SITE is lost and will never spend it.

    Its reported spending stays spent. If SITE comes back after all, its further spending counts,
    too, and may overrun the budget by that. By the gateway's own socket only.
    """
    confirm(
        f"Write off what {site} holds of the budget {name}?",
        lambda: consequences(reach, "write_off", name=name, site=site),
        is_sure=is_sure,
    )
    found = ask(reach, "write_off", name=name, site=site)
    if as_json:
        show.as_json(found)
    else:
        show.say(f"{show.clean(found['freed'])} of {name} is released")


def _row(each: dict[str, Any]) -> list[Any]:
    rule = "credit" if each["kind"] == "credit" else "hard" if each["hard"] else "soft"
    if each["kind"] == "slice":
        lasts = duration_text(each["lasts_s"]) if each["lasts_s"] else "lapsed"
        rule = f"slice from {each['owner']}, {lasts}"
    elif each["exhausted"]:
        rule += ", exhausted"
    elif int(each["left_nanos"]) <= 0:
        rule += ", nothing left at present" if each["hard"] else ", used up"
    return [
        *(each[key] for key in ("name", "whose")),
        f"{each['period']} {each['period_key']}".strip(),
        *(
            show.money(str(each[key]))
            for key in ("amount", "spent", "held", "leased", "spent_elsewhere", "left")
        ),
        show.when(each["renews_s"]),
        rule,
    ]


def _amount(nanos: int | str, unit: str) -> str:
    return show.money(f"{format_amount(int(nanos))} {unit}")
