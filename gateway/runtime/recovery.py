"""Rebuild a gateway's state after a restart: the broker's events from the store."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from federation.clocks import UtcS
from federation.messages.wire import unpack
from federation.objects.inputs import has_inputs
from federation.objects.references import objects_of
from federation.ranges import Range, RangeSet
from federation.words import headline
from gateway.base.job_states import ENDS_ORDERED
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.jobs.records import STORED_BYTES_MAX, JobRow
from gateway.ledger.db.jobs.store import JobStore
from gateway.ledger.db.usage.records import Dimension
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.store.store import Store
from gateway.scheduler.model.events import Event, JobRecovered, TasksArrived
from gateway.scheduler.model.paid_time import PaidTime, PaidTimes, free_times
from gateway.scheduler.model.stored_terms import spec_of
from gateway.scheduler.quotas.fair_shares import UNCOUNTED
from policies.access.fairness import spread_ns
from policies.access.shares import FairShare
from policies.parties import Owner

PAGE: Final = 64  # outcomes read at a time
# Half-lives of usage that are read: older usage would count for a millionth.
HALF_LIVES_READ: Final = 20
_WHOSE: Final = (Dimension.USER, Dimension.GROUP, Dimension.PROJECT, Dimension.ORIGIN)


def recovered(store: Store) -> Iterator[Event]:
    """Yield the events that bring a fresh broker to the state of the last one.

    Detached jobs come back whole, except the tasks that have ended. Of those that are ending no
    task is to run.
    """
    for row in store.jobs.unfinished():
        ended = RangeSet(
            (first, first + count) for first, count in store.jobs.outcome_ranges(row.job)
        )
        history = _detached_history(store, row, tuple(ended))
        if row.state in ENDS_ORDERED:
            known = RangeSet(
                (first, first + count) for first, count, _ in store.jobs.bundles(row.job)
            )
            end, reason = ENDS_ORDERED[row.state], row.reason
            yield replace(history, leaving=end, reason=reason, known=tuple(known))
            continue
        yield history
        for first, count, body in store.jobs.bundles(row.job):
            arguments = unpack(body, STORED_BYTES_MAX)
            for low, high in ended.missing(first, first + count):
                calls = arguments[low - first : high - first]
                waits = any(map(has_inputs, calls))
                yield TasksArrived(0, row.job, low, calls, tuple(objects_of(calls)), waits)


def history_of(usage: UsageStore, row: JobRow) -> JobRecovered:
    """Return the charges of a job, and the orders about it."""
    charged = tuple((first, first + count) for first, count in usage.charged_ranges(row.job))
    free_ns, paid_times = _paid_before(usage, row.job)
    spec = spec_of(row)
    return JobRecovered(
        job=row.job,
        spec=None,
        total=row.total,
        ended=(),
        failed=0,
        cancelled=0,
        charged=tuple(RangeSet(charged)),
        costs_nanos=row.costs_nanos,
        wall_ns=row.wall_ns,
        cpu_ns=row.cpu_ns,
        prices_nanos=row.prices_nanos,
        attempt_max=row.attempt_max,
        repeat_ns=row.repeat_ns,
        free_ns=free_ns,
        unpaid_ns=row.unpaid_ns,
        paid_times=paid_times,
        function=spec.function,
        submitted_at_s=row.submitted_at_s,
        hold=spec.hold,
        priority=spec.priority,
        given_priority=spec.given_priority,
    )


def _paid_before(usage: UsageStore, job: str) -> tuple[int, tuple[tuple[int, PaidTime], ...]]:
    """Return the time that wasted runs of a job's tasks paid for: as used since, and what is left.

    The first in nanoseconds, the other as paid time by task.
    """
    runs = usage.runs_since_wasted(job)
    paid_times = PaidTimes()
    for run in runs:
        paid_times.book(run)
    return sum(free_ns for _, free_ns in free_times(runs)), paid_times.left()


def _detached_history(store: Store, row: JobRow, ended: tuple[Range, ...]) -> JobRecovered:
    history = history_of(store.usage, row)
    charged = RangeSet(history.charged)
    for first, stop in ended:
        charged.remove(first, stop)
    failed, cancelled, first_error = _failures_of(store.jobs, row.job)
    return replace(
        history,
        spec=spec_of(row),
        ended=ended,
        failed=failed,
        cancelled=cancelled,
        charged=tuple(charged),
        first_error=first_error,
    )


def _failures_of(jobs: JobStore, job: str) -> tuple[int, int, str]:
    """Return how many of a job's kept outcomes are failures and how many are cancelled, and the
    text of the first failure in one line."""
    failed = cancelled = at = 0
    first_error = ""
    while page := jobs.outcomes(job, at, PAGE):
        for first, count, body in page:
            _, failures, *_ = unpack(body, STORED_BYTES_MAX)
            gone = sum(failure[1] == "cancelled" for failure in failures)
            cancelled += gone
            failed += len(failures) - gone
            texts = (text for _, kind, text, _ in failures if kind != "cancelled")
            first_error = first_error or headline(next(texts, ""))
            at = first + count
    return failed, cancelled, first_error


def used_before(usage: UsageStore, rules: FairShare, utc_s: UtcS) -> dict[Owner, int]:
    """Return the slot time that each party has used here, decayed to now, by the hourly books.

    Usage is taken as spread evenly over its hour.
    """
    read_s = utc_s - HALF_LIVES_READ * rules.half_life_s
    by = (*_WHOSE, Dimension.STATE, Dimension.HOUR)
    found: dict[Owner, int] = {}
    for total in usage.totals(by, UtcS(read_s // HOUR_S * HOUR_S), None, {Dimension.SITE: ""}):
        *names, state, hour = total.key
        if state in UNCOUNTED:
            continue
        user, group, project, origin = map(str, names)
        whose, start_at_s = Owner(user, group, project, origin), UtcS(int(hour) * HOUR_S)
        used_ns = spread_ns(
            total.wall_ns, start_at_s, start_at_s + HOUR_S, utc_s, rules.half_life_s
        )
        found[whose] = found.get(whose, 0) + used_ns
    return found
