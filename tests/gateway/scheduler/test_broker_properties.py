"""The broker under any interleaving: nothing lost, nothing twice, one charge a task."""

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from federation.messages import messages
from federation.ranges import RangeSet
from gateway.ledger.db import records
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events, matching
from gateway.scheduler.model.effects import Effect, Expel, SendToClient, SendToWorker, Write
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.tasks.losses import SHUN_S
from policies.access.fairness import ShareNode
from policies.access.shares import FairShare, Share
from policies.parties import PartyKind, read_party
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

DETACHED = "j3"
ORPHANED_S = 100.0
WAITS_MAX = 20


class Site(RuleBasedStateMachine):
    """A client that leaves and returns, with attached jobs and a detached one; workers that come,
    go, crash and hand back; and an honest count of it all.

    Jobs differ in priority, and one needs a counted tag that not every worker has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker({"p": Tariff(10**15, "USD", "v")}, limits=ClientLimits(10**6, 1 << 40))
        self.now_s = 1.0
        self.handles = 10
        self.owner = 0
        self.rejected: set[str] = set()
        self.keys: set[tuple[str, int, int]] = set()
        self.submitted: Counter[str] = Counter()
        self.ended: dict[str, Counter[int]] = {}
        self.charged: dict[str, RangeSet] = {}
        self.held: dict[int, dict[int, tuple[messages.Assign, RangeSet]]] = {}
        self.recalls: list[tuple[int, messages.Recall]] = []
        self.answers: dict[int, list[list[int]]] = {}
        self.requests = 0

    @initialize()
    def start(self) -> None:
        self.enter()

    def enter(self) -> None:
        """The owner comes (back): it opens its jobs and sends all missing tasks."""
        self.handles += 1
        self.owner = self.handles
        self.do(events.ClientJoined(self.owner, "ann"))
        for name, tasks in self.submitted.items():
            if name in self.rejected:
                continue
            self.do(events.JobOpened(self.owner, name, self.terms(name), again=True))
            missing = RangeSet([(0, tasks)])
            for task in self.ended.get(name, ()) if name != DETACHED else ():
                missing.remove(task, task + 1)
            for first, stop in missing:
                self.send(name, first, stop)

    def terms(self, name: str) -> JobSpec:
        number = int(name[1:])
        tags: dict[str, bool | int | float] = {"gpu": 1} if number == 2 else {}
        return JobSpec(
            name, name.encode() * 16, name == DETACHED, "ann", "p", float(number % 3), tags, None,
            number, None, None, "3.11", False,
        )  # fmt: skip

    def send(self, name: str, first: int, stop: int) -> None:
        arguments = [b"%d" % task for task in range(first, stop)]
        self.do(events.TasksArrived(self.owner, name, first, arguments))

    def do(self, event: events.Event) -> None:  # noqa: C901 - one match
        self.now_s += 0.01
        effects = self.broker.handle(event, self.now_s) + self.broker.settle(self.now_s)
        self.check_order(effects)
        for effect in effects:
            match effect:
                case Write(records.UsageRecord() as usage):
                    stop = usage.first + usage.tasks
                    row = usage.job, usage.first, usage.attempt
                    assert row not in self.keys, "the store would drop the second"
                    self.keys.add(row)
                    if usage.state == "ok":
                        key = f"{usage.job} {usage.attempt}"
                        seen = self.charged.setdefault(key, RangeSet())
                        assert not seen.within(usage.first, stop)
                        seen.add(usage.first, stop)
                case Write(records.OutcomeKept() as kept):
                    self.end(kept.job, kept.first, kept.first + kept.count)
                case SendToClient(_, messages.RejectJob() as reject):
                    assert reject.job == DETACHED, "no attached job is ever refused here"
                    self.rejected.add(reject.job)
                case SendToClient(_, messages.Results() as results):
                    self.end(results.job, results.first, results.first + len(results.values))
                case SendToClient(_, messages.Dropped() as dropped):
                    for first, stop in dropped.ranges:
                        self.end(dropped.job, first, stop)
                case SendToClient(_, messages.Answer() as answer):
                    for first, stop in answer.value["taken"]:
                        if answer.request % 4 != 3:  # of a detached job it is kept as well
                            self.end(f"j{answer.request % 4}", first, stop)
                case SendToWorker(worker, messages.Assign() as assign):
                    stop = assign.first + len(assign.arguments)
                    left = RangeSet([(assign.first, stop)])
                    self.held[worker][assign.assignment] = (assign, left)
                    expected = [b"%d" % task for task in range(assign.first, stop)]
                    assert assign.arguments == expected
                case SendToWorker(worker, messages.Recall() as recall):
                    self.recalls.append((worker, recall))
                case Expel():
                    raise AssertionError(effect)

    def end(self, job: str, first: int, stop: int) -> None:
        self.ended.setdefault(job, Counter()).update(range(first, stop))

    def check_order(self, effects: list[Effect]) -> None:
        """The job that got slots was the best placed of those that could have them."""
        for effect in effects:
            match effect:
                case SendToWorker(handle, messages.Assign() as assign) if (
                    handle in self.broker.workers
                ):
                    worker = self.broker.workers[handle]
                    priority = self.terms(assign.job).priority
                    for job in self.broker.jobs.values():
                        if job.waiting and not job.leaving and job.spec.priority > priority:
                            assert matching.refusal(job, worker) is not None

    @rule(job=st.integers(0, 3), tasks=st.integers(1, 40))
    def submit(self, job: int, tasks: int) -> None:
        name = f"j{job}"
        if name in self.rejected:
            return
        first = self.submitted[name]
        self.submitted[name] += tasks
        if not first:
            self.do(events.JobOpened(self.owner, name, self.terms(name)))
        self.send(name, first, first + tasks)

    @rule(is_away_long=st.booleans())
    def leave_and_return(self, is_away_long: bool) -> None:
        self.do(events.ClientGone(self.owner))
        if is_away_long:
            self.now_s += ORPHANED_S
            self.do(events.Ticked())
        self.enter()

    @rule()
    def return_before_it_is_missed(self) -> None:
        previous = self.owner
        self.enter()
        self.do(events.ClientGone(previous))

    @rule(slots=st.integers(1, 3), has_gpus=st.booleans())
    def join(self, slots: int, has_gpus: bool) -> None:
        self.handles += 1
        self.held[self.handles] = {}
        # A pool that never has any is known to have them: jobs wait for one that does.
        self.broker.offers.setdefault("p", CapacityOffer("p", "p", {"gpu": 9}, "3.11", "USD"))
        tags: dict[str, bool | int | float] = {"gpu": slots} if has_gpus else {}
        joined = events.WorkerJoined(self.handles, f"w{self.handles}", "p", slots, tags, "3.11")
        self.do(joined)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), failing=st.sampled_from(["", "", "", "error", "crash"]))
    def report(self, data: st.DataObject, failing: str) -> None:
        worker = data.draw(st.sampled_from([w for w in self.held if self.held[w]]))
        number = data.draw(st.sampled_from(sorted(self.held[worker])))
        _assign, left = self.held[worker][number]
        first, end = next(iter(left))
        stop = data.draw(st.integers(first + 1, end))
        left.remove(first, stop)
        if not left:
            del self.held[worker][number]
        at = data.draw(st.integers(0, stop - first - 1))
        failures = [[at, failing, "text", b""]] if failing else []
        values = [b""] * (stop - first)
        self.do(events.Reported(worker, number, first, values, failures, [], 1000 * (stop - first)))

    @precondition(lambda self: self.recalls)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        worker, recall = self.recalls.pop(data.draw(st.integers(0, len(self.recalls) - 1)))
        if worker not in self.held:
            return
        found = self.held[worker].get(recall.assignment)
        ranges: list[tuple[int, int]] = []
        if found is not None:
            left = found[1]
            ranges = left.within(recall.first, recall.stop)
            if ranges and data.draw(st.booleans()):
                ranges = ranges[1:]  # the first of them had started
            for first, stop in ranges:
                left.remove(first, stop)
            if not left:
                del self.held[worker][recall.assignment]
        self.do(events.HandedBack(worker, recall.assignment, tuple(ranges)))
        if recall.kill and found is not None:
            self.report_killed(worker, recall)

    def report_killed(self, worker: int, recall: messages.Recall) -> None:
        """Running tasks were stopped."""
        _assign, left = (
            self.held[worker][recall.assignment]
            if self.held[worker].get(recall.assignment)
            else (None, RangeSet())
        )
        for first, stop in left.within(recall.first, recall.stop):
            for task in range(first, stop):
                left.remove(task, task + 1)
                failure: list[object] = [0, "cancelled", "stopped", b""]
                if not left:
                    del self.held[worker][recall.assignment]
                number = recall.assignment
                self.do(events.Reported(worker, number, task, [b""], [failure], [], 1000))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose_worker(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[worker]
        self.do(events.WorkerGone(worker, "lost"))

    @precondition(lambda self: self.submitted)
    @rule(data=st.data(), kill=st.booleans())
    def cancel(self, data: st.DataObject, kill: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.submitted)))
        first = data.draw(st.integers(0, self.submitted[name] - 1))
        stop = data.draw(st.integers(first + 1, self.submitted[name]))
        self.requests += 4
        request = self.requests + int(name[1:])
        self.do(events.CancelAsked(self.owner, request, name, ((first, stop),), kill))

    @invariant()
    def each_task_ends_at_most_once(self) -> None:
        for counts in self.ended.values():
            assert all(count == 1 for count in counts.values())

    @invariant()
    def accounts_add_up(self) -> None:
        for worker in self.broker.workers.values():
            left = sum(len(assignment.left) for assignment in worker.assignments.values())
            assert worker.in_flight == left
        for job in self.broker.jobs.values():
            assert job.waiting == sum(len(run.arguments) for run in job.queue)
            assert job.in_flight == sum(len(a.left) for a in job.assignments.values())

    def teardown(self) -> None:
        """When faults stop, everything ends, exactly once."""
        if not self.submitted:
            return
        self.join(3, True)
        waits = 0  # for back-offs of lost workers, and of tasks that were lost with them
        for _ in range(20_000):
            while self.recalls:
                worker, recall = self.recalls.pop()
                if worker in self.held:
                    self.do(events.HandedBack(worker, recall.assignment, ()))
            busy = [worker for worker in self.held if self.held[worker]]
            if not busy:
                if waits == WAITS_MAX:
                    break
                waits += 1
                self.now_s += SHUN_S
                self.do(events.Ticked())
                continue
            number, (_, left) = next(iter(self.held[busy[0]].items()))
            first, stop = next(iter(left))
            left.remove(first, stop)
            if not left:
                del self.held[busy[0]][number]
            values = [b""] * (stop - first)
            self.do(events.Reported(busy[0], number, first, values, [], [], 1000))
        for name, tasks in self.submitted.items():
            if name not in self.rejected:
                assert self.ended.get(name, Counter()) == Counter(range(tasks)), name


class SharingSite(Site):
    """The same where slots are shared out: the detached job and another are of one share, the two
    others of one each.
    """

    @initialize()
    def share_out(self) -> None:
        """How slots are shared out; now and then otherwise."""
        parts = (("left", "j3", 3), ("left", "j2", 1), ("j1", "j1", 2))
        written = [
            Share(name, number, "left" if group == "left" else "", read_party(f"project:{name}"))
            for group, name, number in parts
        ]
        rules = FairShare(3600.0, 10.0, None, (Share("left", 2), *written))
        self.do(events.SharesKnown(rules, {}))

    @rule(is_on=st.booleans())
    def share_out_otherwise(self, is_on: bool) -> None:
        self.do(events.SharesKnown(None, {}))
        if is_on:
            self.do(events.SharesKnown(FairShare(each=PartyKind.PROJECT), {}))
        self.share_out()

    def terms(self, name: str) -> JobSpec:
        return replace(super().terms(name), project=name)

    def check_order(self, effects: list[Effect]) -> None:
        """Each share has one job here: the order of jobs is that of shares."""

    @rule()
    def tick(self) -> None:
        self.now_s += 5.0
        self.do(events.Ticked())

    @invariant()
    def what_is_held_is_what_is_out(self) -> None:
        assert self.broker.shares is not None
        held: Counter[ShareNode] = Counter()
        jobs: Counter[ShareNode] = Counter()
        for job in self.broker.jobs.values():
            assert job.leaf is not None
            jobs[job.leaf] += 1
            for each in job.assignments.values():
                held[job.leaf] += each.held_ns * len(each.left)
        for node in self.broker.shares.tree.nodes():
            below = [leaf for leaf in held if node in leaf.path or not node.path]
            assert node.held_ns == sum(held[leaf] for leaf in below)
            assert node.jobs == jobs[node]
            assert node.used >= sum(child.used for child in node.children.values())


CAREFUL = settings(
    max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
TestSite = Site.TestCase
TestSite.settings = CAREFUL
TestSharingSite = SharingSite.TestCase
TestSharingSite.settings = CAREFUL
