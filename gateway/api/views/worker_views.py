"""The workers of a site as plain maps, a page at a time. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

from federation.messages.wire import Maps
from gateway.scheduler.model.jobs import Job, Worker
from policies.placement.placement import show_tag

WORKER_JOBS_MAX: Final = 100  # jobs of one worker in an answer
DRAINING, UP = "draining", "up"
STATES: Final = (UP, DRAINING)


@dataclass(frozen=True, slots=True)
class WorkerFilter:
    """The workers that a list shows; an empty field: all.

    `after` is the name of a worker before them; they are in the order of their names. `limit` is
    the largest number of them, 0 for all.
    """

    pool: str = ""
    host: str = ""
    state: str = ""
    after: str = ""
    limit: int = 0

    def page(self, workers: Iterable[Worker]) -> list[Worker]:
        """Return the workers that it shows. Those of one name are never parted."""
        shown = [each for each in workers if self._shows(each)]
        if not self.limit:
            return sorted(shown, key=_place)
        first = nsmallest(self.limit, shown, key=_place)
        if len(first) < len(shown):
            ids = {each.handle for each in first}
            last = first[-1].name
            first += [each for each in shown if each.name == last and each.handle not in ids]
        return first

    def _shows(self, worker: Worker) -> bool:
        return (
            worker.name > self.after
            and self.pool in ("", worker.offer.pool)
            and self.host in ("", worker.host)
            and self.state in ("", state_of(worker))
        )


def _place(worker: Worker) -> tuple[str, int]:
    return worker.name, worker.handle


def state_of(worker: Worker) -> str:
    """Return the word for a worker's state."""
    return DRAINING if worker.draining else UP


def worker_view(
    worker: Worker, uptime_s: float, slots: Maps, sees: Callable[[Job], bool]
) -> dict[str, Any]:
    """Return a worker, with the slots of its latest pulse, and the jobs that the asker sees."""
    tasks: Counter[str] = Counter()
    jobs: dict[str, Job] = {}
    for each in worker.assignments.values():
        if len(jobs) < WORKER_JOBS_MAX and sees(each.job):
            jobs[each.job.id] = each.job
        tasks[each.job.id] += len(each.left)
    return {
        "name": worker.name,
        "host": worker.host,
        "jobs": [
            {
                "id": each.id,
                "name": each.spec.name,
                "user": each.whose.user,  # of another site: ada@paris
                "tasks": tasks[each.id],
            }
            for each in jobs.values()
        ],
        "drained_by": sorted(worker.drained_by),
        "grid_id": worker.grid_id,
        "ends_s": worker.ends_at_s,
        "pool": worker.offer.pool,
        "state": state_of(worker),
        "slots": worker.slots,
        "in_flight": worker.in_flight,
        "tasks_done": worker.tasks_done,
        "python": worker.offer.python,
        "tags": [show_tag(name, value) for name, value in sorted(worker.offer.tags.items())],
        "free": dict(worker.free),
        "uptime_s": uptime_s,
        "slot_details": slots,
    }
