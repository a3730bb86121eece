"""The journal: no transfer twice, a chain without a gap, no unseen change of books."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from support.pure.books import agreed_on, envelope

from federation.messages.payments import Payments
from federation.messages.reconciliation import DAY_MS, Reconcile, Reconciled, tally_of
from federation.messages.wire import pack
from gateway.ledger.accounting.journal import GENESIS, digest
from gateway.ledger.accounting.postings import LedgerAccount, balances, transfers_of
from gateway.ledger.audit.audit import Audit, audit
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.jobs.records import JobOpenedRecord, OutcomeKept
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import (
    Disputed,
    DisputeSettled,
    Payment,
    PaymentsTold,
    PaymentUndone,
    StatementKept,
)
from gateway.ledger.db.usage import tables
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store.store import SqlStore, Store

Usage = Callable[..., UsageRecord]
Commit = Callable[..., None]
Copied = Callable[[Callable[[str], None]], str]
OpenStore = Callable[..., Store]


def contract(side: Any = "sell", name: str = "london-1-1", site: str = "london") -> ContractOpened:
    return ContractOpened(name, side, site, "job", "pool", 1, 5, "EUR", 30.0, 1_700_000_000.0)


def posted(first: int, side: Any = "sell", cost_nanos: int = 500) -> Posted:
    return Posted(
        "london-1-1", side, "london", 1, first, 1, 10, cost_nanos, "EUR", 1_700_000_000.0 + first
    )


def settled(first: int, state: str, side: Any = "sell", cost_nanos: int = 500) -> PostingSettled:
    return PostingSettled(
        "london-1-1", side, "london", 1, first, state, cost_nanos, "EUR", 1_700_000_001.0 + first
    )


def disputed(first: int) -> Disputed:
    return Disputed("sell", "london-1-1", 1, first, "london", "wrong", 1_700_000_002.0)


def answered(first: int) -> DisputeSettled:
    """The settlement of a dispute: the first is accepted, others are rejected."""
    state: Any = "rejected" if first else "accepted"
    return DisputeSettled(
        "sell", "london-1-1", 1, first, "london", state, "", 1_700_000_003.0, 500, "EUR"
    )


def agreed(store: Store) -> StatementKept:
    first_ms = 1_700_000_000_000 // DAY_MS * DAY_MS
    span = first_ms, first_ms + DAY_MS
    account = tally_of(store.settlement.entries("sell", "london", *span))
    assert account.sums["EUR"].reversals == 1
    return agreed_on("sell", "london", span, account)


def told_of() -> PaymentsTold:
    """The payments in the books of the other site."""
    lines = [["wire", "EUR", "paid", 700, 1_700_000_000_000]]
    said = envelope(Payments(lines, 0, b"heard"))
    return PaymentsTold("london", pack(lines), 0, b"heard", said, 1.7e9)


def audited(url: str) -> Audit:
    with snapshot(url) as connection:
        return audit(connection)


@contextmanager
def vandal(url: str) -> Iterator[Any]:
    """A person that writes to the database by hand."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield lambda sql: connection.execute(text(sql))
    finally:
        engine.dispose()


# --- every store ----------------------------------------------------------------------------------


def test_what_is_booked_is_chained_in_its_order(store: Store, commit: Commit, usage: Usage) -> None:
    records: list[Record] = [usage(first=n, user=f"user{n % 3}") for n in range(400)]
    commit(store, *records[:300])
    commit(store, *records[300:])
    found = store.journal.booked(0, 1_000)
    head = GENESIS
    for number, (each, record) in enumerate(zip(found, records, strict=True), start=1):
        assert (each.number, each.transfer) == (number, transfers_of(record)[0])
        head = digest(head, number, each.transfer)
        assert each.hash == head
    assert [each.number for each in store.journal.booked(398, 1)] == [399]


def test_what_is_written_twice_is_booked_once(
    open_store: OpenStore, commit: Commit, usage: Usage
) -> None:
    store = open_store()
    commit(store, contract(), usage(first=1), posted(1), posted(1))
    commit(store, posted(1), usage(first=2), usage(first=1), settled(1, "post"))
    commit(store, settled(1, "void"))  # the first verdict stands
    store.close()
    store = open_store()  # another life: the journal knows its transfers
    commit(store, usage(first=2), settled(1, "post"), usage(first=3))
    kinds = [(each.number, each.transfer.kind) for each in store.journal.booked(0, 100)]
    assert kinds == [(1, "entry"), (2, "hold"), (3, "entry"), (4, "post"), (5, "entry")]


def test_balances_are_what_the_transfers_sum_up_to(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, contract(), *(usage(first=n, cost_nanos=2**62) for n in range(5)))
    commit(store, *(posted(n, cost_nanos=n) for n in range(1, 9)))
    commit(store, settled(1, "post", cost_nanos=1), settled(2, "void", cost_nanos=2))
    found = store.journal.balances()
    assert found == balances(each.transfer for each in store.journal.booked(0, 100))
    assert max(each.net_nanos for each in found.values()) == 5 * 2**62


# --- SQLite and PostgreSQL ------------------------------------------------------------------------


def fill(url: str, commit: Commit, usage: Usage) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, contract(), *(usage(first=10 * n) for n in range(40)))
        commit(store, *(posted(n) for n in range(10)))
        commit(store, *(settled(n, ["post", "void"][n % 2]) for n in range(8)))
        commit(store, *(disputed(n) for n in (0, 2, 4)), *(answered(n) for n in (0, 2)))
        commit(store, Payment("london", "wire", "EUR", "received", "bank", 700, "", 1.7e9))
        commit(store, agreed(store), told_of())


def test_honest_books_are_clean(url: str, commit: Commit, usage: Usage) -> None:
    fill(url, commit, usage)
    found = audited(url)
    assert found.is_clean, found
    assert found.transfers == 60
    looked_at = [60, 60, 40, 10, 1, 60, 1, 1, 0, 40, 40, 10, 0, 10, 1]
    assert [each.looked_at for each in found.checks] == looked_at
    owed = found.balances[LedgerAccount("site", "london", "", "EUR")]
    assert owed.net_nanos == 4 * 500 - 500 - 700


@pytest.mark.parametrize(
    ("side", "job", "pool"), [("sell", "london:c-9", "local"), ("buy", "j-9", "london/local")]
)
def test_a_charge_that_was_not_delivered_is_found(
    url: str, commit: Commit, usage: Usage, side: Any, job: str, pool: str
) -> None:
    """Reports would tell of it, and no statement."""
    store = SqlStore(url)
    commit(
        store,
        replace(contract(side), job=job),
        usage(job=job, pool=pool, first=0, tasks=4, cost_nanos=700),
        posted(0, side, 700),
        posted(1, side, 0),
    )
    assert audited(url).is_clean
    commit(store, usage(job=job, pool=pool, first=4, tasks=1, cost_nanos=50, state="failed"))
    store.close()
    found = [each.problems for each in audited(url).checks if each.problems]
    assert len(found) == 1
    assert f"job {job} was charged 750" in found[0][0]


def test_a_part_of_a_bundle_that_is_delivered_again_is_found(url: str, commit: Commit) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, contract(), replace(posted(0), tasks=5), posted(5), posted(4), posted(1))
        commit(store, settled(1, "void"))
    found = [each.problems for each in audited(url).checks if each.problems]
    assert found == [("sell/london-1-1/1/4 has tasks that were delivered before",)]


def test_a_finding_names_the_rules_of_its_records(url: str, commit: Commit, usage: Usage) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, replace(contract(), rules=4), replace(posted(0), tasks=5), posted(4))
        commit(
            store,
            usage(job="j", first=0, tasks=4, rules=2),
            usage(job="j", first=2, tasks=4, cost_nanos=5, rules=3),
        )
    found = {each.name: each for each in audited(url).checks if each.problems}
    [twice] = found["no bundle is delivered twice"].found
    assert twice.rules == (4,)
    [charged] = found["no run of a task is charged twice"].problems
    assert charged.endswith(" (under versions 2, 3 of the rules)")


def test_what_is_reversed_was_paid(url: str, commit: Commit) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, contract(), posted(0), settled(0, "void"), disputed(0), answered(0))
    found = [each.problems for each in audited(url).checks if each.problems]
    assert found == [("sell/london-1-1/1/0 is void, but reversed after a dispute",)]


def test_nothing_that_is_booked_can_be_changed(url: str, commit: Commit, usage: Usage) -> None:
    fill(url, commit, usage)
    with vandal(url) as run:
        for sql in (
            "UPDATE transfers SET amount_nanos = 1 WHERE number = 7",
            "DELETE FROM transfers WHERE number = 60",
        ):
            with pytest.raises(DBAPIError, match="never changed"):
                run(sql)
        row = "SELECT 61, {}, {}, 1, {}, {}, 5.0, {}, hash FROM transfers WHERE number = 1"
        for values, constraint in (
            (("key", "'entry'", 2, 7, "NULL"), "key"),
            (("'x'", "'entry'", 2, 0, "NULL"), "transfers_move_something"),
            (("'x'", "'entry'", 1, 7, "NULL"), "transfers_go_elsewhere"),
            (("'x'", "'post'", 2, 7, "NULL"), "transfers_are_of_a_kind"),
            (("'x'", "'void'", 2, 7, "'sell/london-1-1/1/0'"), "resolve"),
        ):
            with pytest.raises(DBAPIError, match=constraint):
                run(f"INSERT INTO transfers {row.format(*values)}")
    assert audited(url).is_clean


DROP = {
    "sqlite": ["DROP TRIGGER transfers_no_update", "DROP TRIGGER transfers_no_delete"],
    "postgresql": ["ALTER TABLE transfers DISABLE TRIGGER USER"],
}


def disarm(url: str, run: Callable[[str], Any]) -> None:
    """Remove the triggers that keep transfers from being changed."""
    for drop in DROP["sqlite" if url.startswith("sqlite") else "postgresql"]:
        run(drop)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("UPDATE transfers SET amount_nanos = 1 WHERE number = 7", "transfer 7 .* differs from"),
        (
            "UPDATE transfers SET at_s = 1.0 WHERE number = 60",
            "transfer 60 .* differs from the original",
        ),
        ("DELETE FROM transfers WHERE number = 7", "transfer 7 is missing"),
        ("DELETE FROM transfers WHERE number = 58", "transfer 58 is missing"),
        ("UPDATE accounts SET name = 'eve' WHERE kind = 'user'", "transfer 1 .* differs from"),
        (
            "UPDATE usage SET cost_nanos = 5 WHERE first = 10",
            "use/job-1/10/0: amount_nanos should be 5, but 16667 is",
        ),
        ("DELETE FROM usage WHERE first = 10", "use/job-1/10/0 is booked, but its record"),
        (
            "UPDATE usage SET tasks = 11 WHERE first = 10",
            "tasks of job job-1 from 20 on are charged twice, first",
        ),
        (
            "UPDATE postings SET state = 'post' WHERE first = 9",
            "settle/sell/.*/1/9: 500 should be booked, and nothing is",
        ),
        (
            "UPDATE postings SET state = 'void' WHERE first = 0",
            "settle/sell/.*/1/0: kind should be void, but post is",
        ),
        (
            "UPDATE disputes SET state = 'accepted'",
            "/1/4: 500 should be booked, and nothing is",
        ),
        (
            "UPDATE disputes SET state = 'rejected'",
            "sell of london in .* differs from the agreed sums",
        ),
        ("DELETE FROM disputes", "reverse/sell/london-1-1/1/0 is booked, but its record"),
        (
            "UPDATE payments SET amount_nanos = 1",
            "pay/london/EUR/wire: amount_nanos should be 1, but 700 is",
        ),
        ("DELETE FROM payments", "pay/london/EUR/wire is booked, but its record does not exist"),
        (
            "UPDATE postings SET wall_ns = 9",
            r"sell of london in \[.*\) differs from the agreed sums",
        ),
        (
            "UPDATE disputes SET settled_at_s = 5.0",
            "of london in .* differs from the agreed sums",
        ),
        (
            "UPDATE usage_hours SET cost_nanos_low = 1",
            "the sums of hour .* differ from their records",
        ),
        (
            "DELETE FROM usage_hours",
            "the sums of hour 472222 for ada//risk/.* differ from their records",
        ),
        ("DELETE FROM postings WHERE first = 9", "sell/london-1-1/1/9 is booked, but its record"),
    ],
)
def test_a_change_by_hand_is_found(
    copied: Copied, sql: str, problem: str, commit: Commit, usage: Usage
) -> None:
    def filled(url: str) -> None:
        fill(url, commit, usage)

    url = copied(filled)
    with vandal(url) as run:
        disarm(url, run)
        run(sql)
    found = audited(url)
    assert not found.is_clean
    told = " | ".join(each for check in found.checks for each in check.problems)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(told)


def fill_more(url: str, commit: Commit, usage: Usage) -> None:
    """A detached job with tasks that were retried, that ran again, and that never ran."""
    outcome = [[b"a"] * 10, [], [], []]
    dropped = [[b""] * 10, [[n, "cancelled", "", b""] for n in range(10)], [], []]
    partly = [[b"a"] * 10, [[3, "error", "", b""]], [], []]
    with closing(SqlStore(url)) as store:
        commit(
            store,
            JobOpenedRecord("job-2", "var", "ada", "risk", True, b"", 1_700_000_000.0),
            usage(job="job-2", first=0, state="failed"),
            usage(job="job-2", first=0, attempt=1),
            OutcomeKept("job-2", 0, 10, pack(outcome)),
            usage(job="job-2", first=10),  # of which one was tried again
            usage(job="job-2", first=13, tasks=1, attempt=1),
            OutcomeKept("job-2", 10, 10, pack(outcome)),
            usage(job="job-2", first=20),
            usage(job="job-2", first=20, attempt=5, state="repeat", cost_nanos=0),
            OutcomeKept("job-2", 20, 10, pack(outcome)),
            usage(job="job-2", first=30, cost_nanos=0),
            OutcomeKept("job-2", 30, 10, pack(partly)),
            OutcomeKept("job-2", 40, 10, pack(dropped)),
            usage(job="job-2", first=50, pool="paris/grid"),  # a charge whose result was lost
            usage(job="london:c", first=0),
            usage(job="london:c", first=10, pool="paris/grid"),
            contract("buy"),
            *(posted(n, "buy") for n in range(3)),
            *(settled(n, ["post", "void"][n % 2], "buy") for n in range(2)),
            posted(20, "buy", cost_nanos=0),
            settled(20, "post", "buy", cost_nanos=0),
            Payment("london", "loss", "EUR", "paid", "loss", 9, "", 1.7e9),
            Payment("london", "oops", "EUR", "paid", "bank", 90, "", 1.7e9),
            PaymentUndone("london", "oops", "EUR", 0, "paid", "bank", 90, "a slip", 1.7e9),
            Payment("london", "oops", "EUR", "paid", "bank", 9, "", 1.7e9, attempt=1),
        )


_CHARGE_AGAIN = (
    "INSERT INTO usage SELECT {values} FROM usage WHERE job = '{job}' AND first = {first} "
    "AND attempt = {attempt}"
)


def charged_again(job: str, first: int, attempt: int) -> str:
    """Charge tasks once more, two attempts later."""
    names = [f'"{each.name}"' for each in tables.usage.columns]
    values = ", ".join("attempt + 2" if each == '"attempt"' else each for each in names)
    return _CHARGE_AGAIN.format(values=values, job=job, first=first, attempt=attempt)


EVE = "UPDATE {} SET \"user\" = 'eve'"
OUTCOME = "INSERT INTO outcomes SELECT 'job-{}', {}, count, body FROM outcomes WHERE first = 0"


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        (
            ["UPDATE postings SET cost_nanos = 0 WHERE first = 8"],
            "sell/.*/1/8: nothing should be booked, but",
        ),
        (
            ["UPDATE postings SET cost_nanos = 0 WHERE side = 'buy'"],
            "buy/.*/1/0: nothing should be booked",
        ),
        (
            ["UPDATE contracts SET site = 'paris'"],
            "sell/.*/1/0: debit should be site:paris EUR, bu",
        ),
        (
            ["UPDATE contracts SET currency = 'USD'"],
            "credit should be sold:london USD, but sold:lond",
        ),
        (
            ["UPDATE contracts SET side = 'none' WHERE side = 'buy'"],
            "contract is with no known site",
        ),
        (["DELETE FROM contracts"], "sell/.* is post, but its contract is with no known site"),
        (
            ["UPDATE payments SET direction = 'paid'"],
            "wire: debit should be site:london EUR, but ban",
        ),
        (
            ["UPDATE payments SET direction = 'received'"],
            "loss: debit should be loss: EUR, but site:",
        ),
        (
            ["UPDATE payments SET direction = 'x'"],
            "payment london/wire is invalid: 'x' through 'ban",
        ),
        (["UPDATE payments SET through = 'x'"], "payment london/wire is invalid: '.*' through 'x'"),
        (["UPDATE payments SET through = 'bank'"], "loss: credit should be bank: EUR, but loss:"),
        (["UPDATE payments SET paid_at_s = 5.0"], "wire: at_s should be 5.0, but 1700000000.0 is"),
        (["UPDATE payments SET paid_at_s = -5.0"], "payment london/wire is invalid"),
        (
            ["UPDATE payments SET undone_at_s = NULL"],
            "undo/pay/london/EUR/oops is booked, but the payment is not reversed",
        ),
        (
            ["UPDATE payments SET undone_at_s = 5.0 WHERE reference = 'wire'"],
            "undo/pay/london/EUR/wire: 700 should be booked, and nothing is",
        ),
        (
            ["UPDATE payments SET undone_at_s = 5.0 WHERE undone_at_s > 0"],
            "undo/.*oops: at_s should be 5.0, but 1700000000.0 is booked",
        ),
        (
            ["UPDATE payments SET attempt = 2 WHERE attempt = 1"],
            "pay-1/london/EUR/oops is booked, but its record does not exist",
        ),
        (
            ["UPDATE payments SET amount_nanos = 0"],
            "pay/london/EUR/wire: nothing should be booked, but 700",
        ),
        (
            ["UPDATE disputes SET state = 'open', settled_at_s = NULL WHERE state = 'accepted'"],
            "reverse/sell/.*: nothing should be booked, but 500 is, as if open were accepted",
        ),
        (["UPDATE disputes SET state = 'open'"], "the dispute of sell/.* is open at 1700"),
        (["UPDATE disputes SET state = 'wat'"], "the dispute of sell/.* is wat at 1700"),
        (["UPDATE disputes SET site = 'eve'"], "dispute of sell/.* is with eve, the contract with"),
        (
            ["UPDATE disputes SET state = 'rejected'"],
            "reverse/sell/.*/1/0: nothing should be booked, but 500 is, as if rejected "
            "were accepted",
        ),
        (
            ["UPDATE disputes SET state = 'open'"],
            "reverse/sell/.*/1/0: nothing should be booked, but 500 is",
        ),
        (
            ["UPDATE disputes SET settled_at_s = 5.0"],
            "reverse/.*/1/0: at_s should be 5.0, but 17000",
        ),
        (["DELETE FROM postings WHERE first = 4"], "the dispute of sell/.*/1/4 has no delivery"),
        (
            ["UPDATE disputes SET site = 'paris'"],
            "reverse/.*: debit should be sold:paris EUR, but so",
        ),
        (
            ["UPDATE postings SET posted_at_s = 5.0"],
            "sell/.*/1/9: at_s should be 5.0, but 170000000",
        ),
        (["UPDATE postings SET state = 'pending'"], "sell/.*/1/0 is pending, but post is booked"),
        (
            ["UPDATE postings SET state = 'x' WHERE first = 8"],
            "sell/.*/1/8 is x, but its contract is with",
        ),
        (
            ["UPDATE usage SET cost_nanos = 0 WHERE first = 10"],
            "use/job-1/10/0: nothing should be booked, but",
        ),
        (["UPDATE usage SET cost_nanos = -1 WHERE first = 10"], "usage job-1/10/0 is invalid"),
        (
            [EVE.format("usage"), EVE.format("usage_hours")],
            "use/job-1/0/0: debit should be user:eve/",
        ),
        (
            ["UPDATE usage SET project = 'x'"],
            "use/job-1/0/0: debit should be user:ada/x USD, but use",
        ),
        (
            ["UPDATE usage SET pool = 'x'"],
            "use/job-1/0/0: credit should be pool:x USD, but pool:local",
        ),
        (["UPDATE usage SET currency = 'EUR'"], "use/job-1/0/0: debit should be user:ada/risk EUR"),
        (
            ["UPDATE usage SET ended_at_s = 1700000002.0"],
            "use/job-1/0/0: at_s should be 1700000002.0",
        ),
        (["UPDATE usage SET site = 'x'"], "usage job-1/0/0 has another site, origin or hour"),
        (["UPDATE usage SET origin = 'x'"], "usage job-1/0/0 has another site, origin or hour"),
        (["UPDATE usage SET hour = 1"], "usage job-1/0/0 has another site, origin or hour"),
        (
            [OUTCOME.format(2, 60)],
            "results of job job-2 from 60 on have no usage record",
        ),
        ([OUTCOME.format(3, 0)], "results of job job-3 from 0 on have no usage record"),
        (
            [
                "UPDATE outcomes SET count = 11 WHERE first = 0",
                "DELETE FROM usage WHERE first = 10",
            ],
            "results of job job-2 from 10 on have no usage record",
        ),
        (
            ["DELETE FROM usage WHERE first = 30"],
            "results of job job-2 from 30 on have .* results of job job-2 from 34 on have no usage",
        ),
        (
            [charged_again("job-1", 10, 0)],
            "tasks of job job-1 from 10 on are charged twice in attempt 0",
        ),
        (
            [charged_again("job-2", 0, 1)],
            "tasks of job job-2 from 0 on are charged twice in attempt 1",
        ),
        (
            [charged_again("job-2", 13, 1)],
            "tasks of job job-2 from 13 on are charged twice in attempt 1",
        ),
    ],
)
def test_a_document_that_is_not_what_was_booked_is_found(
    copied: Copied, edits: list[str], problem: str, commit: Commit, usage: Usage
) -> None:
    def filled_with_more(url: str) -> None:
        fill(url, commit, usage)
        fill_more(url, commit, usage)
        found = audited(url)
        assert found.is_clean, found

    url = copied(filled_with_more)
    with vandal(url) as run:
        for sql in edits:
            run(sql)
    told = " | ".join(each for check in audited(url).checks for each in check.problems)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(told)


@pytest.mark.parametrize("name", ["job", "user", "project", "pool", "currency"])
def test_a_record_with_a_nul_that_an_older_version_stored_is_a_finding(
    name: str, tmp_path: Path, commit: Commit, usage: Usage
) -> None:
    old = usage(first=10)
    object.__setattr__(old, name, "a\0b")  # the check of its texts is younger
    url = f"sqlite:///{tmp_path / 'gridfed.db'}"
    with closing(SqlStore(url)) as store:
        commit(store, usage(first=0), old, usage(first=20))
    found = [each.problems for each in audited(url).checks if each.problems]
    row = f"usage {old.job}/10/0 is invalid: a text has a character that databases can't store"
    assert found == [(row,)]


def blob(url: str, of: bytes) -> str:
    """Bytes as the SQL of either database writes them."""
    return f"x'{of.hex()}'" if url.startswith("sqlite") else f"'\\x{of.hex()}'"


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        (["UPDATE statements SET sums = {ff}"], "the findings of sell of london in .* be read"),
        (["UPDATE statements SET sums = {usd}"], "the findings of sell of london in .* be read"),
        (
            ["UPDATE payments_told SET lines = {ff}"],
            "the report of payments by london can't be read",
        ),
        (["UPDATE statements SET first_ms = -1"], "the findings of sell of london in .* be read"),
        (
            ["UPDATE transfers SET debit = 999 WHERE number = 60"],
            "debit should be bank: EUR, but no such account:999  is booked",
        ),
    ],
)
def test_what_cant_be_read_is_found_and_hides_nothing_else(
    copied: Copied, edits: list[str], problem: str, commit: Commit, usage: Usage
) -> None:
    def filled(url: str) -> None:
        fill(url, commit, usage)

    url = copied(filled)
    values = {"ff": b"\xff", "usd": pack({"usd": ["1"] * 8})}
    with vandal(url) as run:
        disarm(url, run)
        if not url.startswith("sqlite"):
            run("ALTER TABLE transfers DROP CONSTRAINT transfers_debit_fkey")
        run("UPDATE usage SET cost_nanos = 5 WHERE first = 10")
        for sql in edits:
            run(sql.format(**{name: blob(url, value) for name, value in values.items()}))
        run("UPDATE usage_hours SET cost_nanos_low = 1")
    found = audited(url)
    told = " | ".join(each for check in found.checks for each in check.problems)
    for each in (problem, "use/job-1/10/0: amount_nanos should be 5", "the sums of hour"):
        with pytest.raises(AssertionError, match=each):
            raise AssertionError(told)


def test_a_column_of_another_type_is_found(
    new_url: Callable[[str], str], commit: Commit, usage: Usage
) -> None:
    url = new_url("sqlite")
    fill(url, commit, usage)
    with vandal(url) as run:
        run("UPDATE statements SET sums = 'text', kept_at_s = 'never'")
        run("UPDATE usage SET wall_ns = 'long' WHERE first = 10")
        run("UPDATE payments SET amount_nanos = 1")
    told = " | ".join(each for check in audited(url).checks for each in check.problems)
    assert "sell of london in [1699920000000, 1700006400000) can't be read" in told
    assert "a row can't be read" in told
    assert "pay/london/EUR/wire: amount_nanos should be 1, but 700 is" in told


SPAN = 1_699_920_000_000, 1_700_006_400_000
NO_FIXTURES = [HealthCheck.function_scoped_fixture]
OF_NOTHING = Reconcile(*SPAN, False, {}, b"")


@pytest.mark.parametrize(
    ("table", "column", "value", "problem"),
    [
        ("statements", "digest", b"\0", "differs from the agreed sums"),
        (
            "statements",
            "state",
            "differs",
            "our envelope has the state 'agreed', the books have 'differs'",
        ),
        ("statements", "ours", b"", "our envelope can't be read"),
        ("statements", "theirs", b"", "their envelope can't be read"),
        ("statements", "theirs", envelope(OF_NOTHING), "their envelope has other sums"),
        ("statements", "ours", envelope(OF_NOTHING), "our envelope belongs to another statement"),
        (
            "statements",
            "theirs",
            envelope(replace(OF_NOTHING, stop_ms=5)),
            "their envelope belongs to another statement",
        ),
        (
            "statements",
            "ours",
            envelope(Reconciled(*SPAN, False, "agreed", {}, b"", {})),
            "our envelope has other sums",
        ),
        ("statements", "ours", envelope(Payments([], 0, b"")), "our envelope can't be read"),
        ("payments_told", "envelope", b"", "its envelope can't be read"),
        (
            "payments_told",
            "envelope",
            envelope(OF_NOTHING),
            "its envelope belongs to another report",
        ),
        ("payments_told", "lines", pack([]), "differs from its envelope"),
        ("payments_told", "heard", b"", "differs from its envelope"),
        ("payments_told", "since_ms", 5, "differs from its envelope"),
    ],
)
def test_what_is_kept_is_what_was_signed(
    copied: Copied,
    table: str,
    column: str,
    value: bytes | str | int,
    problem: str,
    commit: Commit,
    usage: Usage,
) -> None:
    def filled(url: str) -> None:
        fill(url, commit, usage)

    url = copied(filled)
    with vandal(url) as run:
        new = blob(url, value) if isinstance(value, bytes) else repr(value)
        run(f"UPDATE {table} SET {column} = {new}")
    told = " | ".join(each for check in audited(url).checks for each in check.problems)
    assert problem in told


@pytest.mark.parametrize(
    ("table", "column"), [("transfers", "hash"), ("usage", '"user"'), ("statements", "digest")]
)
def test_what_no_text_can_be_read_from_ends_no_other_check(
    new_url: Callable[[str], str], table: str, column: str, commit: Commit, usage: Usage
) -> None:
    url = new_url("sqlite")  # PostgreSQL takes no such text
    fill(url, commit, usage)
    fill_more(url, commit, usage)
    with vandal(url) as run:
        disarm(url, run)
        run(f"UPDATE {table} SET {column} = CAST(x'ff' AS TEXT)")
        run("UPDATE payments SET amount_nanos = 1")
    told = " | ".join(each for check in audited(url).checks for each in check.problems)
    assert "can't be read" in told
    assert "pay/london/EUR/wire: amount_nanos should be 1" in told


def test_an_account_that_is_gone_is_found(
    new_url: Callable[[str], str], commit: Commit, usage: Usage
) -> None:
    url = new_url("sqlite")
    fill(url, commit, usage)
    with vandal(url) as run:
        run("DELETE FROM accounts WHERE kind = 'site'")
    told = " | ".join(each for check in audited(url).checks for each in check.problems)
    assert "pay/london/EUR/wire: credit should be site:london EUR, but no such account:" in told
    assert "EUR: debits minus credits are" in told


def test_what_ran_for_nothing_as_long_as_it_may_is_charged_again(
    url: str, commit: Commit, usage: Usage
) -> None:
    with closing(SqlStore(url)) as store:
        second = 10**9
        commit(store, usage(job="job-1", wall_ns=second))
        commit(store, usage(attempt=1, wall_ns=4 * second, state="repeat", cost_nanos=0))
        commit(store, usage(attempt=2, wall_ns=second))  # Job.may_repeat_free
    found = audited(url)
    assert found.is_clean, found


def test_what_was_charged_before_there_was_a_journal_is_booked(
    url: str, commit: Commit, usage: Usage
) -> None:
    fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        before = store.journal.balances()
    with vandal(url) as run:
        disarm(url, run)
        run("DELETE FROM transfers")
        run("DELETE FROM accounts")
    assert not audited(url).is_clean
    with closing(SqlStore(url)) as store:
        assert store.journal.balances() == before
        commit(store, usage(first=9_999))
    assert audited(url).is_clean


@settings(max_examples=12, deadline=None, suppress_health_check=NO_FIXTURES)
@given(data=st.data())
def test_holds_posts_voids_and_crashes_in_any_order_leave_clean_books(
    data: st.DataObject, new_url: Any, commit: Commit, usage: Usage
) -> None:
    whatever_happens(data, new_url("sqlite"), commit, usage)


@settings(max_examples=100, deadline=None, suppress_health_check=NO_FIXTURES)
@given(data=st.data())
@pytest.mark.thorough
def test_the_same_more_often(
    data: st.DataObject, new_url: Any, commit: Commit, usage: Usage
) -> None:
    whatever_happens(data, new_url("sqlite"), commit, usage)


def whatever_happens(data: st.DataObject, url: str, commit: Commit, usage: Usage) -> None:
    numbers = st.integers(0, 6)

    def tried(n: int, attempt: int) -> UsageRecord:
        """Finished work is not repeated; failed work is."""
        return usage(first=10 * n, attempt=attempt, state="ok" if attempt == 6 else "failed")

    record = st.one_of(
        st.builds(tried, numbers, numbers),
        st.builds(posted, numbers, st.sampled_from(["buy", "sell"])),
        st.builds(
            settled, numbers, st.sampled_from(["post", "void"]), st.sampled_from(["buy", "sell"])
        ),
    )
    step = st.one_of(st.lists(record, min_size=1, max_size=6), st.just("crash"))
    known: dict[tuple[str, int], bool] = {}
    store = SqlStore(url)
    try:
        commit(store, contract("buy"), contract("sell"))
        for chosen in data.draw(st.lists(step, max_size=12)):
            if chosen == "crash":
                store.close()
                store = SqlStore(url)
                continue
            sound: list[Record] = []
            for each in chosen:
                # The gateway settles nothing that was not delivered.
                if isinstance(each, Posted):
                    known[each.side, each.first] = True
                if not isinstance(each, PostingSettled) or (each.side, each.first) in known:
                    sound.append(each)
            commit(store, *sound)
    finally:
        store.close()
    found = audited(url)
    assert found.is_clean, found
    with vandal(url) as run:
        assert run("SELECT count(*) FROM transfers").scalar() == found.transfers
