"""Which jobs are let wait for better hours, how much of them, and when to look again. Pure.

What waits, and until when, is for `policies.deferral` to say; this is about what holds them here.
"""

from typing import Final

from gateway.jobs import Job
from policies.deferral import Deferral

# To find better hours takes as long as so many looks at a candidate. A job all of which waits for
# them is planned again when they begin, and so often before; where many wait, as much less often.
DEFERRABLE_LOOKS: Final = 400
DEFERRED_LOOK_S: Final = 2.0
DEFERRED_A_S: Final = 40.0
# What its client may hold back until some of it has run: of a job that is not submitted whole, so
# much waits here.
OPEN_TASKS_MAX: Final = 10_000
OPEN_BYTES_MAX: Final = 8 << 20


def to_come(job: Job) -> int:
    """How many of a job's tasks are to be placed: for one that may wait, also those that its client
    has announced, and sends when there is room.
    """
    if not job.spec.wishes.deferrable or job.total is not None or job.spec.tasks is None:
        return job.waiting
    return max(job.waiting, job.spec.tasks - len(job.ended) - job.in_flight)


def why_at_once(job: Job, *, is_crowded: bool) -> str:
    """Why a job that may wait is not let wait; empty when it is."""
    is_large = job.waiting >= OPEN_TASKS_MAX or job.held_bytes >= OPEN_BYTES_MAX
    if job.total is None and job.spec.tasks is None and is_large:
        return "more of it may be to come, which its client sends when some has run"
    if job.owed_tasks or (job.spec.detached and is_crowded):
        return "the jobs that wait here hold over half of `detached_bytes`"
    return ""


def look_in_s(deferral: Deferral | None, utc_s: float, jobs: int, plan_s: float) -> float:
    """In how many seconds a job is to be planned again, when so many wait."""
    if deferral is None or not deferral.waits or deferral.now:
        return plan_s
    look_s = max(DEFERRED_LOOK_S, jobs / DEFERRED_A_S)
    return max(plan_s, min(look_s, deferral.look_s - utc_s))
