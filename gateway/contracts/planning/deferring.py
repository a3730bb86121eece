"""Decides which jobs are deferred to better hours, how much of them, and when to plan again. Pure.

`policies.placement.deferral` says how much waits, and until when; this module says what prevents it
here.
"""

from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Job
from policies.placement.deferral import Deferral

# Finding better hours costs as much as examining DEFERRABLE_LOOKS candidates. A job that is
# deferred as a whole is planned again when its hours begin, and until then every DEFERRED_LOOK_S
# seconds, or less often if there are more than DEFERRED_A_S such jobs a second.
DEFERRABLE_LOOKS: Final = 400
DEFERRED_LOOK_S: Final = 2.0
DEFERRED_A_S: Final = 40.0
# A client may hold back tasks until some have run. Of a job that is not submitted whole, this much
# may wait here before it has to start.
OPEN_TASKS_MAX: Final = 10_000
OPEN_BYTES_MAX: Final = 8 << 20


def to_come(job: Job) -> int:
    """The tasks of a job to place; for a deferrable job, also announced tasks yet to be sent."""
    if not job.spec.wishes.deferrable or job.total is not None or job.spec.tasks is None:
        return job.waiting
    return max(job.waiting, job.spec.tasks - len(job.ended) - job.in_flight)


def why_at_once(job: Job, *, is_crowded: bool) -> str:
    """Why a deferrable job is not deferred; empty when it is."""
    is_large = job.waiting >= OPEN_TASKS_MAX or job.held_bytes >= OPEN_BYTES_MAX
    if job.total is None and job.spec.tasks is None and is_large:
        return "the client may have more tasks to send, and sends them only as some have run"
    if job.owed_tasks or (job.spec.detached and is_crowded):
        return "deferred and waiting jobs use more than half of `detached_bytes`"
    return ""


def look_in_s(deferral: Deferral | None, utc_s: UtcS, jobs: int, plan_s: float) -> float:
    """The seconds until a job is planned again, when `jobs` jobs wait."""
    if deferral is None or not deferral.waits or deferral.now:
        return plan_s
    look_s = max(DEFERRED_LOOK_S, jobs / DEFERRED_A_S)
    return max(plan_s, min(look_s, deferral.look_at_s - utc_s))
