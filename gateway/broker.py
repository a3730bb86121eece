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
from gateway.jobs import Assignment, Job, Run, Worker
from gateway.ledger import records
from gateway.outcomes import is_sound, judge_report, usage_records
from gateway.terms import opened_record
from policies.placement import Offer, counted, judge_all
from policies.tariffs import Tariff

# A task whose worker vanished under it so often is given up; the time before, it goes alone.
LOSSES_MAX: Final = 3
# Jobs whose charges are remembered in case their client comes back.
REMEMBERED_MAX: Final = 10_000
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may have unfinished at a time; its Welcome says the same."""

    tasks_max: int = 200_000
    bytes_max: int = 256 << 20


@dataclass(slots=True)
class Client:
    """A client as the broker sees it."""

    handle: int
    user: str
    ready: bool = True
    jobs: dict[str, None] = field(default_factory=dict)  # in the order in which they came
    tasks: int = 0  # unfinished


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
        self._assignments = boot << EPOCH_BITS
        self._numbers = 0
        self._withdrawals: list[Withdrawal] = []
        self._held: dict[str, set[str]] = {}  # job → contracts that it may be out under
        self._remembered: OrderedDict[str, events.JobRecovered] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
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
            case events.JobHeld():
                self._job_held(event)
            case events.Resumed():
                self._resumed(event, now_s)
            case events.JobOpened():
                self._job_opened(event, now_s)
            case events.JobClosed():
                self._job_closed(event, now_s)
            case events.CancelAsked():
                self._cancel_asked(event, now_s)
            case events.ClientJoined():
                self.clients[event.client] = Client(event.client, event.user)
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
        return self._take_effects()

    def settle(self, now_s: float) -> list[Effect]:
        """Hand out what waits to whoever has room, and move work to workers that ran dry."""
        if not self._ready and not any(dispatch.has_spare(each) for each in self.workers.values()):
            return []
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
        """Whether a worker has room while another has tasks to spare: `settle` as time passes."""
        workers = self.workers.values()
        return any(map(dispatch.has_room, workers)) and any(map(dispatch.has_spare, workers))

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
        """Give this worker one more bundle, if any job has one for it."""
        best: tuple[tuple[bool, float, float, int], Job, int] | None = None
        for job in self._ready_for(worker):
            client = self.clients.get(job.client)
            if client is not None and not client.ready:
                continue
            task_s = self.durations.of(job.spec.function)
            tasks = dispatch.room(job, worker, task_s)
            if tasks <= 0 or dispatch.refusal(job, worker) is not None:
                continue
            tasks = dispatch.fits_cost(job, worker, task_s, tasks)
            if tasks <= 0:
                continue
            rank = dispatch.order(job)
            if best is None or rank < best[0]:
                best = rank, job, tasks
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

    def _assign(self, job: Job, worker: Worker, run: Run, now_s: float) -> None:
        if job.places is not None:
            job.places[worker.offer.pool] -= len(run.arguments)
        self._assignments += 1
        task_s = self.durations.of(job.spec.function) or 0.0
        left = RangeSet([(run.first, run.stop)])
        assignment = Assignment(self._assignments, job, worker, run, task_s, now_s, left)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
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
        job.load_s = max(0.0, job.load_s + tasks * assignment.task_s)

    def _release(self, assignment: Assignment, first: int, stop: int) -> None:
        """These tasks are no longer the worker's."""
        assignment.left.remove(first, stop)
        self._hold(assignment, first - stop)
        if not assignment.left:
            del assignment.worker.assignments[assignment.id]
            job = assignment.job
            del job.assignments[assignment.id]
            job.held_bytes = max(0, job.held_bytes - assignment.run.size)

    def _mark_ready(self, job: Job) -> None:
        if job.waiting and not job.leaving and job.id not in self._held:
            self._ready[job.id] = job
        else:
            self._ready.pop(job.id, None)

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
        if worker is None or job is None:
            return
        runs = [run for pair in event.ranges for run in job.extract(*pair)]
        if not runs:
            return
        runs.sort(key=lambda run: run.first)
        # One run over all of them; what lies between has ended, and is never looked at.
        whole = Run(runs[0].first, [], sum(run.size for run in runs))
        for run in runs:
            whole.arguments += [b""] * (run.first - whole.stop) + run.arguments
        task_s = self.durations.of(job.spec.function) or 0.0
        left = RangeSet((run.first, run.stop) for run in runs)
        assignment = Assignment(event.assignment, job, worker, whole, task_s, now_s, left)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        self._hold(assignment, len(left))
        job.held_bytes += whole.size
        self._mark_ready(job)

    def _recall_for(self, worker: Worker, now_s: float) -> None:
        found = dispatch.tail_to_recall(self.workers.values(), worker, now_s)
        if found is not None:
            assignment, (first, stop) = found
            assignment.recalled = True
            self._order_recall(assignment, first, stop, kill=False)

    def _order_recall(self, assignment: Assignment, first: int, stop: int, *, kill: bool) -> None:
        recall = Recall(assignment.id, first, stop, kill)
        self._effects.append(Order(assignment.worker.handle, recall))

    # --- jobs ----------------------------------------------------------------------------------

    def _job_opened(self, event: events.JobOpened, now_s: float) -> None:
        spec = event.spec
        known = self.jobs.get(event.job)
        if known is not None:
            self._job_taken_over(known, event)
            return
        refusal = self._refusal(spec)
        if refusal is not None:
            self._tell(event.client, RejectJob(event.job, *refusal))
            return
        job = self._new_job(event.job, spec, event.client, now_s)
        remembered = self._remembered.pop(event.job, None)
        if remembered is not None:
            self._recall_history(job, remembered)
        self._write(opened_record(job), durable=spec.detached)

    def _job_taken_over(self, job: Job, event: events.JobOpened) -> None:
        """A client opens a job that we have: it came back with a new session."""
        if job.spec.user != event.spec.user or job.spec.function != event.spec.function:
            reason = f"job {event.job} is somebody else's"
            self._tell(event.client, RejectJob(event.job, Reason.BAD_REQUEST, reason))
            return
        previous = self.clients.get(job.client)
        if previous is not None:
            previous.jobs.pop(job.id, None)
        job.may_repeat = not job.spec.detached and job.client != event.client
        job.client = event.client
        job.leaving = ""
        job.orphan_since_s = None
        self.clients[event.client].jobs[job.id] = None

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
        return job

    def _recall_history(self, job: Job, history: events.JobRecovered) -> None:
        job.charged = RangeSet(history.charged)
        job.cost_nanos, job.wall_ns, job.cpu_ns = (
            history.cost_nanos,
            history.wall_ns,
            history.cpu_ns,
        )

    def _job_recovered(self, event: events.JobRecovered, now_s: float) -> None:
        if event.spec is None:
            self._remember(event)
            return
        job = self._new_job(event.job, event.spec, 0, now_s)
        self._recall_history(job, event)
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
        return job in self.jobs or job in self._remembered

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
            self._reopen(job, first, stop)
        client = self.clients.get(event.client)
        for low, high in job.known.missing(first, stop):
            arguments = event.arguments[low - first : high - first]
            run = Run(low, arguments, sum(map(len, arguments)))
            job.enqueue(run)
            job.known.add(low, high)
            if client is not None and not job.spec.detached:
                client.tasks += high - low
            if job.spec.detached and client is not None:
                body = pack(run.arguments)
                self._write(records.BundleKept(job.id, low, high - low, body), durable=True)
        self._mark_ready(job)
        self._check_cost(job)
        if job.spec.detached:
            self._tell(event.client, Kept(job.id, stop, False))
        if client is not None:
            self._check_limits(client)

    def _check_limits(self, client: Client) -> None:
        """Expel a client that sends more than its Welcome allows."""
        held_bytes = sum(self.jobs[job].held_bytes for job in client.jobs)
        if client.tasks > self.limits.tasks_max:
            reason = f"more than {self.limits.tasks_max:,} unfinished tasks, against the Welcome"
        elif held_bytes > self.limits.bytes_max:
            reason = f"more than {self.limits.bytes_max:,} bytes unfinished, against the Welcome"
        else:
            return
        self._effects.append(Expel(client.handle, reason))

    def _reopen(self, job: Job, first: int, stop: int) -> None:
        """Tasks that ended, but whose results never reached the client, which sends them again."""
        for low, high in job.ended.within(first, stop):
            job.ended.remove(low, high)
            job.known.remove(low, high)
            job.charged.add(low, high)
            job.done = max(0, job.done - (high - low))

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
                job.known.add(low, high)
                job.ended.add(low, high)
        if job.spec.detached:
            self._write(records.JobClosed(job.id, event.total), durable=True)
            self._tell(event.client, Kept(job.id, event.total, True))
            self._disown(job)
        self._finish(job, now_s)

    def _disown(self, job: Job) -> None:
        client = self.clients.get(job.client)
        if client is not None:
            client.jobs.pop(job.id, None)
        job.client = 0

    def _finish(self, job: Job, now_s: float) -> None:
        """End the job if nothing of it is left."""
        if not job.is_over or job.id not in self.jobs:
            return
        del self.jobs[job.id]
        self._ended[job.id] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        self._ready.pop(job.id, None)
        if job.leaving == "abandoned":
            self._remember(job.history())
        self._disown(job)
        state = job.leaving or "done"
        counts = (job.done, job.failed, job.cancelled)
        self._write(records.JobEnded(job.id, state, job.reason, now_s, *counts))

    # --- cancelling ----------------------------------------------------------------------------

    def _cancel_asked(self, event: events.CancelAsked, now_s: float) -> None:
        job = self.jobs.get(event.job)
        if job is None or not self._may_cancel(job, event.client):
            code = "" if event.ranges else Reason.JOB_NOT_FOUND
            self._answer_cancel(event.client, event.request, RangeSet(), code)
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
            client.tasks = max(0, client.tasks - tasks)

    def _answer_cancel(self, client: int, request: int, taken: RangeSet, code: str = "") -> None:
        if request:
            value = {"taken": [list(pair) for pair in taken]}
            reason = "no unfinished job of yours has that id" if code else ""
            self._tell(client, Answer(request, code, reason, value))

    def _resolve_withdrawals(
        self, assignment: Assignment, returned: list[Range], now_s: float
    ) -> list[Range]:
        """Count what came back towards cancels that waited for it; return what is left of it."""
        rest = RangeSet(returned)
        for withdrawal in list(self._withdrawals):
            if assignment.id not in withdrawal.awaited:
                continue
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
        assignment.recalled = False
        if not assignment.left:
            self._resolve_closed(assignment.id)
        worker.tasks_done += stop - first
        self.durations.learn(job.spec.function, stop - first, event.wall_ns)
        used = usage_records(job, assignment, event, now_s)
        for record in used:
            job.cost_nanos += record.cost_nanos
            job.wall_ns += record.wall_ns
            job.cpu_ns += record.cpu_ns
            job.currency, job.price_nanos = record.currency, record.price_nanos
            self._write(record)
        cost_nanos = sum(record.cost_nanos for record in used)
        charge = Charge(event.wall_ns, event.cpu_ns, event.peak_memory_bytes, cost_nanos)
        self._deliver(job, assignment, event, charge)
        self._check_cost(job)
        self._finish(job, now_s)

    def _deliver(
        self, job: Job, assignment: Assignment, event: events.Reported, charge: Charge
    ) -> None:
        verdict = judge_report(job, event)
        for retry in reversed(verdict.again):
            run = assignment.run.cut(retry.task, retry.task + 1)
            run.attempt += 1
            run.alone = retry.alone
            job.enqueue(run, ahead=True)
        if verdict.again:
            self._mark_ready(job)
        job.done += verdict.done
        job.failed += verdict.failed
        self.tasks_done += verdict.done
        self._credit_client(job, verdict.done + verdict.failed)
        for results in verdict.results:
            count = len(results.values)
            job.ended.add(results.first, results.first + count)
            if job.spec.detached:
                body = pack([results.values, results.failures, results.prints, results.sites])
                self._write(records.OutcomeKept(job.id, results.first, count, body))
            elif job.client in self.clients:
                self._effects.append(Tell(job.client, results, charge))
                charge = NO_CHARGE  # it is asked for once

    def _check_cost(self, job: Job) -> None:
        limit = job.spec.max_cost_nanos
        if limit is not None and job.cost_nanos >= limit and job.waiting:
            self._drop_waiting(job, "budget", f"job {job.id} reached its cost limit")

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
            else:
                job.failed += count
            self._credit_client(job, count)
            if job.spec.detached:
                failures = [[at, failure, reason, b""] for at in range(count)]
                body = pack([[b""] * count, failures, [], []])
                self._write(records.OutcomeKept(job.id, first, count, body))
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
        assignment.recalled = not returned  # nothing to take: do not ask again until it reports
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
            if job.leaving:
                job.known.remove(low, high)  # should its client come back, it sends them again
            else:
                job.enqueue(run.cut(low, high), ahead=True)
        self._mark_ready(job)
        self._check_cost(job)

    # --- who comes and goes --------------------------------------------------------------------

    def _worker_joined(self, event: events.WorkerJoined, now_s: float) -> None:
        tariff = event.tariff or self.tariffs[event.pool]
        offer = Offer(f"worker {event.name}", event.pool, event.tags, event.python, tariff.currency)
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
        for assignment in reversed(list(worker.assignments.values())):
            job, run = assignment.job, assignment.run
            left = list(assignment.left)
            for first, stop in left:
                self._release(assignment, first, stop)
            for first, stop in reversed(self._resolve_withdrawals(assignment, left, now_s)):
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
        self._withdrawals = [each for each in self._withdrawals if each.client != event.client]
        for name in list(client.jobs):
            job = self.jobs[name]
            if job.spec.detached:
                job.client = 0
                job.orphan_since_s = now_s if job.total is None else None
            else:
                self._abandon(job, now_s)

    def _abandon(self, job: Job, now_s: float) -> None:
        """Stop a job whose client is gone: drop what waits, kill what runs."""
        finished = job.total is not None and len(job.ended) >= job.total
        waits = job.waiting or job.in_flight
        job.leaving = "abandoned" if waits and not finished else "done"
        job.reason = "its client left" if job.leaving == "abandoned" else ""
        for first, stop in job.withdraw(0, ALL_TASKS):
            job.known.remove(first, stop)
        for assignment in list(job.assignments.values()):
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
        self._effects.append(Order(worker.handle, Drain(event.on)))
        for assignment in worker.assignments.values() if event.on else ():
            for first, stop in assignment.left:
                self._order_recall(assignment, first, stop, kill=False)

    def _ticked(self, now_s: float) -> None:
        for job in list(self.jobs.values()):
            since_s = job.orphan_since_s
            if since_s is not None and now_s - since_s > ORPHAN_S and not job.leaving:
                job.orphan_since_s = None
                job.reason = "its client left before everything was submitted"
                self._abandon(job, now_s)
