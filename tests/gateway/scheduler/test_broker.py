"""The broker, driven by hand: events in, expected effects out."""

from dataclasses import replace

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

from federation.messages import messages
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.api.views import work_views
from gateway.api.views.estimates import claims
from gateway.api.views.wait_reasons import wait_reason
from gateway.ledger.db import records
from gateway.ledger.db.usage.records import Dimension
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import (
    Effect,
    Expel,
    KeepOutput,
    LogOrder,
    SendToClient,
    SendToWorker,
    Write,
)
from gateway.scheduler.model.stored_terms import answer_ended, stored_terms
from gateway.scheduler.model.terms import Warrant
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff


def test_a_result_is_told_after_its_usage_record_is_written() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    effects = world.report(order)
    kinds = [type(e) for e in effects]
    assert kinds.index(Write) < kinds.index(SendToClient)
    (usage,) = written(effects, records.UsageRecord)
    assert (usage.first, usage.tasks, usage.wall_ns) == (0, 1, 1_000_000)
    assert usage.cost_nanos == 1_000_000
    (results,) = told(effects, messages.Results)
    assert results.values == [b"r0"]


@pytest.mark.parametrize("are_wanted", [True, False])
@pytest.mark.parametrize("failures", [[], [[0, "error", "t", b""]]])
def test_prints_are_passed_on_only_where_they_were_asked_for(are_wanted, failures) -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, prints=are_wanted))
    effects = world.report(order, failures=failures, prints=[[0, "\x1b[2Jhello"]])
    (results,) = told(effects, messages.Results)
    assert results.prints == ([[0, "\x1b[2Jhello"]] if are_wanted else [])


@pytest.mark.parametrize("are_wanted", [True, False])
def test_output_is_kept_for_every_job_of_ours(are_wanted) -> None:
    world = BrokerWorld(keeps_output=True)
    (order,) = orders(world.submit(3, prints=are_wanted))
    assert order.prints
    effects = world.report(order, prints=[[0, "a", 1], [0, "b", 2]])
    kept = [each for each in effects if isinstance(each, KeepOutput)]
    assert kept == [KeepOutput("j", ((0, 1, "a"), (0, 2, "b")))]
    (results,) = told(effects, messages.Results)
    assert (results.prints, results.streams) == (
        ([[0, "a"], [0, "b"]], [1, 2]) if are_wanted else ([], [])
    )
    (order,) = orders(effects)
    effects = world.report(order)
    assert not [each for each in effects if isinstance(each, KeepOutput)]  # it printed nothing


def test_a_view_of_a_job_counts_its_tasks_that_run_and_wait() -> None:
    world = BrokerWorld(slots=0)
    world.do(events.WorkerJoined(WORKER, "w", "local", 2, {}, "3.11", tells_begun=True))
    (order,) = orders(world.submit(5, task_s=0.001))
    job = world.broker.jobs["j"]

    def counts() -> tuple[int, ...]:
        view = work_views.live_job(job, world.now_s)
        return tuple(view[key] for key in ("running", "in_flight", "waiting", "blocked", "tasks"))

    held = len(order.arguments)
    assert counts() == (2, held, 5 - held, 0, 5)  # nothing is reported: both slots are its own
    world.do(events.TasksBegun(WORKER, ((order.assignment, 0, 0.3),)))
    assert counts() == (1, held, 5 - held, 0, 5)
    world.report(order, 1)
    assert counts()[0] == 2


def test_output_of_running_tasks_is_kept() -> None:
    world = BrokerWorld(slots=0, keeps_output=True)
    world.do(events.WorkerJoined(WORKER, "w", "local", 1, {}, "3.11", tells_output=True))
    (order,) = orders(world.submit(2))
    assert (order.logs, order.prints) == (True, False)
    said = ((0, 1, "a"), (7, 1, "of a task that it does not have"))
    effects = world.do(events.OutputArrived(WORKER, order.assignment, said))
    assert effects == [KeepOutput("j", ((0, 1, "a"),))]
    for other in ((WORKER, order.assignment + 1), (WORKER + 1, order.assignment)):
        assert world.do(events.OutputArrived(*other, said)) == []
    effects = world.report(order, prints=[[0, "a", 1]])
    assert not [each for each in effects if isinstance(each, KeepOutput)]  # it is kept already
    assert world.do(events.OutputArrived(WORKER, order.assignment, said)) == []


def test_output_that_a_client_wants_comes_with_the_results_as_well() -> None:
    world = BrokerWorld(slots=0, keeps_output=True)
    world.do(events.WorkerJoined(WORKER, "w", "local", 1, {}, "3.11", tells_output=True))
    (order,) = orders(world.submit(1, prints=True))
    assert (order.logs, order.prints) == (True, True)
    (results,) = told(world.report(order, prints=[[0, "a", 1]]), messages.Results)
    assert results.prints == [[0, "a"]]


def test_output_of_a_job_of_another_site_is_kept_there() -> None:
    world = BrokerWorld(keeps_output=True)
    (order,) = orders(world.submit(1, price=PRICE, prints=True))
    effects = world.report(order, prints=[[0, "a", 1]])
    assert not [each for each in effects if isinstance(each, KeepOutput)]


def test_a_site_that_keeps_no_output_asks_for_none() -> None:
    (order,) = orders(BrokerWorld().submit(1))
    assert not order.prints


@pytest.mark.parametrize("slots", [1, 2])
def test_a_worker_reports_no_more_time_in_all_than_its_slots_have_had(slots: int) -> None:
    """Each report alone may say that its task ran since the tasks were assigned."""
    world = BrokerWorld(slots=slots)
    (order, *_) = orders(world.submit(1))
    world.report(order)  # the duration is known now: many go out at once
    effects = world.do(events.TasksArrived(CLIENT, "j", 1, [b"x"] * 40))
    (order, *_) = orders(effects)
    count = len(order.arguments)
    assert count > 4
    booked_ns = 0
    for at in range(count):
        world.now_s += 1.0
        task = order.first + at
        told = events.Reported(WORKER, order.assignment, task, [b"r"], wall_ns=10**15)
        effects = world.do(told)
        booked_ns += sum(each.wall_ns for each in written(effects, records.UsageRecord))
    assert (count - 1) * 10**9 < booked_ns < slots * count * 1.003 * 10**9


def test_an_unknown_function_gets_one_task_a_slot_and_a_known_one_a_bundle() -> None:
    world = BrokerWorld(slots=2)
    first = orders(world.submit(5000))
    assert sum(len(order.arguments) for order in first) == 2
    effects = world.report(first[0], wall_ns=1000)
    assert len(orders(effects)[0].arguments) > 100


def test_a_long_task_is_not_queued_behind_another() -> None:
    world = BrokerWorld(slots=1)
    (order,) = orders(world.submit(10))
    (following,) = orders(world.report(order, wall_ns=5_000_000_000))
    assert len(following.arguments) == 1


def test_a_late_report_is_fenced() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.WorkerGone(WORKER, "gone"))
    world.join(3)
    assert world.report(order, worker=WORKER) == []


def test_a_report_of_tasks_that_a_worker_does_not_hold_expels_it() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    effects = world.do(events.Reported(WORKER, order.assignment, 5, [b"forged"]))
    assert [e.peer for e in effects if isinstance(e, Expel)] == [WORKER]


@pytest.mark.parametrize(
    "failures",
    [
        [[7, "error", "t", b""]],
        [[0, "error", "t", b""], [0, "error", "t", b""]],
    ],
)
def test_a_report_whose_failures_point_nowhere_expels_its_worker(failures: list) -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    effects = world.do(events.Reported(WORKER, order.assignment, 0, [b""], failures, [], 1, 1, 1))
    assert [e.peer for e in effects if isinstance(e, Expel)] == [WORKER]


def test_tasks_of_a_lost_worker_go_to_another_and_are_charged_once() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.join(3)
    (again,) = orders(world.do(events.WorkerGone(WORKER, "gone")))
    assert (again.first, again.arguments) == (order.first, order.arguments)
    effects = world.report(again, worker=3)
    assert [record.attempt for record in written(effects, records.UsageRecord)] == [2]
    assert len(told(effects, messages.Results)) == 1


def test_a_crash_is_tried_once_more_and_then_is_poison() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    crash = [[0, "crash", "signal SIGSEGV", b""]]
    effects = world.report(order, failures=crash)
    assert told(effects, messages.Results) == []
    (again,) = orders(effects)
    (results,) = told(world.report(again, failures=crash), messages.Results)
    ((offset, kind, text, _),) = results.failures
    assert (offset, kind) == (0, "crash")
    assert "SIGSEGV" in text
    assert "2 times" in text


def test_retries_are_used_up_by_failures_and_every_attempt_is_charged() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, retries=1))
    error = [[0, "error", "ValueError", b""]]
    effects = world.report(order, failures=error)
    (again,) = orders(effects)
    last = world.report(again, failures=error)
    assert len(told(last, messages.Results)) == 1
    usage = written(effects, records.UsageRecord) + written(last, records.UsageRecord)
    assert [(record.attempt, record.state) for record in usage] == [(1, "failed"), (2, "failed")]


def test_a_failure_in_the_middle_of_a_bundle_is_retried_and_the_rest_delivered() -> None:
    world = BrokerWorld(slots=4)
    given = orders(world.submit(4, retries=1))
    bundle = given[0]
    if len(bundle.arguments) < 4:
        for order in given[1:]:
            world.report(order, wall_ns=1000)
    effects = world.report(bundle, failures=[[0, "error", "x", b""]])
    assert told(effects, messages.Results) == [] or all(
        0 not in range(r.first, r.first + len(r.values)) for r in told(effects, messages.Results)
    )
    assert orders(effects)[0].first == bundle.first


def test_what_no_offer_can_ever_run_is_refused_with_the_figure() -> None:
    world = BrokerWorld(tags={"gpu": 1})
    (reject, *_) = told(world.submit(1, tags={"gpu": 2}), messages.RejectJob)
    assert reject.code == "tag-too-small"
    assert "gpu=1" in reject.reason
    assert "gpu=2" in reject.reason


def test_another_python_is_refused() -> None:
    world = BrokerWorld()
    (reject, *_) = told(world.submit(1, python="3.12"), messages.RejectJob)
    assert reject.code == "python-differs"
    assert "3.12" in reject.reason


def test_jobs_are_taken_for_a_while_when_nothing_can_be_recorded() -> None:
    world = BrokerWorld()
    world.broker.note_trouble("the disk is full", 0.0)
    assert orders(world.submit(1, "taken"))
    now_s = world.broker.limits.store_wait_s
    world.broker.begin_turn(now_s)
    world.broker.note_trouble("the disk is still full", now_s)
    rejection, *_ = told(world.submit(1, "refused"), messages.RejectJob)
    assert rejection.code == Reason.STORE_TROUBLE
    assert "can't record work now: the disk is still full" in rejection.reason
    world.broker.note_trouble("", now_s)
    assert not told(world.submit(1, "later"), messages.RejectJob)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_how_long_nothing_can_be_recorded_is_counted_by_a_clock_that_nobody_sets(step_s) -> None:
    world = BrokerWorld()
    world.now_s = 10_000.0
    world.broker.begin_turn(500.0)
    world.broker.note_trouble("the disk is full", 500.0)
    world.now_s = 10_000.0 + step_s  # the calendar is set
    world.broker.begin_turn(529.0)
    assert not told(world.submit(1, "taken"), messages.RejectJob)
    world.broker.begin_turn(530.0)
    rejection, *_ = told(world.submit(1, "refused"), messages.RejectJob)
    assert rejection.code == Reason.STORE_TROUBLE


def test_without_any_worker_a_job_waits() -> None:
    world = BrokerWorld(slots=0)
    assert told(world.submit(1), messages.RejectJob) == []
    assert len(orders(world.join(WORKER))) == 1


def test_counted_tags_are_held_while_tasks_run() -> None:
    world = BrokerWorld(slots=4, tags={"gpu": 2})
    given = orders(world.submit(4, tags={"gpu": 1}))
    assert sum(len(order.arguments) for order in given) == 2
    effects = world.report(given[0])
    assert sum(len(order.arguments) for order in orders(effects)) == len(given[0].arguments)


def test_a_job_that_must_wait_does_not_block_another() -> None:
    world = BrokerWorld(slots=2, tags={"gpu": 1})
    world.submit(5, job="gpus", tags={"gpu": 1})
    plain = orders(world.submit(1, job="plain", function=b"g" * 32))
    assert [order.job for order in plain] == ["plain"]


def test_a_higher_priority_goes_first() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3, job="low")
    world.submit(3, job="high", priority=5.0, function=b"g" * 32)
    assert orders(world.join(WORKER))[0].job == "high"


def test_waiting_tasks_are_cancelled_at_once() -> None:
    world = BrokerWorld(slots=0)
    world.submit(10)
    (answer,) = told(
        world.do(events.CancelAsked(CLIENT, 7, "j", ((2, 5),), False)), messages.Answer
    )
    assert answer.value == {"taken": [[2, 5]]}
    got = [t for order in orders(world.join(WORKER)) for t in range(order.first, order.first + 1)]
    assert not set(got) & {2, 3, 4}


def test_a_cancel_waits_for_the_worker_to_say_what_had_started() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    effects = world.do(events.CancelAsked(CLIENT, 7, "j", ((0, 1),), False))
    assert told(effects, messages.Answer) == []
    assert len(orders(effects, messages.Recall)) == 1
    effects = world.do(events.HandedBack(WORKER, order.assignment, ((0, 1),)))
    (answer,) = told(effects, messages.Answer)
    assert answer.value == {"taken": [[0, 1]]}
    assert orders(effects) == []


def test_a_cancel_of_what_runs_takes_nothing_and_the_result_arrives() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.CancelAsked(CLIENT, 7, "j", ((0, 1),), False))
    (answer,) = told(world.do(events.HandedBack(WORKER, order.assignment, ())), messages.Answer)
    assert answer.value == {"taken": []}
    assert len(told(world.report(order), messages.Results)) == 1


def test_a_kill_takes_what_runs_and_its_usage_is_still_recorded() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    effects = world.do(events.CancelAsked(CLIENT, 7, "j", ((0, 1),), True))
    assert told(effects, messages.Answer)[0].value == {"taken": [[0, 1]]}
    effects = world.report(order, failures=[[0, "cancelled", "stopped", b""]])
    assert told(effects, messages.Results) == []
    assert len(written(effects, records.UsageRecord)) == 1


def test_the_owner_is_told_what_an_operator_cancelled() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientJoined(9, "root", is_operator=True))
    effects = world.do(events.CancelAsked(9, 1, "j", (), False))
    dropped, beyond = told(effects, messages.Dropped)
    assert dropped.ranges == [[0, 3]]
    ((first, stop),) = beyond.ranges
    assert (first, stop > 1 << 60) == (3, True)  # what its owner has not sent yet, too
    (answer,) = told(effects, messages.Answer)
    assert answer.value == {"taken": [[0, 3]], "title": "job j of ann, project risk"}
    assert logged(effects) == [(9, "job j of ann, project risk: 3 tasks cancelled", False)]


def test_the_owner_is_told_who_cancelled_a_job_and_the_books_have_it():
    for asker, is_operator, by in (
        ("ann", False, "cancelled by ann"),
        ("root", True, "cancelled by root, the operator"),
    ):
        world = BrokerWorld(slots=1)
        (order,) = orders(world.submit(3))
        world.do(events.ClientJoined(9, asker, is_operator=is_operator))
        effects = world.do(events.CancelAsked(9, 1, "j", (), False))
        effects += world.do(events.HandedBack(WORKER, order.assignment, ((1, 3),)))
        assert {each.reason for each in told(effects, messages.Dropped)} == {by}
        (ended,) = written(world.report(order), records.JobEnded)
        assert ended.reason == by


def test_the_owner_is_told_who_cancelled_some_of_its_tasks():
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientJoined(9, "root", is_operator=True))
    effects = world.do(events.CancelAsked(9, 1, "j", ((1, 2),), False))
    (dropped,) = told(effects, messages.Dropped)
    assert (dropped.ranges, dropped.reason) == ([[1, 2]], "cancelled by root, the operator")


def logged(effects):
    return [(e.client, e.text, e.is_refused) for e in effects if isinstance(e, LogOrder)]


def test_a_cancel_is_logged_once_workers_have_answered_and_not_if_its_own_client_asks():
    world = BrokerWorld(slots=1)
    (order,) = orders(world.submit(3))
    world.do(events.ClientJoined(9, "root", is_operator=True))
    assert logged(world.do(events.CancelAsked(9, 1, "j", (), False))) == []
    effects = world.do(events.HandedBack(WORKER, order.assignment, ()))
    assert logged(effects) == [(9, "job j of ann, project risk: 2 tasks cancelled", False)]
    world.submit(2, job="k")
    effects = world.do(events.CancelAsked(CLIENT, 2, "k", (), True))
    assert logged(effects) == []
    (answer,) = told(effects, messages.Answer)
    assert answer.value["title"] == "job k of ann, project risk"  # whose it was, all the same


def test_a_refused_cancel_is_logged_with_the_job_and_its_owner():
    world = BrokerWorld(slots=0)
    world.submit(1)
    world.do(events.ClientJoined(9, "eve"))
    [(client, text, is_refused)] = logged(world.do(events.CancelAsked(9, 1, "j", (), False)))
    assert (client, is_refused) == (9, True)
    assert text == "cancel of job j of ann, project risk: none of your unfinished jobs has that id"
    [(client, text, is_refused)] = logged(
        world.do(events.CancelAsked(9, 2, "no-such-job", (), False))
    )
    assert (client, is_refused) == (9, True)
    assert text == "cancel of job no-such-job: none of your unfinished jobs has that id"


def test_the_operator_is_told_that_another_sites_contract_is_ended_there():
    world = BrokerWorld(slots=0)
    world.submit(1, price=PRICE, path=("paris",))
    world.do(events.ClientJoined(9, "root", is_operator=True))
    (answer,) = told(world.do(events.CancelAsked(9, 1, "j", (), False)), messages.Answer)
    assert answer.code == Reason.JOB_NOT_FOUND
    assert answer.reason == "site paris sent it under a contract, and cancels it there"


def test_calls_that_arrive_after_the_end_of_their_job_are_named_in_the_rejection() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.CancelAsked(9, 1, "j", (), False))
    effects = world.do(events.TasksArrived(CLIENT, "j", 3, [b"3", b"4"]))
    (rejection,) = told(effects, messages.RejectJob)
    assert rejection.details == {"tasks": [3, 5]}


def test_a_flood_of_cancels_is_refused_beyond_a_hundred() -> None:
    world = BrokerWorld()
    world.submit(1)
    answers = [
        each
        for request in range(1, 103)
        for each in told(
            world.do(events.CancelAsked(CLIENT, request, "j", ((0, 1),), False)), messages.Answer
        )
    ]
    assert [(each.request, each.code) for each in answers] == [(101, "busy"), (102, "busy")]


def test_nobody_cancels_somebody_elses_job() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientJoined(9, "mallory"))
    (answer,) = told(world.do(events.CancelAsked(9, 1, "j", (), False)), messages.Answer)
    assert answer.code == "job-not-found"
    assert world.broker.jobs["j"].waiting == 3


def test_a_client_that_leaves_takes_its_attached_work_with_it() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(3))
    effects = world.do(events.ClientGone(CLIENT))
    assert [recall.kill for recall in orders(effects, messages.Recall)] == [True]
    effects = world.report(order, failures=[[0, "cancelled", "stopped", b""]])
    (ended,) = written(effects, records.JobEnded)
    assert ended.state == "abandoned"
    assert world.broker.jobs == {}


def test_what_was_charged_before_its_client_was_lost_is_not_charged_again() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    paid = written(world.report(order), records.UsageRecord)
    world.do(events.TasksArrived(CLIENT, "j", 1, [b"1"]))
    world.do(events.ClientGone(CLIENT))
    assert [record.cost_nanos for record in paid] == [1_000_000]
    left = [a.id for a in world.broker.workers[WORKER].assignments.values()]
    for assignment in left:
        world.do(events.HandedBack(WORKER, assignment, ((1, 2),)))
    assert world.broker.jobs == {}
    world.do(events.ClientJoined(5, "ann"))
    world.do(events.JobOpened(5, "j", spec()))
    effects = world.do(events.TasksArrived(5, "j", 0, [b"0"]))
    (again,) = orders(effects)
    effects = world.report(again)
    (usage,) = written(effects, records.UsageRecord)
    assert (usage.state, usage.cost_nanos) == ("repeat", 0)
    assert len(told(effects, messages.Results)) == 1


def test_a_job_counts_by_the_token_by_which_its_client_came_last() -> None:
    world = BrokerWorld(slots=0)
    world.submit(1, detached=True, warrant=Warrant("london", "first", 10.0))
    later = Warrant("london", "later", 20.0)
    world.do(events.ClientGone(CLIENT))
    world.do(events.ClientJoined(5, "ann"))
    again = events.JobOpened(5, "j", spec(detached=True, warrant=later), again=True)
    effects = world.do(again)
    assert world.broker.jobs["j"].spec.warrant == later
    [write] = [each for each in effects if isinstance(each, Write)]
    assert stored_terms(write.record.spec)["warrant"] == later, "a restart knows it, too"
    assert write.durable
    assert not [each for each in world.do(again) if isinstance(each, Write)]


def comes_back(world: BrokerWorld) -> records.UsageRecord:
    """Its client comes in anew and sends task 0 again, which runs; returns that charge."""
    world.do(events.ClientJoined(5, "ann"))
    world.do(events.JobOpened(5, "j", spec(), again=True))
    (again,) = orders(world.do(events.TasksArrived(5, "j", 0, [b"0"])))
    (usage,) = written(world.report(again), records.UsageRecord)
    return usage


def test_that_a_detached_job_was_cancelled_is_on_the_disk_before_its_user_is_told() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3, detached=True)
    effects = world.do(events.CancelAsked(CLIENT, 7, "j", (), False))
    kinds = [type(e) for e in effects]
    written = [e for e in effects if isinstance(e, Write)]
    assert any(isinstance(e.record, records.OutcomeKept) and e.durable for e in written)
    assert kinds.index(Write) < kinds.index(SendToClient)


def test_what_ran_although_it_was_cancelled_is_charged_once() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.CancelAsked(CLIENT, 1, "j", ((0, 1),), True))
    (paid,) = written(world.report(order), records.UsageRecord)  # it was done by then
    world.do(events.ClientGone(CLIENT))
    assert (paid.state, comes_back(world).state) == ("ok", "repeat")


def test_what_failed_before_it_took_any_time_is_charged_when_it_runs_again() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    failure = [[0, "error", "its function can't be read", b""]]
    world.report(order, failures=failure, wall_ns=0, cpu_ns=0)
    world.do(events.ClientGone(CLIENT))
    usage = comes_back(world)
    assert usage.state == "ok"
    assert usage.cost_nanos > 0


def test_what_was_charged_is_free_again_only_for_the_same_function() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.report(order)
    world.do(events.ClientGone(CLIENT))
    world.do(events.ClientJoined(5, "ann"))
    other = events.JobOpened(5, "j", spec(function=b"g" * 32), again=True)
    (reject,) = told(world.do(other), messages.RejectJob)
    assert "another function" in reject.reason
    assert comes_back(world).state == "repeat"


def test_what_runs_again_for_nothing_is_in_proportion_to_what_was_paid() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.report(order, wall_ns=1_000)
    states = []
    for client in range(5, 15):
        world.do(events.ClientGone(client - 1 if client > 5 else CLIENT))
        world.do(events.ClientJoined(client, "ann"))
        world.do(events.JobOpened(client, "j", spec(), again=True))
        (again,) = orders(world.do(events.TasksArrived(client, "j", 0, [b"0"])))
        (usage,) = written(world.report(again, wall_ns=400_000_000), records.UsageRecord)
        states.append(usage.state)
    assert states[:2] == ["repeat", "repeat"], "a second is given in any case"
    assert states[2] == "ok"
    assert states.count("ok") == 2, "and then three times what was paid"


def test_a_charge_recovered_from_the_store_is_not_made_again() -> None:
    world = BrokerWorld()
    history = events.JobRecovered("j", None, None, (), 0, 0, ((0, 2),), {"USD": 5}, 6, 7)
    world.do(history)
    first = orders(world.submit(4))
    usage: list[records.UsageRecord] = []
    while first:
        effects = world.report(first.pop(0), wall_ns=1000)
        usage += written(effects, records.UsageRecord)
        first += orders(effects)
    free = RangeSet((r.first, r.first + r.tasks) for r in usage if r.state == "repeat")
    assert list(free) == [(0, 2)]
    assert all((r.cost_nanos == 0) == (r.state == "repeat") for r in usage)


def test_a_cost_limit_drops_what_waits() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(5, max_cost_nanos=500_000, currency="USD"))
    effects = world.report(order)
    (dropped,) = told(effects, messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[1, 5]], "budget")


def test_a_job_that_a_report_brings_to_its_cost_limit_does_not_hold_up_others() -> None:
    """Of two jobs alike, "j" may cost two tasks; it has fewer tasks at work than "k"."""
    world = BrokerWorld(slots=4)
    world.broker.durations.learn(b"f" * 32, 1_000, 1_000 * 10**9)
    limited = orders(world.submit(5, max_cost_nanos=2 * 10**9, currency="USD"))
    assert sum(len(each.arguments) for each in limited) == 2
    world.submit(5, "k", max_cost_nanos=10**12, currency="USD")
    assert world.broker.jobs["k"].in_flight == 2
    effects = world.report(limited[0], tasks=1, wall_ns=10**9)
    assert [each.job for each in orders(effects)] == ["k"]


def test_a_dry_worker_gets_what_another_has_not_started() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(200))
    world.report(order, wall_ns=1_000_000)
    effects = world.join(3)
    waiting = orders(effects)
    while waiting:
        effects = world.report(waiting.pop(0), worker=3)
        waiting += orders(effects)
    (recall,) = orders(effects, messages.Recall)
    assert recall.kill is False
    assert recall.stop > recall.first


def test_however_many_are_dry_a_slot_keeps_a_task() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.report(order, wall_ns=60_000_000)
    held = orders(world.submit(1, "k") + world.submit(1, "l"))
    assert len(held) == 2  # one to run and one ahead
    assert len(orders(world.join(3), messages.Recall)) == 1
    assert orders(world.join(4), messages.Recall) == []


def test_a_draining_worker_hands_back_and_gets_nothing_new() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(5))
    effects = world.do(events.DrainAsked(WORKER, True))
    assert len(orders(effects, messages.Recall)) == 1
    effects = world.do(events.HandedBack(WORKER, order.assignment, ()))
    assert orders(world.report(order)) == []
    assert len(orders(world.do(events.DrainAsked(WORKER, False)))) == 1


def test_a_worker_that_comes_to_a_drained_host_gets_nothing_until_that_ends() -> None:
    world = BrokerWorld(slots=0)
    host = events.DrainKind.HOST
    world.do(events.DrainOrdered(host, "lon3", on=True))
    world.submit(1)
    joined = events.WorkerJoined(5, "w", "local", 1, {}, "3.11", host="LON3.example.org")
    assert orders(world.do(joined)) == []
    assert len(orders(world.do(events.DrainOrdered(host, "lon3", on=False)))) == 1


def test_a_draining_site_refuses_jobs() -> None:
    world = BrokerWorld()
    world.do(events.DrainAsked(0, True))
    (reject, *_) = told(world.submit(1), messages.RejectJob)
    assert reject.code == "draining"


def test_a_refused_job_is_remembered_until_it_is_accepted() -> None:
    world = BrokerWorld()
    world.do(events.DrainAsked(0, True))
    world.do(events.JobOpened(CLIENT, "j", spec(name="nightly", tasks=3)))
    (refused,) = world.broker.refusals.latest(world.now_s)
    assert (refused.job, refused.name, refused.user, refused.project) == (
        *("j", "nightly", "ann", "risk"),
    )
    assert (refused.tasks, refused.code, refused.refused_at_s) == (3, "draining", world.now_s)
    assert refused.reason == "the gateway is draining and takes no new jobs"
    world.do(events.DrainAsked(0, False))
    world.submit(3)
    assert not list(world.broker.refusals.latest(world.now_s))


def test_a_client_that_does_not_read_gets_nothing_run() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientReading(CLIENT, False))
    assert orders(world.join(WORKER)) == []
    assert len(orders(world.do(events.ClientReading(CLIENT, True)))) == 1


def test_a_client_over_its_limit_is_expelled() -> None:
    world = BrokerWorld(slots=0)
    effects = world.submit(10_001)
    assert [e.peer for e in effects if isinstance(e, Expel)] == [CLIENT]


def test_a_client_over_its_bytes_is_expelled() -> None:
    world = BrokerWorld(slots=0, limits=ClientLimits(bytes_max=1000))
    world.do(events.JobOpened(CLIENT, "j", spec()))
    fine = world.do(events.TasksArrived(CLIENT, "j", 0, [bytes(900)]))
    assert not [e for e in fine if isinstance(e, Expel)]
    effects = world.do(events.TasksArrived(CLIENT, "j", 1, [bytes(200)]))
    assert [e.peer for e in effects if isinstance(e, Expel)] == [CLIENT]


def test_all_that_another_site_has_bought_counts_together() -> None:
    world = BrokerWorld(slots=0)
    for number, job in ((-1, "a"), (-2, "b")):
        world.do(events.ClientJoined(number, "ann@paris", "paris"))
        world.do(events.JobOpened(number, job, spec()))
        world.do(events.TasksArrived(number, job, 0, [bytes(600), b""]))
    account = world.broker.clients[-2].account
    assert (account.held_bytes, account.tasks) == (1200, 4)
    world.do(events.ClientGone(-1))
    assert (account.held_bytes, account.tasks) == (600, 2)


def test_bytes_are_given_back_when_tasks_end() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(5))
    while True:
        following = orders(world.report(order))
        if not following:
            break
        (order,) = following
    assert world.broker.jobs["j"].held_bytes <= 5


def test_a_detached_job_is_kept_before_it_is_acknowledged_and_outlives_its_client() -> None:
    world = BrokerWorld(slots=0)
    effects = world.submit(2, detached=True)
    assert len(written(effects, records.BundleKept)) == 1
    effects = world.do(events.JobClosed(CLIENT, "j", 2))
    (kept,) = told(effects, messages.Kept)
    assert (kept.tasks, kept.closed) == (2, True)
    assert all(e.durable for e in effects if isinstance(e, Write))
    world.do(events.ClientGone(CLIENT))
    waiting = orders(world.join(WORKER))
    states = []
    while waiting:
        effects = world.report(waiting.pop(0))
        waiting += orders(effects)
        states += [record.state for record in written(effects, records.JobEnded)]
        assert len(written(effects, records.OutcomeKept)) == 1
    assert states == ["done"]


def test_arguments_sent_twice_run_once() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.TasksArrived(CLIENT, "j", 1, [b"1", b"2", b"3"]))
    assert world.broker.jobs["j"].waiting == 4


def test_tasks_of_a_job_that_has_ended_are_answered() -> None:
    world = BrokerWorld()
    effects = world.do(events.TasksArrived(CLIENT, "unknown", 0, [b"0"]))
    assert len(told(effects, messages.RejectJob)) == 1


def test_work_is_moved_as_time_passes_though_nothing_happens() -> None:
    world = BrokerWorld()
    (first,) = orders(world.submit(40))
    world.report(first)  # it took a millisecond: all the others are given ahead
    assert not world.broker.is_uneven  # nobody has room
    early = orders(world.join(3), messages.Recall)
    assert world.broker.is_uneven
    world.now_s += 1.0
    late = orders(world.broker.settle(world.now_s), messages.Recall)
    assert (early, len(late)) == ([], 1)


def test_a_cost_limit_of_nothing_drops_a_job_at_once() -> None:
    world = BrokerWorld()
    effects = world.submit(5, max_cost_nanos=0, currency="USD")
    (dropped,) = told(effects, messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[0, 5]], "budget")


def test_what_a_worker_has_and_has_not_begun_is_asked_back_when_the_cost_limit_is_reached() -> None:
    world = BrokerWorld()
    (first,) = orders(world.submit(1))
    world.report(first, wall_ns=1_000)  # so short that a slot gets many ahead
    effects = world.submit(50, "k", max_cost_nanos=500_000, currency="USD")
    (order,) = orders(effects)
    assert len(order.arguments) == 50
    effects = world.report(order, tasks=1, wall_ns=10**9)
    (recall,) = orders(effects, messages.Recall)
    assert (recall.first, recall.stop, recall.kill) == (1, 50, False)
    back = events.HandedBack(WORKER, order.assignment, ((3, 50),))  # two run
    (dropped,) = told(world.do(back), messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[3, 50]], "budget")
    again = world.report(replace(order, first=1), tasks=1, wall_ns=10**9)
    assert not orders(again, messages.Recall)


def test_a_spent_cost_limit_drops_what_is_submitted_later() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, max_cost_nanos=500_000, currency="USD"))
    world.report(order)
    (dropped,) = told(world.do(events.TasksArrived(CLIENT, "j", 1, [b"late"])), messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[1, 2]], "budget")


def test_a_clock_that_is_set_back_charges_what_was_reported() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.now_s -= 500.0
    (usage,) = written(world.report(order), records.UsageRecord)
    assert usage.wall_ns == 1_000_000


def test_tenths_of_a_counted_tag_add_up_to_one() -> None:
    world = BrokerWorld(slots=40, tags={"gpu": 1.0})
    for job, share in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        waiting = orders(world.submit(10, job, tags={"gpu": share}))
        while waiting:
            waiting += orders(world.report(waiting.pop(0)))
    assert len(orders(world.submit(1, "whole", tags={"gpu": 1}))) == 1


def test_a_detached_job_that_is_whole_is_no_orphan() -> None:
    world = BrokerWorld(slots=0)
    world.do(events.JobOpened(CLIENT, "j", spec(detached=True)))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"x"]))
    world.do(events.JobClosed(CLIENT, "j", 1))
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.JobOpened(9, "j", spec(detached=True)))
    world.do(events.ClientGone(9))
    world.now_s += 3600.0
    world.do(events.Ticked())
    assert world.broker.jobs["j"].leaving == ""


def test_a_job_does_not_wait_for_tasks_that_ended_elsewhere() -> None:
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec()))
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "j", 2, [b"x"])))
    world.do(events.JobClosed(CLIENT, "j", 4, ((0, 2), (3, 4))))
    (ended,) = written(world.report(order), records.JobEnded)
    assert (ended.state, ended.done) == ("done", 1)


def test_a_task_that_is_here_is_not_taken_for_one_that_ended_elsewhere() -> None:
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec()))
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"x"])))
    world.do(events.JobClosed(CLIENT, "j", 2, ((0, 2),)))
    assert "j" in world.broker.jobs
    assert len(told(world.report(order), messages.Results)) == 1


def test_a_client_that_did_not_leave_gets_no_task_run_again() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.report(order)
    assert orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"again"]))) == []


def test_a_worker_without_a_counted_tag_is_passed_over_for_one_that_has_it() -> None:
    world = BrokerWorld(slots=0)
    world.join(3, tags={})
    world.join(4, tags={"gpu": 1})
    effects = world.submit(1, tags={"gpu": 1})
    assert [e.worker for e in effects if isinstance(e, SendToWorker)] == [4]


def test_who_closes_a_job_that_was_cancelled_meanwhile_is_told_that_it_ended() -> None:
    world = BrokerWorld()
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.JobOpened(CLIENT, "j", spec(detached=True)))
    world.do(events.CancelAsked(9, 1, "j", (), False))
    (reject,) = told(world.do(events.JobClosed(CLIENT, "j", 0)), messages.RejectJob)
    assert reject.job == "j"


def test_a_job_without_its_function_takes_no_slot_until_it_is_here() -> None:
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec(), has_function=False))
    assert orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))) == []
    assert len(orders(world.submit(1, "other", function=b"g" * 32))) == 1
    world.join(3)
    assert [order.job for order in orders(world.do(events.FunctionArrived(b"f" * 32)))] == ["j"]


def test_a_job_whose_function_never_arrives_is_rejected() -> None:
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec(), has_function=False))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    world.now_s += world.broker.limits.function_wait_s
    assert told(world.do(events.Ticked()), messages.RejectJob) == []
    world.now_s += 1.0
    effects = world.do(events.Ticked())
    (reject,) = told(effects, messages.RejectJob)
    assert reject.code == "function-missing"
    assert [record.state for record in written(effects, records.JobEnded)] == ["rejected"]
    assert (world.broker.jobs, world.broker.clients[CLIENT].tasks) == ({}, 0)
    assert orders(world.do(events.FunctionArrived(b"f" * 32))) == []


def test_a_detached_job_that_was_abandoned_is_rejected_when_its_client_comes_back() -> None:
    world = BrokerWorld(slots=0)
    world.submit(5, detached=True)
    world.do(events.ClientGone(CLIENT))
    world.now_s += 3600.0
    effects = world.do(events.Ticked())
    assert [record.state for record in written(effects, records.JobEnded)] == ["abandoned"]
    world.do(events.ClientJoined(9, "ann"))
    assert world.broker.remembers("j")
    effects = world.do(events.JobOpened(9, "j", spec(detached=True), again=True))
    (reject,) = told(effects, messages.RejectJob)
    assert "the client disconnected before all tasks were submitted" in reject.reason
    effects = world.do(events.TasksArrived(9, "j", 5, [b"5"]))
    assert told(effects, messages.Kept) == written(effects, records.BundleKept) == []


def test_a_detached_job_that_ended_whole_is_kept_when_its_client_asks_again() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, detached=True))
    world.do(events.JobClosed(CLIENT, "j", 1))
    world.report(order)
    (kept,) = told(world.do(events.JobOpened(CLIENT, "j", spec(detached=True))), messages.Kept)
    assert (kept.tasks, kept.closed) == (1, True)


def test_nobody_opens_a_job_again_that_was_somebody_elses() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.JobClosed(CLIENT, "j", 1))
    world.report(order)
    world.do(events.ClientJoined(9, "mallory"))
    opened = events.JobOpened(9, "j", spec(user="mallory"), again=True)
    (reject,) = told(world.do(opened), messages.RejectJob)
    assert reject.reason == "the job id j was used before: each job needs a new id"
    assert world.broker.jobs == {}


def test_an_open_job_is_taken_over_in_its_own_project_only() -> None:
    world = BrokerWorld()
    world.submit(1, project="risk")
    opened = events.JobOpened(CLIENT, "j", spec(project="fx"), again=True)
    (reject,) = told(world.do(opened), messages.RejectJob)
    assert reject.reason == "the job id j was used before: each job needs a new id"


def test_an_id_is_used_again_only_by_who_comes_back_and_then_is_not_charged_again() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.JobClosed(CLIENT, "j", 1))
    world.report(order)
    (reject,) = told(world.do(events.JobOpened(CLIENT, "j", spec())), messages.RejectJob)
    assert "was used before" in reject.reason
    # No store is asked: what was charged is known before its records are on disk.
    assert world.broker.remembers("j")
    world.do(events.JobOpened(CLIENT, "j", spec(), again=True))
    (again,) = orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"])))
    (usage,) = written(world.report(again), records.UsageRecord)
    assert (usage.state, usage.cost_nanos) == ("repeat", 0)


@pytest.mark.parametrize(("state", "total"), [("done", 3), ("cancelled", 3), ("abandoned", None)])
def test_only_a_job_that_was_submitted_whole_is_said_to_be_kept(
    state: str, total: int | None
) -> None:
    answer = answer_ended("j", state, "why", total)
    if total is None:
        assert isinstance(answer, messages.RejectJob)
        assert "why" in answer.reason
    else:
        assert answer == messages.Kept("j", total, True)


def test_a_kill_that_meets_its_owners_return_is_undone() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.ClientGone(CLIENT))
    world.do(events.ClientJoined(5, "ann"))
    world.do(events.JobOpened(5, "j", spec(), again=True))
    effects = world.report(order, failures=[[0, "cancelled", "stopped", b""]])
    assert told(effects, messages.Results) == []
    (again,) = orders(effects)
    assert again.first == 0
    (results,) = told(world.report(again), messages.Results)
    assert results.failures == []


def test_a_job_that_was_cancelled_stays_so_when_its_owner_comes_back() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.CancelAsked(9, 1, "j", (), False))
    world.do(events.ClientGone(CLIENT))
    world.do(events.ClientJoined(5, "ann"))
    (reject,) = told(world.do(events.JobOpened(5, "j", spec(), again=True)), messages.RejectJob)
    assert reject.reason == "cancelled by ann"
    (ended,) = written(world.report(order), records.JobEnded)
    assert ended.state == "cancelled"


def test_a_retry_in_a_job_that_was_cancelled_is_told_as_the_failure_it_was() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, retries=5))
    world.do(events.CancelAsked(CLIENT, 7, "j", (), False))
    effects = world.report(order, failures=[[0, "error", "ValueError", b""]])
    (results,) = told(effects, messages.Results)
    assert results.failures[0][1] == "error"


def test_what_comes_back_for_a_cancel_whose_asker_has_left_is_told_to_its_owner() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.CancelAsked(9, 1, "j", (), False))
    world.do(events.ClientGone(9))
    effects = world.do(events.HandedBack(WORKER, order.assignment, ((0, 1),)))
    (dropped,) = told(effects, messages.Dropped)
    assert (dropped.ranges, dropped.failure) == ([[0, 1]], "cancelled")


def test_a_cancel_is_not_answered_by_the_answer_to_an_earlier_recall() -> None:
    world = BrokerWorld()
    (first,) = orders(world.submit(40))
    (order,) = orders(world.report(first))  # the other 39 are given ahead
    world.now_s += 1.0
    levelling = orders(world.join(3), messages.Recall)
    assert len(levelling) == 1, "a dry worker has some of it recalled"
    low, high = order.first, levelling[0].first
    effects = world.do(events.CancelAsked(CLIENT, 7, "j", ((low, high),), False))
    assert len(orders(effects, messages.Recall)) == 1
    back = ((levelling[0].first, levelling[0].stop),)
    effects = world.do(events.HandedBack(WORKER, order.assignment, back))
    assert told(effects, messages.Answer) == []
    effects = world.do(events.HandedBack(WORKER, order.assignment, ((low + 1, high),)))
    (answer,) = told(effects, messages.Answer)
    assert answer.value == {"taken": [[low + 1, high]]}


def test_tasks_of_workers_that_stop_in_order_are_no_losses() -> None:
    world = BrokerWorld()
    world.submit(1)
    for worker in range(WORKER, WORKER + 10):
        effects = world.do(events.WorkerGone(worker, "stopped", is_orderly=True))
        assert told(effects, messages.Dropped) == []
        (order,) = orders(world.join(worker + 1))
    (usage,) = written(world.report(order, worker=WORKER + 10), records.UsageRecord)
    assert usage.attempt == 1


def test_a_worker_that_stops_gets_nothing_new_and_is_not_asked_to_hand_back() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(5))
    effects = world.do(events.DrainAsked(WORKER, True, by=events.Drainer.ITSELF))
    assert [each for each in effects if isinstance(each, SendToWorker)] == []
    assert orders(world.report(order)) == []


def come_back(world: BrokerWorld, client: int) -> None:
    """The owner's session was lost and is replaced by another."""
    world.do(events.ClientJoined(client, "ann"))
    world.do(events.JobOpened(client, "j", spec(), again=True))


def test_counts_are_right_when_a_client_sends_again_what_had_ended() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(4))
    (second,) = orders(world.report(order, wall_ns=10**9))
    world.report(second, failures=[[0, "error", "ValueError", b""]], wall_ns=10**9)
    world.do(events.CancelAsked(CLIENT, 1, "j", ((3, 4),), False))
    job = world.broker.jobs["j"]
    assert (job.done, job.failed, job.cancelled) == (1, 1, 1)
    come_back(world, 5)
    world.do(events.TasksArrived(5, "j", 0, [b"0", b"1", b"2", b"3"]))
    assert (job.done, job.failed, job.cancelled) == (0, 0, 0)
    assert list(job.charged) == [(0, 2)], "what was cancelled has not been charged"


def test_a_task_told_in_the_new_session_does_not_run_again_when_its_arguments_arrive() -> None:
    """Its client opened the job anew and sent the task before the result reached it."""
    world = BrokerWorld()
    (order,) = orders(world.submit(2))
    (second,) = orders(world.report(order))  # told in the session that ends
    come_back(world, 5)
    assert told(world.report(second), messages.Results)
    (again,) = orders(world.do(events.TasksArrived(5, "j", 0, [b"0", b"1"])))
    assert (again.first, len(again.arguments)) == (0, 1), "its result may not have arrived"
    effects = world.report(again)
    assert orders(effects) == []
    assert [each.first for each in told(effects, messages.Results)] == [0]


def test_a_task_sent_again_twice_in_one_session_runs_once_more() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(2))
    world.report(order)
    come_back(world, 5)
    world.do(events.TasksArrived(5, "j", 0, [b"0"]))
    job = world.broker.jobs["j"]
    before = job.waiting
    world.do(events.TasksArrived(5, "j", 0, [b"0"]))
    assert job.waiting == before


def test_a_job_is_not_over_before_its_client_that_came_back_has_sent_its_tasks_again() -> None:
    """The last task at a worker ends between the opening and the tasks of the new session."""
    world = BrokerWorld()
    (order,) = orders(world.submit(2))
    world.do(events.JobClosed(CLIENT, "j", 2))
    (second,) = orders(world.report(order))  # told in the session that ends
    come_back(world, 5)
    world.report(second)
    effects = world.do(events.TasksArrived(5, "j", 0, [b"0"]))
    assert told(effects, messages.RejectJob) == []
    (again,) = orders(effects)
    world.do(events.JobClosed(5, "j", 2, elsewhere=((1, 2),)))
    (results,) = told(world.report(again), messages.Results)
    assert results.first == 0
    assert world.broker.jobs == {}


def test_every_usage_record_of_a_task_has_a_key_of_its_own() -> None:
    world = BrokerWorld()
    error = [[0, "error", "ValueError", b""]]
    opened = spec(retries=9)
    used: list[records.UsageRecord] = []
    client = CLIENT
    world.do(events.JobOpened(client, "j", opened))
    for _ in range(3):
        (order,) = orders(world.do(events.TasksArrived(client, "j", 0, [b"0"])))
        effects = world.report(order, failures=error)
        used += written(effects, records.UsageRecord)
        (again,) = orders(effects)
        used += written(world.report(again), records.UsageRecord)
        world.do(events.TasksArrived(client, "j", 1, [b"1"]))  # something is unfinished
        world.do(events.ClientGone(client))
        for assignment in list(world.broker.workers[WORKER].assignments):
            world.do(events.HandedBack(WORKER, assignment, ((1, 2),)))
        assert world.broker.jobs == {}
        client += 10
        world.do(events.ClientJoined(client, "ann"))
        world.do(events.JobOpened(client, "j", opened, again=True))
    keys = [(record.job, record.first, record.attempt) for record in used]
    assert len(set(keys)) == len(keys) == 6
    charged = sum(record.cost_nanos for record in used)
    assert world.broker.jobs["j"].costs_nanos == {"USD": charged}


def test_attempts_go_on_where_the_last_gateway_left_them() -> None:
    world = BrokerWorld()
    history = events.JobRecovered(
        "j", None, None, (), 0, 0, ((0, 1),), {"USD": 5}, 6, 7, attempt_max=4
    )
    world.do(history)
    (order,) = orders(world.submit(1))
    (usage,) = written(world.report(order), records.UsageRecord)
    assert (usage.attempt, usage.state) == (5, "repeat")


def test_currencies_are_not_added_up() -> None:
    broker = Broker({"local": PRICE, "far": Tariff(7_200_000_000_000, "EUR", "test")})
    world = BrokerWorld(slots=0)
    world.broker = broker
    world.do(events.ClientJoined(CLIENT, "ann"))
    world.join(WORKER)
    world.do(events.WorkerJoined(3, "w3", "far", 1, {}, "3.11"))
    for order, worker in zip(orders(world.submit(2)), (WORKER, 3), strict=True):
        world.report(order, worker=worker)
    view = work_views.live_job(broker.jobs["j"], 100.0)
    assert view["costs_nanos"] == {"EUR": 2_000_000, "USD": 1_000_000}
    assert (view["cost_nanos"], view["currency"]) == (2_000_000, "EUR")
    assert "EUR" in view["cost"]
    assert "USD" in view["cost"]


def test_what_runs_is_estimated_apart_from_what_was_charged() -> None:
    world = BrokerWorld()
    (first,) = orders(world.submit(2, group="desk"))
    (second,) = orders(world.report(first, wall_ns=10**9))
    view = work_views.live_job(world.broker.jobs["j"], 100.0)
    (claim,) = claims(world.broker.jobs.values(), 100.0)
    job = world.broker.jobs["j"]
    assert view["estimated_costs_nanos"] == {"USD": round(job.load_nanos)}
    assert claim.cost_nanos == round(job.load_nanos)
    assert view["cost_nanos"] == job.costs_nanos["USD"] > 0
    assert view["as_of_s"] == 100.0
    assert claim.facts[Dimension.GROUP] == "desk"
    assert (claim.facts[Dimension.SITE], claim.facts[Dimension.ORIGIN]) == ("", "")
    hour = world.now_s + 3600.0
    (claim,) = claims(world.broker.jobs.values(), hour)  # it was thought to take a second
    assert claim.cost_nanos == PRICE.price_nanos
    assert work_views.live_job(job, hour)["estimated_costs_nanos"] == {"USD": PRICE.price_nanos}
    world.report(second)
    assert list(claims(world.broker.jobs.values(), 100.0)) == []


def test_the_group_of_a_user_is_on_the_usage_record() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1, group="desk"))
    (usage,) = written(world.report(order), records.UsageRecord)
    assert usage.group == "desk"


def test_a_detached_job_has_its_currency_and_price_after_a_restart() -> None:
    world = BrokerWorld(slots=0)
    world.do(
        events.JobRecovered(
            "j", spec(detached=True), 4, ((0, 1),), 0, 0, (), {"EUR": 5}, 6, 7, {"EUR": 9}, 1
        )
    )
    view = work_views.live_job(world.broker.jobs["j"], 100.0)
    assert (view["cost_nanos"], view["currency"], view["price_nanos"]) == (5, "EUR", 9)


def test_a_detached_job_of_more_bytes_than_a_client_may_have_is_taken() -> None:
    world = BrokerWorld(slots=0, limits=ClientLimits(bytes_max=1000))
    world.do(events.JobOpened(CLIENT, "j", spec(detached=True)))
    for task in range(10):
        effects = world.do(events.TasksArrived(CLIENT, "j", task, [bytes(900)]))
        assert len(told(effects, messages.Kept)) == 1
        assert not [e for e in effects if isinstance(e, Expel)]


def test_over_the_sites_limit_detached_tasks_are_acknowledged_when_others_have_run() -> None:
    world = BrokerWorld(slots=0, limits=ClientLimits(bytes_max=1000, kept_bytes_max=1500))
    world.do(events.JobOpened(CLIENT, "j", spec(detached=True)))
    world.do(events.TasksArrived(CLIENT, "j", 0, [bytes(900)]))
    effects = world.do(events.TasksArrived(CLIENT, "j", 1, [bytes(900)]))
    assert told(effects, messages.Kept) == []
    refused = world.do(events.JobOpened(CLIENT, "k", spec(detached=True)))
    assert told(refused, messages.RejectJob)[0].code == "busy"
    (order,) = orders(world.join(WORKER))
    (kept,) = told(world.report(order), messages.Kept)
    assert (kept.tasks, kept.closed) == (2, False)


def test_a_client_that_sends_on_unacknowledged_is_expelled() -> None:
    world = BrokerWorld(slots=0, limits=ClientLimits(bytes_max=1000, kept_bytes_max=10))
    world.do(events.JobOpened(CLIENT, "j", spec(detached=True)))
    world.do(events.TasksArrived(CLIENT, "j", 0, [bytes(900)]))
    effects = world.do(events.TasksArrived(CLIENT, "j", 1, [bytes(900)]))
    assert [e.peer for e in effects if isinstance(e, Expel)] == [CLIENT]


def test_what_ended_is_counted_for_nobody() -> None:
    world = BrokerWorld(slots=0)
    world.do(events.JobOpened(CLIENT, "a", spec()))
    world.do(events.TasksArrived(CLIENT, "a", 0, [bytes(900)] * 3))
    world.do(events.CancelAsked(CLIENT, 1, "a", ((1, 3),), False))
    assert world.broker.clients[CLIENT].account.held_bytes == 900
    (order,) = orders(world.join(WORKER))
    world.report(order)
    world.do(events.JobClosed(CLIENT, "a", 3))
    assert world.broker.clients[CLIENT].account.held_bytes == 0


def test_bytes_follow_a_job_to_the_session_that_takes_it_over() -> None:
    world = BrokerWorld(slots=0)
    world.submit(3)
    world.do(events.ClientJoined(5, "ann"))
    world.do(events.JobOpened(5, "j", spec(), again=True))
    clients = world.broker.clients
    assert (clients[CLIENT].account.held_bytes, clients[5].account.held_bytes) == (0, 3)


def test_one_job_more_than_a_client_may_have_is_rejected() -> None:
    world = BrokerWorld(slots=0, limits=ClientLimits(jobs_max=2))
    for job in ("a", "b"):
        assert told(world.submit(1, job), messages.RejectJob) == []
    reject = told(world.submit(1, "c"), messages.RejectJob)[0]
    assert (reject.job, reject.code) == ("c", "busy")


@pytest.mark.parametrize("was_late", [False, True])
def test_a_worker_does_not_wait_for_losses_that_the_gateway_itself_has_caused(
    was_late: bool,
) -> None:
    world = BrokerWorld(slots=0)
    for handle in (10, 11, 12):
        world.do(events.WorkerJoined(handle, "w", "local", 1, {}, "3.11"))
        if handle == 10:
            world.submit(50)
        if handle < 12:
            assert world.broker.workers[handle].assignments, "it has work"
            world.do(events.WorkerGone(handle, "did not reconnect", was_late=was_late))
    waits = events.Drainer.LOSSES in world.broker.workers[12].drained_by
    assert waits is not was_late


def test_the_offers_of_two_workers_of_one_name_both_count() -> None:
    world = BrokerWorld(slots=0)
    for handle, tags in ((2, {"gpu": 1}), (3, {"fpga": 1})):
        world.do(events.WorkerJoined(handle, "twin", "local", 1, tags, "3.11"))
    for tag in ("gpu", "fpga"):
        assert told(world.submit(1, tag, tags={tag: 1}), messages.RejectJob) == []
    (reject, *_) = told(world.submit(1, "both", tags={"gpu": 2}), messages.RejectJob)
    assert "worker twin has" in reject.reason
    assert "worker twin #3 has" in reject.reason
    world.do(events.WorkerGone(3, "gone"))
    assert list(world.broker.offers) == ["worker twin"]


def test_what_a_pool_offers_outlasts_workers_of_other_pools(monkeypatch) -> None:
    """A pool that grows has no worker to state its offers; the advert asked in vain."""
    monkeypatch.setattr("gateway.scheduler.quotas.roster.OFFERS_MAX", 3)
    own = CapacityOffer("pool cloud", "cloud", {}, "3.11", "USD")
    world = BrokerWorld(slots=0)
    world.broker = Broker({"local": PRICE, "cloud": PRICE}, {own.name: own})
    for handle in range(2, 9):
        world.join(handle)
        world.do(events.WorkerGone(handle, "gone"))
    assert list(world.broker.offers) == ["pool cloud", "worker w7", "worker w8"]


def test_why_a_job_waits_names_what_its_client_has_not_done() -> None:
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec(), has_function=False))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    job = world.broker.jobs["j"]
    (why,) = work_views.why_waiting(world.broker, job, world.now_s)
    assert why["reason"] == "function-missing"
    world.do(events.ClientReading(CLIENT, False))
    world.do(events.FunctionArrived(b"f" * 32))
    (why,) = work_views.why_waiting(world.broker, job, world.now_s)
    assert why["reason"] == "client-not-reading"
    world.do(events.DrainAsked(WORKER, True))
    world.do(events.ClientReading(CLIENT, True))
    assert [each["reason"] for each in work_views.why_waiting(world.broker, job, world.now_s)] == [
        "draining"
    ]


@pytest.mark.parametrize(
    ("places", "has_peers", "text"),
    [
        ({"hpc": 3.0}, False, "its plan sends it to hpc, which has no worker yet: workers are sta"),
        ({"hpc": 3.0}, True, "its plan sends it to hpc, which has no worker yet: workers are sta"),
        ({"fx": 3.0}, True, "its plan sends it to fx, which has no worker now: `gridfed status`"),
        ({"fx": 2.0, "hpc": 1.0}, False, "its plan sends it to fx and hpc, which have no worker"),
        ({}, False, "its plan gives no pool of this site a task of it now: `gridfed explain`"),
        ({}, True, "its plan sends it to other sites, and no slot there is bought for it yet"),
    ],
)
def test_work_that_waits_for_the_pools_of_its_plan_names_those_that_exist(
    places: dict[str, float], has_peers: bool, text: str
) -> None:
    peers = Peers()
    peers.runs = has_peers
    world = BrokerWorld(slots=1, peers=peers)
    for pool in ("hpc", "fx"):
        world.broker.tariffs[pool] = world.broker.tariffs["local"]
    world.do(events.PoolGrows("hpc", PoolGrowth(6, 60.0, 600.0)))
    world.do(events.JobOpened(CLIENT, "j", spec()))
    world.do(events.PlacesChosen("j", places))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"] * 3))
    job = world.broker.jobs["j"]
    reasons = work_views.why_waiting(world.broker, job, world.now_s)
    assert wait_reason(world.broker, job, reasons, world.now_s, is_nested=False).startswith(text)


@pytest.mark.parametrize("is_nested", [False, True])
def test_why_a_job_waits_is_one_sentence(is_nested: bool) -> None:
    def why(name: str) -> str:
        job, utc_s = world.broker.jobs[name], world.now_s
        reasons = work_views.why_waiting(world.broker, job, utc_s)
        return wait_reason(world.broker, job, reasons, utc_s, is_nested=is_nested)

    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", spec()))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"] * 5000))
    assert why("j").startswith("the only slot is busy")
    assert ("Its client is a task, which keeps a slot" in why("j")) == is_nested
    world.join(77, tags={"gpu": True})
    world.do(events.DrainAsked(77, True))
    world.submit(1, "k", tags={"gpu": True})
    world.do(events.WorkerGone(77, "gone"))
    assert why("k") == "no worker has gpu"


def test_a_job_behind_others_says_about_when_a_slot_is_free() -> None:
    """Of the tasks that have begun, by the durations that were estimated when they were sent."""
    world = BrokerWorld(slots=2)
    (first,) = orders(world.submit(1, "known", function=b"k" * 32))
    world.now_s += 50.0  # and ten more until it is reported
    world.report(first, wall_ns=60 * 10**9)
    world.do(events.JobOpened(CLIENT, "long", spec(function=b"k" * 32)))
    (given,) = orders(world.do(events.TasksArrived(CLIENT, "long", 0, [b"0"] * 2)))
    world.submit(1, "j", function=b"o" * 32)
    job = world.broker.jobs["j"]

    def why() -> str:
        reasons = work_views.why_waiting(world.broker, job, world.now_s)
        return wait_reason(world.broker, job, reasons, world.now_s, is_nested=False)

    assert why() == "all 2 slots are busy"  # none has begun, as far as is known
    world.now_s += 20.0
    for task, ran_s in ((0, 20.0), (1, 5.0)):
        world.do(events.TasksBegun(WORKER, ((given.assignment, task, ran_s),)))
    assert why() == "all 2 slots are busy, about 40 s"
    world.now_s += 40.0
    assert why() == "all 2 slots are busy, about 15 s"
    world.now_s += 20.0  # both are overdue: when they end is not known
    assert why() == "all 2 slots are busy"
    world.report(given)
    assert not job.waiting
    assert why() == ""


LIMIT = {"max_cost_nanos": 10**12, "currency": "GBP"}


def test_a_cost_limit_in_a_currency_that_nobody_charges_in_is_refused() -> None:
    world = BrokerWorld(slots=0)
    (reject, *_) = told(world.submit(1, "j", **LIMIT), messages.RejectJob)
    assert (reject.code, reject.reason) == (
        "currency-differs",
        "no known pool charges in GBP, the currency of its cost limit; known pools charge in USD",
    )
    assert told(world.submit(1, "k", **LIMIT | {"currency": "USD"}), messages.RejectJob) == []


def test_a_job_that_waits_for_somebody_who_charges_in_its_currency_says_so() -> None:
    peers = Peers()
    peers.runs, peers.charges = True, {"EUR"}  # a neighbour may know such a site
    world = BrokerWorld(peers=peers)
    assert told(world.submit(1, "j", **LIMIT), messages.RejectJob) == []
    job = world.broker.jobs["j"]
    [why] = work_views.why_waiting(world.broker, job, world.now_s)
    assert why["reason"] == "currency-differs"
    assert why["text"].endswith("the currency of its cost limit; known pools charge in EUR, USD")
    peers.charges = {"GBP"}
    assert world.broker.admission.unpayable(job.spec) == ""
    [why] = work_views.why_waiting(world.broker, job, world.now_s)
    assert why["workers"] == 1


def test_a_task_that_its_leaving_client_interrupts_is_cancelled_and_has_not_failed():
    world = BrokerWorld(slots=1)
    (order,) = orders(world.submit(1))
    world.do(events.ClientGone(CLIENT))
    effects = world.report(order, failures=[[0, "cancelled", "stopped on request", b""]])
    (ended,) = written(effects, records.JobEnded)
    assert (ended.state, ended.failed, ended.cancelled) == ("abandoned", 0, 1)


@pytest.mark.parametrize("comes_back_first", [True, False])
def test_what_was_stopped_because_its_client_had_gone_runs_again_for_it_and_is_charged(
    comes_back_first: bool,
) -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.ClientGone(CLIENT))
    stopped = [[0, "cancelled", "stopped on request", b""]]
    tasks = events.TasksArrived(3, "j", 0, [b"0"])
    effects: list[Effect] = []
    for comes_back in (comes_back_first, not comes_back_first):
        if comes_back:
            effects += world.do(events.ClientJoined(3, "ann"))
            effects += world.do(events.JobOpened(3, "j", spec()))
            effects += world.do(tasks)
        else:
            report = events.Reported(WORKER, order.assignment, 0, [b""], stopped, [], 0, 0)
            effects += world.do(report)
    assert not told(effects, messages.Results)
    (again,) = orders(effects)
    effects = world.report(again)
    assert told(effects, messages.Results)
    charged = [e.record for e in effects if isinstance(e, Write)]
    (used,) = [each for each in charged if isinstance(each, records.UsageRecord)]
    assert used.state == "ok"
    assert used.cost_nanos


def test_what_is_being_stopped_when_its_client_sends_it_again_is_not_queued_beside_itself() -> None:
    world = BrokerWorld()
    (order,) = orders(world.submit(1))
    world.do(events.CancelAsked(CLIENT, 1, "j", ((0, 1),), True))  # its answer is lost
    world.do(events.ClientGone(CLIENT))
    come_back(world, 9)
    world.do(events.TasksArrived(9, "j", 0, [b"0"]))
    job = world.broker.jobs["j"]
    assert (job.waiting, job.in_flight) == (0, 1)
    (again,) = orders(world.report(order, failures=[[0, "cancelled", "stopped", b""]], wall_ns=0))
    assert again.first == 0


def test_what_a_pool_could_start_is_not_forgotten_for_all_the_workers_that_came(monkeypatch):
    """The offers of ten thousand pilots are kept; plans look at that of their pool."""
    monkeypatch.setattr("gateway.scheduler.quotas.roster.OFFERS_MAX", 2)
    pool = CapacityOffer("pool cloud", "cloud", {}, "3.11", "USD")
    broker = Broker({"cloud": PRICE}, {pool.name: pool})
    for at in range(1, 5):
        joined = events.WorkerJoined(at, f"w{at}", "cloud", 1, {}, "3.11")
        broker.handle(joined, 0.0)
    assert list(broker.offers) == ["pool cloud", "worker w4"]
