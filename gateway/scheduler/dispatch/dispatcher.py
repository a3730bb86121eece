"""Assigns waiting tasks to workers and recalls tasks from them. Pure.

`matching.py` decides how much a worker should hold and which job is next. This module turns those
decisions into assignments, counted at the worker and at the job, and into orders to workers. It
runs once after each batch of events, when all capacity that they released can be handed out again.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, takewhile
from math import inf
from typing import Final

from federation.clocks import UtcS
from federation.messages.messages import Assign, Recall
from federation.ranges import Range, RangeSet
from gateway.base.ranked import RankedItems
from gateway.base.tags import OBJECTS_TAG
from gateway.scheduler.dispatch.queueing import DispatchTermsBook, Queue
from gateway.scheduler.dispatch.worker_index import WorkerIndex
from gateway.scheduler.model import matching
from gateway.scheduler.model.durations import Durations
from gateway.scheduler.model.effects import Effect, SendToWorker
from gateway.scheduler.model.events import JobHeld, Resumed
from gateway.scheduler.model.jobs import AHEAD_MAX_S, Assignment, Job, QueuedBundle, Worker
from gateway.scheduler.quotas.accounts import BrokerClient
from gateway.scheduler.quotas.entitling import Entitling
from gateway.scheduler.quotas.fair_shares import FairShares, Rank
from gateway.scheduler.quotas.occupancy import Occupancy
from policies.access.fairness import ShareNode
from policies.costs.budgets import BudgetAccount
from policies.placement.placement import show_tags
from policies.tariffs import Tariff

RECALLS_MAX: Final = 8  # in one pass of `settle`
LOOK_MAX: Final = 64  # runs of a job that are searched for one that a worker may take
# Bits of an assignment's number below the boot. A boot is at least the second in which it began, so
# the next life's numbers are above all that this life gives out: no site assigns a billion a
# second.
EPOCH_BITS: Final = 30

# How much `settle` may do before it returns. Each look at a worker is a step, as is each look at a
# job that does not fit it; each bundle costs BUNDLE_STEPS. A step takes 5 to 10 µs, so the loop
# turns within about 20 ms.
STEPS_MAX: Final = 2_048
BUNDLE_STEPS: Final = 32
# With more functions than this, the shortest is not searched for.
FUNCTIONS_LOOKED_AT: Final = 64


class Dispatcher:
    """The workers of a site, the jobs with tasks for them, and the tasks in flight between the two.

    Args:
        clients: the connected clients. Tasks of a client that does not read its results wait.
        effects: the list to which orders are appended, in sequence with all other effects.
        boot: which life of the site this is; assignments of different lives never share a number.
        tariff: returns the tariff at which a job is charged at a worker from now on.
        jobs: all jobs.
        paid_ahead: (pool, tariff) → the budgets in which its charges are held already.
    """

    def __init__(
        self,
        clients: Mapping[int, BrokerClient],
        effects: list[Effect],
        boot: int,
        tariff: Callable[[Job, Worker], Tariff],
        jobs: Mapping[str, Job],
        paid_ahead: Callable[[str, Tariff], tuple[BudgetAccount, ...]] = lambda *_: (),
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self.durations = Durations()
        self.ready: dict[str, Job] = {}  # jobs with queued tasks
        self.fresh: dict[str, Job] = {}  # jobs of `ready` added since this was last emptied
        self.is_settled = True  # False while `settle` has more to do
        self.occupancy = Occupancy(self.workers)
        self.entitling = Entitling(self.workers, jobs, self.occupancy)
        self.worker_index = WorkerIndex(self.workers)
        self._clients = clients
        self._effects = effects
        self._held: dict[str, set[str]] = {}  # job → contracts that may have tasks of it
        self._assignments = boot << EPOCH_BITS
        self._tariff = tariff
        self._paid_ahead = paid_ahead
        self._shares: FairShares | None = None
        self._order: Callable[[Job, float | None, int], Rank] = matching.order
        self._terms = DispatchTermsBook()
        self._queues: dict[ShareNode | None, Queue] = {}  # by share; a single one without shares
        self._functions: Counter[bytes] = Counter()  # of the jobs in `ready`
        self._ready_counted = 0  # jobs in `ready` whose tasks hold counted tags
        self._alone: set[str] = set()  # jobs in `ready` whose next task goes alone
        # Jobs with a deadline, in `ready` or on hold: a hold does not put the deadline off.
        self._dated: RankedItems[Job] = RankedItems()
        self._watched: set[str] = set()  # the jobs in `ready` or on hold
        self._turned: list[Job] = []  # jobs whose queue has another first task, to be filed anew
        self._agenda: deque[int] = deque()  # workers that this pass has still to look at
        self._looks = 0  # looks at jobs for the current worker
        self._steps = 0  # steps that are left to this call
        self.changes = 0  # the number of events so far
        self._begun_at = 0  # `changes` when the agenda was made

    def settle(self, utc_s: UtcS) -> None:
        """Hand out waiting tasks to workers with room, and move work to workers that ran dry.

        A call does a bounded part of that work. `is_settled` says whether all is done; the next
        call continues where this one stopped.
        """
        self.entitling.look(utc_s)
        if self._shares is not None:
            self._shares.begin(map(_leaf, self._queues), utc_s)
        if not self.ready:
            self._agenda.clear()
        elif not self._agenda:
            self._begun_at = self.changes
            self._agenda.extend(each.handle for each in self._hungry(utc_s))
        self._hand_out(utc_s)
        # Changes that other events made in between are handled in a round of their own.
        is_round_over = not self._agenda and self._begun_at == self.changes
        self.is_settled = is_round_over or not self.ready
        if not self._agenda and self.worker_index.spare:
            starving = [*islice(filter(matching.has_room, self.worker_index.dry()), RECALLS_MAX)]
            donors = matching.donors(self.worker_index.spare.values(), utc_s) if starving else []
            for worker in starving if donors else ():
                self._recall_for(worker, donors, utc_s)

    def _hand_out(self, utc_s: UtcS) -> None:
        """Feed the workers of the agenda until the steps of this call are used up."""
        self._steps = STEPS_MAX
        while self._agenda and self._steps > 0:
            worker = self.workers.get(self._agenda[0])
            if worker is not None:
                self._looks = 0
                is_given = self._feed(worker, utc_s)
                while self._turned:
                    self.refile(self._turned.pop())
                self._steps -= 1 + self._looks
                if is_given:
                    self._steps -= BUNDLE_STEPS
                    continue
            self._agenda.popleft()
            if not self.ready:
                self._agenda.clear()

    def _hungry(self, utc_s: UtcS) -> Iterator[Worker]:
        """Return the workers to give tasks to, or to recall tasks from for another job, in order.

        Those with an idle slot are first, as in `WorkerIndex.hungry`, then those with least load.
        """
        shortest_s, longest_s = self._task_range_s()
        found = self.worker_index.hungry(shortest_s)
        late: list[Worker] = []
        if longest_s >= AHEAD_MAX_S:  # shorter tasks can be queued ahead of an idle slot
            late = [
                each for each in self.worker_index.spare.values() if matching.is_late(each, utc_s)
            ]
        if not late:
            return found
        either = {each.handle: each for each in (*found, *late)}
        return iter(sorted(either.values(), key=_turn_of))

    def _task_range_s(self) -> tuple[float, float]:
        """Return the shortest and longest duration of waiting tasks; inf: they need an idle slot.

        With more than FUNCTIONS_LOOKED_AT functions, assume both extremes. A task that goes alone
        counts with its duration and as inf: the task after it may be next in the same pass.
        """
        if len(self._functions) > FUNCTIONS_LOOKED_AT:
            return 0.0, inf
        known = [self.durations.pace(each) for each in self._functions]
        found = [inf if each is None else each for each in known]
        if self._ready_counted or self._alone:
            found.append(inf)
        return min(found, default=inf), max(found, default=0.0)

    def share_out(self, shares: FairShares | None) -> None:
        """Serve jobs share by share from now on; with None, by `matching.order` alone."""
        self._shares = shares
        self._order = matching.order if shares is None else shares.order
        self._queues.clear()
        for job in self.ready.values():
            self._file(job)

    @property
    def is_uneven(self) -> bool:
        """Whether `settle` must also be called as time passes, without an event.

        This is so while a worker has room and another has spare tasks, or while a job waits for
        slots that are busy with tasks of lower rank.
        """
        if not self.worker_index.spare:
            return False
        return self.worker_index.has_dry or self._task_range_s()[1] >= AHEAD_MAX_S

    # --- jobs with waiting tasks ---------------------------------------------------------------

    def mark_ready(self, job: Job) -> None:
        """Update whether a job has tasks to hand out; call it whenever that may have changed."""
        is_free = job.id not in self._held and job.lacks_function_since_s is None
        if not (job.waiting and not job.leaving and is_free):
            self.forget(job)
            return
        if job.id not in self._watched:
            self._watched.add(job.id)
            self._dated.move(job, None, _due(job))
        if job.spec.hold is not None:
            self._take_out(job)
            return
        if job.id not in self.ready:
            self.ready[job.id] = self.fresh[job.id] = job
            self._functions[job.spec.function] += 1
            self._ready_counted += bool(job.counted)
        self._file(job)

    def refile(self, job: Job) -> None:
        """Update a job's place in the queue after a change to when and where it is served."""
        if job.id in self.ready:
            self._file(job)

    def forget(self, job: Job) -> None:
        """Remove a job that has ended or has no waiting tasks."""
        if job.id in self._watched:
            self._watched.remove(job.id)
            self._dated.move(job, _due(job), None)
        self._take_out(job)

    def _take_out(self, job: Job) -> None:
        """Take a job out of the queue; do nothing if it is not there."""
        if self.ready.pop(job.id, None) is None:
            return
        self.fresh.pop(job.id, None)
        function = job.spec.function
        self._functions[function] -= 1
        if not self._functions[function]:
            del self._functions[function]
        self._ready_counted -= bool(job.counted)
        self._alone.discard(job.id)
        leaf = self._leaf_of(job)
        queue = self._queues[leaf]
        queue.drop(job)
        if not queue:
            del self._queues[leaf]

    def overdue(self, utc_s: UtcS, at_most: int) -> list[Job]:
        """Return jobs with waiting tasks whose deadline has passed, the earliest first."""
        dated = takewhile(lambda pair: pair[0][0] <= utc_s, self._dated)
        return [job for _, job in islice(dated, at_most)]

    def waiting_groups(self) -> Iterator[tuple[Job, int]]:
        """Yield a job of each group with equal terms, and the number of its waiting tasks."""
        for queue in self._queues.values():
            yield from queue.groups()

    def _leaf_of(self, job: Job) -> ShareNode | None:
        return None if self._shares is None else job.leaf

    def _file(self, job: Job) -> None:
        is_alone = bool(job.queue) and job.queue[0].alone
        (self._alone.add if is_alone else self._alone.discard)(job.id)
        leaf = self._leaf_of(job)
        queue = self._queues.get(leaf)
        if queue is None:
            queue = self._queues[leaf] = Queue(matching.order, self._measured_s, self._terms)
        queue.file(job)

    def _measured_s(self, job: Job) -> float | None:
        return self.durations.pace(job.spec.function)

    def hold_back(self, event: JobHeld, job: Job | None) -> None:
        """Note whether a contract may have tasks of a job, which may not have arrived yet.

        While a contract may have some, no task of the job is handed out.
        """
        held = self._held.setdefault(event.job, set())
        (held.add if event.on else held.discard)(event.contract)
        if not held:
            del self._held[event.job]
        if job is not None:
            self.mark_ready(job)

    def is_held(self, job: Job) -> bool:
        """Whether a contract may have tasks of a job, which may not have arrived yet."""
        return job.id in self._held

    # --- assigning -----------------------------------------------------------------------------

    def _feed(self, worker: Worker, utc_s: UtcS) -> bool:
        """Give this worker one more bundle, if any job has one for it.

        No task goes ahead of a higher-ranked job that waits for an idle slot: otherwise jobs whose
        tasks can be queued ahead would keep every slot busy. So the first job in order that would
        use this worker decides, whether it can start now or needs an idle slot.
        """
        is_late = matching.has_spare(worker) and matching.is_late(worker, utc_s)
        if matching.is_full(worker) and not is_late:
            return False
        for job in self._candidates(worker):
            task_s = self.durations.pace(job.spec.function)
            # First of all: whether it needs an idle slot is decided by the task that comes first.
            if job.is_shunning and not self._bring_forward(job, worker, task_s, utc_s):
                continue
            tasks = matching.room(job, worker, task_s)
            waits = tasks <= 0
            if waits and not matching.needs_idle_slot(job, task_s, worker.ahead_max_s):
                continue
            tasks = self._takes(job, worker, task_s, max(1, tasks), utc_s)
            if tasks <= 0:
                continue
            if waits:
                if is_late:
                    self._make_way(worker, self._rank(job), job)
                return False
            self._give(job, worker, task_s, tasks, utc_s)
            return True
        return False

    def _candidates(self, worker: Worker) -> Iterator[Job]:
        """Return the jobs that may suit a worker, in order; the first of each equal group."""
        if worker.job:
            job = self.ready.get(worker.job)
            return iter(() if job is None else (job,))
        return chain.from_iterable(self._candidates_by_share(worker))

    def _candidates_by_share(self, worker: Worker) -> Iterator[Iterator[Job]]:
        """Yield the candidates of each share in turn; without shares there is one group."""

        def misfits(job: Job) -> bool:
            self._looks += 1
            return matching.misfits(job, worker) is not None

        leaves: Iterable[ShareNode | None] = self._queues
        if self._shares is not None:
            leaves = self._shares.turns()
        for leaf in leaves:
            queue = self._queues.get(leaf)  # it may have become empty since the turns were taken
            if queue is not None:
                yield queue.walk(misfits)

    def _give(
        self, job: Job, worker: Worker, task_s: float | None, tasks: int, utc_s: UtcS
    ) -> None:
        """Give a worker a bundle of at most `tasks` tasks."""
        slots_total = self.worker_index.slots + (worker.slots if worker.job else 0)
        beside = self._queues[self._leaf_of(job)].tasks_beside(job)
        part = matching.share(job, worker, slots_total, task_s, 0 if worker.job else beside)
        tasks = min(tasks, part, matching.BUNDLE_TASKS_MAX)
        if self._shares is not None and tasks > 1:
            tasks = self._turn(self._shares, job, worker, tasks, utc_s)
        run = job.take(tasks, matching.BUNDLE_BYTES_MAX)
        if job.follow is not None:
            self._lead(job, worker, run, task_s, utc_s)
        self._assign(job, worker, run, utc_s)

    def _lead(
        self, job: Job, worker: Worker, run: QueuedBundle, task_s: float | None, utc_s: UtcS
    ) -> None:
        """Add the calls to a run that can follow it in its slot: a chain."""
        most = matching.followers(job, worker, run, task_s)
        if most <= 0 or job.follow is None:
            return
        most = self._takes(job, worker, task_s, most + 1, utc_s) - 1
        calls = job.follow(run.first, most, matching.BUNDLE_BYTES_MAX - run.size)
        if calls:
            size = sum(map(len, calls))
            run.arguments = [*run.arguments, *calls]
            run.size += size
            run.is_chain = True
            job.hold_bytes(size)

    def _takes(
        self, job: Job, worker: Worker, task_s: float | None, tasks: int, utc_s: UtcS
    ) -> int:
        """Return how many of `tasks` tasks a worker may take by all limits except its room."""
        if not self._is_heard(job) or matching.refusal(job, worker) is not None:
            return 0
        if job.live_room is not None:
            room = job.live_room()
            tasks = tasks if room is None else min(tasks, room)
        tasks = self._within_rules(job, worker, task_s, tasks, utc_s)
        return self._affords(job, worker, task_s, tasks)

    def _within_rules(
        self, job: Job, worker: Worker, task_s: float | None, tasks: int, utc_s: UtcS
    ) -> int:
        """Return how many of `tasks` tasks windows, entitlements and the grid let a worker have."""
        bound = self.occupancy.bound(job, worker, task_s, utc_s)
        if bound is not None:
            tasks = min(tasks, bound)
        bound = self.entitling.bound(job, worker)
        if bound is not None:
            tasks = min(tasks, bound)
        if worker.ends_at_s is not None:
            tasks = matching.in_time(worker, matching.known_s(job, task_s), tasks, utc_s)
        return tasks

    def _bring_forward(self, job: Job, worker: Worker, task_s: float | None, utc_s: UtcS) -> bool:
        """Move the first run that a worker may take to the front of a job's queue; False if none.

        Lost tasks go before the others. They do not return to the place where they were lost, nor
        go to a worker on trial (gateway.scheduler.tasks.probation), while another worker can take
        them.
        """
        if worker.job:
            return True
        best: int | None = None
        was_shunning = job.is_shunning
        has_better: dict[frozenset[str], bool] = {}
        job.is_shunning = len(job.queue) > LOOK_MAX
        for at, run in enumerate(islice(job.queue, LOOK_MAX)):
            if not run.shuns or utc_s >= run.shuns_until_s:
                best = at if best is None else best
                continue
            job.is_shunning = True
            if worker.trial is not None or worker.place in run.shuns:
                if run.shuns not in has_better:
                    has_better[run.shuns] = self._has_better(job, run.shuns, task_s, utc_s)
                if has_better[run.shuns]:
                    continue
            best = at
            break
        if best:
            run = job.queue[best]
            del job.queue[best]
            job.queue.appendleft(run)
        if best or job.is_shunning != was_shunning:
            self._turned.append(job)  # nothing may be filed as long as jobs are walked through
        return best is not None

    def _has_better(
        self, job: Job, shuns: frozenset[str], task_s: float | None, utc_s: UtcS
    ) -> bool:
        """Whether a local worker outside `shuns` and not on trial can take tasks of a job."""
        return any(
            each.place not in shuns
            and each.trial is None
            and not each.job
            and matching.refusal(job, each) is None
            and not self._is_shut(job, each, task_s, utc_s)
            for each in self.workers.values()
        )

    def may_want(self, job: Job, worker: Worker, utc_s: UtcS, slots: int) -> bool:
        """Whether a job would give tasks to a worker that fits it if `slots` slots were free."""
        task_s = self.durations.pace(job.spec.function)
        return (
            self._is_heard(job)
            and self.occupancy.may_begin(worker.offer.pool, job, task_s, utc_s, slots)
            and self._affords(job, worker, task_s, 1) > 0
        )

    def _is_heard(self, job: Job) -> bool:
        client = self._clients.get(job.client)
        return client is None or client.ready

    def _affords(self, job: Job, worker: Worker, task_s: float | None, tasks: int) -> int:
        if job.spec.max_cost_nanos is None and not job.budget_accounts:
            return tasks
        tariff = self._tariff(job, worker)
        is_bounded = bool(worker.job)
        tasks = matching.fits_cost(job, tariff, task_s, tasks, is_bounded=is_bounded)
        if not job.budget_accounts:
            return tasks
        paid = self._paid_ahead(worker.offer.pool, tariff)
        return matching.fits_budgets(job, worker, tariff, task_s, tasks, paid)

    def _turn(self, shares: FairShares, job: Job, worker: Worker, tasks: int, utc_s: UtcS) -> int:
        """Return how many of `tasks` tasks of a job a worker may take before another share's turn.

        Tasks that can be queued ahead are not limited further: they finish soon.
        """
        task_s = self.durations.pace(job.spec.function)
        if worker.job or not matching.needs_idle_slot(job, task_s, worker.ahead_max_s):
            return tasks
        others = (
            next((each for each in jobs if self._has_turn(each, worker, utc_s)), job)
            for jobs in self._candidates_by_share(worker)
        )
        return shares.turn(job, others, task_s, tasks)

    def _has_turn(self, job: Job, worker: Worker, utc_s: UtcS) -> bool:
        task_s = self.durations.pace(job.spec.function)
        if job.is_shunning and not self._bring_forward(job, worker, task_s, utc_s):
            return False
        has_room = matching.room(job, worker, task_s) > 0
        return has_room and self._takes(job, worker, task_s, 1, utc_s) > 0

    def _rank(self, job: Job) -> Rank:
        """Return the rank of a job in its queue."""
        return self._order(job, self._queues[self._leaf_of(job)].estimate_s(job), 0)

    def _make_way(self, worker: Worker, rank: Rank, first: Job) -> None:
        """Recall tasks that rank behind `first`, which would otherwise wait too long.

        The newest go first, and only as many as rank behind `first` also when they are back:
        others would return to this worker at once, to be recalled again.
        """
        self._steps -= len(worker.assignments)
        returning: Counter[str] = Counter()  # tasks by job
        for assignment in reversed(worker.assignments.values()):
            back = returning[assignment.job.id]
            if assignment.recalled:
                tasks = len(assignment.left)
            else:
                tasks = self._behind(assignment, back, rank, first)
            returning[assignment.job.id] += tasks
            if tasks > 0 and not assignment.recalled:
                assignment.recalled = True
                for low, high in assignment.left.last(tasks):
                    self.recall(assignment, low, high, kill=False)

    def _behind(self, assignment: Assignment, back: int, rank: Rank, first: Job) -> int:
        """Return how many tasks of an assignment come after the job `first`, which has that rank.

        `back` other tasks of its job count as returned. The last two parts of a rank, service and
        age, do not count: a job that is served goes behind its equals, and they would change places
        for ever.
        """
        job = assignment.job
        if self._shares is not None and job.leaf is not first.leaf:
            return len(assignment.left) if self._shares.is_ahead(first, assignment) else 0
        task_s = self.durations.pace(job.spec.function)

        def is_level(tasks: int) -> bool:
            return self._order(job, task_s, back + tasks)[:-2] <= rank[:-2]

        return bisect_left(range(1, len(assignment.left) + 1), True, key=is_level)

    def _task_s(self, job: Job) -> float:
        """Return the expected duration of a job's task; 0 if it is unknown."""
        return matching.known_s(job, self.durations.pace(job.spec.function)) or 0.0

    def _assign(self, job: Job, worker: Worker, run: QueuedBundle, utc_s: UtcS) -> None:
        if job.places is not None:
            job.places[worker.offer.pool] -= len(run.arguments)
        self._assignments += 1
        task_s = self._task_s(job)
        left = RangeSet([(run.first, run.stop)])
        job.served = self._assignments
        tariff = self._tariff(job, worker)
        assignment = Assignment(self._assignments, job, worker, run, task_s, utc_s, left, tariff)
        if job.budget_accounts:
            assignment.holds = self._holds(job, worker, tariff)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        worker.held_bytes += run.size
        self._hold(assignment, len(run.arguments))
        self.mark_ready(job)
        spec = job.spec
        leaves = spec.results if spec.results and OBJECTS_TAG in worker.offer.tags else ""
        self._effects.append(
            SendToWorker(
                worker.handle,
                Assign(
                    assignment.id,
                    job.id,
                    spec.function,
                    run.first,
                    run.arguments,
                    spec.timeout_s,
                    spec.prints if worker.tells_output else job.wants_output,
                    spec.origin,
                    show_tags(job.counted) if job.counted else "",
                    wary=run.is_wary,
                    logs=job.is_logged and worker.tells_output,
                    objects=spec.scope if OBJECTS_TAG in spec.tags else "",
                    results=leaves,
                    project=spec.scope if leaves else "",
                    chained=run.is_chain,
                ),
                worker.port,
            )
        )

    def _holds(
        self, job: Job, worker: Worker, tariff: Tariff
    ) -> tuple[tuple[BudgetAccount, int], ...]:
        """Return the amount held for one task at a worker, for each budget that pays for it."""
        task_s, found = self.durations.of(job.spec.function), []
        paid = self._paid_ahead(worker.offer.pool, tariff)
        for budget_account in job.budget_accounts:
            if (worker.is_funded and budget_account.budget.is_money) or budget_account in paid:
                continue
            nanos = budget_account.budget.bound_nanos(tariff, job.spec.timeout_s, task_s)
            if nanos is not None:
                found.append((budget_account, nanos))
        return tuple(found)

    def resume(self, event: Resumed, worker: Worker, job: Job, utc_s: UtcS) -> None:
        """Account for queued tasks that a worker turns out to hold as assigned to it.

        Of a job that is ending none is queued, and the arguments are gone. Tasks that have ended
        here, as by a cancel before the worker was heard, are still at the worker.
        """
        if event.assignment in job.assignments:
            return
        if job.leaving:
            runs = _held_unqueued(job, event.ranges)
        else:
            runs = job.extract(RangeSet(event.ranges))
            ended = (part for pair in event.ranges for part in job.ended.within(*pair))
            runs += _held_unqueued(job, ended)
        if not runs:
            return
        runs.sort(key=lambda run: run.first)
        # One run covers them all. Tasks in its gaps have ended and are never looked up.
        whole = QueuedBundle(runs[0].first, [], sum(run.size for run in runs))
        for run in runs:
            whole.arguments += [b""] * (run.first - whole.stop) + run.arguments
            whole.attempt = max(whole.attempt, run.attempt)
        task_s = self._task_s(job)
        left = RangeSet((run.first, run.stop) for run in runs)
        tariff = self._tariff(job, worker)
        assignment = Assignment(event.assignment, job, worker, whole, task_s, utc_s, left, tariff)
        assignment.holds = self._holds(job, worker, tariff)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        self._hold(assignment, len(left))
        job.hold_bytes(whole.size)
        worker.held_bytes += whole.size
        self.mark_ready(job)

    # --- recalling -----------------------------------------------------------------------------

    def release(self, assignment: Assignment, first: int, stop: int) -> None:
        """Take the tasks from `first` to `stop` off a worker's assignment."""
        job = assignment.job
        assignment.left.remove(first, stop)
        for task in [each for each in assignment.begun if first <= each < stop]:
            del assignment.begun[task]
        self._hold(assignment, first - stop)
        self.refile(job)
        if not assignment.left:
            del assignment.worker.assignments[assignment.id]
            del job.assignments[assignment.id]
            job.hold_bytes(-assignment.run.size)
            assignment.worker.held_bytes -= assignment.run.size
            self.worker_index.moved(assignment.worker)

    def recall(self, assignment: Assignment, first: int, stop: int, *, kill: bool) -> None:
        """Recall tasks that have not started; with `kill`, stop the started ones."""
        assignment.recalls += 1
        recall, worker = Recall(assignment.id, first, stop, kill), assignment.worker
        self._effects.append(SendToWorker(worker.handle, recall, worker.port))

    def recall_all(self, assignment: Assignment, *, kill: bool) -> None:
        """Recall all remaining tasks of an assignment."""
        for first, stop in assignment.left:
            self.recall(assignment, first, stop, kill=kill)

    def recall_unstarted(self, job: Job) -> None:
        """Recall all tasks of a job that have not started, from every worker."""
        for assignment in job.assignments.values():
            assignment.recalled = True
            self.recall_all(assignment, kill=False)

    def _recall_for(self, worker: Worker, donors: list[Worker], utc_s: UtcS) -> None:
        def may_move(assignment: Assignment) -> bool:
            job = assignment.job
            task_s = self.durations.pace(job.spec.function)
            if not self._is_heard(job):
                return False  # here and below: the tasks would be returned and recalled again
            if self._within_rules(job, worker, task_s, 1, utc_s) <= 0:
                return False
            if job.spec.max_cost_nanos is None and not job.budget_accounts:
                return True
            return matching.can_be_paid(assignment, worker, self._tariff(job, worker), task_s)

        found = matching.tail_to_recall(donors, worker, may_move)
        if found is not None:
            assignment, (first, stop) = found
            assignment.recalled = True
            self.recall(assignment, first, stop, kill=False)

    def _is_shut(self, job: Job, worker: Worker, task_s: float | None, utc_s: UtcS) -> bool:
        """Whether a worker may start no task of a job: by rules, or as its grid ends it soon."""
        if worker.job:
            return not self.entitling.may_leave(job.work)
        if matching.ends_too_soon(worker, matching.known_s(job, task_s), utc_s) is not None:
            return True
        pool = worker.offer.pool
        shut = self.occupancy.shut(pool, job.spec, task_s, utc_s)
        return shut is not None or self.entitling.barred(job.spec, pool) is not None

    def _hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or fewer) in flight, at the job and at the worker."""
        assignment.worker.hold(assignment, tasks)
        self.worker_index.moved(assignment.worker)
        self.occupancy.note(assignment, tasks)
        self.entitling.note(assignment.worker, assignment.job, tasks)
        job = assignment.job
        job.in_flight += tasks
        cost = assignment.tariff.expected_nanos(tasks, assignment.task_s)
        job.load_nanos = max(0.0, job.load_nanos + cost) if job.in_flight else 0.0
        for budget_account, nanos in assignment.holds:
            budget_account.held_nanos += nanos * tasks
        if self._shares is not None:
            self._shares.hold(assignment, tasks)


def _leaf(leaf: ShareNode | None) -> ShareNode:
    assert leaf is not None, "a job needs a share where fair shares apply"
    return leaf


def _turn_of(worker: Worker) -> tuple[bool, float, int]:
    return worker.in_flight >= worker.slots, worker.load_s, worker.rank


def _due(job: Job) -> tuple[UtcS, int] | None:
    """Return a waiting job's deadline as a sort key; None if it has no deadline."""
    deadline_s = job.spec.wishes.deadline_s
    return None if deadline_s is None else (deadline_s, job.number)


def _held_unqueued(job: Job, ranges: Iterable[Range]) -> list[QueuedBundle]:
    """Return those of these tasks that had arrived and that no other worker has, without arguments.

    Tasks that have ended are among them: they are being stopped.
    """
    held = RangeSet(part for pair in ranges for part in job.known.within(*pair))
    for assignment in job.assignments.values():
        for first, stop in assignment.left:
            held.remove(first, stop)
    return [QueuedBundle(first, [b""] * (stop - first), 0, job.attempt) for first, stop in held]
