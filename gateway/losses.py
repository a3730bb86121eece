"""What a lost worker had: what is tried again, and where; what is given up; what is owed. Pure.

What had not begun there goes back to the queue, and nothing is counted. What had begun is counted
and listed, by task: it goes to another worker that can take it, and after `losses_max` of its
workers were lost it is given up. Which tasks had begun the worker has said (Begun); of one that
does not say so, every task that it held may have.

Nobody can see who ended a worker. If nothing but one user's tasks had begun there, the loss is
taken for the doing of that user's task: the run is charged at once, as `wasted`, and the next runs
of the task are free for as long as that (gateway.credits). So what has to be done again is paid
once, and what a task has kept for itself is paid. A loss where others' tasks had begun as well is
booked as `lost`, at no cost.

Of work sold one delivery comes back for a task. There such time is owed until the next run, and
delivered with it as far as that run is shorter; the rest is `lost`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from federation.ranges import RangeSet
from gateway.charging import Charging
from gateway.endings import Endings
from gateway.events import Reported, WorkerGone
from gateway.jobs import Assignment, Job, Loss, Run, Strikes, Worker
from gateway.ledger.records import UsageRecord
from gateway.withdrawals import Withdrawals

LISTED_MAX: Final = 10  # losses that an error lists
SHUN_S: Final = 300.0  # how long a task waits for another worker than those that it was lost at
REASON_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Gone:
    """A worker that was lost."""

    worker: Worker
    event: WorkerGone
    heard_s: float
    now_s: float
    is_sole: bool  # one user's tasks had begun there, and nobody else's


class Losses:
    """Takes back what lost workers had.

    Args:
        charging, endings, withdrawals: see there.
        release: (assignment, first, stop): these tasks are not the worker's any more.
        book: writes usage records, and counts them to whoever pays.
        fail: takes a report of tasks that were released, in the place of their worker.
        losses_max: how many of its workers may be lost under a task that had begun there.
    """

    def __init__(
        self,
        charging: Charging,
        endings: Endings,
        withdrawals: Withdrawals,
        *,
        release: Callable[[Assignment, int, int], None],
        book: Callable[[Job, Assignment, list[UsageRecord]], None],
        fail: Callable[[Assignment, Reported], None],
        losses_max: int,
    ) -> None:
        self._charging = charging
        self._endings = endings
        self._withdrawals = withdrawals
        self._release = release
        self._book = book
        self._fail = fail
        self._losses_max = losses_max

    def take_back(self, worker: Worker, event: WorkerGone, now_s: float) -> None:
        """A worker is gone: decide about all that it had."""
        held = list(worker.assignments.values())
        users = {each.job.spec.user for each in held if each.begun}
        heard_s = now_s - max(0.0, event.silent_s)
        gone = _Gone(worker, event, heard_s, now_s, is_sole=len(users) == 1)
        for assignment in reversed(held):
            left, begun = list(assignment.left), dict(assignment.begun)
            for first, stop in left:
                self._release(assignment, first, stop)
            back = self._withdrawals.came_back(assignment, left)
            returned = RangeSet(back)
            for task in [each for each in begun if each not in returned]:
                self._note(assignment, task, begun[task], gone)  # its owner wants it no more
            for first, stop in reversed(back):
                at = stop
                for task in sorted((each for each in begun if first <= each < stop), reverse=True):
                    self._put_back(assignment, task + 1, at, gone)
                    self._survive(assignment, task, begun[task], gone)
                    at = task
                self._put_back(assignment, first, at, gone)

    def _put_back(self, assignment: Assignment, first: int, stop: int, gone: _Gone) -> None:
        """Queue again what had not begun, as far as anybody knows."""
        if first >= stop:
            return
        job, run, worker = assignment.job, assignment.run.cut(first, stop), gone.worker
        if gone.event.is_orderly:
            self._endings.requeue(job, run)
            return
        run.attempt += 1
        if worker.tells_begun:
            run.is_wary = True
        elif not worker.job:  # a contract ends for many reasons: its seller counts what it loses
            run.losses += 1
            run.is_wary = True
            if run.losses >= self._losses_max:
                text = f"its worker was lost {run.losses} times, the last was {worker.title}"
                ranges = job.ended.missing(first, stop)
                self._endings.drop(job, ranges, "lost", text)
                return
        self._endings.requeue(job, run)

    def _survive(self, assignment: Assignment, task: int, at_s: float, gone: _Gone) -> None:
        """Queue a task again that had begun, until it was lost too often."""
        job, strikes = assignment.job, self._note(assignment, task, at_s, gone)
        is_sole = all(each.is_sole for each in strikes.losses)
        most = 1 if is_sole and job.is_struck else self._losses_max
        if len(strikes.losses) >= most and task not in job.ended and not job.leaving:
            job.is_struck = job.is_struck or is_sole
            run = assignment.run.cut(task, task + 1)
            if not strikes.owed_ns:
                run.attempt += 1  # the failure has a record of its own
            failure = [0, "lost", _explain(strikes.losses), b""]
            report = Reported(gone.worker.handle, assignment.id, task, [b""], [failure])
            self._fail(replace(assignment, run=run), report)
            return
        run = assignment.run.cut(task, task + 1)
        run.attempt += 1
        run.alone = run.is_wary = True
        run.shuns = frozenset(each.place for each in strikes.losses)
        run.shuns_until_s = gone.now_s + SHUN_S * len(strikes.losses)
        job.is_shunning = True
        self._endings.requeue(job, run)

    def _note(self, assignment: Assignment, task: int, at_s: float, gone: _Gone) -> Strikes:
        """Count a loss, and book the run that it ended."""
        job, worker, event = assignment.job, gone.worker, gone.event
        strikes = job.strikes.setdefault(task, Strikes())
        ran_ns = max(0, round((gone.heard_s - at_s) * 1e9))
        reason = "".join(each if each.isprintable() else "?" for each in event.reason)
        loss = Loss(worker.title, worker.place, gone.now_s, reason[:REASON_CHARS_MAX], gone.is_sole)
        strikes.losses.append(loss)
        job.note(gone.now_s, f"task {task} had begun when its worker was lost: {loss}")
        run = Run(task, [b""], 0, assignment.run.attempt)
        under = replace(assignment, run=run, left=RangeSet(), holds=(), begun={})
        is_own_doing = all(each.is_sole for each in strikes.losses)
        if not is_own_doing:
            ran_ns, strikes.owed_ns = ran_ns + strikes.owed_ns, 0
            self._book(job, under, self._charging.lost(under, _report(under, ran_ns), gone.heard_s))
        elif job.spec.price is None:
            report = _report(under, ran_ns)
            self._book(job, under, self._charging.wasted(under, report, gone.heard_s))
        else:
            strikes.owed_ns += ran_ns
            strikes.lost_under = under
        return strikes

    # --- work sold: what is owed -----------------------------------------------------------------

    def with_owed(self, assignment: Assignment, report: Reported, now_s: float) -> Reported:
        """A report with the slot time that its task owes for runs that were lost.

        That is what it has not run again: all of it counts as the time of this one run.
        """
        job = assignment.job
        strikes = job.strikes.get(report.first) if len(report.values) == 1 else None
        if strikes is None or not strikes.owed_ns:
            return report
        if any(kind == "preempted" for _, kind, *_ in report.failures):
            return report
        more_ns = max(0, strikes.owed_ns - report.wall_ns)
        self._give_up(job, strikes, strikes.owed_ns - more_ns, now_s)
        return replace(report, wall_ns=report.wall_ns + more_ns)

    def settle(self, job: Job, now_s: float) -> None:
        """A job is over: nobody takes a bill any more for what was sold and is still owed."""
        for strikes in job.strikes.values():
            self._give_up(job, strikes, strikes.owed_ns, now_s)

    def _give_up(self, job: Job, strikes: Strikes, lost_ns: int, now_s: float) -> None:
        """Nothing is owed any more: so much of it is booked as lost."""
        under, strikes.owed_ns = strikes.lost_under, 0
        if under is not None and lost_ns:
            used = self._charging.lost(under, _report(under, lost_ns), now_s)
            self._book(job, under, used)


def _report(assignment: Assignment, wall_ns: int) -> Reported:
    failure = [0, "lost", "", b""]
    task, worker = assignment.run.first, assignment.worker.handle
    return Reported(worker, assignment.id, task, [b""], [failure], [], wall_ns)


def _explain(losses: list[Loss]) -> str:
    """Why a task is given up: its losses, the latest of them one by one."""
    listed = "; ".join(map(str, losses[-LISTED_MAX:]))
    more = f"{len(losses) - LISTED_MAX} before; " if len(losses) > LISTED_MAX else ""
    times = "once" if len(losses) == 1 else f"{len(losses)} times"
    return f"its worker was lost {times} while it ran: {more}{listed}"
