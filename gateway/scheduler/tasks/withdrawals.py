"""Cancels, and their wait for workers to report the tasks that had not started. Pure.

Queued tasks are taken back at once. A task at a worker may have begun, or be done: only the worker
knows. So a cancel is answered when the last worker has reported the tasks that will not run; or at
once, if running tasks are to be stopped as well.

A task that another site sent is not over when its buyer has it stopped: it ends when its worker
says so, and is delivered with the time that it took, so that both sites charge that time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.messages.messages import Answer, Dropped
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.words import count
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model.events import CancelAsked
from gateway.scheduler.model.jobs import ALL_TASKS, Assignment, Job
from gateway.scheduler.quotas.accounts import BrokerClient
from gateway.scheduler.tasks.end_texts import cancelled_text

CANCELS_MAX: Final = 100  # of one client, that wait for workers to answer
CANCELLED: Final = "cancelled on request"  # by the job's own client, or the site that sent it
CANCEL_REFUSED: Final[dict[str, str]] = {
    Reason.JOB_NOT_FOUND: "none of your unfinished jobs has that id",
    Reason.BUSY: f"{CANCELS_MAX} of your cancel requests are in progress: wait for their answers",
}


@dataclass(slots=True)
class Withdrawal:
    """A cancel that waits for workers to report the tasks that had not started."""

    client: int
    request: int
    job: Job
    ranges: RangeSet
    taken: RangeSet
    awaited: set[int]
    is_whole: bool  # of the whole job


class Withdrawals:
    """The cancels in progress.

    Args:
        clients: the present clients, which may ask.
        dispatcher: recalls tasks from workers.
        tell: sends a client a message.
        drop: (job, ranges, reason, is_told): ends tasks as cancelled; tells their owner if the last
            argument says so.
        log: (client, text, is_refused): logs an order.
        end_owing: (job, ranges): ends the tasks that owe something for lost runs, and returns the
            others; see Losses.
        order_end: (job, state at its end, reason): see OrderedEnds.
    """

    def __init__(
        self,
        clients: Mapping[int, BrokerClient],
        dispatcher: Dispatcher,
        tell: Callable[[int, Any], None],
        drop: Callable[[Job, list[Range], str, bool], None],
        log: Callable[[int, str, bool], None],
        end_owing: Callable[[Job, list[Range]], list[Range]],
        order_end: Callable[[Job, str, str], None],
    ) -> None:
        self._clients = clients
        self._dispatcher = dispatcher
        self._tell = tell
        self._drop = drop
        self._log = log
        self._end_owing = end_owing
        self._order_end = order_end
        self._open: list[Withdrawal] = []

    def ask(self, event: CancelAsked, job: Job | None) -> Job | None:
        """Take a cancel; return the job unless the cancel was refused."""
        if job is None or not self._may_cancel(job, event.client):
            self._refuse(event, job)
            return None
        # Each answer of a worker is compared with all cancels that wait for one.
        open_now = sum(each.client == event.client for each in self._open)
        if open_now >= CANCELS_MAX and not event.kill:
            self._answer(event.client, event.request, RangeSet(), Reason.BUSY)
            return None
        ranges = RangeSet(event.ranges or [(0, ALL_TASKS)])
        if not event.ranges:
            self._order_end(job, "cancelled", self._by(job, event.client))
        back, awaited = job.withdraw(ranges), set()
        if job.awaits_sellers:
            # Those that no seller holds end once all have named the ones they hold. If begun ones
            # are to be stopped as well, all end now: a seller stops those that have ended here,
            # also after a restart.
            known = [part for pair in job.known for part in job.ended.missing(*pair)]
            back = known if event.kill and not event.ranges else []
        is_sold = job.spec.price is not None
        if is_sold and event.kill:
            back = self._end_owing(job, back)
        taken = RangeSet(back)
        killed = job.stopping if is_sold else taken
        for assignment, parts in job.assigned(ranges):
            self._dispatcher.recall(assignment, parts[0][0], parts[-1][1], kill=event.kill)
            awaited.add(assignment.id)
            for low, high in parts if event.kill else ():
                killed.add(low, high)
        self._dispatcher.mark_ready(job)
        taken = self._cancel(job, taken, event.client)
        if not event.ranges:
            self._close_to_calls(job, event.client)
        withdrawal = Withdrawal(
            *(event.client, event.request, job, ranges, taken, awaited), is_whole=not event.ranges
        )
        if event.kill or not awaited:
            self._conclude(withdrawal)
        else:
            self._open.append(withdrawal)
        return job

    def _refuse(self, event: CancelAsked, job: Job | None) -> None:
        """Refuse a cancel of a job that has ended, or is not the asker's."""
        code = "" if event.ranges else Reason.JOB_NOT_FOUND
        reason = CANCEL_REFUSED.get(code, "")
        asking = self._clients.get(event.client)
        if job is not None and not event.ranges and asking is not None:
            if asking.is_operator and job.spec.path:
                reason = f"site {job.spec.path[-1]} sent it under a contract, and cancels it there"
            self._log(event.client, f"cancel of {job.title}: {reason}", True)
        elif not event.ranges and asking is not None:
            self._log(event.client, f"cancel of job {event.job[:64]}: {reason}", True)
        self._answer(event.client, event.request, RangeSet(), code, reason)

    def came_back(self, assignment: Assignment, returned: list[Range]) -> list[Range]:
        """Count returned tasks towards the cancels that wait for them; return the rest."""
        rest = RangeSet(returned)
        for withdrawal in list(self._open):
            if assignment.id not in withdrawal.awaited:
                continue
            # Answers are not numbered: when the last has come, the one to this cancel has.
            if not assignment.recalls or not assignment.left:
                withdrawal.awaited.discard(assignment.id)
            wanted = RangeSet(part for pair in returned for part in withdrawal.ranges.within(*pair))
            for first, stop in self._cancel(withdrawal.job, wanted, withdrawal.client):
                withdrawal.taken.add(first, stop)
                rest.remove(first, stop)
            self._answer_if_done(withdrawal)
        return list(rest)

    def closed(self, assignment: int) -> None:
        """Note that an assignment that cancels waited for has ended: nothing was taken of it."""
        for withdrawal in list(self._open):
            if assignment in withdrawal.awaited:
                withdrawal.awaited.discard(assignment)
                self._answer_if_done(withdrawal)

    def forget(self, client: int) -> None:
        """Forget the cancels of a client that is gone."""
        self._open = [each for each in self._open if each.client != client]

    def _may_cancel(self, job: Job, client: int) -> bool:
        asking = self._clients.get(client)
        if asking is None:
            return False
        # Tasks that another site bought are ended by their contract.
        may_all = asking.is_operator and job.spec.price is None
        return job.client == client or asking.user == job.spec.user or may_all

    def _cancel(self, job: Job, taken: RangeSet, asker: int) -> RangeSet:
        """End those of these tasks that have not ended; return them.

        The client that asked is answered; an owner that did not ask is told.
        """
        unended = [part for pair in taken for part in job.ended.missing(*pair)]
        told = job.client != asker
        self._drop(job, unended, self._by(job, asker), told)
        return RangeSet(unended)

    def _by(self, job: Job, client: int) -> str:
        """Return by whom tasks are cancelled, for their owner, and for the books."""
        asking = self._clients.get(client)
        if client == job.client or asking is None:
            return CANCELLED
        return cancelled_text(asking.user, is_owner=asking.user == job.spec.user)

    def _close_to_calls(self, job: Job, asker: int) -> None:
        """Tell the owner of a cancelled job that it takes no more calls, if another cancelled it.

        So an owner that submits more than it may have here ends the queued calls on its side.
        """
        is_open = job.total is None and not job.spec.detached and job.spec.price is None
        if is_open and job.client != asker and job.client in self._clients:
            unknown = [list(span) for span in job.known.missing(0, ALL_TASKS)]
            self._tell(job.client, Dropped(job.id, unknown, job.leaving, job.reason))

    def _answer_if_done(self, withdrawal: Withdrawal) -> None:
        if not withdrawal.awaited:
            self._open.remove(withdrawal)
            self._conclude(withdrawal)

    def _conclude(self, withdrawal: Withdrawal) -> None:
        job, taken = withdrawal.job, withdrawal.taken
        title = job.title if withdrawal.is_whole else ""
        if withdrawal.is_whole and withdrawal.client != job.client:
            text = f"{job.title}: {count(len(taken), 'task')} cancelled"
            self._log(withdrawal.client, text, False)
        self._answer(withdrawal.client, withdrawal.request, taken, title=title)

    def _answer(
        self,
        client: int,
        request: int,
        taken: RangeSet,
        code: str = "",
        reason: str = "",
        title: str = "",
    ) -> None:
        if request:
            value: dict[str, Any] = {"taken": [list(pair) for pair in taken]}
            if title:
                value["title"] = title
            reason = reason or CANCEL_REFUSED.get(code, "")
            self._tell(client, Answer(request, code, reason, value))
