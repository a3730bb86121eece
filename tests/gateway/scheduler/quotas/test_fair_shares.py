"""Slots shared out by the broker: holds and charges, the order of service, and unchanged cases."""

from collections import Counter, deque
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.messages import messages
from federation.ranges import RangeSet
from gateway.api.views import work_views
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events, matching
from gateway.scheduler.model.effects import SendToWorker
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.quotas.fair_shares import ASSUMED_TASK_S, FairShares
from policies.access.fairness import NS
from policies.access.shares import FairShare, Share
from policies.parties import Owner, read_party
from policies.tariffs import Tariff

NOW_S = 1_700_000_000.0
CLIENT = 1
PRICE = Tariff(10**9, "USD", "v")
MAX_WAIT_S = 86_400.0


def shares(*parts):
    """A share for each (project, shares)."""
    written = (Share(name, weight, "", read_party(f"project:{name}")) for name, weight in parts)
    return FairShare(shares=tuple(written))


def spec(project="a", **changes):
    terms = {
        "name": "f", "function": project[:1].encode() * 32, "detached": False, "user": "ann",
        "project": project, "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0,
        "max_cost_nanos": None, "currency": None, "python": "3.11", "prints": False,
    }  # fmt: skip
    return JobSpec(**(terms | changes))


class Grid:
    """A broker and workers that run their assignments, task by task, in virtual time."""

    def __init__(self, rules, *slots, task_s):
        self.broker = Broker({"p": PRICE}, limits=ClientLimits(10**9, 1 << 50))
        self.now_s = NOW_S
        self.task_s = task_s  # function → seconds
        self.queues = {}  # worker → the tasks that wait there, as (order, task)
        self.free = {}
        self.running = []
        self.numbers = count()
        self.done_s = Counter()  # by project
        self.recalls = 0
        self.do(events.SharesKnown(rules, {}))
        self.do(events.ClientJoined(CLIENT, "ann"))
        for number, each in enumerate(slots, 10):
            self.queues[number], self.free[number] = deque(), each
            self.do(events.WorkerJoined(number, f"w{number}", "p", each, {}, "3.11"))

    def do(self, event):
        effects = self.broker.handle(event, self.now_s) + self.broker.settle(self.now_s)
        for effect in effects:
            match effect:
                case SendToWorker(worker, messages.Assign() as order):
                    at = range(order.first, order.first + len(order.arguments))
                    self.queues[worker].extend((order, task) for task in at)
                case SendToWorker(worker, messages.Recall() as recall):
                    self.recalls += 1
                    self.give_back(worker, recall)
        for worker in self.queues:
            self.start(worker)
        return [e.message for e in effects if isinstance(e, SendToWorker)]

    def give_back(self, worker, recall):
        queue = self.queues[worker]
        back = [each for each in queue if each[0].assignment == recall.assignment
                and recall.first <= each[1] < recall.stop]  # fmt: skip
        self.queues[worker] = deque(each for each in queue if each not in back)
        ranges = tuple(RangeSet((task, task + 1) for _, task in back))
        heappush(self.running, (self.now_s + 0.001, next(self.numbers), worker,
                                events.HandedBack(worker, recall.assignment, ranges)))  # fmt: skip

    def start(self, worker):
        while self.free[worker] and self.queues[worker]:
            self.free[worker] -= 1
            order, task = self.queues[worker].popleft()
            taken_s = self.task_s(order.function)
            report = events.Reported(worker, order.assignment, task, [b""])
            report = replace(report, wall_ns=round(taken_s * NS))
            moment = (self.now_s + taken_s, next(self.numbers), worker, report)
            heappush(self.running, moment)

    def submit(self, project, tasks, job="", **changes):
        job = job or f"j{next(self.numbers)}"
        self.do(events.JobOpened(CLIENT, job, spec(project, **changes)))
        for first in range(0, tasks, 1000):
            self.do(events.TasksArrived(CLIENT, job, first, [b""] * min(1000, tasks - first)))
        return self.broker.jobs[job]

    def step(self):
        self.now_s, _, worker, event = heappop(self.running)
        if isinstance(event, events.Reported):
            self.free[worker] += 1
            job = self.broker.workers[worker].assignments[event.assignment].job
            self.done_s[job.spec.project] += event.wall_ns / NS
        self.do(event)

    def run(self, until_s):
        while self.running and self.running[0][0] < NOW_S + until_s:
            self.step()

    def part(self, project):
        return self.done_s[project] / self.done_s.total()


def leaf(grid, project):
    return grid.broker.shares.tree.leaf_of(Owner("ann", project=project))


# --- who is served -------------------------------------------------------------------------------


def test_the_first_burst_is_shared_out_before_anything_is_known():
    """Hundreds of idle slots, all durations are unknown, and one user comes first."""
    grid = Grid(shares(("a", 3), ("b", 1)), task_s=lambda _: 3600.0)
    grid.submit("a", 1000)
    grid.submit("b", 1000)
    grid.queues[10], grid.free[10] = deque(), 64
    grid.do(events.WorkerJoined(10, "w", "p", 64, {}, "3.11"))
    in_flight = {job.spec.project: job.in_flight for job in grid.broker.jobs.values()}
    assert in_flight == {"a": 48, "b": 16}
    assert leaf(grid, "a").held_ns == 48 * ASSUMED_TASK_S * NS


# A long task fills its slot; a short one is queued ahead with others.
TASKS = [
    *[(1.0, 1.0), (30.0, 30.0), (0.01, 0.01), (0.05, 0.3)],
    *(pytest.param(*each, marks=pytest.mark.thorough) for each in [(0.02, 2.0), (3.0, 0.02)]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("a_s", "b_s"), TASKS)
@pytest.mark.parametrize("slots", [(2,), (1, 1, 4)])
def test_saturated_slots_are_shared_out_as_written_whatever_tasks_take(a_s, b_s, slots):
    grid = Grid(
        shares(("a", 3), ("b", 1)), *slots, task_s=lambda name: a_s if name[:1] == b"a" else b_s
    )
    until_s = 60 * max(a_s, b_s, 0.2)
    both = (2_000 + int(1.2 * until_s * sum(slots) / each) for each in (a_s, b_s))
    for project, tasks in zip("ab", both, strict=True):
        grid.submit(project, tasks)
    grid.run(until_s)
    assert all(job.waiting for job in grid.broker.jobs.values())  # both wanted more all the time
    assert grid.part("a") == pytest.approx(0.75, abs=0.04)
    # Nothing is moved back and forth: at most a few times for each long task.
    assert grid.recalls < 20 + 3 * until_s * sum(slots) / max(a_s, b_s)


def test_without_shares_there_is_nothing_of_it():
    grid = Grid(None, 1, task_s=lambda _: 1.0)
    job = grid.submit("a", 2)
    grid.run(10.0)
    assert (job.leaf, grid.done_s["a"]) == (None, 2.0)


JOBS = st.lists(
    st.builds(
        lambda priority, is_sold, is_preemptible, in_flight, served: (
            {
                "priority": priority,
                "price": PRICE if is_sold else None,
                "price_class": "preemptible" if is_preemptible else "guaranteed",
            },
            in_flight,
            served,
        ),
        st.sampled_from([-1.0, 0.0, 2.5]),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=6,
)


@given(jobs=JOBS, task_s=st.none() | st.floats(0.001, 10.0), used_ns=st.integers(0, 10**12))
def test_within_a_share_jobs_are_served_as_they_are_without(jobs, task_s, used_ns):
    shared = FairShares(shares(("a", 3), ("b", 1)))
    made = []
    for number, (changes, in_flight, served) in enumerate(jobs):
        own = spec("ab"[number % 2], **changes)
        job = Job(str(number), own, CLIENT, number, NOW_S, own.need, {})
        job.in_flight, job.served = in_flight, served
        shared.opened(job)
        made.append(job)
    shared.take_up({Owner("ann", project="a"): used_ns, Owner("ann", project="b"): 10**11}, NOW_S)
    shared.begin({job.leaf for job in made}, NOW_S)
    turns = list(shared.turns())
    ranked = sorted(made, key=lambda job: shared.order(job, task_s))
    assert turns == list(dict.fromkeys(job.leaf for job in ranked))
    for project in "ab":
        own = [job for job in ranked if job.spec.project == project]
        assert own == sorted(own, key=lambda job: matching.order(job, task_s))
    # And what is of one share is together.
    projects = [job.spec.project for job in ranked]
    assert projects == sorted(projects, reverse=projects[0] == "b")
    assert (projects[0] == "b") == (used_ns / 3 > 10**11)


def test_priority_counts_within_a_share_alone():
    grid = Grid(shares(("a", 1), ("b", 1)), 1, task_s=lambda _: 10.0)
    grid.submit("a", 10, priority=100.0)
    later = grid.submit("a", 10, "late", priority=200.0)
    grid.submit("b", 10)
    grid.run(95.0)
    assert grid.done_s == {"a": 50.0, "b": 40.0}
    assert later.done == 4  # all of them, but for what ran before it was there


def test_work_of_another_site_is_a_party_like_any_other():
    both = FairShare(
        shares=(
            Share("own", 1, "", read_party("ours")),
            Share("paris", 1, "", read_party("site:paris")),
        )
    )
    grid = Grid(both, 1, task_s=lambda _: 10.0)
    grid.submit("a", 50)
    grid.submit("b", 50, user="x@paris", path=("paris",), price=PRICE)
    grid.run(405.0)
    assert grid.part("b") == pytest.approx(0.5)


# --- what is held and charged --------------------------------------------------------------------


def test_what_runs_longer_than_expected_is_held_at_what_it_has_run():
    grid = Grid(shares(("a", 1), ("b", 1)), 2, task_s=lambda _: 3600.0)
    grid.submit("a", 2)
    assert leaf(grid, "a").held_ns == 2 * NS
    grid.now_s += 1000.0
    grid.do(events.Ticked())
    assert leaf(grid, "a").held_ns == 2000 * NS
    grid.run(3601.0)
    assert leaf(grid, "a").held_ns == 0
    assert grid.broker.shares.tree.used_ns(leaf(grid, "a")) == pytest.approx(7200 * NS, rel=1e-4)


def test_what_is_lost_or_comes_back_is_held_no_more():
    grid = Grid(shares(("a", 1), ("b", 1)), 4, task_s=lambda _: 3600.0)
    job = grid.submit("a", 4)
    assert leaf(grid, "a").held_ns == 4 * NS
    (assignment,) = job.assignments
    grid.do(events.HandedBack(10, assignment, ((2, 4),)))
    grid.do(events.DrainAsked(10, on=True))
    grid.do(events.WorkerGone(10, "lost"))
    assert leaf(grid, "a").held_ns == 0
    assert grid.broker.shares.tree.used_ns(leaf(grid, "a")) == 0


def test_what_runs_at_another_site_takes_no_slot_of_ours():
    grid = Grid(shares(("a", 1), ("b", 1)), task_s=lambda _: 100.0)
    job = grid.submit("a", 5)
    grid.queues[10], grid.free[10] = deque(), 5
    contract = events.WorkerJoined(10, "c", "paris/p", 5, {}, "3.11", job.id, PRICE, 0.01)
    grid.do(contract)
    assert job.in_flight == 5
    assert leaf(grid, "a").held_ns == 0
    grid.now_s += 50.0
    grid.do(events.Ticked())
    grid.run(101.0)
    assert job.done == 5
    assert grid.broker.shares.tree.used_ns(leaf(grid, "a")) == 0


def test_what_was_stopped_to_make_room_does_not_count():
    grid = Grid(shares(("a", 1), ("b", 1)), 1, task_s=lambda _: 100.0)
    job = grid.submit("a", 3)
    (assignment,) = job.assignments
    stopped = [[0, "preempted", "make room", b""]]
    grid.now_s += 50.0
    grid.do(events.Reported(10, assignment, 0, [b""], stopped, wall_ns=50 * NS))
    assert (job.done, job.waiting, job.wall_ns) == (0, 2, 50 * NS)  # it is given out again
    assert grid.broker.shares.tree.used_ns(leaf(grid, "a")) == 0


def test_what_ran_again_for_nothing_does_not_count():
    grid = Grid(shares(("a", 1), ("b", 1)), 1, task_s=lambda _: 10.0)
    job = grid.submit("a", 3)
    job.charged.add(1, 2)  # it was charged before its result was lost
    job.wall_ns = 10**12
    grid.run(31.0)
    assert grid.broker.shares.tree.used_ns(leaf(grid, "a")) == pytest.approx(20 * NS, rel=1e-4)


def test_a_job_that_waits_is_told_its_share_and_its_place():
    grid = Grid(shares(("a", 3), ("b", 1)), 1, task_s=lambda _: 10.0)
    grid.submit("a", 10)
    job = grid.submit("b", 10)
    grid.run(25.0)
    found = work_views.share_of(job, grid.broker.shares, grid.now_s, lambda _party: True)
    assert (found["share"], found["place"], found["places"], found["next"]) == ("b", 2, 2, "a")
    hidden = work_views.share_of(job, grid.broker.shares, grid.now_s, lambda _party: False)
    assert hidden == found | {"next": ""}, "whose turn it is, is theirs to know"
    assert found["target"] == 0.25
    shown = work_views.shares(grid.broker, grid.broker.shares, grid.now_s, lambda _party: True)
    rows = {row["share"]: row for row in shown["shares"]}
    assert sum(row["waiting"] for row in rows.values()) == 17
    assert rows["a"]["part"] + rows["b"]["part"] == pytest.approx(1.0)
    assert rows["a"]["under_way_slot_s"] + rows["b"]["under_way_slot_s"] == pytest.approx(10.0)
    assert (shown["half_life_s"], shown["max_wait_s"]) == (7 * 86_400.0, MAX_WAIT_S)
    assert job.leaf.jobs == 1
    grid.run(1000.0)
    grid.do(events.ClientGone(CLIENT))
    assert job.leaf.jobs == 0


def test_shares_that_change_while_work_is_out_know_of_it():
    grid = Grid(None, 4, task_s=lambda _: 100.0)
    job = grid.submit("a", 10)
    other = grid.submit("b", 10)
    rules = shares(("a", 3), ("b", 1))
    grid.do(events.SharesKnown(rules, {Owner("ann", project="b"): 10**12}))
    assert leaf(grid, "a").held_ns == 4 * ASSUMED_TASK_S * NS
    grid.run(101.0)
    assert (job.in_flight, other.in_flight) == (4, 0)  # b has had a thousand
    grid.do(events.SharesKnown(None, {}))
    grid.run(1000.0)
    assert (job.done, other.done) == (10, 10)
    assert grid.broker.shares is None
