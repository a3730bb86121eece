"""The brain of a site: `handle(event, now) → [effect, …]`. Pure: no I/O, no clock, no chance.

It holds the jobs, who works for us, and who has which tasks, and keeps these promises:

- a task ends exactly once, and only its owner is told;
- a task's result is told after its usage record is stored, and it is charged once;
- what no known offer can ever run is refused at once; what must only wait never blocks others;
- a worker's report counts only for what that worker still holds.

`settle` is called once after each batch of events and hands out work. `now_s` is UTC.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, assert_never
from weakref import WeakValueDictionary

from federation.messages import (
    Answer,
    Assign,
    Drain,
    Dropped,
    Kept,
    Recall,
    RejectJob,
)
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.wire import pack
from gateway import dispatch, events
from gateway.effects import Charge, Effect, Expel, Order, Tell, Write
from gateway.events import Event, JobSpec
from gateway.jobs import Account, Assignment, Job, Run, Worker
from gateway.ledger import records
from gateway.outcomes import charged_for, is_nothing, is_sound, judge_report, usage_records
from gateway.terms import answer_ended, opened_record
from policies.placement import Offer, counted, judge_all
from policies.tariffs import HOUR_S, Tariff

# A task whose worker vanished under it so often is given up; the time before, it goes alone.
LOSSES_MAX: Final = 3
# Jobs whose charges are remembered in case their client comes back: more than can have ended
# while their last records, three of each at least, wait for the store.
REMEMBERED_MAX: Final = 20_000
OFFERS_MAX: Final = 10_000
ENDED_MAX: Final = 100_000  # ids of jobs that have ended, so that none is used again
# How long a detached job may stay half submitted without its client.
ORPHAN_S: Final = 60.0
RECALLS_MAX: Final = 8  # in one settling
# Bits of an assignment's number below the boot. A boot is never below the second in which it began,
# so that the next life begins above all that this one gives out: nobody assigns a billion a second.
EPOCH_BITS: Final = 30
NO_CHARGE: Final = Charge(0, 0, 0, 0)
ALL_TASKS: Final = 1 << 62  # a task number past every job's end
CANCELS_MAX: Final = 100  # of one client, that wait for workers to answer
CANCEL_REFUSED: Final[dict[str, str]] = {
    Reason.JOB_NOT_FOUND: "no unfinished job of yours has that id",
    Reason.BUSY: f"{CANCELS_MAX} cancels of yours are under way: wait for their answers",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may have unfinished at a time; its Welcome says the same.

    `function_wait_s` is how long a job may wait for the function that it names; `jobs_max` is for
    one client. `kept_bytes_max` is for the arguments of all detached jobs together, which are in
    memory until they have run: over it no such job begins, and no more of one is acknowledged.
    """

    tasks_max: int = 200_000
    bytes_max: int = 256 << 20
    function_wait_s: float = 60.0
    jobs_max: int = 50_000
    kept_bytes_max: int = 1 << 30


@dataclass(slots=True)
class Client:
    """A client as the broker sees it."""

    handle: int
    user: str
    ready: bool = True
    jobs: dict[str, None] = field(default_factory=dict)  # in the order in which they came
    tasks: int = 0  # unfinished, of attached jobs
    account: Account = field(default_factory=Account)  # of attached jobs
    owed_bytes: int = 0  # of detached jobs, not acknowledged
    is_site: bool = False  # another site, for one of its jobs: see Sales for what it may hold


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, for whoever opens one of the same id."""

    user: str
    detached: bool
    state: str
    reason: str
    total: int | None


@dataclass(slots=True)
class Withdrawal:
    """A cancel that waits for workers to say what had not started."""

    client: int
    request: int
    job: Job
    ranges: RangeSet
    taken: RangeSet
    awaited: set[int]


class Broker:
    """One site's jobs, workers and clients.

    Args:
        tariffs: what each pool charges, by its name.
        offers: pools that are known before any of their workers joins.
        limits: what one client may have unfinished.
        boot: which life of the site this is; assignments of different lives never share a number.
    """

    def __init__(
        self,
        tariffs: Mapping[str, Tariff],
        offers: Mapping[str, Offer] | None = None,
        limits: Limits | None = None,
        boot: int = 0,
    ) -> None:
        self.tariffs = tariffs
        self.limits = limits or Limits()
        self.offers = dict(offers or {})
        self.clients: dict[int, Client] = {}
        self.workers: dict[int, Worker] = {}
        self.jobs: dict[str, Job] = {}
        self.durations = dispatch.Durations()
        self.draining = False
        # Whether another site may be able to run what none of our own pools can.
        self.elsewhere: Callable[[JobSpec], bool] = lambda _: False
        self.trouble = ""  # why the store takes nothing now; empty when all is well
        self.tasks_done = 0
        self._ready: dict[str, Job] = {}  # jobs with tasks in their queue
        self._dated: dict[str, Job] = {}  # of them, those with a deadline
        self._assignments = boot << EPOCH_BITS
        self._kept = Account()  # of detached jobs
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()  # of others' jobs
        self._owing: dict[str, Job] = {}  # detached jobs with tasks that are not acknowledged
        self._lacking: dict[bytes, set[str]] = {}  # jobs without their function, by its digest
        self._numbers = 0
        self._withdrawals: list[Withdrawal] = []
        self._held: dict[str, set[str]] = {}  # job → contracts that it may be out under
        self._remembered: OrderedDict[str, events.JobRecovered] = OrderedDict()
        self._ended: OrderedDict[str, Ending] = OrderedDict()
        self._effects: list[Effect] = []

    # --- the way in ----------------------------------------------------------------------------

    def handle(self, event: Event, now_s: float) -> list[Effect]:  # noqa: C901 - one match
        """Take an event; return what is to be done about it, in order."""
        match event:
            case events.Reported():
                self._reported(event, now_s)
            case events.TasksArrived():
                self._tasks_arrived(event)
            case events.HandedBack():
                self._handed_back(event, now_s)
            case events.PlacesChosen():
                if event.job in self.jobs:
                    self.jobs[event.job].places = event.places
            case events.MoneySpent():
                if event.job in self.jobs:
                    self._drop_waiting(self.jobs[event.job], "budget", event.reason)
                    self._finish(self.jobs[event.job], now_s)
            case events.JobHeld():
                self._job_held(event)
            case events.Resumed():
                self._resumed(event, now_s)
            case events.JobOpened():
                self._job_opened(event, now_s)
            case events.FunctionArrived():
                self._function_arrived(event.function)
            case events.JobClosed():
                self._job_closed(event, now_s)
            case events.CancelAsked():
                self._cancel_asked(event, now_s)
            case events.ClientJoined():
                self._client_joined(event)
            case events.ClientGone():
                self._client_gone(event, now_s)
            case events.ClientReading():
                if event.client in self.clients:
                    self.clients[event.client].ready = event.ready
            case events.WorkerJoined():
                self._worker_joined(event, now_s)
            case events.WorkerGone():
                self._worker_gone(event, now_s)
            case events.JobRecovered():
                self._job_recovered(event, now_s)
            case events.DrainAsked():
                self._drain_asked(event)
            case events.Ticked():
                self._ticked(now_s)
            case _:
                assert_never(event)
        if self._owing and self._kept.held_bytes <= self.limits.kept_bytes_max:
            for job in list(self._owing.values()):
                self._acknowledge(job, job.owed_tasks)
        return self._take_effects()

    def settle(self, now_s: float) -> list[Effect]:
        """Hand out what waits to whoever has room, and move work to workers that ran dry."""
        self._keep_deadlines(now_s)
        if not self._ready and not any(dispatch.has_spare(each) for each in self.workers.values()):
            return self._take_effects()
        slots_total = sum(
            worker.slots
            for worker in self.workers.values()
            if not worker.draining and not worker.job
        )
        starving: list[Worker] = []
        for worker in sorted(self.workers.values(), key=lambda worker: worker.load_s):
            while self._feed(worker, slots_total, now_s):
                pass
            if dispatch.has_room(worker):
                starving.append(worker)
        for worker in starving[:RECALLS_MAX]:
            self._recall_for(worker, now_s)
        return self._take_effects()

    @property
    def waiting_jobs(self) -> list[Job]:
        """Jobs with tasks that nobody has."""
        return list(self._ready.values())

    @property
    def is_uneven(self) -> bool:
        """Whether work may have to be moved though nothing happens: `settle` as time passes.

        A worker has room while another has tasks to spare, or a job waits for slots that are
        busy with what should come after it.
        """
        workers = self.workers.values()
        return any(map(dispatch.has_spare, workers)) and (
            any(map(dispatch.has_room, workers))
            or any(
                dispatch.needs_idle_slot(job, self.durations.of(job.spec.function))
                for job in self._ready.values()
            )
        )

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _write(self, record: records.Record, *, durable: bool = False) -> None:
        self._effects.append(Write(record, durable))

    def _tell(self, client: int, message: Any) -> None:
        if client in self.clients:
            self._effects.append(Tell(client, message))

    # --- handing out ---------------------------------------------------------------------------

    def _feed(self, worker: Worker, slots_total: int, now_s: float) -> bool:
        """Give this worker one more bundle, if any job has one for it.

        Nothing goes ahead of a better placed job that waits here for an idle slot: else those who
        can be queued ahead would keep a slot from ever being idle.
        """
        is_late = dispatch.has_spare(worker) and dispatch.is_late(worker, now_s)
        if dispatch.is_full(worker) and not is_late:
            return False
        best: tuple[dispatch.Rank, Job, int] | None = None
        waiting: list[Job] = []
        for job in self._ready_for(worker):
            task_s = self.durations.of(job.spec.function)
            tasks = dispatch.room(job, worker, task_s)
            if tasks <= 0:
                if dispatch.needs_idle_slot(job, task_s, worker.ahead_max_s):
                    waiting.append(job)
                continue
            tasks = self._takes(job, worker, task_s, tasks)
            if tasks <= 0:
                continue
            rank = dispatch.order(job, task_s)
            if best is None or rank < best[0]:
                best = rank, job, tasks
        if best is not None or is_late:
            first = self._first_to_wait(waiting, worker, best[0] if best else None)
            if first is not None:
                if is_late:
                    self._make_way(worker, first)
                return False
        if best is None:
            return False
        _, job, tasks = best
        task_s = self.durations.of(job.spec.function)
        slots_total += worker.slots if worker.job else 0
        part = dispatch.share(job, worker, slots_total, task_s)
        tasks = min(tasks, part, dispatch.BUNDLE_TASKS_MAX)
        self._assign(job, worker, job.take(tasks, dispatch.BUNDLE_BYTES_MAX), now_s)
        return True

    def _ready_for(self, worker: Worker) -> Iterable[Job]:
        if not worker.job:
            return self._ready.values()
        job = self._ready.get(worker.job)
        return () if job is None else (job,)

    def _takes(self, job: Job, worker: Worker, task_s: float | None, tasks: int) -> int:
        """How many of so many tasks a worker may have, by all but its room."""
        client = self.clients.get(job.client)
        if client is not None and not client.ready:
            return 0
        if dispatch.refusal(job, worker) is not None:
            return 0
        return dispatch.fits_cost(job, worker, task_s, tasks)

    def _first_to_wait(
        self, waiting: Iterable[Job], worker: Worker, limit: dispatch.Rank | None
    ) -> dispatch.Rank | None:
        """The rank of the best placed job that an idle slot would do for, if above a limit."""
        first = limit
        for job in waiting:
            task_s = self.durations.of(job.spec.function)
            rank = dispatch.order(job, task_s)
            if (first is None or rank < first) and self._takes(job, worker, task_s, 1) > 0:
                first = rank
        return first if first != limit else None

    def _make_way(self, worker: Worker, rank: dispatch.Rank) -> None:
        """Take back what a job of that rank would have to wait for longer than was meant."""
        for assignment in worker.assignments.values():
            if not assignment.recalled and rank < dispatch.order(
                assignment.job, self.durations.of(assignment.job.spec.function)
            ):
                assignment.recalled = True
                for first, stop in assignment.left:
                    self._order_recall(assignment, first, stop, kill=False)

    def _assign(self, job: Job, worker: Worker, run: Run, now_s: float) -> None:
        if job.places is not None:
            job.places[worker.offer.pool] -= len(run.arguments)
        self._assignments += 1
        task_s = self.durations.of(job.spec.function) or 0.0
        left = RangeSet([(run.first, run.stop)])
        job.served = self._assignments
        assignment = Assignment(self._assignments, job, worker, run, task_s, now_s, left)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        worker.held_bytes += run.size
        self._hold(assignment, len(run.arguments))
        self._mark_ready(job)
        spec = job.spec
        self._effects.append(
            Order(
                worker.handle,
                Assign(
                    assignment.id,
                    job.id,
                    spec.function,
                    run.first,
                    run.arguments,
                    spec.timeout_s,
                    spec.prints,
                ),
            )
        )

    def _hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or fewer) in flight, at the job and at the worker."""
        assignment.worker.hold(assignment, tasks)
        job = assignment.job
        job.in_flight += tasks
        price = (job.spec.price or assignment.worker.tariff).price_nanos
        cost = tasks * assignment.task_s * price / HOUR_S
        job.load_nanos = max(0.0, job.load_nanos + cost) if job.in_flight else 0.0

    def _release(self, assignment: Assignment, first: int, stop: int) -> None:
        """These tasks are no longer the worker's."""
        assignment.left.remove(first, stop)
        self._hold(assignment, first - stop)
        if not assignment.left:
            del assignment.worker.assignments[assignment.id]
            job = assignment.job
            del job.assignments[assignment.id]
            job.hold_bytes(-assignment.run.size)
            assignment.worker.held_bytes -= assignment.run.size

    def _mark_ready(self, job: Job) -> None:
        is_free = job.id not in self._held and job.lacks_function_since_s is None
        if job.waiting and not job.leaving and is_free:
            self._ready[job.id] = job
            if job.spec.wishes.deadline_s is not None:
                self._dated[job.id] = job
        else:
            self._ready.pop(job.id, None)
            self._dated.pop(job.id, None)

    def _job_held(self, event: events.JobHeld) -> None:
        held = self._held.setdefault(event.job, set())
        (held.add if event.on else held.discard)(event.contract)
        if not held:
            del self._held[event.job]
        if event.job in self.jobs:
            self._mark_ready(self.jobs[event.job])

    def _resumed(self, event: events.Resumed, now_s: float) -> None:
        """Tasks that are queued here turn out to be with a worker: count them as its own."""
        worker = self.workers.get(event.worker)
        job = self.jobs.get(worker.job) if worker else None
        if worker is None or job is None or event.assignment in job.assignments:
            return
        runs = [run for pair in event.ranges for run in job.extract(*pair)]
        if not runs:
            return
        runs.sort(key=lambda run: run.first)
        # One run over all of them; what lies between has ended, and is never looked at.
        whole = Run(runs[0].first, [], sum(run.size for run in runs))
        for run in runs:
            whole.arguments += [b""] * (run.first - whole.stop) + run.arguments
            whole.attempt = max(whole.attempt, run.attempt)
        task_s = self.durations.of(job.spec.function) or 0.0
        left = RangeSet((run.first, run.stop) for run in runs)
        assignment = Assignment(event.assignment, job, worker, whole, task_s, now_s, left)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        self._hold(assignment, len(left))
        job.hold_bytes(whole.size)
        worker.held_bytes += whole.size
        self._mark_ready(job)

    def _recall_for(self, worker: Worker, now_s: float) -> None:
        found = dispatch.tail_to_recall(self.workers.values(), worker, now_s)
        if found is not None:
            assignment, (first, stop) = found
            assignment.recalled = True
            self._order_recall(assignment, first, stop, kill=False)

    def _order_recall(self, assignment: Assignment, first: int, stop: int, *, kill: bool) -> None:
        assignment.recalls += 1
        recall = Recall(assignment.id, first, stop, kill)
        self._effects.append(Order(assignment.worker.handle, recall))

    # --- jobs ----------------------------------------------------------------------------------

    def _job_opened(self, event: events.JobOpened, now_s: float) -> None:
        spec = event.spec
        known = self.jobs.get(event.job)
        if known is not None:
            self._job_taken_over(known, event, now_s)
            return
        ended = self._ended.get(event.job)
        if ended is not None and not self._may_open_again(event, ended):
            return
        refusal = self._over_limit(event) or self._refusal(spec)
        remembered = self._remembered.get(event.job)
        if remembered is not None and remembered.function not in (b"", spec.function):
            refusal = Reason.BAD_REQUEST, f"job {event.job} was one of another function"
        if refusal is not None:
            self._tell(event.client, RejectJob(event.job, *refusal))
            return
        job = self._new_job(event.job, spec, event.client, now_s)
        if remembered is not None:
            del self._remembered[event.job]
            job.take_up(remembered)
        if not event.has_function:
            job.lacks_function_since_s = now_s
            self._lacking.setdefault(spec.function, set()).add(job.id)
        self._write(opened_record(job), durable=spec.detached)

    def _job_taken_over(self, job: Job, event: events.JobOpened, now_s: float) -> None:
        """A client opens a job that we have: it came back with a new session."""
        if job.spec.user != event.spec.user or job.spec.function != event.spec.function:
            reason = f"job {event.job} is somebody else's"
            self._tell(event.client, RejectJob(event.job, Reason.BAD_REQUEST, reason))
            return
        if job.leaving and (job.spec.detached or job.leaving != "abandoned"):
            self._tell(event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, job.reason))
            return
        previous = self.clients.get(job.client)
        if previous is not None:
            previous.jobs.pop(job.id, None)
            self._forgive(job)
        job.may_repeat = not job.spec.detached and job.client != event.client
        job.begin_attempt()
        job.client = event.client
        job.leaving = job.reason = ""
        job.interrupted = 0
        job.orphan_since_s = None
        client = self.clients[event.client]
        client.jobs[job.id] = None
        if not job.spec.detached:
            job.move_to(client.account)
        if job.lacks_function_since_s is not None:
            job.lacks_function_since_s = now_s  # its client has been asked again

    def _may_open_again(self, event: events.JobOpened, ended: Ending) -> bool:
        """Whether a job that has ended may begin again; its client is told if not."""
        reason = ""
        if ended.user != event.spec.user:
            reason = f"job {event.job} is somebody else's"
        elif ended.detached:
            self._tell(
                event.client, answer_ended(event.job, ended.state, ended.reason, ended.total)
            )
            return False
        elif ended.state in ("done", "cancelled") and not event.again:
            reason = f"there was a job {event.job} before: each needs an id of its own"
        if reason:
            self._tell(event.client, RejectJob(event.job, Reason.BAD_REQUEST, reason))
        return not reason

    def _function_arrived(self, function: bytes) -> None:
        for name in self._lacking.pop(function, ()):
            job = self.jobs[name]
            job.lacks_function_since_s = None
            self._mark_ready(job)

    def _reject(self, job: Job, code: Reason, reason: str, now_s: float) -> None:
        """End a job of which nothing has run."""
        self._tell(job.client, RejectJob(job.id, code, reason))
        for first, stop in job.withdraw(0, ALL_TASKS):
            self._credit_client(job, stop - first)
        job.leaving, job.reason = "rejected", reason
        self._finish(job, now_s)

    def _over_limit(self, event: events.JobOpened) -> tuple[str, str] | None:
        """Why there is no place for one more job now, as code and sentence."""
        limits, held_bytes = self.limits, self._kept.held_bytes
        if len(self.clients[event.client].jobs) >= limits.jobs_max:
            return Reason.BUSY, f"its client has {limits.jobs_max:,} unfinished jobs already"
        if event.spec.detached and held_bytes > limits.kept_bytes_max:
            reason = (
                f"detached jobs hold {held_bytes:,} bytes of arguments here, over the limit of "
                f"{limits.kept_bytes_max:,}: try again when some have run"
            )
            return Reason.BUSY, reason
        return None

    def _refusal(self, spec: JobSpec) -> tuple[str, str] | None:
        """Why no work of this kind is taken at all, as code and sentence."""
        if self.trouble:
            return Reason.STORE_TROUBLE, f"the gateway can't record work now: {self.trouble}"
        if self.draining:
            return Reason.DRAINING, "the gateway is draining and takes no new jobs"
        refusals = judge_all(spec.need, self.offers.values())
        if not refusals or self.elsewhere(spec):
            return None  # somebody can run it, or nobody has joined yet
        lines = [f"{name} {refusal.text}" for name, refusal in sorted(refusals.items())]
        more = f"; and {len(lines) - 8} more" if len(lines) > 8 else ""
        reasons = {refusal.reason for refusal in refusals.values()}
        code = next(iter(reasons)) if len(reasons) == 1 else Reason.NO_WORKER
        return code, f"no pool here can ever run it: {'; '.join(lines[:8])}{more}"

    def _new_job(self, name: str, spec: JobSpec, client: int, now_s: float) -> Job:
        self._numbers += 1
        job = Job(name, spec, client, self._numbers, now_s, spec.need, counted(spec.tags))
        self.jobs[name] = job
        if client in self.clients:
            self.clients[client].jobs[name] = None
        if spec.detached:
            job.account = self._kept
        elif client in self.clients:
            job.account = self.clients[client].account
        return job

    def _job_recovered(self, event: events.JobRecovered, now_s: float) -> None:
        if event.spec is None:
            self._remember(event)
            return
        job = self._new_job(event.job, event.spec, 0, now_s)
        job.take_up(event)
        job.ended = RangeSet(event.ended)
        job.known = RangeSet(event.ended)
        job.failed = event.failed
        job.cancelled = event.cancelled
        job.done = len(job.ended) - event.failed - event.cancelled
        job.total = event.total
        if event.total is None:
            job.orphan_since_s = now_s
        self._finish(job, now_s)

    def remembers(self, job: str) -> bool:
        """Whether it knows this job, or what it was charged, without asking the store."""
        ended = self._ended.get(job)
        is_detached = ended is not None and ended.detached
        return job in self.jobs or job in self._remembered or is_detached

    def has_ended(self, job: str) -> bool:
        """Whether a job of this id has ended lately."""
        return job in self._ended

    def _remember(self, history: events.JobRecovered) -> None:
        self._remembered[history.job] = history
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _tasks_arrived(self, event: events.TasksArrived) -> None:
        job = self.jobs.get(event.job)
        if job is None or job.client != event.client or job.leaving:
            # It ended, or was cancelled by somebody else, while these were under way.
            reason = (job.reason if job else "") or "the job has ended"
            self._tell(event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, reason))
            return
        first, stop = event.first, event.first + len(event.arguments)
        if job.may_repeat:
            job.reopen(first, stop)
        client = self.clients.get(event.client)
        for low, high in job.known.missing(first, stop):
            arguments = event.arguments[low - first : high - first]
            run = Run(low, arguments, sum(map(len, arguments)), job.attempt)
            job.enqueue(run)
            job.known.add(low, high)
            if client is not None and not job.spec.detached:
                client.tasks += high - low
                client.account.tasks += high - low
            if job.spec.detached and client is not None:
                body = pack(run.arguments)
                self._write(records.BundleKept(job.id, low, high - low, body), durable=True)
        self._mark_ready(job)
        self._check_cost(job)
        if client is None:
            return
        if job.spec.detached and self._kept.held_bytes > self.limits.kept_bytes_max:
            self._owing[job.id] = job
            job.owed_tasks = max(job.owed_tasks, stop)
            size = sum(map(len, event.arguments))
            job.owed_bytes += size
            client.owed_bytes += size
        elif job.spec.detached:
            self._acknowledge(job, stop)
        self._check_limits(client)

    def _acknowledge(self, job: Job, stop: int) -> None:
        """Take over a detached job's tasks from its client."""
        self._tell(job.client, Kept(job.id, max(stop, job.owed_tasks), False))
        self._forgive(job)

    def _forgive(self, job: Job) -> None:
        """Count nothing of it as its client's any more."""
        client = self.clients.get(job.client)
        if client is not None:
            client.owed_bytes -= job.owed_bytes
        job.owed_tasks = job.owed_bytes = 0
        self._owing.pop(job.id, None)

    def _check_limits(self, client: Client) -> None:
        """Expel a client that sends more than its Welcome allows."""
        held_bytes = client.account.held_bytes + client.owed_bytes
        if client.tasks > self.limits.tasks_max:
            reason = f"more than {self.limits.tasks_max:,} unfinished tasks, against the Welcome"
        elif held_bytes > self.limits.bytes_max and not client.is_site:
            reason = f"more than {self.limits.bytes_max:,} bytes unfinished, against the Welcome"
        else:
            return
        self._effects.append(Expel(client.handle, reason))

    def _job_closed(self, event: events.JobClosed, now_s: float) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            # It was cancelled meanwhile, and who submits it waits to hear that it is kept.
            self._tell(
                event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, "the job has ended")
            )
            return
        if job.client != event.client:
            return
        job.total = event.total
        for first, stop in event.elsewhere:
            for low, high in job.known.missing(first, stop):
                for tasks in (job.known, job.ended):
                    tasks.add(low, high)
        if job.spec.detached:
            self._write(records.JobClosed(job.id, event.total), durable=True)
            self._tell(event.client, Kept(job.id, event.total, True))
            self._disown(job)
        self._finish(job, now_s)

    def _disown(self, job: Job) -> None:
        self._forgive(job)
        client = self.clients.get(job.client)
        if client is not None:
            client.jobs.pop(job.id, None)
        job.client = 0

    def _finish(self, job: Job, now_s: float) -> None:
        """End the job if nothing of it is left."""
        if not job.is_over or job.id not in self.jobs:
            return
        del self.jobs[job.id]
        self._ready.pop(job.id, None)
        self._dated.pop(job.id, None)
        if job.lacks_function_since_s is not None:
            lacking = self._lacking[job.spec.function]
            lacking.discard(job.id)
            if not lacking:
                del self._lacking[job.spec.function]
        state = job.leaving or "done"
        spec = job.spec
        self._ended[job.id] = Ending(spec.user, spec.detached, state, job.reason, job.total)
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        if not spec.detached:
            self._remember(job.history())
        job.hold_bytes(-job.held_bytes)
        self._disown(job)
        counts = (job.done, job.failed, job.cancelled + job.interrupted)
        self._write(records.JobEnded(job.id, state, job.reason, now_s, *counts))

    # --- cancelling ----------------------------------------------------------------------------

    def _cancel_asked(self, event: events.CancelAsked, now_s: float) -> None:
        job = self.jobs.get(event.job)
        if job is None or not self._may_cancel(job, event.client):
            code = "" if event.ranges else Reason.JOB_NOT_FOUND
            self._answer_cancel(event.client, event.request, RangeSet(), code)
            return
        # Each answer of a worker is held against all that wait for one.
        open_now = sum(each.client == event.client for each in self._withdrawals)
        if open_now >= CANCELS_MAX and not event.kill:
            self._answer_cancel(event.client, event.request, RangeSet(), Reason.BUSY)
            return
        ranges = RangeSet(event.ranges or [(0, ALL_TASKS)])
        if not event.ranges:
            job.leaving, job.reason = "cancelled", "cancelled on request"
        taken, awaited = RangeSet(), set()
        for first, stop in ranges:
            for low, high in job.withdraw(first, stop):
                taken.add(low, high)
            for assignment, parts in list(job.assigned(first, stop)):
                self._order_recall(assignment, parts[0][0], parts[-1][1], kill=event.kill)
                awaited.add(assignment.id)
                for low, high in parts if event.kill else ():
                    taken.add(low, high)
        self._mark_ready(job)
        taken = self._cancel(job, taken, event.client)
        if event.kill or not awaited:
            self._answer_cancel(event.client, event.request, taken)
        else:
            self._withdrawals.append(
                Withdrawal(event.client, event.request, job, ranges, taken, awaited)
            )
        self._finish(job, now_s)

    def _may_cancel(self, job: Job, client: int) -> bool:
        asking = self.clients.get(client)
        return asking is not None and (job.client == client or asking.user == job.spec.user)

    def _cancel(self, job: Job, taken: RangeSet, asker: int) -> RangeSet:
        """End those of these tasks that have not ended; return them.

        Whoever asked is answered; an owner who did not ask is told.
        """
        unended = [part for pair in taken for part in job.ended.missing(*pair)]
        told = job.client != asker
        self._drop(job, unended, "cancelled", "cancelled on request", tell=told)
        return RangeSet(unended)

    def _credit_client(self, job: Job, tasks: int) -> None:
        client = self.clients.get(job.client)
        if client is not None and not job.spec.detached:
            tasks = min(tasks, client.tasks)
            client.tasks -= tasks
            client.account.tasks -= tasks

    def _answer_cancel(self, client: int, request: int, taken: RangeSet, code: str = "") -> None:
        if request:
            value = {"taken": [list(pair) for pair in taken]}
            reason = CANCEL_REFUSED.get(code, "")
            self._tell(client, Answer(request, code, reason, value))

    def _resolve_withdrawals(
        self, assignment: Assignment, returned: list[Range], now_s: float
    ) -> list[Range]:
        """Count what came back towards cancels that waited for it; return what is left of it."""
        rest = RangeSet(returned)
        for withdrawal in list(self._withdrawals):
            if assignment.id not in withdrawal.awaited:
                continue
            # Answers are not numbered: when the last has come, the one to this cancel has.
            if not assignment.recalls or not assignment.left:
                withdrawal.awaited.discard(assignment.id)
            wanted = RangeSet(part for pair in returned for part in withdrawal.ranges.within(*pair))
            for first, stop in self._cancel(withdrawal.job, wanted, withdrawal.client):
                withdrawal.taken.add(first, stop)
                rest.remove(first, stop)
            if not withdrawal.awaited:
                self._withdrawals.remove(withdrawal)
                self._answer_cancel(withdrawal.client, withdrawal.request, withdrawal.taken)
        return list(rest)

    # --- what workers say ----------------------------------------------------------------------

    def _reported(self, event: events.Reported, now_s: float) -> None:
        worker = self.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker else None
        if worker is None or assignment is None:
            return  # a late report of something that was closed: fenced
        first, stop = event.first, event.first + len(event.values)
        if assignment.left.within(first, stop) != [(first, stop)] or not is_sound(event):
            self._effects.append(Expel(worker.handle, "it reported tasks that it does not have"))
            return
        job = assignment.job
        self._release(assignment, first, stop)
        assignment.recalled = assignment.recalls > 0
        if not assignment.left:
            self._resolve_closed(assignment.id)
        worker.tasks_done += stop - first
        wall_ns = event.wall_ns
        if worker.job:  # another site says so: it had no more time than has passed
            passed_s = max(0.0, now_s - assignment.given_s)
            wall_ns = min(wall_ns, round(passed_s * worker.slots * 1e9))
        site = worker.offer.pool.partition("/")[0] if worker.job else ""
        self.durations.learn(job.spec.function, stop - first, wall_ns, site)
        # Of what was stopped before it did anything the owner may want another, and pays that one.
        is_void = assignment.is_stopped and is_nothing(event)
        used = [] if is_void else usage_records(job, assignment, event, now_s)
        for record in used:
            job.charge(record)
            self._write(record)
        cost_nanos = sum(record.cost_nanos for record in used)
        charge = Charge(event.wall_ns, event.cpu_ns, event.peak_memory_bytes, cost_nanos)
        again = self._deliver(job, assignment, event, charge)
        for low, high in charged_for(used, [] if assignment.is_stopped else again):
            job.charged.add(low, high)
        self._check_cost(job)
        self._finish(job, now_s)

    def _deliver(
        self, job: Job, assignment: Assignment, event: events.Reported, charge: Charge
    ) -> list[int]:
        """Tell results, queue again what is tried again; return the latter."""
        verdict = judge_report(job, event, is_stopped=assignment.is_stopped)
        for retry in reversed(verdict.again):
            run = assignment.run.cut(retry.task, retry.task + 1)
            run.attempt += 1
            run.alone = retry.alone
            job.interrupted += job.leaving == "abandoned"
            self._requeue(job, run)
        job.done += verdict.done
        job.failed += verdict.failed
        job.cancelled += verdict.cancelled
        self.tasks_done += verdict.done
        self._credit_client(job, verdict.done + verdict.failed + verdict.cancelled)
        for results in verdict.results:
            count = len(results.values)
            job.ended.add(results.first, results.first + count)
            for failure in results.failures:
                task = results.first + int(failure[0])
                job.failures.add(task, task + 1)
            if job.spec.detached:
                body = pack([results.values, results.failures, results.prints, results.sites])
                self._write(records.OutcomeKept(job.id, results.first, count, body))
            elif job.client in self.clients:
                self._effects.append(Tell(job.client, results, charge))
                charge = NO_CHARGE  # it is asked for once
        return [retry.task for retry in verdict.again]

    def _check_cost(self, job: Job) -> None:
        limit = job.spec.max_cost_nanos
        if limit is not None and job.limited_nanos >= limit and job.waiting:
            self._drop_waiting(job, "budget", f"job {job.id} reached its cost limit")

    def _keep_deadlines(self, now_s: float) -> None:
        """End what waits, and must not begin any more."""
        for job in list(self._dated.values()):
            deadline_s = job.spec.wishes.deadline_s
            if deadline_s is not None and now_s >= deadline_s:
                self._drop_waiting(job, "deadline", f"the deadline of job {job.id} passed")
                self._finish(job, now_s)

    def _drop_waiting(self, job: Job, failure: str, reason: str) -> None:
        """End everything that waits with a failure."""
        dropped = RangeSet()
        while job.queue:
            run = job.take(len(job.queue[0].arguments), ALL_TASKS)
            dropped.add(run.first, run.stop)
        self._drop(job, list(dropped), failure, reason)
        self._mark_ready(job)

    def _drop(
        self, job: Job, ranges: list[Range], failure: str, reason: str, *, tell: bool = True
    ) -> None:
        """End tasks that will not run, with a failure that their owner is told."""
        for first, stop in ranges:
            count = stop - first
            job.ended.add(first, stop)
            if failure == "cancelled":
                job.cancelled += count
                job.cancels.add(first, stop)
            else:
                job.failed += count
                job.failures.add(first, stop)
            self._credit_client(job, count)
            if job.spec.detached:
                failures = [[at, failure, reason, b""] for at in range(count)]
                body = pack([[b""] * count, failures, [], []])
                # Who cancels is told so: no power cut may bring the tasks back after that.
                kept = records.OutcomeKept(job.id, first, count, body)
                self._write(kept, durable=failure == "cancelled")
        if tell and ranges and not job.spec.detached:
            pairs = [list(pair) for pair in ranges]
            self._tell(job.client, Dropped(job.id, pairs, failure, reason))

    def _handed_back(self, event: events.HandedBack, now_s: float) -> None:
        worker = self.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker else None
        if worker is None or assignment is None:
            self._resolve_closed(event.assignment)
            return
        returned = []
        for first, stop in event.ranges:
            if assignment.left.within(first, stop) != [(first, stop)]:
                self._effects.append(Expel(worker.handle, "it returned tasks it does not have"))
                return
            returned.append((first, stop))
        assignment.recalls = 0 if event.of_all else max(0, assignment.recalls - 1)
        # Nothing to take: do not ask again until it reports.
        assignment.recalled = not returned or assignment.recalls > 0
        job = assignment.job
        for first, stop in returned:
            self._release(assignment, first, stop)
        for first, stop in reversed(self._resolve_withdrawals(assignment, returned, now_s)):
            self._requeue(job, assignment.run.cut(first, stop))
        self._finish(job, now_s)

    def _resolve_closed(self, assignment: int) -> None:
        """A cancel waited for an assignment that has ended meanwhile: nothing was taken of it."""
        for withdrawal in list(self._withdrawals):
            if assignment in withdrawal.awaited:
                withdrawal.awaited.discard(assignment)
                if not withdrawal.awaited:
                    self._withdrawals.remove(withdrawal)
                    self._answer_cancel(withdrawal.client, withdrawal.request, withdrawal.taken)

    def _requeue(self, job: Job, run: Run) -> None:
        """Queue again what did not end, except for what was cancelled meanwhile."""
        for low, high in reversed(job.ended.missing(run.first, run.stop)):
            if job.leaving == "cancelled":
                self._drop(job, [(low, high)], "cancelled", job.reason)
            elif job.leaving:
                job.known.remove(low, high)  # should its client come back, it sends them again
            else:
                job.enqueue(run.cut(low, high), ahead=True)
        self._mark_ready(job)
        self._check_cost(job)

    # --- who comes and goes --------------------------------------------------------------------

    def _client_joined(self, event: events.ClientJoined) -> None:
        client = self.clients[event.client] = Client(event.client, event.user)
        if event.account:
            client.account = self._accounts.setdefault(event.account, client.account)
            client.is_site = True

    def _worker_joined(self, event: events.WorkerJoined, now_s: float) -> None:
        tariff = event.tariff or self.tariffs[event.pool]
        name = f"worker {event.name}"
        if not event.job and any(each.offer.name == name for each in self.workers.values()):
            name = f"{name} #{event.worker}"  # another of that name is here, with its own offer
        offer = Offer(name, event.pool, event.tags, event.python, tariff.currency)
        free = dict(counted(event.tags))
        if event.job:
            free = dict.fromkeys(free, inf)  # the seller counts them
        self.workers[event.worker] = Worker(
            event.worker, event.name, offer, event.slots, tariff, now_s, free
        )
        if event.job:
            self.workers[event.worker].job = event.job
            self.workers[event.worker].round_trip_s = event.round_trip_s
            return
        # Remembered after it has left: a job that only it could run waits for its return.
        self.offers.pop(offer.name, None)
        self.offers[offer.name] = offer
        while len(self.offers) > OFFERS_MAX:
            del self.offers[next(iter(self.offers))]

    def _worker_gone(self, event: events.WorkerGone, now_s: float) -> None:
        worker = self.workers.pop(event.worker, None)
        if worker is None:
            return
        if worker.offer.name != f"worker {worker.name}":
            self.offers.pop(worker.offer.name, None)  # it could not be told from others when back
        for assignment in reversed(list(worker.assignments.values())):
            job, run = assignment.job, assignment.run
            left = list(assignment.left)
            for first, stop in left:
                self._release(assignment, first, stop)
            for first, stop in reversed(self._resolve_withdrawals(assignment, left, now_s)):
                if event.is_orderly:
                    self._requeue(job, run.cut(first, stop))
                else:
                    self._survive_loss(job, run.cut(first, stop), worker.name)
            self._finish(job, now_s)

    def _survive_loss(self, job: Job, run: Run, worker: str) -> None:
        """Queue again what a lost worker had, until it has been lost too often."""
        run.losses += 1
        run.attempt += 1
        if run.losses < LOSSES_MAX:
            run.alone = run.losses == LOSSES_MAX - 1
            self._requeue(job, run)
            return
        text = f"its worker was lost {run.losses} times, the last was {worker}"
        self._drop(job, job.ended.missing(run.first, run.stop), "lost", text)

    def _client_gone(self, event: events.ClientGone, now_s: float) -> None:
        client = self.clients.pop(event.client, None)
        if client is None:
            return
        client.account.tasks -= client.tasks
        self._withdrawals = [each for each in self._withdrawals if each.client != event.client]
        for name in list(client.jobs):
            job = self.jobs[name]
            if job.spec.detached:
                self._forgive(job)
                job.client = 0
                job.orphan_since_s = now_s if job.total is None else None
            else:
                self._abandon(job, now_s)

    def _abandon(self, job: Job, now_s: float, reason: str = "its client left") -> None:
        """Stop a job whose client is gone: drop what waits, kill what runs."""
        finished = job.total is not None and len(job.ended) >= job.total
        waits = job.waiting or job.in_flight
        if not job.leaving and waits and not finished:
            job.leaving, job.reason = "abandoned", reason
        job.leaving = job.leaving or "done"
        for first, stop in job.withdraw(0, ALL_TASKS):
            job.known.remove(first, stop)
        for assignment in list(job.assignments.values()):
            assignment.is_stopped = True
            for first, stop in assignment.left:
                self._order_recall(assignment, first, stop, kill=True)
        self._mark_ready(job)
        self._finish(job, now_s)

    def _drain_asked(self, event: events.DrainAsked) -> None:
        if event.worker == 0:
            self.draining = event.on
            return
        worker = self.workers.get(event.worker)
        if worker is None:
            return
        worker.draining = event.on
        if event.by_itself:
            return
        self._effects.append(Order(worker.handle, Drain(event.on)))
        for assignment in worker.assignments.values() if event.on else ():
            for first, stop in assignment.left:
                self._order_recall(assignment, first, stop, kill=False)

    def _ticked(self, now_s: float) -> None:
        for name in [name for names in self._lacking.values() for name in names]:
            job, limit_s = self.jobs[name], self.limits.function_wait_s
            if now_s - (job.lacks_function_since_s or 0.0) > limit_s:
                reason = f"its function did not arrive within {limit_s:g} s"
                self._reject(job, Reason.FUNCTION_MISSING, reason, now_s)
        for job in list(self.jobs.values()):
            since_s = job.orphan_since_s
            if since_s is not None and now_s - since_s > ORPHAN_S and not job.leaving:
                job.orphan_since_s = None
                self._abandon(job, now_s, "its client left before everything was submitted")
