"""Cost limits and running tasks: which ones cost so much that they must be stopped. Pure.

A cost limit ends what has not begun. A running task goes on for a while, as one that takes a little
longer than expected would otherwise be lost just before its end, and paid for.
"""

from collections.abc import Iterable
from typing import Final

from federation.clocks import UtcS
from federation.money import format_money
from gateway.scheduler.model.jobs import Assignment, Job
from gateway.scheduler.quotas.spending import BudgetEnding
from policies.tariffs import Tariff

# Running tasks are stopped when they cost so many times their limit: that of a job, or of a
# contract's grant. For sold work the excess is the seller's loss.
OVERRUN_MAX: Final = 2


def is_beyond(
    limit_nanos: int,
    spent_nanos: int,
    running: Iterable[Assignment],
    utc_s: UtcS,
    price: Tariff | None = None,
) -> bool:
    """Whether a limit is exceeded OVERRUN_MAX times, counting what has run of running tasks.

    A task counts from when its worker said that it began.

    Args:
        limit_nanos, spent_nanos: in one currency, that of the prices.
        running: assignments, priced by their own tariff or by `price`.
        utc_s: now.
    """
    most_nanos = OVERRUN_MAX * limit_nanos - spent_nanos
    begun = [(each, price or each.tariff) for each in running if each.begun]
    # No task began before its assignment was made. This bound spares the sum in nearly all cases.
    bounds = (_nanos(by, len(each.begun) * (utc_s - each.given_at_s)) for each, by in begun)
    if sum(bounds) <= most_nanos:
        return False
    sums = (
        _nanos(by, sum(max(0.0, utc_s - begun_s) for begun_s in each.begun.values()))
        for each, by in begun
    )
    return sum(sums) > most_nanos


class Overruns:
    """Watches own users' jobs that have a cost limit and running tasks.

    A seller stops its tasks itself, by its contract's grant.
    """

    def __init__(self) -> None:
        self._watched: dict[str, Job] = {}

    def begun(self, job: Job) -> None:
        """Watch a job of which a task has begun."""
        if job.spec.max_cost_nanos is not None and job.spec.price is None:
            self._watched[job.id] = job

    def look(self, utc_s: UtcS) -> list[BudgetEnding]:
        """Return the parts of watched jobs that must end."""
        found = []
        for job in list(self._watched.values()):
            running = _running_here(job)
            if not running:
                del self._watched[job.id]  # until another task begins
            elif is_beyond(job.spec.max_cost_nanos or 0, job.limited_nanos, running, utc_s):
                limit = format_money(job.spec.max_cost_nanos or 0, job.spec.currency or "")
                reason = (
                    f"its tasks have cost over {OVERRUN_MAX} times the cost limit of job {job.id}, "
                    f"which is {limit}"
                )
                found.append(BudgetEnding(job, reason, running, is_waiting=True))
        return found


def _running_here(job: Job) -> tuple[Assignment, ...]:
    """Return a job's begun assignments to own workers that cost something."""
    return tuple(
        each
        for each in job.assignments.values()
        if each.begun
        and not each.worker.job
        and each.tariff.price_nanos
        and each.tariff.currency == job.spec.currency
    )


def _nanos(tariff: Tariff, ran_s: float) -> int:
    return tariff.charge_nanos(0, round(max(0.0, ran_s) * 1e9))
