"""The readings for an export are the content of the books, in both databases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection
from support.exports import SITE, stated, traded

from federation.messages.contracts import Delivery, Verdict
from gateway.cli.books.export import export
from gateway.ledger.accounting import journal
from gateway.ledger.audit.audit import audit
from gateway.ledger.db.contracts.records import ContractOpened, posted, settled
from gateway.ledger.db.contracts.voids import taken_back
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.exports import apel, reading
from gateway.ledger.exports.focus import charges
from gateway.ledger.exports.focus_columns import EXPORTED
from gateway.ledger.store.store import SqlStore
from gateway.reservations.bookings import bill_of, delivered, paid
from policies.parties import Owner, read_party
from policies.reservations.reservations import Reservation

COLUMN = {column.name: place for place, column in enumerate(EXPORTED)}
END_S = 1_700_000_001.5


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


@contextmanager
def reader(url: str) -> Iterator[Connection]:
    with snapshot(url) as connection:
        yield connection


def billed(connection: Connection, *period: Any) -> dict[str, int]:
    """The billed amount in nano-units, by currency."""
    hours = reading.hours(connection)
    found: dict[str, int] = {}
    for row in charges(SITE, hours, reading.corrections(connection, *period)):
        nanos = Fraction(row[COLUMN["BilledCost"]] or 0) * 10**9
        currency = row[COLUMN["BillingCurrency"]] or ""
        assert nanos.denominator == 1
        found[currency] = found.get(currency, 0) + int(nanos)
    return found


def booked(connection: Connection) -> dict[str, int]:
    """The charges of users and sites: balances of each payer, by currency."""
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


def deal(side: Any, contract: str, site: str) -> list[Record]:
    """A contract with two deliveries that were paid, of which one is disputed and taken back."""
    paid = [Delivery(1, first, first + 10, 400, 7, int(END_S * 1000)) for first in (0, 10)]
    key = (side, contract, 1, 0, site)
    return [
        ContractOpened(contract, side, site, "job", "gpu", 1, 5, "USD", 30.0, END_S),
        *(posted(contract, side, site, each, "USD") for each in paid),
        *(settled(contract, side, site, each, Verdict.POST, "USD", END_S) for each in paid),
        Disputed(*key, "wrong", END_S),
        DisputeSettled(*key, "accepted", "so it is", END_S + 60, 400, "USD"),
    ]


def test_what_is_taken_back_between_sites_is_taken_off(books, commit):
    with reader(books) as connection:
        before = billed(connection)
    store = SqlStore(books)
    commit(store, *deal("sell", "tokyo-1-1", "tokyo"), *deal("buy", "london-1-1", "paris"))
    store.close()
    with reader(books) as connection:
        assert billed(connection) == before | {"USD": before["USD"] - 800}
        bought, sold = reading.corrections(connection)
        assert not list(reading.corrections(connection, None, END_S + 60))
        assert len(list(reading.corrections(connection, END_S + 60))) == 2
        assert audit(connection).is_clean
    assert (bought.origin, bought.site, bought.pool) == ("", "paris", "paris/gpu")
    assert (sold.origin, sold.site, sold.pool) == ("tokyo", "", "gpu")
    assert sold.corrects == "sell/tokyo-1-1/1/0"
    assert (sold.amount_nanos, sold.corrected_at_s, sold.at_s) == (400, END_S, END_S + 60)


def dealt(usage: Any, side: Any, job: str, contract: str, site: str) -> list[Record]:
    """Four deliveries: paid, without a verdict, voided, and refunded two hours later."""
    at_ms = int(END_S * 1000)
    costs = [400, 500, 600, 700]
    each = [Delivery(1, n, n + 1, cost, 7, at_ms + n) for n, cost in enumerate(costs)]
    pool = "gpu" if side == "sell" else f"{site}/gpu"
    verdicts = {0: Verdict.POST, 2: Verdict.VOID, 3: Verdict.POST}
    key = (side, contract, 1, 3, site)
    return [
        ContractOpened(contract, side, site, job, "gpu", 1, 5, "USD", 30.0, END_S),
        *(
            usage(job=job, pool=pool, first=n, tasks=1, cost_nanos=cost, ended_at_s=END_S)
            for n, cost in enumerate(costs)
        ),
        *(posted(contract, side, site, one, "USD") for one in each),
        *(
            settled(contract, side, site, each[n], verdict, "USD", END_S)
            for n, verdict in verdicts.items()
        ),
        Disputed(*key, "wrong", END_S),
        DisputeSettled(*key, "accepted", "so it is", END_S + 7_200, 700, "USD"),
    ]


def test_exports_come_to_what_statements_of_the_same_time_have(url, commit, usage):
    store = SqlStore(url)
    commit(
        store,
        *dealt(usage, "sell", "tokyo:c-1", "c-1", "tokyo"),
        *dealt(usage, "buy", "job", "c-2", "paris"),
    )
    hour = int(END_S // 3600)
    spans = {(0, hour + 1): 1600, (hour + 1, hour + 3): -700, (0, hour + 3): 900}
    with reader(url) as connection:
        for span, nanos in spans.items():
            for site, amount in (("tokyo", nanos), ("paris", -nanos)):
                assert stated(store, site, *span) == {"USD": amount}
                found = traded(connection, SITE, site, *span)
                assert found.keys() == {"focus", "usage-record", "car"}
                assert all(sums == {"USD": amount} for sums in found.values())
        assert audit(connection).is_clean
    store.close()


@pytest.mark.parametrize("side", ["sell", "buy"])
def test_the_bill_of_a_reservation_and_its_refund_are_in_all_formats(url, commit, side):
    """By both sites, as their statements have them."""
    other, is_sold = ("tokyo", True) if side == "sell" else ("paris", False)
    made = Reservation(
        *("london-1-9", "gpu", read_party("user:ada"), 2, END_S - 60, END_S, 10**9, "USD"),
        Owner("ada@tokyo", "", "risk", "tokyo") if is_sold else Owner("ada", "", "risk"),
        made_at_s=END_S - 90,
        billed_nanos=5_000,
        billed_at_s=END_S,
    )
    seller = "" if is_sold else other
    store = SqlStore(url)
    commit(
        store,
        *(bill_of(made, seller), *delivered(made, side, seller)),
        *((paid(made, side, other, END_S),) if is_sold else ()),
    )
    assert stated(store, other) == {"USD": 5_000 if is_sold else -5_000}
    with reader(url) as connection:
        assert all(
            each == stated(store, other) for each in traded(connection, SITE, other).values()
        )
        [fee] = reading.runs(connection)
        assert (fee.is_fee, fee.cost_nanos) == (True, 5_000)
    key = (side, "london-1-9", 1, 0, other)
    commit(
        store,
        Disputed(*key, "wrong", END_S),
        DisputeSettled(*key, "accepted", "so it is", END_S + 60, 5_000, "USD"),
    )
    assert stated(store, other) == {"USD": 0}
    with reader(url) as connection:
        assert all(each == {"USD": 0} for each in traded(connection, SITE, other).values())
        assert audit(connection).is_clean
    store.close()


def test_a_refund_is_a_record_of_its_own(books, commit):
    store = SqlStore(books)
    commit(store, *deal("sell", "tokyo-1-1", "tokyo"), *deal("buy", "london-1-1", "paris"))
    store.close()
    with reader(books) as connection:
        bought, sold = reading.refunds(connection)
        assert list(reading.refunds(connection, ran_here=True)) == [sold]
        assert not list(reading.refunds(connection, None, END_S + 60))
        assert len(list(reading.refunds(connection, END_S + 60))) == 2
    assert (sold.job, sold.origin, sold.site, sold.pool) == ("tokyo:job", "tokyo", "", "gpu")
    assert (bought.job, bought.origin, bought.site) == ("job", "", "paris")
    assert (sold.cost_nanos, sold.tasks, sold.wall_ns, sold.ended_at_s) == (-400, 0, 0, END_S + 60)


@pytest.mark.parametrize("command", ["usage-record", "car"])
@pytest.mark.parametrize(("options", "refunds"), [((), 1), (("--all",), 2)])
def test_commands_write_refunds_of_their_period(tmp_path, commit, command, options, refunds):
    store = SqlStore(f"sqlite:///{tmp_path}/gridfed.db")
    commit(store, *deal("sell", "tokyo-1-1", "tokyo"), *deal("buy", "london-1-1", "paris"))
    store.close()
    asked = [command, *options, "--state", str(tmp_path), "--from"]
    for since, count in (("2023-11-14", refunds), ("2023-11-15", 0)):
        result = CliRunner().invoke(export, [*asked, since])
        assert result.exit_code == 0, result.output
        assert result.output.count("urn:gridfed:local:refund:") == count


def test_what_is_bought_for_another_site_is_no_correction_of_ours(books, commit):
    """It is charged to that site at another price, which its own corrections are of."""
    store = SqlStore(books)
    passed_on = deal("buy", "london-1-1", "paris")
    passed_on[0] = replace(passed_on[0], job="tokyo:c-1/2")
    commit(store, *passed_on)
    store.close()
    with reader(books) as connection:
        assert not list(reading.corrections(connection))
        assert not list(reading.refunds(connection))


def test_an_hour_has_its_price_where_all_its_runs_had_one(url, commit, usage):
    store = SqlStore(url)
    commit(
        store,
        usage(job="a", price_nanos=40_000_000),
        usage(job="b", price_nanos=40_000_000),
        usage(job="c", name="other", price_nanos=40_000_000),
        usage(job="d", name="other", price_nanos=50_000_000, list_price_nanos=40_000_000),
    )
    store.close()
    with reader(url) as connection:
        found = {
            each.name: (each.price_nanos, each.list_price_nanos)
            for each in reading.priced_hours(connection)
        }
        [other] = [each for each in reading.hours(connection) if each.name == "other"]
    assert found == {usage().name: (40_000_000, 40_000_000), "other": (None, 40_000_000)}
    assert other.records == 2


def test_what_a_buyer_has_voided_is_taken_off(books, commit):
    with reader(books) as connection:
        before = billed(connection)
    store = SqlStore(books)
    void = Delivery(2, 0, 10, 300, 7, int(END_S * 1000))
    commit(
        store,
        ContractOpened("tokyo-1-2", "sell", "tokyo", "tokyo:c-2", "gpu", 1, 5, "USD", 30.0, END_S),
        posted("tokyo-1-2", "sell", "tokyo", void, "USD"),
        settled("tokyo-1-2", "sell", "tokyo", void, Verdict.VOID, "USD", END_S + 1),
    )
    store.close()
    with reader(books) as connection:
        assert billed(connection) == before | {"USD": before["USD"] - 300}
        [correction] = reading.corrections(connection)
    assert (correction.corrects, correction.at_s) == ("sell/tokyo-1-2/2/0", END_S)
    assert (correction.origin, correction.amount_nanos) == ("tokyo", 300)


@pytest.mark.parametrize(("paid", "is_clean"), [(0, True), (300, True), (299, False)])
def test_what_ran_again_elsewhere_is_paid_by_its_site_to_the_nano_unit(
    books, commit, usage, paid, is_clean
):
    """Older books do not say how much a repeat cost; those that do say all of it."""
    at_ms = int(END_S * 1000)
    delivered = [Delivery(2, first, first + 1, 300, 7, at_ms) for first in range(2)]
    store = SqlStore(books)
    ran = {"job": "r-1", "pool": "paris/gpu", "ended_at_s": END_S, "tasks": 1, "wall_ns": 7}
    records = [
        usage(**ran, cost_nanos=300),
        usage(
            **ran, first=1, cost_nanos=paid, attempt=2, state="repeat", user="" if paid else "ann"
        ),
        ContractOpened("c-9", "buy", "paris", "r-1", "gpu", 1, 5, "USD", 30.0, END_S),
        *(posted("c-9", "buy", "paris", each, "USD") for each in delivered),
    ]
    commit(store, *records)
    store.close()
    with reader(books) as connection:
        assert audit(connection).is_clean == is_clean


@pytest.mark.parametrize(
    ("left_out", "added", "charged", "problem"),
    [
        ((), (), 500, ""),
        (
            (1,),
            (),
            500,
            "delivered 1301, of which 800 are for repetitions",
        ),
        (
            (2,),
            (),
            0,
            "delivered 610, and 5 repetitions of tasks are not booked",
        ),
        (
            (),
            (300,),
            500,
            "delivered 1911, of which 810 are for repetitions",
        ),
        (
            (),
            (),
            400,
            "delivered 1611, of which 810 are for repetitions",
        ),
    ],
)
def test_older_books_have_each_repetition_that_was_paid_and_no_other(
    books, commit, usage, left_out, added, charged, problem
):
    """Their records of repetitions cost nothing: those that were not paid are told by their tasks.

    A task ran twice, and half of a bundle.
    """
    ran = {"job": "r-1", "pool": "paris/gpu", "ended_at_s": END_S + 1, "wall_ns": 100}
    free = {"state": "repeat", "cost_nanos": 0, "attempt": 2}
    at_ms = int(END_S * 1000)
    delivered = [
        Delivery(1, 0, 1, 300, 100, at_ms),
        Delivery(2, 0, 1, 310, 100, at_ms + 999),
        Delivery(3, 5, 15, 1001, 200, at_ms + 999),
    ]
    delivered = [each for n, each in enumerate(delivered) if n not in left_out]
    delivered += [Delivery(4, 20, 21, nanos, 100, at_ms) for nanos in added]
    store = SqlStore(books)
    commit(
        store,
        usage(**ran | {"ended_at_s": END_S}, tasks=1, cost_nanos=300),
        usage(**ran, **free, tasks=1),
        usage(**ran, **free, first=5, tasks=5),
        usage(**ran, first=10, tasks=5, cost_nanos=charged),
        ContractOpened("c-9", "buy", "paris", "r-1", "gpu", 1, 5, "USD", 30.0, END_S),
        *(posted("c-9", "buy", "paris", each, "USD") for each in delivered),
    )
    store.close()
    with reader(books) as connection:
        found = [each for check in audit(connection).checks for each in check.problems]
    assert [each.split("which ", 1)[1] for each in found] == ([problem] if problem else [])


def test_a_run_that_its_buyer_has_voided_costs_nothing(books, commit, usage):
    job, at_ms = "tokyo:c-2", int(END_S * 1000)
    costs = [300, 400, 400]
    parts = [(0, 300), (10, 100), (15, 300), (20, 400)]  # the second run came in two parts
    delivered = [Delivery(2, first, first + 1, nanos, 7, at_ms + first) for first, nanos in parts]
    verdicts = [Verdict.VOID, Verdict.VOID, Verdict.VOID, Verdict.POST]
    store = SqlStore(books)
    commit(
        store,
        *(
            usage(job=job, first=10 * n, cost_nanos=nanos, ended_at_s=END_S + n / 100)
            for n, nanos in enumerate(costs)
        ),
        ContractOpened("c-2", "sell", "tokyo", job, "gpu", 1, 5, "USD", 30.0, END_S),
        *(posted("c-2", "sell", "tokyo", each, "USD") for each in delivered),
        *(
            settled("c-2", "sell", "tokyo", each, verdict, "USD", END_S + 1)
            for each, verdict in zip(delivered, verdicts, strict=True)
        ),
    )
    store.close()
    with reader(books) as connection:
        found = [each for each in reading.runs(connection) if each.job == job]
        assert audit(connection).is_clean
    assert [(each.state, each.cost_nanos) for each in found] == [
        ("void", 0),
        ("void", 0),
        ("ok", 400),
    ]


def test_the_store_tells_where_a_site_was_charged_other_than_was_delivered(books, commit, usage):
    job = "tokyo:c-3"
    delivery = Delivery(2, 0, 10, 300, 7, int(END_S * 1000))
    store = SqlStore(books)
    commit(
        store,
        usage(job=job, cost_nanos=300),
        ContractOpened("c-3", "sell", "tokyo", job, "gpu", 1, 5, "USD", 30.0, END_S),
        posted("c-3", "sell", "tokyo", delivery, "USD"),
    )
    assert store.journal.unlike("tokyo", 5) == []
    commit(store, usage(job=job, first=30, cost_nanos=7))
    text = f"job {job} was charged 307, but deliveries of 300 to its site are booked"
    assert store.journal.unlike("tokyo", 5) == [text]
    assert store.journal.unlike("rome", 5) == []
    store.close()


@given(
    costs=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    parts=st.lists(st.integers(1, 9), max_size=40),
)
def test_what_is_taken_off_is_what_was_voided(costs, parts):
    runs = [(float(at), (at, 0), cost) for at, cost in enumerate(costs)]
    found = taken_back(runs, [(float(at), cost) for at, cost in enumerate(parts)])
    assert sum(found.values()) == min(sum(costs), sum(parts))
    assert all(nanos <= costs[first] for (first, _), nanos in found.items())


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
