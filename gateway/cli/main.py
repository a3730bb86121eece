"""The `gridfed` command: its verbs, and the handling of wrong ones.

An adapter adds a command of its own by an entry point of the group `gridfed.commands`.
"""

import importlib
import importlib.metadata
from difflib import get_close_matches
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
    "gateway.cli.operate.found": ("init",),
    "gateway.cli.inspect.jobs": ("status", "jobs", "job", "workers"),
    "gateway.cli.inspect.logs": ("logs",),
    "gateway.cli.inspect.objects": ("objects",),
    "gateway.cli.inspect.federation": ("sites", "pools", "deals", "explain"),
    "gateway.cli.books.report": ("report",),
    "gateway.cli.inspect.reserve": ("reserve", "reservations"),
    "gateway.cli.operate.rules.rules": ("rules",),
    "gateway.cli.operate.rules.window": ("window",),
    "gateway.cli.operate.scale": ("scale", "pool"),
    "gateway.cli.operate.serve": ("up", "gateway"),
    "gateway.cli.operate.worker": ("worker",),
    "gateway.cli.inspect.shares": ("shares",),
    "gateway.cli.inspect.tariff": ("tariff",),
    "gateway.cli.operate.trust.members": (
        *("invite", "join", "approve", "leave", "expel", "keep", "known"),
    ),
    "gateway.cli.operate.trust.rights": ("trust",),
    "gateway.cli.operate.trust.rotation": ("rotate",),
    "gateway.cli.operate.trust.tokens": ("token", "tokens"),
    "gateway.cli.inspect.windows": ("windows",),
}
# The sections of `gridfed --help`. A command of none of them is in that of its module's folder.
_SECTIONS: Final = {
    "Daily": (
        *("status", "jobs", "job", "cancel", "forget", "explain", "workers", "pools", "sites"),
        *("objects", "can", "budgets", "shares", "reserve", "reservations"),
    ),
    "Operator": (
        *("init", "up", "gateway", "worker", "reload", "drain", "scale", "pool", "windows"),
        *("window", "rules", "tariff", "alerts", "token", "rotate"),
    ),
    "Federation": (
        *("invite", "join", "approve", "trust", "known", "deals", "leave", "expel", "keep"),
    ),
    "Books": (
        *("report", "export", "deliveries", "reconcile", "disputes", "dispute", "answer"),
        *("settle", "payments", "audit", "db"),
    ),
}
# Commands of other systems, and their names here.
_HABITS: Final = {
    "undrain": "gridfed drain --resume WORKER",
    "resume": "gridfed release JOB` (a job) or `gridfed drain --resume WORKER",
    "uncordon": "gridfed drain --resume WORKER",
    "suspend": "gridfed hold JOB",
    "unhold": "gridfed release JOB",
    "kill": "gridfed cancel JOB --stop",
    "scancel": "gridfed cancel JOB",
    "qdel": "gridfed cancel JOB",
    "squeue": "gridfed jobs",
    "qstat": "gridfed jobs",
    "queue": "gridfed jobs",
    "sinfo": "gridfed status",
    "nodes": "gridfed workers",
    "log": "gridfed logs JOB",
    "results": "gridfed job JOB` (its state) or in Python `client.job(JOB).results()",
    "result": "gridfed job JOB` (its state) or in Python `client.job(JOB).results()",
    "bill": "gridfed report",
    "cost": "gridfed report",
    "start": "gridfed up` or `gridfed gateway",
    "serve": "gridfed gateway",
    "run": "gridfed up",
    "users": "gridfed tokens list",
    "price": "gridfed tariff show",
    "prioritize": "gridfed prioritise JOB N",
    "priority": "gridfed prioritise JOB N",
}
_SECTION_OF: Final = {name: section for section, names in _SECTIONS.items() for name in names}
_FOLDERS: Final = {"inspect": "Daily", "operate": "Operator", "books": "Books"}
_PLUG_IN_SECTION: Final = "Adapters"
_HELP_CHARS_MAX: Final = 200  # of a command in the list: its first sentence
_PLUG_INS: Final = "gridfed.commands"
_MODULE_OF: Final = {name: module for module, names in _COMMANDS.items() for name in names}


class _Late(click.Group):
    """A group that imports a command on first use; listing them imports all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_MODULE_OF, *importlib.metadata.entry_points(group=_PLUG_INS).names})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections, each in the order in which it is needed."""
        rows: dict[str, list[tuple[int, str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            section = section_of(name)
            known = _SECTIONS.get(section, ())
            place = known.index(name) if name in known else len(known)
            rows.setdefault(section, []).append(
                (place, name, command.get_short_help_str(_HELP_CHARS_MAX))
            )
        for section in (*_SECTIONS, _PLUG_IN_SECTION):
            if section in rows:
                with formatter.section(section):
                    formatter.write_dl([(name, text) for _, name, text in sorted(rows[section])])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of one that does not exist, say which may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = _HABITS.get(args[0], "")
            if not meant:
                near = get_close_matches(args[0], self.list_commands(ctx), n=1)
                meant = f"gridfed {near[0]}" if near else ""
            if not meant:
                raise
            text = f"{error.message.rstrip('.')}: did you mean `{meant}`?"
            raise click.UsageError(text, error.ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULE_OF:
            return _plug_in(cmd_name)
        found = _load(_MODULE_OF[cmd_name], cmd_name)
        if cmd_name == "report" and isinstance(found, click.Group):
            found.add_command(_load("gateway.cli.books.page", "page"))
        return found


def section_of(name: str) -> str:
    """Return the section of `gridfed --help` that has a command."""
    if name in _SECTION_OF:
        return _SECTION_OF[name]
    if name not in _MODULE_OF:
        return _PLUG_IN_SECTION
    return _FOLDERS[_MODULE_OF[name].split(".")[2]]


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

    Start one with `gridfed up`; then, in Python: `from gridfed import Client`.
    """


def run() -> int:
    """Run the command line; return the exit code."""
    result = cli(standalone_mode=True)
    return int(result or 0)
