"""Reports: every record in one row, every sum exact, nothing that a spreadsheet would run."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.ledger.records import UsageRecord
from gateway.ledger.reports import Report, cost_report, to_csv, to_json, usage_report
from gateway.ledger.store import Dimension, SqlStore, Store

Commit = Callable[..., None]
Usage = Callable[..., UsageRecord]

MIDNIGHT_S = datetime(2026, 11, 20, tzinfo=UTC).timestamp()


def test_usage_by_user_with_its_totals(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        usage(first=0, wall_ns=1, cpu_ns=2, peak_memory_bytes=7, cost_nanos=10**9),
        usage(first=1, wall_ns=10, cpu_ns=20, peak_memory_bytes=5, cost_nanos=1),
        usage(first=2, user="bob", currency="EUR", wall_ns=5, cpu_ns=5, cost_nanos=5 * 10**8),
    )
    report = usage_report(store, ["user"])
    assert report == Report(
        columns=(
            *("user", "currency", "records", "tasks", "wall_ns", "cpu_ns", "peak_memory_bytes"),
            *("cost_nanos", "cost"),
        ),
        rows=(
            ("ada", "USD", 2, 20, 11, 22, 7, 10**9 + 1, "1.000000001"),
            ("bob", "EUR", 1, 10, 5, 5, 2**20, 5 * 10**8, "0.5"),
        ),
        totals=(
            (None, "EUR", 1, 10, 5, 5, 2**20, 5 * 10**8, "0.5"),
            (None, "USD", 2, 20, 11, 22, 7, 10**9 + 1, "1.000000001"),
        ),
    )


def test_cost_by_day_ends_at_midnight_utc(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        usage(first=0, ended_at_s=MIDNIGHT_S - 0.001, cost_nanos=1),
        usage(first=1, ended_at_s=MIDNIGHT_S, cost_nanos=2),
    )
    report = cost_report(store, ["day"])
    assert report.columns == ("day", "currency", "cost_nanos", "cost")
    assert [row[:3] for row in report.rows] == [("2026-11-19", "USD", 1), ("2026-11-20", "USD", 2)]
    assert cost_report(store, ["day"], MIDNIGHT_S).rows == report.rows[1:]
    assert cost_report(store, ["day"], None, MIDNIGHT_S).rows == report.rows[:1]


def test_without_dimensions_a_report_is_its_totals(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage())
    report = cost_report(store, [])
    assert report.rows == report.totals == (("USD", 16_667, "0.000016667"),)


def test_a_report_of_nothing_is_empty(store: Store) -> None:
    report = usage_report(store, ["user"])
    assert (report.rows, report.totals) == ((), ())
    assert to_csv(report).count("\n") == 1


def test_a_dimension_is_asked_for_once_however_often(store: Store) -> None:
    assert cost_report(store, ["pool", "user", "pool"]).columns[:3] == ("pool", "user", "currency")


def test_an_unknown_dimension_is_refused_with_the_choices(store: Store) -> None:
    with pytest.raises(ValueError, match="no report by 'users; DROP': choose from user, group"):
        usage_report(store, ["users; DROP"])


AMOUNTS = st.integers(0, 2**63 - 1) | st.integers(0, 10**6)
DETAILS = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ada", "bob", "", "=1+1", "é\n,"]),
        "project": st.sampled_from(["risk", "desk"]),
        "pool": st.sampled_from(["local", "cloud"]),
        "job": st.sampled_from(["job-1", "job-2"]),
        "name": st.sampled_from(["var", "greeks"]),
        "ended_at_s": st.sampled_from([MIDNIGHT_S + n for n in (-86_400.0, -1e-6, 0.0, 86_399.9)]),
        "currency": st.sampled_from(["USD", "EUR", "JPY"]),
        "tasks": AMOUNTS,
        "wall_ns": AMOUNTS,
        "cpu_ns": AMOUNTS,
        "cost_nanos": AMOUNTS,
    }
)
SUMMED = ("tasks", "wall_ns", "cpu_ns", "cost_nanos")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    details=st.lists(DETAILS, max_size=30),
    by=st.lists(st.sampled_from([dimension.value for dimension in Dimension]), unique=True),
    bounds=st.tuples(*[st.none() | st.sampled_from([MIDNIGHT_S - 100, MIDNIGHT_S])] * 2),
)
def test_the_rows_sum_up_to_the_records_to_the_nano_unit(
    usage: Usage,
    details: list[dict[str, Any]],
    by: list[str],
    bounds: tuple[float | None, float | None],
) -> None:
    records = [usage(first=n, **fields) for n, fields in enumerate(details)]
    with TemporaryDirectory() as directory:
        store = SqlStore(f"sqlite:///{Path(directory) / 'ledger.db'}")
        written = Event()
        store.write(records, False, written.set)
        assert written.wait(20)
        report = usage_report(store, by, *bounds)
        costs = cost_report(store, by, *bounds)
        store.close()

    start_s, end_s = bounds
    within = [
        record
        for record in records
        if (start_s is None or record.ended_at_s >= start_s)
        and (end_s is None or record.ended_at_s < end_s)
    ]
    expected: Counter[tuple[str, str]] = Counter()
    for record in within:
        for name in SUMMED:
            expected[record.currency, name] += getattr(record, name)
        expected[record.currency, "records"] += 1
    for rows in (report.rows, report.totals):
        summed: Counter[tuple[str, str]] = Counter()
        for row in rows:
            cells: dict[str, Any] = dict(zip(report.columns, row, strict=True))
            for name in (*SUMMED, "records"):
                summed[cells["currency"], name] += cells[name]
        assert summed == expected
    # One row for each key and currency, and the cost report says the same of them.
    keys = [row[: len(by) + 1] for row in report.rows]
    assert len(set(keys)) == len(keys)
    assert [(*row[: len(by) + 1], *row[-2:]) for row in report.rows] == list(costs.rows)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_a_csv_cell_is_never_a_formula(
    store: Store, commit: Commit, usage: Usage, text: str
) -> None:
    commit(store, usage(user=text))
    rows = list(csv.reader(io.StringIO(to_csv(cost_report(store, ["user"])), newline="")))
    assert rows == [
        ["user", "currency", "cost_nanos", "cost"],
        [f"'{text}", "USD", "16667", "0.000016667"],
    ]


def test_csv_keeps_awkward_texts(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, usage(user='a,"b"\nç'))
    rows = list(csv.reader(io.StringIO(to_csv(cost_report(store, ["user"])), newline="")))
    assert rows[1][0] == 'a,"b"\nç'


def test_json_has_exact_integers_and_an_exact_decimal(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(cost_nanos=2**63 - 1))
    row = {"cost_nanos": 2**63 - 1, "cost": "9223372036.854775807", "currency": "USD"}
    assert json.loads(to_json(cost_report(store, ["user"]))) == {
        "columns": ["user", "currency", "cost_nanos", "cost"],
        "rows": [{"user": "ada", **row}],
        "totals": [{"user": None, **row}],
    }
