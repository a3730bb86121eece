"""Output of the command line: tables for people, JSON for programs, no control characters."""

import importlib.metadata
import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final, Literal

import click
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from federation import words
from federation.clocks import CALENDAR_END_S, UtcS
from federation.money import is_currency, rounded_amount, rounded_money
from federation.offers import show_time
from gateway.cli.shared.envelope import enveloped
from policies.calendar.periods import read_zone

_PIPED_CHARS: Final = 10_000  # of a line that goes to a file: none is as long
_GAP: Final = 2  # between columns
_EXACT: Final = "gateway.cli.exact"  # the key, in a command's context, of its option --exact
_SITE: Final = "gateway.cli.site"  # the key, in a command's context, of the site that answered
_ZONE: Final = "gateway.cli.zone"  # likewise, of the time zone of that site
# As in 1,234.5; -2.50 USD; 81.0 %; and a dash for unknown values.
_AMOUNT: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_DECIMAL: Final = re.compile(r"(-?[\d,]+)(?:\.(\d+))?(\D*)")
_NUMBER: Final = re.compile(r"\N{EN DASH}|-?[\d,]*\.?\d+( ([A-Z]{3}|%))?")


def console() -> Console:
    """Return a console that never cuts piped output."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPED_CHARS, no_color=True)


def as_json(
    value: Mapping[str, Any] | Sequence[Mapping[str, Any]], data: Mapping[str, Any] | None = None
) -> None:
    """Print the answer of a command as JSON, in the envelope of gateway.cli.shared.envelope.

    Args:
        value: a list: the rows of the command's table. A map: its data.
        data: with a list, everything that is no row.
    """
    rows = None if isinstance(value, Mapping) else value
    found = enveloped(
        version=version(),
        command=_command(),
        site=_site(),
        at_s=UtcS(time.time()),
        rows=rows,
        data=value if isinstance(value, Mapping) else data,
    )
    click.echo(json.dumps(found, indent=2, default=str))


def version() -> str:
    """Return the version of gridfed, or that it is not installed."""
    try:
        return importlib.metadata.version("gridfed")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def note_site(name: str) -> None:
    """Note the site that the running command's answer is of: its JSON names it."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_SITE] = name


def _site() -> str | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_SITE)


def _command() -> str:
    """Return the verb that runs, with its sub-command."""
    names: list[str] = []
    context = click.get_current_context(silent=True)
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)


def clean(value: Any) -> str:
    """Format a value as one line for a terminal, by federation.words.clean; None is empty."""
    return "" if value is None else words.clean(str(value))


def say(text: str = "", *, err: bool = False) -> None:
    """Print one line for people; its text can neither move the cursor nor break the line."""
    click.echo(words.clean(text), err=err)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str, *, keys: int = 0
) -> None:
    """Print rows; a sentence when there are none. Numbers are aligned to the right.

    With `keys`, the first columns, which identify a row: if a terminal is too narrow for all the
    others, they continue in further tables, each of which begins with these.
    """
    if not rows:
        say(empty)
        return
    cells = [[clean(cell) for cell in row] for row in rows]
    shown = console()
    parts = fitted(columns, cells, keys, shown.width) if keys else [list(range(len(columns)))]
    for number, part in enumerate(parts):
        if number:
            click.echo()
        shown.print(_table(columns, cells, part))


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], part: Sequence[int]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for at in part:
        own = [row[at] for row in cells]
        is_right = is_numeric(own)
        # A text may be wrapped to save room; a number must not be.
        least = max(map(cell_len, own)) if is_right else None
        side: Literal["left", "right"] = "right" if is_right else "left"
        heading = words.clean(columns[at])
        # Such a column gives up no room, or a table that is a little too wide would cut it.
        stays = least is not None and cell_len(heading) <= least
        made.add_column(escape(heading), justify=side, min_width=least, no_wrap=stays)
    for row in cells:
        made.add_row(*(escape(row[at]) for at in part))
    return made


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether all cells of a column are numbers, with or without a unit."""
    found = [cell for cell in cells if cell]
    return bool(found) and all(map(_NUMBER.fullmatch, found))


def aligned(rows: Sequence[Sequence[str]], keys: int) -> list[list[str]]:
    """Align the amounts in all columns but the first `keys`: digits stand below digits."""
    columns = [list(each) for each in zip(*rows, strict=True)]
    columns[keys:] = map(_aligned, columns[keys:])
    return [list(each) for each in zip(*columns, strict=True)]


def _aligned(cells: list[str]) -> list[str]:
    """Pad numbers of one unit to equal decimals."""
    parts = [_DECIMAL.fullmatch(cell) for cell in cells]
    places = max((len(part[2] or "") for part in parts if part), default=0)
    units = {part[3] for part in parts if part}
    if not places or len(units) > 1 or not is_numeric(cells):
        return cells
    return [
        f"{part[1]}.{(part[2] or '').ljust(places, '0')}{part[3]}" if part else cell
        for part, cell in zip(parts, cells, strict=True)
    ]


def fitted(
    columns: Sequence[str], cells: Sequence[Sequence[str]], keys: int, width: int
) -> list[list[int]]:
    """Divide columns among tables of that width, each with the first `keys` of them."""

    def room(at: int) -> int:
        words = columns[at].split() or [""]
        return _GAP + max(map(cell_len, (*words, *(row[at] for row in cells))))

    key = list(range(keys))
    key_room = sum(map(room, key)) - _GAP
    parts: list[list[int]] = []
    left = 0
    for at in range(keys, len(columns)):
        if not parts or room(at) > left:
            parts.append(list(key))
            left = width - key_room
        parts[-1].append(at)
        left -= room(at)
    return parts or [key]


def money(text: str) -> str:
    """Return a text whose amounts of money are rounded to their currency; exact with --exact."""
    return text if _is_exact() else rounded_money(text)


def amounts(cells: Sequence[str], currencies: Sequence[str]) -> list[str]:
    """Round a column of amounts: all of one currency to the same number of decimals.

    It is the currency's; more where an amount would else be shown as nothing. A cell that is no
    amount stays as it is. With --exact all do.
    """
    if _is_exact():
        return list(cells)
    pairs = [
        (cell, currency) if is_currency(currency) and _AMOUNT.fullmatch(cell) else None
        for cell, currency in zip(cells, currencies, strict=True)
    ]
    places: dict[str, int] = {}
    for cell, currency in filter(None, pairs):
        decimals = len(rounded_amount(cell, currency).partition(".")[2])
        places[currency] = max(decimals, places.get(currency, 0))
    return [
        cell if pair is None else f"{Decimal(cell):.{places[pair[1]]}f}"
        for cell, pair in zip(cells, pairs, strict=True)
    ]


def note_exact(value: bool) -> None:
    """Note whether the running command shows all digits of amounts."""
    click.get_current_context().meta[_EXACT] = value


def _is_exact() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_EXACT))


def note_zone(name: str) -> None:
    """Remember the time zone of the site that answered: times for people are shown in it."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_ZONE] = read_zone(name)


def zone() -> tzinfo:
    """Return the zone of times for people: that of the site that answered, else UTC."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_ZONE)
    return found if isinstance(found, tzinfo) else UTC


def has_zone() -> bool:
    """Whether the zone of the site is known."""
    context = click.get_current_context(silent=True)
    return context is not None and _ZONE in context.meta


def timed(heading: str) -> str:
    """Return the heading of a table's first column of times, with their zone."""
    return f"{heading}, {zone()}"


def when(epoch_s: float | None) -> str:
    """Format a time for a table whose heading is `timed`; some sites name one beyond calendars."""
    if epoch_s is None:
        return ""
    if not epoch_s < float(CALENDAR_END_S):
        return "never"
    return show_time(epoch_s, zone(), is_zoned=False)


def moment(epoch_s: float | None) -> str:
    """Format a time for a sentence, with its zone: 2026-07-01 18:00:00 BST."""
    if epoch_s is None or not epoch_s < float(CALENDAR_END_S):
        return when(epoch_s)
    return show_time(epoch_s, zone())


def hours(from_s: float | None, until_s: float | None, of_zone: tzinfo) -> str:
    """Format a span of hours in a zone, 2026-12-01 22:00 to 06:00; a missing end is left out."""
    texts = [
        f"{datetime.fromtimestamp(at_s, of_zone):{form}}"
        for at_s, form in ((from_s, "%Y-%m-%d %H:%M"), (until_s, "%H:%M"))
        if at_s is not None and at_s < float(CALENDAR_END_S)
    ]
    return " to ".join(texts)


def clock(at_s: int) -> str:
    """Format a time of day, in seconds since midnight, as 17:30, with seconds if it has any."""
    seconds = f":{at_s % 60:02}" if at_s % 60 else ""
    return f"{at_s // 3600:02}:{at_s // 60 % 60:02}{seconds}"


def utc(epoch_s: float) -> str:
    """Format a time for programs: 2026-07-01T17:00:00Z."""
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def ago(epoch_s: float | None, now_s: float) -> str:
    """Format how long ago a moment was, in the largest unit that there is one of; None is empty."""
    if epoch_s is None or not epoch_s < float(CALENDAR_END_S):
        return ""
    return words.age_text(now_s - epoch_s)


def seconds(ns: int | str) -> str:
    """Format a duration in nanoseconds as seconds; it is text if it has over 63 bits."""
    return f"{int(ns) / 1e9:,.3f}"
