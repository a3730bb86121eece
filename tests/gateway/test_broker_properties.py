"""The broker under any interleaving: nothing lost, nothing twice, one charge a task."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from federation import messages
from federation.ranges import RangeSet
from gateway import events
from gateway.broker import Broker, Limits
from gateway.effects import Expel, Order, Tell, Write
from gateway.events import JobSpec
from gateway.ledger import records
from policies.tariffs import Tariff

OWNER = 1


class Site(RuleBasedStateMachine):
    """One client, workers that come, go, crash and hand back, and an honest count of it all."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker({"p": Tariff(10**15, "USD", "v")}, limits=Limits(10**6, 1 << 40))
        self.now_s = 1.0
        self.handles = 10
        self.submitted: Counter[str] = Counter()
        self.ended: dict[str, Counter[int]] = {}
        self.charged: dict[str, RangeSet] = {}
        self.held: dict[int, dict[int, tuple[messages.Assign, RangeSet]]] = {}
        self.recalls: list[tuple[int, messages.Recall]] = []
        self.answers: dict[int, list[list[int]]] = {}
        self.requests = 0

    @initialize()
    def start(self) -> None:
        self.do(events.ClientJoined(OWNER, "ann"))

    def do(self, event: events.Event) -> None:
        self.now_s += 0.01
        effects = self.broker.handle(event, self.now_s) + self.broker.settle(self.now_s)
        unstored = 0
        for effect in effects:
            match effect:
                case Write(records.UsageRecord() as usage):
                    unstored += 1
                    stop = usage.first + usage.tasks
                    assert usage.attempt >= 1
                    if usage.state == "ok":
                        key = f"{usage.job} {usage.attempt}"
                        seen = self.charged.setdefault(key, RangeSet())
                        assert not seen.within(usage.first, stop)
                        seen.add(usage.first, stop)
                case Tell(_, messages.Results() as results):
                    self.end(results.job, results.first, results.first + len(results.values))
                case Tell(_, messages.Dropped() as dropped):
                    for first, stop in dropped.ranges:
                        self.end(dropped.job, first, stop)
                case Tell(_, messages.Answer() as answer):
                    for first, stop in answer.value["taken"]:
                        self.end(f"j{answer.request % 3}", first, stop)
                case Order(worker, messages.Assign() as assign):
                    stop = assign.first + len(assign.arguments)
                    left = RangeSet([(assign.first, stop)])
                    self.held[worker][assign.assignment] = (assign, left)
                    expected = [b"%d" % task for task in range(assign.first, stop)]
                    assert assign.arguments == expected
                case Order(worker, messages.Recall() as recall):
                    self.recalls.append((worker, recall))
                case Expel():
                    raise AssertionError(effect)

    def end(self, job: str, first: int, stop: int) -> None:
        self.ended.setdefault(job, Counter()).update(range(first, stop))

    @rule(job=st.integers(0, 2), tasks=st.integers(1, 40), retries=st.integers(0, 2))
    def submit(self, job: int, tasks: int, retries: int) -> None:
        name = f"j{job}"
        if name not in self.submitted:
            terms = JobSpec(
                name, name.encode() * 16, False, "ann", "p", 0.0, {}, None, retries, None, None,
                "3.11", False,
            )  # fmt: skip
            self.do(events.JobOpened(OWNER, name, terms))
        first = self.submitted[name]
        self.submitted[name] += tasks
        arguments = [b"%d" % task for task in range(first, first + tasks)]
        self.do(events.TasksArrived(OWNER, name, first, arguments))

    @rule(slots=st.integers(1, 3))
    def join(self, slots: int) -> None:
        self.handles += 1
        self.held[self.handles] = {}
        joined = events.WorkerJoined(self.handles, f"w{self.handles}", "p", slots, {}, "3.11")
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
        self.requests += 3
        request = self.requests + int(name[1:])
        self.do(events.CancelAsked(OWNER, request, name, ((first, stop),), kill))

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
        self.join(3)
        for _ in range(20_000):
            while self.recalls:
                worker, recall = self.recalls.pop()
                if worker in self.held:
                    self.do(events.HandedBack(worker, recall.assignment, ()))
            busy = [worker for worker in self.held if self.held[worker]]
            if not busy:
                break
            number, (_, left) = next(iter(self.held[busy[0]].items()))
            first, stop = next(iter(left))
            left.remove(first, stop)
            if not left:
                del self.held[busy[0]][number]
            values = [b""] * (stop - first)
            self.do(events.Reported(busy[0], number, first, values, [], [], 1000))
        for name, tasks in self.submitted.items():
            assert self.ended.get(name, Counter()) == Counter(range(tasks)), name


TestSite = Site.TestCase
TestSite.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
