"""Reports as CSV, JSON and Parquet: exact, and nothing that a spreadsheet would run."""

import builtins
import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.books_desk import MARGIN_COLUMNS, STATEMENT_COLUMNS
from gateway.ledger.reports import NoParquet, ReportTable, named_rows, to_csv, write_parquet
from gateway.ledger.reports.report import is_decimal, is_whole, ratio, spread

COLUMNS = ("user", "currency", "cost_nanos", "cost")


def made(*rows: tuple[Any, ...]) -> ReportTable:
    return ReportTable(
        COLUMNS, rows, ((None, "USD", 1, "0.000000001"),), {"as_of_s": 1.5}, ("a note",)
    )


def cells(report: ReportTable) -> list[list[str]]:
    return list(csv.reader(io.StringIO(to_csv(report), newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_csv_cell_is_never_a_formula(text: str) -> None:
    assert cells(made((text, "USD", 1, "1"))) == [list(COLUMNS), [f"'{text}", "USD", "1", "1"]]


def test_an_amount_below_zero_is_no_formula() -> None:
    assert cells(made(("ada", "USD", -1, "-0.000000001")))[1] == [
        "ada",
        "USD",
        "-1",
        "-0.000000001",
    ]


def test_csv_keeps_awkward_texts_and_has_no_totals() -> None:
    report = made(('a,"b"ç', "USD", None, None))
    assert cells(report)[1:] == [['a,"b"ç', "USD", "", ""]]


@pytest.mark.parametrize("text", ["\tx", "\rx", "a\nb", "\x1b[2J"])
def test_control_characters_are_written_out_in_a_csv(text: str) -> None:
    """A terminal shows it as well, and there they would act."""
    assert cells(made((text, "USD", 1, "1")))[1][0] == repr(text)[1:-1]


def test_a_csv_of_nothing_has_its_header() -> None:
    assert to_csv(made()) == "user,currency,cost_nanos,cost\r\n"


def test_named_rows_have_exact_integers_and_decimals() -> None:
    report = made(("ada", "USD", 2**70, "9223372036.854775807"))
    rows, totals = named_rows(report)
    amounts = {"cost_nanos": 2**70, "cost": "9223372036.854775807"}
    assert json.loads(json.dumps(rows)) == [{"user": "ada", "currency": "USD", **amounts}]
    amounts = {"cost_nanos": 1, "cost": "0.000000001"}
    assert totals == [{"user": None, "currency": "USD", **amounts}]


def test_parquet_is_exact_beyond_64_bits(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "report.parquet"
    write_parquet(made(("=1+1", "USD", 2**70, "1.000000001"), (None, "EUR", -1, None)), path)
    table = parquet.read_table(path)
    assert table.column_names == list(COLUMNS)
    assert table.to_pylist() == [
        {
            "user": "=1+1",
            "currency": "USD",
            "cost_nanos": Decimal(2**70),
            "cost": Decimal("1.000000001"),
        },
        {"user": None, "currency": "EUR", "cost_nanos": Decimal(-1), "cost": None},
    ]
    # The same columns have the same types, whatever is in them: files can be joined.
    write_parquet(made(), tmp_path / "empty.parquet")
    assert parquet.read_schema(tmp_path / "empty.parquet") == table.schema


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("ada", "USD", 10**40, "1"), "cost_nanos does not fit"),
        (("\ud800", "USD", 1, "1"), "user does not fit"),
    ],
)
def test_what_parquet_can_not_take_is_told(
    tmp_path: Path, row: tuple[Any, ...], complaint: str
) -> None:
    pytest.importorskip("pyarrow.parquet")
    with pytest.raises(NoParquet, match=complaint):
        write_parquet(made(row), tmp_path / "x.parquet")


def test_every_number_of_a_statement_is_written_as_one() -> None:
    texts = {each for each in STATEMENT_COLUMNS if not (is_whole(each) or is_decimal(each))}
    assert texts == {"site", "currency", "agreed_until", "closed_until", "rules"}
    texts = {each for each in MARGIN_COLUMNS if not (is_whole(each) or is_decimal(each))}
    assert texts == {"sold_to", "bought_from", "job", "currency"}


def test_without_pyarrow_parquet_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NoParquet, match=r"gridfed\[parquet\]"):
        write_parquet(made(), tmp_path / "x.parquet")


@given(
    st.integers(-(10**30), 10**30),
    st.lists(st.integers(0, 10**25), min_size=1, max_size=20).filter(any),
)
def test_parts_sum_up_to_the_whole_and_are_in_proportion(amount: int, weights: list[int]) -> None:
    parts = spread(amount, weights)
    assert sum(parts) == amount
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * whole - amount * weight) < whole


def test_quotients_are_rounded_to_nine_digits() -> None:
    assert [ratio(1, 3), ratio(2, 3), ratio(-1, 3), ratio(6, 3)] == [
        "0.333333333",
        "0.666666667",
        "-0.333333333",
        "2",
    ]
