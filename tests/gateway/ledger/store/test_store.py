"""The contract of a Store: every implementation passes all of this."""

import threading
from collections.abc import Callable
from dataclasses import asdict, astuple, replace
from random import Random
from typing import Any

import pytest

from federation.messages.wire import unpack
from gateway.ledger.db.alerts.records import AlertEnded, AlertFired, AlertRow
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.drains.records import DrainEnded, DrainKept
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.db.jobs.records import (
    BundleKept,
    EndOrdered,
    FunctionKept,
    JobClosedRecord,
    JobEnded,
    JobForgotten,
    JobOpenedRecord,
    JobRow,
    JobsWanted,
    LeftJobCancelled,
    LeftTermsKept,
    OutcomeKept,
    may_return,
)
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.rules.records import (
    RuleChangeCancelled,
    RuleChangeKept,
    RuleChangeRow,
    RuleEditKept,
)
from gateway.ledger.db.usage.records import (
    CapacityRecord,
    CapacityTotal,
    Dimension,
    UsageRecord,
    UsageTotal,
)
from gateway.ledger.store.store import Store

Commit = Callable[..., None]
Usage = Callable[..., UsageRecord]
OpenStore = Callable[..., Store]


def opened(job: str = "job-1", **fields: Any) -> JobOpenedRecord:
    defaults: dict[str, Any] = {
        "name": "var",
        "user": "ada",
        "project": "risk",
        "detached": True,
        "spec": b"spec",
        "submitted_at_s": 1_700_000_000.0,
    }
    return JobOpenedRecord(job, **(defaults | fields))


def ended(job: str = "job-1", **fields: Any) -> JobEnded:
    defaults: dict[str, Any] = {
        "state": "done",
        "reason": "",
        "ended_at_s": 1_700_000_100.0,
        "done": 3,
        "failed": 0,
        "cancelled": 0,
    }
    return JobEnded(job, **(defaults | fields))


def test_a_job_is_read_as_it_was_written(store: Store, commit: Commit) -> None:
    commit(store, opened(spec=b"\x00\xff", function=b"digest"), JobClosedRecord("job-1", 7))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.name, job.user, job.project, job.detached) == ("var", "ada", "risk", True)
    assert (job.spec, job.submitted_at_s, job.total) == (b"\x00\xff", 1_700_000_000.0, 7)
    assert (job.state, job.reason, job.ended_at_s, job.forgotten) == ("open", "", None, False)
    assert (job.done, job.failed, job.cancelled) == (0, 0, 0)
    assert (job.wall_ns, job.cpu_ns, job.costs_nanos) == (0, 0, {})


def test_a_job_that_never_was_is_none(store: Store) -> None:
    assert store.jobs.get("nobody") is None


def test_the_end_of_a_job_is_kept_with_its_counts(store: Store, commit: Commit) -> None:
    commit(store, opened(), ended(state="failed", reason="poison", done=1, failed=2, cancelled=3))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.reason, job.ended_at_s) == ("failed", "poison", 1_700_000_100.0)
    assert (job.done, job.failed, job.cancelled) == (1, 2, 3)


def test_the_first_end_stands(store: Store, commit: Commit) -> None:
    commit(store, opened(), ended(state="cancelled"))
    commit(store, ended(state="done"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert job.state == "cancelled"


def test_opening_a_job_again_changes_nothing(store: Store, commit: Commit) -> None:
    commit(store, opened(), JobClosedRecord("job-1", 7), ended())
    commit(store, opened(name="other", spec=b"other"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.name, job.spec, job.total, job.state) == ("var", b"spec", 7, "done")


def test_a_job_that_is_to_end_has_no_arguments_left_and_is_unfinished(
    store: Store, commit: Commit
) -> None:
    commit(
        store,
        *(opened(), BundleKept("job-1", 0, 2, b"x"), BundleKept("job-1", 2, 1, b"y")),
        *(opened("job-2"), BundleKept("job-2", 0, 1, b"z")),
        EndOrdered("job-1", "cancelling", "cancelled on request"),
    )
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.reason, job.ended_at_s) == ("cancelling", "cancelled on request", None)
    assert [each.job for each in store.jobs.unfinished()] == ["job-1", "job-2"]
    # A version that does not know the state reads that these ranges have no call to run.
    kept = list(store.jobs.bundles("job-1"))
    assert [(first, count, unpack(body, 100)) for first, count, body in kept] == [
        (0, 2, []),
        (2, 1, []),
    ]
    assert list(store.jobs.bundles("job-2")) == [(0, 1, b"z")]
    commit(store, opened(spec=b"other"))  # its client, with another token
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.spec) == ("cancelling", b"spec")
    assert [each.job for each in store.jobs.latest(9, wanted=JobsWanted(state="cancelling"))] == [
        "job-1"
    ]
    commit(store, ended(state="cancelled"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.ended_at_s) == ("cancelled", 1_700_000_100.0)


def test_an_order_to_end_changes_no_job_that_has_ended(store: Store, commit: Commit) -> None:
    commit(store, opened(), ended(), EndOrdered("job-1", "cancelling", "late"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.reason) == ("done", "")


def test_an_attached_job_that_was_cancelled_is_so_after_its_gateway_died(
    store: Store, commit: Commit
) -> None:
    commit(
        store,
        *(opened(job, detached=False) for job in ("cancelled", "lost")),
        EndOrdered("cancelled", "cancelling", "cancelled on request"),
    )
    store.mark_lost(5.0)
    found = {each.job: (each.state, each.reason, each.ended_at_s) for each in store.jobs.latest(9)}
    assert found == {
        "cancelled": ("cancelled", "cancelled on request", 5.0),
        "lost": ("lost", "its gateway stopped before it ended", 5.0),
    }
    commit(store, opened("cancelled", detached=False))
    job = store.jobs.get("cancelled")
    assert job is not None
    assert job.state == "cancelled"


def test_orders_change_attached_jobs_that_were_lost_or_abandoned_and_no_others(
    store: Store, commit: Commit
) -> None:
    commit(
        store,
        *(opened(job, detached=False) for job in ("left", "lost", "open", "done")),
        *(opened("kept"), ended("kept", state="abandoned")),
        *(ended("left", state="abandoned"), ended("done")),
    )
    commit(store, ended("open", state="cancelled"))
    store.mark_lost(5.0)
    commit(store, opened("open2", detached=False))
    names = ("left", "lost", "open", "open2", "done", "kept")
    commit(store, *(LeftTermsKept(job, b"held") for job in names))
    found = {each.job: each.spec for each in store.jobs.latest(9)}
    assert {job for job, terms in found.items() if terms == b"held"} == {"left", "lost"}
    assert {job for job in names if may_return(_row(store, job))} == {"left", "lost"}
    commit(store, *(LeftJobCancelled(job, "cancelled by root, the operator") for job in names))
    rows = [_row(store, job) for job in ("left", "lost")]
    assert {(each.state, each.reason) for each in rows} == {
        ("cancelled", "cancelled by root, the operator")
    }
    states = [_row(store, job).state for job in ("open", "open2", "done", "kept")]
    assert states == ["cancelled", "open", "done", "abandoned"]
    commit(store, *(opened(job, detached=False) for job in ("left", "lost")))  # it returns
    assert {_row(store, job).state for job in ("left", "lost")} == {"cancelled"}


def _row(store: Store, job: str) -> JobRow:
    row = store.jobs.get(job)
    assert row is not None
    return row


def test_jobs_are_listed_latest_first_and_by_whom(store: Store, commit: Commit) -> None:
    commit(
        store,
        opened("a", submitted_at_s=1.0),
        opened("b", submitted_at_s=3.0, user="bob"),
        opened("c", submitted_at_s=2.0, project="desk"),
    )
    assert [job.job for job in store.jobs.latest(10)] == ["b", "c", "a"]
    assert [job.job for job in store.jobs.latest(2)] == ["b", "c"]
    assert [job.job for job in store.jobs.latest(10, user="ada")] == ["c", "a"]
    assert [job.job for job in store.jobs.latest(10, user="ada", project="desk")] == ["c"]


def test_jobs_are_found_by_name_state_and_the_beginning_of_their_id(
    store: Store, commit: Commit
) -> None:
    ids = {name: f"01m8{name:0<22}" for name in "abcdefg"}
    counts = {"a": (2, 0, 0), "b": (0, 2, 0), "c": (1, 1, 0), "d": (0, 0, 2), "e": (0, 0, 0)}
    commit(
        store,
        *(opened(job, name=f"n-{name}", submitted_at_s=9.0) for name, job in ids.items()),
        opened("02m8" + "a" * 22, submitted_at_s=1.0, name="n-a"),
        *(
            ended(ids[name], done=done, failed=failed, cancelled=cancelled)
            for name, (done, failed, cancelled) in counts.items()
        ),
        ended(ids["f"], state="cancelled"),
    )

    def found(**wanted: Any) -> str:
        rows = store.jobs.latest(10, wanted=JobsWanted(**wanted))
        return "".join(row.name[-1] for row in rows)

    assert found() == "abcdefga"
    assert found(name="n-a") == "aa"
    assert found(name="n-") == ""
    assert found(prefix="01m8") == "abcdefg"
    assert found(prefix="01m8a") == "a"
    assert found(prefix="02m8") == "a"
    assert found(prefix="01m9") == ""
    states = {"done": "ae", "failed": "bc", "partly failed": "c", "cancelled": "df", "open": "ga"}
    assert {state: found(state=state) for state in states} == states
    assert found(state="lost") == ""
    assert found(after=(9.0, ids["c"])) == "defga"
    assert found(after=(9.0, ids["g"])) == "a"
    assert found(after=(9.0, ids["c"]), prefix="01m8", state="cancelled") == "df"
    assert found(after=(1.0, "zz")) == ""
    rows = store.jobs.latest(10, user="nobody", wanted=JobsWanted(name="n-a"))
    assert rows == []


def test_unfinished_are_the_detached_jobs_without_an_end(store: Store, commit: Commit) -> None:
    commit(
        store,
        opened("late", submitted_at_s=2.0),
        opened("early", submitted_at_s=1.0),
        opened("attached", detached=False),
        opened("over"),
        ended("over"),
    )
    assert [job.job for job in store.jobs.unfinished()] == ["early", "late"]


def test_attached_jobs_of_a_dead_gateway_are_lost(store: Store, commit: Commit) -> None:
    commit(store, opened("a", detached=False), opened("b"), opened("c", detached=False), ended("c"))
    store.mark_lost(5.0)
    commit(store)
    states = {job.job: (job.state, job.ended_at_s) for job in store.jobs.latest(10)}
    assert states == {"a": ("lost", 5.0), "b": ("open", None), "c": ("done", 1_700_000_100.0)}


def test_a_lost_job_whose_client_comes_back_is_open_again(store: Store, commit: Commit) -> None:
    commit(store, opened(detached=False))
    store.mark_lost(5.0)
    commit(store, opened(detached=False))
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.state, job.reason, job.ended_at_s) == ("open", "", None)
    commit(store, ended())
    job = store.jobs.get("job-1")
    assert job is not None
    assert job.state == "done"


def test_bundles_come_back_in_task_order(store: Store, commit: Commit) -> None:
    firsts = [*range(0, 500, 10)]
    commit(store, opened(), *(BundleKept("job-1", n, 10, b"%d" % n) for n in reversed(firsts)))
    commit(store, BundleKept("job-1", 0, 10, b"again"), BundleKept("other", 5, 1, b""))
    assert list(store.jobs.bundles("job-1")) == [(n, 10, b"%d" % n) for n in firsts]


def test_the_end_of_a_job_drops_its_bundles_only(store: Store, commit: Commit) -> None:
    commit(store, opened(), BundleKept("job-1", 0, 1, b"x"), OutcomeKept("job-1", 0, 1, b"y"))
    commit(store, BundleKept("other", 0, 1, b"z"), ended())
    assert list(store.jobs.bundles("job-1")) == []
    assert store.jobs.outcomes("job-1", 0, 10) == [(0, 1, b"y")]
    assert list(store.jobs.bundles("other")) == [(0, 1, b"z")]


def test_outcomes_are_paged_in_task_order(store: Store, commit: Commit) -> None:
    kept = [(0, 5, b"a"), (5, 1, b"b"), (8, 4, b"c"), (20, 2, b"d")]
    commit(store, *(OutcomeKept("job-1", *outcome) for outcome in reversed(kept)))
    commit(store, OutcomeKept("other", 0, 100, b"x"), OutcomeKept("job-1", 5, 1, b"again"))
    assert store.jobs.outcomes("job-1", 0, 100) == kept
    assert store.jobs.outcomes("job-1", 0, 2) == kept[:2]
    assert store.jobs.outcomes("job-1", 6, 2) == kept[2:]
    assert store.jobs.outcomes("job-1", 22, 2) == []
    assert store.jobs.outcome_ranges("job-1") == [(first, count) for first, count, _ in kept]


def test_outcomes_start_with_the_range_that_holds_the_task(store: Store, commit: Commit) -> None:
    commit(store, *(OutcomeKept("j", at, n, b"") for at, n in ((3, 5), (8, 2), (12, 1))))
    starts = (0, 3, 5, 8, 9, 10, 12, 13)
    found = {start: [at for at, _, _ in store.jobs.outcomes("j", start, 1)] for start in starts}
    assert found == {
        0: [3],
        3: [3],
        5: [3],
        8: [8],
        9: [8],
        10: [12],
        12: [12],
        13: [],
    }


def test_a_function_is_kept_until_the_last_job_that_needs_it_is_forgotten(
    store: Store, commit: Commit
) -> None:
    commit(store, FunctionKept(b"f", b"body"), opened("a", function=b"f"))
    commit(store, FunctionKept(b"f", b"again"), opened("b", function=b"f"), ended("a"), ended("b"))
    commit(store, FunctionKept(b"g", b"other"), opened("c", function=b"g"))
    assert store.jobs.function(b"f") == b"body"
    commit(store, JobForgotten("a"))
    assert store.jobs.function(b"f") == b"body"
    commit(store, JobForgotten("b"))
    assert store.jobs.function(b"f") is None
    assert store.jobs.function(b"g") == b"other"


def test_a_forgotten_job_keeps_its_row_and_its_usage(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, opened(), OutcomeKept("job-1", 0, 1, b"y"), usage(), ended())
    commit(store, JobForgotten("job-1"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert job.forgotten
    assert job.costs_nanos == {"USD": 16_667}
    assert store.jobs.outcome_ranges("job-1") == []


def test_a_job_that_has_not_ended_is_not_forgotten(store: Store, commit: Commit) -> None:
    commit(store, FunctionKept(b"f", b"body"), opened(function=b"f"))
    commit(store, BundleKept("job-1", 0, 1, b"x"), OutcomeKept("job-1", 0, 1, b"y"))
    commit(store, JobForgotten("job-1"))
    assert store.jobs.outcome_ranges("job-1") == [(0, 1)]
    assert list(store.jobs.bundles("job-1")) == [(0, 1, b"x")]
    assert store.jobs.function(b"f") == b"body"
    assert [job.forgotten for job in store.jobs.unfinished()] == [False]


def test_what_may_be_forgotten_are_detached_jobs_that_ended_in_a_period(
    store: Store, commit: Commit
) -> None:
    for at, job in enumerate("abcde"):
        commit(store, opened(job, detached=job != "b"))
        if job != "c":
            commit(store, ended(job, ended_at_s=100.0 + at))
    assert store.jobs.forgettable(0.0, 104.0, 10) == ["a", "d"]
    assert store.jobs.forgettable(100.5, 1000.0, 1) == ["d"]
    commit(store, JobForgotten("a"))
    assert store.jobs.forgettable(0.0, 104.0, 10) == ["d"]


def test_nothing_is_charged_twice(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, usage(cost_nanos=5))
    # Again within one statement, within one transaction, and with other figures.
    commit(store, usage(cost_nanos=7), usage(cost_nanos=8), opened(), usage(cost_nanos=9))
    commit(store, usage(first=10, cost_nanos=100), usage(attempt=1, state="failed", cost_nanos=20))
    assert [total.cost_nanos for total in store.usage.totals([])] == [125]
    assert store.usage.charged_ranges("job-1") == [(0, 10), (0, 10), (10, 10)]


def test_a_repeat_is_not_among_the_charged_ranges(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(state="repeat"), usage(first=30, tasks=2, state="failed"), usage(job="b"))
    assert store.usage.charged_ranges("job-1") == [(30, 2)]


def test_runs_are_known_from_the_first_wasted_one_on(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(wall_ns=9), usage(job="b", state="wasted", first=3))
    assert store.usage.runs_since_wasted("job-1") == []
    commit(
        store,
        usage(attempt=2, state="repeat", wall_ns=8),
        usage(attempt=1, state="wasted", tasks=1, wall_ns=7),
    )
    found = [(each.state, each.wall_ns) for each in store.usage.runs_since_wasted("job-1")]
    assert found == [("wasted", 7), ("repeat", 8)]
    commit(
        store,
        opened(),
        usage(attempt=3, state="preempted", wall_ns=100),
        usage(attempt=4, state="preempted", price_class="preemptible", wall_ns=1_000),
        usage(attempt=5, state="void", wall_ns=10_000),
        usage(attempt=6, state="lost", wall_ns=100_000),
    )
    row = store.jobs.get("job-1")
    assert row is not None
    assert (row.wall_ns, row.repeat_ns, row.unpaid_ns) == (11_124, 8, 10_100)


def test_a_job_knows_the_highest_attempt_on_its_records(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, opened(), usage(attempt=3, currency="EUR"), usage(attempt=2), usage(job="b"))
    job = store.jobs.get("job-1")
    assert job is not None
    assert job.attempt_max == 3


def test_a_job_adds_up_its_usage_by_currency(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        opened(),
        opened("job-2"),
        usage(wall_ns=1, cpu_ns=2, cost_nanos=3),
        usage(first=10, wall_ns=10, cpu_ns=20, cost_nanos=30),
        usage(first=20, wall_ns=100, cpu_ns=200, cost_nanos=300, currency="EUR"),
        usage(job="job-2", wall_ns=1000),
    )
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.wall_ns, job.cpu_ns, job.costs_nanos) == (111, 222, {"EUR": 300, "USD": 33})
    assert {row.job: row.wall_ns for row in store.jobs.latest(10)} == {"job-1": 111, "job-2": 1000}


def test_sums_go_on_where_a_database_integer_ends(
    store: Store, commit: Commit, usage: Usage
) -> None:
    largest = 2**63 - 1
    commit(store, opened())
    commit(
        store,
        *(
            usage(first=n, wall_ns=largest, cpu_ns=largest, cost_nanos=largest, tasks=largest)
            for n in range(3)
        ),
    )
    (total,) = store.usage.totals([])
    assert (total.wall_ns, total.cpu_ns, total.cost_nanos) == (3 * largest,) * 3
    assert total.tasks == 3 * largest
    job = store.jobs.get("job-1")
    assert job is not None
    assert (job.wall_ns, job.costs_nanos) == (3 * largest, {"USD": 3 * largest})


def test_usage_totals_by_each_dimension(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, usage(), usage(first=1, user="bob", peak_memory_bytes=2**30), usage(first=2))
    assert store.usage.totals([Dimension.USER, Dimension.DAY]) == [
        UsageTotal(("ada", 19_675), "USD", 2, 2**20, 20, 3 * 10**9, 28 * 10**8, 33_334, 33_334),
        UsageTotal(("bob", 19_675), "USD", 1, 2**30, 10, 15 * 10**8, 14 * 10**8, 16_667, 16_667),
    ]
    for dimension in Dimension:
        assert sum(total.records for total in store.usage.totals([dimension])) == 3


def test_the_hours_sum_up_to_the_records(
    store: Store, commit: Commit, usage: Usage, open_store: OpenStore
) -> None:
    """Whole hours are read from their sums, other times from the records: they must agree."""
    random = Random(7)
    hour_s = 473_000 * 3600.0
    records = [
        usage(
            job=random.choice(["a", "paris:b"]),
            first=first,
            ended_at_s=hour_s + random.random() * 3 * 3600,
            user=random.choice(["ada", "bob"]),
            group=random.choice(["", "desk"]),
            pool=random.choice(["local", "york/fast"]),
            tags=random.choice(["", "gpu=2"]),
            state=random.choice(["ok", "repeat"]),
            wall_ns=random.randrange(2**61),
            cost_nanos=random.randrange(2**61),
            list_cost_nanos=random.randrange(2**61),
            energy_uj=random.randrange(2**61),
            carbon_ng=random.randrange(2**61),
            embodied_ng=random.randrange(2**61),
        )
        for first in range(300)
    ]
    commit(store, *records[:200])
    for each in records[150:]:  # some for the second time, together and alone
        commit(store, each)
    by = [each for each in Dimension if each not in (Dimension.JOB, Dimension.WORKER)]
    for dimensions in (by, [], [Dimension.HOUR], [Dimension.ORIGIN, Dimension.SITE]):
        summed = store.usage.totals(dimensions, hour_s, hour_s + 3 * 3600)
        counted = store.usage.totals(dimensions, hour_s + 1e-6, hour_s + 3 * 3600 - 1e-6)
        assert summed == counted
        assert sum(each.cost_nanos for each in summed) == sum(each.cost_nanos for each in records)
        assert sum(each.energy_uj for each in summed) == sum(each.energy_uj for each in records)
    [ada] = store.usage.totals([], only={Dimension.USER: "ada", Dimension.SITE: "york"})
    assert ada.tasks == 10 * sum(each.user == "ada" and each.site == "york" for each in records)
    [total] = store.usage.totals([])
    assert total.peak_memory_bytes == 2**20
    store.close()
    again = open_store()
    commit(again, *records)
    assert again.usage.totals([]) == [total]


def test_capacity_is_summed_by_the_hour(store: Store, commit: Commit) -> None:
    commit(
        store, CapacityRecord("fast", 7200.0, 7260.0, 4), CapacityRecord("fast", 7260.0, 7270.0, 2)
    )
    commit(
        store,
        CapacityRecord("fast", 7260.0, 7270.0, 2),
        CapacityRecord("slow", 10800.0, 10801.0, 2**30),
    )
    assert store.usage.capacity_totals(7200.0, 14400.0) == [
        CapacityTotal("fast", 2, 260 * 10**9),
        CapacityTotal("slow", 3, 2**30 * 10**9),
    ]
    assert store.usage.capacity_totals(7201.0, 10800.0) == []


@pytest.mark.parametrize(
    ("start_at_s", "end_at_s", "firsts"),
    [(None, None, 3), (10.0, None, 2), (None, 20.0, 2), (10.0, 20.0, 1), (10.5, 10.5, 0)],
)
def test_a_period_holds_its_start_and_not_its_end(
    store: Store,
    commit: Commit,
    usage: Usage,
    start_at_s: float | None,
    end_at_s: float | None,
    firsts: int,
) -> None:
    commit(store, *(usage(first=n, ended_at_s=at) for n, at in enumerate((9.999, 10.0, 20.0))))
    assert sum(total.records for total in store.usage.totals([], start_at_s, end_at_s)) == firsts


def test_no_usage_has_no_totals(store: Store) -> None:
    assert store.usage.totals([]) == []


def test_records_of_all_kinds_may_mix_in_any_number(
    store: Store, commit: Commit, usage: Usage
) -> None:
    records: list[Any] = []
    for n in range(150):
        job = f"job-{n}"
        records += [opened(job), BundleKept(job, 0, 1, b"x"), BundleKept(job, 1, 1, b"y")]
        records += [usage(job=job, first=at, cost_nanos=1) for at in range(7)]
        records += [OutcomeKept(job, 0, 2, b"z"), ended(job)]
    commit(store, *records)
    assert len(store.jobs.latest(1_000)) == 150
    assert store.usage.totals([])[0].cost_nanos == 150 * 7
    assert store.jobs.outcomes("job-149", 0, 1) == [(0, 2, b"z")]
    assert list(store.jobs.bundles("job-149")) == []


def test_what_was_committed_is_there_when_opened_again(
    open_store: Callable[..., Store], commit: Commit, usage: Usage
) -> None:
    store = open_store()
    commit(store, opened(), usage(), OutcomeKept("job-1", 0, 1, b"y"))
    before = store.jobs.latest(10)
    store.close()
    again = open_store()
    assert again.jobs.latest(10) == before
    assert again.jobs.outcomes("job-1", 0, 1) == [(0, 1, b"y")]


def test_closing_writes_what_is_queued(open_store: Callable[..., Store], usage: Usage) -> None:
    store = open_store()
    acknowledged: list[int] = []
    for n in range(200):
        store.write([usage(first=n)], False, lambda n=n: acknowledged.append(n))
    store.close()
    assert acknowledged == [*range(200)]
    assert store.backlog == 0
    assert open_store().usage.totals([])[0].records == 200


def test_a_closed_store_refuses(open_store: Callable[..., Store], usage: Usage) -> None:
    store = open_store()
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.write([usage()], False, lambda: None)
    with pytest.raises(StoreClosed):
        store.jobs.get("job-1")


def test_each_thread_is_acknowledged_in_its_order(store: Store, usage: Usage) -> None:
    acknowledged: list[tuple[int, int]] = []
    finished = threading.Semaphore(0)

    def write(thread: int) -> None:
        for n in range(100):
            store.write(
                [usage(job=f"job-{thread}", first=n)],
                n % 10 == 0,
                lambda n=n: acknowledged.append((thread, n)),
            )
        store.write([], False, finished.release)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        assert finished.acquire(timeout=200)
    assert len(acknowledged) == 400
    for number in range(4):
        assert [n for thread, n in acknowledged if thread == number] == [*range(100)]


def test_what_is_acknowledged_can_be_read(store: Store, usage: Usage) -> None:
    seen: list[int] = []
    finished = threading.Event()

    def read() -> None:
        seen.append(store.usage.totals([])[0].records)
        finished.set()

    store.write([usage()], False, read)
    assert finished.wait(200)
    assert seen == [1]


def test_what_failed_before_it_took_any_time_is_no_charge(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, opened(), usage(first=0, tasks=2, state="failed", wall_ns=0, cost_nanos=0))
    commit(store, usage(first=5, tasks=2, state="failed"), usage(first=9, tasks=1, wall_ns=0))
    assert store.usage.charged_ranges("job-1") == [(5, 2), (9, 1)]


def contract(name: str, site: str, at_s: float = 0.0, side: str = "sell") -> ContractOpened:
    opened_at_s = 1_700_000_000.0 + at_s
    return ContractOpened(name, side, site, "job", "pool", 1, 5, "USD", 30.0, opened_at_s)


def test_whom_a_contract_is_with(store: Store, commit: Commit) -> None:
    commit(store, contract("london-1-1", "london"), contract("paris-1-1", "rome", side="buy"))

    def site_of(side: str, name: str) -> str | None:
        found = store.contracts.get(side, name)
        return found.site if found is not None else None

    assert site_of("sell", "london-1-1") == "london"
    assert site_of("buy", "paris-1-1") == "rome"
    assert site_of("buy", "london-1-1") is site_of("sell", "x") is None


def test_all_that_a_contract_is_charged_by_is_read_back(store: Store, commit: Commit) -> None:
    usual = contract("london-1-1", "london")
    terms: dict[str, Any] = {"minimum_nanos": 2**63 - 1, "step_ns": 3, "list_nanos": 2**62}
    words: dict[str, Any] = {"tariff": "v7", "window": "nächts", "price_class": "preemptible"}
    other = replace(contract("rome-1-1", "rome", 1.0, "buy"), **terms, **words)
    commit(store, usual, other)
    assert usual.list_nanos == usual.price_nanos
    found = [store.contracts.get(each.side, each.contract) for each in (usual, other)]
    assert store.contracts.open() == found
    rows = [asdict(each) for each in (usual, other)]
    assert [asdict(each) for each in found if each] == [{**row, "state": "open"} for row in rows]


@pytest.mark.parametrize("name", ["minimum_nanos", "step_ns", "list_nanos"])
def test_terms_that_no_database_holds_make_no_record(name: str) -> None:
    wrong: dict[str, Any] = {name: 2**63}
    with pytest.raises(ValueError, match="not a number"):
        replace(contract("london-1-1", "london"), **wrong)


def test_the_last_contracts_of_each_site_are_found_also_when_they_have_ended(
    store: Store, commit: Commit
) -> None:
    commit(store, contract("london-1-7", "london"), contract("rome-1-1", "rome", -90_000.0))
    commit(store, contract("paris-1-1", "rome", side="buy"))
    commit(store, ContractEnded("london-1-7", "sell", "ended", 1_700_000_100.0))
    row = store.contracts.get("sell", "london-1-7")
    assert row is not None
    assert row.state == "ended"
    assert sorted(store.contracts.newest("sell")) == [
        ("london", "london-1-7"),
        ("rome", "rome-1-1"),
    ]


def test_the_sites_that_there_were_contracts_with(store: Store, commit: Commit) -> None:
    assert store.contracts.partners() == store.contracts.partners("buy") == []
    commit(store, contract("rome-1-1", "rome"), contract("london-1-7", "london"))
    commit(store, contract("rome-1-2", "rome"), contract("x-1", "\u00c5bo"))
    commit(store, contract("paris-1-1", "rome", side="buy"))
    commit(store, contract("paris-1-2", "York", side="buy"))
    commit(store, ContractEnded("london-1-7", "sell", "settled", 1_700_000_100.0))
    assert store.contracts.partners() == ["York", "london", "rome", "\u00c5bo"]
    assert store.contracts.partners("buy") == ["York", "rome"]
    assert store.contracts.partners("sell") == ["london", "rome", "\u00c5bo"]


def delivered(contract: str, first: int, at_s: float, **fields: Any) -> Posted:
    defaults: dict[str, Any] = {
        "side": "buy",
        "site": "paris",
        "epoch": 1,
        "tasks": 2,
        "wall_ns": 10,
        "cost_nanos": 5,
        "currency": "EUR",
    }
    return Posted(contract, first=first, posted_at_s=at_s, **(defaults | fields))


def test_deliveries_are_found_by_their_keys(store: Store, commit: Commit) -> None:
    commit(store, contract("c-1", "paris", side="buy"), contract("c-2", "paris", side="buy"))
    firsts = range(0, 12_000, 10)
    commit(store, *(delivered("c-1", first, 0.0) for first in firsts))
    commit(store, delivered("c-2", 5, 0.0))
    everything = store.contracts.postings("buy", "c-1")
    assert len(everything) == len(firsts)
    epoch = everything[0].epoch
    keys = [(epoch, first) for first in firsts]
    assert store.contracts.postings_of("buy", "c-1", reversed(keys)) == everything
    few = [(epoch, 20), (epoch, 5), (epoch + 1, 0), (1 << 63, 0), (epoch, 1 << 64)]
    assert store.contracts.postings_of("buy", "c-1", few) == [everything[2]]
    assert store.contracts.postings_of("buy", "c-1", ()) == []
    assert store.contracts.postings_of("sell", "c-1", keys) == []


def test_deliveries_without_a_verdict_are_summed_up_exactly(store: Store, commit: Commit) -> None:
    commit(
        store,
        opened("job-1"),
        ContractOpened("c-1", "buy", "paris", "job-1", "grid", 1, 5, "EUR", 30.0, 1.0),
        ContractOpened("c-2", "buy", "paris", "rome:job-2", "grid", 1, 5, "EUR", 30.0, 1.0),
        ContractOpened("c-3", "sell", "rome", "rome:job-2", "grid", 1, 5, "USD", 30.0, 1.0),
        *(delivered("c-1", first, 10.0 + first, cost_nanos=2**62) for first in range(4)),
        delivered("c-2", 0, 10.0),
        delivered("c-3", 0, 12.0, side="sell", site="rome", currency="USD"),
        PostingSettled("c-1", "buy", "paris", 1, 1, "post", 2**62, "EUR", 20.0),
    )
    found = [
        (
            each.side,
            each.site,
            each.currency,
            each.user,
            each.project,
            each.relayed,
            each.records,
            each.oldest_s,
            each.tasks,
            each.cost_nanos,
        )
        for each in store.contracts.pending(10.0, 13.0)
    ]
    assert sorted(found) == [
        ("buy", "paris", "EUR", "", "", True, 1, 10.0, 2, 5),
        ("buy", "paris", "EUR", "ada", "risk", False, 2, 10.0, 4, 2**63),
        ("sell", "rome", "USD", "", "", True, 1, 12.0, 2, 5),
    ]
    assert [each.records for each in store.contracts.pending(13.0, 14.0)] == [1]
    assert store.contracts.pending(14.0, 99.0) == []
    found = [astuple(each) for each in store.contracts.unsettled(14.0, 100)]
    assert found == [("paris", "buy", 4), ("rome", "sell", 1)]
    assert [astuple(each) for each in store.contracts.unsettled(12.0, 100)] == [("paris", "buy", 2)]
    assert sum(each.records for each in store.contracts.unsettled(99.0, 3)) == 3  # the oldest


def test_an_alert_is_kept_as_it_was_fired_first(open_store: OpenStore, commit: Commit) -> None:
    store = open_store()
    commit(store, AlertFired("b", "2026-11", 50, 1.5), AlertFired("a", "x", 0, 2.0))
    commit(store, AlertFired("b", "2026-11", 50, 9.0), AlertFired("b", "2026-11", 80, 9.0))
    commit(store)
    store.close()
    assert open_store().alerts.all() == [
        AlertRow("a", "x", 0, 2.0, None),
        AlertRow("b", "2026-11", 50, 1.5, None),
        AlertRow("b", "2026-11", 80, 9.0, None),
    ]


def test_an_alert_that_is_over_can_be_fired_again(store: Store, commit: Commit) -> None:
    ended = AlertEnded("a", "x", 0, 3.0)
    commit(store, ended, AlertFired("a", "x", 0, 2.0), ended, AlertEnded("a", "x", 0, 4.0))
    assert store.alerts.all() == [AlertRow("a", "x", 0, 2.0, 3.0)]
    commit(store, AlertFired("a", "x", 0, 5.0))
    assert store.alerts.all() == [AlertRow("a", "x", 0, 5.0, None)]


def test_a_drain_is_kept_as_it_was_ordered_first_until_it_ends(
    open_store: OpenStore, commit: Commit
) -> None:
    store = open_store()
    ended = DrainEnded("host", "lon2")
    commit(
        store, ended, DrainKept("worker", "w", "ann", 1.5), DrainKept("host", "lon3", "ann", 2.0)
    )
    commit(store, DrainKept("host", "lon3", "bob", 9.0), DrainKept("host", "lon2", "bob", 3.0))
    commit(store, ended)
    store.close()
    store = open_store()
    kept = [DrainKept("host", "lon3", "ann", 2.0), DrainKept("worker", "w", "ann", 1.5)]
    assert store.drains.all() == kept
    commit(store, ended, DrainKept("host", "lon2", "bob", 4.0))
    assert store.drains.all() == [DrainKept("host", "lon2", "bob", 4.0), *kept]


def test_a_change_of_rules_is_kept_with_its_edits_as_it_was_first_written(
    open_store: OpenStore, commit: Commit
) -> None:
    change = RuleChangeKept(2, 9.5, 20.0, 0, 8.0, "ada", "command", "year's end")
    end = RuleChangeKept(3, 20.0, None, 2, 8.0, "ada", "command", "")
    edits = (
        RuleEditKept(2, 0, "window", "risk", "night", '[{"from": "22:00"}]'),
        RuleEditKept(2, 1, "calendar", "", "london", None),
    )
    store = open_store()
    commit(store, change, *edits, end)
    commit(store, replace(change, reason="another"), replace(edits[0], content=None))
    commit(store, RuleChangeCancelled(3, 9.0), RuleChangeCancelled(3, 10.0))
    commit(store, RuleChangeCancelled(4, 9.0))
    store.close()
    assert open_store().rules.changes() == [
        RuleChangeRow(change, None, edits),
        RuleChangeRow(end, 9.0, ()),
    ]


def test_contracts_and_usage_name_the_version_of_the_rules(
    store: Store, commit: Commit, usage: Usage
) -> None:
    deal = ContractOpened("c", "buy", "rome", "job", "pool", 1, 5, "USD", 30.0, 1.0, rules=7)
    runs = [usage(job="j", first=first, rules=rules) for first, rules in ((0, 9), (1, 8), (2, 9))]
    commit(store, deal, *runs, usage(job="older"))
    found = store.contracts.get("buy", "c")
    assert found is not None
    assert found.rules == 7
    assert store.usage.rules_of("j") == [8, 9]
    assert store.usage.rules_of("older") == store.usage.rules_of("none") == []


def test_the_places_of_a_job_are_told_apart_by_their_terms(
    store: Store, commit: Commit, usage: Usage
) -> None:
    here = {"job": "j", "pool": "hpc", "price_nanos": 7, "rules": 2, "wall_ns": 5, "cost_nanos": 3}
    runs = [
        usage(first=0, tasks=2, started_at_s=10.0, ended_at_s=11.0, **here),
        usage(first=2, tasks=3, started_at_s=12.0, ended_at_s=15.0, **here),
        usage(first=5, tasks=1, started_at_s=14.0, ended_at_s=16.0, **here | {"rules": 3}),
        usage(first=6, tasks=1, started_at_s=9.0, ended_at_s=9.5, **here | {"pool": "paris/local"}),
    ]
    deals = [
        ContractOpened(name, "buy", "paris", "j", "local", 1, 7, "USD", 30.0, opened_s, rules=2)
        for name, opened_s in (("late", 8.0), ("early", 7.0))
    ]
    other = ContractOpened("x", "sell", "paris", "j", "local", 1, 7, "USD", 30.0, 1.0)
    commit(store, *runs, usage(job="other"), *deals, other)
    found = store.usage.places_of("j")
    assert [(each.pool, each.rules, each.tasks) for each in found] == [
        ("paris/local", 2, 1),
        ("hpc", 2, 5),
        ("hpc", 3, 1),
    ]
    whole = found[1]
    assert (whole.first_at_s, whole.last_at_s) == (10.0, 15.0)
    assert (whole.wall_ns, whole.cost_nanos) == (10, 6)
    assert (whole.price_nanos, whole.list_price_nanos) == (7, 7)
    assert store.usage.places_of("none") == []
    assert [each.contract for each in store.contracts.of_job("buy", "j")] == ["early", "late"]
    assert store.contracts.of_job("buy", "none") == []


def reservation(name: str, step: int, state: str, until_s: float = 9.0, **more: Any) -> Any:
    about: dict[str, Any] = dict.fromkeys(("whole", "site", "user", "group", "project"), "")
    numbers = dict.fromkeys(("price_nanos", "unused_factor", "cancel_factor", "held_until_s"), 7)
    about |= {"side": "sell", "reservation": name, "step": step, "state": state, "pool": "fast"}
    about |= {"who": "all", "slots": 4, "from_s": 1.0, "until_s": until_s, "currency": "USD"}
    return ReservationKept(**{**about, **numbers, "made_at_s": 0.5, **more})


def test_a_reservation_is_as_its_latest_step_says(open_store: OpenStore, commit: Commit) -> None:
    store = open_store()
    first, last = reservation("a", 0, "held"), reservation("a", 2, "booked", left_at_s=5.0)
    commit(store, first, last, reservation("a", 1, "booked"), first)
    ended = reservation("b", 1, "ended", 8.0, used_ns=5, billed_nanos=2**62)
    commit(store, reservation("b", 0, "booking", 8.0), ended)
    bought = reservation("a", 0, "booking", 10.0, side="buy", site="paris")
    commit(store, bought)
    commit(store)
    store.close()
    store = open_store()
    assert store.reservations.latest(9) == [bought, last, ended]
    assert store.reservations.latest(2) == [bought, last]
    assert store.reservations.latest(0, is_open=True) == [bought, last]
    assert [store.reservations.get("sell", name) for name in "abc"] == [last, ended, None]
    assert store.reservations.get("buy", "a") == bought
    assert store.reservations.get("buy", "b") is None


def test_the_names_of_what_other_sites_reserved_are_read(store: Store, commit: Commit) -> None:
    commit(store, reservation("a", 0, "held"), reservation("rome-1-1", 0, "held", site="rome"))
    commit(store, reservation("london-1-7", 0, "expired", site="london"))
    commit(store, reservation("paris-1-1", 0, "booked", side="buy", site="rome"))
    found = store.reservations.names("sell")
    assert sorted(found) == [("london", "london-1-7"), ("rome", "rome-1-1")]
    assert list(store.reservations.names("buy")) == [("rome", "paris-1-1")]


def test_what_others_hold_of_our_budgets_is_kept_as_it_was_written_last(
    open_store: OpenStore, commit: Commit
) -> None:
    store = open_store()
    first = SliceLent("b", "USD", "paris", 1, "5", "0", "0", "0", "0", 0, 0, 1, 1, 10.0)
    more = replace(first, granted="9" * 38, spent="7", since_ms=3, period_ms=2, number=2)
    other = replace(first, account=2)
    commit(store, first, other)
    commit(store, more)
    store.close()
    assert open_store().budgets.lent() == [more, other]


def test_our_accounts_of_others_budgets_are_known_until_they_are_closed(
    open_store: OpenStore, commit: Commit
) -> None:
    store = open_store()
    account = SliceHeld("london", "b", 1, "slot-s", "user:ada", "day", "Europe/London")
    commit(store, account, replace(account, account=2), replace(account, owner="essex"))
    assert [(each.owner, each.account) for each in store.budgets.held()] == [
        *(("essex", 1), ("london", 1), ("london", 2))
    ]
    commit(store, replace(account, is_closed=True), replace(account, owner="essex", is_closed=True))
    store.close()
    assert open_store().budgets.held() == [replace(account, account=2)]


@pytest.mark.parametrize("end", ["open", "abandoned", "cancelled"])
def test_the_terms_by_which_a_job_was_opened_last_are_kept(store, commit, end):
    commit(store, opened(spec=b"first"))
    if end != "open":
        commit(store, ended(state=end))
    commit(store, opened(spec=b"later"))
    row = store.jobs.get("job-1")
    is_over = end == "cancelled"
    assert (row.spec, row.state) == ((b"first", end) if is_over else (b"later", "open"))


def test_the_rules_of_deliveries_are_told_by_site(store: Store, commit: Commit) -> None:
    named = ("c-1", "buy", "paris", "job-1", "grid", 1, 5)
    commit(
        store,
        ContractOpened(*named, "EUR", 30.0, 1.0, rules=3),
        ContractOpened("c-2", *named[1:], "EUR", 30.0, 1.0, rules=2),
        ContractOpened("c-3", *named[1:], "USD", 30.0, 1.0),
        *(delivered(f"c-{number}", 0, 9.0 + number) for number in (1, 2)),
        delivered("c-3", 0, 10.0, currency="USD"),
    )
    assert store.contracts.rules_used(0.0, 99.0) == {("paris", "EUR"): [2, 3]}
    assert store.contracts.rules_used(0.0, 11.0) == {("paris", "EUR"): [3]}
