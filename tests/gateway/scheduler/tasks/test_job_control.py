"""Holds, releases and priorities of jobs. Pure objects."""

import pytest
from support.pure.broker import (
    CLIENT,
    PRICE,
    WORKER,
    BrokerWorld,
    orders,
    spec,
    told,
    written,
)
from support.pure.town import UTC_S, dear_and_cheap

from federation.messages import messages
from federation.messages.deals import Commit, Forward, Held
from federation.messages.messages import Recall
from federation.messages.wire import pack, unpack
from federation.reasons import Reason
from gateway.api.views import work_views
from gateway.api.views.wait_reasons import of_workers, wait_reason
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.stored_terms import opened_record, stored_terms, terms_plain
from gateway.scheduler.model.terms import CarriedHold, GivenPriority, JobHold
from gateway.scheduler.tasks.job_control import (
    ending_for_good,
    why_not_held,
    why_not_prioritised,
    why_not_released,
)
from policies.placement.asks import Wishes
from policies.tariffs import Tariff

ROOT = JobHold("root", 1_000.0, is_operators=True)
ANN = JobHold("ann", 1_000.0)
LONG_NS = 5_000_000_000


def hold(world, job="j", by=ROOT):
    return world.do(events.JobHoldAsked(job, by))


def release(world, job="j"):
    return world.do(events.JobHoldAsked(job, None))


def test_a_held_job_begins_no_task_and_goes_on_once_released():
    world = BrokerWorld(slots=1)
    (order,) = orders(world.submit(3))
    effects = hold(world)
    assert [each.assignment for each in orders(effects, Recall)] == [order.assignment]
    assert orders(world.report(order, wall_ns=LONG_NS)) == []  # the running task goes on
    world.join(3)
    job = world.broker.jobs["j"]
    assert (job.done, job.waiting, job.in_flight, job.id in world.broker.ready) == (1, 2, 0, False)
    assert len(orders(release(world))) == 2


def test_tasks_that_had_not_begun_come_back_and_failed_ones_wait_for_their_retry():
    world = BrokerWorld(slots=2)
    (order,) = orders(world.submit(2, retries=1))
    hold(world)
    assert orders(world.do(events.HandedBack(WORKER, order.assignment, ((1, 2),)))) == []
    again = world.report(order, tasks=1, failures=[[0, "error", "ValueError", b""]])
    assert orders(again) == []
    job = world.broker.jobs["j"]
    assert (job.waiting, job.in_flight) == (2, 0)
    assert sum(len(each.arguments) for each in orders(release(world))) == 2


def test_tasks_that_arrive_meanwhile_wait_and_other_jobs_go_on():
    world = BrokerWorld(slots=1)
    world.do(events.JobOpened(CLIENT, "j", spec()))
    hold(world)
    assert orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))) == []
    assert len(orders(world.submit(1, job="other"))) == 1


def test_a_held_job_says_so_and_how_it_goes_on():
    world = BrokerWorld()
    world.submit(2)
    hold(world)
    job = world.broker.jobs["j"]
    view = work_views.live_job(job, world.now_s)
    assert view["held"] == "held by root, the operator, since 1970-01-01 00:16:40 UTC"
    assert view["held_by"] == "root"
    [why] = work_views.why_waiting(world.broker, job, world.now_s)
    assert why["reason"] == Reason.HELD
    text = wait_reason(world.broker, job, [why], world.now_s, is_nested=False)
    assert (
        text
        == f"the job has been {view['held']}: the operator releases it with `gridfed release j`"
    )
    (worker,) = world.broker.workers.values()
    refusal = world.broker.refusal(job, worker, world.now_s)
    assert refusal.reason is Reason.HELD
    assert view["held"] in refusal.text
    release(world)
    assert work_views.live_job(job, world.now_s)["held_by"] == ""


def test_a_hold_does_not_put_a_deadline_off():
    world = BrokerWorld(slots=0)
    world.submit(2, wishes=Wishes(deadline_s=1_100.0))
    hold(world)
    world.now_s = 1_099.0
    assert world.do(events.Ticked()) == []
    world.now_s = 1_101.0
    (dropped,) = told(world.do(events.Ticked()), messages.Dropped)
    assert (dropped.failure, dropped.ranges) == ("deadline", [[0, 2]])
    assert not world.broker._dispatcher._dated


def test_a_released_job_keeps_its_deadline_and_a_cancelled_one_has_none():
    world = BrokerWorld(slots=0)
    world.submit(2, wishes=Wishes(deadline_s=1_100.0))
    hold(world)
    release(world)
    assert len(world.broker._dispatcher._dated) == 1
    hold(world)
    world.do(events.CancelAsked(CLIENT, 1, "j", (), True))
    assert not world.broker.jobs
    assert not world.broker._dispatcher._dated


def test_orders_are_on_disk_before_they_count_as_carried_out():
    world = BrokerWorld(slots=0)
    world.submit(1)
    effects = hold(world)
    (record,) = written(effects, records.JobOpenedRecord)
    assert [each.durable for each in effects if getattr(each, "record", None) is record] == [True]
    assert stored_terms(record.spec)["hold"] == ROOT
    world.do(events.PriorityAsked("j", 7.0, "root"))
    terms = stored_terms(opened_record(world.broker.jobs["j"]).spec)
    assert (terms["priority"], terms["given_priority"]) == (0.0, GivenPriority(7.0, "root"))
    (record,) = written(release(world), records.JobOpenedRecord)
    assert stored_terms(record.spec)["hold"] is None


def test_terms_of_a_version_before_holds_are_read():
    world = BrokerWorld(slots=0)
    world.submit(1)
    terms = stored_terms(opened_record(world.broker.jobs["j"]).spec)
    assert (terms["hold"], terms["given_priority"]) == (None, None)


def recovered(**changes):
    fields = {
        "job": "j",
        "spec": None,
        "total": None,
        "ended": (),
        "failed": 0,
        "cancelled": 0,
        "charged": (),
        "costs_nanos": {},
        "wall_ns": 0,
        "cpu_ns": 0,
        "function": b"f" * 32,
    }
    return events.JobRecovered(**(fields | changes))


def test_a_detached_job_is_still_held_after_a_restart():
    world = BrokerWorld()
    kept = spec(detached=True, hold=ROOT, given_priority=GivenPriority(7.0, "root"))
    world.do(
        recovered(
            spec=kept, total=1, hold=kept.hold, given_priority=kept.given_priority, priority=1.0
        )
    )
    assert orders(world.do(events.TasksArrived(0, "j", 0, [b"0"]))) == []
    assert world.broker.jobs["j"].spec.rank_priority == 7.0
    assert len(orders(release(world))) == 1


def test_an_attached_job_that_its_client_opens_again_is_still_held():
    world = BrokerWorld()
    world.do(recovered(hold=ROOT, priority=3.0))
    world.do(events.JobOpened(CLIENT, "j", spec(), again=True))
    assert orders(world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))) == []
    job = world.broker.jobs["j"]
    assert (job.spec.hold, job.spec.priority, job.work.priority) == (ROOT, 3.0, 3.0)


def test_a_held_job_whose_client_left_and_returned_in_between_is_still_held():
    world = BrokerWorld(slots=0)
    world.submit(1)
    hold(world)
    world.do(events.ClientGone(CLIENT))
    assert not world.broker.jobs
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.JobOpened(9, "j", spec(), again=True))
    assert world.broker.jobs["j"].spec.hold == ROOT


def test_what_a_contract_still_has_of_a_held_job_is_recalled_after_a_restart():
    world = BrokerWorld(slots=0)
    world.submit(3)
    hold(world)
    world.do(events.WorkerJoined(50, "c-1", "paris/pool", 2, {}, "3.11", job="j", tariff=PRICE))
    effects = world.do(events.Resumed(50, 99, ((0, 2),)))
    assert [(each.assignment, each.first, each.stop) for each in orders(effects, Recall)] == [
        (99, 0, 2)
    ]


def test_nothing_new_of_a_held_job_is_sent_to_another_site():
    town = dear_and_cheap()
    london, name = town.sites["london"], "j"
    london.submit(200, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.run(lambda: any(isinstance(said, Forward) for *_, said in town.said))
    london.do(events.JobHoldAsked(name, ROOT))
    town.run(lambda: not london.broker.jobs[name].in_flight)
    assert 0 < london.broker.jobs[name].done < 200
    before = len(town.said)
    town.pass_time(60.0)
    assert not [said for *_, said in town.said[before:] if isinstance(said, Forward)]
    london.do(events.JobHoldAsked(name, None))
    town.run(lambda: not london.broker.jobs)


def test_a_contract_that_is_being_made_for_a_job_does_not_open_once_it_is_held():
    town = dear_and_cheap()
    london = town.sites["london"]
    town.delays_s[Held] = 2.0
    london.submit(200, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.run(lambda: any(isinstance(said, Held) for *_, said in town.said))
    london.do(events.JobHoldAsked("j", ROOT))
    town.pass_time(30.0)
    assert not [said for *_, said in town.said if isinstance(said, Commit | Forward)]
    assert not town.sites["paris"].exchange.sales.sales
    london.do(events.JobHoldAsked("j", None))
    town.run(lambda: not london.broker.jobs)


def test_a_job_of_higher_priority_goes_first_from_now_on():
    world = BrokerWorld(slots=1)
    (running,) = orders(world.submit(1, job="first"))
    world.submit(1, job="a")
    world.submit(1, job="b")
    world.do(events.PriorityAsked("b", 5.0))
    assert world.broker.jobs["b"].work.priority == 5.0  # as entitlements judge it
    (following,) = orders(world.report(running, wall_ns=LONG_NS))
    assert following.job == "b"


def test_the_operators_priority_is_not_judged_by_the_users_entitlements():
    world = BrokerWorld(slots=1)
    (running,) = orders(world.submit(1, job="first"))
    world.submit(1, job="a")
    world.submit(1, job="b")
    world.do(events.PriorityAsked("b", 5.0, "root"))
    job = world.broker.jobs["b"]
    assert (job.work.priority, job.spec.rank_priority) == (0.0, 5.0)
    view = work_views.live_job(job, world.now_s)
    assert (view["priority"], view["priority_by"]) == (5.0, "root")
    (following,) = orders(world.report(running, wall_ns=LONG_NS))
    assert following.job == "b"


def job_of(**changes) -> Job:
    made = spec(**changes)
    return Job("j", made, CLIENT, 1, UTC_S, made.need, {})


@pytest.mark.parametrize(
    ("why_not", "text"),
    [
        (why_not_held(spec()), ""),
        (why_not_held(spec(hold=ANN)), "it has been held by ann since 1970-01-01 00:16:40 UTC"),
        (why_not_released(spec(), is_operator=True), "it is not held"),
        (why_not_released(spec(hold=ANN), is_operator=False), ""),
        (
            why_not_released(spec(hold=ROOT), is_operator=False),
            "only the operator can release it",
        ),
        (why_not_released(spec(hold=ROOT), is_operator=True), ""),
        (why_not_prioritised(spec(), 1e9, is_operator=False), ""),
        (why_not_prioritised(spec(), 2e9, is_operator=True), "a number of up to 1e+09"),
        (why_not_prioritised(spec(), float("nan"), is_operator=True), "a number of up to"),
        (
            why_not_prioritised(
                spec(given_priority=GivenPriority(5.0, "root")), 1.0, is_operator=False
            ),
            "only the operator can change that",
        ),
        (
            why_not_held(spec(price=Tariff(1, "USD", "test"), path=("paris",))),
            "site paris sent it under a contract",
        ),
    ],
)
def test_which_orders_are_refused(why_not, text):
    assert text in why_not
    assert bool(text) is bool(why_not)


def test_a_job_that_is_ending_takes_no_order():
    job = job_of()
    job.leaving = "cancelled"
    for why_not in (
        why_not_held(job.spec, ending_for_good(job)),
        why_not_prioritised(job.spec, 1.0, ending_for_good(job), is_operator=True),
    ):
        assert why_not == "it is ending: it was cancelled"


def reopen(world, carried, job="j", client=CLIENT):
    return world.do(events.JobOpened(client, job, spec(), again=True, hold=carried))


def test_the_client_of_an_attached_job_is_told_of_holds_and_releases():
    world = BrokerWorld()
    world.submit(1)
    (held,) = told(hold(world), messages.HoldChanged)
    assert held == messages.HoldChanged("j", "root", 1_000.0, True)
    (freed,) = told(release(world), messages.HoldChanged)
    assert (freed.job, freed.by) == ("j", "")
    world.submit(1, job="kept", detached=True)
    assert told(hold(world, "kept"), messages.HoldChanged) == []  # it stays at this gateway


@pytest.mark.parametrize("by", [ROOT, ANN])
def test_a_job_that_comes_from_another_gateway_is_held_as_it_was_there(by):
    world = BrokerWorld()
    carried = JobHold(by.by, by.at_s, by.is_operators, is_carried=True)
    effects = reopen(world, CarriedHold(carried))
    effects += world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    assert orders(effects) == []
    assert [each.by for each in told(effects, messages.HoldChanged)] == [by.by]
    job = world.broker.jobs["j"]
    assert "another gateway" in work_views.live_job(job, world.now_s)["held"]
    named = JobHold("ann", ANN.at_s + 1.0, is_carried=True, site="paris")
    (passed_on,) = told(reopen(world, CarriedHold(named), "other"), messages.HoldChanged)
    assert (passed_on.by, passed_on.site) == ("ann", "paris")
    assert stored_terms(written(effects, records.JobOpenedRecord)[-1].spec)["hold"] == carried
    assert bool(why_not_released(job.spec, is_operator=False)) is by.is_operators
    assert len(orders(release(world))) == 1


def test_a_job_that_was_released_elsewhere_goes_on_where_it_was_held_before():
    world = BrokerWorld(slots=0)
    world.submit(2)
    hold(world, by=ANN)
    reopen(world, CarriedHold(None, at_s=ANN.at_s + 1.0))
    assert len(orders(world.join(3))) == 1
    assert world.broker.jobs["j"].spec.hold is None


def test_a_client_does_not_release_what_the_operator_here_holds():
    world = BrokerWorld()
    world.submit(2)
    hold(world)
    for carried in (None, CarriedHold(None), CarriedHold(ANN)):
        (said,) = told(reopen(world, carried), messages.HoldChanged)
        assert (said.by, world.broker.jobs["j"].spec.hold) == ("root", ROOT)


def test_the_gateway_that_held_a_job_knows_better_than_a_client_that_missed_the_release():
    world = BrokerWorld()
    world.submit(2)
    (said,) = told(reopen(world, CarriedHold(ANN, is_own=True)), messages.HoldChanged)
    assert (said.by, world.broker.jobs["j"].spec.hold) == ("", None)


def test_another_gateway_at_the_same_address_does_not_pass_for_the_one_that_held_the_job():
    world = BrokerWorld()
    carried = JobHold("ann", ANN.at_s, is_carried=True)
    effects = reopen(world, CarriedHold(carried, is_own=True, at_s=carried.at_s))  # new here
    effects += world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    assert orders(effects) == []
    assert world.broker.jobs["j"].spec.hold == carried


@pytest.mark.parametrize(("later_s", "is_held"), [(1.0, False), (-1.0, True)])
def test_of_the_orders_of_two_gateways_the_newer_one_counts(later_s, is_held):
    world = BrokerWorld()
    world.submit(2)
    hold(world, by=ANN)
    reopen(world, CarriedHold(None, at_s=ANN.at_s + later_s))
    assert (world.broker.jobs["j"].spec.hold is not None) is is_held


@pytest.mark.parametrize("is_operators", [False, True])
@pytest.mark.parametrize("is_carried", [False, True])
def test_a_hold_is_stored_so_that_the_first_version_with_holds_reads_it(is_operators, is_carried):
    held = JobHold("ann", 5.0, is_operators, is_carried)
    plain = unpack(pack(terms_plain(spec(hold=held))), 1 << 20)
    by, at_s, operators = plain["hold"]  # three fields
    assert (by, at_s, bool(operators)) == ("ann", 5.0, is_operators)
    assert stored_terms(pack(plain))["hold"] == held
    plain["hold"] = ["ann", 5.0, is_operators, is_carried]  # as a later version stored it
    assert stored_terms(pack(plain))["hold"] == held


@pytest.mark.parametrize(
    ("workers", "of", "text", "told"),
    [
        (1, 3, "is draining", "1 worker is draining"),
        (1, 1, "is draining", "the only worker is draining"),
        (2, 3, "is draining", "2 workers are draining"),
        (2, 2, "is draining", "all 2 workers are draining"),
        (3, 4, "has gpu=1, gpu=2 needed", "3 workers have gpu=1, gpu=2 needed"),
        (2, 4, "failed to build it", "2 workers failed to build it"),
        (2, 4, "gives others no slot", "2 workers give others no slot"),
        (0, 4, "the job is held", "the job is held"),
    ],
)
def test_what_several_workers_do_is_said_of_several(workers, of, text, told):
    assert of_workers(workers, text, of) == told
    assert of_workers(workers, text, of, "contract") == told.replace("worker", "contract")


def why(world, name="j"):
    job = world.broker.jobs[name]
    reasons = work_views.why_waiting(world.broker, job, world.now_s)
    sentence = wait_reason(world.broker, job, reasons, world.now_s, is_nested=False)
    return sentence, [each["sentence"] for each in reasons]


def test_a_job_says_that_all_workers_drain_and_by_whose_order():
    world = BrokerWorld(slots=1)
    world.join(77)
    for worker in (WORKER, 77):
        world.do(events.DrainAsked(worker, True))
    world.submit(2)
    told = "all 2 workers are draining: ordered by an operator (`gridfed drain --list`)"
    assert why(world) == (told, [told])
    world.do(events.DrainAsked(77, True, events.Drainer.ITSELF))
    world.do(events.DrainAsked(77, False))
    assert sorted(why(world)[1]) == [
        "1 worker is draining: about to stop",
        "1 worker is draining: ordered by an operator (`gridfed drain --list`)",
    ]


def test_a_site_without_a_worker_says_so_once_and_what_to_do():
    world = BrokerWorld(slots=0)
    world.submit(2)
    sentence, [told] = why(world)
    assert sentence == told
    assert sentence.startswith("this site has no worker now: its operator adds one with")
