"""Work of every kind, on a site where only the work itself goes wrong."""

from dataclasses import replace

from simulations.world.plan import (
    ClientPlan,
    JobPlan,
    PoolPlan,
    SitePlan,
    SlowStore,
    WorkerPlan,
    WorldPlan,
)

WORKERS = tuple(WorkerPlan(f"w{number}") for number in range(3))


def uneven_tasks(seed: int) -> WorldPlan:
    """Tasks of which some take twenty times as long as others."""
    job = JobPlan(tasks=600, batch=600, task_s=0.05, spread=20.0)
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(job,)),))


def cancel_storm(seed: int) -> WorldPlan:
    """Many jobs, and each is cancelled half way."""
    jobs = tuple(
        JobPlan(0.1 * nth, 200, task_s=0.05, cancel_at_s=1.0 + 0.13 * nth, kill=nth % 2 == 0)
        for nth in range(12)
    )
    clients = (ClientPlan("ann", jobs=jobs[:6]), ClientPlan("bob", jobs=jobs[6:]))
    return WorldPlan(workers=WORKERS, clients=clients)


def slow_store(seed: int) -> WorldPlan:
    """Each commit takes two seconds for a while."""
    jobs = (JobPlan(tasks=300, task_s=0.02), JobPlan(tasks=100, task_s=0.05, detached=True))
    slow = SlowStore(0.2, "london", 2.0, 12.0)
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=jobs),), faults=(slow,))


def early_questions(seed: int) -> WorldPlan:
    """Results are asked for, and jobs cancelled, before a slow store has the jobs."""
    job = JobPlan(0.5, tasks=40, task_s=0.05, detached=True, is_impatient=True)
    jobs = (
        job,
        replace(job, at_s=0.6, cancel_at_s=0.9),
        replace(job, at_s=0.7, task_s=2.0),
        replace(job, at_s=0.8, task_s=2.0, cancel_at_s=4.0, kill=True),
    )
    slow = SlowStore(0.2, "london", 1.0, 6.0)
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=jobs),), faults=(slow,))


def bad_tasks(seed: int) -> WorldPlan:
    """Tasks that raise, hang, and take their slots down."""
    job = JobPlan(
        tasks=300, task_s=0.02, retries=2, timeout_s=1.0, errors=30, flaky=30, poison=20, stuck=10
    )
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(job,)),))


def scarce_tags(seed: int) -> WorldPlan:
    """More tasks want cards and licences than there are."""
    site = SitePlan(pools=(PoolPlan(), PoolPlan("cards", "72 USD", {"gpu": 2, "licence": 0.5})))
    workers = (*WORKERS, WorkerPlan("c0", pool="cards", slots=4), WorkerPlan("c1", pool="cards"))
    jobs = (
        JobPlan(tasks=60, task_s=0.1, tags={"gpu": 1}, spread=10.0),
        JobPlan(tasks=60, task_s=0.1, tags={"licence": 0.1}),
        JobPlan(tasks=200, task_s=0.05),
    )
    return WorldPlan((site,), workers, (ClientPlan("ann", jobs=jobs),))


def empty_tasks(seed: int) -> WorldPlan:
    """Twenty thousand tasks that do almost nothing."""
    job = JobPlan(tasks=20_000, batch=1000, every_s=0.005, task_s=0.0001)
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(job,)),))
