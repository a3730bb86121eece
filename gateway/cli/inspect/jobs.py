"""Views of a site: status, jobs, job, workers."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from federation import Client
from federation.pictures.graph_picture import GraphPicture, stages_of
from federation.reasons import Reason
from federation.words import count, duration_text
from gateway.base.job_states import CHOICES, MAY_RETURN, REJECTED, spelled
from gateway.cli.shared import show
from gateway.cli.shared.codes import TASKS_FAILED
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    errors_to_exit_codes,
    exact_option,
    json_option,
    of_users,
    reach_options,
)
from gateway.cli.shared.output_files import PICTURES, OutputFile

SHOWN_MAX: Final = 3  # names in a column of a worker

PAGE: Final = 1000


@click.command()
@click.option("--client", "of_client", is_flag=True, help="Show which gateway is used, and why.")
@reach_options
@json_option
@errors_to_exit_codes
def status(of_client: bool, reach: DialOptions, as_json: bool) -> None:
    """Show the site at a glance, and what is wrong, with what to do.

    Exits with 1 if anything is wrong, else with 0. Problems with other sites, and of certificates
    and keys, are shown to those who may see the rows of all users.
    """
    if of_client:
        _show_gateway(reach, as_json=as_json)
        return
    found = ask(reach, "status")
    problems = found.get("problems", ())  # an older gateway does not tell
    code = 1 if problems or found["trouble"] else 0
    if as_json:
        show.as_json(found)
        raise SystemExit(code)
    show.say(f"site {show.clean(found['site'])}: {found['state']}")
    if found["trouble"]:
        show.say(f"trouble: {show.clean(found['trouble'])}")
    for each in problems:
        if each["code"] != "database":  # which is told already
            show.say(f"problem: {show.clean(each['text'])}")
    for each in found["lapsed"]:
        show.say(f"lapsed: {show.clean(each)}")
    for each in found["older_books"]:
        if not problems:
            show.say(f"books: {show.clean(each)}")
    for line in found["addresses"]:
        show.say(f"  at {show.clean(line)}")
    show.say(
        f"{count(found['clients'], 'client')}, {count(found['jobs'], 'job')}, "
        f"{count(found['waiting'], 'task')} waiting, {found['in_flight']:,} at workers, "
        f"{found['tasks_done']:,} done"
    )
    keys = ("pool", "workers", "slots", "busy", "price")
    show.table(
        (*keys, "carbon", "other sites' work"),
        [
            [
                *(_workers(pool) if key == "workers" else pool[key] for key in keys),
                *(_carbon(pool), ", ".join(pool.get("others_work", ()))),
            ]
            for pool in found["pools"]
        ],
        "no pools",
    )
    raise SystemExit(code)


def _show_gateway(reach: DialOptions, *, as_json: bool) -> None:
    """Print the gateway that a client comes to, and the round trips to all that it knows."""
    with reach.client() as client:
        found = client.gateway
        show.note_site(found["site"])
    if as_json:
        show.as_json(found)
        return
    show.say(f"{found['address']}: {found['why']}")
    trips_s = found["round_trips_s"]
    if len(found["addresses"]) > 1:
        silent = dict.fromkeys(found["addresses"], "no answer")
        silent |= dict.fromkeys(found["unasked"], "not asked: a worse priority")
        rows = [
            [each, f"{trips_s[each] * 1000:.1f} ms" if each in trips_s else silent[each]]
            for each in found["addresses"]
        ]
        show.table(("gateway", "round trip"), rows, "")


class _States(click.Choice[str]):
    """States of jobs, with or without a hyphen for the blank in them."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the state as it is shown."""
        return super().convert(spelled(str(value)), param, ctx)


def _workers(pool: dict[str, Any]) -> str:
    """Return the number of a pool's workers, and the number of those that drain."""
    draining = pool.get("draining")  # an older gateway does not send it
    return f"{pool['workers']:,}" + (f" ({draining:,} draining)" if draining else "")


def _carbon(pool: dict[str, Any]) -> str:
    grams = pool["carbon_g_per_kwh"]
    return "" if grams is None else f"{grams:g} g/kWh, {show.clean(pool['carbon_source'])}"


@click.command()
@reach_options
@json_option
@exact_option
@click.option("--user", help="Only jobs of this user.")
@click.option("--project", help="Only jobs of this project.")
@click.option("--name", help="Only jobs of this name.")
@click.option(
    "--state",
    metavar="STATE",
    type=_States(CHOICES),
    help=f"Only jobs in this state: {', '.join(CHOICES)}. failed: also in part.",
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", metavar="JOB", help="Go on after this job, the last of another list.")
@click.option("--all", "all_jobs", is_flag=True, help="List all, and not only the first --limit.")
@all_users_option
@errors_to_exit_codes
def jobs(
    reach: DialOptions,
    as_json: bool,
    limit: int,
    all_jobs: bool,
    all_users: bool,
    **wanted: str | None,
) -> None:
    """List your latest jobs, the newest first; the operator's own socket lists those of all users.

    `begun` and `ended` say how long ago a job was submitted and has ended. Of the jobs that were
    refused, the last 100 of a user are listed for seven days, as rejected, with the reason.
    """
    given = {key: value for key, value in wanted.items() if value}  # an older gateway takes none
    details = {**given, **of_users(all_users=all_users)}
    if all_jobs:
        with reach.client() as client:
            found = _all_jobs(client, details)
    else:
        found = ask(reach, "jobs", limit=limit, **details)
    if as_json:
        show.as_json(found)
        return
    now_s = time.time()
    columns = [
        *("id", "name", "user", "project", "state", "begun", "ended"),
        *("done", "failed", "cancelled", "tasks", "slot-s", "cost", "estimated"),
    ]
    if not any(row["estimated_cost"] for row in found):
        columns.pop()  # the table is wide
    rows = [_job_row(row, now_s)[: len(columns)] for row in found]
    show.table(columns, rows, "no such jobs" if given else "no jobs yet")
    if not all_jobs and len(found) == limit:
        show.say(f"there may be more: add --all, or --after {found[-1]['id']}")
    for row in found:
        for line in _waits(row):
            show.say(f"{row['id']} is waiting: {line}")
        if row["state"] == REJECTED and row["reason"]:
            show.say(f"{row['id']} was refused: {show.clean(row['reason'])}")


def _all_jobs(client: Client, details: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask page by page; a job that changes its state in between may be missed."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.ask("jobs", limit=PAGE, **details)
        found += page
        if len(page) < PAGE:
            return found
        details = {**details, "after": page[-1]["id"]}


def _job_row(row: dict[str, Any], now_s: float) -> list[Any]:
    total = row["total"] if row["total"] is not None else row["tasks"]
    counts = [row["done"], row["failed"], row["cancelled"], total]
    who = [row["id"], row["name"], row["user"], row["project"], _state(row)]
    who += [show.ago(row["submitted_at_s"], now_s), show.ago(row["ended_at_s"], now_s)]
    money = [show.money(row["cost"]), show.money(row["estimated_cost"])]
    return [*who, *(f"{count:,}" for count in counts), show.seconds(row["wall_ns"]), *money]


def _state(row: dict[str, Any]) -> str:
    """Return the state of a job as it is shown; an older gateway says of none that it is held."""
    if not row.get("held_by"):
        return str(row["state"])
    shows_both = row["state"] in ("running", *MAY_RETURN)
    return f"{row['state']}, held" if shows_both else "held"


@click.command()
@click.argument("job_id", metavar="JOB")
@reach_options
@json_option
@exact_option
@click.option(
    "--graph",
    "picture",
    metavar="FILE",
    type=OutputFile(PICTURES),
    help="Write a picture of the job's graph: SVG, or a page if the name ends in .html.",
)
@errors_to_exit_codes
def job(job_id: str, reach: DialOptions, as_json: bool, picture: Path | None) -> None:
    """Show one job: state, progress, cost, why it waits, and the stages of its graph.

    JOB is its id, the beginning of it (at least four characters), or the name of the job.
    The exit code is 3 when the job has ended and some of its tasks have failed.
    """
    found = ask(reach, "job", job=job_id)
    if picture is not None:
        _write_picture(found, picture)
    if as_json:
        show.as_json(found)
    else:
        _show_job(found)
        _show_stages(found)
    if found["state"] in ("failed", "partly failed"):
        raise SystemExit(TASKS_FAILED)


def _priority(found: dict[str, Any]) -> str:
    by = found.get("priority_by")
    return f"{found['priority']:g}" + (f", given by {by}, the operator" if by else "")


def _unfinished(found: dict[str, Any]) -> str:
    """Return how many tasks run and wait, before a comma; empty of a job that has ended."""
    if "running" not in found or found["ended_at_s"] is not None:  # an older gateway does not tell
        return ""
    waiting = found["waiting"] + found["in_flight"] - found["running"]
    blocked = f"{found['blocked']:,} waiting for inputs, " if found["blocked"] else ""
    return f"{found['running']:,} running, {waiting:,} waiting, {blocked}"


def _show_job(found: dict[str, Any]) -> None:
    total = found["total"] if found["total"] is not None else found["tasks"]
    lines = [
        ("job", found["id"]),
        ("name", found["name"]),
        ("billed to", f"{found['user']}, project {found['project']}"),
        ("state", f"{_state(found)} {found['reason'] and '(' + found['reason'] + ')'}"),
        *([("held", found["held"])] if found.get("held") else []),
        *([("priority", _priority(found))] if found.get("priority") else []),
        ("submitted", show.moment(found["submitted_at_s"])),
        ("ended", show.moment(found["ended_at_s"])),
        (
            "tasks",
            f"{_unfinished(found)}{found['done']:,} done, {found['failed']:,} failed, "
            f"{found['cancelled']:,} cancelled of {total:,}",
        ),
        *([("first error", found["first_error"])] if found.get("first_error") else []),
        ("slot-seconds", show.seconds(found["wall_ns"])),
        ("CPU-seconds", show.seconds(found["cpu_ns"])),
        ("cost", show.money(found["cost"])),
    ]
    if found["estimated_cost"]:
        lines.append(
            ("estimated", f"{show.money(found['estimated_cost'])} more, for the tasks in progress")
        )
    for each in found.get("rules", ()):
        by = f", by {each['author']}" if each["author"] else ""
        lines.append(("rules", f"version {each['version']}, of {show.moment(each['from_s'])}{by}"))
    for name, value in lines:
        show.say(f"{name:>12}  {show.clean(value)}")
    for line in _waits(found):
        show.say(f"{'waiting':>12}  {line}")


def _write_picture(found: dict[str, Any], path: Path) -> None:
    """Write the picture of a job's graph. Raises click.ClickException, also without a graph."""
    stages = stages_of(found.get("stages", ()))
    if not stages:
        raise click.ClickException(
            f"job {found['id']} is in no graph: no call of it waits for another job's, and none "
            "waits for it"
        )
    try:
        GraphPicture(tuple(stages)).save(path)
    except OSError as error:
        raise click.ClickException(f"can't write {path}: {error.strerror}") from None


def _show_stages(found: dict[str, Any]) -> None:
    """Print the stages of a job's graph, if it is in one."""
    rows = found.get("stages", ())  # an older gateway does not tell
    keys = ("total", "done", "failed", "running", "waiting")
    if rows:
        show.say("")
        show.table(
            ("stage", "function", "job", *keys),
            [
                [row["depth"], row["name"], row["id"], *(f"{row[key]:,}" for key in keys)]
                for row in rows
            ],
            "",
        )


def _waits(row: dict[str, Any]) -> list[str]:
    """Return why a job waits: in one sentence, then the reasons that this has not covered."""
    sentence = show.clean(row.get("waits_for"))
    lines = [sentence] if sentence else []
    for why in row.get("why_waiting", []):
        text, workers = show.clean(why["text"]), why.get("workers", 0)
        if text == sentence or (sentence and why.get("reason") == Reason.BUSY):
            continue
        told = f"{count(workers, 'worker')}: {text}" if workers else text  # an older gateway
        told = show.clean(why.get("sentence", told))
        if told not in sentence:
            lines.append(told)
    return lines


def _some(names: Iterable[str]) -> str:
    """Join names for a column: the first few, and how many more there are."""
    found = sorted(names)
    more = f" +{len(found) - SHOWN_MAX}" if len(found) > SHOWN_MAX else ""
    return ",".join(found[:SHOWN_MAX]) + more


@click.command()
@click.option("--pool", help="Only those of this pool.")
@click.option("--host", help="Only those of this host.")
@click.option("--state", type=click.Choice(["up", "draining"]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, PAGE), help="Only the first N, by name.")
@click.option("--after", metavar="NAME", help="Go on after this worker, the last of another list.")
@reach_options
@json_option
@all_users_option
@errors_to_exit_codes
def workers(
    pool: str | None,
    host: str | None,
    state: str | None,
    limit: int | None,
    after: str | None,
    reach: DialOptions,
    as_json: bool,
    all_users: bool,
) -> None:
    """List the workers and the activity of their slots."""
    wanted = {"pool": pool, "host": host, "state": state, "limit": limit, "after": after}
    details = {key: value for key, value in wanted.items() if value is not None}
    found = ask(reach, "workers", **of_users(all_users=all_users), **details)
    is_cut = limit is not None and len(found) >= limit
    if as_json:
        show.as_json(found)
        return
    for row in found:
        jobs, by = row.get("jobs", ()), row.get("drained_by", ())  # older gateways send neither
        row["state"] += f" ({', '.join(by)})" if by else ""
        row["users"] = _some({each["user"] for each in jobs})
        row["jobs"] = _some(each["name"] or each["id"] for each in jobs)
    keys = ["name", "pool", "host", "state", "slots", "in_flight", "users", "jobs"]
    keys += ["tasks_done", "python", "uptime_s"]
    if any(row.get("grid_id") for row in found):  # an older gateway does not send it
        keys.insert(1, "grid_id")
    rows = [[*(_worker_cell(row, key) for key in keys), ",".join(row["tags"])] for row in found]
    none = "no such workers" if details else "no workers: start one with `gridfed worker`"
    if not rows and not details:
        grown = [each["pool"] for each in ask(reach, "scale")["pools"]]
        if grown:
            pools = f"pool{'s' * (len(grown) > 1)} {', '.join(grown)}"
            none = (
                f"no workers now: the workers of {pools} are started on demand (`gridfed "
                "scale --why`)"
            )
    headings = (key.removesuffix("_s").replace("_", " ") for key in keys)
    show.table((*headings, "tags"), rows, none)
    if is_cut:
        show.say(f"there may be more: add --after {found[-1]['name']}")


def _worker_cell(row: dict[str, Any], key: str) -> Any:
    """Return the cell of a worker in the column of a key of its row."""
    return duration_text(row[key]) if key == "uptime_s" else row.get(key, "")
