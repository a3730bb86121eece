"""Numbers and texts that a database can't hold are refused at their source."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.ledger.db.alerts.records import AlertEnded, AlertFired
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.drains.records import DrainEnded, DrainKept
from gateway.ledger.db.jobs.records import (
    AttachedLost,
    BundleKept,
    EndOrdered,
    JobClosedRecord,
    JobEnded,
    JobForgotten,
    JobOpenedRecord,
    LeftJobCancelled,
    LeftTermsKept,
    OutcomeKept,
)
from gateway.ledger.db.records import Record
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled, Payment, StatementKept
from gateway.ledger.db.usage.records import CapacityRecord, UsageRecord
from gateway.ledger.store.store import Store

TOO_LARGE = 2**63


@pytest.mark.parametrize("number", [-1, TOO_LARGE])
@pytest.mark.parametrize(
    "field",
    [
        *("first", "tasks", "attempt", "wall_ns", "cpu_ns", "peak_memory_bytes"),
        *("price_nanos", "cost_nanos"),
    ],
)
def test_usage_refuses_what_a_column_cannot_hold(
    usage: Callable[..., UsageRecord], field: str, number: int
) -> None:
    with pytest.raises(ValueError, match="is not a number from 0"):
        usage(**{field: number})


@pytest.mark.parametrize("time_s", [-1.0, math.nan, math.inf, 1e12])
@pytest.mark.parametrize("field", ["started_at_s", "ended_at_s"])
def test_usage_refuses_a_time_that_is_none(
    usage: Callable[..., UsageRecord], field: str, time_s: float
) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        usage(**{field: time_s})


@pytest.mark.parametrize(
    "make",
    [
        lambda: BundleKept("job", TOO_LARGE, 1, b""),
        lambda: BundleKept("job", 0, -1, b""),
        lambda: OutcomeKept("job", TOO_LARGE, 1, b""),
        lambda: OutcomeKept("job", 0, -1, b""),
        lambda: AlertFired("a", "k", TOO_LARGE, 1.0),
        lambda: AlertFired("a", "k", 0, math.nan),
        lambda: AlertEnded("a", "k", 0, -1.0),
        lambda: DrainKept("host", "lon3", "ann", math.inf),
        lambda: JobClosedRecord("job", TOO_LARGE),
        lambda: JobEnded("job", "done", "", 1.0, TOO_LARGE, 0, 0),
        lambda: JobEnded("job", "done", "", math.nan, 0, 0, 0),
        lambda: JobOpenedRecord("job", "n", "u", "p", True, b"", math.nan),
        lambda: AttachedLost(math.inf),
    ],
)
def test_every_record_refuses_what_a_column_cannot_hold(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"is not a (number|time)"):
        make()


RECORDS: list[Record] = [
    JobOpenedRecord("job", "n", "u", "p", True, b"", 1.0),
    BundleKept("job", 0, 1, b""),
    JobClosedRecord("job", 1),
    OutcomeKept("job", 0, 1, b""),
    JobEnded("job", "done", "reason", 1.0, 0, 0, 0),
    CapacityRecord("pool", 1.0, 2.0, 1),
    JobForgotten("job"),
    EndOrdered("job", "cancelling", "reason"),
    LeftJobCancelled("job", "reason"),
    LeftTermsKept("job", b""),
    ContractOpened("c", "buy", "paris", "job", "pool", 1, 1, "USD", 1.0, 1.0),
    Posted("c", "buy", "paris", 1, 0, 1, 1, 1, "USD", 1.0),
    PostingSettled("c", "buy", "paris", 1, 0, "post", 1, "USD", 1.0),
    ContractEnded("c", "buy", "settled", 1.0),
    Disputed("buy", "c", 1, 0, "paris", "reason", 1.0),
    DisputeSettled("buy", "c", 1, 0, "paris", "accepted", "answer", 1.0, 1, "USD"),
    StatementKept("buy", "paris", 0, 1, False, "agreed", b"", b"", "details", b"", b"", 1.0),
    Payment("paris", "reference", "USD", "paid", "bank", 1, "note", 1.0),
    AlertFired("a", "k", 0, 1.0),
    AlertEnded("a", "k", 0, 1.0),
    DrainKept("host", "lon3", "ann", 1.0),
    DrainEnded("host", "lon3"),
    ReservationKept(
        *("sell", "r", "paris", "w", 0, "booked", "fast", "user:ada", 1, 1.0, 2.0, 1, "USD", 1, 1),
        *("ada", "quants", "risk", 1.0, 1.0),
    ),
]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x\udfff"])
def test_every_text_of_every_record_is_one_that_a_database_holds(
    usage: Callable[..., UsageRecord], text: str
) -> None:
    for record in (*RECORDS, usage()):
        names = [each.name for each in fields(record) if type(getattr(record, each.name)) is str]
        assert names
        for name in names:
            with pytest.raises(ValueError, match="databases can't store"):
                replace(record, **{name: text})


def test_whatever_else_a_name_has_every_store_keeps_it(
    store: Store, commit: Callable[..., None], usage: Callable[..., UsageRecord]
) -> None:
    names = ["\x01\x7f\x85", "'; DROP TABLE usage; --", "<b>\u202e", "\U0010ffff\ufffe", "=1+1"]
    for job in names:
        commit(
            store, JobOpenedRecord(job, job, job, job, False, b"", 1.0), usage(job=job, tags=job)
        )
    assert {each.name for each in store.jobs.latest(10)} == set(names)
    for name in names:
        found = store.jobs.get(name)
        assert found is not None
        assert found.user == found.project == name


@pytest.mark.parametrize("wrong", [{"direction": "x"}, {"through": ""}])
def test_a_payment_is_paid_or_received_by_a_way_that_is_known(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a valid payment"):
        replace(Payment("paris", "R", "USD", "paid", "bank", 1, "", 1.0), **wrong)  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.floats(0, 253_402_300_000.0)
    | st.builds(lambda n: math.nextafter(n * 3_600.0, 0), st.integers(1, 10**6))
)
def test_the_hour_is_the_utc_hour_of_the_end(
    usage: Callable[..., UsageRecord], ended_at_s: float
) -> None:
    hour = usage(ended_at_s=ended_at_s).hour
    assert hour * 3_600 <= ended_at_s < (hour + 1) * 3_600


def test_the_hour_of_a_known_time(usage: Callable[..., UsageRecord]) -> None:
    last_second = datetime(2026, 11, 20, 23, 59, 59, tzinfo=UTC)
    hour = usage(ended_at_s=last_second.timestamp()).hour
    day, hour_of_day = divmod(hour, 24)
    assert hour_of_day == 23
    assert day == (last_second.date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days
