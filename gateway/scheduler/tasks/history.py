"""The jobs that have ended, remembered for clients that ask for them again. Pure.

An id is used once: a client that opens a job under an old id is told how the old job ended. A
client that was lost may return for an attached job whose results never reached it; the tasks that
were charged then are free the second time. The store has all of this as well, once it is written.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from federation.messages.messages import Kept, RejectJob
from federation.reasons import Reason
from gateway.scheduler.model.events import JobFate, JobOpened, JobRecovered, LeftJob
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.stored_terms import answer_ended, id_used
from gateway.scheduler.model.terms import JobSpec

# Jobs whose charges are remembered in case their client returns: more than can have ended while
# their last records, at least three each, wait for the store.
REMEMBERED_MAX: Final = 20_000
ENDED_MAX: Final = 100_000  # ids of jobs that have ended, so that none is used again


@dataclass(frozen=True, slots=True)
class JobEnding:
    """How a job ended, for clients that open a job of the same id."""

    user: str
    detached: bool
    state: str
    reason: str
    total: int | None
    project: str
    is_sold: bool = False  # another site's: that site opens its job again


class History:
    """The outcomes of jobs that have ended, and the charges of the attached ones."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, JobEnding] = OrderedDict()
        self._charged: OrderedDict[str, JobRecovered] = OrderedDict()

    def end(self, job: Job, state: str) -> None:
        """Note that a job ended in this state."""
        spec = job.spec
        is_sold = spec.price is not None
        told = (spec.user, spec.detached, state, job.reason, job.total, spec.project)
        self._note(job.id, JobEnding(*told, is_sold=is_sold))
        if not spec.detached:
            self.remember(job.history())

    def _note(self, job: str, ending: JobEnding) -> None:
        self._ended[job] = ending
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def left(self, job: str) -> LeftJob | None:
        """Return an attached job that was abandoned in this run, if it is known as such."""
        ended = self._ended.get(job)
        if ended is None or ended.detached or ended.is_sold or ended.state != "abandoned":
            return None
        return LeftJob(ended.user, ended.project)

    def cancel_left(self, job: str, left: LeftJob, reason: str) -> None:
        """Note that an attached job was cancelled while its client was away."""
        self._note(job, JobEnding(left.user, False, "cancelled", reason, None, left.project))

    def change_left(self, job: str, spec: JobSpec) -> None:
        """Note another hold or priority of an attached job for the return of its client."""
        before = self._charged.get(job)
        if before is not None:
            self._charged[job] = replace(
                before,
                hold=spec.hold,
                priority=spec.priority,
                given_priority=spec.given_priority,
            )

    def remember(self, history: JobRecovered) -> None:
        """Keep the charges of a job."""
        self._charged[history.job] = history
        while len(self._charged) > REMEMBERED_MAX:
            self._charged.popitem(last=False)

    def charged(self, job: str) -> JobRecovered | None:
        """Return the charges of a job's earlier run, if there was one."""
        return self._charged.get(job)

    def take_up(self, job: Job) -> None:
        """Move the charges of an earlier run to the job that continues it."""
        before = self._charged.pop(job.id, None)
        if before is not None:
            job.take_up(before)

    def has_ended(self, job: str) -> bool:
        """Whether a job of this id has ended recently."""
        return job in self._ended

    def fate(self, job: str) -> JobFate:
        """Return the fate of a job, as far as it is remembered."""
        ended = self._ended.get(job)
        if ended is None:
            return JobFate.UNKNOWN
        return JobFate.DETACHED if ended.detached else JobFate.ATTACHED

    def knows(self, job: str) -> bool:
        """Whether questions about a job of this id can be answered without the store."""
        ended = self._ended.get(job)
        is_detached = ended is not None and ended.detached
        return job in self._charged or is_detached

    def objection(self, event: JobOpened) -> Kept | RejectJob | None:
        """Return the answer to a client that opens an ended job; None if it may start again."""
        ended = self._ended.get(event.job)
        reason = ""
        if ended is None:
            return None
        if ended.user != event.spec.user:
            reason = id_used(event.job)
        elif ended.detached:
            return answer_ended(event.job, ended.state, ended.reason, ended.total)
        elif ended.state == "cancelled" and event.again:
            return RejectJob(event.job, Reason.JOB_NOT_FOUND, ended.reason)
        elif ended.state in ("done", "cancelled") and not event.again:
            reason = id_used(event.job)
        return RejectJob(event.job, Reason.BAD_REQUEST, reason) if reason else None
