"""Calls that wait for others, in the scheduler: release, failures, cancels, places, the books."""

import pickle
from dataclasses import replace

import pytest
from support.pure.broker import CLIENT, WORKER, BrokerWorld, orders, spec, told, written

from federation.messages.messages import Dropped, Recall, Results, SendAgain
from federation.objects.inputs import filled, read_head, with_inputs
from federation.objects.labels import read_label
from federation.objects.left import left_value
from federation.objects.manifests import SHA256
from federation.objects.references import with_head
from federation.reasons import Reason
from gateway.base.tags import OBJECTS_TAG
from gateway.ledger.db import records
from gateway.scheduler import broker
from gateway.scheduler.graphs import stages, waiting_calls
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import HoldObjects, ReadOutcomes, TakeObjects
from gateway.scheduler.model.events import JobFate, OutcomesRead
from gateway.scheduler.model.stored_terms import stored_terms
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.placement.asks import Wishes

DIGEST = bytes([SHA256]) + b"d" * 32
PICKLE = pickle.dumps("call")


class GraphWorld(BrokerWorld):
    """A broker whose workers take calls with inputs."""

    def join(self, worker, slots=1, tags=None, *, takes_inputs=True, chains=False):
        joined = events.WorkerJoined(worker, f"w{worker}", "local", slots, tags or {}, "3.11")
        return self.do(replace(joined, takes_inputs=takes_inputs, runs_chains=chains))

    def open(self, job, **changes):
        return self.do(events.JobOpened(CLIENT, job, spec(**changes)))

    def wait_for(self, job, first, *rows):
        """Let calls of a job arrive, each with the tasks that it waits for."""
        calls = [with_inputs(PICKLE, [], list(row)) for row in rows]
        return self.do(events.TasksArrived(CLIENT, job, first, calls, inputs=True))

    def run(self, effects, job, ends=lambda order: {}):
        """Report the tasks of a job until other tasks begin; return the newest assignments."""
        while (begun := orders(effects)) and begun[0].job == job:
            effects = self.report(begun[0], **ends(begun[0]))
        return effects

    def job(self, name):
        return self.broker.jobs[name]


def a_graph(slots=1, **changes):
    """A world in which task 0 of job `a` runs, and task 0 of job `b` waits for it."""
    world = GraphWorld(slots=slots, tags={OBJECTS_TAG: True})
    (order,) = orders(world.submit(1, "a", **changes))
    world.open("b", **changes)
    effects = world.wait_for("b", 0, [("a", 0, 1)])
    assert not orders(effects)
    return world, order


def failure(kind, text, payload=b""):
    return {"failures": [[0, kind, text, payload]]}


def test_a_call_begins_with_its_inputs_values_when_they_have_ended():
    world, order = a_graph()
    job = world.job("b")
    assert (job.blocked, job.waiting, len(job.known)) == (1, 0, 1)
    (begun,) = orders(world.report(order))
    assert (begun.job, begun.first) == ("b", 0)
    assert read_head(begun.arguments[0]).inputs == (b"r0",)
    assert begun.arguments[0].endswith(PICKLE)
    assert (job.blocked, job.in_flight) == (0, 1)
    (done,) = told(world.report(begun), Results)
    assert done.job == "b"
    assert world.broker.graphs.values_bytes == 0


def test_a_chain_in_one_job_runs_step_by_step_and_nothing_comes_from_the_client():
    world = GraphWorld(slots=2)
    (order,) = orders(world.submit(1, "a"))
    world.open("b")
    rows = [[("a", 0, 1)], *([("b", at, at + 1)] for at in range(9))]
    world.wait_for("b", 0, *rows)
    for at in range(10):
        (order,) = orders(world.report(order))
        assert (order.job, order.first) == ("b", at)
    assert not orders(world.report(order))


def test_many_inputs_are_values_in_the_order_of_the_holes():
    world = GraphWorld(slots=1)
    begun = world.submit(3, "a")
    world.open("b")
    call = with_inputs(PICKLE, [], [b"here", ("a", 2, 3), ("a", 0, 2)])
    world.do(events.TasksArrived(CLIENT, "b", 0, [call], inputs=True))
    (begun,) = orders(world.run(begun, "a"))
    assert read_head(begun.arguments[0]).inputs == (b"here", b"r2", b"r0", b"r1")


@pytest.mark.parametrize("kind", ["error", "timeout", "lost"])
def test_the_first_failure_ends_all_that_waits_for_it_and_nothing_else(kind):
    world, order = a_graph()
    world.wait_for("b", 1, [("b", 0, 1)], [("b", 1, 2)])
    world.open("c")
    world.submit(1, "d")
    effects = world.report(order, **failure(kind, "ValueError: boom", b"exception"))
    ended = [each for each in told(effects, Results) if each.job == "b"]
    assert sorted(each.first for each in ended) == [0, 1, 2]
    for each in ended:
        (row,) = each.failures
        assert row[1] == "dependency"
        assert row[3] == b"exception"
        assert "task 0 of job a (f), which it needs, failed" in row[2]
        assert "boom" in row[2]
    assert (world.job("b").failed, world.job("b").blocked) == (3, 0)
    assert [each.job for each in orders(effects)] == ["d"]


def test_a_retry_is_no_failure():
    world, order = a_graph(retries=1)
    (again,) = orders(world.report(order, **failure("error", "boom")))
    assert again.job == "a"
    assert world.job("b").blocked == 1
    (begun,) = orders(world.report(again))
    assert begun.job == "b"


@pytest.mark.parametrize("stop", [False, True])  # a client says so of calls that ended there
def test_a_cancelled_input_ends_what_waits_for_it(stop):
    world, _ = a_graph()
    world.wait_for("b", 1, [("a", 1, 2)])  # of a call that was never sent
    world.do(events.TasksArrived(CLIENT, "a", 2, [b"x"]))
    world.wait_for("b", 2, [("a", 2, 3)])
    effects = world.do(events.CancelAsked(CLIENT, 1, "a", ((1, 3),), stop))
    dropped = [each for each in told(effects, Dropped) if each.job == "b"]
    assert sorted(pair for each in dropped for pair in each.ranges) == [[1, 2], [2, 3]]
    assert {each.failure for each in dropped} == {"dependency"}
    assert all("was cancelled" in each.reason for each in dropped)
    assert world.job("b").blocked == 1  # the first still waits for task 0, which runs


def test_a_waiting_call_is_cancelled_and_ends_what_waits_for_it():
    world, order = a_graph()
    world.wait_for("b", 1, [("b", 0, 1)])
    effects = world.do(events.CancelAsked(CLIENT, 1, "b", ((0, 1),), False))
    assert world.job("b").cancelled == 1
    (dropped,) = [each for each in told(effects, Dropped) if each.failure == "dependency"]
    assert dropped.ranges == [[1, 2]]
    assert not orders(world.report(order))
    assert world.job("b").blocked == 0


def test_a_cancel_of_the_whole_job_takes_the_waiting_calls():
    world, order = a_graph()
    world.do(events.CancelAsked(CLIENT, 1, "b", (), False))
    assert "b" not in world.broker.jobs
    assert not orders(world.report(order))


def test_waiting_calls_end_with_their_client():
    world, _ = a_graph()
    world.do(events.ClientGone(CLIENT))
    assert "b" not in world.broker.jobs
    assert world.broker.graphs.values_bytes == 0
    assert not world.broker.graphs.waiting_jobs()


def test_a_lost_worker_changes_nothing_for_what_waits():
    world, order = a_graph()
    world.do(events.TasksBegun(WORKER, ((order.assignment, 0, 0.1),)))
    world.do(events.WorkerGone(WORKER, "gone"))
    assert world.job("b").blocked == 1
    world.now_s += 400
    (again,) = orders(world.join(9))
    assert again.job == "a"
    (begun,) = orders(world.report(again, worker=9))
    assert begun.job == "b"


def test_a_cycle_ends_its_calls_with_the_names_on_it():
    world = GraphWorld(slots=1)
    world.open("a")
    world.open("b")
    world.wait_for("a", 0, [("b", 0, 1)])
    effects = world.wait_for("b", 0, [("a", 0, 1)])
    dropped = told(effects, Dropped)
    assert {(each.job, *each.ranges[0]) for each in dropped} == {("a", 0, 1), ("b", 0, 1)}
    text = "calls wait for each other: task 0 of job b → task 0 of job a → task 0 of job b"
    assert any(text in each.reason for each in dropped)
    assert not world.broker.graphs.waiting_jobs()


def test_a_call_whose_input_only_the_client_has_is_left_to_it():
    world = GraphWorld(slots=1)
    world.run(world.submit(2, "a"), "a")
    world.open("b")
    effects = world.wait_for("b", 0, [("a", 0, 1)], [("a", 1, 2)], [("c", 0, 1)])
    assert told(effects, SendAgain) == [SendAgain("b", [[0, 2]])]
    job = world.job("b")
    assert (len(job.known), job.blocked) == (1, 1)
    whole = [filled(with_inputs(PICKLE, [], [("a", 0, 1)]), [b"v"])] * 2
    (begun,) = orders(world.do(events.TasksArrived(CLIENT, "b", 0, whole, inputs=True)))
    assert (begun.first, len(job.known)) == (0, 3)


def test_calls_of_a_job_that_ends_without_their_input_are_left_to_the_client():
    world, order = a_graph()
    world.wait_for("b", 1, [("a", 1, 2)])
    world.do(events.JobClosed(CLIENT, "a", 1))
    effects = world.report(order)
    assert told(effects, SendAgain) == [SendAgain("b", [[1, 2]])]
    effects = world.wait_for("b", 1, [("a", 1, 2)])  # job a is over and known
    assert told(effects, SendAgain) == [SendAgain("b", [[1, 2]])]


def test_an_input_of_a_job_that_nobody_opens_is_given_up():
    world = GraphWorld(slots=1)
    world.open("b")
    effects = world.wait_for("b", 0, [("nobody", 0, 1)])
    (read,) = [each for each in effects if isinstance(each, ReadOutcomes)]
    world.do(OutcomesRead(read.job, 0, 1, JobFate.UNKNOWN))
    world.now_s += waiting_calls.UNKNOWN_S - 1
    assert not told(world.do(events.Ticked()), Dropped)
    world.now_s += 2
    (dropped,) = told(world.do(events.Ticked()), Dropped)
    assert "job nobody, of which it waits for a task, did not come within" in dropped.reason


def test_a_job_that_is_opened_later_is_waited_for():
    world = GraphWorld(slots=1)
    world.open("b")
    world.wait_for("b", 0, [("a", 0, 1)])
    world.do(OutcomesRead("a", 0, 1, JobFate.UNKNOWN))
    (order,) = orders(world.submit(1, "a"))
    world.now_s += waiting_calls.UNKNOWN_S + 1
    assert not told(world.do(events.Ticked()), Dropped)
    (begun,) = orders(world.report(order))
    assert begun.job == "b"


def test_a_call_whose_input_is_not_sent_for_long_is_asked_for_again():
    world, _ = a_graph()
    world.wait_for("b", 1, [("a", 5, 6)])
    assert not told(world.do(events.Ticked()), SendAgain)
    world.now_s += waiting_calls.UNKNOWN_S + 1
    assert told(world.do(events.Ticked()), SendAgain) == [SendAgain("b", [[1, 2]])]
    assert world.job("b").blocked == 1


def test_calls_of_other_users_and_projects_are_refused():
    world = GraphWorld(slots=1)
    world.submit(1, "a")
    world.open("b", project="other")
    (dropped,) = told(world.wait_for("b", 0, [("a", 0, 1)]), Dropped)
    assert dropped.failure == "dependency"
    assert "job a of ann, project risk" in dropped.reason


def test_only_workers_that_open_such_calls_get_them_and_no_other_site():
    world = GraphWorld(slots=0)
    world.join(7, takes_inputs=False)
    (order,) = orders(world.submit(1, "a"))
    world.open("b")
    world.wait_for("b", 0, [("a", 0, 1)])
    assert not orders(world.report(order, worker=7))
    refusal = world.broker.refusal(world.job("b"), world.broker.workers[7], world.now_s)
    assert refusal is not None
    assert refusal.reason is Reason.NO_INPUTS
    assert [each.job for each in orders(world.join(8))] == ["b"]


def test_the_limits_on_places_of_an_input_hold_for_what_reads_it():
    world = GraphWorld(slots=1)
    wishes = Wishes(jurisdictions=frozenset({"EU", "CH"}), data=frozenset({"clients"}))
    world.submit(1, "a", wishes=wishes)
    own = Wishes(jurisdictions=frozenset({"EU", "US"}), data=frozenset({"market"}))
    world.open("b", wishes=own)
    world.wait_for("b", 0, [("a", 0, 1)])
    found = world.job("b").spec.wishes
    assert found.jurisdictions == {"EU"}
    assert found.data == {"clients", "market"}


EU, US = read_label(["EU"]), read_label(["US"])


def test_the_label_of_an_input_holds_for_what_reads_it_and_goes_with_the_results():
    world = GraphWorld(slots=1)
    (order,) = orders(world.submit(1, "a", wishes=Wishes(label=EU)))
    world.open("b")
    effects = world.wait_for("b", 0, [("a", 0, 1)])
    assert world.job("b").spec.wishes.label.words == ("EU",)
    (stored,) = written(effects, records.JobOpenedRecord)
    assert stored_terms(stored.spec)["wishes"].label.words == ("EU",)
    (done,) = told(world.report(order), Results)
    assert done.label == ["EU"]
    (begun,) = orders(world.do(events.PlacesChosen("b", None)))
    world.open("c")
    world.wait_for("c", 0, [("b", 0, 1)])
    (done,) = told(world.report(begun), Results)
    assert (done.job, done.label) == ("b", ["EU"])
    assert world.job("c").spec.wishes.label.words == ("EU",)


def test_a_call_whose_inputs_have_labels_without_a_common_place_is_refused_before_it_runs():
    world = GraphWorld(slots=1)
    world.submit(1, "a", wishes=Wishes(label=EU), name="curves")
    world.submit(1, "b", wishes=Wishes(label=US), name="vols")
    world.open("c")
    (dropped,) = told(world.wait_for("c", 0, [("a", 0, 1), ("b", 0, 1)]), Dropped)
    assert dropped.failure == "residency"
    assert "a result of curves, job a may lie only in EU" in dropped.reason
    assert "a result of vols, job b may lie only in US" in dropped.reason


def labelled(world, label):
    world.broker.labels_of = lambda *_: [label.named("object book")]


def test_a_label_that_an_input_has_got_since_a_call_waits_for_it_holds_for_that_too():
    world = GraphWorld(slots=1, tags={OBJECTS_TAG: True})
    world.open("a")
    world.open("b")
    world.wait_for("b", 0, [("a", 0, 1)])
    labelled(world, EU)
    world.do(events.TasksArrived(CLIENT, "a", 0, [with_head(PICKLE, [DIGEST])], (DIGEST,)))
    (order,) = orders(world.do(events.PlacesChosen("a", None)))
    assert not world.job("b").spec.wishes.label
    assert not [each for each in orders(world.report(order)) if each.job == "b"]
    assert world.job("b").spec.wishes.label.words == ("EU",)
    (begun,) = orders(world.do(events.PlacesChosen("b", None)))
    assert begun.job == "b"


def test_a_label_that_comes_late_ends_what_may_not_read_its_data():
    world = GraphWorld(slots=1, tags={OBJECTS_TAG: True})
    world.open("a")
    world.open("b", wishes=Wishes(label=US))
    world.wait_for("b", 0, [("a", 0, 1)])
    labelled(world, EU)
    world.do(events.TasksArrived(CLIENT, "a", 0, [with_head(PICKLE, [DIGEST])], (DIGEST,)))
    (order,) = orders(world.do(events.PlacesChosen("a", None)))
    [dropped] = [each for each in told(world.report(order), Dropped) if each.job == "b"]
    assert dropped.failure == "residency"


def test_an_object_is_held_for_what_waits_before_its_client_has_it():
    world, order = a_graph(results="auto")
    value = left_value(DIGEST, 10)
    effects = world.do(events.Reported(WORKER, order.assignment, 0, [value], left=True))
    held = [each for each in effects if isinstance(each, (HoldObjects, TakeObjects))]
    assert [type(each) for each in held] == [HoldObjects, HoldObjects, TakeObjects]
    assert held[0] == HoldObjects("b", "risk", (DIGEST,))  # while the call waits
    assert held[1] == HoldObjects("b", "risk", (DIGEST,), (0, 1))  # until it has ended
    (begun,) = orders(effects)
    assert begun.objects == "risk"
    head = read_head(begun.arguments[0])
    assert (head.digests, head.inputs) == ((DIGEST,), (value,))


def test_a_filled_call_that_is_too_large_fails_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(waiting_calls, "FILLED_BYTES_MAX", 1000)
    world, order = a_graph()
    effects = world.do(events.Reported(WORKER, order.assignment, 0, [b"x" * 2000]))
    (dropped,) = told(effects, Dropped)
    assert 'use options(results="auto")' in dropped.reason
    assert world.job("b").failed == 1


def test_a_large_value_is_not_copied_into_any_number_of_calls():
    world, order = a_graph()
    world.wait_for("b", 1, *[[("a", 0, 1)]] * 9)
    world.broker.graphs._bytes_max = lambda job: 10_000
    effects = world.do(events.Reported(WORKER, order.assignment, 0, [b"x" * 2_000]))
    dropped = told(effects, Dropped)
    assert len(dropped) == world.job("b").failed == 6
    assert "client.put" in dropped[0].reason
    assert world.job("b").account.held_bytes <= 10_000


def test_a_message_with_calls_of_very_many_inputs_takes_several_turns(monkeypatch):
    monkeypatch.setattr(waiting_calls, "LOOKED_MAX", 100)
    world = GraphWorld(slots=1)
    world.open("b")
    effects = world.wait_for("b", 0, *[[("a", 0, 60)]] * 3)
    (again,) = told(effects, SendAgain)
    assert again.ranges == [[1, 3]]
    assert world.job("b").blocked == 1
    (again,) = told(world.wait_for("b", 1, *[[("a", 0, 60)]] * 2), SendAgain)
    assert again.ranges == [[2, 3]]
    assert world.job("b").blocked == 2


def test_the_values_that_calls_wait_with_are_bounded(monkeypatch):
    monkeypatch.setattr(waiting_calls, "VALUES_BYTES_MAX", 1000)
    world, order = a_graph()
    effects = world.do(events.Reported(WORKER, order.assignment, 0, [b"x" * 2000]))
    (dropped,) = told(effects, Dropped)
    assert "the values with which calls wait at this site are over" in dropped.reason


def test_waiting_calls_end_at_their_deadline():
    world = GraphWorld(slots=1)
    world.submit(1, "a")
    world.open("b", wishes=Wishes(deadline_s=world.now_s + 5))
    world.wait_for("b", 0, [("a", 0, 1)])
    world.now_s += 6
    (dropped,) = told(world.do(events.Ticked()), Dropped)
    assert (dropped.job, dropped.failure) == ("b", "deadline")
    when = "the deadline of job b passed at 1970-01-01 00:16:45 UTC before"
    assert dropped.reason.startswith(f"{when} the call began: it waited for results of f (job a); ")
    assert not world.broker.graphs.overdue(world.now_s, 10)


def test_so_many_waiting_jobs_end_at_their_deadline_in_one_turn(monkeypatch):
    monkeypatch.setattr(broker, "LEFT_TURN_MAX", 2)
    world = GraphWorld(slots=1)
    world.submit(1, "a")
    for at, name in enumerate("edcb"):
        world.open(name, wishes=Wishes(deadline_s=world.now_s + 5 - at))
        world.wait_for(name, 0, [("a", 0, 1)])
    world.open("z")
    world.wait_for("z", 0, [("a", 0, 1)])
    world.now_s += 6
    ended = [[each.job for each in told(world.do(events.Ticked()), Dropped)] for _ in range(3)]
    assert ended == [["b", "c"], ["d", "e"], []]
    assert world.job("z").blocked == 1


def test_a_job_whose_calls_no_longer_wait_has_no_deadline_of_these():
    world = GraphWorld(slots=1)
    begun = world.submit(1, "a")
    world.open("b", wishes=Wishes(deadline_s=world.now_s + 5))
    world.wait_for("b", 0, [("a", 0, 1)])
    world.run(begun, "a", lambda order: {})
    assert not world.broker.graphs.overdue(world.now_s + 100, 10)


def test_a_head_that_is_wrong_is_left_to_its_slot():
    world = GraphWorld(slots=1)
    world.open("b")
    (begun,) = orders(
        world.do(events.TasksArrived(CLIENT, "b", 0, [b"\x00\xff\xffbad"], inputs=True))
    )
    assert begun.arguments == [b"\x00\xff\xffbad"]


# --- detached jobs ------------------------------------------------------------------------------


def detached():
    """A world with a detached job `a` that has ended with one result and one failure."""
    world = GraphWorld(slots=1)
    begun = world.submit(2, "a", detached=True)
    world.do(events.JobClosed(CLIENT, "a", 2))
    world.run(begun, "a", lambda order: failure("error", "KeyError: k") if order.first else {})
    assert "a" not in world.broker.jobs
    return world


def test_results_of_an_ended_detached_job_are_read_in_the_books():
    world = detached()
    world.open("b", detached=True)
    effects = world.wait_for("b", 0, [("a", 0, 1)], [("a", 1, 2)], [("b", 0, 1)])
    (kept,) = written(effects, records.BundleKept)
    assert (kept.job, kept.count) == ("b", 3)
    assert [each for each in effects if isinstance(each, ReadOutcomes)] == [
        ReadOutcomes("a", ((0, 2),))
    ]
    outcomes = ((0, [b"v", b""], [[1, "error", "KeyError: k", b"exception"]]),)
    whose = ("ann", "risk")
    effects = world.do(OutcomesRead("a", 0, 2, JobFate.DETACHED, whose, None, outcomes))
    (begun,) = orders(effects)
    assert (begun.job, begun.first) == ("b", 0)
    (kept,) = written(effects, records.OutcomeKept)
    assert (kept.job, kept.first) == ("b", 1)
    assert b"KeyError: k" in kept.body
    assert world.job("b").blocked == 1


def test_results_in_the_books_are_read_a_part_at_a_time_while_others_are_waited_for():
    world = detached()
    (slow,) = orders(world.submit(1, "slow", detached=True))
    world.open("b", detached=True)
    for at in range(2):  # in two messages, of which each has its results read
        world.wait_for("b", at, [("a", at, at + 1), ("slow", 0, 1)])
    for at in range(2):
        outcomes = ((at, [b"v%d" % at], []),)
        read = OutcomesRead("a", at, at + 1, JobFate.DETACHED, ("ann", "risk"), None, outcomes)
        assert not written(world.do(read), records.OutcomeKept)
    assert world.job("b").blocked == 2
    (begun,) = orders(world.report(slow))
    assert (begun.job, begun.first) == ("b", 0)


def test_a_detached_job_may_end_while_its_results_are_read():
    world = GraphWorld(slots=1)
    first, *_ = orders(world.submit(2, "a", detached=True))
    (second,) = orders(world.report(first))
    world.open("b", detached=True)
    effects = world.wait_for("b", 0, [("a", 0, 1)])
    (read,) = [each for each in effects if isinstance(each, ReadOutcomes)]
    assert read == ReadOutcomes("a", ((0, 1),))
    world.report(second)
    world.do(events.JobClosed(CLIENT, "a", 2))
    assert "a" not in world.broker.jobs
    assert world.job("b").blocked == 1
    outcomes = ((0, [b"v"], []),)
    whose = ("ann", "risk")
    (begun,) = orders(world.do(OutcomesRead("a", 0, 1, JobFate.DETACHED, whose, None, outcomes)))
    assert begun.job == "b"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ({"whose": ("bob", "risk")}, "another user or project"),
        ({"whose": ("ann", "risk")}, "a result that it needs is not kept"),
        ({"trouble": "the books are shut"}, "the books are shut"),
    ],
)
def test_what_the_books_do_not_give_ends_the_calls_that_wait(read, text):
    world = detached()
    world.open("b", detached=True)
    world.wait_for("b", 0, [("a", 0, 1)])
    effects = world.do(OutcomesRead("a", 0, 1, JobFate.DETACHED, **read))
    (kept,) = written(effects, records.OutcomeKept)
    assert text.encode() in kept.body


def test_a_detached_call_can_not_wait_for_one_that_ends_with_its_client():
    world = GraphWorld(slots=1)
    world.submit(1, "a")
    world.open("b", detached=True)
    (kept,) = written(world.wait_for("b", 0, [("a", 0, 1)]), records.OutcomeKept)
    assert b"ends with its client" in kept.body


def test_a_detached_graph_goes_on_from_the_store_without_its_client():
    world = GraphWorld(slots=1)
    plain = {
        "total": None, "ended": (), "failed": 0, "cancelled": 0, "charged": (), "costs_nanos": {},
        "wall_ns": 0, "cpu_ns": 0,
    }  # fmt: skip
    calls = [with_inputs(PICKLE, [], [("a", 0, 2)]), with_inputs(PICKLE, [], [("b", 0, 1)])]
    world.do(events.JobRecovered("b", spec(detached=True), **plain | {"total": 2}))
    effects = world.do(events.TasksArrived(0, "b", 0, calls, inputs=True))
    assert [each.job for each in effects if isinstance(each, ReadOutcomes)] == ["a"]
    recovered = plain | {"total": 2, "ended": ((0, 1),)}
    world.do(events.JobRecovered("a", spec(detached=True), **recovered))
    (order,) = orders(world.do(events.TasksArrived(0, "a", 1, [b"1"])))
    read = OutcomesRead("a", 0, 2, JobFate.DETACHED, ("ann", "risk"), None, ((0, [b"v"], []),))
    assert not orders(world.do(read))
    (begun,) = orders(world.report(order))
    assert read_head(begun.arguments[0]).inputs == (b"v", b"r1")
    (last,) = orders(world.report(begun))
    assert (last.job, last.first) == ("b", 1)
    world.report(last)
    assert not world.broker.jobs


# --- chains: calls that go to a slot together ---------------------------------------------------


def a_chain(calls=6, *, task_s=0.001, chains=True, **changes):
    """A world where tasks of job `b`, each waiting for the one before, take so long.

    Returns it with the order for task 1, and what goes with it: task 0 has ended.
    """
    world = GraphWorld(slots=0)
    world.join(WORKER, 2, chains=chains)
    world.open("b", **changes)
    (order,) = orders(world.do(events.TasksArrived(CLIENT, "b", 0, [b"x"])))
    world.wait_for("b", 1, *([("b", at, at + 1)] for at in range(calls)))
    (order,) = orders(world.report(order, wall_ns=round(task_s * 1e9)))
    return world, order


def test_a_chain_of_short_calls_is_one_assignment():
    world, order = a_chain()
    assert (order.first, len(order.arguments), order.chained) == (1, 6, True)
    assert read_head(order.arguments[0]).inputs == (b"r0",)
    assert read_head(order.arguments[3]).inputs == (("b", 3, 4),)
    job = world.job("b")
    assert (job.riding, job.blocked, job.in_flight) == (5, 0, 6)
    (done,) = told(world.report(order), Results)
    assert len(done.values) == 6
    assert (job.riding, job.in_flight, world.broker.graphs.values_bytes) == (0, 0, 0)
    assert job.account.held_bytes == 0


@pytest.mark.parametrize(
    ("task_s", "chains", "tasks"), [(0.01, True, 5), (0.2, True, 1), (0.001, False, 1)]
)
def test_a_chain_is_worth_fifty_milliseconds_and_goes_to_workers_that_run_chains(
    task_s, chains, tasks
):
    _, order = a_chain(task_s=task_s, chains=chains)
    assert (len(order.arguments), order.chained) == (tasks, tasks > 1)


def test_the_rest_of_a_chain_comes_back_and_goes_on_from_the_last_result():
    world, order = a_chain()
    assert not orders(world.report(order, 2))
    (again,) = orders(world.do(events.HandedBack(WORKER, order.assignment, ((3, 7),))))
    assert (again.first, len(again.arguments), again.chained) == (3, 4, True)
    assert read_head(again.arguments[0]).inputs == (b"r2",)
    world.report(again)
    assert world.job("b").done == 7
    assert world.broker.graphs.values_bytes == 0


def test_a_chain_of_a_lost_worker_goes_on_elsewhere_and_each_run_has_its_attempt():
    world, order = a_chain()
    world.report(order, 3)
    world.do(events.TasksBegun(WORKER, ((order.assignment, 4, 0.1),)))
    world.do(events.WorkerGone(WORKER, "lost"))
    effects = world.join(WORKER + 1, 2, chains=True)
    (again,) = orders(effects)
    assert read_head(again.arguments[0]).inputs == (b"r3",)
    used = written(world.report(again, worker=WORKER + 1), records.UsageRecord)
    assert again.first == 4
    assert {each.attempt for each in used} == {2}


def test_the_calls_behind_a_failure_in_a_chain_end_by_it():
    world, order = a_chain()
    effects = world.report(order, 2, failures=[[1, "error", "ValueError: boom", b""]])
    assert (world.job("b").done, world.job("b").failed) == (2, 5)
    rows = [row for each in told(effects, Results) for row in each.failures]
    assert all(row[1] in ("error", "dependency") for row in rows)
    assert not orders(world.do(events.HandedBack(WORKER, order.assignment, ((3, 7),))))
    assert world.job("b").in_flight == 0


def test_a_retry_in_a_chain_runs_again_with_what_is_behind_it():
    world, order = a_chain(retries=1)
    world.report(order, 2, failures=[[1, "error", "boom", b""]])
    world.do(events.HandedBack(WORKER, order.assignment, ((3, 7),)))
    assert (world.job("b").done, world.job("b").failed) == (2, 0)  # tasks 0 and 1
    while world.job("b").assignments:
        number, held = next(iter(world.job("b").assignments.items()))
        first, stop = next(iter(held.left))
        values = [b"r%d" % at for at in range(first, stop)]
        world.do(
            events.Reported(WORKER, number, first, values, wall_ns=1_000_000, cpu_ns=1_000_000)
        )
    assert world.job("b").done == 7


def test_no_part_of_a_chain_is_recalled_for_another_worker():
    world, order = a_chain(40)
    assert order.chained
    world.now_s += 60
    assert not orders(world.join(WORKER + 1, 2, chains=True), Recall)


# --- memory and order ---------------------------------------------------------------------------


def peak_of_a_map_reduce(slots=2, pieces=40, size=1_000):
    """Run maps ten times as fast as what reads them; return the largest number of live bytes."""
    world = GraphWorld(slots=slots)
    world.open("a")
    world.open("b")
    world.wait_for("b", 0, *([("a", at, at + 2)] for at in range(0, pieces, 2)))
    world.do(events.TasksArrived(CLIENT, "a", 0, [b"x"] * pieces))
    peak = turns = 0
    while any(world.job(name).assignments for name in "ab" if name in world.broker.jobs):
        makers, readers = (list(world.job(name).assignments.values()) for name in "ab")
        turns += 1
        which = readers if readers and (not makers or turns % 10 == 0) else makers
        held, value = which[0], b"v" * (size if which is makers else 1)
        first, _ = next(iter(held.left))
        wall_ns = 300_000_000 if which is makers else 3_000_000_000
        world.now_s += 10
        report = events.Reported(WORKER, held.id, first, [value], wall_ns=wall_ns, cpu_ns=wall_ns)
        world.do(report)
        filled_bytes = world.job("b").held_bytes - world.job("b").blocked_bytes
        peak = max(peak, world.broker.graphs.values_bytes + filled_bytes)
    assert (world.job("a").done, world.job("b").done) == (pieces, pieces // 2)
    return peak


@pytest.mark.parametrize("limit", [10_000, 500])
def test_tasks_that_make_more_than_they_free_wait_for_those_that_read(monkeypatch, limit):
    monkeypatch.setattr(waiting_calls, "LIVE_BYTES_MAX", 1 << 30)
    assert peak_of_a_map_reduce() > 20_000
    monkeypatch.setattr(waiting_calls, "LIVE_BYTES_MAX", limit)
    assert peak_of_a_map_reduce() <= 1.2 * limit + 4 * 1_000


def test_what_is_deeper_in_a_graph_goes_first():
    world = GraphWorld(slots=1)
    begun = world.submit(4, "a")
    world.open("b")
    rows = [[("a", at, at + 1)] for at in range(4)]
    world.wait_for("b", 0, *rows, [("b", 0, 1)])
    order = []
    while begun := orders(begun):
        if begun[0].job == "b":
            order.append(begun[0].first)
        begun = world.report(begun[0], wall_ns=3_000_000_000)
    assert order.index(4) < order.index(3), "the pair that was begun ends first"


def test_the_calls_of_a_client_are_bound_before_its_limit_fails_them():
    world = GraphWorld(slots=2, limits=ClientLimits(tasks_max=10_000, bytes_max=40_000))
    world.open("a")
    world.open("b")
    world.do(events.TasksArrived(CLIENT, "a", 0, [b"x"] * 60))
    world.wait_for("b", 0, *([("a", at, at + 1)] for at in range(60)))
    while world.job("a").assignments or world.job("b").assignments:
        held = [*world.job("a").assignments.values(), *world.job("b").assignments.values()][0]
        first, _ = next(iter(held.left))
        world.now_s += 10
        value = b"v" * (1_000 if held.job.id == "a" else 1)
        world.do(
            events.Reported(
                WORKER, held.id, first, [value], wall_ns=300_000_000, cpu_ns=300_000_000
            )
        )
    assert (world.job("b").done, world.job("b").failed) == (60, 0)


def test_a_job_that_only_reads_is_a_stage_with_figures_after_its_end_and_leaves_nothing(
    monkeypatch,
):
    monkeypatch.setattr(stages, "STAGES_MAX", 6)
    world = GraphWorld(slots=4)
    for number in range(10):
        source, sink = f"a{number}", f"b{number}"
        (order,) = orders(world.submit(1, source))
        world.open(sink)
        world.wait_for(sink, 0, [(source, 0, 1)])
        world.do(events.JobClosed(CLIENT, sink, 1))
        (begun,) = orders(world.report(order))
        world.report(begun)
        world.do(events.JobClosed(CLIENT, source, 1))
    assert not world.broker.jobs
    graphs = world.broker.graphs
    rows = graphs.stages.of("b9")
    assert [row["id"] for row in rows] == ["a9", "b9"]
    assert all(row["name"] for row in rows)
    assert [(row["total"], row["done"]) for row in rows] == [(1, 1), (1, 1)]
    assert len(graphs.stages._ended) <= 6
    assert len(graphs.stages._reads) <= 6
    assert not graphs._readers
    assert not graphs.sources


def test_calls_behind_a_task_that_will_not_come_are_asked_for_again():
    """Its client has ended it: the call behind it would wait for ever."""
    world = GraphWorld(slots=1)
    world.open("b")
    world.wait_for("b", 1, [("b", 0, 1)], [("b", 1, 2)])
    (asked,) = told(world.do(events.JobClosed(CLIENT, "b", 3, ((0, 1),))), SendAgain)
    assert (asked.job, asked.ranges) == ("b", [[1, 2]])
    (asked,) = told(world.do(events.JobClosed(CLIENT, "b", 3, ((0, 2),))), SendAgain)
    assert asked.ranges == [[2, 3]]
    world.do(events.JobClosed(CLIENT, "b", 3, ((0, 3),)))
    assert "b" not in world.broker.jobs
