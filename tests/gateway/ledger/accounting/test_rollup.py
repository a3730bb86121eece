"""Rolling up: fewer rows and not a nano-unit less, at any age and wherever it is killed."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from support.answers import answer
from support.ledger_processes import ROLLING, start
from support.pure.books import agreed_on

from federation.messages.reconciliation import tally_of
from federation.ranges import RangeSet
from gateway.cli.main import cli
from gateway.ledger.accounting import checkpoints, rollup
from gateway.ledger.accounting.postings import LedgerAccount
from gateway.ledger.audit.audit import Audit, audit
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    MoveProved,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.jobs.records import JobEnded, JobOpenedRecord
from gateway.ledger.db.settlement.records import Payment, StatementKept
from gateway.ledger.db.usage.records import Dimension, UsageRecord
from gateway.ledger.store.copying import move
from gateway.ledger.store.store import SqlStore

Usage = Callable[..., UsageRecord]
Commit = Callable[..., None]
Copied = Callable[[Callable[[str], None]], str]

BEGIN_S = 1_699_999_200.0  # an hour begins
HOUR_S = 3_600.0
DAY_S = 86_400.0
KINDS = ("sqlite", "postgresql")


def audited(url: str) -> Audit:
    with snapshot(url) as connection:
        return audit(connection)


def problems(found: Audit) -> str:
    return " | ".join(each for check in found.checks for each in check.problems)


@contextmanager
def vandal(url: str) -> Iterator[Any]:
    """A person that writes to the database by hand."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield lambda sql: connection.execute(text(sql))
    finally:
        engine.dispose()


def rows(url: str, table: str) -> int:
    with vandal(url) as run:
        return int(run(f"SELECT count(*) FROM {table}").scalar_one())


def opened(job: str, at_s: float = BEGIN_S) -> JobOpenedRecord:
    return JobOpenedRecord(job, "var", "ada", "risk", False, b"", at_s)


def ended(job: str, at_s: float) -> JobEnded:
    return JobEnded(job, "done", "", at_s, 1, 0, 0)


def contract(name: str, side: Any) -> ContractOpened:
    return ContractOpened(name, side, "london", "job", "pool", 1, 5, "EUR", 30.0, BEGIN_S)


def posted(name: str, side: Any, first: int, at_s: float, cost_nanos: int = 500) -> Posted:
    return Posted(name, side, "london", 1, first, 1, 10, cost_nanos, "EUR", at_s)


def settled(name: str, side: Any, first: int, state: str, at_s: float) -> PostingSettled:
    return PostingSettled(name, side, "london", 1, first, state, 500, "EUR", at_s)


def roll_up(store: SqlStore, now_s: float, keep_s: float = 0.0, pieces: int = 100_000) -> int:
    """So many pieces at most; how many there were."""
    done = 0
    while done < pieces and store.roll_up(now_s, keep_s):
        done += 1
    return done


def seen(store: SqlStore, jobs: list[str]) -> dict[str, Any]:
    """All readable figures of usage, deliveries and postings."""
    found: dict[str, Any] = {
        each.value: store.usage.totals([each], BEGIN_S, BEGIN_S + 400 * DAY_S) for each in Dimension
    }
    found |= {
        f"{name} by {each.value}": store.usage.totals([each], only={Dimension.JOB: name})
        for name in jobs
        for each in (Dimension.WORKER, Dimension.HOUR, Dimension.STATE)
    }
    found["all"] = store.usage.totals(list(Dimension))
    found["jobs"] = [store.jobs.get(name) for name in jobs]
    found["charged"] = [
        list(RangeSet((f, f + n) for f, n in store.usage.charged_ranges(job))) for job in jobs
    ]
    found["balances"] = store.journal.balances()
    found["deals"] = store.contracts.totals()
    found["bought"] = [
        each for each in store.contracts.postings("buy", "c-1") if each.state != "void"
    ]
    return found  # fmt: skip


# --- any records, any age, any pieces, killed anywhere -------------------------------------------

JOBS = ["job-0", "job-1", "london:c-1"]  # the last is of another site
PERIOD_S = 40 * HOUR_S

numbers = st.integers(0, 12)
uses = st.fixed_dictionaries(
    {
        "job": st.sampled_from(JOBS),
        "first": numbers.map(lambda n: 10 * n),
        "attempt": st.integers(1, 2),
        "ended_at_s": st.floats(BEGIN_S, BEGIN_S + 3 * HOUR_S),
        "worker": st.sampled_from(["w1", "w2"]),
        "state": st.sampled_from(["ok", "ok", "failed", "repeat"]),
        "wall_ns": st.sampled_from([0, 5, 2**62]),
        "pool": st.sampled_from(["local", "local", "paris/grid"]),
        "cost_nanos": st.sampled_from([0, 7, 11, 2**62, NUMBER_LIMIT]),
        "energy_uj": numbers,
        "peak_memory_bytes": numbers,
        "currency": st.sampled_from(["USD", "EUR"]),
    }
)
deliveries = st.tuples(
    st.sampled_from(["buy", "sell"]), numbers, st.sampled_from(["", "post", "void"])
)


def write_all(store: SqlStore, commit: Commit, usage: Usage, data: st.DataObject) -> None:
    made: dict[tuple[Any, ...], Any] = {}
    for fields in data.draw(st.lists(uses, max_size=30)):
        made.setdefault((fields["job"], fields["first"], fields["attempt"]), usage(**fields))
    for (job, first, attempt), each in made.items():
        # Finished work is not charged again.
        if attempt == 1 and (job, first, 2) in made and each.state == "ok":
            made[job, first, attempt] = replace(each, state="failed")
    for side, first, state in data.draw(st.lists(deliveries, max_size=20)):
        at_s = BEGIN_S + data.draw(st.floats(0, 30 * HOUR_S))
        made.setdefault((side, first), posted("c-1", side, first, at_s))
        if state:
            made.setdefault((side, first, state), settled("c-1", side, first, state, at_s + 1))
    commit(store, opened(JOBS[0]), opened(JOBS[1]), contract("c-1", "buy"), contract("c-1", "sell"))
    for record in made.values():
        commit(store, record)
    at_s = st.floats(BEGIN_S, BEGIN_S + PERIOD_S)
    for each in data.draw(st.sets(st.sampled_from(["job-0", "job-1", "buy", "sell"]))):
        if each.startswith("job"):
            commit(store, ended(each, data.draw(at_s)))
        else:
            commit(store, ContractEnded("c-1", each, "settled", data.draw(at_s)))  # type: ignore[arg-type]


def any_roll_up(url: str, commit: Commit, usage: Usage, data: st.DataObject) -> None:
    store = SqlStore(url)
    try:
        write_all(store, commit, usage, data)
        before = seen(store, JOBS)
        for _ in range(data.draw(st.integers(1, 3))):
            now_s = BEGIN_S + data.draw(st.floats(0, PERIOD_S + DAY_S))
            roll_up(store, now_s, pieces=data.draw(st.integers(1, 12)))
            if data.draw(st.booleans()):  # a process that is killed here has committed this much
                store.close()
                found = audited(url)
                assert found.is_clean, found
                store = SqlStore(url)
            assert seen(store, JOBS) == before
        roll_up(store, BEGIN_S + 400 * DAY_S)  # a roll-up that had begun goes on as it began
        roll_up(store, BEGIN_S + 400 * DAY_S)
        assert seen(store, JOBS) == before
        left = rows(url, "usage"), rows(url, "transfers"), rows(url, "postings")
        roll_up(store, BEGIN_S + 400 * DAY_S)
        assert (rows(url, "usage"), rows(url, "transfers"), rows(url, "postings")) == left
        commit(store, usage(first=10_000, ended_at_s=BEGIN_S + PERIOD_S))
    finally:
        store.close()
    found = audited(url)
    assert found.is_clean, found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "PIECE_ROWS", 3)
    monkeypatch.setattr(rollup, "_PAGE", 1)
    monkeypatch.setattr(checkpoints, "TRANSFERS_MAX", 7)


NO_FIXTURES = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
]


@settings(max_examples=6, deadline=None, suppress_health_check=NO_FIXTURES)
@given(data=st.data())
@pytest.mark.thorough
def test_no_sum_changes_whatever_is_rolled_up_and_wherever_it_stops(
    data: st.DataObject, small_pieces: None, new_url: Any, commit: Commit, usage: Usage
) -> None:
    any_roll_up(new_url("sqlite"), commit, usage, data)


@settings(max_examples=40, deadline=None, suppress_health_check=NO_FIXTURES)
@given(data=st.data())
@pytest.mark.thorough
def test_the_same_more_often(
    data: st.DataObject, small_pieces: None, new_url: Any, commit: Commit, usage: Usage
) -> None:
    any_roll_up(new_url("sqlite"), commit, usage, data)


@settings(max_examples=5, deadline=None, suppress_health_check=NO_FIXTURES)
@given(data=st.data())
@pytest.mark.thorough
def test_the_same_on_postgresql(
    data: st.DataObject, small_pieces: None, new_url: Any, commit: Commit, usage: Usage
) -> None:
    any_roll_up(new_url("postgresql"), commit, usage, data)


# --- the fate of rows -----------------------------------------------------------------------------

LATER_S = BEGIN_S + 100 * DAY_S


def closed(store: SqlStore) -> StatementKept:
    """Both sites have closed the period of the sale, up to pending deliveries."""
    span = round(BEGIN_S * 1000), round(BEGIN_S * 1000) + 38_000
    account = tally_of(store.settlement.entries("sell", "london", *span))
    return agreed_on("sell", "london", span, account, is_final=True)


def fill(url: str, commit: Commit, usage: Usage) -> dict[str, Any]:
    """A job of 300 records in two hours, another that is open, purchases and sales."""
    with closing(SqlStore(url)) as store:
        commit(store, opened("job-1"), opened("job-2"))
        commit(store, contract("c-1", "buy"), contract("c-1", "sell"))
        for job in ("job-1", "job-2", "london:c-1"):
            commit(
                store,
                *(
                    usage(
                        job=job,
                        first=10 * n,
                        ended_at_s=BEGIN_S + n * 24.0,
                        wall_ns=10**15 + n,
                        cost_nanos=n + 1,
                        peak_memory_bytes=1000 - n,
                    )
                    for n in range(300)
                ),
            )
        for side in ("buy", "sell"):
            commit(store, *(posted("c-1", side, n, BEGIN_S + n) for n in range(40)))
            commit(store, *(settled("c-1", side, n, ["post", "void"][n % 2], BEGIN_S + 100 + n)
                            for n in range(38)))  # fmt: skip
            commit(store, ContractEnded("c-1", side, "settled", BEGIN_S + 8 * HOUR_S))
        commit(store, closed(store))
        commit(store, ended("job-1", BEGIN_S + 8 * HOUR_S))
        return seen(store, ["job-1", "job-2", "london:c-1"])


def test_a_job_becomes_a_row_for_each_hour(url: str, commit: Commit, usage: Usage) -> None:
    before = fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        assert roll_up(store, BEGIN_S + 89 * DAY_S, 90 * DAY_S) <= 2  # nothing is old yet
        assert rows(url, "usage") == 900
        roll_up(store, LATER_S, 90 * DAY_S)
        assert seen(store, ["job-1", "job-2", "london:c-1"]) == before
    with vandal(url) as run:
        found = run(
            "SELECT first, tasks, records, wall_ns, cost_nanos, peak_memory_bytes, started_at_s, "
            "ended_at_s FROM usage WHERE job = 'job-1' ORDER BY first"
        ).all()
        ranges = run("SELECT job, first, tasks FROM usage_ranges ORDER BY job").all()
        checked = run("SELECT max(number) FROM checkpoints").scalar()
    half = 150 * 149 // 2
    start_s = BEGIN_S - 1.5 + 1.5
    assert [tuple(row) for row in found] == [
        (0, 1500, 150, 150 * 10**15 + half, half + 150, 1000, 1_700_000_000.0, start_s + 149 * 24),
        (1500, 1500, 150, 150 * 10**15 + half + 150 * 150, half + 150 * 151, 850, 1_700_000_000.0,
         start_s + 299 * 24),
    ]  # fmt: skip
    assert [tuple(row) for row in ranges] == [("job-1", 0, 3000), ("london:c-1", 0, 3000)]
    # Open: its records stay. The transfers are gone, but for unresolved holds.
    assert rows(url, "usage WHERE job = 'job-2'") == 300
    assert (rows(url, "transfers"), checked) == (4, 900 + 2 * 78)
    # Sold: by verdict, and pending ones. Bought: paid ones stay.
    assert rows(url, "postings WHERE side = 'sell'") == 2 + 2
    assert rows(url, "postings WHERE side = 'buy'") == 19 + 1 + 2
    assert rows(url, "usage_hours") == 4  # ours, and those of another site's job
    found = audited(url)
    assert found.is_clean, found
    assert (found.transfers, len(found.checkpoint)) == (900 + 2 * 78, 64)


def test_what_users_held_becomes_a_row_for_each_hour(
    url: str, commit: Commit, usage: Usage
) -> None:
    held = {"kind": "held", "tasks": 0, "wall_ns": 0, "cpu_ns": 0, "peak_memory_bytes": 0}
    records = [
        usage(job="held/1", first=2**62 + n, worker=f"b3:{n}", held_byte_s=10, cost_nanos=n, **held)
        for n in range(5)
    ]
    with closing(SqlStore(url)) as store:
        commit(store, *records, *records)
        before = store.usage.totals([Dimension.KIND])
        assert store.usage.held_since(0.0) == {each.first: each.ended_at_s for each in records}
        roll_up(store, BEGIN_S + 400 * DAY_S)
        assert store.usage.held_since(0.0) == {}
        assert store.usage.totals([Dimension.KIND]) == before
    assert [(each.held_byte_s, each.cost_nanos) for each in before] == [(50, 10)]
    assert rows(url, "usage") == 1
    assert audited(url).is_clean


def test_objects_that_moved_become_a_row_for_each_hour(
    url: str, commit: Commit, usage: Usage
) -> None:
    moved = {"kind": "moved", "tasks": 0, "wall_ns": 0, "cpu_ns": 0, "peak_memory_bytes": 0}
    records = [
        usage(job="paris:moved/1", first=2**59 + n, worker=f"b3:{n}", moved_bytes=10, **moved)
        for n in range(5)
    ]
    with closing(SqlStore(url)) as store:
        commit(store, *records)
        before = store.usage.totals([Dimension.KIND])
        roll_up(store, BEGIN_S + 400 * DAY_S)
        assert store.usage.totals([Dimension.KIND]) == before
    assert [(each.key, each.moved_bytes) for each in before] == [(("moved",), 50)]
    assert rows(url, "usage") == 1
    assert audited(url).is_clean


def test_the_proofs_of_moves_go_with_their_deliveries(url: str, commit: Commit) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, contract("c-1", "sell"))
        for first in range(5):
            state = "void" if first else "post"  # the paid one stays: no period is agreed
            commit(
                store,
                posted("c-1", "sell", first, BEGIN_S),
                MoveProved("c-1", "sell", 1, first, b"ticket", b"receipt"),
                settled("c-1", "sell", first, state, BEGIN_S),
            )
        commit(store, ContractEnded("c-1", "sell", "settled", BEGIN_S + HOUR_S))
        assert len(store.contracts.proofs("sell", "c-1")) == 5
        roll_up(store, BEGIN_S + 400 * DAY_S)
        assert store.contracts.proofs("sell", "c-1") == {(1, 0): (b"ticket", b"receipt")}
    assert audited(url).is_clean


def test_what_was_left_as_it_was_not_over_is_rolled_up_when_it_is(
    url: str, commit: Commit, usage: Usage
) -> None:
    fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        roll_up(store, LATER_S, 90 * DAY_S)
        commit(store, ended("job-2", LATER_S))
        commit(store, settled("c-1", "sell", 38, "post", LATER_S))
        roll_up(store, LATER_S + 89 * DAY_S, 90 * DAY_S)
        assert rows(url, "usage WHERE job = 'job-2'") == 300
        before = seen(store, ["job-2"])
        roll_up(store, LATER_S + 91 * DAY_S, 90 * DAY_S)
        assert seen(store, ["job-2"]) == before
    assert rows(url, "usage WHERE job = 'job-2'") == 2
    assert rows(url, "transfers") == 3
    assert audited(url).is_clean


def test_payments_are_undone_before_and_after_a_checkpoint_stands_for_them(
    url: str, commit: Commit
) -> None:
    paid = [
        Payment("paris", name, "EUR", "paid", "bank", 7, "", BEGIN_S) for name in ("old", "new")
    ]
    site = LedgerAccount("site", "paris", "", "EUR")
    with closing(SqlStore(url)) as store:
        commit(store, *paid)
        commit(store, store.settlement.payments()[1].undone("a slip", BEGIN_S + 1))
        assert roll_up(store, LATER_S)
        assert not list(store.journal.booked(0, 10))
        assert audited(url).is_clean, problems(audited(url))
        commit(store, store.settlement.payments()[0].undone("another", LATER_S))
        assert [each.stands for each in store.settlement.payments()] == [False, False]
        assert store.journal.balances()[site].net_nanos == 0
    assert audited(url).is_clean, problems(audited(url))
    with closing(SqlStore(url)) as store:
        assert roll_up(store, LATER_S + 100 * DAY_S)
    assert audited(url).is_clean, problems(audited(url))


def test_sums_that_no_column_holds_stay_in_several_rows(
    url: str, commit: Commit, usage: Usage
) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, opened("job-1"))
        commit(store, *(usage(first=10 * n, cost_nanos=2**61) for n in range(4)))
        commit(store, *(usage(first=1000 + 10 * n, worker="w2") for n in range(4)))
        commit(store, ended("job-1", BEGIN_S + HOUR_S))
        roll_up(store, LATER_S)
        assert store.usage.totals([])[0].cost_nanos == 4 * 2**61 + 4 * 16_667
    assert rows(url, "usage") == 5
    assert audited(url).is_clean


def test_what_was_charged_twice_stays_to_be_found(url: str, commit: Commit, usage: Usage) -> None:
    with closing(SqlStore(url)) as store:
        commit(store, opened("job-1"), *(usage(first=5 * n) for n in range(4)))
        commit(store, ended("job-1", BEGIN_S + HOUR_S))
        roll_up(store, LATER_S)
    assert rows(url, "usage") == 4
    assert "are charged twice, first" in problems(audited(url))


def test_a_late_copy_changes_nothing_and_late_news_is_counted(
    url: str, commit: Commit, usage: Usage
) -> None:
    fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        roll_up(store, LATER_S, 90 * DAY_S)
        before = seen(store, ["job-1", "job-2", "london:c-1"])
        copies = [
            *(usage(job=job, first=first, ended_at_s=BEGIN_S + 24.0, cost_nanos=2)
              for job in ("job-1", "job-2", "london:c-1") for first in (0, 10, 2_990)),
            posted("c-1", "sell", 3, BEGIN_S + 3),
            posted("c-1", "sell", 39, BEGIN_S + 39),
            posted("c-1", "buy", 2, BEGIN_S + 2),
            settled("c-1", "sell", 3, "void", BEGIN_S + 103),
            settled("c-1", "buy", 2, "post", BEGIN_S + 102),
        ]  # fmt: skip
        commit(store, *copies)
        for each in copies:
            commit(store, each)
        store.close()
        store = SqlStore(url)
        commit(store, *copies)
        assert seen(store, ["job-1", "job-2", "london:c-1"]) == before
        commit(store, usage(first=5_000, ended_at_s=BEGIN_S, attempt=2))
        assert store.usage.totals([])[0].records == 901
        store.close()
    assert audited(url).is_clean


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.thorough)])
def test_kill_9_at_any_point_loses_nothing_and_it_goes_on_from_there(
    kind: str, new_url: Any, commit: Commit, usage: Usage
) -> None:
    url = new_url(kind)
    jobs = ["job-1", "job-2", "london:c-1"]
    fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        commit(store, ended("job-2", BEGIN_S + 8 * HOUR_S))
        before = seen(store, jobs)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    is_done = False
    while not is_done:
        with start(ROLLING, url) as rolling:
            assert rolling.stdout is not None
            for _ in range(chance.randint(5, 40)):
                is_done = not rolling.stdout.readline()
            if not is_done:
                time.sleep(chance.random() * 0.01)
                rolling.kill()
        found = audited(url)
        assert found.is_clean, found
    with closing(SqlStore(url)) as store:
        assert seen(store, jobs) == before
    assert rows(url, "usage") == 3 * 2


# --- proof ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        (
            "UPDATE usage SET cost_nanos = cost_nanos + 1 WHERE job = 'job-1' AND first = 0",
            "debits of user:ada/risk USD are 90300 in the checkpoint, 90301 in its records",
        ),
        ("DELETE FROM usage WHERE job = 'job-1' AND first = 0", "credits of pool:local USD are"),
        ("UPDATE usage SET \"user\" = 'eve' WHERE job = 'job-1'", "of user:eve/risk USD are 0"),
        ("UPDATE usage SET tasks = tasks + 1 WHERE records > 1", "but the kept ranges have 3000"),
        ("UPDATE usage SET wall_ns = 1 WHERE job = 'job-1'", "the sums of hour .* differ"),
        ("DELETE FROM usage_ranges", "job-1 has 3000 tasks, but the kept ranges have 0"),
        ("UPDATE postings SET cost_nanos = 1 WHERE records > 1 AND side = 'sell'", "of site:"),
        ("UPDATE postings SET state = 'void' WHERE side = 'buy' AND first = 0", "credits of site:"),
        (
            "UPDATE checkpoint_balances SET debits_low = debits_low + 1 WHERE account = 1",
            "balances or open holds differ from the checkpoint",
        ),
        ("DELETE FROM checkpoint_balances", "balances or open holds differ"),
        ("DELETE FROM transfers WHERE number <= 1000", "holds differ from"),
        ("UPDATE transfers SET amount_nanos = 1 WHERE number <= 1000", "holds differ from"),
        ("DELETE FROM transfers WHERE key = 'use/job-3/0/0'", "transfer 1057 is missing"),
        ("UPDATE checkpoints SET at_s = 1.0", "the checkpoint at transfer 1056 differs"),
        ("UPDATE checkpoints SET number = 1055", "the checkpoint at transfer 1055 differs"),
        ("UPDATE checkpoints SET hash = contents", "transfer 1057 .* differs from the original"),
        ("DELETE FROM checkpoints", "without a checkpoint"),
        ("DELETE FROM usage WHERE job = 'job-3' AND first = 0", "job-3/0/0 is booked, but its"),
    ],
)  # fmt: skip
def test_a_change_by_hand_of_what_is_rolled_up_is_found(
    copied: Copied, sql: str, problem: str, commit: Commit, usage: Usage
) -> None:
    def rolled_up_and_more(url: str) -> None:
        fill(url, commit, usage)
        with closing(SqlStore(url)) as store:
            roll_up(store, LATER_S, 90 * DAY_S)
            commit(store, *(usage(job="job-3", first=n, tasks=1) for n in range(3)))
        assert audited(url).is_clean

    url = copied(rolled_up_and_more)
    with vandal(url) as run:
        for name in ("transfers", "checkpoints"):
            if url.startswith("sqlite"):
                run(f"DROP TRIGGER {name}_no_update")
                run(f"DROP TRIGGER {name}_no_delete")
            else:
                run(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        run(sql)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(problems(audited(url)))


def test_only_what_a_checkpoint_stands_for_can_be_dropped(
    url: str, commit: Commit, usage: Usage
) -> None:
    fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        roll_up(store, LATER_S, 90 * DAY_S)
        commit(store, usage(job="job-3"))
    with vandal(url) as run:
        for sql, complaint in (
            ("DELETE FROM transfers WHERE number = 1057", "transfers are never changed"),
            ("UPDATE transfers SET amount_nanos = 1 WHERE number < 1057", "transfers are never ch"),
            ("DELETE FROM checkpoints", "checkpoints are never changed"),
            ("UPDATE checkpoints SET number = 2000", "checkpoints are never changed"),
        ):
            with pytest.raises(DBAPIError, match=complaint):
                run(sql)
    assert audited(url).is_clean


@pytest.mark.parametrize("target", KINDS)
def test_what_is_rolled_up_is_moved_as_it_is(
    url: str, target: str, new_url: Any, commit: Commit, usage: Usage
) -> None:
    before = fill(url, commit, usage)
    with closing(SqlStore(url)) as store:
        roll_up(store, LATER_S, 90 * DAY_S)
    moved = new_url(target)
    move(url, moved)
    assert audited(moved).checkpoint == audited(url).checkpoint
    with closing(SqlStore(moved)) as store:
        assert seen(store, ["job-1", "job-2", "london:c-1"]) == before
        commit(store, usage(first=0, ended_at_s=BEGIN_S))  # it knows the rolled-up records
        assert store.journal.balances() == before["balances"]
        commit(store, ended("job-2", BEGIN_S))
        roll_up(store, LATER_S + DAY_S, 90 * DAY_S)
    assert audited(moved).is_clean


# --- by hand --------------------------------------------------------------------------------------


def test_the_command_rolls_up_what_a_stopped_gateway_left(
    tmp_path: Path, commit: Commit, usage: Usage
) -> None:
    path = tmp_path / "gridfed.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")  # a file of before there was rolling up
    before = fill(f"sqlite:///{path}", commit, usage)
    size = path.stat().st_size
    run = CliRunner()
    with closing(SqlStore(f"sqlite:///{path}")):
        busy = run.invoke(cli, ["db", "roll-up", "--state", str(tmp_path)])
    assert (busy.exit_code, "stop that gateway" in busy.output) == (1, True)
    done = run.invoke(
        cli, ["db", "roll-up", "--state", str(tmp_path), "--days", "30", "--yes", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert answer(done.output)[0] == {"table": "usage", "before": 900, "after": 304}
    assert path.stat().st_size < size
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    shown = run.invoke(cli, ["audit", "--state", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert f"rolled-up transfer: {audited(f'sqlite:///{path}').checkpoint}" in shown.output
    with closing(SqlStore(f"sqlite:///{path}")) as store:
        assert seen(store, ["job-1", "job-2", "london:c-1"]) == before


def test_free_space_is_given_back_bit_by_bit(
    tmp_path: Path, commit: Commit, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "_PAGES_SPARE", 4)
    monkeypatch.setattr(rollup, "_PAGES_AT_ONCE", 8)
    path = tmp_path / "books.db"
    fill(f"sqlite:///{path}", commit, usage)
    size = path.stat().st_size
    with closing(SqlStore(f"sqlite:///{path}")) as store:
        roll_up(store, LATER_S)
    assert path.stat().st_size < 0.75 * size
