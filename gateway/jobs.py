"""The broker's picture of jobs, assignments and workers: data, and the moves that keep it whole.

A task is in exactly one place: in its job's queue (part of a `Run`), in an `Assignment` at a
worker, or ended. A million queued tasks are a few hundred runs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from federation.ranges import Range, RangeSet
from gateway.events import JobRecovered, JobSpec
from policies.placement import Need, Offer, Refusal
from policies.tariffs import Tariff


@dataclass(slots=True)
class Run:
    """A contiguous stretch of waiting tasks that share a history.

    `attempt` is 1 for tasks that never started; `losses` counts the workers lost under them;
    `alone` tasks are sent one by one, to find out which of them takes its worker down.
    """

    first: int
    arguments: list[bytes]
    size: int  # bytes of the arguments; of a part, its share
    attempt: int = 1
    losses: int = 0
    alone: bool = False

    @property
    def stop(self) -> int:
        """The number after its last task's."""
        return self.first + len(self.arguments)

    def cut(self, first: int, stop: int) -> "Run":
        """The part [first, stop) of this run."""
        part = self.arguments[first - self.first : stop - self.first]
        size = self.size * len(part) // max(1, len(self.arguments))
        return Run(first, part, size, self.attempt, self.losses, self.alone)


@dataclass(slots=True)
class Assignment:
    """Tasks that a worker has. `left` are those it has neither reported nor handed back."""

    id: int
    job: "Job"
    worker: "Worker"
    run: Run
    task_s: float  # the duration estimated when it was made
    given_s: float
    left: RangeSet
    recalled: bool = False  # a recall is under way, or found nothing to take
    abandoned: bool = False  # it was stopped because its client had gone, whoever comes back


@dataclass(slots=True)
class Worker:
    """A worker as the broker sees it."""

    handle: int
    name: str
    offer: Offer
    slots: int
    tariff: Tariff
    joined_s: float
    free: dict[str, int | float]  # counted tags not held by a task
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_s: float = 0.0  # estimated slot-seconds of what it holds
    draining: bool = False
    tasks_done: int = 0
    verdicts: dict[Need, Refusal | None] = field(default_factory=dict)
    job: str = ""  # a contract is for this job alone
    round_trip_s: float = 0.0

    def hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or, negative, fewer) of an assignment's."""
        self.in_flight += tasks
        self.load_s = max(0.0, self.load_s + tasks * assignment.task_s)
        if self.job:
            return  # what another site's workers carry is for that site to count
        for name, amount in assignment.job.counted.items():
            # Rounded, or tenths would add up to something less than one.
            self.free[name] = round(self.free[name] - amount * tasks, 9)


@dataclass(slots=True)
class Strikes:
    """What has gone wrong with one task so far."""

    failures: int = 0
    crashes: int = 0


@dataclass(slots=True)
class Job:
    """A job that has not ended. `client` owns an attached one; 0 means nobody does now."""

    id: str
    spec: JobSpec
    client: int
    number: int
    opened_s: float
    need: Need
    counted: dict[str, int | float]
    queue: deque[Run] = field(default_factory=deque)
    waiting: int = 0
    held_bytes: int = 0  # of arguments, waiting or at workers; about right
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_s: float = 0.0
    known: RangeSet = field(default_factory=RangeSet)  # tasks that arrived
    ended: RangeSet = field(default_factory=RangeSet)
    charged: RangeSet = field(default_factory=RangeSet)  # before a restart or a lost client
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int | None = None
    strikes: dict[int, Strikes] = field(default_factory=dict)
    cost_nanos: int = 0
    currency: str = ""
    price_nanos: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    leaving: str = ""  # the state it will end in, once nothing is in flight
    reason: str = ""
    may_repeat: bool = False  # its client came back without some of its results
    # Pools that may take its tasks, and how many each; None: all, as many as they like.
    places: dict[str, float] | None = None
    orphan_since_s: float | None = None  # a detached job whose client left before closing it

    def enqueue(self, run: Run, *, ahead: bool = False) -> None:
        """Queue a run; retried and returned work goes ahead of new work."""
        if not run.arguments:
            return
        if ahead:
            self.queue.appendleft(run)
        else:
            self.queue.append(run)
        self.waiting += len(run.arguments)
        self.held_bytes += run.size

    def take(self, tasks_max: int, bytes_max: int) -> Run:
        """Take up to so many tasks (at least one) off the head of the queue."""
        run = self.queue[0]
        tasks = min(1 if run.alone else tasks_max, len(run.arguments))
        while tasks > 1 and run.size > bytes_max < sum(map(len, run.arguments[:tasks])):
            tasks = (tasks + 1) // 2
        self.waiting -= tasks
        if tasks == len(run.arguments):
            return self.queue.popleft()
        taken = run.cut(run.first, run.first + tasks)
        # Cutting the head off a long list copies the rest; a job's runs are bundles as they
        # arrived, so the rest is short.
        self.queue[0] = run.cut(run.first + tasks, run.stop)
        return taken

    def withdraw(self, first: int, stop: int) -> list[Range]:
        """Take the queued tasks of [first, stop) out of the queue; return which they were."""
        taken = []
        kept: deque[Run] = deque()
        for run in self.queue:
            low, high = max(first, run.first), min(stop, run.stop)
            if low >= high:
                kept.append(run)
                continue
            taken.append((low, high))
            self.waiting -= high - low
            self.held_bytes = max(0, self.held_bytes - run.cut(low, high).size)
            kept.extend(
                part
                for part in (run.cut(run.first, low), run.cut(high, run.stop))
                if part.arguments
            )
        self.queue = kept
        return taken

    def extract(self, first: int, stop: int) -> list[Run]:
        """Take the queued tasks of [first, stop) out of the queue, with their arguments."""
        taken = [
            run.cut(max(first, run.first), min(stop, run.stop))
            for run in self.queue
            if max(first, run.first) < min(stop, run.stop)
        ]
        self.withdraw(first, stop)
        return taken

    def assigned(self, first: int, stop: int) -> Iterator[tuple[Assignment, list[Range]]]:
        """The assignments that hold unreported tasks of [first, stop), and which."""
        for assignment in list(self.assignments.values()):
            ranges = assignment.left.within(first, stop)
            if ranges:
                yield assignment, ranges

    def history(self) -> JobRecovered:
        """What was charged, for the day when its client comes back."""
        charged = RangeSet(self.charged)
        for first, stop in self.ended:
            charged.add(first, stop)
        return JobRecovered(
            job=self.id,
            spec=None,
            total=None,
            ended=(),
            failed=0,
            cancelled=0,
            charged=tuple(charged),
            cost_nanos=self.cost_nanos,
            wall_ns=self.wall_ns,
            cpu_ns=self.cpu_ns,
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do, and nothing more will come."""
        if self.in_flight:
            return False
        if self.leaving:
            return True
        return self.total is not None and len(self.ended) >= self.total
