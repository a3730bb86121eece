"""Changes: cancel, hold, release, prioritise, forget, drain, reload."""

from typing import Any

import click

from federation.engine.jobs import JobHandle
from federation.errors import GridError
from federation.words import count
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    confirm,
    consequences,
    errors_to_exit_codes,
    json_option,
    reach_options,
    yes_option,
)
from gateway.cli.shared.rule_changes import changes_anything, say_change


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option(
    "--stop",
    is_flag=True,
    help="Stop running tasks, too; by default only waiting ones are cancelled.",
)
@reach_options
@json_option
@errors_to_exit_codes
def cancel(job_id: str, stop: bool, reach: DialOptions, as_json: bool) -> None:
    """Cancel a job of yours; the operator cancels any user's.

    JOB is its id, the beginning of it, or the name of the job.
    """
    with reach.client() as client:
        job = client.job(job_id)
        found = job.order_cancel(stop=stop)
        left = 0 if stop else _still_at_workers(job)
        show.note_site(client.gateway["site"])
    if as_json:
        show.as_json({"job": job.id, "cancelled": found.tasks, "title": found.title})
    else:
        title = f"{found.title}: " if found.title else ""
        show.say(f"{title}{count(found.tasks, 'task')} cancelled")
        if left:
            show.say(
                f"it is cancelling: {count(left, 'task')} had begun and may end; --stop stops "
                f"{'it' if left == 1 else 'them'}"
            )


def _still_at_workers(job: JobHandle) -> int:
    """Return how many tasks of a cancelled job are still to end, as far as the asker sees it."""
    try:
        return int(job.details()["in_flight"])
    except GridError:
        return 0


@click.command()
@click.argument("job_id", metavar="JOB")
@reach_options
@json_option
@errors_to_exit_codes
def hold(job_id: str, reach: DialOptions, as_json: bool) -> None:
    """Hold a job of yours, so that none of its tasks begins; the operator holds any user's.

    Running tasks go on. Nothing new is sent to other sites. The job goes on with `gridfed release`:
    what the operator holds is released by the operator alone. A hold does not put a deadline off.

    JOB is its id, the beginning of it, or the name of the only one that has not ended.
    """
    _order(reach, "hold", as_json=as_json, job=job_id)


@click.command()
@click.argument("job_id", metavar="JOB")
@reach_options
@json_option
@errors_to_exit_codes
def release(job_id: str, reach: DialOptions, as_json: bool) -> None:
    """Let a held job of yours go on; the operator releases any user's.

    JOB is its id, the beginning of it, or the name of the only one that has not ended. `gridfed
    jobs --state held` lists those that are held.
    """
    _order(reach, "release", as_json=as_json, job=job_id)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_id", metavar="JOB")
@click.argument("priority", metavar="N", type=float)
@reach_options
@json_option
@errors_to_exit_codes
def prioritise(job_id: str, priority: float, reach: DialOptions, as_json: bool) -> None:
    """Give a job of yours another priority: higher ones go first; the operator any user's.

    JOB is its id, the beginning of it, or the name of the only one that has not ended.

    N is a number as in client.options(priority=N), below zero as well. Entitlements limit the
    priority that users give, but not the operator's.
    """
    _order(reach, "prioritise", as_json=as_json, job=job_id, priority=priority)


def _order(reach: DialOptions, verb: str, *, as_json: bool, **details: Any) -> None:
    """Give an order about a job, and print what was done, and whose job it is."""
    found = ask(reach, verb, **details)
    if as_json:
        show.as_json(found)
    else:
        show.say(show.clean(found["text"]))


@click.command()
@click.argument("job_id", metavar="JOB")
@reach_options
@json_option
@errors_to_exit_codes
def forget(job_id: str, reach: DialOptions, as_json: bool) -> None:
    """Drop results and output of a job of yours that has ended; its cost stays on record.

    JOB is its id, the beginning of it, or the name of the job.
    """
    found = ask(reach, "forget", job=job_id)
    if as_json:
        show.as_json(found)
    else:
        show.say(f"the results of job {show.clean(found['job'])} are deleted")


@click.command()
@click.argument("worker", metavar="WORKER", required=False, default="")
@click.option("--host", metavar="HOST", default="", help="Drain all workers of a host.")
@click.option("--all", "everything", is_flag=True, help="Drain the whole site.")
@click.option("--list", "lists", is_flag=True, help="List the drained hosts and workers.")
@click.option("--resume", "--undo", "undo", is_flag=True, help="End the drain.")
@yes_option
@reach_options
@json_option
@errors_to_exit_codes
def drain(
    worker: str,
    host: str,
    everything: bool,
    lists: bool,
    undo: bool,
    is_sure: bool,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Give a worker no new work and take back its unstarted tasks; it finishes its running ones.

    Workers that share a name drain together. With --host in place of a WORKER all workers of that
    host drain, of every pool: those that are here, and those that come later. Such a drain holds
    until --resume, also when the worker or the gateway restarts. With --all the whole site drains:
    it takes no new jobs and finishes those it has, until --resume or a restart of the gateway. It
    asks first.
    """
    if sum(map(bool, (worker, host, everything, lists))) != 1:
        raise click.UsageError(
            "give one of WORKER (see `gridfed workers`), --host, --all and --list"
        )
    if lists:
        _list_drains(reach, as_json=as_json)
        return
    if everything and not undo:
        confirm("Drain the whole site?", lambda: consequences(reach, "drain"), is_sure=is_sure)
    if host:
        found = ask(reach, "drain_host", host=host, on=not undo)
    else:
        found = ask(reach, "drain", worker=worker, on=not undo)
    if as_json:
        show.as_json(found)
        return
    what = f"worker {worker}" if worker else f"site {found.get('site')}"
    alike = found.get("workers", 1)
    what += f" ({alike:,} workers of that name)" if alike > 1 else ""
    if host:
        here = count(alike, "worker") if alike else "no worker of it is here now"
        what = f"host {found['host']} ({here})"
    show.say(f"{what} {'takes work again' if undo else 'is draining'}")


def _list_drains(reach: DialOptions, *, as_json: bool) -> None:
    found = ask(reach, "drains")
    if as_json:
        show.as_json(found)
        return
    keys = ("kind", "name", "by", "workers", "in_flight")
    rows = [[*(row[key] for key in keys), show.when(row["since_s"])] for row in found]
    show.table((*keys, show.timed("since")), rows, "no host or worker is drained")
    if ask(reach, "status")["state"] == "draining":
        show.say("the whole site takes no new jobs: `gridfed drain --all --resume` ends that")


@click.command()
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show the changes.")
@reach_options
@json_option
@errors_to_exit_codes
def reload(is_dry: bool, reach: DialOptions, as_json: bool) -> None:
    """Make a gateway read its configuration again, and apply it.

    Windows, prices, shares, budgets, entitlements, reservation rules and the growth of pools are
    applied. The changes in the coming two weeks are shown first, with the settings that count only
    after a restart. With a mistake in the file nothing is changed.
    """
    found = ask(reach, "reload", dry_run=is_dry)
    if as_json:
        show.as_json(found)
        return
    say_change(found)
    done = "the configuration is applied"
    if found["later"]:
        done += ", but for what takes effect after a restart"
    elif not changes_anything(found):
        done = "nothing has changed: the file says what is in force"
    show.say("nothing was changed: a dry run" if is_dry else done)
