"""Views of the federation: sites, pools, deals, explain."""

import time
from typing import Any, Final

import click
from click.core import ParameterSource

from federation.money import format_money, parse_money
from federation.reasons import reason_text
from federation.wishes import WHEN_CLOSED, wishes_plain
from federation.words import count, duration_text
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    exact_option,
    json_option,
    parse_tags,
    reach_options,
)
from gateway.cli.shared.moments import LengthType

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
                *(row[key] for key in ("site", "state", "pools", "slots_free", "slots_total")),
                f"{row['tasks_queued']:,}",
                ", ".join(row["regions"]),
                row["age_s"],
            ]
            for row in found
        ],
        "no sites",
    )


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
                *(row[key] for key in ("site", "pool", "state", "slots_free", "slots_total")),
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
    for row in found:  # an older gateway says what its database does
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
@click.option("--within-s", type=LengthType(0.001), help="The deadline, as in 2h from now.")
@click.option("--sites", help="The only sites where it may run, as in london,dublin.")
@click.option("--not-sites", help="Sites where it must not run.")
@click.option("--jurisdictions", help="The jurisdictions that its data may enter, as in EU,UK.")
@click.option("--data", help="The classes of its data, as in personal,market.")
@click.option("--preemptible", is_flag=True, help="The price class of preemptible work.")
@click.option("--deferrable", is_flag=True, help="It may wait for greener hours within --within-s.")
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
    details = _question(context, job_id, described)
    found = _explained(reach, details)
    if as_json:
        show.as_json(found)
        return
    if "past" in found:
        _show_past(found)
        return
    _show_plan(found)
    if found["candidates"] and found["tasks"] > 1:
        show.say(f"if one pool did all {count(found['tasks'], 'task')}:")
    show.table(
        (
            "site",
            "pool",
            "price",
            "wait s",
            show.timed("done by"),
            "cost",
            "carbon g",
            "advert age s",
        ),
        [_candidate(row) for row in found["candidates"]],
        "no pool can run it now",
    )
    for group in found["refused"]:
        kind = "never" if group["never"] else "not now"
        why = show.clean(reason_text(group["reason"]))
        pools = count(group["count"], "pool")
        show.say(f"{pools} refused, {kind}: {why} ({show.clean(group['reason'])}):")
        for each in group["examples"]:
            where = f"{show.clean(each['site'])}/{show.clean(each['pool'])}"
            show.say(f"  {where} {show.clean(each['text'])}")
    for each in found.get("residency", ()):
        where = f", line {each['line']}" if each["line"] else ""
        show.say(f"bound by [[residency]]{where}: {show.clean(each['rule'])}")
    _say_whose_turn(found)
    for each in found.get("growing", ()):
        slots = ", ".join(f"{count:,} {stage}" for stage, count in each["slots"].items() if count)
        why = "; ".join(each["why"])
        text = (
            f"{each['pool']} has {slots or 'none'} of {count(each['wanted'], 'wanted slot')}: {why}"
        )
        show.say(text + (f"; {each['trouble']}" if each["trouble"] else ""))
    for place in found.get("places", ()):
        why = f": {show.clean(place['why_not'])}" if place["why_not"] else ""
        show.say(
            f"{show.clean(place['worker'])} has {count(place['in_flight'], 'task')} of it{why}"
        )
    for rest in found.get("places_left_off", ()):
        workers, tasks = count(rest["workers"], "worker"), rest["in_flight"]
        show.say(
            f"and {workers} more of {show.clean(rest['pool'])} with {count(tasks, 'task')} of it"
        )
    for note in found.get("notes", ()):
        show.say(f"{show.moment(note['at_s'])}: {show.clean(note['text'])}")


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
    context: click.Context, job_id: str | None, described: dict[str, Any]
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
    try:
        return _details(**described)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None


def _show_past(found: dict[str, Any]) -> None:
    """Print where an ended job ran, and the rules that applied there."""
    show.say(found["text"])
    begun = {each["version"]: each for each in found["rules"]}
    for place in found["past"]:
        where = f"{place['site']}/{place['pool']}" if place["site"] else place["pool"]
        show.say(
            f"{where}: {count(place['tasks'], 'run')} from {show.moment(place['first_at_s'])} to "
            f"{show.moment(place['last_at_s'])}, {place['cost']}"
        )
        for each in place["why"]:
            show.say(f"  {each}")
        if place["rules_unknown"]:
            show.say(f"  the rules are not shown: {place['rules_unknown']}")
        if (version := place["rules"]) in begun:
            since, author = begun[version]["from_s"], begun[version]["author"]
            by = f" by {author}" if author else ""
            show.say(
                f"  rules: version {version}, of {show.moment(since)}{by}: "
                f"`gridfed rules list --version {version}`"
            )
    for each in found["contracts"]:
        price = format_money(each["price_nanos"], each["currency"])
        show.say(
            f"contract {each['contract']} with {each['site']}, pool {each['pool']}: opened "
            f"{show.moment(each['opened_at_s'])}, {price} per slot-hour, {each['state']}"
        )


def _show_plan(found: dict[str, Any]) -> None:
    """Print where the job goes, how much waits, and how much can't be done."""
    if found.get("held"):
        show.say(f"{show.clean(found['held'])}. Once it is released:")
    elif found.get("waits_for"):
        show.say(f"{count(found['waiting'], 'task')} waiting: {show.clean(found['waits_for'])}")
    show.say(found["text"])
    for kind in ("refused_by_rule", "refused_for_money"):
        if found.get(kind):
            show.say(f"it would be refused: {show.clean(found[kind])}")
    for share in found["shares"]:
        opens = f"opens at {show.moment(share['opens_s'])}, " if share["opens_s"] else ""
        done = f"done by {show.moment(share['finish_s'])}"
        if not share.get("is_wait_known", True):
            done = "the end is not known, as tasks of unknown duration are before it"
        show.say(
            f"  {share['tasks']:,} at {show.clean(share['site'])}/{show.clean(share['pool'])}: "
            f"{opens}{done}, {show.money(share['cost'])}"
        )
    deferral = found.get("deferral") or {"waits": 0}
    if "text" in deferral:
        _show_deferral(deferral)
    if found.get("unmet"):
        show.say(f"  {show.clean(found['unmet']['text'])}")
    elif found.get("short") and not deferral["waits"]:
        code = str(found.get("short_reason") or "")  # all that an older gateway sends
        why = found.get("short_text") or (reason_text(code) if code else "no slot is free")
        show.say(f"  {found['short']:,} more wait: {show.clean(str(why))}")
    if found["shares"] and found.get("assumed_task_s"):
        show.say(
            f"  a task is assumed to take {duration_text(found['assumed_task_s'])}, as none has "
            "been measured"
        )


def _show_deferral(deferral: dict[str, Any]) -> None:
    """Print how much waits for better hours, until when, and the savings; or why nothing waits."""
    if not deferral["waits"]:
        show.say(f"  {show.clean(deferral['text'])}")
        return
    until, end = show.moment(deferral["until_s"]), show.moment(deferral["finish_s"])
    show.say(f"  {show.clean(deferral['text'])}, the first until {until}; done by {end}")
    for run in deferral["runs"]:
        where = f"{show.clean(run['site'])}/{show.clean(run['pool'])}"
        show.say(
            f"    {run['tasks']:,} at {where} from {show.moment(run['begin_s'])}, "
            f"{run['carbon_g']:.3g} g CO2e"
        )
    if deferral["runs_left_off"]:
        show.say(f"    and {deferral['runs_left_off']:,} more")
    saved = [
        (
            f"{deferral['carbon_g']:.3g} g CO2e instead of {deferral['at_once_carbon_g']:.3g} g "
            "at once"
        ),
        show.money(f"{deferral['cost']} instead of {deferral['at_once_cost']}"),
    ]
    show.say(f"    it emits {saved[0]}, and costs {saved[1]}")


def _least_ahead(ahead: dict[str, Any] | None) -> list[str]:
    """Return the lowest intensity in a pool's forecast, and the time when it begins."""
    if ahead is None:
        return ["", ""]
    least = min(ahead["g_per_kwh"])
    from_s = ahead["from_s"] + ahead["step_s"] * ahead["g_per_kwh"].index(least)
    return [f"{least:g}", show.when(from_s)]


def _say_whose_turn(found: dict[str, Any]) -> None:
    """Print the budgets that pay for a job, and its place in the order of shares."""
    for budget in found.get("budgets", ()):
        name, left = show.clean(budget["name"]), show.money(show.clean(budget["left"]))
        why = show.clean(budget["why_not"]) or f"{left} is left"
        show.say(f"paid from {name} ({show.clean(budget['whose'])}): {why}")
    if "fair_share" in found:
        show.say(_turn(found["fair_share"]))


def _turn(share: dict[str, Any]) -> str:
    """Describe the share that a job belongs to, and its place in the order."""
    turn = "it is next in turn"
    if share["place"] is None:
        turn = "none of its tasks can be dispatched yet"
    elif share["place"] > 1:
        turn = f"place {share['place']} of {share['places']}"
        if share["next"]:
            turn += f", next is {share['next']}"
    late = (
        "; it goes first, as it has waited for a slot longer than max_wait"
        if share["is_late"]
        else ""
    )
    return (
        f"share {share['share']}: {turn}{late}; it has used {100 * share['part']:.1f} % of "
        f"the slot time; its target under full demand is {100 * share['target']:.1f} %"
    )


def _candidate(row: dict[str, Any]) -> list[Any]:
    carbon = "" if row["carbon_g"] is None else f"{row['carbon_g']:.3g}"
    wait, done = f"{row['wait_s']:.2f}", show.when(row["finish_s"])
    if not row.get("is_wait_known", True):  # tasks before it are of unknown duration
        wait, done = f"over {wait}" if row["wait_s"] >= 0.01 else "unknown", "unknown"
    return [
        row["site"],
        row["pool"],
        row["price"],
        wait,
        done,
        show.money(row["cost"]),
        carbon,
        f"{row['age_s']:.1f}",
    ]


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def _details(
    *,
    within_s: float | None,
    objective: str | None,
    max_cost: str | None,
    tags: str,
    deferrable: bool,
    when_closed: str | None,
    **rest: Any,
) -> dict[str, Any]:
    """Return the details of a question about a job that does not exist."""
    if deferrable and within_s is None:
        raise ValueError("--deferrable needs --within-s, the longest that it may wait")
    wishes = wishes_plain(
        objective,
        None if within_s is None else time.time() + within_s,
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
