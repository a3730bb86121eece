"""Reads outcomes of detached tasks in the books, for calls that wait for them."""

from collections.abc import Iterator
from typing import Final

from federation.messages.wire import unpack
from federation.ranges import Range
from gateway.ledger.db.jobs.records import STORED_BYTES_MAX, JobRow
from gateway.ledger.db.jobs.store import JobStore
from gateway.scheduler.model.effects import ReadOutcomes
from gateway.scheduler.model.events import JobFate, OutcomesRead
from gateway.scheduler.model.stored_terms import spec_of

PAGE: Final = 64  # stored ranges read at a time


def read_outcomes(jobs: JobStore, effect: ReadOutcomes) -> list[OutcomesRead]:
    """Return the outcomes of tasks of a job in the books, an event for each range."""
    row = jobs.get(effect.job)
    if row is None:
        return [OutcomesRead(effect.job, low, high, JobFate.UNKNOWN) for low, high in effect.ranges]
    if not row.detached:
        return [
            OutcomesRead(effect.job, low, high, JobFate.ATTACHED) for low, high in effect.ranges
        ]
    return [_read(jobs, row, wanted) for wanted in effect.ranges]


def not_read(effect: ReadOutcomes, why: str) -> list[OutcomesRead]:
    """Return the answer where the books can't be read."""
    trouble = f"the results of job {effect.job} can't be read: {why}"
    return [
        OutcomesRead(effect.job, low, high, JobFate.DETACHED, trouble=trouble)
        for low, high in effect.ranges
    ]


def _read(jobs: JobStore, row: JobRow, wanted: Range) -> OutcomesRead:
    low, high = wanted
    return OutcomesRead(
        row.job,
        low,
        high,
        JobFate.DETACHED,
        whose=(row.user, row.project),
        wishes=spec_of(row).wishes,
        outcomes=tuple(_outcomes(jobs, row.job, low, high)),
    )


def _outcomes(
    jobs: JobStore, job: str, low: int, high: int
) -> Iterator[tuple[int, list[bytes], list[list[object]]]]:
    """Yield the stored outcomes of tasks [low, high), cut to them."""
    at = low
    while at < high:
        page = jobs.outcomes(job, at, PAGE)
        for first, count, body in page:
            if first >= high:
                return
            values, failures, *_ = unpack(body, STORED_BYTES_MAX)
            start, stop = max(low, first) - first, min(high, first + count) - first
            rows = [[offset - start, *rest] for offset, *rest in failures if start <= offset < stop]
            yield first + start, values[start:stop], rows
            at = first + count
        if len(page) < PAGE:
            return
