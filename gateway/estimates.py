"""What running tasks are expected to cost: an estimate, apart from what is booked. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from gateway.jobs import Assignment, Job
from gateway.ledger.records import seller_of, sender_of
from gateway.ledger.reports import Claim
from gateway.ledger.rows import Dimension
from policies.placement import show_tags


def estimates(job: Job) -> dict[str, int]:
    """What a job's tasks at workers are expected to cost, in nano-units by currency."""
    sums: dict[str, int] = {}
    for each in job.assignments.values():
        currency = each.tariff.currency
        sums[currency] = sums.get(currency, 0) + _cost(each)
    return dict(sorted(sums.items()))


def claims(jobs: Iterable[Job]) -> Iterator[Claim]:
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
            yield Claim({**of_job, **at_worker}, currency, sum(map(_cost, assignments)))


def _cost(assignment: Assignment) -> int:
    """What is left of it, as the broker reckons when it hands work out."""
    tasks = sum(stop - first for first, stop in assignment.left)
    return assignment.tariff.expected_nanos(tasks, assignment.task_s)
