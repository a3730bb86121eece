"""Reports as CSV, maps for JSON, and Parquet, exact in each.

CSV (RFC 4180): a header line, then the rows; no totals, so that a column can be summed. Texts that
a spreadsheet would take for a formula, or that begin with an apostrophe, are prefixed with one.
Maps: {column: value} for each row and each total.
Parquet: the rows; whole numbers are decimal128(38, 0), decimal numbers decimal128(38, 9), both
exact; other columns are text.
"""

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from federation.errors import GridError
from federation.words import clean
from gateway.ledger.output import formulas
from gateway.ledger.reports.report import Cell, ReportTable, is_decimal, is_whole

_DIGITS: Final = 38  # the capacity of 128 bits


class NoParquet(GridError):
    """A report can't be written as Parquet; the text gives the reason."""


def to_csv(report: ReportTable) -> str:
    """Render the rows as CSV with a header, safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([_safe(name, "") for name in report.columns])
    for row in report.rows:
        writer.writerow([_safe(*pair) for pair in zip(row, report.columns, strict=True)])
    return text.getvalue()


def named_rows(report: ReportTable) -> tuple[list[dict[str, Cell]], list[dict[str, Cell]]]:
    """Return the rows and the totals, each as a map of its columns."""
    rows, totals = (
        [dict(zip(report.columns, row, strict=True)) for row in part]
        for part in (report.rows, report.totals)
    )
    return rows, totals


def write_parquet(report: ReportTable, path: Path) -> None:
    """Write the rows to a file.

    Raises NoParquet when gridfed[parquet] is missing or a column does not fit, and OSError.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NoParquet("Parquet needs pyarrow: pip install 'gridfed[parquet]'") from None
    columns, kinds = [], []
    for at, name in enumerate(report.columns):
        cells: list[Any] = [row[at] for row in report.rows]
        if is_whole(name) or is_decimal(name):
            kind = pyarrow.decimal128(_DIGITS, 0 if is_whole(name) else 9)
            cells = [None if cell is None else Decimal(cell) for cell in cells]
        else:
            kind = pyarrow.string()
        try:
            columns.append(pyarrow.array(cells, kind))
        except (pyarrow.ArrowInvalid, UnicodeEncodeError) as error:
            raise NoParquet(f"column {name} does not fit into Parquet: {error}") from None
        kinds.append(pyarrow.field(name, kind))
    table = pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(kinds))
    pyarrow.parquet.write_table(table, path)


def _safe(cell: Cell, column: str) -> Cell:
    """Return a cell that no spreadsheet runs and no terminal obeys; a number may be below zero."""
    if isinstance(cell, str) and not is_decimal(column):
        return formulas.cell(clean(cell))
    return cell
