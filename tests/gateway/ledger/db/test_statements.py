"""Records become statements in order, with few shapes, in both dialects."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite

from gateway.ledger.accounting.summaries import Summaries
from gateway.ledger.db.jobs.records import (
    AttachedLost,
    BundleKept,
    FunctionKept,
    JobClosedRecord,
    JobEnded,
    JobForgotten,
    JobOpenedRecord,
    OutcomeKept,
)
from gateway.ledger.db.statements import SqlStatements
from gateway.ledger.db.usage.records import UsageRecord

Usage = Callable[..., UsageRecord]


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    if request.param == "sqlite":
        return sqlite.dialect(paramstyle="qmark")
    return postgresql.dialect(paramstyle="format")


def test_every_parameter_has_its_place_and_no_value_is_in_the_sql(
    dialect: Dialect, usage: Usage
) -> None:
    records: list[Any] = [
        FunctionKept(b"f", b"odd"),
        JobOpenedRecord("odd", "odd", "odd", "odd", True, b"odd", 1.0, b"odd"),
        JobClosedRecord("odd", 1),
        *(BundleKept("odd", n, 1, b"odd") for n in range(9)),
        *(usage(job="odd", first=n, user="odd") for n in range(300)),
        OutcomeKept("odd", 0, 1, b"odd"),
        JobEnded("odd", "odd", "odd", 1.0, 1, 1, 1),
        JobForgotten("odd"),
        AttachedLost(1.0),
    ]
    mark = "?" if dialect.name == "sqlite" else "%s"
    for sql, parameters in SqlStatements(dialect).of(records, durable=True):
        assert sql.count(mark) == len(parameters)
        assert "odd" not in sql


def test_rows_share_statements_of_few_sizes_and_keep_their_order(
    dialect: Dialect, usage: Usage
) -> None:
    statements = SqlStatements(dialect).of([usage(first=n) for n in range(301)], durable=False)
    width = len(statements[-1][1])
    assert [len(parameters) // width for _, parameters in statements] == [256, 32, 4, 4, 4, 1]
    firsts = [
        parameters[at] for _, parameters in statements for at in range(1, len(parameters), width)
    ]
    assert firsts == [*range(301)]


def test_records_of_different_kinds_stay_in_order(dialect: Dialect, usage: Usage) -> None:
    records = [JobClosedRecord("a", 1), usage(), JobClosedRecord("b", 1), JobClosedRecord("c", 1)]
    statements = SqlStatements(dialect).of(records, durable=False)
    assert [sql.split()[0] for sql, _ in statements] == ["UPDATE", "INSERT", "UPDATE", "UPDATE"]
    assert [parameters[1] for _, parameters in statements] == ["a", 0, "b", "c"]


def test_sums_share_statements_too_and_no_key_is_in_one_twice(
    dialect: Dialect, usage: Usage
) -> None:
    records = [usage(first=n, user=f"u{n % 301}") for n in range(602)]
    statements = Summaries(dialect).statements(records)
    width = len(statements[-1][1])
    assert [len(parameters) // width for _, parameters in statements] == [256, 32, 4, 4, 4, 1]
    mark = "?" if dialect.name == "sqlite" else "%s"
    assert all(sql.count(mark) == len(parameters) for sql, parameters in statements)
    users = [
        parameters[at] for _, parameters in statements for at in range(1, len(parameters), width)
    ]
    assert users == [f"u{n}" for n in range(301)]
