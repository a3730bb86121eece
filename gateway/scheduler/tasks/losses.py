"""The tasks of lost workers: retries and their places, failures, charges and debts. Pure.

Tasks that had not begun return to the queue without a count. A task that had begun is counted: it
goes to another worker that can take it, and is given up after `losses_max` of its workers were
lost. A worker reports which tasks have begun (Begun); if it does not, any task that it held may
have begun. A task that its worker did not stop at its time limit (gateway.scheduler.tasks.overdue)
fails as `timeout`, as if the worker had stopped it then, and is no loss. Nor is a loss counted that
this gateway may have caused, as it was late.

The cause of a worker's end can't be observed. So the run of each task that had begun there is
charged at once, as `wasted`, and paid once: the next runs of the task are free for as long
(gateway.scheduler.model.paid_time), and a later lost run is charged only for the time that it took
longer. A payer that keeps a result and ends the worker has paid for it; a payer whose tasks ran
beside it pays as much as without the loss.

A payer whose tasks end their workers repeatedly pays each run in full. A loss is attributed to a
payer (gateway.scheduler.model.loss_suspects) if only its tasks had begun there; or, among several,
if it alone had a loss attributed to it before, or else it alone was among several at an earlier
loss, no more than SEEN_S before its tasks began.

For sold work one delivery is made per task. The time of lost runs is owed until the next run and
delivered with it, as far as that run is shorter; the rest is `lost`. A task that its buyer stops
before it runs again is delivered as `cancelled`, with all that it owes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from federation.clocks import UtcS
from federation.ranges import Range, RangeSet
from federation.words import duration_text
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model.events import Reported, ReportUsage, WorkerGone
from gateway.scheduler.model.jobs import (
    Assignment,
    Doing,
    Job,
    QueuedBundle,
    Strikes,
    Worker,
    WorkerLoss,
)
from gateway.scheduler.model.loss_suspects import LossSuspects, Payer, payer_of
from gateway.scheduler.tasks.charging import Charging
from gateway.scheduler.tasks.completion import TaskCompletion
from gateway.scheduler.tasks.withdrawals import Withdrawals

LISTED_MAX: Final = 10  # losses that an error lists
LATE_TIMES: Final = 4  # as many losses as of others, when the gateway was late, end a task
SHUN_S: Final = 300.0  # how long a task, per loss, avoids the places where it was lost
REASON_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Gone:
    """A worker that was lost."""

    worker: Worker
    event: WorkerGone
    heard_at_s: UtcS
    utc_s: UtcS
    suspect: Payer | None  # the payer to which the loss is attributed


class Losses:
    """Takes back the tasks of lost workers.

    Args:
        charging, completion, withdrawals: see there.
        release: (assignment, first, stop): takes these tasks off the worker.
        book: writes usage records, and counts them for the payer.
        fail: takes a report of released tasks, in place of their worker.
        losses_max: how many workers may be lost under a task that had begun there.
    """

    def __init__(
        self,
        charging: Charging,
        completion: TaskCompletion,
        withdrawals: Withdrawals,
        *,
        release: Callable[[Assignment, int, int], None],
        book: Callable[[Job, Assignment, list[UsageRecord]], None],
        fail: Callable[[Assignment, Reported], None],
        losses_max: int,
    ) -> None:
        self._charging = charging
        self._completion = completion
        self._withdrawals = withdrawals
        self._release = release
        self._book = book
        self._fail = fail
        self._losses_max = losses_max
        self._suspects = LossSuspects()

    def take_back(self, worker: Worker, event: WorkerGone, utc_s: UtcS) -> None:
        """Decide about all tasks of a worker that is gone."""
        held = list(worker.assignments.values())
        heard_s = utc_s - max(0.0, event.silent_s)
        # A gateway that is late loses all its workers: that says nothing about their tasks.
        suspect = None if event.was_late else self._suspects.attribute(held, utc_s)
        gone = _Gone(worker, event, heard_s, utc_s, suspect)
        for assignment in reversed(held):
            left, begun = list(assignment.left), dict(assignment.begun)
            for first, stop in left:
                self._release(assignment, first, stop)
            back = self._withdrawals.came_back(assignment, left)
            returned = RangeSet(back)
            for task in [each for each in begun if each not in returned]:
                self._note(assignment, task, begun[task], gone)  # its owner has withdrawn the task
            for first, stop in reversed(back):
                at = stop
                for task in sorted((each for each in begun if first <= each < stop), reverse=True):
                    self._put_back(assignment, task + 1, at, gone)
                    self._survive(assignment, task, begun[task], gone)
                    at = task
                self._put_back(assignment, first, at, gone)

    def time_out(self, assignment: Assignment, task: int) -> None:
        """End the run of a task at its time limit, in place of its worker."""
        limit_s = assignment.job.spec.timeout_s or 0.0
        self._release(assignment, task, task + 1)
        if not assignment.left:
            self._withdrawals.closed(assignment.id)
        text = f"the task exceeded its time limit of {duration_text(limit_s)}"
        text += f", and worker {assignment.worker.title} did not stop it"
        report = _report(assignment, task, round(limit_s * 1e9), "timeout", text)
        self._fail(assignment, report)

    def _put_back(self, assignment: Assignment, first: int, stop: int, gone: _Gone) -> None:
        """Queue tasks again that had not begun, as far as is known."""
        if first >= stop:
            return
        job, run, worker = assignment.job, assignment.run.cut(first, stop), gone.worker
        if gone.event.is_orderly:
            self._completion.requeue(job, run)
            return
        run.attempt += 1
        if gone.event.was_late and not worker.tells_begun and not worker.job:
            run.late_losses += 1  # they may have begun
            run.is_wary = True
            if self._is_late_too_often(run.late_losses):
                text = self._explain_late(run.late_losses, worker)
                self._completion.drop(job, job.ended.missing(first, stop), "lost", text)
                return
        elif worker.tells_begun or gone.event.was_late:
            run.is_wary = True
        elif not worker.job:  # a contract ends for many reasons: its seller counts its own losses
            run.losses += 1
            run.is_wary = True
            if run.losses >= self._losses_max:
                text = f"its worker was lost {run.losses} times, the last one was {worker.title}"
                ranges = job.ended.missing(first, stop)
                self._completion.drop(job, ranges, "lost", text)
                return
        self._completion.requeue(job, run)

    def _survive(self, assignment: Assignment, task: int, at_s: UtcS, gone: _Gone) -> None:
        """Queue a task again that had begun, unless it was lost too often."""
        job, strikes = assignment.job, self._note(assignment, task, at_s, gone)
        if gone.event.was_late:
            run = assignment.run.cut(task, task + 1)
            run.attempt += 1
            is_over = self._is_late_too_often(strikes.late_losses)
            if is_over and task not in job.ended and not job.leaving:
                text = self._explain_late(strikes.late_losses, gone.worker)
                self._fail(replace(assignment, run=run), _report(assignment, task, 0, "lost", text))
                return
            run.is_wary = True
            self._completion.requeue(job, run)
            return
        own = sum(each.doing == "own" for each in strikes.losses)
        most = 1 if own and job.is_struck else self._losses_max
        if len(strikes.losses) >= most and task not in job.ended and not job.leaving:
            job.is_struck = job.is_struck or 2 * own > len(strikes.losses)
            run = assignment.run.cut(task, task + 1)
            run.attempt += 1  # the failure has a record of its own
            self._fail(
                replace(assignment, run=run),
                _report(assignment, task, 0, "lost", _explain(strikes.losses)),
            )
            return
        run = assignment.run.cut(task, task + 1)
        run.attempt += 1
        run.alone = run.is_wary = True
        run.shuns = frozenset(each.place for each in strikes.losses)
        run.shuns_until_s = gone.utc_s + SHUN_S * len(strikes.losses)
        job.is_shunning = True
        self._completion.requeue(job, run)

    def _is_late_too_often(self, late_losses: int) -> bool:
        return late_losses >= LATE_TIMES * self._losses_max

    def _explain_late(self, late_losses: int, worker: Worker) -> str:
        """Explain why a task is given up after losses each of which this gateway may have caused.

        A task that makes the gateway late, or that no late gateway can finish, would never end.
        """
        return (
            f"its worker was lost {late_losses} times when this gateway was late, which is "
            f"{LATE_TIMES} times task_losses ({self._losses_max}): the last one was {worker.title}"
        )

    def _note(self, assignment: Assignment, task: int, at_s: UtcS, gone: _Gone) -> Strikes:
        """Count a loss, unless the gateway was late, and book the run that it ended."""
        job, worker, event = assignment.job, gone.worker, gone.event
        strikes = job.strikes.setdefault(task, Strikes())
        ran_ns = _ran_ns(job, gone.heard_at_s - at_s)
        reason = "".join(each if each.isprintable() else "?" for each in event.reason)
        doing: Doing = "own" if gone.suspect == payer_of(job) else "others"
        if gone.suspect is None:
            doing = "shared"
        # The task's records, which survive a restart, show its earlier payments. Its strikes show
        # how those runs ended: the losses were others' doing only if all of them say so.
        in_full = doing == "own" and {each.doing for each in strikes.losses} != {"others"}
        loss = WorkerLoss(worker.title, worker.place, gone.utc_s, reason[:REASON_CHARS_MAX], doing)
        text = f"task {task} had started when its worker was lost: {loss}"
        if event.was_late:
            strikes.late_losses += 1
            text += "; not counted, as this gateway was late"
        else:
            strikes.losses.append(loss)
        job.note(gone.utc_s, text)
        run = QueuedBundle(task, [b""], 0, assignment.run.attempt)
        under = replace(assignment, run=run, left=RangeSet(), holds=(), begun={})
        report = _report(under, task, ran_ns)
        if job.spec.price is None:
            used = self._charging.wasted(under, report.usage, gone.heard_at_s, in_full=in_full)
            self._book(job, under, used)
        else:
            self._owe(job, strikes, under, ran_ns, gone.heard_at_s, in_full=in_full)
        return strikes

    # --- sold work: owed time --------------------------------------------------------------------

    def _owe(
        self,
        job: Job,
        strikes: Strikes,
        under: Assignment,
        ran_ns: int,
        utc_s: UtcS,
        *,
        in_full: bool,
    ) -> None:
        """Add a lost run to the time that its task owes, beside earlier time or as part of it."""
        before_ns = strikes.owed_ns
        absorbed_ns = 0 if in_full else min(before_ns, ran_ns)
        self._give_up(job, strikes, absorbed_ns, utc_s)
        strikes.owed_ns = before_ns - absorbed_ns + ran_ns
        strikes.lost_under = under

    def with_owed(self, assignment: Assignment, report: ReportUsage, utc_s: UtcS) -> ReportUsage:
        """Return the usage of a report with the slot time added that its task owes for lost runs.

        Added is the part that this run does not cover; all of it counts as the time of this one
        run.
        """
        job = assignment.job
        strikes = job.strikes.get(report.first) if report.tasks == 1 else None
        if strikes is None or not strikes.owed_ns:
            return report
        if any(kind == "preempted" for _, kind in report.failures):
            return report
        more_ns = max(0, strikes.owed_ns - report.wall_ns)
        self._give_up(job, strikes, strikes.owed_ns - more_ns, utc_s)
        return replace(report, wall_ns=report.wall_ns + more_ns)

    def end_owing(self, job: Job, ranges: Iterable[Range]) -> list[Range]:
        """End the tasks among these that owe time and that their buyer stopped.

        Each is delivered with the time that it owes. Returns the other tasks.
        """
        rest = RangeSet(ranges)
        for task, strikes in list(job.strikes.items()):
            under = strikes.lost_under
            if under is not None and strikes.owed_ns and task in rest and task not in job.ended:
                rest.remove(task, task + 1)
                report = _report(under, task, 0, "cancelled", "stopped on request")
                self._fail(replace(under, is_stopped=False), report)
        return list(rest)

    def settle(self, job: Job, utc_s: UtcS) -> None:
        """Book all owed time of a job that is over as lost: no bill for it is accepted any more."""
        for strikes in job.strikes.values():
            self._give_up(job, strikes, strikes.owed_ns, utc_s)

    def _give_up(self, job: Job, strikes: Strikes, lost_ns: int, utc_s: UtcS) -> None:
        """Clear the time that a task owes, and book `lost_ns` as lost."""
        under, strikes.owed_ns = strikes.lost_under, 0
        if under is not None and lost_ns:
            report = _report(under, under.run.first, lost_ns)
            used = self._charging.lost(under, report.usage, utc_s)
            self._book(job, under, used)


def _ran_ns(job: Job, passed_s: float) -> int:
    """Return the duration of a lost run, last heard of `passed_s` after its start.

    It is at most the time limit of the job's tasks: an agent stops them then, and whether this one
    did is unknown.
    """
    limit_s = job.spec.timeout_s
    return round(max(0.0, passed_s if limit_s is None else min(passed_s, limit_s)) * 1e9)


def _report(
    assignment: Assignment, task: int, wall_ns: int, kind: str = "lost", text: str = ""
) -> Reported:
    failure, worker = [0, kind, text, b""], assignment.worker.handle
    return Reported(worker, assignment.id, task, [b""], [failure], [], wall_ns)


def _explain(losses: list[WorkerLoss]) -> str:
    """Explain why a task is given up: its losses, the latest of them one by one."""
    listed = "; ".join(map(str, losses[-LISTED_MAX:]))
    more = f"{len(losses) - LISTED_MAX} earlier; " if len(losses) > LISTED_MAX else ""
    times = "once" if len(losses) == 1 else f"{len(losses)} times"
    return f"its worker was lost {times} while it ran: {more}{listed}"
