"""Alerts: the rules and their current state, and a test of their actions."""

from typing import Any

import click

from federation.money import format_money
from federation.words import count
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    exact_option,
    json_option,
    reach_options,
)


@click.group(invoke_without_command=True)
@reach_options
@json_option
@exact_option
@click.pass_context
@errors_to_exit_codes
def alerts(context: click.Context, reach: DialOptions, as_json: bool) -> None:
    """Show every alert rule and its state: spent, held, estimated, last notice."""
    if context.invoked_subcommand is not None:
        if reach != DialOptions(None, None, None, None) or as_json:
            raise click.UsageError(f"write the options after {context.invoked_subcommand}")
        return
    found = ask(reach, "alerts")
    if as_json:
        show.as_json(found)
        return
    show.table(
        (
            *("alert", "severity", "subject", "limit", "now", "settled", "held", "share"),
            *("at period end (estimate)", "raised", show.timed("last fired")),
        ),
        [_row(each) for each in found],
        "no alerts are configured: see [[alert]] in docs/configuration.md",
        keys=1,
    )
    for each in found:
        for text in each["overlooked"]:
            show.say(f"{show.clean(each['name'])}: {show.clean(text)}")


@alerts.command()
@click.argument("name")
@reach_options
@json_option
@errors_to_exit_codes
def test(name: str, reach: DialOptions, as_json: bool) -> None:
    """Run the actions of the alert NAME once, as a test. By the gateway's own socket only."""
    found = ask(reach, "test_alert", name=name)
    if as_json:
        show.as_json(found)
    else:
        for each in found["actions"]:
            show.say(f"{show.clean(each['action'])}: {show.clean(each['error']) or 'done'}")
    if any(each["error"] for each in found["actions"]):
        raise SystemExit(1)


def _row(each: dict[str, Any]) -> list[Any]:
    now, settled, held, share, estimate = "", "", "", "", ""
    raised = ", ".join(map(str, each["raised"]))
    match each["kind"]:
        case "budget":

            def money(key: str) -> str:
                return show.money(format_money(each[key], each["currency"]))

            now, settled, held = money("spent_nanos"), money("settled_nanos"), money("held_nanos")
            share = f"{each['share_percent']:.1f} %"
            estimate = money("estimate_nanos") if each["estimate_nanos"] is not None else ""
            raised = ", ".join(f"{level} %" for level in each["raised"])
        case "price" if each["price_nanos"] is not None:
            price = format_money(each["price_nanos"], each["currency"])
            now = f"{price} at {each['dearest']}"
        case "price":
            now = "no pool has a price in that currency"
        case _:
            now = count(each["records"], "record")
    return [
        *(each["name"], each["severity"], each["what"], each["limit"]),
        *(now, settled, held, share, estimate, raised, show.when(each["last_fired_at_s"])),
    ]
