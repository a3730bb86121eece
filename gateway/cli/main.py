"""The `gridfed` command: its verbs, and the handling of wrong ones."""

import importlib
import importlib.metadata
from typing import Final

import click

# Each module is imported on first use: most commands need no database, and no site.
_COMMANDS: Final = {
    "gateway.cli.alerts": ("alerts",),
    "gateway.cli.between": (
        "deliveries",
        "reconcile",
        "disputes",
        "dispute",
        "answer",
        "settle",
        "payments",
    ),
    "gateway.cli.books": ("db", "audit"),
    "gateway.cli.budgets": ("budgets",),
    "gateway.cli.can": ("can",),
    "gateway.cli.control": ("cancel", "forget", "drain", "reload"),
    "gateway.cli.export": ("export",),
    "gateway.cli.federate": (
        *("invite", "join", "approve", "leave", "expel", "keep", "known"),
        *("trust", "token", "rotate"),
    ),
    "gateway.cli.found": ("init",),
    "gateway.cli.inspect": ("status", "jobs", "job", "workers"),
    "gateway.cli.look": ("sites", "pools", "deals", "explain"),
    "gateway.cli.report": ("report",),
    "gateway.cli.reserve": ("reserve", "reservations"),
    "gateway.cli.scale": ("scale", "pool"),
    "gateway.cli.serve": ("up", "gateway", "worker"),
    "gateway.cli.shares": ("shares",),
    "gateway.cli.symphony": ("symphony",),
    "gateway.cli.tariff": ("tariff",),
    "gateway.cli.windows": ("windows",),
}
_MODULE_OF: Final = {name: module for module, names in _COMMANDS.items() for name in names}


class _Late(click.Group):
    """A group that imports a command on first use; listing them imports all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULE_OF:
            return None
        found = _load(_MODULE_OF[cmd_name], cmd_name)
        if cmd_name == "report" and isinstance(found, click.Group):
            found.add_command(_load("gateway.cli.page", "page"))
        return found


def _load(module: str, name: str) -> click.Command:
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, click.Command)
    return found


def _version() -> str:
    try:
        return importlib.metadata.version("gridfed")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@click.group(cls=_Late, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="gridfed")
def cli() -> None:
    """A federated meta-scheduler: one thin layer over the grids you already have.

    Start one with `gridfed up`; then, in Python: `from federation import Client`.
    """


def run() -> int:
    """Run the command line; return the exit code."""
    result = cli(standalone_mode=True)
    return int(result or 0)
