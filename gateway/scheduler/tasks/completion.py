"""Ends tasks with a result or a failure, or queues them again. Pure.

Each task ends exactly once, and only its owner is told: the client of an attached job, the store
for a detached one. The broker draws the consequences for the job, and says when it is over.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from federation.messages.deals import Deliver
from federation.messages.messages import Dropped, Results
from federation.messages.printed import are_streams, parted, stream_of
from federation.messages.wire import pack
from federation.objects.left import left_in
from federation.ranges import Range, RangeSet, gaps
from gateway.ledger.db import records
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.graphs.waiting_calls import TaskFailure, WaitingCalls
from gateway.scheduler.model.effects import (
    NO_CHARGE,
    Charge,
    Effect,
    KeepOutput,
    SendToClient,
    TakeObjects,
    Write,
)
from gateway.scheduler.model.events import Reported
from gateway.scheduler.model.jobs import (
    ALL_TASKS,
    EVERY_TASK,
    Assignment,
    Job,
    QueuedBundle,
    Strikes,
    Worker,
)
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.quotas.accounts import Accounts, BrokerClient
from gateway.scheduler.quotas.roster import WorkerRoster
from gateway.scheduler.tasks.end_texts import cost_text

# A task that crashes its slot this often is poisonous. One of kind "object", whose result was
# lost before it was recorded, is not run for ever either.
CRASHES_MAX: Final = 2
# Failures that use up one of the job's retries.
RETRIED: Final = frozenset({"error", "timeout", "memory"})
# How often a task may be stopped for its cost, or to make room without an order of this gateway,
# and go on without using up a retry: others say so, and it can't be checked here.
STOPS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Again:
    """A task to queue again, by itself when it crashed its slot."""

    task: int
    alone: bool


@dataclass(frozen=True, slots=True)
class SortedReport:
    """A sorted report: the results to deliver, and the tasks to retry."""

    results: list[Results]
    again: list[Again]
    done: int
    failed: int
    cancelled: int


def is_sound(report: Reported | Deliver) -> bool:
    """Whether the failures and prints of a report, or of a delivery, point into it."""
    count = len(report.values)
    if not report.failures and not report.prints:
        return count > 0
    failures: Sequence[Sequence[Any]] = report.failures
    prints: Sequence[Sequence[Any]] = report.prints
    offsets = [int(failure[0]) for failure in failures]
    in_order = all(low < high for low, high in itertools.pairwise(offsets))
    inside = all(at < count for at in offsets)
    printed = all(int(row[0]) < count for row in prints)
    if isinstance(report, Deliver):
        printed = printed and are_streams(prints, report.streams)
    return in_order and inside and printed


def doubted(failures: Sequence[list[Any]], site: str) -> list[list[Any]]:
    """Return failures with those of kind "budget" as ordinary errors.

    A worker keeps no cost limit: its gateway does. Another site keeps that of its contract alone.

    Args:
        failures: those of a sound report or delivery.
        site: the site that says so; empty: a worker of this site.
    """
    who = site or "its worker"
    why = f"{who} stopped the task for a cost limit that was not reached"
    return [
        [at, "error", f"{why}: {text}", *rest] if kind == "budget" else [at, kind, text, *rest]
        for at, kind, text, *rest in failures
    ]


def judge_report(
    job: Job,
    report: Reported,
    charge: Charge,
    *,
    is_stopped: bool = False,
    has_others: bool = False,
    told: RangeSet | None = None,
) -> SortedReport:
    """Sort a report's tasks, leaving out tasks that have already ended (cancelled ones, say).

    A task that was killed because its client left (`is_stopped`) has not ended: it was not
    cancelled. A task whose environment could not be prepared goes to another worker, if there is
    one (`has_others`). Tasks that this gateway `told` to make room may be stopped without end:
    their retries are not used up. Others may be stopped STOPS_MAX times. `charge` is that of the
    whole report. Counts strikes against tasks that failed. The failure of a poisonous task is
    rewritten to say why it was given up.
    """
    first, stop = report.first, report.first + len(report.values)
    gone = job.ended.within(first, stop)
    if not report.failures and not gone:
        prints, streams = parted(_prints(job, report))
        sites, label = list(report.sites), list(job.spec.wishes.label.words)
        whole = Results(
            job.id, first, report.values, [], prints, sites, streams, report.left, label
        )
        return SortedReport([whole], [], len(report.values), 0, 0)
    failures: dict[int, list[object]] = {}
    again: list[Again] = []
    for offset, kind, text, payload in report.failures:
        task = first + int(offset)  # type: ignore[call-overload]
        if task in job.ended:
            continue
        is_for_others = has_others and kind == "environment"
        if is_for_others or (is_stopped and kind == "cancelled"):
            again.append(Again(task, alone=False))
            continue
        is_told = kind == "preempted" and told is not None and task in told
        retry = _strike(job, task, str(kind), is_told=is_told)
        if kind == "budget":
            job.outran_s = max(job.outran_s, charge.wall_ns / 1e9 / len(report.values))
            job.outran_nanos = max(job.outran_nanos, charge.cost_nanos // len(report.values))
        if retry is not None:
            again.append(retry)
        elif kind == "preempted" and job.spec.price is None:
            is_cancelled = job.leaving == "cancelled"
            why = text if is_cancelled else f"{text} (stopped over {STOPS_MAX} times)"
            failures[task] = ["cancelled" if is_cancelled else "error", why, payload]
        else:
            failures[task] = [kind, _explain(job, task, str(kind), str(text)), payload]
    skipped = job.ended.within(first, stop)
    skipped.extend((retry.task, retry.task + 1) for retry in again)
    results = [_part(job, report, part, failures) for part in gaps(first, stop, sorted(skipped))]
    delivered = sum(len(part.values) for part in results)
    cancelled = sum(kind == "cancelled" for kind, *_ in failures.values())
    failed = len(failures) - cancelled
    return SortedReport(results, again, delivered - len(failures), failed, cancelled)


def _strike(job: Job, task: int, kind: str, *, is_told: bool) -> Again | None:
    """Return whether the task is retried, counting this failure.

    `is_told`: it was stopped to make room, by an order of this gateway.
    """
    if job.spec.price is not None:
        return None  # the buyer decides, and may retry elsewhere
    strikes = job.strikes.setdefault(task, Strikes())
    if kind in ("preempted", "budget") and not is_told:
        strikes.stops += 1
    may_stop = is_told or strikes.stops <= STOPS_MAX
    if job.leaving == "cancelled":
        pass  # a retry would wait for a turn that does not come
    elif kind == "preempted" and may_stop:
        return Again(task, alone=False)  # not the task's fault: its retries are not used up
    elif kind == "budget" and job.has_money and may_stop:
        return Again(task, alone=False)  # another contract may be granted more
    elif kind in ("crash", "object"):
        strikes.crashes += 1
        if strikes.crashes < CRASHES_MAX:
            return Again(task, alone=kind == "crash")
    elif kind in RETRIED or kind == "preempted":
        strikes.failures += 1
        if strikes.failures <= job.spec.retries:
            return Again(task, alone=False)
    del job.strikes[task]
    return None


def _explain(job: Job, task: int, kind: str, text: str) -> str:
    if kind != "crash" or job.spec.price is not None:
        return text
    return f"task {task} of job {job.id} crashed its slot {CRASHES_MAX} times: {text}"


def _prints(job: Job, report: Reported) -> list[list[object]]:
    """Return the output of the tasks; empty unless the job requests it."""
    return report.prints if job.spec.prints else []


def _pieces(report: Reported) -> tuple[tuple[int, int, str], ...]:
    """Return the output in a report as (task, stream, text)."""
    rows: Sequence[Sequence[Any]] = report.prints
    return tuple((report.first + row[0], stream_of(row), row[1]) for row in rows)


def _part(job: Job, report: Reported, part: Range, failures: dict[int, list[object]]) -> Results:
    low, high = part
    offset = report.first
    prints, streams = parted(
        [int(at) + offset - low, *piece]  # type: ignore[call-overload]
        for at, *piece in _prints(job, report)
        if low <= int(at) + offset < high  # type: ignore[call-overload]
    )
    return Results(
        job.id,
        low,
        report.values[low - offset : high - offset],
        [[task - low, *failures[task]] for task in sorted(failures) if low <= task < high],
        prints,
        list(report.sites),
        streams,
        report.left,
        list(job.spec.wishes.label.words),
    )


class TaskCompletion:
    """Ends tasks, or queues them again; `done` counts those with a result.

    Args:
        accounts: counts the unfinished tasks of clients; ended tasks are credited there.
        dispatcher: told which jobs have queued tasks, and asked to recall tasks that must not go
            on.
        roster: knows which workers may still make an environment.
        peers: knows the same of other sites.
        effects: the list for the resulting effects, in order with all others.
        end_owing: (job, ranges): ends the tasks that owe something for lost runs; see Losses.
        graphs: the calls that wait for other tasks; told of each end.
    """

    def __init__(
        self,
        accounts: Accounts,
        dispatcher: Dispatcher,
        roster: WorkerRoster,
        peers: PeerQueries,
        effects: list[Effect],
        end_owing: Callable[[Job, list[Range]], list[Range]],
        graphs: WaitingCalls,
    ) -> None:
        self._graphs = graphs
        self._accounts = accounts
        self._clients: Mapping[int, BrokerClient] = accounts.clients
        self._dispatcher = dispatcher
        self._roster = roster
        self._peers = peers
        self._effects = effects
        self._end_owing = end_owing
        self.done = 0

    def deliver(self, assignment: Assignment, event: Reported, charge: Charge) -> list[int]:
        """Send results, and queue failed tasks for a retry; return the latter."""
        job = assignment.job
        if job.is_logged and event.prints and not assignment.worker.tells_output:
            self._effects.append(KeepOutput(job.id, _pieces(event)))
        has_others = bool(event.failures) and self._is_unfit(job, assignment.worker, event)
        verdict = judge_report(
            *(job, event, charge),
            is_stopped=assignment.is_stopped,
            has_others=has_others,
            told=assignment.told,
        )
        for retry in reversed(verdict.again):
            run = assignment.run.cut(retry.task, retry.task + 1)
            run.attempt += 1
            run.alone = retry.alone
            job.interrupted += job.leaving == "abandoned"
            self.requeue(job, run)
        job.done += verdict.done
        job.failed += verdict.failed
        job.cancelled += verdict.cancelled
        self.done += verdict.done
        self._accounts.credit(job, verdict.done + verdict.failed + verdict.cancelled)
        for results in verdict.results:
            count = len(results.values)
            job.ended.add(results.first, results.first + count)
            self._graphs.rode(job, results.first, results.first + count)
            for failure in results.failures:
                task = results.first + int(failure[0])
                job.failures.add(task, task + 1)
                if failure[1] != "cancelled":
                    job.note_failure(str(failure[2]))
            if job.id in self._graphs.sources:
                self._graphs.outcome(
                    job, results.first, results.values, results.failures, left=results.left
                )
            if job.spec.detached:
                kept = (results.values, results.failures, results.prints, results.sites)
                body = pack([*kept, results.streams])
                self._effects.append(Write(records.OutcomeKept(job.id, results.first, count, body)))
            elif (client := self._clients.get(job.client)) is not None:
                if event.left and client.port is not PortKind.PEER:  # a buyer fetches them first
                    left = tuple(left_in(results.values))
                    self._effects.append(TakeObjects(job.client, job.id, job.spec.scope, left))
                self._effects.append(SendToClient(job.client, results, charge, client.port))
                charge = NO_CHARGE  # only the first results carry it
        return [retry.task for retry in verdict.again]

    def _is_unfit(self, job: Job, worker: Worker, event: Reported) -> bool:
        """Note a worker that can't make the environment of a job; return whether another may."""
        if job.spec.price is not None or all(
            kind != "environment" for _, kind, *_ in event.failures
        ):
            return False  # for another site's job the buyer decides
        job.unfit.add(worker.place)
        self._dispatcher.refile(job)
        return self._has_fit(job)

    def _has_fit(self, job: Job) -> bool:
        """Whether a worker or site is left that has not failed to make the environment of a job."""
        return self._roster.has_fit(job) or self._peers.may_be_made(job)

    def ask_again(self, job: Job) -> None:
        """Allow workers that failed again if no other is left, so that the failure is reported.

        The caller files the job anew (Dispatcher.refile).
        """
        if job.unfit and not job.in_flight and not self._has_fit(job):
            job.unfit.clear()

    def requeue(self, job: Job, run: QueuedBundle) -> None:
        """Queue unfinished tasks again, except for those cancelled meanwhile."""
        for low, high in reversed(job.ended.missing(run.first, run.stop)):
            if job.leaving == "cancelled":
                self.drop(job, [(low, high)], "cancelled", job.reason)
            elif job.leaving:
                self._graphs.rode(job, low, high)
                job.known.remove(low, high)  # a client that comes back sends them again
            else:
                for first, stop in reversed(job.stopping.missing(low, high)):
                    for part in reversed(self._graphs.came_back(job, run.cut(first, stop))):
                        job.enqueue(part, ahead=True)
                stopped = self._end_owing(job, job.stopping.within(low, high))
                self.drop(job, stopped, "cancelled", "stopped on request")
        self.queued(job)

    def queued(self, job: Job) -> None:
        """Note that more tasks of a job are queued; end them if they must not begin any more."""
        self._dispatcher.mark_ready(job)
        self.check_cost(job)
        self.end_given_up(job)

    def check_cost(self, job: Job) -> None:
        """End the tasks that have not begun of a job that has reached its cost limit."""
        if job.spec.max_cost_nanos is None:
            return
        self._dispatcher.refile(job)
        if job.has_money:
            return
        if job.waiting or job.blocked:
            self.drop_waiting(job, "budget", cost_text(job))
        if not job.is_spent:  # unstarted tasks at workers come back, and end
            job.is_spent = True
            self._dispatcher.recall_unstarted(job)

    def end_given_up(self, job: Job) -> None:
        """End the queued tasks of a job that is useful only as a whole, and can't be completed."""
        if job.given_up and (job.waiting or job.blocked):
            self.drop_waiting(job, job.given_up, job.unmet)

    def drop_waiting(self, job: Job, failure: str, reason: str) -> None:
        """End all queued tasks with a failure."""
        dropped = RangeSet()
        while job.queue:
            run = job.take(len(job.queue[0].arguments), ALL_TASKS)
            dropped.add(run.first, run.stop)
        for first, stop in job.withdraw():  # those that wait for inputs
            dropped.add(first, stop)
        self.drop(job, list(dropped), failure, reason)
        self._dispatcher.mark_ready(job)

    def drop_blocked(self, job: Job, failure: str, reason: str) -> None:
        """End all calls that wait for inputs with a failure."""
        if job.unblock is not None:
            self.drop(job, job.unblock(EVERY_TASK), failure, reason)

    def drop(
        self,
        job: Job,
        ranges: list[Range],
        failure: str,
        reason: str,
        *,
        tell: bool = True,
        payload: bytes = b"",
    ) -> None:
        """End tasks that will not run, with a failure for their owner.

        `payload` is a pickled exception, of the task because of which they fail.
        """
        for first, stop in ranges:
            count = stop - first
            job.ended.add(first, stop)
            self._graphs.rode(job, first, stop)
            if failure == "cancelled":
                job.cancelled += count
                job.cancels.add(first, stop)
            else:
                job.failed += count
                job.failures.add(first, stop)
                job.note_failure(reason)
            self._accounts.credit(job, count)
            if job.spec.detached:
                failures = [[at, failure, reason, payload] for at in range(count)]
                body = pack([[b""] * count, failures, [], []])
                # The canceller is told at once: a power cut must not bring the tasks back after
                # that.
                kept = records.OutcomeKept(job.id, first, count, body)
                self._effects.append(Write(kept, durable=failure == "cancelled"))
        if job.id in self._graphs.sources:
            self._graphs.fell(job, ranges, TaskFailure(failure, reason, payload))
        client = self._clients.get(job.client)
        if not tell or not ranges or job.spec.detached or client is None:
            return
        if not payload:
            message: Any = Dropped(job.id, [list(pair) for pair in ranges], failure, reason)
            self._effects.append(SendToClient(job.client, message, port=client.port))
            return
        for first, stop in ranges:
            count = stop - first
            rows = [[at, failure, reason, payload] for at in range(count)]
            message = Results(job.id, first, [b""] * count, rows, [], [])
            self._effects.append(SendToClient(job.client, message, port=client.port))
