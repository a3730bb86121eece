"""Who gets which of the waiting tasks, and what is taken back from whom. Pure.

`dispatch.py` says how much a worker should hold, and whose turn it is. Here that becomes
assignments, counted at the worker and at the job, and orders to workers. It is done once after
each batch of events, when everything that they let go of can be handed out again.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, takewhile
from math import inf
from typing import Final

from federation.messages import Assign, Recall
from federation.ranges import RangeSet
from gateway import dispatch
from gateway.accounts import Client
from gateway.crew import Crew
from gateway.durations import Durations
from gateway.effects import Effect, Order
from gateway.entitling import Entitling
from gateway.events import JobHeld, Resumed
from gateway.fair_shares import Rank, Shares
from gateway.jobs import AHEAD_MAX_S, Assignment, Job, Run, Worker
from gateway.occupancy import Occupancy
from gateway.queueing import Queue, TermsBook
from gateway.ranked import Ranked
from policies.budgets import Purse
from policies.fairness import Node
from policies.placement import show_tags
from policies.tariffs import Tariff

RECALLS_MAX: Final = 8  # in one settling
LOOK_MAX: Final = 64  # runs of a job that are looked through for one that a worker may have
# Bits of an assignment's number below the boot. A boot is never below the second in which it began,
# so that the next life begins above all that this one gives out: nobody assigns a billion a second.
EPOCH_BITS: Final = 30

# What a settling may do before it returns: each look at a worker is a step, so is each at jobs that
# it can't have, and each bundle is this many. A step takes 5 to 10 µs, so that the loop turns
# within about 20 ms.
STEPS_MAX: Final = 2_048
BUNDLE_STEPS: Final = 32
# Of more functions than this nobody asks which is the shortest.
FUNCTIONS_LOOKED_AT: Final = 64


class Handout:
    """The workers of a site, the jobs with tasks for them, and what is under way between the two.

    Args:
        clients: who is here; tasks of one that does not read its results wait.
        effects: where orders are put, in order with all else that is decided.
        boot: which life of the site this is; assignments of different lives never share a number.
        tariff: what a job is charged by at a worker, from now on.
        jobs: all that there are.
        paid_ahead: the purses in which what a pool charges by a price is held already.
    """

    def __init__(
        self,
        clients: Mapping[int, Client],
        effects: list[Effect],
        boot: int,
        tariff: Callable[[Job, Worker], Tariff],
        jobs: Mapping[str, Job],
        paid_ahead: Callable[[str, str], tuple[Purse, ...]] = lambda *_: (),
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self.durations = Durations()
        self.ready: dict[str, Job] = {}  # jobs with tasks in their queue
        self.fresh: dict[str, Job] = {}  # of them, those that were not when this was emptied last
        self.is_settled = True  # else `settle` has more to do
        self.occupancy = Occupancy(self.workers)
        self.entitling = Entitling(self.workers, jobs, self.occupancy)
        self.crew = Crew(self.workers)
        self._clients = clients
        self._effects = effects
        self._held: dict[str, set[str]] = {}  # job → contracts that it may be out under
        self._assignments = boot << EPOCH_BITS
        self._tariff = tariff
        self._paid_ahead = paid_ahead
        self._shares: Shares | None = None
        self._order: Callable[[Job, float | None], Rank] = dispatch.order
        self._terms = TermsBook()
        self._queues: dict[Node | None, Queue] = {}  # by share; without shares there is one
        self._functions: Counter[bytes] = Counter()  # of jobs that are ready
        self._ready_counted = 0  # jobs among them whose tasks hold counted tags
        self._alone: set[str] = set()  # jobs among them whose next task goes alone
        self._dated: Ranked[Job] = Ranked()  # those among them with a deadline
        self._agenda: deque[int] = deque()  # workers that the settling has still to look at
        self._looks = 0  # at jobs, for the worker whose turn it is
        self._steps = 0  # that this call of it may still take
        self.changes = 0  # events so far
        self._begun_at = 0  # of those, when the agenda was made

    def settle(self, now_s: float) -> None:
        """Hand out what waits to whoever has room, and move work to workers that ran dry.

        A call does a bounded part of that, and `is_settled` says whether it was the rest; the next
        call goes on where this one stopped.
        """
        self.entitling.look(now_s)
        if self._shares is not None:
            self._shares.begin(map(_leaf, self._queues), now_s)
        if not self.ready:
            self._agenda.clear()
        elif not self._agenda:
            self._begun_at = self.changes
            self._agenda.extend(each.handle for each in self._hungry(now_s))
        self._hand_out(now_s)
        # What happened while others had their turn is looked at in a round of its own.
        is_round_over = not self._agenda and self._begun_at == self.changes
        self.is_settled = is_round_over or not self.ready
        if not self._agenda and self.crew.spare:
            starving = [*islice(filter(dispatch.has_room, self.crew.dry()), RECALLS_MAX)]
            donors = dispatch.donors(self.crew.spare.values(), now_s) if starving else []
            for worker in starving if donors else ():
                self._recall_for(worker, donors, now_s)

    def _hand_out(self, now_s: float) -> None:
        """Feed the workers of the agenda, as many as one call may."""
        self._steps = STEPS_MAX
        while self._agenda and self._steps > 0:
            worker = self.workers.get(self._agenda[0])
            if worker is not None:
                self._looks = 0
                is_given = self._feed(worker, now_s)
                self._steps -= 1 + self._looks
                if is_given:
                    self._steps -= BUNDLE_STEPS
                    continue
            self._agenda.popleft()
            if not self.ready:
                self._agenda.clear()

    def _hungry(self, now_s: float) -> Iterator[Worker]:
        """The workers that something could be given to, or taken from for another, by load."""
        shortest_s, longest_s = self._task_range_s()
        found = self.crew.hungry(shortest_s)
        late: list[Worker] = []
        if longest_s >= AHEAD_MAX_S:  # or nothing that waits would have to wait for a slot
            late = [each for each in self.crew.spare.values() if dispatch.is_late(each, now_s)]
        if not late:
            return found
        either = {each.handle: each for each in (*found, *late)}
        return iter(sorted(either.values(), key=lambda each: (each.load_s, each.handle)))

    def _task_range_s(self) -> tuple[float, float]:
        """The durations of the shortest and the longest tasks that wait; inf: need an idle slot.

        Of very many functions it is taken that there are both. A task that goes alone counts in
        both ways: what comes after it may be next in this same settling.
        """
        if len(self._functions) > FUNCTIONS_LOOKED_AT:
            return 0.0, inf
        known = [self.durations.pace(each) for each in self._functions]
        found = [inf if each is None else each for each in known]
        if self._ready_counted or self._alone:
            found.append(inf)
        return min(found, default=inf), max(found, default=0.0)

    def share_out(self, shares: Shares | None) -> None:
        """From now on jobs are served share by share; None: by `dispatch.order` alone."""
        self._shares = shares
        self._order = dispatch.order if shares is None else shares.order
        self._queues.clear()
        for job in self.ready.values():
            self._file(job)

    @property
    def is_uneven(self) -> bool:
        """Whether work may have to be moved though nothing happens: `settle` as time passes.

        A worker has room while another has tasks to spare, or a job waits for slots that are
        busy with what should come after it.
        """
        if not self.crew.spare:
            return False
        return self.crew.has_dry or self._task_range_s()[1] >= AHEAD_MAX_S

    # --- which jobs wait -----------------------------------------------------------------------

    def mark_ready(self, job: Job) -> None:
        """Note whether a job has tasks to hand out, whenever that may have changed."""
        is_free = job.id not in self._held and job.lacks_function_since_s is None
        if not (job.waiting and not job.leaving and is_free):
            self.forget(job)
            return
        if job.id not in self.ready:
            self.ready[job.id] = self.fresh[job.id] = job
            self._functions[job.spec.function] += 1
            self._ready_counted += bool(job.counted)
            self._dated.move(job, None, _due(job))
        self._file(job)

    def refile(self, job: Job) -> None:
        """Note that something has changed which decides when and where a job is served."""
        if job.id in self.ready:
            self._file(job)

    def forget(self, job: Job) -> None:
        """A job has ended, or nothing of it waits."""
        if self.ready.pop(job.id, None) is None:
            return
        self.fresh.pop(job.id, None)
        function = job.spec.function
        self._functions[function] -= 1
        if not self._functions[function]:
            del self._functions[function]
        self._ready_counted -= bool(job.counted)
        self._alone.discard(job.id)
        self._dated.move(job, _due(job), None)
        leaf = self._leaf_of(job)
        queue = self._queues[leaf]
        queue.drop(job)
        if not queue:
            del self._queues[leaf]

    def overdue(self, now_s: float) -> list[Job]:
        """The jobs that are ready and whose deadline has passed."""
        return [job for _, job in takewhile(lambda pair: pair[0][0] <= now_s, self._dated)]

    def waiting_groups(self) -> Iterator[tuple[Job, int]]:
        """One job of each group that workers treat alike, and how many tasks of the group wait."""
        for queue in self._queues.values():
            yield from queue.groups()

    def _leaf_of(self, job: Job) -> Node | None:
        return None if self._shares is None else job.leaf

    def _file(self, job: Job) -> None:
        is_alone = bool(job.queue) and job.queue[0].alone
        (self._alone.add if is_alone else self._alone.discard)(job.id)
        leaf = self._leaf_of(job)
        queue = self._queues.get(leaf)
        if queue is None:
            queue = self._queues[leaf] = Queue(dispatch.order, self._measured_s, self._terms)
        queue.file(job)

    def _measured_s(self, job: Job) -> float | None:
        return self.durations.pace(job.spec.function)

    def hold_back(self, event: JobHeld, job: Job | None) -> None:
        """Note whether a contract may have tasks of a job, which may be yet to come.

        As long as one may, nothing of the job is handed out.
        """
        held = self._held.setdefault(event.job, set())
        (held.add if event.on else held.discard)(event.contract)
        if not held:
            del self._held[event.job]
        if job is not None:
            self.mark_ready(job)

    # --- giving --------------------------------------------------------------------------------

    def _feed(self, worker: Worker, now_s: float) -> bool:
        """Give this worker one more bundle, if any job has one for it.

        Nothing goes ahead of a better placed job that waits here for an idle slot: else those who
        can be queued ahead would keep a slot from ever being idle. So the first in order that
        would take something decides, now or when a slot is idle.
        """
        is_late = dispatch.has_spare(worker) and dispatch.is_late(worker, now_s)
        if dispatch.is_full(worker) and not is_late:
            return False
        for job in self._candidates(worker):
            task_s = self.durations.pace(job.spec.function)
            tasks = dispatch.room(job, worker, task_s)
            waits = tasks <= 0
            if waits and not dispatch.needs_idle_slot(job, task_s, worker.ahead_max_s):
                continue
            tasks = self._takes(job, worker, task_s, max(1, tasks), now_s)
            if tasks <= 0:
                continue
            if waits:
                if is_late:
                    self._make_way(worker, self._order(job, task_s), job)
                return False
            self._give(job, worker, task_s, tasks, now_s)
            return True
        return False

    def _candidates(self, worker: Worker) -> Iterator[Job]:
        """The jobs that a worker may be for, in order: of those alike the first."""
        if worker.job:
            job = self.ready.get(worker.job)
            return iter(() if job is None else (job,))
        return chain.from_iterable(self._candidates_by_share(worker))

    def _candidates_by_share(self, worker: Worker) -> Iterator[Iterator[Job]]:
        """The same share by share, where slots are shared out; else there is one."""

        def misfits(job: Job) -> bool:
            self._looks += 1
            return dispatch.misfits(job, worker) is not None

        leaves: Iterable[Node | None] = self._queues
        if self._shares is not None:
            leaves = self._shares.turns()
        for leaf in leaves:
            queue = self._queues.get(leaf)  # it may have become empty since the turns were taken
            if queue is not None:
                yield queue.walk(misfits)

    def _give(
        self, job: Job, worker: Worker, task_s: float | None, tasks: int, now_s: float
    ) -> None:
        """Give a worker a bundle of at most so many tasks."""
        slots_total = self.crew.slots + (worker.slots if worker.job else 0)
        beside = self._queues[self._leaf_of(job)].tasks_beside(job)
        part = dispatch.share(job, worker, slots_total, task_s, 0 if worker.job else beside)
        tasks = min(tasks, part, dispatch.BUNDLE_TASKS_MAX)
        if self._shares is not None and tasks > 1:
            tasks = self._turn(self._shares, job, worker, tasks, now_s)
        self._assign(job, worker, job.take(tasks, dispatch.BUNDLE_BYTES_MAX), now_s)

    def _takes(
        self, job: Job, worker: Worker, task_s: float | None, tasks: int, now_s: float
    ) -> int:
        """How many of so many tasks a worker may have, by all but its room."""
        if not self._is_heard(job) or dispatch.refusal(job, worker) is not None:
            return 0
        if job.is_shunning and not self._bring_forward(job, worker, task_s, now_s):
            return 0
        bound = self.occupancy.bound(job, worker, task_s, now_s)
        if bound is not None:
            tasks = min(tasks, bound)
        bound = self.entitling.bound(job, worker)
        if bound is not None:
            tasks = min(tasks, bound)
        if worker.ends_s is not None:
            tasks = dispatch.in_time(worker, dispatch.known_s(job, task_s), tasks, now_s)
        return self._affords(job, worker, task_s, tasks)

    def _bring_forward(self, job: Job, worker: Worker, task_s: float | None, now_s: float) -> bool:
        """Put first what a worker may have of a job with tasks that were lost; False: nothing.

        What was lost goes before the rest, but not back to where it was lost, nor to a worker on
        trial (gateway.probation), while another can take it.
        """
        if worker.job:
            return True
        best: int | None = None
        has_better: dict[frozenset[str], bool] = {}
        job.is_shunning = len(job.queue) > LOOK_MAX
        for at, run in enumerate(islice(job.queue, LOOK_MAX)):
            if not run.shuns or now_s >= run.shuns_until_s:
                best = at if best is None else best
                continue
            job.is_shunning = True
            if worker.trial is not None or worker.place in run.shuns:
                if run.shuns not in has_better:
                    has_better[run.shuns] = self._has_better(job, run.shuns, task_s, now_s)
                if has_better[run.shuns]:
                    continue
            best = at
            break
        if best:
            run = job.queue[best]
            del job.queue[best]
            job.queue.appendleft(run)
        return best is not None

    def _has_better(
        self, job: Job, shuns: frozenset[str], task_s: float | None, now_s: float
    ) -> bool:
        """Whether a worker of ours that is none of these, nor on trial, can take tasks of a job."""
        return any(
            each.place not in shuns
            and each.trial is None
            and not each.job
            and dispatch.refusal(job, each) is None
            and not self._is_shut(job, each, task_s, now_s)
            for each in self.workers.values()
        )

    def may_want(self, job: Job, worker: Worker, now_s: float, slots: int) -> bool:
        """Whether a job would have tasks for a worker that fits it, if so many slots were free."""
        task_s = self.durations.pace(job.spec.function)
        return (
            self._is_heard(job)
            and self.occupancy.may_begin(worker.offer.pool, job, task_s, now_s, slots)
            and self._affords(job, worker, task_s, 1) > 0
        )

    def _is_heard(self, job: Job) -> bool:
        client = self._clients.get(job.client)
        return client is None or client.ready

    def _affords(self, job: Job, worker: Worker, task_s: float | None, tasks: int) -> int:
        if job.spec.max_cost_nanos is None and not job.purses:
            return tasks
        tariff = self._tariff(job, worker)
        tasks = dispatch.fits_cost(job, tariff, task_s, tasks)
        if not job.purses:
            return tasks
        paid = self._paid_ahead(worker.offer.pool, tariff.version)
        return dispatch.fits_budgets(job, worker, tariff, task_s, tasks, paid)

    def _turn(self, shares: Shares, job: Job, worker: Worker, tasks: int, now_s: float) -> int:
        """How many of so many tasks a worker may have of a job before it is another share's turn.

        Of those that are queued ahead as many as it should hold: they are soon done.
        """
        task_s = self.durations.pace(job.spec.function)
        if worker.job or not dispatch.needs_idle_slot(job, task_s, worker.ahead_max_s):
            return tasks
        others = (
            next((each for each in jobs if self._has_turn(each, worker, now_s)), job)
            for jobs in self._candidates_by_share(worker)
        )
        return shares.turn(job, others, task_s, tasks)

    def _has_turn(self, job: Job, worker: Worker, now_s: float) -> bool:
        task_s = self.durations.pace(job.spec.function)
        has_room = dispatch.room(job, worker, task_s) > 0
        return has_room and self._takes(job, worker, task_s, 1, now_s) > 0

    def _make_way(self, worker: Worker, rank: Rank, first: Job) -> None:
        """Take back what a job of that rank would have to wait for longer than was meant."""
        self._steps -= len(worker.assignments)
        for assignment in worker.assignments.values():
            if not assignment.recalled and self._is_behind(assignment, rank, first):
                assignment.recalled = True
                self.recall_all(assignment, kill=False)

    def _is_behind(self, assignment: Assignment, rank: Rank, first: Job) -> bool:
        """Whether what has been assigned comes after a job of that rank."""
        job = assignment.job
        if self._shares is not None and job.leaf is not first.leaf:
            return self._shares.is_ahead(first, assignment)
        return rank < self._order(job, self.durations.pace(job.spec.function))

    def _task_s(self, job: Job) -> float:
        """How long a task of it is expected to take; 0 where nobody can tell."""
        return dispatch.known_s(job, self.durations.pace(job.spec.function)) or 0.0

    def _assign(self, job: Job, worker: Worker, run: Run, now_s: float) -> None:
        if job.places is not None:
            job.places[worker.offer.pool] -= len(run.arguments)
        self._assignments += 1
        task_s = self._task_s(job)
        left = RangeSet([(run.first, run.stop)])
        job.served = self._assignments
        tariff = self._tariff(job, worker)
        assignment = Assignment(self._assignments, job, worker, run, task_s, now_s, left, tariff)
        if job.purses:
            assignment.holds = self._holds(job, worker, tariff)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        worker.held_bytes += run.size
        self._hold(assignment, len(run.arguments))
        self.mark_ready(job)
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
                    spec.origin,
                    show_tags(job.counted) if job.counted else "",
                    wary=run.is_wary,
                ),
            )
        )

    def _holds(self, job: Job, worker: Worker, tariff: Tariff) -> tuple[tuple[Purse, int], ...]:
        """What is held for a task of a job at a worker, in each purse that pays for it."""
        task_s, found = self.durations.of(job.spec.function), []
        paid = self._paid_ahead(worker.offer.pool, tariff.version)
        for purse in job.purses:
            if (worker.is_funded and purse.budget.is_money) or purse in paid:
                continue
            nanos = purse.budget.bound_nanos(tariff, job.spec.timeout_s, task_s)
            if nanos is not None:
                found.append((purse, nanos))
        return tuple(found)

    def resume(self, event: Resumed, worker: Worker, job: Job, now_s: float) -> None:
        """Tasks that are queued here turn out to be with a worker: count them as its own."""
        if event.assignment in job.assignments:
            return
        runs = job.extract(RangeSet(event.ranges))
        if not runs:
            return
        runs.sort(key=lambda run: run.first)
        # One run over all of them; what lies between has ended, and is never looked at.
        whole = Run(runs[0].first, [], sum(run.size for run in runs))
        for run in runs:
            whole.arguments += [b""] * (run.first - whole.stop) + run.arguments
            whole.attempt = max(whole.attempt, run.attempt)
        task_s = self._task_s(job)
        left = RangeSet((run.first, run.stop) for run in runs)
        tariff = self._tariff(job, worker)
        assignment = Assignment(event.assignment, job, worker, whole, task_s, now_s, left, tariff)
        assignment.holds = self._holds(job, worker, tariff)
        worker.assignments[assignment.id] = job.assignments[assignment.id] = assignment
        self._hold(assignment, len(left))
        job.hold_bytes(whole.size)
        worker.held_bytes += whole.size
        self.mark_ready(job)

    # --- taking back ---------------------------------------------------------------------------

    def release(self, assignment: Assignment, first: int, stop: int) -> None:
        """These tasks are no longer the worker's."""
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
            self.crew.moved(assignment.worker)

    def recall(self, assignment: Assignment, first: int, stop: int, *, kill: bool) -> None:
        """Ask for tasks back that have not started; with `kill`, have the others stopped."""
        assignment.recalls += 1
        recall = Recall(assignment.id, first, stop, kill)
        self._effects.append(Order(assignment.worker.handle, recall))

    def recall_all(self, assignment: Assignment, *, kill: bool) -> None:
        """Ask for all that is left of an assignment."""
        for first, stop in assignment.left:
            self.recall(assignment, first, stop, kill=kill)

    def recall_unstarted(self, job: Job) -> None:
        """Ask for all of a job that has not started, wherever it is."""
        for assignment in job.assignments.values():
            assignment.recalled = True
            self.recall_all(assignment, kill=False)

    def _recall_for(self, worker: Worker, donors: list[Worker], now_s: float) -> None:
        def may_move(assignment: Assignment) -> bool:
            job = assignment.job
            task_s = self.durations.pace(job.spec.function)
            if self._is_shut(job, worker, task_s, now_s):
                return False  # it would go back, and be asked for again
            if not job.purses:
                return True
            return dispatch.can_be_paid(assignment, worker, self._tariff(job, worker), task_s)

        found = dispatch.tail_to_recall(donors, worker, may_move)
        if found is not None:
            assignment, (first, stop) = found
            assignment.recalled = True
            self.recall(assignment, first, stop, kill=False)

    def _is_shut(self, job: Job, worker: Worker, task_s: float | None, now_s: float) -> bool:
        """Whether a worker begins nothing of a job now: by rules, or as its grid will stop it."""
        if worker.job:
            return not self.entitling.may_leave(job.work)
        if dispatch.ends_too_soon(worker, dispatch.known_s(job, task_s), now_s) is not None:
            return True
        pool = worker.offer.pool
        shut = self.occupancy.shut(pool, job.spec, task_s, now_s)
        return shut is not None or self.entitling.barred(job.spec, pool) is not None

    def _hold(self, assignment: Assignment, tasks: int) -> None:
        """Account for `tasks` more (or fewer) in flight, at the job and at the worker."""
        assignment.worker.hold(assignment, tasks)
        self.crew.moved(assignment.worker)
        self.occupancy.note(assignment, tasks)
        self.entitling.note(assignment.worker, assignment.job, tasks)
        job = assignment.job
        job.in_flight += tasks
        cost = assignment.tariff.expected_nanos(tasks, assignment.task_s)
        job.load_nanos = max(0.0, job.load_nanos + cost) if job.in_flight else 0.0
        for purse, nanos in assignment.holds:
            purse.held_nanos += nanos * tasks
        if self._shares is not None:
            self._shares.hold(assignment, tasks)


def _leaf(leaf: Node | None) -> Node:
    assert leaf is not None, "a job is filed by its share where slots are shared out"
    return leaf


def _due(job: Job) -> tuple[float, int] | None:
    """When a job that waits is ended, as a rank; None: it has no deadline."""
    deadline_s = job.spec.wishes.deadline_s
    return None if deadline_s is None else (deadline_s, job.number)
