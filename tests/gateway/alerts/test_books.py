"""The readings from the books for a budget, and for deliveries without a verdict."""

import itertools
import threading
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.alerts import at, used

from gateway.alerts.books import AlertBooks, spans
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.jobs.records import JobOpenedRecord
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled
from gateway.ledger.store.store import SqlStore
from policies.calendar.periods import PeriodLength
from policies.costs.alerts import (
    AlertBudget,
    AlertScope,
    OverdueDeliveries,
    PriceLimit,
    Unacknowledged,
)
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

HOUR_S = 3600


NOW_S = at("2026-11-22T09:30")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        made = MemoryStore(Disk())
    else:
        made = SqlStore(f"sqlite:///{tmp_path / 'books.db'}")
    yield made
    made.close()


def write(store, *records):
    written = threading.Event()
    store.write(records, True, written.set)
    assert written.wait(300.0)


def spent(books, now_s=NOW_S, **fields):
    rule = AlertBudget(**{"name": "b", "amount_nanos": 10**9, "currency": "USD", **fields})
    found = books.facts([rule], (), now_s).spent["b"]
    return found.spent_nanos, found.held_nanos


def besides(books, **fields):
    rule = AlertBudget(**{"name": "b", "amount_nanos": 10**9, "currency": "USD", **fields})
    return books.facts([rule], (), NOW_S).spent["b"].others_nanos


def of(whose, name):
    return {"whose": AlertScope(whose), "of": name}


def test_a_budget_counts_what_is_meant(store):
    write(
        store,
        used(1, "2026-11-22T08:00", 1),
        used(2, "2026-11-22T09:29", 2, project="desk"),
        used(3, "2026-11-22T09:29", 4, user="bob", group="quants"),
        used(4, "2026-11-22T09:29", 8, pool="paris/gpu"),
        used(5, "2026-11-22T09:29", 16, currency="EUR"),
        # Not ours, though its user and project are of the same names.
        used(6, "2026-11-22T09:29", 32, job="rome:job"),
        used(7, "2026-11-22T09:29", 64, job="rome:job", pool="paris/gpu"),
        used(8, "2026-10-31T23:59", 128),
    )
    books = AlertBooks(store)
    assert spent(books) == (15, 0)
    assert spent(books, currency="EUR") == (16, 0)
    assert spent(books, **of("project", "risk")) == (13, 0)
    assert spent(books, **of("user", "bob")) == (4, 0)
    assert spent(books, **of("group", "quants")) == (4, 0)
    assert besides(books) == {"EUR": 16}
    assert besides(books, currency="EUR") == {"USD": 15}
    assert besides(books, **of("group", "quants")) == {}
    assert spent(books, **of("site", "paris")) == (72, 0)
    assert spent(books, **of("origin", "rome")) == (96, 0)
    assert spent(books, **of("project", "nobody's")) == (0, 0)
    assert spent(books, span=PeriodLength.YEAR) == (143, 0)


def test_what_has_no_verdict_is_held_and_is_part_of_what_was_spent(store):
    def opened(contract, side, site, job):
        return ContractOpened(contract, side, site, job, "gpu", 1, 1, "USD", 30.0, NOW_S - 99)

    def posted(contract, side, site, first, cost_nanos):
        when_s = NOW_S - 60 + first
        return Posted(contract, side, site, 1, first, 1, 1, cost_nanos, "USD", when_s)

    write(
        store,
        JobOpenedRecord("job", "f", "ada", "risk", False, b"", NOW_S - 99),
        used(0, NOW_S - 60, 100, pool="paris/gpu", group="quants"),
        used(1, NOW_S - 60, 100, pool="paris/gpu", group="quants"),
        used(0, NOW_S - 60, 50, pool="paris/gpu", job="rome:job"),
        opened("c1", "buy", "paris", "job"),
        opened("c2", "buy", "paris", "rome:job"),
        opened("c3", "sell", "rome", "rome:job"),
        posted("c1", "buy", "paris", 0, 100),
        posted("c1", "buy", "paris", 1, 100),
        posted("c2", "buy", "paris", 0, 40),
        posted("c3", "sell", "rome", 0, 60),
        PostingSettled("c1", "buy", "paris", 1, 0, "post", 100, "USD", NOW_S),
    )
    books = AlertBooks(store)
    assert spent(books) == (200, 100)
    assert spent(books, **of("project", "risk")) == (200, 100)
    assert spent(books, **of("group", "quants")) == (200, 100)
    assert spent(books, **of("group", "others")) == (0, 0)
    assert spent(books, **of("user", "bob")) == (0, 0)
    assert spent(books, **of("site", "paris")) == (250, 140)
    assert spent(books, **of("origin", "rome")) == (50, 50)  # of 60 that is asked, what was spent
    write(
        store,
        Disputed("buy", "c1", 1, 0, "paris", "too dear", NOW_S),
        DisputeSettled("buy", "c1", 1, 0, "paris", "accepted", "so", NOW_S, 100, "USD"),
    )
    assert spent(books) == (200, 100)  # a user's charge stays
    assert spent(books, **of("site", "paris")) == (150, 140)  # what was taken back is not spent
    assert spent(books, **of("origin", "rome")) == (50, 50)
    late = Unacknowledged("late", 30.0)
    one = Unacknowledged("one", 30.0, side="sell")
    far = Unacknowledged("far", 30.0, site="oslo")
    new = Unacknowledged("new", 3600.0)
    found = books.facts([late, one, far, new, PriceLimit("p", 1, "USD")], (), NOW_S).pending
    assert found == {
        "late": [
            OverdueDeliveries("buy", "paris", 2, {"USD": 140}, NOW_S - 60),
            OverdueDeliveries("sell", "rome", 1, {"USD": 60}, NOW_S - 60),
        ],
        "one": [OverdueDeliveries("sell", "rome", 1, {"USD": 60}, NOW_S - 60)],
        "far": [],
        "new": [],
    }


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Asia/Kathmandu", "UTC"])
def test_a_day_is_exact_also_where_it_begins_within_an_hour(store, zone):
    rule = AlertBudget("b", 10**9, "USD", span=PeriodLength.DAY, zone=ZoneInfo(zone))
    period = rule.period_at(NOW_S)
    write(
        store,
        used(1, period.start_at_s - 0.001, 1),
        used(2, period.start_at_s, 2),
        used(3, NOW_S, 4),
        used(4, period.end_at_s - 0.001, 8),
        used(5, period.end_at_s, 16),
    )
    late_s = period.end_at_s - 1
    assert spent(AlertBooks(store), late_s, span=PeriodLength.DAY, zone=ZoneInfo(zone)) == (14, 0)


def test_what_is_long_past_is_read_once_a_day(store, monkeypatch):
    asked = []
    totals = store.usage.totals

    def note(by, start_at_s, end_at_s, only):
        asked.append((start_at_s, end_at_s))
        return totals(by, start_at_s, end_at_s, only)

    monkeypatch.setattr(store.usage, "totals", note)
    write(store, used(1, "2026-01-02T00:00", 1), used(2, "2026-11-22T09:00", 2))
    books = AlertBooks(store)
    year = {"span": PeriodLength.YEAR}
    assert [spent(books, NOW_S + 60 * n, **year) for n in range(3)] == [(3, 0)] * 3
    past = at("2026-01-01T00:00"), at("2026-11-21T00:00")
    assert asked.count(past) == 1
    assert len(asked) == 4
    write(store, used(3, "2026-01-03T00:00", 4))  # late by months
    assert spent(books, NOW_S, **year) == (3, 0)
    assert spent(books, NOW_S + 24 * HOUR_S, **year) == (7, 0)
    assert spent(books, at("2027-01-01T00:00"), **year) == (0, 0)


@given(st.floats(0, 1e7), st.floats(0, 1e6))
def test_spans_cover_all_once_and_whole_hours_together(start_at_s, length_s):
    found = list(spans(start_at_s, start_at_s + length_s))
    assert found[0][0] == start_at_s
    assert found[-1][1] == start_at_s + length_s
    assert all(one[1] == two[0] for one, two in itertools.pairwise(found))
    whole = [each for each in found if each[0] % HOUR_S == each[1] % HOUR_S == 0]
    assert len(whole) <= 1
    parts = [each for each in found if each not in whole]
    assert sum(end - start for start, end in parts) <= 2 * HOUR_S
