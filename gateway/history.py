"""What a site remembers of jobs that have ended, should somebody come back for one. Pure.

An id is used once: whoever opens a job of an old one is told what became of it. But a client that
was lost may come back for an attached job whose results never reached it. What was charged then is
free the second time. The store knows all this as well, once it has written it.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from federation.messages import Kept, RejectJob
from federation.reasons import Reason
from gateway.events import JobOpened, JobRecovered
from gateway.jobs import Job
from gateway.terms import answer_ended

# Jobs whose charges are remembered in case their client comes back: more than can have ended
# while their last records, three of each at least, wait for the store.
REMEMBERED_MAX: Final = 20_000
ENDED_MAX: Final = 100_000  # ids of jobs that have ended, so that none is used again


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, for whoever opens one of the same id."""

    user: str
    detached: bool
    state: str
    reason: str
    total: int | None


class History:
    """How jobs ended, and what the attached ones among them were charged."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, Ending] = OrderedDict()
        self._charged: OrderedDict[str, JobRecovered] = OrderedDict()

    def end(self, job: Job, state: str) -> None:
        """A job ended in this state."""
        spec = job.spec
        self._ended[job.id] = Ending(spec.user, spec.detached, state, job.reason, job.total)
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        if not spec.detached:
            self.remember(job.history())

    def remember(self, history: JobRecovered) -> None:
        """Keep what a job was charged."""
        self._charged[history.job] = history
        while len(self._charged) > REMEMBERED_MAX:
            self._charged.popitem(last=False)

    def charged(self, job: str) -> JobRecovered | None:
        """What a job was charged in its time before, if it had one."""
        return self._charged.get(job)

    def take_up(self, job: Job) -> None:
        """A job goes on: from here on it carries itself what it was charged."""
        before = self._charged.pop(job.id, None)
        if before is not None:
            job.take_up(before)

    def has_ended(self, job: str) -> bool:
        """Whether a job of this id has ended lately."""
        return job in self._ended

    def knows(self, job: str) -> bool:
        """Whether what may be asked of a job of this id is here, without asking the store."""
        ended = self._ended.get(job)
        is_detached = ended is not None and ended.detached
        return job in self._charged or is_detached

    def objection(self, event: JobOpened) -> Kept | RejectJob | None:
        """What a client is told that opens a job which has ended; None when it may begin again."""
        ended = self._ended.get(event.job)
        reason = ""
        if ended is None:
            return None
        if ended.user != event.spec.user:
            reason = f"job {event.job} is somebody else's"
        elif ended.detached:
            return answer_ended(event.job, ended.state, ended.reason, ended.total)
        elif ended.state == "cancelled" and event.again:
            return RejectJob(event.job, Reason.JOB_NOT_FOUND, ended.reason)
        elif ended.state in ("done", "cancelled") and not event.again:
            reason = f"there was a job {event.job} before: each needs an id of its own"
        return RejectJob(event.job, Reason.BAD_REQUEST, reason) if reason else None
