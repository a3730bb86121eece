"""Changing: cancel, forget, drain."""

import click

from federation import Client
from gateway.cli import show
from gateway.cli.common import ask, errors_to_exit_codes, gateway_option, json_option


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--stop", is_flag=True, help="Stop what runs as well; else only what waits.")
@gateway_option
@json_option
@errors_to_exit_codes
def cancel(job_id: str, stop: bool, address: str | None, as_json: bool) -> None:
    """Cancel a job of yours."""
    with Client(address) as client:
        taken = client.job(job_id).cancel(stop=stop)
    if as_json:
        show.as_json({"job": job_id, "cancelled": taken})
    else:
        click.echo(f"{taken:,} tasks cancelled")


@click.command()
@click.argument("job_id", metavar="ID")
@gateway_option
@json_option
@errors_to_exit_codes
def forget(job_id: str, address: str | None, as_json: bool) -> None:
    """Drop the results of a job of yours that has ended; what it cost stays on record."""
    found = ask(address, "forget", job=job_id)
    if as_json:
        show.as_json(found)
    else:
        click.echo(f"the results of job {show.clean(job_id)} are gone")


@click.command()
@click.argument("worker", required=False, default="")
@click.option("--undo", is_flag=True, help="Go back to work.")
@gateway_option
@json_option
@errors_to_exit_codes
def drain(worker: str, undo: bool, address: str | None, as_json: bool) -> None:
    """Give a worker no new work and take back what it has not started; it finishes what runs.

    Without a WORKER the whole gateway drains: it takes no new jobs and finishes those it has.
    """
    found = ask(address, "drain", worker=worker, on=not undo)
    if as_json:
        show.as_json(found)
        return
    what = f"worker {worker}" if worker else f"site {found['site']}"
    click.echo(f"{what} {'works again' if undo else 'is draining'}")
