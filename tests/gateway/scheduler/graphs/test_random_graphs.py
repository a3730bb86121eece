"""Random graphs with failures, retries, cancels, lost workers and late calls, from a seed.

Invariants: no task begins before its inputs have ended; all that read a task get the one outcome
that its client got; each task ends once; everything ends; nothing is left behind. Bugs that are
planted in the core are found.
"""

import pickle
from random import Random

import pytest
from support.pure.broker import CLIENT, BrokerWorld, spec

from federation.messages.messages import Assign, Dropped, Recall, Results, SendAgain
from federation.objects.inputs import read_head, with_inputs
from gateway.scheduler.graphs import core
from gateway.scheduler.graphs.core import TaskGraph
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToClient, SendToWorker

SEEDS = 150
PICKLE = pickle.dumps("call")
Node = tuple[str, int]


class RandomGraph(BrokerWorld):
    """A random graph, its client, and workers that come, go, fail and report in parts."""

    chained = 0  # calls of all worlds that went to a slot with their input

    def __init__(self, seed: int) -> None:
        super().__init__(slots=0)
        self.random = random = Random(seed)
        self.inputs: dict[Node, list[Node]] = {}
        self.outcomes: dict[Node, bytes | None] = {}  # None: it failed
        self.ended_here: set[Node] = set()
        self.held: dict[int, dict[int, Assign]] = {}
        self.runs = self.workers = 0
        self.cancels = random.randint(0, 3)
        self.wilful = 0.1 * random.randint(0, 3)
        jobs = "abcd"[: random.randint(1, 4)]
        order: list[Node] = []
        for name in jobs:
            for task in range(random.randint(1, 8)):
                order.append((name, task))
        random.shuffle(order)
        order.sort(key=lambda node: (node[1] + random.randint(0, 2), node[0]))
        for at, node in enumerate(order):
            most = min(at, random.choice([0, 1, 1, 2, 5]))
            self.inputs[node] = random.sample(order[:at], most)
            before = node[0], node[1] - 1
            if before in self.inputs and random.random() < 0.6:
                self.inputs[node] = [before]
        self.sizes = {name: sum(node[0] == name for node in order) for name in jobs}
        for name in random.sample(jobs, len(jobs)):
            self.heed(self.do(events.JobOpened(CLIENT, name, spec(retries=random.randint(0, 1)))))
        self.unsent = random.sample(sorted(self.inputs), len(self.inputs))

    # --- the client ----------------------------------------------------------------------------

    def send(self, node: Node) -> None:
        """Send a call with the present values of its inputs; end it if one of them has failed."""
        found: list[bytes | tuple[str, int, int]] = []
        for name, task in self.inputs[node]:
            value = self.outcomes.get((name, task), b"")
            if value is None:
                self.end(node, None)
                self.ended_here.add(node)
                return
            found.append(value or (name, task, task + 1))
        call = with_inputs(PICKLE, [], found) if found else PICKLE
        self.heed(self.do(events.TasksArrived(CLIENT, *node, [call], inputs=bool(found))))

    def end(self, node: Node, value: bytes | None) -> None:
        assert node not in self.outcomes, f"{node} ends twice"
        self.outcomes[node] = value

    def heed(self, effects: list) -> None:
        again: list[Node] = []
        for effect in effects:
            match effect:
                case SendToClient(_, Results() as told):
                    failed = {int(row[0]) for row in told.failures}
                    for at, value in enumerate(told.values):
                        self.end((told.job, told.first + at), None if at in failed else value)
                case SendToClient(_, Dropped() as told):
                    for low, high in told.ranges:
                        for task in range(low, high):
                            self.end((told.job, task), None)
                case SendToClient(_, SendAgain() as told):
                    again += [
                        (told.job, at) for low, high in told.ranges for at in range(low, high)
                    ]
                case SendToWorker(worker, Assign() as order):
                    self.begin(worker, order)
                case SendToWorker(worker, Recall() as recall):
                    self.recalled(worker, recall)
        for node in again:
            self.send(node)

    # --- the workers ---------------------------------------------------------------------------

    def begin(self, worker: int, order: Assign) -> None:
        assert worker % 2 or not order.chained, "a worker that runs no chains gets one"
        for at, call in enumerate(order.arguments):
            node = order.job, order.first + at
            wanted = [
                (*each, each[1] + 1)
                if order.chained and at and each == (order.job, order.first + at - 1)
                else self.outcomes.get(each)
                for each in self.inputs[node]
            ]
            given = list(read_head(call).inputs) if self.inputs[node] else []
            assert None not in wanted, f"{node} begins before its inputs have ended with a value"
            assert given == wanted, f"{node} reads another outcome than its client"
            RandomGraph.chained += bool(order.chained and at)
        self.held[worker][order.assignment] = order

    def recalled(self, worker: int, recall: Recall) -> None:
        if recall.assignment in self.held.get(worker, {}):  # all of it has started
            self.heed(self.do(events.HandedBack(worker, recall.assignment, ())))

    def report(self, worker: int) -> None:  # type: ignore[override]
        number, order = self.random.choice(list(self.held[worker].items()))
        del self.held[worker][number]
        self.now_s += 1
        values, failures = [], []
        count = len(order.arguments)
        if order.chained and self.random.random() < 0.5:
            count = self.random.randint(0, count)  # its slot was lost then, or stopped there
        for at in range(count):
            self.runs += 1
            values.append(b"%s%d run %d" % (order.job.encode(), order.first + at, self.runs))
            if self.random.random() < self.wilful:
                values[-1] = b""
                failures.append([at, "error", "ValueError: bad", b""])
                if order.chained:
                    break
        usage = {"wall_ns": 1_000_000 * len(values), "cpu_ns": 1_000}
        told = events.Reported(worker, number, order.first, values, failures, **usage)  # type: ignore[arg-type]
        if values:
            self.heed(self.do(told))
        rest = order.first + len(values), order.first + len(order.arguments)
        if rest[0] < rest[1]:
            self.heed(self.do(events.HandedBack(worker, number, (rest,))))

    def lose(self, worker: int) -> None:
        for number, order in list(self.held[worker].items()):
            begun = events.TasksBegun(worker, ((number, order.first, 0.1),))
            self.heed(self.do(begun))
        del self.held[worker]
        self.now_s += 700
        self.heed(self.do(events.WorkerGone(worker, "lost")))

    # --- a run ---------------------------------------------------------------------------------

    def step(self) -> None:
        random = self.random
        if self.unsent and random.random() < 0.5:
            self.send(self.unsent.pop())
        elif len(self.held) < 2 and random.random() < 0.3:
            worker = 10 + self.workers
            self.workers += 1
            self.held[worker] = {}
            joined = events.WorkerJoined(
                worker,
                f"w{worker}",
                "local",
                2,
                {},
                "3.11",
                takes_inputs=True,
                runs_chains=bool(worker % 2),
            )
            self.heed(self.do(joined))
        elif random.random() < 0.05 and self.held:
            self.lose(random.choice(list(self.held)))
        elif random.random() < 0.05 and self.cancels:
            self.cancels -= 1
            name, task = random.choice(sorted(self.inputs))
            self.heed(self.do(events.CancelAsked(CLIENT, 0, name, ((task, task + 1),), False)))
            self.note_cancel(name, task)
        else:
            busy = [worker for worker, held in self.held.items() if held]
            if busy:
                self.report(random.choice(busy))
        self.now_s += random.choice([0.1, 5])
        if random.random() < 0.1:
            self.heed(self.do(events.Ticked()))

    def note_cancel(self, name: str, task: int) -> None:
        """End a call that was taken back: the answer to a cancel tells its client, no message."""
        job = self.broker.jobs.get(name)
        node = name, task
        if node in self.unsent:
            self.unsent.remove(node)
            self.end(node, None)
            self.ended_here.add(node)
        elif job is not None and task in job.cancels and node not in self.outcomes:
            self.end(node, None)

    def run(self) -> None:
        for _ in range(1_000):
            if not self.unsent and len(self.outcomes) == len(self.inputs):
                break
            self.step()
        missing = sorted(set(self.inputs) - set(self.outcomes))
        assert not missing, f"these never end: {missing}"
        for name, size in self.sizes.items():
            here = sorted(task for job, task in self.ended_here if job == name)
            elsewhere = tuple((task, task + 1) for task in here)
            self.heed(self.do(events.JobClosed(CLIENT, name, size, elsewhere)))
        for worker in list(self.held):
            while self.held[worker]:
                self.report(worker)
        assert not self.broker.jobs
        assert self.broker.graphs.values_bytes == 0
        assert not self.broker.graphs.waiting_jobs()


def test_the_invariants_hold_in_random_graphs():
    ends = {"value": 0, "failure": 0}
    RandomGraph.chained = 0
    for seed in range(SEEDS):
        world = RandomGraph(seed)
        world.run()
        for value in world.outcomes.values():
            ends["failure" if value is None else "value"] += 1
    assert min(ends.values()) > SEEDS  # both are tried
    assert RandomGraph.chained > SEEDS / 3


def _found() -> bool:
    for seed in range(SEEDS):
        try:
            RandomGraph(seed).run()
        except Exception:
            return True
    return False


def _one_too_early(self, span, edge, low, high, *, before=TaskGraph._count):
    found = before(self, span, edge, low, high)
    if span.shared == 1 and len(found) == 0:
        span.shared = 0
        return range(span.stop - span.first)
    return found


def _without_what_is_behind(self, job, ranges, cause, *, before=TaskGraph.failed):
    return before(self, job, ranges, cause)[:1]


def _nothing_falls(self, job, ranges, cause):
    return []


def _forgets_values(self, job, first, values, *, before=TaskGraph.ended):
    return before(self, job, first, [b"another"] * len(values))


def _never_ready(self, spans, touched, *, before=TaskGraph._take_ready):
    found = before(self, spans, touched)
    return found[1:] if len(found) > 1 else found


def _stays_away(self, job, first, stop):
    return [], []


def _rides_for_ever(self, job, first, stop):
    return 0


def _rides_behind_anything(self, job, task, most):
    for number in range(most):
        found = self._spans.find(job, task + number + 1, task + number + 2)
        found = [each for each in found if each.first <= task + number + 1 < each.stop]
        if not found or found[0].gone[task + number + 1 - found[0].first]:
            return number
        found[0].gone[task + number + 1 - found[0].first] = core.RIDES
    return most


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("_count", _one_too_early),
        ("failed", _without_what_is_behind),
        ("failed", _nothing_falls),
        ("ended", _forgets_values),
        ("_take_ready", _never_ready),
        ("came_back", _stays_away),
        ("follow", _rides_behind_anything),
        ("rode", _rides_for_ever),
    ],
)
def test_planted_bugs_are_found(monkeypatch, name, bug):
    monkeypatch.setattr(TaskGraph, name, bug)
    assert _found()
