"""A job's queue: the tasks taken out of it, and those left."""

import pytest

from federation.ranges import RangeSet
from gateway.scheduler.model.jobs import Assignment, Job, QueuedBundle, Worker
from gateway.scheduler.model.terms import JobSpec
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

SPEC = JobSpec(
    name="prices",
    function=b"f" * 32,
    detached=False,
    user="ann",
    project="rates",
    priority=1.0,
    tags={},
    timeout_s=None,
    retries=0,
    max_cost_nanos=None,
    currency=None,
    python="",
    prints=False,
)

TARIFF = Tariff(10**9, "USD", "test")


@pytest.fixture
def job():
    """A job with tasks 0 to 9 and 20 to 24 waiting."""
    made = Job("job-1", SPEC, client=1, number=1, opened_at_s=0.0, need=SPEC.need, counted={})
    made.enqueue(QueuedBundle(0, [b"x"] * 10, size=10))
    made.enqueue(QueuedBundle(20, [b"x"] * 5, size=5))
    return made


def test_without_a_wish_all_is_taken_out(job):
    assert job.withdraw() == [(0, 10), (20, 25)]
    assert (job.waiting, job.held_bytes) == (0, 0)


def test_a_wish_for_nothing_takes_nothing(job):
    assert job.withdraw(RangeSet()) == []
    assert (job.waiting, job.held_bytes) == (15, 15)


def test_what_is_named_is_taken_out_and_the_rest_stays_in_order(job):
    assert job.withdraw(RangeSet([(2, 4), (8, 22)])) == [(2, 4), (8, 10), (20, 22)]
    assert [(run.first, run.stop) for run in job.queue] == [(0, 2), (4, 8), (22, 25)]
    assert (job.waiting, job.held_bytes) == (9, 9)


@pytest.mark.parametrize(
    ("task_s", "given_s", "now_s", "left_s"),
    [
        (60.0, [0.0, 0.0], 0.0, 120.0),
        (60.0, [0.0, 0.0], 45.0, 30.0),
        (60.0, [0.0, 30.0], 45.0, 60.0),
        (60.0, [0.0, 30.0], 40.0, 70.0),
        (60.0, [0.0, 0.0], 900.0, 15.0),  # over their time, and who knows for how long
        (60.0, [50.0], 45.0, 60.0),  # a clock that was set back
        (0.01, [0.0, 0.0], 900.0, 0.02),  # queued ahead: nobody knows which of them runs
        (0.0, [0.0], 900.0, 0.0),  # of a length that nobody knows
    ],
)
def test_what_a_worker_has_left_is_less_what_its_long_tasks_had(
    job, task_s, given_s, now_s, left_s
):
    worker = Worker(1, "w", CapacityOffer("w", "p", {}, "3.11", "USD"), 4, None, {})
    held = [
        Assignment(
            at,
            job,
            worker,
            QueuedBundle(at, [b""], 0),
            task_s,
            each,
            RangeSet([(at, at + 1)]),
            TARIFF,
        )
        for at, each in enumerate(given_s)
    ]
    for each in held:
        worker.hold(each, 1)
    assert worker.left_s(now_s) == pytest.approx(left_s)
    for each in held:
        worker.hold(each, -1)
    assert worker.left_s(now_s) == pytest.approx(0.0)
    assert worker.given_s == 0.0
