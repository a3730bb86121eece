"""The broker's model of jobs, assignments and workers: data, and updates that keep it consistent.

A task is in exactly one place: in its job's queue (part of a `QueuedBundle`), in an `Assignment` at
a worker, or ended. A million queued tasks are a few hundred runs.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from federation.clocks import UtcS
from federation.objects.labels import DataLabel
from federation.offers import show_time
from federation.ranges import Range, RangeSet
from federation.words import headline
from gateway.base.tags import OBJECTS_TAG
from gateway.ledger.db.usage.records import (
    REPEAT_MIN_NS,
    REPEATS_MAX,
    UsageRecord,
    is_for_its_user,
)
from gateway.scheduler.model.events import MEMORY_BYTES_MAX, Drainer, JobRecovered
from gateway.scheduler.model.paid_time import PaidTimes
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.model.terms import JobSpec
from policies.access.entitlements import Work
from policies.access.fairness import ShareNode
from policies.costs.budgets import BudgetAccount
from policies.parties import Owner
from policies.placement.placement import CapacityOffer, Need, Refusal
from policies.tariffs import Tariff

# Tasks of this duration or longer are not queued ahead at a slot: waiting for the next one is
# negligible against its duration.
AHEAD_MAX_S: Final = 0.2
# At another site's slots that wait is a round trip, so the limit rises by this many round trips.
AHEAD_TRIPS: Final = 20
# A task that was stopped for its cost is expected to take, and to cost, this many times its run so
# far. Each further contract is then granted more, or its job is found to be too expensive.
OUTRAN_FACTOR: Final = 2.0
NOTES_MAX: Final = 20  # notes of a job that are kept, the latest
ALL_TASKS: Final = 1 << 62  # a task number past every job's end
EVERY_TASK: Final = RangeSet([(0, ALL_TASKS)])


@dataclass(slots=True, weakref_slot=True)
class AttachedLoad:
    """The bytes of arguments and the number of tasks that one party's attached jobs hold."""

    held_bytes: int = 0
    tasks: int = 0


@dataclass(slots=True)
class QueuedBundle:
    """A contiguous range of waiting tasks with the same history.

    `attempt` is 1 for tasks that never started. `losses` counts the workers that were lost with
    these tasks, of those workers that don't report which tasks have begun, and `late_losses` those
    of them that were lost when this gateway was late. `alone` tasks are sent
    one by one, to find the one that crashes its slot or worker. For `is_wary` tasks a worker
    reports the start before they start. Until `shuns_until_s` (UTC) the tasks go to none of the
    places in `shuns`, where they were lost, if another worker can take them.
    """

    first: int
    arguments: list[bytes]
    size: int  # bytes of the arguments; for a part of a run, its share
    attempt: int = 1
    losses: int = 0
    alone: bool = False
    is_wary: bool = False
    shuns: frozenset[str] = frozenset()
    shuns_until_s: UtcS = UtcS(0.0)
    late_losses: int = 0
    depth: int = 0  # in its graph: how many tasks are before it
    is_chain: bool = False  # of the whole run: each task reads the result of the one before

    @property
    def stop(self) -> int:
        """The number after that of its last task."""
        return self.first + len(self.arguments)

    def cut(self, first: int, stop: int) -> "QueuedBundle":
        """Return the part [first, stop) of this run."""
        part = self.arguments[first - self.first : stop - self.first]
        size = self.size * len(part) // max(1, len(self.arguments))
        return QueuedBundle(
            *(first, part, size, self.attempt, self.losses, self.alone),
            *(self.is_wary, self.shuns, self.shuns_until_s, self.late_losses, self.depth),
        )


@dataclass(slots=True)
class Assignment:
    """Tasks that a worker has. `left` are the tasks that it has neither reported nor returned."""

    id: int
    job: "Job"
    worker: "Worker"
    run: QueuedBundle
    task_s: float  # the duration estimated when it was made
    given_at_s: UtcS
    left: RangeSet
    tariff: Tariff  # in force when it was made
    recalled: bool = False  # a recall is in progress, or found nothing to take
    recalls: int = 0  # unanswered recalls
    is_stopped: bool = False  # its tasks are killed because their client left; it may return
    told: RangeSet | None = None  # tasks that this gateway has told to make room, even if withdrawn
    holds: tuple[
        tuple[BudgetAccount, int], ...
    ] = ()  # budgets, and the amount held in each for one task
    held_ns: int = 0  # expected duration of each task, where slots are shared out
    begun: dict[int, UtcS] = field(default_factory=dict)  # tasks that have begun, and when (UTC)
    reported_ns: int = 0  # the slot time of those of its tasks that have ended


@dataclass(slots=True)
class Worker:
    """A worker as the broker sees it."""

    handle: int
    name: str
    offer: CapacityOffer
    slots: int
    tariff: Tariff | None  # a contract's tariff; the broker knows those of our own pools
    free: dict[str, int | float]  # counted tags not held by a task
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_s: float = 0.0  # estimated slot-seconds of its tasks
    ahead_s: float = 0.0  # the part of `load_s` of tasks short enough to be queued ahead
    long: int = 0  # the other tasks: one in each slot
    given_s: float = 0.0  # the sum of the times (UTC) when the long tasks were assigned
    held_bytes: int = 0  # of arguments, until the last task of an assignment is done
    draining: bool = False  # a drain was requested, …
    drained_by: set[Drainer] = field(default_factory=set)  # … by these
    preparing: frozenset[bytes] = frozenset()  # functions whose environment it is preparing
    tasks_done: int = 0
    verdicts: dict[Need, Refusal | None] = field(default_factory=dict)
    job: str = ""  # the only job that a contract is for
    round_trip_s: float = 0.0
    is_funded: bool = False  # the cost limit of such a contract is held for it as a whole
    grid_id: str = ""  # its grid's own name for it, where a grid runs it
    ends_at_s: UtcS | None = None  # UTC, when its grid will stop it
    memory_bytes: int = MEMORY_BYTES_MAX  # of its host
    tells_begun: bool = False  # whether it reports which tasks have begun
    tells_output: bool = False  # whether it sends the output of tasks while they run
    runs_chains: bool = False  # whether calls may read results of tasks of their assignment
    token: str = ""  # the id of the token by which it joined, if any
    host: str = ""  # the name of its host, as it states it; empty: unknown
    trial: int | None = None  # the tasks that it may have after a recent loss; None: no such limit
    port: PortKind = PortKind.WORKER
    # Its place among workers of equal load, least first: the slots of contracts before our own, the
    # latest contract before the others.
    rank: int = field(init=False)

    def __post_init__(self) -> None:
        self.rank = -self.handle if self.port is PortKind.PEER else self.handle

    @property
    def title(self) -> str:
        """The name shown in books and to people: its own name and its grid's."""
        return f"{self.name} = {self.grid_id}" if self.grid_id else self.name

    @property
    def place(self) -> str:
        """The name that stays after it has left or its contract has ended: its own, or a pool's."""
        return self.offer.pool if self.job else self.offer.name

    @property
    def ahead_max_s(self) -> float:
        """The duration from which on no task is queued ahead at its slots."""
        return AHEAD_MAX_S + AHEAD_TRIPS * self.round_trip_s

    def left_s(self, utc_s: UtcS) -> float:
        """Estimate the remaining slot-seconds of the tasks that it holds.

        For tasks that fill a slot each, elapsed time is subtracted. The remaining time of overdue
        tasks is unknown, so at least an eighth of the time of all of them is left.
        """
        long_s = self.load_s - self.ahead_s
        return self.load_s - min(max(0.0, utc_s * self.long - self.given_s), 7 / 8 * long_s)

    def hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or, negative, fewer) tasks of an assignment."""
        self.in_flight += tasks
        self.load_s = max(0.0, self.load_s + tasks * assignment.task_s)
        if assignment.task_s >= self.ahead_max_s:
            self.long += tasks
            self.given_s = self.given_s + assignment.given_at_s * tasks if self.long else 0.0
        else:
            self.ahead_s = max(0.0, self.ahead_s + tasks * assignment.task_s)
        if self.job:
            return  # the other site accounts for the load of its own workers
        for name, amount in assignment.job.counted.items():
            # Rounded, because the sum of ten tenths would be slightly less than one.
            self.free[name] = round(self.free[name] - amount * tasks, 9)


# The lost task's user; another user; or not to be told apart from others that ran there.
Doing = Literal["own", "others", "shared"]


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that was lost while a task ran there.

    `doing`: the party that is taken to have caused the loss.
    """

    worker: str
    place: str
    utc_s: UtcS
    reason: str
    doing: Doing

    def __str__(self) -> str:
        return f"{self.worker} at {show_time(self.utc_s)} ({self.reason})"


@dataclass(slots=True)
class Strikes:
    """The failures, crashes and losses of one task so far.

    For sold work, `owed_ns` is the slot time of runs that ended with their workers; it is delivered
    with the next run. `lost_under` is the assignment of the last of these runs. `late_losses`
    counts those that this gateway may have caused, as it was late; they are not in `losses`.
    `stops` are the runs that were stopped by the word of others alone.
    """

    failures: int = 0
    crashes: int = 0
    stops: int = 0
    losses: list[WorkerLoss] = field(default_factory=list)
    late_losses: int = 0
    owed_ns: int = 0
    lost_under: Assignment | None = None


@dataclass(slots=True)
class Job:
    """A job that has not ended. `client` owns an attached job; 0 means that it has none now."""

    id: str
    spec: JobSpec
    client: int
    number: int
    opened_at_s: UtcS
    need: Need
    counted: dict[str, int | float]
    budget_accounts: tuple[BudgetAccount, ...] = ()  # the budgets that pay for it
    queue: deque[QueuedBundle] = field(default_factory=deque)
    waiting: int = 0
    blocked: int = 0  # calls that wait for inputs: gateway.scheduler.graphs.waiting_calls
    blocked_bytes: int = 0  # of these calls, without their inputs
    unblock: Callable[[RangeSet], list[Range]] | None = None  # takes some of these away
    riding: int = 0  # calls that went to a slot together with their input
    # (task, calls, bytes): takes at most so many calls that can go with a task.
    follow: Callable[[int, int, int], list[bytes]] | None = None
    live_room: Callable[[], int | None] | None = None  # how many tasks may begin; None: any number
    account: AttachedLoad = field(default_factory=AttachedLoad)
    held_bytes: int = 0  # of arguments, waiting or at workers; approximate
    owed_tasks: int = 0  # kept up to here and not acknowledged yet
    owed_bytes: int = 0  # of the tasks in `owed_tasks`
    assignments: dict[int, Assignment] = field(default_factory=dict)
    in_flight: int = 0
    load_nanos: float = 0.0  # estimated cost of its tasks that are at workers
    served: int = 0  # its last assignment
    known: RangeSet = field(default_factory=RangeSet)  # tasks that arrived
    ended: RangeSet = field(default_factory=RangeSet)
    stopping: RangeSet = field(default_factory=RangeSet)  # sold work that its buyer stopped
    failures: RangeSet = field(default_factory=RangeSet)  # of `ended`
    cancels: RangeSet = field(default_factory=RangeSet)  # of `ended`
    charged: RangeSet = field(default_factory=RangeSet)  # free if they run once more
    attempt: int = 1  # of tasks that arrive from now on
    attempt_max: int = 0  # on any usage record of it
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    first_error: str = ""  # of the first task that failed, in one line
    interrupted: int = 0  # killed because their client left: cancelled, unless it returns
    total: int | None = None
    strikes: dict[int, Strikes] = field(default_factory=dict)
    costs_nanos: dict[str, int] = field(default_factory=dict)  # by currency
    prices_nanos: dict[str, int] = field(default_factory=dict)  # the last one of each currency
    wall_ns: int = 0
    cpu_ns: int = 0
    outran_s: float = 0.0  # the longest run of a task of it that was stopped for its cost
    outran_nanos: int = 0  # and the highest cost of such a run
    repeat_ns: int = 0  # the part of `wall_ns` that ran again for free
    free_ns: int = 0  # another part: the time of runs that wasted runs had paid before
    unpaid_ns: int = 0  # another part: of preempted runs, and of those that were not delivered
    paid_times: PaidTimes = field(default_factory=PaidTimes)  # amounts that wasted runs have paid
    is_shunning: bool = False  # runs in its queue may shun workers
    is_struck: bool = False  # one of its tasks was given up because of the workers lost with it
    is_spent: bool = False  # its cost limit is reached: unstarted tasks were recalled
    unmet: str = ""  # why it can't be completed within its limits
    given_up: str = ""  # the failure with which its tasks that have not begun end
    leaving: str = ""  # the state in which it will end, once nothing is in flight
    reason: str = ""
    # It is ending since a restart, or since before it: sellers may hold tasks of it.
    awaits_sellers: bool = False
    # Of `ended`: before its client returned, which may lack the results.
    missed: RangeSet = field(default_factory=RangeSet)
    # The pools that may take its tasks, and how many tasks each; None: all pools, without a bound.
    places: dict[str, float] | None = None
    lacks_function_since_s: UtcS | None = None
    unfit: set[str] = field(default_factory=set)  # workers that can't prepare its environment
    orphan_since_s: UtcS | None = None  # a detached job whose client left before closing it
    leaf: ShareNode | None = None  # its leaf in the tree of shares, where slots are shared out
    is_narrowed: bool = False  # its label, since it was passed on to the calls that wait for it
    is_logged: bool = False  # the output of its tasks is kept here
    terms: object = None  # owned by gateway.scheduler.dispatch.queueing
    notes: deque[tuple[UtcS, str]] = field(default_factory=lambda: deque(maxlen=NOTES_MAX))
    whose: Owner = field(init=False)  # cached from the spec, like `work`: both are read often
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.work = self.spec.work
        self.whose = self.work.whose

    @property
    def wants_output(self) -> bool:
        """Whether those that run its tasks are to send their output."""
        return self.spec.prints or self.is_logged

    @property
    def title(self) -> str:
        """Its id, user and project, for people: `job 12ab of ada@paris, project risk`."""
        return f"job {self.id} of {self.whose.user}, project {self.whose.project}"

    def change_terms(self, **changes: Any) -> None:
        """Change some of its terms, by their names in JobSpec; file it anew afterwards."""
        self.spec = replace(self.spec, **changes)
        self.work, self.terms = self.spec.work, None

    def need_objects(self) -> None:
        """Note that calls of it refer to objects: only workers of the objects' host have them."""
        if OBJECTS_TAG not in self.spec.tags:
            self.change_terms(tags={**self.spec.tags, OBJECTS_TAG: True})
            self.need = self.spec.need

    def need_inputs(self) -> None:
        """Note that calls of it have inputs: only workers that can open these have them."""
        if not self.spec.has_inputs:
            self.change_terms(has_inputs=True)
            self.need = self.spec.need

    def narrow(self, label: DataLabel) -> bool:
        """Let the label of data that its calls read hold for the job; return whether it is new.

        Until its places are chosen again no task of it begins. The caller files it anew.
        """
        before = self.spec.wishes.label
        wishes = self.spec.narrowed(label).wishes
        if wishes.label == before:
            return False
        self.change_terms(wishes=wishes)
        self.need = self.spec.need
        if wishes.label.words != before.words:
            self.places, self.is_narrowed = {}, True
        return True

    def note(self, utc_s: UtcS, text: str) -> None:
        """Record an event of the job, to explain later why it is not done yet."""
        self.notes.append((utc_s, text))

    def note_failure(self, text: str) -> None:
        """Keep the text of the first failure, in one line, for people."""
        self.first_error = self.first_error or headline(text)

    def enqueue(self, run: QueuedBundle, *, ahead: bool = False) -> None:
        """Queue a run; retried and returned tasks go ahead of new ones."""
        if not run.arguments:
            return
        if ahead:
            self.queue.appendleft(run)
        else:
            self.queue.append(run)
        self.waiting += len(run.arguments)
        self.hold_bytes(run.size)

    def hold_bytes(self, size: int) -> None:
        """Account for bytes of arguments that were added or, negative, released."""
        size = max(size, -self.held_bytes)
        self.held_bytes += size
        self.account.held_bytes += size

    def move_to(self, account: AttachedLoad) -> None:
        """Move the bytes that it holds to another account."""
        self.account.held_bytes -= self.held_bytes
        self.account = account
        account.held_bytes += self.held_bytes

    def take(self, tasks_max: int, bytes_max: int) -> QueuedBundle:
        """Take at most `tasks_max` tasks, and at least one, off the head of the queue."""
        run = self.queue[0]
        tasks = min(1 if run.alone else tasks_max, len(run.arguments))
        while tasks > 1 and run.size > bytes_max < sum(map(len, run.arguments[:tasks])):
            tasks = (tasks + 1) // 2
        self.waiting -= tasks
        if tasks == len(run.arguments):
            return self.queue.popleft()
        taken = run.cut(run.first, run.first + tasks)
        # Cutting the head off a long list copies the rest. A job's runs are bundles as they
        # arrived, so the rest is short.
        self.queue[0] = run.cut(run.first + tasks, run.stop)
        self.queue[0].size = run.size - taken.size
        return taken

    def withdraw(self, wanted: RangeSet | None = None) -> list[Range]:
        """Take these waiting tasks away, or all of them by default; return their ranges."""
        wanted = EVERY_TASK if wanted is None else wanted
        found = [(run.first, run.stop) for run in self.extract(wanted)]
        if self.blocked and self.unblock is not None:
            found += self.unblock(wanted)
        return found

    def extract(self, wanted: RangeSet) -> list[QueuedBundle]:
        """Take tasks out of the queue, with their arguments.

        One pass serves any number of ranges: a request may name a hundred thousand.
        """
        taken: list[QueuedBundle] = []
        kept: deque[QueuedBundle] = deque()
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
        """Yield the assignments with unreported tasks in some ranges, and the ranges of these."""
        for assignment in list(self.assignments.values()):
            left = list(assignment.left)
            for first, stop in wanted.within(left[0][0], left[-1][1]) if left else ():
                parts = assignment.left.within(first, stop)
                if parts:
                    yield assignment, parts

    @property
    def limited_nanos(self) -> int:
        """Its cost so far in the currency of its cost limit."""
        return self.costs_nanos.get(self.spec.currency or "", 0)

    @property
    def has_money(self) -> bool:
        """Whether it has cost less than its cost limit."""
        limit = self.spec.max_cost_nanos
        return limit is None or self.limited_nanos < limit

    @property
    def expected_s(self) -> float:
        """The time that a task is expected to take after one was stopped for its cost; else 0."""
        return OUTRAN_FACTOR * self.outran_s

    @property
    def needs_nanos(self) -> int:
        """The least amount for a task after one was stopped for its cost; else 0."""
        return round(OUTRAN_FACTOR * self.outran_nanos)

    @property
    def committed_nanos(self) -> int:
        """`limited_nanos` plus the estimated cost of the tasks that are at workers."""
        return self.limited_nanos + round(self.load_nanos)

    @property
    def is_at_limit(self) -> bool:
        """Whether its cost limit allows no further task, given those in flight."""
        limit = self.spec.max_cost_nanos
        return limit is not None and self.committed_nanos >= limit

    @property
    def open_pools(self) -> frozenset[str] | None:
        """The pools that its plan gives tasks to; None: all."""
        if self.places is None:
            return None
        return frozenset(pool for pool, tasks in self.places.items() if tasks >= 1)

    def may_repeat_free(self, wall_ns: int) -> bool:
        """Whether charged tasks may run for this long once more for free.

        The new task is not compared with the task that was charged, so free runs are bounded by the
        paid time.
        """
        paid_ns = self.wall_ns - self.repeat_ns - self.free_ns - self.unpaid_ns
        return self.repeat_ns + wall_ns <= REPEATS_MAX * paid_ns + REPEAT_MIN_NS

    def charge(self, record: UsageRecord) -> None:
        """Add the usage of a report; of a task lost with its worker, only the attempt."""
        self.attempt_max = max(self.attempt_max, record.attempt)
        if record.state == "lost":
            return
        if record.tasks:
            self.paid_times.book(record)
        currency = record.currency
        self.costs_nanos[currency] = self.costs_nanos.get(currency, 0) + record.charged_nanos
        if record.kind == "time":
            self.prices_nanos[currency] = record.price_nanos
        self.wall_ns += record.wall_ns
        if record.state == "repeat":
            self.repeat_ns += record.wall_ns
        elif not is_for_its_user(record.state, record.price_class):
            self.unpaid_ns += record.wall_ns
        else:
            self.free_ns += record.free_ns
        self.cpu_ns += record.cpu_ns

    def reopen(self, first: int, stop: int) -> None:
        """Queue those tasks of [first, stop) again whose results never arrived.

        These ended before their client returned. Tasks that ended later were told in its present
        session: it sent them again before it knew, and they do not run twice.
        Charged tasks are not charged again. Every usage record of a task has an attempt of its own.
        A task that a worker is stopping is still there: it is not queued twice but retried once it
        has stopped.
        """
        held = RangeSet()
        for assignment, parts in self.assigned(RangeSet([(first, stop)])):
            for part in parts:
                if self.missed.within(*part):
                    assignment.is_stopped = True
                    held.add(*part)
        for low, high in self.missed.within(first, stop):
            failed, cancelled = _count(self.failures, low, high), _count(self.cancels, low, high)
            self.failed -= failed
            self.cancelled -= cancelled
            # Excluding tasks that ended elsewhere and were never counted here.
            self.done = max(0, self.done - (high - low - failed - cancelled))
            for tasks in (self.ended, self.missed, self.failures, self.cancels):
                tasks.remove(low, high)
            for start, end in held.missing(low, high):
                self.known.remove(start, end)
            self.attempt = self.attempt_max + 1

    def come_back(self) -> None:
        """Expect tasks and the end of an attached job once more: its client has a new session.

        The client sends all tasks again whose results it lacks, and then closes the job. Until
        then it is not over, even if the tasks at workers were the last ones.
        """
        self.missed = RangeSet(self.ended)
        self.total = None

    def begin_attempt(self) -> None:
        """Give tasks that arrive from now on an attempt above all that ran or may still run."""
        runs = [run.attempt for run in self.queue]
        runs += [each.run.attempt for each in self.assignments.values()]
        self.attempt = max([self.attempt_max, *runs]) + 1

    def take_up(self, history: JobRecovered) -> None:
        """Restore the charges of the job's earlier run, and the orders about it."""
        priority = self.spec.priority if history.priority is None else history.priority
        self.change_terms(
            hold=history.hold, priority=priority, given_priority=history.given_priority
        )
        self.charged = RangeSet(history.charged)
        self.costs_nanos, self.prices_nanos = dict(history.costs_nanos), dict(history.prices_nanos)
        self.wall_ns, self.cpu_ns = history.wall_ns, history.cpu_ns
        self.repeat_ns, self.free_ns = history.repeat_ns, history.free_ns
        self.unpaid_ns = history.unpaid_ns
        self.paid_times = PaidTimes(history.paid_times)
        self.attempt_max = history.attempt_max
        self.attempt = history.attempt_max + 1

    def history(self) -> JobRecovered:
        """Return the charges of the job, and orders about it, for a client that returns."""
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
            free_ns=self.free_ns,
            unpaid_ns=self.unpaid_ns,
            paid_times=self.paid_times.left(),
            function=self.spec.function,
            hold=self.spec.hold,
            priority=self.spec.priority,
            given_priority=self.spec.given_priority,
        )

    @property
    def is_over(self) -> bool:
        """Whether no task is left and none will arrive."""
        if self.in_flight or self.awaits_sellers:
            return False
        if self.leaving:
            return True
        return self.total is not None and len(self.ended) >= self.total


def _count(tasks: RangeSet, first: int, stop: int) -> int:
    return sum(high - low for low, high in tasks.within(first, stop))
