"""The expected cost of running tasks: an estimate, apart from booked costs. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from federation.clocks import UtcS
from gateway.ledger.db.jobs.records import sender_of
from gateway.ledger.db.usage.records import Dimension, seller_of
from gateway.ledger.reports import OpenClaim
from gateway.scheduler.model.jobs import Assignment, Job
from policies.placement.placement import show_tags


def estimates(job: Job, utc_s: UtcS) -> dict[str, int]:
    """The expected cost of a job's assigned tasks, in nano-units by currency.

    `utc_s` is UTC: a task that has a slot to itself costs at least the time since this gateway
    assigned it, or took it up again after a restart.
    """
    sums: dict[str, int] = {}
    for each in job.assignments.values():
        currency = each.tariff.currency
        sums[currency] = sums.get(currency, 0) + _cost(each, utc_s)
    return dict(sorted(sums.items()))


def claims(jobs: Iterable[Job], utc_s: UtcS) -> Iterator[OpenClaim]:
    """The estimates for each job and worker, with the dimensions that a report can filter by."""
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
            cost_nanos = sum(_cost(each, utc_s) for each in assignments)
            yield OpenClaim({**of_job, **at_worker}, currency, cost_nanos)


def _cost(assignment: Assignment, utc_s: UtcS) -> int:
    """The cost of the remaining tasks, by the duration assumed when they were assigned."""
    tasks = sum(stop - first for first, stop in assignment.left)
    task_s = assignment.task_s
    # Tasks of unknown or long duration had a slot each at once.
    if not task_s or task_s >= assignment.worker.ahead_max_s:
        task_s = max(task_s, utc_s - assignment.given_at_s)
    return assignment.tariff.expected_nanos(tasks, task_s)
