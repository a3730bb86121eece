"""Pools whose workers grids start: `gridfed scale` and `gridfed pool test`."""

import secrets
import time
from typing import Any, Final

import click

from federation.errors import GridError
from federation.words import count
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
)

DIAL_S: Final = 300.0  # how long a probe's pilot may take until its worker connects
LOOK_S: Final = 0.5


@click.command()
@click.option("--why", is_flag=True, help="Show the reasons, one per line.")
@reach_options
@json_option
@errors_to_exit_codes
def scale(why: bool, reach: DialOptions, as_json: bool) -> None:
    """Show pools that grow and shrink: their current and their wanted slots.

    The command itself starts and stops nothing; with `dry_run = true` in [pool.scale] the gateway
    does not either.
    """
    found = ask(reach, "scale")["pools"]
    if as_json:
        show.as_json(found)
        return
    show.table(
        (
            *("pool", "kind", "wanted", "ready", "busy", "starting", "queued", "draining"),
            *("max", "start s", "tasks", "slot-s"),
        ),
        [_row(each) for each in found],
        "no pool here has workers that a grid starts",
        keys=1,
    )
    for each in found:
        for line in _lines(each, why=why):
            show.say(f"{each['pool']}: {line}")


def _row(row: dict[str, Any]) -> list[Any]:
    slots = row["slots"]
    return [
        *(row[key] for key in ("pool", "kind", "wanted")),
        *(slots["ready"], row["busy"], slots["starting"], slots["queued"], slots["draining"]),
        *(row["max"], f"{row['start_s']:,.1f}", f"{row['tasks']:,}", f"{row['slot_s']:,.0f}"),
    ]


def _lines(row: dict[str, Any], *, why: bool) -> list[str]:
    found = []
    if row["trouble"]:
        found.append(f"the grid can't be reached: {row['trouble']}")
    if row["dry_run"]:
        found.append("dry run: nothing is started or stopped")
    if row["barred"]:
        found.append(
            f"starts are suspended: {row['barred']}; fix it, then run `gridfed reload` or "
            f"`gridfed pool test {row['pool']}`"
        )
    if why:
        found += row["why"]
        if row["dry_run"]:
            found += _would(row)
        elif row["failed"] and row["failed"] != row["barred"]:
            found.append(f"last failed start: {row['failed']}")
    return found


def _would(row: dict[str, Any]) -> list[str]:
    """Return the actions that a dry run leaves undone, and the work that it counts."""
    found = []
    for key, words in (("start", "start"), ("cancel", "cancel"), ("drain", "let go")):
        if row[key]:
            slots = count(row[key] * row["pilot_slots"], "slot")
            of_start = f", {slots}" if key == "start" else ""
            found.append(f"would {words} {count(row[key], 'pilot')}{of_start}")
    if row["tasks"]:
        found.append(
            "no work is placed here yet, so all fitting work is counted; a plan may place "
            "part of it elsewhere"
        )
    return found


@click.group()
def pool() -> None:
    """Look after one pool."""


@pool.command("test")
@click.argument("name")
@click.option(
    "--wait",
    "wait_s",
    default=DIAL_S,
    show_default=True,
    help="The time to wait for its worker, in s.",
)
@reach_options
@errors_to_exit_codes
def test(name: str, wait_s: float, reach: DialOptions) -> None:
    """Run a probe task through a pool's real grid, and report any failure.

    It makes all requests of a gateway to the grid, has one pilot started, waits until its worker
    connects, and runs a task there, whatever entitlements say. The pilot ends as any other that is
    idle. A grid that has workers of its own is asked whether it admits us, and for how many slots.
    """
    tag = f"probe-{secrets.token_hex(6)}"
    found = ask(reach, "probe_pool", pool=name, tag=tag, wait_s=wait_s)
    for what, text in found["steps"]:
        show.say(f"ok      {what}: {text}")
    if found["failed"] is not None:
        what, text = found["failed"]
        raise click.ClickException(show.clean(f"{what}: {text}"))
    if not found["pilot"]:
        _show_slots(reach, name)
        return
    show.say(f"ok      start: pilot {found['pilot']}")
    worker = _wait_for(reach, found["pilot"], wait_s)
    if worker is None:
        raise click.ClickException(
            f"its worker did not connect within {wait_s:g} s: it may still wait in the grid's "
            "queue, its host may not reach this gateway (dial in [pool.scale]), or gridfed is "
            "not installed there (`gridfed scale --why`)"
        )
    known = f" = {show.clean(worker['grid_id'])}" if worker["grid_id"] else ""
    show.say(f"ok      dial: {worker['slots']} slots{known}, Python {worker['python']}")
    began_s = time.monotonic()
    try:
        with reach.client() as client:
            view = client.options(tags={tag: True}, name="gridfed pool test")
            future = view.submit(_where)
            try:
                where = future.result(wait_s)
            except TimeoutError:
                why = future.why_waiting()
                more = f": {why}" if why else ""
                raise click.ClickException(f"task: timed out after {wait_s:g} s{more}") from None
    except GridError as error:
        raise click.ClickException(f"task: {error}") from None
    show.say(f"ok      task: it ran on {where} in {time.monotonic() - began_s:.2f} s")


def _show_slots(reach: DialOptions, name: str) -> None:
    """Print the slots that a grid with workers of its own has for us now."""
    slots = sum(each["slots"] for each in ask(reach, "workers") if each["pool"] == name)
    if not slots:
        raise click.ClickException(
            "slots: the grid has none for us now; see the gateway's log for its answer"
        )
    show.say(f"ok      slots: {slots} available")


def _where() -> str:
    import platform

    return platform.node()


def _wait_for(reach: DialOptions, name: str, wait_s: float) -> dict[str, Any] | None:
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        for each in ask(reach, "workers"):
            if each["name"] == name:
                return dict(each)
        time.sleep(LOOK_S)
    return None
