"""Changing: cancel, forget, drain."""

import click

from gateway.cli import show
from gateway.cli.common import Reach, ask, errors_to_exit_codes, json_option, reach_options


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--stop", is_flag=True, help="Stop what runs as well; else only what waits.")
@reach_options
@json_option
@errors_to_exit_codes
def cancel(job_id: str, stop: bool, reach: Reach, as_json: bool) -> None:
    """Cancel a job of yours."""
    with reach.client() as client:
        taken = client.job(job_id).cancel(stop=stop)
    if as_json:
        show.as_json({"job": job_id, "cancelled": taken})
    else:
        click.echo(f"{show.count(taken, 'task')} cancelled")


@click.command()
@click.argument("job_id", metavar="ID")
@reach_options
@json_option
@errors_to_exit_codes
def forget(job_id: str, reach: Reach, as_json: bool) -> None:
    """Drop the results of a job of yours that has ended; what it cost stays on record."""
    found = ask(reach, "forget", job=job_id)
    if as_json:
        show.as_json(found)
    else:
        click.echo(f"the results of job {show.clean(job_id)} are gone")


@click.command()
@click.argument("worker", metavar="WORKER", required=False, default="")
@click.option("--all", "everything", is_flag=True, help="Drain the whole site.")
@click.option("--undo", is_flag=True, help="Go back to work.")
@reach_options
@json_option
@errors_to_exit_codes
def drain(worker: str, everything: bool, undo: bool, reach: Reach, as_json: bool) -> None:
    """Give a worker no new work and take back what it has not started; it finishes what runs.

    Workers that share a name drain together. With --all in place of a WORKER the whole site
    drains: it takes no new jobs and finishes those it has.
    """
    if everything == bool(worker):
        raise click.UsageError("name a worker (see `gridfed workers`), or say --all")
    found = ask(reach, "drain", worker=worker, on=not undo)
    if as_json:
        show.as_json(found)
        return
    what = f"worker {worker}" if worker else f"site {found['site']}"
    alike = found.get("workers", 1)
    what += f" ({alike} workers of that name)" if alike > 1 else ""
    click.echo(f"{what} {'works again' if undo else 'is draining'}")
