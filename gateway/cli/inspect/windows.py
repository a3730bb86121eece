"""The windows of pools over time, and the claims in them: gridfed windows."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from federation.address import GATEWAY_VARIABLE
from federation.clocks import CALENDAR_END_S, UtcS
from federation.words import count, duration_text
from gateway.base.clocks import utc_now
from gateway.base.values import ConfigError, SettingError, suggest
from gateway.cli.inspect.asked_rules import asked_rules
from gateway.cli.operate.serve import configured
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    address_options,
    ask,
    config_file_option,
    errors_to_exit_codes,
    json_option,
    site_zone,
)
from gateway.cli.shared.moments import LENGTH_MAX_S, length_s, moment
from gateway.config.pools import USUAL_POOL
from gateway.config.site import PoolConfig, SiteConfig, parse, read_file
from gateway.config.windows import check_plan
from gateway.grids.kinds import Installed
from gateway.ledger.db.database import check_there, snapshot
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.rules.store import SqlRules
from gateway.rules.books import history_of
from gateway.rules.document import rules_of, with_rules
from policies.access.claims import Claims
from policies.access.windows import PoolRules, Window, WindowPlan, WindowSpan, rules_at
from policies.calendar.crons import Cron
from policies.calendar.hours import show_days
from policies.calendar.validity import During, valid_span
from policies.parties import Owner, known_party
from policies.reservations.reservations import (
    Reservation,
    ReservationRules,
    ReservationState,
    overlay,
)
from policies.tariffs import MILLION

ROWS_MAX: Final = 5_000
# No date within the shown time is past the last.
LATEST_S: Final = float(CALENDAR_END_S) - 2 * LENGTH_MAX_S


@click.command()
@click.argument("pool", required=False)
@config_file_option
@click.option(
    "--at", "when", metavar="WHEN", help="A moment: 2026-11-22T18:00, in the site's zone."
)
@click.option("--next", "ahead", metavar="TIME", help="All changes from then on, for 12h, 14d, 4w.")
@click.option(
    "--file-only", is_flag=True, help="Those of the file, instead of those of the database."
)
@address_options
@json_option
@errors_to_exit_codes
def windows(
    pool: str | None,
    path: str | None,
    when: str | None,
    ahead: str | None,
    file_only: bool,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Print the window in force over time for each pool, or one: past, present or planned.

    With a configuration they are read from the gateway's database, whether it runs or not; before
    its first start, from the file. Else a gateway is asked, which takes the scope `audit`: that of
    --gateway or $GRIDFED_GATEWAY, or the one that other commands find. With a gateway its
    reservations are included. `gridfed rules history` says who changed what, and why. Of windows
    that are open at once, the one of the highest priority is in force; the others are named.
    """
    is_asked = _is_asked(path, reach, file_only=file_only)
    config = SiteConfig() if is_asked else configured(path, (), None)
    is_asked = is_asked or _is_without_file(config, file_only=file_only)
    version = 0
    zone = site_zone(reach) if is_asked else ZoneInfo(config.zone)
    at_s = utc_now() if when is None else moment(when, end_of_day=False, option="--at", zone=zone)
    if not 0 <= float(at_s) <= LATEST_S:
        raise click.BadParameter("windows are shown from 1970 to 9997 only", param_hint="--at")
    until_s = None if ahead is None else at_s + length_s(ahead, option="--next")
    if is_asked:
        config, version = asked_rules(reach, at_s, None if when is None else at_s)
    elif not file_only:
        config, version = _by_the_rules(config, at_s)
    if version and not as_json:
        show.say(f"by version {version} of the rules")
    plans = {each.name: each.plan for each in config.pools or (PoolConfig(USUAL_POOL),)}
    if pool is not None and pool not in plans:
        known = ", ".join(sorted(plans))
        raise click.ClickException(
            f"no pool {pool!r} here{suggest(pool, plans)}; known pools: {known}"
        )
    chosen = plans if pool is None else {pool: plans[pool]}
    for name, plan in chosen.items():
        try:
            check_plan(name, plan, at_s)
        except SettingError as error:
            raise click.UsageError(f"{path}: {error}") from None
    made = _reserved(reach, config.name) if is_asked or reach.address else []
    found = {
        name: _holding(plan, [each for each in made if each.pool == name], at_s, until_s)
        for name, plan in chosen.items()
    }
    if as_json:
        show.as_json(
            [
                {"pool": name, "holds": [_row(plan, each) for each in found[name]]}
                for name, plan in chosen.items()
            ],
            {"version": version},
        )
        return
    for name, plan in chosen.items():
        show.say(f"{name}{_how_many(plan)}")
        for line in _lines(plan):
            show.say(f"  {show.clean(line)}")
        rows = [_row(plan, each) for each in found[name]]
        # Windows of another zone begin at a time of its clock, not of ours.
        clock = ("by its clock",) if any(row["zone"] != str(show.zone()) for row in rows) else ()
        show.table(
            (show.timed("from"), "until", *clock, "window", "overrides"),
            [
                [
                    show.when(row["from_s"]),
                    show.when(row["until_s"]),
                    *([row["local"]] if clock else []),
                    row["window"] or "none",
                    ", ".join(row["instead_of"]),
                ]
                for row in rows
            ],
            "no entries",
        )


def _is_asked(path: str | None, reach: DialOptions, *, file_only: bool) -> bool:
    """Whether a gateway is asked, in place of a file: one is named, and no file by an option."""
    context = click.get_current_context()
    by_option = any(context.params.get(name) for name in ("config_path", "config_folder"))
    if reach.address:
        return not by_option and not file_only
    return path is None and not file_only and bool(os.environ.get(GATEWAY_VARIABLE))


def _is_without_file(config: SiteConfig, *, file_only: bool) -> bool:
    """Whether there is no file, given or default. Raises UsageError if one is wanted."""
    if not config.source and file_only:
        raise click.UsageError(
            "there is no configuration: choose it with --config FILE, or its folder with "
            "--config-dir DIR or $GRIDFED_CONFIG_DIR"
        )
    return not config.source


def _by_the_rules(config: SiteConfig, at_s: UtcS) -> tuple[SiteConfig, int]:
    """Return the configuration by the rules in force at a time, and their version; 0: the file."""
    try:
        check_there(config.database_url)
    except StoreError:
        return config, 0  # no gateway has run yet
    with snapshot(config.database_url) as connection:
        history = history_of(SqlRules(lambda: nullcontext(connection)).changes())
    version = history.version_at(at_s)
    if not version:
        return config, 0
    file = read_file(config.source)
    try:
        read = parse(with_rules(file, rules_of(file), history, at_s), Installed())
    except (ConfigError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    return replace(read, state=config.state), version


def _reserved(reach: DialOptions, site: str) -> list[Reservation]:
    """Return the reservations of the pools of a gateway."""
    names = ("id", "pool", "slots", "from_s", "until_s", "price_nanos", "currency")
    return [
        Reservation(
            **{name: each[name] for name in names},
            who=known_party(each["who"]),
            by=Owner(each["user"]),
            made_at_s=UtcS(each["made_s"]),
            state=ReservationState.BOOKED,
        )
        for each in ask(reach, "reservations")
        if each["site"] == site and each["cancelled_s"] is None
    ]


def _holding(
    plan: WindowPlan, made: list[Reservation], at_s: UtcS, until_s: UtcS | None
) -> list[WindowSpan]:
    if until_s is None:
        [span, *_] = overlay(rules_at(plan, at_s, 1.0), made, ReservationRules(), at_s).spans
        return [replace(span, until_s=at_s)]
    found: list[WindowSpan] = []
    for span in plan.spans(at_s, until_s):
        if len(found) == ROWS_MAX:
            raise click.UsageError(f"more than {ROWS_MAX:,} changes: ask for a shorter period")
        found.append(span)
    return list(overlay(PoolRules(tuple(found), at_s), made, ReservationRules(), at_s).spans)


def _row(plan: WindowPlan, span: WindowSpan) -> dict[str, Any]:
    window = span.window
    others = [each.name for each in plan.open_at(span.from_s) if each != window]
    near = [window] if window is not None else plan.windows  # if none is in force, the first's zone
    zone = near[0].when.zone if near else UTC
    others = [name for name in others if window is None or not window.name.startswith(f"{name}, ")]
    return {
        "from_s": span.from_s,
        "until_s": span.until_s if span.until_s > span.from_s else None,
        "local": datetime.fromtimestamp(float(span.from_s), zone).strftime("%a %H:%M %Z"),
        "zone": str(zone),
        "window": window.name if window is not None else None,
        "instead_of": others,
        "claims": list(_claims(span.claims)),
        "price_factor": window.price_factor / MILLION if window is not None else 1.0,
        "preempts": window.preempts if window is not None else False,
        "place": window.place.rstrip(": ") if window is not None else "",
    }


def _lines(plan: WindowPlan) -> Iterator[str]:
    """Yield a plan in words, a window a line and its claims below."""
    for window in plan.windows:
        yield f"{window.name} (priority {window.priority}): {_when(window)}"
        factor = f"price times {window.price_factor / MILLION:g}; "
        yield f"  {factor if window.price_factor != MILLION else ''}{_at_its_start(window)}"
        yield from (f"  {each}" for each in _claims(window.claims))
    if not plan.base.is_trivial:
        yield "when no window is open:" if plan.windows else "always:"
        yield from (f"  {each}" for each in _claims(plan.base))


def _how_many(plan: WindowPlan) -> str:
    """Return ": 1 window", or ": 1 window in 3 versions" for one of which three tables are."""
    names, tables = len({each.name for each in plan.windows}), len(plan.windows)
    versions = f" in {count(tables, 'version')}" if tables > names else ""
    return f": {count(names, 'window')}{versions}" if names else ""


def _when(window: Window) -> str:
    when = window.when.when if isinstance(window.when, During) else window.when
    valid = "".join(
        f", {word} {datetime.fromtimestamp(float(at_s), when.zone):%Y-%m-%d %H:%M}"
        for word, at_s in zip(("from", "until"), valid_span(window.when), strict=True)
        if isfinite(at_s)
    )
    if isinstance(when, Cron):
        return f"cron {when.fields}, for {duration_text(when.lasts_s)}, {when.zone.key}{valid}"
    hours = f"{show.clock(when.from_s)} to {show.clock(when.to_s)} {when.zone.key}"
    return f"{show_days(when.days)}, {hours}{valid}"


def _at_its_start(window: Window) -> str:
    if not window.preempts:
        return "no tasks are stopped at its start"
    told = f"warned {duration_text(window.drain_lead_s)} before, " if window.drain_lead_s else ""
    if window.is_dry:
        return "no tasks are stopped at its start; the tasks that would be stopped are logged"
    after = window.spill_s + window.grace_s
    stopped = f"{duration_text(after)} after its start" if after else "at its start"
    return f"tasks over their claim are {told}stopped {stopped}"


def _claims(claims: Claims) -> Iterator[str]:
    for seats in claims.reserved:
        yield f"{seats.who}: {seats.slots} reserved"
    if claims.is_trivial:
        yield "everyone may use all slots"
    for each in claims.named:
        lends = f", lends {each.lends} of it" if each.guaranteed.slots != 0 else ""
        stays = ", stays at this site" if each.stays else ""
        yield f"{each.who}: guaranteed {each.guaranteed}{lends}, borrows {each.borrows}{stays}"
