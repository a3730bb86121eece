"""The `gridfed` command: its verbs, and the handling of wrong ones.

An adapter adds a command of its own by an entry point of the group `gridfed.commands`.
"""

import importlib
import importlib.metadata
from typing import Final

import click

from gateway.cli.shared.show import version

# Each module is imported on first use: most commands need no database, and no site.
_COMMANDS: Final = {
    "gateway.cli.inspect.alerts": ("alerts",),
    "gateway.cli.books.between": (
        "deliveries",
        "reconcile",
        "disputes",
        "dispute",
        "answer",
        "settle",
        "payments",
    ),
    "gateway.cli.books.database": ("db", "audit"),
    "gateway.cli.inspect.budgets": ("budgets",),
    "gateway.cli.inspect.can": ("can",),
    "gateway.cli.operate.check": ("check",),
    "gateway.cli.operate.control": (
        *("cancel", "hold", "release", "prioritise"),
        *("forget", "drain", "reload"),
    ),
    "gateway.cli.books.export": ("export",),
    "gateway.cli.operate.federate": (
        *("invite", "join", "approve", "leave", "expel", "keep", "known"),
        *("trust", "token", "rotate"),
    ),
    "gateway.cli.operate.found": ("init",),
    "gateway.cli.inspect.jobs": ("status", "jobs", "job", "workers"),
    "gateway.cli.inspect.logs": ("logs",),
    "gateway.cli.inspect.federation": ("sites", "pools", "deals", "explain"),
    "gateway.cli.books.report": ("report",),
    "gateway.cli.inspect.reserve": ("reserve", "reservations"),
    "gateway.cli.operate.rules": ("rules", "window"),
    "gateway.cli.operate.scale": ("scale", "pool"),
    "gateway.cli.operate.serve": ("up", "gateway", "worker"),
    "gateway.cli.inspect.shares": ("shares",),
    "gateway.cli.inspect.tariff": ("tariff",),
    "gateway.cli.operate.tokens": ("tokens",),
    "gateway.cli.inspect.windows": ("windows",),
}
_PLUG_INS: Final = "gridfed.commands"
_MODULE_OF: Final = {name: module for module, names in _COMMANDS.items() for name in names}


class _Late(click.Group):
    """A group that imports a command on first use; listing them imports all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_MODULE_OF, *importlib.metadata.entry_points(group=_PLUG_INS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULE_OF:
            return _plug_in(cmd_name)
        found = _load(_MODULE_OF[cmd_name], cmd_name)
        if cmd_name == "report" and isinstance(found, click.Group):
            found.add_command(_load("gateway.cli.books.page", "page"))
        return found


def _load(module: str, name: str) -> click.Command:
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, click.Command)
    return found


def _plug_in(name: str) -> click.Command | None:
    for each in importlib.metadata.entry_points(group=_PLUG_INS, name=name):
        module, _, attribute = each.value.partition(":")
        return _load(module, attribute)
    return None


@click.group(cls=_Late, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="gridfed")
def cli() -> None:
    """A federated meta-scheduler: one thin layer over the grids you already have.

    Start one with `gridfed up`; then, in Python: `from federation import Client`.
    """


def run() -> int:
    """Run the command line; return the exit code."""
    result = cli(standalone_mode=True)
    return int(result or 0)
