"""FOCUS rows as CSV and as Parquet."""

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gateway.ledger.exports.focus import PLACES, Row
from gateway.ledger.exports.focus_columns import EXPORTED, VERSION, Column
from gateway.ledger.output.formulas import cell

_ROWS_AT_ONCE: Final = 20_000
_DIGITS: Final = 38  # the limit of Parquet readers
_COST_PLACES: Final = 9


class ParquetMissing(Exception):
    """The package that writes Parquet is not installed."""


def csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield CSV (RFC 4180): a header, then the rows; an empty cell is null.

    A text that a spreadsheet would take for a formula is prefixed with an apostrophe
    (formulas.cell).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([column.name for column in EXPORTED])
    for row in rows:
        writer.writerow([_csv_cell(*pair) for pair in zip(EXPORTED, row, strict=True)])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()  # the header, if there are no rows


def _csv_cell(column: Column, value: str | None) -> str:
    if value is None:
        return ""
    return cell(value) if column.kind == "text" else value


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write a Parquet file, a group of rows at a time: costs as decimals, times as UTC timestamps.

    Raises ParquetMissing.
    """
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise ParquetMissing(
            "Parquet requires pyarrow, which is not installed: pip install 'gridfed[parquet]'"
        ) from None
    types: dict[str, Any] = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }

    def type_of(column: Column) -> Any:
        if column.kind != "decimal":
            return types[column.kind]
        is_cost = column.name.endswith("Cost")
        return pyarrow.decimal128(_DIGITS, _COST_PLACES if is_cost else PLACES)

    schema = pyarrow.schema(
        [
            pyarrow.field(column.name, type_of(column), nullable=column.is_nullable)
            for column in EXPORTED
        ],
        metadata={"FocusVersion": VERSION},
    )
    waiting = iter(rows)
    with ParquetWriter(path, schema) as writer:
        while page := list(islice(waiting, _ROWS_AT_ONCE)):
            columns = [
                pyarrow.array([_value(column, each) for each in values], field.type)
                for column, field, values in zip(
                    EXPORTED, schema, zip(*page, strict=True), strict=True
                )
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


def _value(column: Column, value: str | None) -> str | Decimal | datetime | None:
    if value is None or column.kind in ("text", "json"):
        return value
    return Decimal(value) if column.kind == "decimal" else datetime.fromisoformat(value)
