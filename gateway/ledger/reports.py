"""Usage and cost as tables of exact integers, and as CSV and JSON.

A report has one row for each combination of the asked dimensions and a currency: amounts of
different currencies are never added. Each usage record is in exactly one row, so that for each
currency the rows sum up to the records, to the nano-unit. `totals` has the same columns, one row
for each currency, with None for the dimensions.

Columns: the dimensions in the order asked for (`user`, `project`, `pool`, `job`, `name`; `day` as
the UTC date on which the tasks ended, 2026-11-20), `currency`, then

usage: `records`, `tasks` (runs: a task that ran twice counts twice), `wall_ns` (slot time),
`cpu_ns`, `peak_memory_bytes` (the largest of a record), `cost_nanos`, `cost`.
cost: `cost_nanos`, `cost`.

`cost_nanos` is an integer, 10**9 to one unit of the currency. `cost` is the same amount as an
exact decimal number in a string, for readers whose numbers are floats.

CSV (RFC 4180): a header line, then the rows; no totals, so that a column can be summed. Texts
that a spreadsheet would take for a formula get an apostrophe in front. JSON: {"columns": [...],
"rows": [{column: value}], "totals": [{column: value}]}.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from typing import Final

from federation.money import format_amount

from .store import Dimension, Store, UsageTotal

Cell = str | int | None

_USAGE_COLUMNS: Final = ("records", "tasks", "wall_ns", "cpu_ns", "peak_memory_bytes")
_COST_COLUMNS: Final = ("cost_nanos", "cost")
_FIRST_DAY: Final = date(1970, 1, 1)
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Report:
    """A table: `rows` in the order of their dimensions, and `totals`, one row a currency."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[tuple[Cell, ...], ...]


def usage_report(
    store: Store, by: Sequence[str], start_s: float | None = None, end_s: float | None = None
) -> Report:
    """Report what ran to its end in [start_s, end_s), UTC epoch seconds, None for no bound.

    Raises ValueError, naming the choices, for a dimension that is none.
    """
    return _report(store, by, start_s, end_s, with_usage=True)


def cost_report(
    store: Store, by: Sequence[str], start_s: float | None = None, end_s: float | None = None
) -> Report:
    """Report what was charged in [start_s, end_s); as `usage_report`, the cost only."""
    return _report(store, by, start_s, end_s, with_usage=False)


def to_csv(report: Report) -> str:
    """Render the rows as CSV with a header, safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(report.columns)
    writer.writerows([_safe(cell) for cell in row] for row in report.rows)
    return text.getvalue()


def to_json(report: Report) -> str:
    """Render the rows and the totals as JSON."""
    named = {
        name: [dict(zip(report.columns, row, strict=True)) for row in rows]
        for name, rows in (("rows", report.rows), ("totals", report.totals))
    }
    return json.dumps({"columns": report.columns, **named}, indent=2)


def _report(
    store: Store,
    by: Sequence[str],
    start_s: float | None,
    end_s: float | None,
    *,
    with_usage: bool,
) -> Report:
    dimensions = _dimensions(by)
    found = store.usage_totals(dimensions, start_s, end_s)
    numbers = (*(_USAGE_COLUMNS if with_usage else ()), *_COST_COLUMNS)
    return Report(
        columns=(*(dimension.value for dimension in dimensions), "currency", *numbers),
        rows=tuple(_row(dimensions, total, with_usage) for total in found),
        totals=tuple(
            (*(None for _ in dimensions), *_row((), total, with_usage)) for total in _totals(found)
        ),
    )


def _dimensions(by: Sequence[str]) -> tuple[Dimension, ...]:
    choices = {dimension.value: dimension for dimension in Dimension}
    for name in by:
        if name not in choices:
            raise ValueError(f"no report by {name!r}: choose from {', '.join(choices)}")
    return tuple(choices[name] for name in dict.fromkeys(by))


def _row(dimensions: Sequence[Dimension], total: UsageTotal, with_usage: bool) -> tuple[Cell, ...]:
    key = (
        (_FIRST_DAY + timedelta(days=int(value))).isoformat()
        if dimension is Dimension.DAY
        else value
        for dimension, value in zip(dimensions, total.key, strict=True)
    )
    usage = [getattr(total, name) for name in _USAGE_COLUMNS] if with_usage else []
    return (*key, total.currency, *usage, total.cost_nanos, format_amount(total.cost_nanos))


def _totals(found: Iterable[UsageTotal]) -> list[UsageTotal]:
    """Sum up the rows themselves: what stands below a table is the sum of what stands in it."""
    by_currency = groupby(sorted(found, key=_currency), key=_currency)
    return [_sum(currency, list(group)) for currency, group in by_currency]


def _currency(total: UsageTotal) -> str:
    return total.currency


def _sum(currency: str, totals: Sequence[UsageTotal]) -> UsageTotal:
    return UsageTotal(
        key=(),
        currency=currency,
        records=sum(total.records for total in totals),
        tasks=sum(total.tasks for total in totals),
        wall_ns=sum(total.wall_ns for total in totals),
        cpu_ns=sum(total.cpu_ns for total in totals),
        peak_memory_bytes=max(total.peak_memory_bytes for total in totals),
        cost_nanos=sum(total.cost_nanos for total in totals),
    )


def _safe(cell: Cell) -> Cell:
    if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS):
        return f"'{cell}"
    return cell
