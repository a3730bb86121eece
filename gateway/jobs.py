"""The broker's picture of jobs, assignments and workers: data, and the moves that keep it whole.

A task is in exactly one place: in its job's queue (part of a `Run`), in an `Assignment` at a
worker, or ended. A million queued tasks are a few hundred runs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from federation.offers import show_time
from federation.ranges import Range, RangeSet
from gateway.credits import Credits
from gateway.events import MEMORY_BYTES_MAX, Drainer, JobRecovered, JobSpec
from gateway.ledger.records import UsageRecord
from policies.budgets import Purse
from policies.entitlements import Work
from policies.fairness import Node
from policies.parties import Whose
from policies.placement import Need, Offer, Refusal
from policies.tariffs import Tariff

# From here on a slot gets no task ahead: the wait for the next one is lost in its duration.
AHEAD_MAX_S: Final = 0.2
# For another site's slots that wait is a round trip: this much longer tasks go ahead to them.
AHEAD_TRIPS: Final = 20
# What ran and was charged may run again for nothing, when its client or we were lost: so many times
# the wall time that was paid, in all, and a little more.
REPEATS_MAX: Final = 3
REPEAT_MIN_NS: Final = 10**9
NOTES_MAX: Final = 20  # of a job, the latest
ALL_TASKS: Final = 1 << 62  # a task number past every job's end
EVERY_TASK: Final = RangeSet([(0, ALL_TASKS)])


@dataclass(slots=True, weakref_slot=True)
class Account:
    """What somebody's attached jobs hold: bytes of arguments, and tasks, as they come and go."""

    held_bytes: int = 0
    tasks: int = 0


@dataclass(slots=True)
class Run:
    """A contiguous stretch of waiting tasks that share a history.

    `attempt` is 1 for tasks that never started. `losses` counts the workers that were lost with
    them, of those that don't say what has begun. `alone` tasks are sent one by one, to find out
    which of them takes its slot or its worker down. Of `is_wary` ones a worker tells that they
    begin before they do. Until `shuns_until_s` (UTC) they go to none of the places in `shuns`,
    where they were lost, if another worker can take them.
    """

    first: int
    arguments: list[bytes]
    size: int  # bytes of the arguments; of a part, its share
    attempt: int = 1
    losses: int = 0
    alone: bool = False
    is_wary: bool = False
    shuns: frozenset[str] = frozenset()
    shuns_until_s: float = 0.0

    @property
    def stop(self) -> int:
        """The number after its last task's."""
        return self.first + len(self.arguments)

    def cut(self, first: int, stop: int) -> "Run":
        """The part [first, stop) of this run."""
        part = self.arguments[first - self.first : stop - self.first]
        size = self.size * len(part) // max(1, len(self.arguments))
        return Run(
            *(first, part, size, self.attempt, self.losses, self.alone),
            *(self.is_wary, self.shuns, self.shuns_until_s),
        )


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
    tariff: Tariff  # in force when it was made
    recalled: bool = False  # a recall is under way, or found nothing to take
    recalls: int = 0  # that have not been answered
    is_stopped: bool = False  # its tasks are killed because their client left, who may come back
    holds: tuple[tuple[Purse, int], ...] = ()  # what is held for each of its tasks, and where
    held_ns: int = 0  # expected of each of its tasks, where slots are shared out
    begun: dict[int, float] = field(default_factory=dict)  # tasks that have begun, and when (UTC)


@dataclass(slots=True)
class Worker:
    """A worker as the broker sees it."""

    handle: int
    name: str
    offer: Offer
    slots: int
    tariff: Tariff | None  # of a contract; for work in our own pools the broker knows
    free: dict[str, int | float]  # counted tags not held by a task
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_s: float = 0.0  # estimated slot-seconds of what it holds
    ahead_s: float = 0.0  # of them, of tasks so short that they are queued ahead
    long: int = 0  # the other tasks: one in a slot
    given_s: float = 0.0  # when they were given to it, added up; UTC
    held_bytes: int = 0  # of arguments, until the last of an assignment is done
    draining: bool = False  # somebody has asked for it, …
    drained_by: set[Drainer] = field(default_factory=set)  # … namely these
    preparing: frozenset[bytes] = frozenset()  # functions whose environment it is making
    tasks_done: int = 0
    verdicts: dict[Need, Refusal | None] = field(default_factory=dict)
    job: str = ""  # a contract is for this job alone
    round_trip_s: float = 0.0
    is_funded: bool = False  # what such a contract may cost is held for it as a whole
    grid_id: str = ""  # its grid's own name for it, where a grid runs it
    ends_s: float | None = None  # UTC, when its grid will stop it
    memory_bytes: int = MEMORY_BYTES_MAX  # of its host
    tells_begun: bool = False  # whether it says which tasks have begun
    token: str = ""  # by which it came, if it came by one: its id
    trial: int | None = None  # how many tasks it may have, as it was lost lately; None: as fit

    @property
    def title(self) -> str:
        """What books and people call it: its name, and its grid's."""
        return f"{self.name} = {self.grid_id}" if self.grid_id else self.name

    @property
    def place(self) -> str:
        """What it is known by after it has left, or a contract has ended: itself, or a pool."""
        return self.offer.pool if self.job else self.offer.name

    @property
    def ahead_max_s(self) -> float:
        """From what duration on its slots get no task ahead."""
        return AHEAD_MAX_S + AHEAD_TRIPS * self.round_trip_s

    def left_s(self, now_s: float) -> float:
        """Estimated slot-seconds that are left of what it holds.

        Of tasks that fill a slot each, less what they have had; who knows how long those go on that
        are over their time: an eighth of them all is always left.
        """
        long_s = self.load_s - self.ahead_s
        return self.load_s - min(max(0.0, self.long * now_s - self.given_s), 7 / 8 * long_s)

    def hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or, negative, fewer) of an assignment's."""
        self.in_flight += tasks
        self.load_s = max(0.0, self.load_s + tasks * assignment.task_s)
        if assignment.task_s >= self.ahead_max_s:
            self.long += tasks
            self.given_s = self.given_s + tasks * assignment.given_s if self.long else 0.0
        else:
            self.ahead_s = max(0.0, self.ahead_s + tasks * assignment.task_s)
        if self.job:
            return  # what another site's workers carry is for that site to count
        for name, amount in assignment.job.counted.items():
            # Rounded, or tenths would add up to something less than one.
            self.free[name] = round(self.free[name] - amount * tasks, 9)


# Of the task's user; of somebody else; of nobody that can be told from others who were there.
Doing = Literal["own", "others", "shared"]


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that was lost while a task ran there.

    `doing`: whose it is taken for.
    """

    worker: str
    place: str
    utc_s: float
    reason: str
    doing: Doing

    def __str__(self) -> str:
        return f"{self.worker} at {show_time(self.utc_s)} ({self.reason})"


@dataclass(slots=True)
class Strikes:
    """What has gone wrong with one task so far.

    `owed_ns` is, of work sold, the slot time of runs that ended with their workers, and that is to
    be delivered with the next; `lost_under` is what the last of them was assigned by.
    """

    failures: int = 0
    crashes: int = 0
    losses: list[Loss] = field(default_factory=list)
    owed_ns: int = 0
    lost_under: Assignment | None = None


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
    purses: tuple[Purse, ...] = ()  # that it is paid from
    queue: deque[Run] = field(default_factory=deque)
    waiting: int = 0
    account: Account = field(default_factory=Account)
    held_bytes: int = 0  # of arguments, waiting or at workers; about right
    owed_tasks: int = 0  # kept up to here, and not acknowledged yet
    owed_bytes: int = 0  # of them
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_nanos: float = 0.0  # what its tasks that are with workers will cost, as estimated
    served: int = 0  # the last assignment made of it
    known: RangeSet = field(default_factory=RangeSet)  # tasks that arrived
    ended: RangeSet = field(default_factory=RangeSet)
    stopping: RangeSet = field(default_factory=RangeSet)  # of work sold: its buyer had it stopped
    failures: RangeSet = field(default_factory=RangeSet)  # of what ended
    cancels: RangeSet = field(default_factory=RangeSet)  # of what ended
    charged: RangeSet = field(default_factory=RangeSet)  # should they run once more, it is free
    attempt: int = 1  # of tasks that arrive from now on
    attempt_max: int = 0  # on any usage record of it
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    interrupted: int = 0  # killed because their client left: cancelled, unless it comes back
    total: int | None = None
    strikes: dict[int, Strikes] = field(default_factory=dict)
    costs_nanos: dict[str, int] = field(default_factory=dict)  # by currency
    prices_nanos: dict[str, int] = field(default_factory=dict)  # the last of each currency
    wall_ns: int = 0
    cpu_ns: int = 0
    outran_s: float = 0.0  # the longest run of a task of it that was stopped for its money
    repeat_ns: int = 0  # of it, of what ran again for nothing
    credits: Credits = field(default_factory=Credits)  # what wasted runs have paid
    is_shunning: bool = False  # runs in its queue may shun workers
    is_struck: bool = False  # a task of it was given up for the workers that were lost under it
    is_spent: bool = False  # it has cost what it may: workers were asked for what has not begun
    unmet: str = ""  # why not all of it can be done within its limits
    given_up: str = ""  # the failure that what has not begun of it ends with
    leaving: str = ""  # the state it will end in, once nothing is in flight
    reason: str = ""
    may_repeat: bool = False  # its client came back without some of its results
    # Pools that may take its tasks, and how many each; None: all, as many as they like.
    places: dict[str, float] | None = None
    lacks_function_since_s: float | None = None
    unfit: set[str] = field(default_factory=set)  # workers that can't make what it is to run in
    orphan_since_s: float | None = None  # a detached job whose client left before closing it
    leaf: Node | None = None  # of the tree of shares, where slots are shared out
    terms: object = None  # as gateway.queueing knows them
    notes: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=NOTES_MAX))
    whose: Whose = field(init=False)  # as its spec says, like the next: they are asked for often
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.work = self.spec.work
        self.whose = self.work.whose

    def note(self, utc_s: float, text: str) -> None:
        """Keep what befell it, for whoever asks why it is not done yet."""
        self.notes.append((utc_s, text))

    def enqueue(self, run: Run, *, ahead: bool = False) -> None:
        """Queue a run; retried and returned work goes ahead of new work."""
        if not run.arguments:
            return
        if ahead:
            self.queue.appendleft(run)
        else:
            self.queue.append(run)
        self.waiting += len(run.arguments)
        self.hold_bytes(run.size)

    def hold_bytes(self, size: int) -> None:
        """Account for arguments that came or, negative, are let go of."""
        size = max(size, -self.held_bytes)
        self.held_bytes += size
        self.account.held_bytes += size

    def move_to(self, account: Account) -> None:
        """Have somebody else answer for its bytes."""
        self.account.held_bytes -= self.held_bytes
        self.account = account
        account.held_bytes += self.held_bytes

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
        self.queue[0].size = run.size - taken.size
        return taken

    def withdraw(self, wanted: RangeSet | None = None) -> list[Range]:
        """Take tasks out of the queue, all when none are named; return which they were."""
        runs = self.extract(EVERY_TASK if wanted is None else wanted)
        return [(run.first, run.stop) for run in runs]

    def extract(self, wanted: RangeSet) -> list[Run]:
        """Take tasks out of the queue, with their arguments.

        In one pass, however many ranges are wanted: whoever asks may name a hundred thousand.
        """
        taken: list[Run] = []
        kept: deque[Run] = deque()
        for run in self.queue:
            at = run.first
            for low, high in wanted.within(run.first, run.stop):
                if at < low:
                    kept.append(run.cut(at, low))
                taken.append(run.cut(low, high))
                at = high
            if at == run.first:
                kept.append(run)
            elif at < run.stop:
                kept.append(run.cut(at, run.stop))
        self.queue = kept
        for run in taken:
            self.waiting -= len(run.arguments)
            self.hold_bytes(-run.size)
        return taken

    def assigned(self, wanted: RangeSet) -> Iterator[tuple[Assignment, list[Range]]]:
        """The assignments that hold unreported tasks of some ranges, and which, by range."""
        for assignment in list(self.assignments.values()):
            left = list(assignment.left)
            for first, stop in wanted.within(left[0][0], left[-1][1]) if left else ():
                parts = assignment.left.within(first, stop)
                if parts:
                    yield assignment, parts

    @property
    def limited_nanos(self) -> int:
        """What it has cost in the currency of its cost limit."""
        return self.costs_nanos.get(self.spec.currency or "", 0)

    @property
    def has_money(self) -> bool:
        """Whether it has cost less than it may."""
        limit = self.spec.max_cost_nanos
        return limit is None or self.limited_nanos < limit

    @property
    def committed_nanos(self) -> int:
        """That, and what is with workers now, by the estimate."""
        return self.limited_nanos + round(self.load_nanos)

    @property
    def is_at_limit(self) -> bool:
        """Whether its cost limit allows no further task now, with what is out."""
        limit = self.spec.max_cost_nanos
        return limit is not None and self.committed_nanos >= limit

    @property
    def open_pools(self) -> frozenset[str] | None:
        """The pools that its plan gives tasks to; None: all."""
        if self.places is None:
            return None
        return frozenset(pool for pool, tasks in self.places.items() if tasks >= 1)

    def may_repeat_free(self, wall_ns: int) -> bool:
        """Whether tasks that were charged may run so long once more for nothing.

        Nobody compares what they are sent to do with what they did, so what runs free is bounded
        by what was paid.
        """
        paid_ns = self.wall_ns - self.repeat_ns
        return self.repeat_ns + wall_ns <= REPEATS_MAX * paid_ns + REPEAT_MIN_NS

    def charge(self, record: UsageRecord) -> None:
        """Add what a report used; of what ended with its worker nothing but its attempt."""
        self.attempt_max = max(self.attempt_max, record.attempt)
        if record.state == "lost":
            return
        self.credits.book(record)
        currency = record.currency
        self.costs_nanos[currency] = self.costs_nanos.get(currency, 0) + record.charged_nanos
        self.prices_nanos[currency] = record.price_nanos
        self.wall_ns += record.wall_ns
        if record.state == "repeat":
            self.repeat_ns += record.wall_ns
        self.cpu_ns += record.cpu_ns

    def reopen(self, first: int, stop: int) -> None:
        """Let tasks of [first, stop) that ended run again: their results never arrived.

        Those that were charged are not charged again. Every usage record of a task has an attempt
        of its own. What is being stopped at a worker is still there: it is not queued a second
        time, but tried again once it has been stopped.
        """
        held = RangeSet()
        for assignment, parts in self.assigned(RangeSet([(first, stop)])):
            for part in parts:
                if self.ended.within(*part):
                    assignment.is_stopped = True
                    held.add(*part)
        for low, high in self.ended.within(first, stop):
            failed, cancelled = _count(self.failures, low, high), _count(self.cancels, low, high)
            self.failed -= failed
            self.cancelled -= cancelled
            # Less what ended elsewhere, and was never counted here.
            self.done = max(0, self.done - (high - low - failed - cancelled))
            for tasks in (self.ended, self.failures, self.cancels):
                tasks.remove(low, high)
            for start, end in held.missing(low, high):
                self.known.remove(start, end)
            self.attempt = self.attempt_max + 1

    def begin_attempt(self) -> None:
        """What is sent again from now on has an attempt above all that ran, or may still be run."""
        runs = [run.attempt for run in self.queue]
        runs += [each.run.attempt for each in self.assignments.values()]
        self.attempt = max([self.attempt_max, *runs]) + 1

    def take_up(self, history: JobRecovered) -> None:
        """Begin with what is known of its time before."""
        self.charged = RangeSet(history.charged)
        self.costs_nanos, self.prices_nanos = dict(history.costs_nanos), dict(history.prices_nanos)
        self.wall_ns, self.cpu_ns = history.wall_ns, history.cpu_ns
        self.repeat_ns = history.repeat_ns
        self.credits = Credits(history.credits)
        self.attempt_max = history.attempt_max
        self.attempt = history.attempt_max + 1

    def history(self) -> JobRecovered:
        """What was charged, for the day when its client comes back."""
        return JobRecovered(
            job=self.id,
            spec=None,
            total=None,
            ended=(),
            failed=0,
            cancelled=0,
            charged=tuple(self.charged),
            costs_nanos=dict(self.costs_nanos),
            wall_ns=self.wall_ns,
            cpu_ns=self.cpu_ns,
            prices_nanos=dict(self.prices_nanos),
            attempt_max=self.attempt_max,
            repeat_ns=self.repeat_ns,
            credits=self.credits.left(),
            function=self.spec.function,
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do, and nothing more will come."""
        if self.in_flight:
            return False
        if self.leaving:
            return True
        return self.total is not None and len(self.ended) >= self.total


def _count(tasks: RangeSet, first: int, stop: int) -> int:
    return sum(high - low for low, high in tasks.within(first, stop))
