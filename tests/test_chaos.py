"""The chaos harness finds planted faults, and nothing where all is well."""

import math
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from chaos import processes
from chaos.books import ChaosBooks, Delivery, Usage, read_books
from chaos.evidence import Run, read_lines, value_of
from chaos.faults import Act, draw
from chaos.journal import Journal, read_journal
from chaos.operations import refuses_open_books
from chaos.reconciliation import (
    CHECKS,
    DIGITS,
    ChaosFacts,
    HeardOutcome,
    Promise,
    read_promises,
    reconcile,
)
from chaos.report import Summary, quantile, recovery
from chaos.run import KINDS
from chaos.storm import Happened
from sqlalchemy import insert, select
from support.processes import wait_until

from gateway.ledger.db.database import opened
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.db.usage.tables import usage as usage_table
from gateway.ledger.store.store import SqlStore

TASKS = 3
COST_NANOS = 70
DELIVERY = Delivery("buy", "paris", "c1", 5, 0, TASKS, 90, COST_NANOS, "post", "j1")


def record(job, name, pool, first=0, tasks=TASKS, attempt=0, state="ok"):
    site, slash, _ = pool.partition("/")
    origin, colon, _ = job.partition(":")
    return Usage(
        *(job, first, attempt, tasks, name, pool, state, 90, COST_NANOS, "guaranteed"),
        *(site if slash else "", origin if colon else ""),
    )


@pytest.fixture
def facts():
    """A job of London's that Paris has done, and all that there is of it."""
    promise = Promise("a-1", "london", "forwarded", "steady", TASKS, "j1", is_finished=True)
    promise.outcomes = [HeardOutcome(task, value_of(task)) for task in range(TASKS)]
    london = ChaosBooks("london", [record("j1", "a-1", "paris/workers")], [DELIVERY])
    london.reported_nanos = london.stated_nanos = {"paris": COST_NANOS}
    sold = replace(DELIVERY, side="sell", site="london")
    paris = ChaosBooks("paris", [record("london:c1", "a-1", "workers")], [sold])
    return ChaosFacts(
        promises={"a-1": promise},
        runs=[Run("a-1", task, f"r{task}", 100 + task, "ok") for task in range(TASKS)],
        books={"london": london, "paris": paris},
        answers={("london", "audit"): ""},
    )


def violated(facts):
    return {name for name, found in reconcile(facts)[0].items() if found}


def test_nothing_is_found_where_all_is_well(facts):
    assert violated(facts) == set()


def lose_a_task(facts):
    facts.promises["a-1"].outcomes.pop()


def end_a_task_twice(facts):
    facts.promises["a-1"].outcomes.append(HeardOutcome(1, value_of(1)))


def swap_a_value(facts):
    facts.promises["a-1"].outcomes[1].value = value_of(2)


def give_a_task_up(facts):
    facts.promises["a-1"].outcomes[1] = HeardOutcome(1, error="WorkerLost", text="lost 3 times")


def crash_a_task_once(facts):
    facts.promises["a-1"].outcomes[1] = HeardOutcome(1, error="TaskCrashed", text="2 times")
    facts.runs += [Run("a-1", 1, "x", 900), Run("a-1", 1, "y", 901)]
    facts.killed_slots = {900}


def drop_evidence(facts):
    facts.runs[1].end = ""


def charge_twice(facts):
    facts.books["london"].usage.append(record("j1", "a-1", "workers", first=1, tasks=1, attempt=1))


def charge_a_run_that_never_began(facts):
    facts.books["london"].usage.append(
        record("j1", "a-1", "workers", first=1, tasks=1, attempt=1, state="failed")
    )


def forget_a_charge(facts):
    facts.books["london"].usage = [record("j1", "a-1", "paris/workers", tasks=TASKS - 1)]


def forget_a_detached_charge(facts):
    """As for a run that was given up: its result is missing too."""
    forget_a_charge(facts)
    facts.promises["a-1"].outcomes[TASKS - 1] = HeardOutcome(TASKS - 1, error="WorkerLost")


def sell_more_than_ran(facts):
    facts.books["paris"].usage.append(record("london:c1", "a-1", "workers", first=TASKS, tasks=1))


def change_the_sellers_cost(facts):
    facts.books["paris"].deliveries = [
        replace(DELIVERY, side="sell", site="london", cost_nanos=COST_NANOS + 1)
    ]


def drop_the_sellers_delivery(facts):
    facts.books["paris"].deliveries = []


def drop_the_buyers_delivery(facts):
    facts.books["london"].deliveries = []


def leave_it_pending(facts):
    for site in ("london", "paris"):
        facts.books[site].deliveries = [
            replace(each, state="pending") for each in facts.books[site].deliveries
        ]


def charge_what_the_seller_never_got(facts):
    """As work that was cancelled abroad was, once: in the buyer's reports, in no statement."""
    row = record("j1", "a-1", "paris/workers", first=2, tasks=1, attempt=1, state="failed")
    facts.books["london"].usage.append(row)
    facts.books["london"].reported_nanos = {"paris": 2 * COST_NANOS}


def charge_less_than_was_paid(facts):
    row = facts.books["london"].usage[0]
    facts.books["london"].usage = [replace(row, cost_nanos=COST_NANOS - 1)]
    facts.books["london"].reported_nanos = {"paris": COST_NANOS - 1}


def report_more(facts):
    facts.books["london"].reported_nanos = {"paris": COST_NANOS + 1}


def fail_an_audit(facts):
    facts.answers["london", "audit"] = "exit code 1: the chain is broken"


def refuse_a_job(facts):
    facts.refusals = ["london-c1: no pool here can ever run it"]


def leave_a_client(facts):
    facts.left_clients = ["london-c1"]


def leave_a_process(facts):
    facts.leftovers = ["process 17 is left"]


def complain(facts):
    facts.problems = ["a second gateway runs on the folder of paris"]


PLANTED = {
    lose_a_task: "each_ends_once",
    end_a_task_twice: "each_ends_once",
    swap_a_value: "values_are_right",
    give_a_task_up: "errors_are_their_own",
    crash_a_task_once: "errors_are_their_own",
    drop_evidence: "done_is_evident",
    charge_twice: "charged_once",
    charge_a_run_that_never_began: "charged_once",
    forget_a_charge: "done_is_charged",
    forget_a_detached_charge: "evidence_is_recorded",
    sell_more_than_ran: "charges_are_evident",
    change_the_sellers_cost: "buyer_equals_seller",
    drop_the_sellers_delivery: "buyer_equals_seller",
    drop_the_buyers_delivery: "buyer_equals_seller",
    leave_it_pending: "buyer_equals_seller",
    charge_what_the_seller_never_got: "reports_equal_statements",
    charge_less_than_was_paid: "reports_equal_statements",
    report_more: "reports_equal_statements",
    fail_an_audit: "commands_are_content",
    refuse_a_job: "jobs_are_taken",
    leave_a_client: "clients_end",
    leave_a_process: "nothing_is_left",
    complain: "nothing_complained",
}


@pytest.mark.parametrize(
    ("plant", "check"), PLANTED.items(), ids=lambda each: getattr(each, "__name__", each)
)
def test_what_is_planted_is_found(facts, plant, check):
    plant(facts)
    assert check in violated(facts)


def test_each_check_can_fail(facts):
    found = set()
    for plant in PLANTED:
        planted = ChaosFacts(
            promises={
                key: replace(each, outcomes=[replace(one) for one in each.outcomes])
                for key, each in facts.promises.items()
            },
            runs=[replace(each) for each in facts.runs],
            books={
                site: replace(each, usage=list(each.usage)) for site, each in facts.books.items()
            },
            answers=dict(facts.answers),
        )
        plant(planted)
        found |= violated(planted)
    assert found == {check.__name__ for check in CHECKS}


def test_reasons_of_a_tasks_own_are_no_violations(facts):
    facts.promises["a-1"].manner = "wrong"
    facts.promises["a-1"].outcomes[0] = HeardOutcome(0, error="ValueError", text="it raises")
    facts.promises["a-1"].outcomes[1] = HeardOutcome(1, error="TaskCrashed", text="2 times")
    facts.runs += [Run("a-1", 1, "x", 900), Run("a-1", 1, "y", 901)]
    facts.killed_slots = {900, 901}
    assert "errors_are_their_own" not in violated(facts)


@pytest.mark.parametrize(("until_s", "is_excused"), [(1790000001.0, True), (1789999999.0, False)])
def test_what_is_wrong_with_jobs_that_the_other_version_took_is_told_apart(
    facts, until_s, is_excused
):
    made_ms = 1790000000 * 1000
    digits = (DIGITS[made_ms >> 5 * at & 31] for at in reversed(range(10)))
    promise = facts.promises["a-1"]
    promise.job = "".join(digits) + "0123456789abcdef"
    promise.outcomes[0] = HeardOutcome(0, error="WorkerLost", text="3 times")
    facts.others_until_s = {"london": until_s}
    assert ("errors_are_their_own" in violated(facts)) is not is_excused
    assert bool(reconcile(facts)[1]) is is_excused


@pytest.mark.parametrize(("until_s", "is_excused"), [(120.0, True), (90.0, False)])
def test_what_an_audit_says_of_contracts_that_the_other_version_sold_is_told_apart(
    facts, until_s, is_excused
):
    books = facts.books["paris"]
    books.deliveries = [replace(each, opened_at_s=100.0) for each in books.deliveries]
    facts.others_until_s = {"paris": until_s}
    facts.answers["paris", "audit"] = (
        "exit code 1: a table\nproblem: job london:c1 was charged 7, and 6 were delivered\n"
    )
    assert ("commands_are_content" in violated(facts)) is not is_excused
    facts.answers["paris", "audit"] += "problem: the chain is broken\n"
    assert "commands_are_content" in violated(facts)


@pytest.mark.parametrize(("until_s", "is_excused"), [(120.0, True), (90.0, False)])
def test_a_probe_that_the_other_version_gave_up_is_told_apart(facts, until_s, is_excused):
    text = "a probe from paris to paris ended: WorkerLost: its worker was lost 3 times"
    facts.failed_probes = {"paris": [(100.0, text)]}
    facts.others_until_s = {"paris": until_s}
    assert ("nothing_complained" in violated(facts)) is not is_excused
    assert (text in reconcile(facts)[1]) is is_excused


@pytest.mark.parametrize(("until_s", "is_excused"), [(math.inf, True), (90.0, False)])
def test_a_site_of_the_other_version_need_not_compare_what_it_bought(facts, until_s, is_excused):
    facts.others_until_s = {"london": until_s}
    facts.answers["paris", "reconcile london"] = (
        "gridfed: 'london' has not answered about the deliveries that we sold: check that"
    )
    assert ("commands_are_content" in violated(facts)) is not is_excused
    facts.answers["paris", "reconcile london"] = (
        "gridfed: 'london' has not answered about the deliveries that we bought: check that"
    )
    assert "commands_are_content" in violated(facts)


def test_a_run_that_repeats_a_charged_one_may_be_stopped_and_must_have_begun(facts):
    row = record("j1", "a-1", "workers", first=TASKS, tasks=1, attempt=1, state="repeat")
    facts.books["london"].usage.append(replace(row, cost_nanos=0))
    assert "charges_are_evident" in violated(facts)
    facts.runs.append(Run("a-1", TASKS, "again", 900))
    assert "charges_are_evident" not in violated(facts)


@pytest.mark.parametrize("wall_ns", [0, 1])
def test_a_delivery_without_usage_is_one_of_tasks_that_took_no_time(facts, wall_ns):
    nothing = replace(DELIVERY, epoch=6, tasks=1, wall_ns=wall_ns, cost_nanos=0)
    facts.books["london"].deliveries.append(nothing)
    facts.books["paris"].deliveries.append(replace(nothing, side="sell", site="london"))
    assert violated(facts) == ({"reports_equal_statements"} if wall_ns else set())


def test_what_the_buyer_never_took_is_void_at_the_seller(facts):
    facts.books["paris"].deliveries.append(
        Delivery("sell", "london", "c1", 6, 0, 1, 90, COST_NANOS, "void", "")
    )
    assert violated(facts) == set()


def run_again(facts):
    """Task 1 ran again at Paris without a fault of the task; its row in London's books."""
    again = replace(DELIVERY, contract="c2", first=1, tasks=1)
    sold = replace(again, side="sell", site="london")
    facts.runs.append(Run("a-1", 1, "again", 200, "ok"))
    london, paris = facts.books["london"], facts.books["paris"]
    london.deliveries.append(again)
    paris.deliveries.append(sold)
    paris.usage.append(record("london:c2", "a-1", "workers", first=1, tasks=1))
    row = record("j1", "a-1", "paris/workers", first=1, tasks=1, attempt=1, state="repeat")
    london.reported_nanos = london.stated_nanos = {"paris": 2 * COST_NANOS}
    return row


def test_a_site_pays_for_what_ran_again(facts):
    facts.books["london"].usage.append(run_again(facts))
    assert violated(facts) == set()


def test_a_repeat_that_was_paid_for_and_costs_nothing_is_found(facts):
    facts.books["london"].usage.append(replace(run_again(facts), cost_nanos=0))
    facts.books["london"].reported_nanos = {"paris": COST_NANOS}
    assert violated(facts) == {"reports_equal_statements"}


def test_a_repeat_that_its_seller_was_not_paid_for_is_found(facts):
    again = run_again(facts)
    facts.books["london"].usage += [again, replace(again, attempt=2)]
    facts.books["london"].reported_nanos = {"paris": 3 * COST_NANOS}
    assert "reports_equal_statements" in violated(facts)


def test_a_double_charge_in_a_copy_of_real_books_is_found(facts, tmp_path):
    url = f"sqlite:///{tmp_path / 'gridfed.db'}"
    SqlStore(url).close()
    written = UsageRecord(
        *("j1", 0, TASKS, 0, "ann", "p", "a-1", "paris/workers", "w", "ok", 1.0, 2.0),
        *(90, 90, 0, 1, "USD", "1", COST_NANOS),
    )
    row = {column.name: getattr(written, column.name, None) for column in usage_table.columns} | {
        "footprint": ""
    }
    with opened(url) as database:
        database.writing.execute(insert(usage_table).values(**row))
    facts.books["london"].usage = read_books("london", url).usage
    assert facts.books["london"].usage == [record("j1", "a-1", "paris/workers")]
    assert violated(facts) == set()
    with opened(url) as database:
        database.writing.execute(insert(usage_table).values(**row | {"attempt": 1}))
        assert len(database.writing.execute(select(usage_table)).all()) == 2
    facts.books["london"].usage = read_books("london", url).usage
    assert "charged_once" in violated(facts)


def test_evidence_tells_runs_that_were_cut_short():
    runs = read_lines(["begin k 4 r1 10\n", "begin k 4 r2 11\n", "ok k 4 r2 11\n"])
    assert [(run.task, run.pid, run.end) for run in runs] == [(4, 10, ""), (4, 11, "ok")]


def test_a_journal_is_read_up_to_its_last_whole_line(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.note("submits", key="k", site="london", kind="detached", manner="steady", tasks=2)
    journal.note("accepted", key="k", job="j")
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"what": "finis')
    promises = {}
    read_promises(read_journal(path), promises)
    assert promises == {"k": Promise("k", "london", "detached", "steady", 2, "j", is_accepted=True)}


def schedule(seed, lane="paris"):
    following = draw(KINDS, lane, seed, lease_s=7.0, pace_s=2.0)
    return [following() for _ in range(50)]


def test_a_seed_gives_one_schedule():
    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)
    assert schedule(1, "network") != schedule(1)


def test_each_kind_of_fault_has_a_name_and_says_what_it_does():
    assert len({each.name for each in KINDS}) == len(KINDS)
    assert all(each.about.endswith(".") for each in KINDS)


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("gridfed: /state/gridfed.db is open in the gateway with process id 12: stop it", True),
        # As the other version, with which Tokyo begins, says it.
        ("gridfed: the gateway with process id 12 has /state/gridfed.db open: stop it first", True),
        ("gridfed: port 7070 is in use", False),
        ("gateway with process id 12 begins\nlog open", False),
        ("", False),
    ],
)
def test_a_second_gateway_is_refused_in_the_words_of_either_version(text, is_refusal):
    assert refuses_open_books(text) is is_refusal


def test_quantiles():
    values = [float(each) for each in range(1, 21)]
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile([3.0], 0.95)) == (10, 19, 3)


def test_recovery_is_told_for_each_of_the_two_rules(facts):
    took = [("slot-kill", 0.2), ("reload", 0.4), ("gateway-stop", 7.0), ("slot-kill", None)]
    happened = [
        Happened(Act("paris", kind, "paris", 0.0, 0.0, 0.0), 0.0, here_s=here_s)
        for kind, here_s in took
    ]
    summary = Summary({}, happened, {}, facts, {}, [], KINDS, lease_s=7.0)
    assert recovery(summary) == [
        "- recovery where a lease may have to run out: p50 / p95 1.00 / 1.00 leases after the "
        "restart, of 1; rule: 1.5 leases",
        "- recovery where no lease has to run out: p50 / p95 0.30 / 0.40 s after the restart, "
        "of 2; rule: 1 s",
    ]


@pytest.mark.real
def test_what_a_run_has_started_is_found_by_its_mark_and_ended(monkeypatch):
    monkeypatch.setenv(processes.MARK, "one-run")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        wait_until(lambda: list(processes.marked("one-run")), "the process")
        assert [each.pid for each in processes.marked("one-run")] == [process.pid]
        assert not list(processes.marked("another-run"))
        processes.end([psutil.Process(process.pid)])
        assert not list(processes.marked("one-run"))
    finally:
        process.kill()
        process.wait()
