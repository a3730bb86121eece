"""The `gridfed` command: its verbs, and what happens when one of them is wrong."""

import importlib.metadata

import click

from gateway.cli import between, federate, look
from gateway.cli.alerts import alerts
from gateway.cli.books import audit, db
from gateway.cli.control import cancel, drain, forget
from gateway.cli.export import export
from gateway.cli.found import init
from gateway.cli.inspect import job, jobs, status, workers
from gateway.cli.page import page
from gateway.cli.report import report
from gateway.cli.serve import gateway, up, worker
from gateway.cli.tariff import tariff


def _version() -> str:
    try:
        return importlib.metadata.version("gridfed")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="gridfed")
def cli() -> None:
    """A federated meta-scheduler: one thin layer over the grids you already have.

    Start one with `gridfed up`; then, in Python: `from federation import Client`.
    """


for command in (
    *(up, gateway, worker, status, jobs, job, cancel, forget, workers, drain, report),
    *(init, *federate.commands),
    *(db, audit, alerts, export, tariff, *between.commands),
    *(look.sites, look.pools, look.deals, look.explain),
):
    cli.add_command(command)


report.add_command(page)


def run() -> int:
    """Run the command line; return the exit code."""
    result = cli(standalone_mode=True)
    return int(result or 0)
