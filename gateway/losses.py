"""What a lost worker had: what is tried again, and where; what is given up; what is owed. Pure.

What had not begun there goes back to the queue, and nothing is counted. What had begun is counted
and listed, by task: it goes to another worker that can take it, and after `losses_max` of its
workers were lost it is given up. Which tasks had begun the worker has said (Begun); of one that
does not say so, every task that it held may have.

Nobody can see who ended a worker. So the run of each task that had begun there is charged at once,
as `wasted`, and paid once: the next runs of the task are free for as long (gateway.credits), and a
later run that is lost is charged only for what it took longer. Whoever keeps a result and ends the
worker has paid for it; whoever worked beside him pays as much as without the loss.

What a task does again and again to its workers is paid in full each time. A loss is taken for the
doing of a payer, which is a user of ours or another site, when only his tasks had begun there; or
when of several he alone was taken to have done so before, or else he alone was among several at an
earlier loss, within SEEN_S.

Of work sold one delivery comes back for a task. There such time is owed until the next run, and
delivered with it as far as that run is shorter; the rest is `lost`. What is stopped by its buyer
before it runs again is delivered as `cancelled`, with all that it owes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from federation.ranges import Range, RangeSet
from gateway.charging import Charging
from gateway.endings import Endings
from gateway.events import Reported, WorkerGone
from gateway.jobs import Assignment, Doing, Job, Loss, Run, Strikes, Worker
from gateway.ledger.records import UsageRecord
from gateway.withdrawals import Withdrawals

LISTED_MAX: Final = 10  # losses that an error lists
SHUN_S: Final = 300.0  # how long a task waits for another worker than those that it was lost at
REASON_CHARS_MAX: Final = 200
SEEN_S: Final = 3_600.0  # how long a payer's losses count against him
PAYERS_MAX: Final = 10_000


_Payer = tuple[str, str]  # a site that sent work, or else no site and a user of ours


@dataclass(frozen=True, slots=True)
class _Gone:
    """A worker that was lost."""

    worker: Worker
    event: WorkerGone
    heard_s: float
    now_s: float
    suspect: _Payer | None  # whose doing it is taken for


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
        # By payer: when he was last at a loss with others, and last taken to have caused one.
        self._seen_s: dict[_Payer, float] = {}
        self._found_s: dict[_Payer, float] = {}

    def take_back(self, worker: Worker, event: WorkerGone, now_s: float) -> None:
        """A worker is gone: decide about all that it had."""
        held = list(worker.assignments.values())
        heard_s = now_s - max(0.0, event.silent_s)
        gone = _Gone(worker, event, heard_s, now_s, self._suspect(held, now_s))
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
        run.shuns_until_s = gone.now_s + SHUN_S * len(strikes.losses)
        job.is_shunning = True
        self._endings.requeue(job, run)

    def _note(self, assignment: Assignment, task: int, at_s: float, gone: _Gone) -> Strikes:
        """Count a loss, and book the run that it ended."""
        job, worker, event = assignment.job, gone.worker, gone.event
        strikes = job.strikes.setdefault(task, Strikes())
        ran_ns = _ran_ns(job, gone.heard_s - at_s)
        reason = "".join(each if each.isprintable() else "?" for each in event.reason)
        doing: Doing = "own" if gone.suspect == _payer(job) else "others"
        if gone.suspect is None:
            doing = "shared"
        # What it has paid for runs before is known by its records, after a restart as well, and how
        # those ended by its strikes: they were others' doing only where all of these say so.
        in_full = doing == "own" and {each.doing for each in strikes.losses} != {"others"}
        loss = Loss(worker.title, worker.place, gone.now_s, reason[:REASON_CHARS_MAX], doing)
        strikes.losses.append(loss)
        job.note(gone.now_s, f"task {task} had begun when its worker was lost: {loss}")
        run = Run(task, [b""], 0, assignment.run.attempt)
        under = replace(assignment, run=run, left=RangeSet(), holds=(), begun={})
        report = _report(under, task, ran_ns)
        if job.spec.price is None:
            used = self._charging.wasted(under, report, gone.heard_s, in_full=in_full)
            self._book(job, under, used)
        else:
            self._owe(job, strikes, under, ran_ns, gone.heard_s, in_full=in_full)
        return strikes

    def _suspect(self, held: list[Assignment], now_s: float) -> _Payer | None:
        """Whose doing the loss of a worker is taken for that had these; maybe nobody's."""
        payers = {_payer(each.job) for each in held if each.begun}
        if len(payers) == 1:
            return payers.pop()
        for noted_s in (self._found_s, self._seen_s):
            known = [each for each in payers if 0 <= now_s - noted_s.get(each, -inf) <= SEEN_S]
            if len(known) == 1:
                _note(self._found_s, known[0], now_s)
                return known[0]
        for payer in payers:
            _note(self._seen_s, payer, now_s)
        return None

    # --- work sold: what is owed -----------------------------------------------------------------

    def _owe(
        self,
        job: Job,
        strikes: Strikes,
        under: Assignment,
        ran_ns: int,
        now_s: float,
        *,
        in_full: bool,
    ) -> None:
        """A run was lost: its task owes it, beside what it owes already or as a part of that."""
        before_ns = strikes.owed_ns
        absorbed_ns = 0 if in_full else min(before_ns, ran_ns)
        self._give_up(job, strikes, absorbed_ns, now_s)
        strikes.owed_ns = before_ns - absorbed_ns + ran_ns
        strikes.lost_under = under

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

    def end_owing(self, job: Job, ranges: Iterable[Range]) -> list[Range]:
        """End those of these tasks that owe something, which their buyer had stopped.

        They are delivered with what they owe. Returns the others.
        """
        rest = RangeSet(ranges)
        for task, strikes in list(job.strikes.items()):
            under = strikes.lost_under
            if under is not None and strikes.owed_ns and task in rest and task not in job.ended:
                rest.remove(task, task + 1)
                report = _report(under, task, 0, "cancelled", "stopped on request")
                self._fail(replace(under, is_stopped=False), report)
        return list(rest)

    def settle(self, job: Job, now_s: float) -> None:
        """A job is over: nobody takes a bill any more for what was sold and is still owed."""
        for strikes in job.strikes.values():
            self._give_up(job, strikes, strikes.owed_ns, now_s)

    def _give_up(self, job: Job, strikes: Strikes, lost_ns: int, now_s: float) -> None:
        """Nothing is owed any more: so much of it is booked as lost."""
        under, strikes.owed_ns = strikes.lost_under, 0
        if under is not None and lost_ns:
            report = _report(under, under.run.first, lost_ns)
            used = self._charging.lost(under, report, now_s)
            self._book(job, under, used)


def _ran_ns(job: Job, passed_s: float) -> int:
    """The time of a run that ended with its worker, which was last heard so long after it began.

    It is no more than the time limit of the job's tasks: an agent stops them then, and whether this
    one did nobody can tell.
    """
    limit_s = job.spec.timeout_s
    return round(max(0.0, passed_s if limit_s is None else min(passed_s, limit_s)) * 1e9)


def _payer(job: Job) -> _Payer:
    """Who pays for a job. Another site may call its users what it likes, guests among them."""
    origin = job.spec.origin
    return (origin, "") if origin else ("", job.spec.user)


def _note(at_s: dict[_Payer, float], payer: _Payer, now_s: float) -> None:
    """Note a moment of a payer, and forget the oldest of too many."""
    at_s.pop(payer, None)
    at_s[payer] = now_s
    while len(at_s) > PAYERS_MAX:
        del at_s[next(iter(at_s))]


def _report(
    assignment: Assignment, task: int, wall_ns: int, kind: str = "lost", text: str = ""
) -> Reported:
    failure, worker = [0, kind, text, b""], assignment.worker.handle
    return Reported(worker, assignment.id, task, [b""], [failure], [], wall_ns)


def _explain(losses: list[Loss]) -> str:
    """Why a task is given up: its losses, the latest of them one by one."""
    listed = "; ".join(map(str, losses[-LISTED_MAX:]))
    more = f"{len(losses) - LISTED_MAX} before; " if len(losses) > LISTED_MAX else ""
    times = "once" if len(losses) == 1 else f"{len(losses)} times"
    return f"its worker was lost {times} while it ran: {more}{listed}"
