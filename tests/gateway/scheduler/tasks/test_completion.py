"""Reports that end tasks: their validity, the messages and counts, the repeats, and how."""

import pytest
from support.pure.broker import (
    CLIENT,
    PRICE,
    WORKER,
    BrokerWorld,
    Peers,
    orders,
    spec,
    told,
    written,
)

from federation.messages import deals, messages
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Expel, KeepOutput
from gateway.scheduler.tasks.completion import STOPS_MAX, is_sound
from policies.placement.asks import Wishes

SHORT_S = 0.001  # so many fit into a bundle


def short_tasks(tasks, **options):
    """A job whose tasks all are at the one worker, in one assignment."""
    about = {key: options.pop(key) for key in ("keeps_output", "peers") if key in options}
    world = BrokerWorld(**about)
    world.broker.durations.learn(b"f" * 32, 1_000, round(SHORT_S * 1e12))
    [order] = orders(world.submit(tasks, **options))
    assert len(order.arguments) == tasks
    return world, order


def report_part(world, order, first, count, **changes):
    values = [b"r%d" % task for task in range(first, first + count)]
    return world.do(events.Reported(WORKER, order.assignment, first, values, **changes))


def fails(*rows):
    return [[at, kind, f"text of {at}", b""] for at, kind in rows]


# --- which reports are sound ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "failures", "prints", "sound"),
    [
        (2, [], [], True),
        (0, [], [], False),
        (2, [0, 1], [], True),
        (2, [1, 0], [], False),
        (2, [1, 1], [], False),
        (2, [2], [], False),
        (2, [], [1], True),
        (2, [], [2], False),
        (2, [0], [2], False),
        (0, [], [0], False),
    ],
)
def test_the_failures_and_prints_of_a_report_point_into_it(tasks, failures, prints, sound):
    rows = [[at, "error", "t", b""] for at in failures]
    report = events.Reported(WORKER, 1, 0, [b""] * tasks, rows, [[at, "out"] for at in prints])
    assert is_sound(report) is sound


@pytest.mark.parametrize(
    ("prints", "streams", "sound"),
    [
        ([[0, "out"]], [2], True),
        ([[0, "out"]], [], True),
        ([[0, "out"]], [2, 2], False),
        ([[0, "out"]], [3], False),
        ([[1, "out"]], [2], False),
    ],
)
def test_the_streams_of_a_delivery_are_those_of_its_prints(prints, streams, sound):
    delivery = deals.Deliver("c", 1, 0, [b""], [], prints, 0, 0, 0, 0, 0, [], streams=streams)
    assert is_sound(delivery) is sound


def test_a_worker_that_reports_no_tasks_is_expelled():
    world, order = short_tasks(1)
    effects = report_part(world, order, 0, 0)
    assert [each.peer for each in effects if isinstance(each, Expel)] == [WORKER]


# --- what is told --------------------------------------------------------------------------------


def test_a_report_of_tasks_some_of_which_have_ended_is_told_without_them():
    """Of six from 1 on, 4 was cancelled meanwhile; it, 2 and the last failed."""
    world, order = short_tasks(7, prints=True)
    report_part(world, order, 0, 1)
    world.do(events.CancelAsked(CLIENT, 7, "j", ((4, 5),), True))
    effects = report_part(
        world, order, 1, 6,
        failures=fails((1, "error"), (3, "cancelled"), (5, "error")),
        prints=[[0, "one"], [2, "three"], [3, "four"], [4, "five", 2], [5, "six"]],
    )  # fmt: skip
    before, after = told(effects, messages.Results)
    assert (before.first, before.values) == (1, [b"r1", b"r2", b"r3"])
    assert (before.failures, before.prints) == (fails((1, "error")), [[0, "one"], [2, "three"]])
    assert (after.first, after.values) == (5, [b"r5", b"r6"])
    assert after.failures == [[1, "error", "text of 5", b""]]
    assert (after.prints, after.streams) == ([[0, "five"], [1, "six"]], [2, 1])


def test_a_task_that_was_stopped_and_ends_well_all_the_same_is_not_told_twice():
    world, order = short_tasks(3)
    world.do(events.CancelAsked(CLIENT, 7, "j", ((1, 2),), True))
    results = told(report_part(world, order, 0, 3), messages.Results)
    assert [(each.first, each.values) for each in results] == [(0, [b"r0"]), (2, [b"r2"])]


def test_output_is_kept_under_the_numbers_of_its_tasks():
    world, order = short_tasks(5, keeps_output=True)
    report_part(world, order, 0, 3)
    effects = report_part(world, order, 3, 2, prints=[[0, "three"], [1, "four"]])
    [kept] = [each for each in effects if isinstance(each, KeepOutput)]
    assert kept.pieces == ((3, 1, "three"), (4, 1, "four"))


# --- what is counted -----------------------------------------------------------------------------


def test_a_job_counts_each_end_of_a_task_by_its_kind():
    world, order = short_tasks(6)
    report_part(world, order, 0, 1)
    failures = fails((1, "error"), (2, "cancelled"), (3, "cancelled"))
    report_part(world, order, 1, 5, failures=failures)
    effects = world.do(events.JobClosed(CLIENT, "j", 6))
    [ended] = written(effects, records.JobEnded)
    assert (ended.done, ended.failed, ended.cancelled) == (3, 1, 2)
    assert ended.reason == "text of 1"


def test_the_first_failure_is_why_a_job_failed_and_the_failed_tasks_are_known():
    world, order = short_tasks(4)
    report_part(world, order, 0, 1)
    report_part(world, order, 1, 3, failures=fails((1, "error"), (2, "error")))
    job = world.broker.jobs["j"]
    assert list(job.failures) == [(2, 4)]
    assert job.first_error == "text of 1"


def test_tasks_that_end_without_a_run_have_failed_for_the_reason_that_is_told():
    world = BrokerWorld(slots=0)
    world.submit(4, wishes=Wishes(deadline_s=world.now_s + 10))
    job = world.broker.jobs["j"]
    world.now_s += 20
    [dropped] = told(world.do(events.Ticked()), messages.Dropped)
    assert list(job.failures) == [(0, 4)]
    assert job.first_error == dropped.reason
    assert dropped.reason.startswith("the deadline of job j passed at 1970-01-01 00:1")
    assert dropped.reason.endswith(" UTC before the call began: no slot was free for it")
    assert job.failed == 4


@pytest.mark.parametrize(
    ("task_s", "why"),
    [
        (None, "no slot was free for it"),
        (7.0, "with task_s=7 it would have ended after that; set a later deadline_s"),
    ],
)
def test_a_call_that_is_measured_longer_than_its_deadline_is_told_so(task_s, why):
    world = BrokerWorld(slots=0)
    world.broker.durations.learn(b"f" * 32, 1_000, round(6e12))
    world.submit(1, task_s=task_s, wishes=Wishes(deadline_s=world.now_s + 5))
    world.now_s += 6
    [dropped] = told(world.do(events.Ticked()), messages.Dropped)
    assert f" UTC before the call began: {why}" in dropped.reason


def test_a_job_that_reached_its_cost_limit_says_the_limit_and_the_cost():
    world = BrokerWorld()
    [dropped] = told(world.submit(5, max_cost_nanos=0, currency="USD"), messages.Dropped)
    assert dropped.reason == (
        "job j reached its cost limit of 0 USD: it has cost 0 USD so far; raise max_cost to run "
        "the rest"
    )


@pytest.mark.parametrize(
    "failures",
    [
        (),
        fails((0, "error"), (1, "error"), (2, "error")),
        fails((0, "cancelled"), (1, "cancelled")),
        fails((0, "error"), (1, "cancelled")),
    ],
)
def test_ended_tasks_count_no_more_against_the_limit_of_their_client(failures):
    world, order = short_tasks(4)
    report_part(world, order, 0, 3, failures=list(failures))
    client = world.broker.clients[CLIENT]
    assert (client.tasks, client.account.tasks) == (1, 1)


def test_tasks_that_end_without_a_run_count_no_more_against_the_limit_of_their_client():
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.CancelAsked(CLIENT, 7, "j", ((1, 3),), False))
    assert world.broker.clients[CLIENT].tasks == 1


def test_tasks_that_arrive_when_their_job_is_given_up_end_at_once():
    world = BrokerWorld(slots=0)
    world.submit(2)
    world.do(events.JobLimitsUnmet("j", "it would end too late", "deadline"))
    [dropped] = told(world.do(events.TasksArrived(CLIENT, "j", 2, [b"x"])), messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[2, 3]], "deadline")


# --- what runs again -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "is_alone"),
    [("error", False), ("timeout", False), ("memory", False), ("preempted", False),
     ("crash", True), ("environment", False)],
)  # fmt: skip
def test_only_a_task_that_crashed_its_slot_runs_alone_the_next_time(kind, is_alone):
    peers = Peers()
    peers.makes = "rome"
    world, order = short_tasks(3, retries=1, peers=peers)
    report_part(world, order, 0, 3, failures=fails((0, kind), (2, kind)))
    job = world.broker.jobs["j"]
    runs = [*job.queue, *(each.run for each in job.assignments.values())]
    assert [(each.first, each.alone) for each in sorted(runs, key=lambda run: run.first)] == [
        (0, is_alone),
        (2, is_alone),
    ]


def test_a_task_that_a_contract_could_not_pay_for_need_not_run_alone():
    world = BrokerWorld(slots=0)
    seller = events.WorkerJoined(WORKER, "rome/a", "rome/a", 1, {}, "3.11", "j", PRICE)
    [order] = orders(world.submit(1) + world.do(seller))
    [run] = [each.run for each in world.broker.jobs["j"].assignments.values()]
    world.do(events.DrainAsked(WORKER, True))
    world.report(order, failures=fails((0, "budget")))
    [again] = world.broker.jobs["j"].queue
    assert (again.first, again.attempt, again.alone) == (0, run.attempt + 1, False)


def test_errors_do_not_count_as_stops():
    """A task that failed so often, and is stopped then, goes on as one that never failed."""
    world = BrokerWorld()
    [order] = orders(world.submit(1, retries=2 * STOPS_MAX))
    for kind in ["error"] * (STOPS_MAX + 1) + ["preempted"]:
        [order] = orders(world.report(order, failures=fails((0, kind))))
    assert world.broker.jobs["j"].strikes[0].failures == STOPS_MAX + 1


BACK = 9  # the next session of the client


def come_back(world, tasks):
    """The client of the job comes, and sends its tasks again."""
    effects = world.do(events.ClientJoined(BACK, "ann"))
    effects += world.do(events.JobOpened(BACK, "j", spec(retries=1), again=True))
    return effects + world.do(events.TasksArrived(BACK, "j", 0, [b"x"] * tasks))


def test_a_task_that_failed_and_is_sent_again_has_all_its_retries_again():
    """Its client has lost the result with its session."""
    world = BrokerWorld()
    [order, *_] = orders(world.submit(2, retries=1))
    world.join(3)
    for _ in range(2):
        assert order.first == 0
        effects = world.report(order, failures=fails((0, "error")))
        order = next((each for each in orders(effects) if each.first == 0), order)
    assert told(effects, messages.Results)
    world.do(events.ClientGone(CLIENT))
    [order] = [each for each in orders(come_back(world, 2)) if each.first == 0]
    assert not told(world.report(order, failures=fails((0, "error"))), messages.Results)


def test_a_task_that_comes_back_while_its_client_is_away_runs_when_it_is_sent_again():
    world, order = short_tasks(3)
    world.do(events.ClientGone(CLIENT))
    world.do(events.HandedBack(WORKER, order.assignment, ((1, 3),)))
    world.do(events.DrainAsked(WORKER, True))
    come_back(world, 3)
    assert world.broker.jobs["j"].waiting == 2


def test_sold_tasks_that_their_buyer_stopped_end_when_they_come_back():
    world, _ = short_tasks(3, price=PRICE)
    world.do(events.CancelAsked(CLIENT, 7, "j", ((0, 2),), True))
    world.do(events.DrainAsked(WORKER, True))
    effects = world.do(events.WorkerGone(WORKER, "it stopped", is_orderly=True))
    assert [(each.ranges, each.failure) for each in told(effects, messages.Dropped)] == [
        ([[0, 2]], "cancelled")
    ]
    assert world.broker.jobs["j"].waiting == 1
