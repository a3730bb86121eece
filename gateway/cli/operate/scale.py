"""Pools whose workers grids start: `gridfed scale` and `gridfed pool test`."""

import secrets
import time
from typing import Any, Final, NoReturn

import click

from federation.errors import GridError
from federation.words import count, duration_text
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
)
from gateway.cli.shared.moments import LengthType

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
    for key, words in (("start", "start"), ("cancel", "cancel"), ("drain", "drain")):
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
    default=f"{DIAL_S / 60:g}m",
    show_default=True,
    type=LengthType(),
    help="The time to wait for its worker, as in 90s or 5m.",
)
@reach_options
@json_option
@errors_to_exit_codes
def test(name: str, wait_s: float, reach: DialOptions, as_json: bool) -> None:
    """Run a probe task through a pool's real grid, and report any failure.

    It makes all requests of a gateway to the grid, has one pilot started, waits until its worker
    connects, and runs a task there, whatever entitlements say. The pilot ends as any other that is
    idle. A grid that has workers of its own is asked whether it admits us, and for how many slots.
    """
    steps = _Steps(name, as_json=as_json)
    _probe(reach, name, wait_s, steps)
    steps.end()


class _Steps:
    """The steps of a probe: printed one by one, or as JSON at the end or the first failure."""

    def __init__(self, pool: str, *, as_json: bool) -> None:
        self._pool, self._as_json = pool, as_json
        self._rows: list[dict[str, Any]] = []

    def done(self, step: str, text: str) -> None:
        """Note a step that succeeded."""
        self._rows.append({"step": step, "ok": True, "text": text})
        if not self._as_json:
            show.say(f"ok      {step}: {text}")

    def fail(self, step: str, text: str) -> NoReturn:
        """Note the step that failed, and end the command with code 1."""
        self._rows.append({"step": step, "ok": False, "text": text})
        if not self._as_json:
            raise click.ClickException(show.clean(f"{step}: {text}"))
        self.end()
        raise SystemExit(1)

    def end(self) -> None:
        """Print the steps, with --json."""
        if self._as_json:
            is_ok = all(each["ok"] for each in self._rows)
            show.as_json(self._rows, {"pool": self._pool, "ok": is_ok})


def _probe(reach: DialOptions, name: str, wait_s: float, steps: _Steps) -> None:
    """Make every step of a probe of a pool, up to the first that fails."""
    tag = f"probe-{secrets.token_hex(6)}"
    found = ask(reach, "probe_pool", pool=name, tag=tag, wait_s=wait_s)
    for what, text in found["steps"]:
        steps.done(what, text)
    if found["failed"] is not None:
        steps.fail(*found["failed"])
    if not found["pilot"]:
        _show_slots(reach, name, steps)
        return
    steps.done("start", f"pilot {found['pilot']}")
    worker = _wait_for(reach, found["pilot"], wait_s)
    if worker is None:
        steps.fail(
            "dial",
            f"its worker did not connect within {duration_text(wait_s)}: it may still wait in "
            "the grid's queue, its host may not reach this gateway (dial in [pool.scale]), or "
            "gridfed is not installed there (`gridfed scale --why`)",
        )
    known = f" = {show.clean(worker['grid_id'])}" if worker["grid_id"] else ""
    steps.done("dial", f"{count(worker['slots'], 'slot')}{known}, Python {worker['python']}")
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
                steps.fail("task", f"timed out after {duration_text(wait_s)}{more}")
    except GridError as error:
        steps.fail("task", str(error))
    steps.done("task", f"it ran on {where} in {duration_text(time.monotonic() - began_s)}")


def _show_slots(reach: DialOptions, name: str, steps: _Steps) -> None:
    """Print the slots that a grid with workers of its own has for us now."""
    slots = sum(each["slots"] for each in ask(reach, "workers") if each["pool"] == name)
    if not slots:
        steps.fail("slots", "the grid has no slot now: the gateway's log has its answer")
    steps.done("slots", f"{slots} available")


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
