"""Jobs that were ordered to end, on disk before anybody is told, and again after a restart. Pure.

A cancelled job, and a detached one that its client left half submitted, begins nothing more. The
order is stored in the turn in which it is given, so the answer to it follows the record. After a
restart such a job comes back as it was, ending:

    stored order ─► take_up ─► its sellers say what they hold ─► tell_seller ─► look ─► it has ended
                       └───── its own workers hold nothing of an earlier run ─────────────┘

A detached job whose end is ordered after the restart, before its sellers are heard, waits for them
in the same way: tasks that were taken for queued may have begun there.

Tasks at this site's workers ended with the gateway's last run: workers stop them, and nothing is
charged, as for every task that a gateway lost. Tasks at other sites go on under their contracts.
Those that have not begun there are recalled, and those that were to be stopped are stopped, however
the first order to the seller fared. What they cost is charged when they are delivered, as for every
cancelled task.
"""

from typing import Final

from federation.ranges import RangeSet
from gateway.base.job_states import ENDS_ORDERED
from gateway.ledger.db.jobs.records import EndOrdered
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model.effects import Effect, Write
from gateway.scheduler.model.events import JobRecovered
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.tasks.completion import TaskCompletion

_ORDERS: Final = {end: state for state, end in ENDS_ORDERED.items()}


class OrderedEnds:
    """Stores orders to end jobs, and goes on with those of earlier runs of the gateway.

    Attributes:
        recovered: the jobs of earlier runs, by id, of which other sites may hold tasks.

    Args:
        dispatcher: knows which contracts may hold tasks of a job, and recalls tasks.
        completion: ends the tasks that nobody holds.
        effects: the list to which records are appended.
    """

    def __init__(
        self, dispatcher: Dispatcher, completion: TaskCompletion, effects: list[Effect]
    ) -> None:
        self._dispatcher = dispatcher
        self._completion = completion
        self._effects = effects
        self.recovered: dict[str, Job] = {}

    def order(self, job: Job, end: str, reason: str) -> None:
        """Let nothing more of a job begin; it ends as `end` once nothing of it is in flight.

        An attached job whose client is gone may go on if the client returns, and work of another
        site follows its contract: neither is stored.
        """
        is_new = job.leaving != end
        job.leaving, job.reason = end, reason
        is_final = job.spec.detached or end == "cancelled"
        if is_new and is_final and job.spec.price is None:
            ordered = EndOrdered(job.id, _ORDERS[end], reason)
            self._effects.append(Write(ordered, durable=True))
        if is_new and job.spec.detached and self._dispatcher.is_held(job):
            self._await_sellers(job)

    def take_up(self, job: Job, event: JobRecovered) -> None:
        """Take a recovered job whose end was ordered before."""
        job.leaving, job.reason = event.leaving, event.reason
        for first, stop in event.known:
            job.known.add(first, stop)
        self._await_sellers(job)

    def _await_sellers(self, job: Job) -> None:
        job.awaits_sellers = True
        self.recovered[job.id] = job

    def tell_seller(self, job: Job, number: int) -> None:
        """Order once more what another site may not know about an assignment that it holds.

        Tasks are stopped that have ended here, as all do of a job that was cancelled with its
        started tasks, that this job's own buyer stopped, and all of an abandoned job. Of a
        cancelled job the others are recalled unless they have begun.
        """
        assignment = job.assignments.get(number)
        if assignment is None:
            return
        for low, high in list(assignment.left):
            stopped = RangeSet([*job.ended.within(low, high), *job.stopping.within(low, high)])
            if job.leaving == "abandoned":
                stopped.add(low, high)
            for first, stop in stopped:
                self._dispatcher.recall(assignment, first, stop, kill=True)
            for first, stop in stopped.missing(low, high) if job.leaving else ():
                self._dispatcher.recall(assignment, first, stop, kill=False)
        assignment.recalled = assignment.recalled or bool(assignment.recalls)

    def look(self) -> list[Job]:
        """Return the recovered jobs of which no other site holds anything unknown any more.

        Their tasks that nobody holds have ended: as cancelled, or not at all if the job was
        abandoned.
        """
        known = [job for job in self.recovered.values() if not self._dispatcher.is_held(job)]
        for job in known:
            del self.recovered[job.id]
            job.awaits_sellers = False
            rest = RangeSet(part for pair in job.known for part in job.ended.missing(*pair))
            for assignment in job.assignments.values():
                for first, stop in assignment.left:
                    rest.remove(first, stop)
            if job.leaving == "cancelled":
                self._completion.drop(job, list(rest), "cancelled", job.reason)
            else:
                job.interrupted += len(rest)
        return known
