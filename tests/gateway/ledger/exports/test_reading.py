"""What is read for an export is what the books have, in both databases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from exports_support import SITE
from postgres import Postgres
from sqlalchemy import Connection

from gateway.ledger import journal
from gateway.ledger.audit import audit
from gateway.ledger.database import opened, snapshot, transaction
from gateway.ledger.exports import apel, reading
from gateway.ledger.exports.focus import charges
from gateway.ledger.exports.focus_columns import EXPORTED
from gateway.ledger.postings import Transfer, transfers_of
from gateway.ledger.records import UsageRecord
from gateway.ledger.store import SqlStore

COLUMN = {column.name: place for place, column in enumerate(EXPORTED)}
END_S = 1_700_000_001.5


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def records(usage: Callable[..., UsageRecord]) -> list[UsageRecord]:
    big = 2**62  # three of them are more than an integer of a database holds
    return [
        usage(job="b", list_cost_nanos=20_000, group="desk", window="night", tags="gpu"),
        *(usage(job="a", first=10 * n, cost_nanos=big, wall_ns=big, cpu_ns=1) for n in range(3)),
        usage(job="a/x", user="=1", ended_at_s=END_S + 3_600, cost_nanos=7, currency="EUR"),
        usage(job="tokyo:c-1/2", ended_at_s=END_S + 7_200, cost_nanos=1_000),
        usage(job="d", pool="paris/gpu", ended_at_s=END_S + 40 * 86_400, cost_nanos=300),
        usage(job="e", state="repeat", cost_nanos=0, ended_at_s=END_S - 1),
    ]


@pytest.fixture
def books(url: str, records: list[UsageRecord], commit: Callable[..., None]) -> str:
    store = SqlStore(url)
    commit(store, *records)
    store.close()
    return url


def reverse(url: str, monkeypatch: pytest.MonkeyPatch, *found: Transfer) -> None:
    """Book reversals, as nobody orders them yet."""
    monkeypatch.setattr(journal, "transfers_of", lambda transfer: (transfer,))
    with opened(url) as database:
        books = journal.Journal(database.writing)
        with transaction(database.writing):
            for sql, parameters in books.statements(found):  # type: ignore[arg-type]
                database.writing.exec_driver_sql(sql, parameters)
        books.committed()


def taken_back(record: UsageRecord, amount_nanos: int, at_s: float) -> Transfer:
    [charge] = transfers_of(record)
    return Transfer(
        f"reverse/{charge.key}",
        "reversal",
        charge.credit,
        charge.debit,
        amount_nanos,
        at_s,
        charge.key,
    )


@contextmanager
def reader(url: str) -> Iterator[Connection]:
    with snapshot(url) as connection:
        yield connection


def billed(connection: Connection, *period: Any) -> dict[str, int]:
    """What is billed in nano-units, by currency."""
    hours = reading.hours(connection)
    found: dict[str, int] = {}
    for row in charges(SITE, hours, reading.corrections(connection, *period)):
        nanos = Fraction(row[COLUMN["BilledCost"]] or 0) * 10**9
        currency = row[COLUMN["BillingCurrency"]] or ""
        assert nanos.denominator == 1
        found[currency] = found.get(currency, 0) + int(nanos)
    return found


def booked(connection: Connection) -> dict[str, int]:
    """What users and sites were charged: balances of whoever pays, by currency."""
    found: dict[str, int] = {}
    for account, balance in journal.balances(connection).items():
        if account.kind in ("user", "sold"):
            found[account.currency] = found.get(account.currency, 0) + balance.net_nanos
    return found


def test_hours_are_the_books_to_the_nano_unit(books, records):
    with reader(books) as connection:
        hours = list(reading.hours(connection))
        assert billed(connection) == booked(connection)
        assert audit(connection).is_clean
    assert sum(each.records for each in hours) == len(records)
    assert sum(each.cost_nanos for each in hours) == sum(each.cost_nanos for each in records)
    assert sum(each.wall_ns for each in hours) > 2**63
    assert [each.hour for each in hours] == sorted(each.hour for each in hours)
    first = next(each for each in hours if each.group == "desk")
    assert (first.window, first.tags, first.list_cost_nanos) == ("night", "gpu", 20_000)


def test_a_charge_that_is_taken_back_is_taken_off(books, records, monkeypatch):
    desk, sold, bought = records[0], records[5], records[6]
    reverse(
        books,
        monkeypatch,
        taken_back(desk, desk.cost_nanos, END_S + 60),
        taken_back(sold, 400, END_S + 40 * 86_400),
        taken_back(bought, 300, END_S + 41 * 86_400),
    )
    with reader(books) as connection:
        assert billed(connection) == booked(connection)
        first, second, third = reading.corrections(connection)
        assert [each.corrects for each in reading.corrections(connection, END_S + 61)] == [
            *("use/tokyo:c-1/2/0/0", "use/d/0/0")
        ]
        assert not list(reading.corrections(connection, None, END_S))
    assert (first.user, first.project, first.origin) == ("ada", "risk", "")
    assert (first.pool, first.site, first.corrected_at_s) == ("local", "", END_S)
    assert first.run is not None
    assert (first.run.group, first.run.cost_nanos) == ("desk", 16_667)
    assert (second.user, second.origin, second.amount_nanos) == ("", "tokyo", 400)
    assert (third.user, third.site, third.pool) == ("ada", "paris", "")


def test_runs_come_as_they_ended_and_within_bounds(books, records):
    with reader(books) as connection:
        assert [each.job for each in reading.runs(connection)] == [
            *("e", "a", "a", "a", "b", "a/x", "tokyo:c-1/2", "d")
        ]
        assert [each.job for each in reading.runs(connection, ran_here=True)][-1] == "tokyo:c-1/2"
        within = reading.runs(connection, END_S, END_S + 3_600)
        assert [each.first for each in within] == [0, 10, 20, 0]
        hour = records[0].hour
        assert {each.hour for each in reading.hours(connection, hour, hour + 1)} == {hour}
        assert all(not each.site for each in reading.hours(connection, ran_here=True))


def test_what_is_counted_is_what_is_listed(books):
    with reader(books) as connection:
        listed = "".join(apel.job_messages(SITE, reading.runs(connection)))
        counted = "".join(apel.sync_messages(SITE, reading.hours(connection)))
    jobs = [line for line in counted.splitlines() if line.startswith("NumberOfJobs")]
    assert sum(int(line.split()[1]) for line in jobs) == listed.count("%%\n")


def test_an_export_that_is_not_read_to_its_end_lets_go(books):
    with reader(books) as connection:
        runs = reading.runs(connection)
        next(runs)
        runs.close()
        assert len(list(reading.hours(connection)))
