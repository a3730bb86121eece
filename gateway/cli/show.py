"""How the command line prints: tables for people, JSON for programs, no control characters."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_PIPED_CHARS: Final = 10_000  # of a line that goes to a file: none is as long


def console() -> Console:
    """A console that never cuts what is piped away."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPED_CHARS, no_color=True)


def as_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def clean(value: Any) -> str:
    """A cell as text: what others chose as a name must not move the cursor or fake markup."""
    if value is None:
        return ""
    return escape("".join(char if char.isprintable() else "�" for char in str(value)))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """Print rows; a sentence when there are none."""
    if not rows:
        click.echo(empty)
        return
    shown = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*(clean(cell) for cell in row))
    console().print(shown)


def when(epoch_s: float | None) -> str:
    """A moment, UTC."""
    if epoch_s is None:
        return ""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str) -> str:
    """So many of them, in words: `1 slot`, `2,000 slots`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(ns: int) -> str:
    """A duration given in nanoseconds, in seconds."""
    return f"{ns / 1e9:,.3f}"
