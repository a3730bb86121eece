"""Views of the federation: sites, pools, deals, explain."""

import time
from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any, Final

import click
from click.core import ParameterSource

from federation.clocks import UtcS
from federation.engine.explained import explained
from federation.money import format_money, parse_money
from federation.wishes import WHEN_CLOSED, wishes_plain
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    exact_option,
    json_option,
    parse_tags,
    reach_options,
    site_zone,
)
from gateway.cli.shared.moments import LengthType, ahead, is_moment

TASKS_MAX: Final = 1 << 40  # of one job


@click.command()
@reach_options
@json_option
@errors_to_exit_codes
def sites(reach: DialOptions, as_json: bool) -> None:
    """Show every site of the federation, as this gateway sees it."""
    found = ask(reach, "sites")
    if as_json:
        show.as_json(found)
        return
    show.table(
        ("site", "state", "pools", "free", "slots", "queue", "regions", "age s"),
        [
            [
                *(row["site"], _state(row)),
                *(row[key] for key in ("pools", "slots_free", "slots_total")),
                f"{row['tasks_queued']:,}",
                ", ".join(row["regions"]),
                row["age_s"],
            ]
            for row in found
        ],
        "no sites",
    )


def _state(row: Mapping[str, Any]) -> str:
    """Return the state of a site or a pool: one that is here may drain as well."""
    if row.get("has_expelled_us"):
        return f"{row['state']}, has expelled us"
    drains = row.get("draining", False) and row["state"] == "here"
    return "here, draining" if drains else str(row["state"])


@click.command()
@reach_options
@json_option
@errors_to_exit_codes
def pools(reach: DialOptions, as_json: bool) -> None:
    """Show every pool of the federation: capacity, price now and next, tags, carbon."""
    found = ask(reach, "pools")
    if as_json:
        show.as_json(found)
        return
    show.table(
        (
            *(
                "site",
                "pool",
                "state",
                "free",
                "slots",
                "cold",
                "queue",
                "price",
                "next price",
                show.timed("price from"),
            ),
            *("tags", "region", "g/kWh", "lowest forecast", "forecast from", "age s"),
        ),
        [
            [
                *(row["site"], row["pool"], _state(row), row["slots_free"], row["slots_total"]),
                row.get("slots_cold") or "",
                f"{row['tasks_queued']:,}",
                row["price"],
                row["next_price"],
                show.when(row["next_price_at_s"]),
                ", ".join(row["tags"]),
                row["region"],
                "" if row["carbon_g_per_kwh"] is None else f"{row['carbon_g_per_kwh']:g}",
                *_least_ahead(row.get("carbon_ahead")),
                row["age_s"],
            ]
            for row in found
        ],
        "no pools",
        keys=2,
    )


@click.command()
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def deals(reach: DialOptions, as_json: bool) -> None:
    """Show purchases from other sites, and sales to them.

    Reversals after a dispute are included in the settled amounts, and also shown apart. For debts
    and payments see `gridfed report statement`.
    """
    found = ask(reach, "deals")
    for row in found:  # an older gateway reports its database
        row["state"] = "settled" if row["state"] == "post" else row["state"]
    if as_json:
        show.as_json(found)
        return
    words = {"buy": "bought from", "sell": "sold to"}
    show.table(
        ("", "site", "state", "tasks", "slot-s", "cost", "reversed"),
        [
            [
                words.get(row["side"], row["side"]),
                row["site"],
                row["state"],
                f"{row['tasks']:,}",
                show.seconds(row["wall_ns"]),
                show.money(row["cost"]),
                show.money(format_money(row["reversed_nanos"], row["currency"]))
                if row.get("reversed_nanos")
                else "",
            ]
            for row in found
        ],
        "no deals with other sites yet",
    )


@click.command()
@click.argument("job_id", metavar="[JOB]", required=False)
@reach_options
@json_option
@exact_option
@click.option(
    "--tasks",
    default=1,
    show_default=True,
    type=click.IntRange(1, TASKS_MAX),
    help="The number of tasks.",
)
@click.option(
    "--task-s", type=LengthType(), help="The duration of a task, as in 30s. [default: as measured]"
)
@click.option("--tags", default="", help="The tags that it requires, as in linux,gpu=2.")
@click.option("--python", default="", help="The Python version that it needs. [default: this one]")
@click.option("--project", default="", help="The project that is billed.")
@click.option("--user", default="", help="Its user, for the operator or an auditor. [default: you]")
@click.option("--max-cost", help='The cost limit, as in "5 USD".')
@click.option("--objective", help="cheapest, fastest or greenest. [default: the site's preference]")
@click.option(
    "--deadline",
    metavar="WHEN",
    help="Its deadline: 2h from now, or 2026-11-22T18:00 in the site's zone.",
)
@click.option("--within-s", type=LengthType(0.001), help="The same, as in 2h or 7200 from now.")
@click.option("--sites", help="The only sites where it may run, as in london,dublin.")
@click.option("--not-sites", help="Sites where it must not run.")
@click.option("--jurisdictions", help="The jurisdictions that its data may enter, as in EU,UK.")
@click.option("--data", help="The classes of its data, as in personal,market.")
@click.option("--preemptible", is_flag=True, help="The price class of preemptible work.")
@click.option("--deferrable", is_flag=True, help="It may wait for greener hours until --deadline.")
@click.option(
    "--when-closed",
    type=click.Choice(WHEN_CLOSED),
    help="Wait for closed windows to open, or go elsewhere. [default: by the objective]",
)
@click.pass_context
@errors_to_exit_codes
def explain(
    context: click.Context, job_id: str | None, reach: DialOptions, as_json: bool, **described: Any
) -> None:
    """Explain why a JOB goes where it goes; without one, where such a job would go.

    Of a JOB that has ended: where it ran, at which price, and which rules of that time applied.
    """
    details = _question(context, job_id, reach, described)
    found = _explained(reach, details)
    if as_json:
        show.as_json(found)
        return
    for part in explained(found, show):
        if isinstance(part, str):
            show.say(part)
        else:
            show.table(part.columns, part.rows, part.empty)


def _explained(reach: DialOptions, details: dict[str, Any]) -> dict[str, Any]:
    """Ask the gateway to explain; an older one would answer for the asker instead of a user."""
    found: dict[str, Any] = ask(reach, "explain", **details)
    user = details.get("user", "")
    if user and found.get("user") != user:
        raise click.ClickException(
            "this gateway is of an older version and explains for yourself alone: leave out --user"
        )
    return found


def _question(
    context: click.Context, job_id: str | None, reach: DialOptions, described: dict[str, Any]
) -> dict[str, Any]:
    """Return the details of the question: a job, or the description of one."""
    if job_id:
        given = [name for name in described if _was_given(context, name)]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise click.UsageError(
                f"{options}: remove these options: they describe a hypothetical job, and JOB exists"
            )
        return {"job": job_id}
    deadline, within_s = described.pop("deadline"), described.pop("within_s")
    if deadline is not None and within_s is not None:
        raise click.UsageError("--deadline and --within-s say the same: give one of them")
    deadline_s = None if within_s is None else UtcS(time.time() + within_s)
    if deadline is not None:
        deadline_s = _deadline_s(deadline, reach)
    try:
        return _details(deadline_s=deadline_s, **described)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None


def _deadline_s(text: str, reach: DialOptions) -> UtcS:
    """Read a deadline: a length of time from now, or a moment in the site's zone."""
    zone: tzinfo = site_zone(reach) if is_moment(text) else UTC
    return ahead(text, option="--deadline", utc_s=UtcS(time.time()), zone=zone)


def _least_ahead(ahead: dict[str, Any] | None) -> list[str]:
    """Return the lowest intensity in a pool's forecast, and the time when it begins."""
    if ahead is None:
        return ["", ""]
    least = min(ahead["g_per_kwh"])
    from_s = ahead["from_s"] + ahead["step_s"] * ahead["g_per_kwh"].index(least)
    return [f"{least:g}", show.when(from_s)]


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def _details(
    *,
    deadline_s: UtcS | None,
    objective: str | None,
    max_cost: str | None,
    tags: str,
    deferrable: bool,
    when_closed: str | None,
    **rest: Any,
) -> dict[str, Any]:
    """Return the details of a question about a job that does not exist."""
    if deferrable and deadline_s is None:
        raise ValueError("--deferrable needs --deadline, the longest that it may wait")
    wishes = wishes_plain(
        objective,
        None if deadline_s is None else float(deadline_s),
        deferrable=deferrable,
        when_closed=when_closed,
        sites=_names(rest.pop("sites")),
        not_sites=_names(rest.pop("not_sites")),
        jurisdictions=_names(rest.pop("jurisdictions")),
        data=_names(rest.pop("data")),
    )
    nanos, currency = parse_money(max_cost) if max_cost else (None, "")
    money = {"max_cost_nanos": nanos, "currency": currency}
    return {**rest, **money, "tags": parse_tags(tags), "wishes": wishes}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",")]
