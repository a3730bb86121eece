"""What running tasks are expected to cost: an estimate, apart from what is booked. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from gateway.jobs import Assignment, Job
from gateway.ledger.records import seller_of, sender_of
from gateway.ledger.reports import Claim
from gateway.ledger.rows import Dimension
from policies.placement import show_tags


def estimates(job: Job, now_s: float) -> dict[str, int]:
    """What a job's tasks at workers are expected to cost, in nano-units by currency.

    `now_s` is UTC: a task that has a slot to itself costs at least what it has run by then, since
    this gateway gave it out, or took it up again after a restart.
    """
    sums: dict[str, int] = {}
    for each in job.assignments.values():
        currency = each.tariff.currency
        sums[currency] = sums.get(currency, 0) + _cost(each, now_s)
    return dict(sorted(sums.items()))


def claims(jobs: Iterable[Job], now_s: float) -> Iterator[Claim]:
    """The same for each job and worker, with what a report can choose by."""
    for job in jobs:
        spec = job.spec
        by_worker = sorted(job.assignments.values(), key=lambda each: each.worker.handle)
        of_job = {
            Dimension.USER: spec.user,
            Dimension.GROUP: spec.group,
            Dimension.PROJECT: spec.project,
            Dimension.NAME: spec.name,
            Dimension.JOB: job.id,
            Dimension.ORIGIN: sender_of(job.id),
            Dimension.TAGS: show_tags(spec.tags),
        }
        for _, group in groupby(by_worker, key=lambda each: each.worker.handle):
            assignments = list(group)
            worker = assignments[0].worker
            at_worker = {
                Dimension.SITE: seller_of(worker.offer.pool),
                Dimension.POOL: worker.offer.pool,
                Dimension.WORKER: worker.name,
            }
            currency = assignments[0].tariff.currency
            cost_nanos = sum(_cost(each, now_s) for each in assignments)
            yield Claim({**of_job, **at_worker}, currency, cost_nanos)


def _cost(assignment: Assignment, now_s: float) -> int:
    """What is left of it, by the duration that the broker reckoned with when it was handed out."""
    tasks = sum(stop - first for first, stop in assignment.left)
    task_s = assignment.task_s
    # Tasks of a duration that nobody knew, and long ones, had a slot each at once.
    if not task_s or task_s >= assignment.worker.ahead_max_s:
        task_s = max(task_s, now_s - assignment.given_s)
    return assignment.tariff.expected_nanos(tasks, task_s)
