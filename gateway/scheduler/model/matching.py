"""Decides which tasks go to which worker, and how many: credit measured in time. Pure.

A slot is given a few tens of milliseconds of work by the measured duration of the function, never a
fixed count: thousands of empty tasks, or one long one. Work that turns out to be badly placed,
because durations are uneven, is recalled while it has not started (`tail_to_recall`).
"""

import math
from collections.abc import Callable, Container, Iterable
from heapq import nlargest
from itertools import islice
from typing import Final

from federation.clocks import UtcS
from federation.ranges import Range
from federation.reasons import Reason
from federation.words import ShownDuration, duration_text
from gateway.scheduler.model.events import Drainer
from gateway.scheduler.model.jobs import AHEAD_MAX_S, Assignment, Job, QueuedBundle, Worker
from policies.costs.budgets import UNKNOWN_S, BudgetAccount
from policies.placement.placement import Refusal, judge, show_tag
from policies.tariffs import Tariff

# Estimated work that a slot holds, in seconds: enough to cover the round trip. It is topped up when
# TOP_UP_S of it is gone: each top-up costs a message, an acknowledgement, and CPU time that tasks
# could use.
HORIZON_S: Final = 0.1
TOP_UP_S: Final = 0.04
# Work not done after this time means that the estimate was wrong, if another worker has run dry.
LATE_S: Final = 0.12
BUNDLE_TASKS_MAX: Final = 1000
BUNDLE_MIN_S: Final = 0.002  # a bundle costs about a tenth of this in transit
BUNDLE_BYTES_MAX: Final = 1 << 20
# Measured work of calls that go to a slot together, each with the result of the one before. None of
# them can run elsewhere meanwhile, but other tasks wait behind them.
CHAIN_S: Final = 0.05
VERDICTS_MAX: Final = 10_000  # cached for one worker
# The most bundles of very small jobs that a worker holds, besides those that fill its slots: if it
# is lost, each of them is taken back in one turn of the loop.
BUNDLES_MAX: Final = 256
# Workers with spare tasks that are examined for one that has run dry, and the number of the richest
# of them that are asked.
DONORS_LOOKED_AT: Final = 256
DONORS_MAX: Final = 16
TAILS_MAX: Final = 16  # the last assignments of a donor that are examined
HELD_BYTES_MAX: Final = 64 << 20  # above it a worker, or another site, gets no task ahead

# The state of a worker that takes no task, from the verb on; "they are" is made of it for several.
DRAINS: Final = {
    Drainer.LOSSES: "is in back-off: lost with running tasks repeatedly",
    Drainer.OPERATOR: "is draining: ordered by an operator (`gridfed drain --list`)",
    Drainer.CONTROLLER: "is draining: taken back by the grid",
    Drainer.ITSELF: "is draining: about to stop",
}
BOUGHT: Final = "has slots that were bought for another job"
UNPLANNED: Final = "gets none of the waiting tasks: the plan gives them to other pools"


def verdict(job: Job, worker: Worker) -> Refusal | None:
    """Why this worker can never take a task of this job, or None."""
    verdicts = worker.verdicts
    try:
        return verdicts[job.need]
    except KeyError:
        if len(verdicts) >= VERDICTS_MAX:  # users choose their tags
            verdicts.clear()
        return verdicts.setdefault(job.need, judge(job.need, worker.offer))


def refusal(job: Job, worker: Worker) -> Refusal | None:
    """Why this worker can't take a task of this job now, or None."""
    misfit = misfits(job, worker)
    if misfit is None and worker.preparing and job.spec.function in worker.preparing:
        return Refusal(Reason.ENVIRONMENT_PREPARING, "is building the environment")
    return misfit


def misfits(job: Job, worker: Worker) -> Refusal | None:
    """Why this worker can't take a task now of any job with the same fit (see queueing), or None.

    All that is tested here must be part of the fit.
    """
    never = verdict(job, worker)
    if never is not None:
        return never
    if job.unfit and worker.place in job.unfit:
        return Refusal(Reason.ENVIRONMENT_FAILED, "failed to build the environment of the job")
    if worker.draining:
        return Refusal(Reason.DRAINING, _drain_text(worker))
    if worker.job and worker.job != job.id:
        return Refusal(Reason.ELSEWHERE, BOUGHT)
    if job.spec.pool not in ("", worker.offer.pool):
        return Refusal(Reason.ELSEWHERE, "is of another pool than the contract names")
    if job.places is not None and job.places.get(worker.offer.pool, 0) < 1:
        return Refusal(Reason.ELSEWHERE, UNPLANNED)
    for name, amount in job.counted.items():
        if worker.free[name] < amount:
            return Refusal(
                Reason.TAG_IN_USE,
                f"has {show_tag(name, worker.free[name])} free, {show_tag(name, amount)} needed",
            )
    return None


def _drain_text(worker: Worker) -> str:
    """Return why a worker drains, as what it does: the first of its reasons that there is."""
    why = next((DRAINS[each] for each in DRAINS if each in worker.drained_by), "")
    return why or "is draining"


def known_s(job: Job, task_s: float | None) -> float | None:
    """The measured duration of a task, or else its client's estimate."""
    return job.spec.task_s if task_s is None else task_s


def ends_too_soon(worker: Worker, task_s: float | None, utc_s: UtcS) -> Refusal | None:
    """Why a task that begins now could not end before its grid stops a worker; None if it could.

    A task of unknown duration may begin as long as there is any time left.
    """
    if worker.ends_at_s is None or utc_s + (task_s or 0.0) < worker.ends_at_s:
        return None
    words = "is stopped by its grid in {}, and a task has {}"
    figures = (
        ShownDuration(worker.ends_at_s - utc_s),
        "an unknown duration" if task_s is None else f"a duration of {duration_text(task_s)}",
    )
    return Refusal(Reason.WINDOW_CLOSED, words, figures)


def in_time(worker: Worker, task_s: float | None, tasks: int, utc_s: UtcS) -> int:
    """The number of `tasks` that a worker could end before its grid stops it."""
    if worker.ends_at_s is None:
        return tasks
    left_s = worker.ends_at_s - utc_s
    if not task_s:
        return tasks if left_s > 0 else 0
    rounds = int((left_s - worker.ahead_s / worker.slots) / task_s)
    return max(0, min(tasks, rounds * worker.slots))


def needs_idle_slot(job: Job, task_s: float | None, ahead_max_s: float = AHEAD_MAX_S) -> bool:
    """Whether a task of this job goes only to an idle slot."""
    if task_s is None or job.counted or task_s >= ahead_max_s:
        return True  # one each to learn the duration; only running tasks hold counted tags
    # A suspect goes alone to an idle slot, so that no task that has not started is suspected of the
    # loss of its worker.
    return bool(job.queue) and job.queue[0].alone


def is_full(worker: Worker) -> bool:
    """Whether a worker has no room for a task of any job."""
    if worker.trial is not None and worker.in_flight >= worker.trial:
        return True
    short = worker.slots - worker.long
    refill_s = short * (_horizon_s(worker) - TOP_UP_S)
    if len(worker.assignments) >= BUNDLES_MAX and worker.in_flight >= worker.slots:
        return True
    return worker.ahead_s > refill_s and worker.in_flight >= 2 * worker.slots


def _horizon_s(worker: Worker) -> float:
    return HORIZON_S + worker.round_trip_s


def room(job: Job, worker: Worker, task_s: float | None) -> int:
    """The number of further tasks of this job that this worker should hold now."""
    idle = worker.slots - worker.in_flight
    if idle <= 0 and worker.held_bytes >= HELD_BYTES_MAX:
        return 0
    if task_s is None or needs_idle_slot(job, task_s, worker.ahead_max_s):
        tasks = idle
    elif is_full(worker):
        return 0
    else:
        credit_s = (worker.slots - worker.long) * _horizon_s(worker) - worker.ahead_s
        tasks = max(int(credit_s / max(task_s, 1e-7)), worker.slots + idle)
    if worker.trial is not None:
        tasks = min(tasks, worker.trial - worker.in_flight)
    for name, amount in job.counted.items():
        if amount > 0:
            tasks = int(min(tasks, (worker.free.get(name, 0) + 1e-9) // amount))
    if job.places is not None:
        tasks = int(min(tasks, job.places.get(worker.offer.pool, 0)))
    return tasks


def share(
    job: Job, worker: Worker, slots_total: int, task_s: float | None, tasks_beside: int = 0
) -> int:
    """This worker's part of the queued tasks, so that the last tasks spread over all workers.

    At least enough for a bundle that is worth sending: otherwise a queue that its client keeps
    short would be handed out in ever smaller halves. For tasks that need an idle slot, it is the
    worker's part of all tasks that wait for the same slots: while there are enough for every slot,
    a bundle may fill all idle slots of a worker.

    Args:
        job: the job of the tasks.
        worker: a worker with room for them.
        slots_total: of all workers.
        task_s: the duration of a task; None: unknown.
        tasks_beside: all queued tasks, the job's own included, that can go to the same workers.
    """
    worthwhile = 1 if task_s is None else int(BUNDLE_MIN_S / max(task_s, 1e-7))
    waiting = job.waiting
    if needs_idle_slot(job, task_s, worker.ahead_max_s):
        waiting = max(waiting, tasks_beside)
    return max(1, worthwhile, math.ceil(waiting * worker.slots / max(slots_total, 1)))


def followers(job: Job, worker: Worker, run: QueuedBundle, task_s: float | None) -> int:
    """The most calls that may go to a slot with a run that a worker is given, behind it.

    Only behind a single task under no suspicion, and of a measured duration: long ones gain
    nothing by it.
    """
    if not worker.runs_chains or worker.job or worker.trial is not None or task_s is None:
        return 0
    is_suspect = run.alone or run.is_wary or bool(run.shuns) or bool(job.strikes)
    if len(run.arguments) != 1 or is_suspect or job.counted or job.places is not None:
        return 0
    return min(BUNDLE_TASKS_MAX, int(CHAIN_S / max(task_s, 1e-7))) - 1


def fits_cost(
    job: Job, tariff: Tariff, task_s: float | None, tasks: int, *, is_bounded: bool = False
) -> int:
    """The number of `tasks` that the job's cost limit allows by a tariff, given those in flight.

    While nothing is known of their duration, each counts as long as it may take, or else as
    UNKNOWN_S: a first round that is measured may not cost more than the job has. At least one goes
    out, or nothing would ever be measured. Where a contract bounds the cost (`is_bounded`), only
    certain charges count.
    """
    limit = job.spec.max_cost_nanos
    if limit is None:
        return tasks
    committed = job.committed_nanos
    if committed >= limit:
        return 0
    seconds = known_s(job, task_s)
    if seconds is not None or is_bounded:
        one = tariff.expected_nanos(1, seconds)
        return tasks if one == 0 else min(tasks, max(1, (limit - committed) // one))
    limit_s = job.spec.timeout_s
    one = tariff.most_nanos(round((UNKNOWN_S if limit_s is None else limit_s) * 1e9))
    if one == 0:
        return tasks
    room = (limit - committed) // one - job.in_flight
    return min(tasks, max(room, 0 if job.in_flight else 1))


def fits_budgets(
    job: Job,
    worker: Worker,
    tariff: Tariff,
    task_s: float | None,
    tasks: int,
    paid: Container[BudgetAccount] = (),
) -> int:
    """The number of `tasks` that fit into the budgets that pay for the job.

    The budgets in `paid` hold the cost of the tasks already.
    """
    limit_s = job.spec.timeout_s
    for budget_account in job.budget_accounts:
        budget = budget_account.budget
        if not budget.is_hard or (worker.is_funded and budget.is_money) or budget_account in paid:
            continue
        each_nanos = budget.bound_nanos(tariff, limit_s, task_s)
        if each_nanos is not None:
            tasks = budget_account.fits(each_nanos, tasks)
        elif not budget.is_credit:  # a site's credit is in one of its currencies
            return 0
    return tasks


def can_be_paid(
    assignment: Assignment, worker: Worker, tariff: Tariff, task_s: float | None
) -> bool:
    """Whether a task could move to another worker, with the amount that is held for it."""
    job, held = assignment.job, dict(assignment.holds)
    limit_nanos = job.spec.max_cost_nanos
    if limit_nanos is not None:
        seconds = known_s(job, task_s)
        now_nanos = assignment.tariff.expected_nanos(1, seconds)
        dearer_nanos = tariff.expected_nanos(1, seconds) - now_nanos
        if dearer_nanos > 0 and job.committed_nanos + dearer_nanos > limit_nanos:
            return False
    for budget_account in job.budget_accounts:
        budget = budget_account.budget
        if not budget.is_hard or (worker.is_funded and budget.is_money):
            continue
        nanos = budget.bound_nanos(tariff, job.spec.timeout_s, task_s)
        more_nanos = None if nanos is None else nanos - held.get(budget_account, 0)
        if more_nanos is None:
            if not budget.is_credit:
                return False
        elif more_nanos > 0 and more_nanos > budget_account.room_nanos:
            return False
    return True


Rank = tuple[bool, bool, float, float, int, int]


def order(job: Job, task_s: float | None, less: int = 0) -> Rank:
    """The rank of a job, lowest first: own users, guaranteed, priority, least in flight, age.

    With `less`, its rank after it gave back that number of its tasks in flight. Preemptible work
    yields to all other work of its owner's kind, regardless of its priority.

    Work in flight counts in slots, not in seconds: a long task fills its slot no more than short
    ones that are queued ahead at another. Of equal jobs, the one least recently served is first.
    """
    filled = HORIZON_S if task_s is None else min(task_s, HORIZON_S)
    under_way = (job.in_flight - less) * filled
    is_preemptible = job.spec.price_class == "preemptible"
    is_sold = job.spec.price is not None
    return (is_sold, is_preemptible, -job.spec.rank_priority, under_way, job.served, job.number)


def has_room(worker: Worker) -> bool:
    """Whether a worker has an idle slot."""
    most = worker.slots if worker.trial is None else min(worker.slots, worker.trial)
    return worker.in_flight < most and not worker.draining


def has_spare(worker: Worker) -> bool:
    """Whether a worker holds tasks that it can't have started."""
    return worker.in_flight > worker.slots


def is_late(worker: Worker, utc_s: UtcS) -> bool:
    """Whether a worker takes longer over its tasks than planned."""
    oldest = next(iter(worker.assignments.values()), None)
    return oldest is not None and utc_s - oldest.given_at_s > LATE_S


def _is_rich(worker: Worker, utc_s: UtcS) -> bool:
    return is_late(worker, utc_s) or worker.load_s > HORIZON_S * worker.slots


def donors(workers: Iterable[Worker], utc_s: UtcS) -> list[Worker]:
    """The workers from which tasks may be taken back, the richest first.

    Each holds more tasks than it has slots, and more time than it takes to move them: by the
    estimate, or because it is late.
    """
    rich = (each for each in islice(workers, DONORS_LOOKED_AT) if _is_rich(each, utc_s))
    return nlargest(DONORS_MAX, rich, key=lambda worker: worker.load_s / worker.slots)


def tail_to_recall(
    donors: Iterable[Worker], starving: Worker, may_move: Callable[[Assignment], bool]
) -> tuple[Assignment, Range] | None:
    """The tasks to recall from a worker with work to spare, for one that has run dry.

    Half of its unstarted tasks, from the end. Tasks that are being recalled already count as gone,
    so that its slots keep a task each: otherwise several dry workers could take its last tasks back
    and forth for ever.
    """
    for donor in donors:
        spare = donor.in_flight - donor.slots
        for each in donor.assignments.values():
            if spare > 0 and each.recalls:
                spare -= len(each.left)
        if spare <= 0 or donor is starving:
            continue
        for assignment in islice(reversed(donor.assignments.values()), TAILS_MAX):
            if assignment.recalled or not assignment.left or assignment.run.is_chain:
                continue
            if refusal(assignment.job, starving) is not None or not may_move(assignment):
                continue
            wanted = math.ceil(min(spare, len(assignment.left)) / 2)
            first, stop = list(assignment.left)[-1]
            return assignment, (max(first, stop - wanted), stop)
    return None
