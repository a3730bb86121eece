"""Jobs: their rows, functions, arguments and results."""

from collections.abc import Iterator
from typing import Final, Protocol

from sqlalchemy import ColumnElement, and_, func, or_, select

from federation.clocks import UtcS
from gateway.base.job_states import MADE_STATES
from gateway.ledger.db.database import OpenReader, ranges
from gateway.ledger.db.jobs.queries import with_usage
from gateway.ledger.db.jobs.records import ALL_JOBS, JobRow, JobsWanted, KeptRange
from gateway.ledger.db.jobs.tables import bundles, functions, jobs, outcomes

# Bundles per page of `bundles`: a reader holds no transaction open while its caller works.
_PAGE: Final = 16
_ID_CHARS: Final = 26


class JobStore(Protocol):
    """Jobs, with the functions, arguments and results of detached ones."""

    def latest(
        self,
        limit: int,
        user: str | None = None,
        project: str | None = None,
        wanted: JobsWanted = ALL_JOBS,
    ) -> list[JobRow]:
        """Return the jobs submitted last, latest first; of equal moments the least id."""

    def get(self, job: str) -> JobRow | None:
        """Return one job, or None if it never existed."""

    def unfinished(self) -> list[JobRow]:
        """Return the detached jobs that have not ended, in the order of submission."""

    def forgettable(self, start_at_s: UtcS, end_at_s: UtcS, limit: int) -> list[str]:
        """Return detached jobs that ended in [start, end) and are not forgotten, in order."""

    def function(self, digest: bytes) -> bytes | None:
        """Return a stored function."""

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """Yield the stored arguments of a job in task order."""

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """Return up to `limit` stored ranges of results, from the one that holds task `start` on.

        In task order; tasks without a result yet are left out. The next page starts at the last
        first + count of this one.
        """

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """Return (first, count) of every stored range of results in task order."""


class SqlJobs:
    """The JobStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def latest(
        self,
        limit: int,
        user: str | None = None,
        project: str | None = None,
        wanted: JobsWanted = ALL_JOBS,
    ) -> list[JobRow]:
        """See JobStore."""
        chosen = _conditions(wanted)
        if user is not None:
            chosen.append(jobs.c.user == user)
        if project is not None:
            chosen.append(jobs.c.project == project)
        # Jobs of equal time are ordered by id, so that the list is the same each time.
        newest = select(jobs).where(*chosen).order_by(jobs.c.submitted_at_s.desc(), jobs.c.job)
        with self._reading() as connection:
            return with_usage(connection, connection.execute(newest.limit(limit)).all())

    def get(self, job: str) -> JobRow | None:
        """See JobStore."""
        with self._reading() as connection:
            found = connection.execute(select(jobs).where(jobs.c.job == job)).all()
            return next(iter(with_usage(connection, found)), None)

    def unfinished(self) -> list[JobRow]:
        """See JobStore."""
        query = select(jobs).where(jobs.c.ended_at_s.is_(None), jobs.c.detached)
        with self._reading() as connection:
            found = connection.execute(query.order_by(jobs.c.submitted_at_s, jobs.c.job)).all()
            return with_usage(connection, found)

    def forgettable(self, start_at_s: UtcS, end_at_s: UtcS, limit: int) -> list[str]:
        """See JobStore."""
        at = jobs.c.ended_at_s
        query = select(jobs.c.job).where(
            at >= start_at_s, at < end_at_s, jobs.c.detached, ~jobs.c.forgotten
        )
        with self._reading() as connection:
            return list(connection.scalars(query.order_by(at, jobs.c.job).limit(limit)))

    def function(self, digest: bytes) -> bytes | None:
        """See JobStore."""
        query = select(functions.c.body).where(functions.c.digest == digest)
        with self._reading() as connection:
            return connection.execute(query).scalar()

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """See JobStore."""
        kept = bundles.c
        after = -1
        while True:
            query = select(kept.first, kept.count, kept.body).where(
                kept.job == job, kept.first > after
            )
            with self._reading() as connection:
                page = ranges(connection, query.order_by(kept.first).limit(_PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """See JobStore."""
        kept = outcomes.c
        holder = select(func.max(kept.first)).where(kept.job == job, kept.first <= start)
        query = (
            select(kept.first, kept.count, kept.body)
            .where(kept.job == job, kept.first + kept.count > start)
            # A second, redundant condition: only this one can use the index.
            .where(kept.first >= func.coalesce(holder.scalar_subquery(), start))
        )
        with self._reading() as connection:
            return ranges(connection, query.order_by(kept.first).limit(limit))

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """See JobStore."""
        query = select(outcomes.c.first, outcomes.c.count).where(outcomes.c.job == job)
        with self._reading() as connection:
            return ranges(connection, query.order_by(outcomes.c.first))


def _conditions(wanted: JobsWanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.name:
        found.append(jobs.c.name == wanted.name)
    if wanted.prefix:
        # As a range, which can use the index; texts are ordered by their bytes (schema.TEXT).
        found += [jobs.c.job >= wanted.prefix, jobs.c.job <= wanted.prefix + "z" * _ID_CHARS]
    if wanted.state:
        found.append(_in_state(wanted.state))
    if wanted.after is not None:
        at_s, job = wanted.after
        submitted = jobs.c.submitted_at_s
        found.append(or_(submitted < at_s, and_(submitted == at_s, jobs.c.job > job)))
    return found


def _in_state(state: str) -> ColumnElement[bool]:
    """Return the condition for a state, as job_states.ended_state makes it."""
    has_done, has_failed = jobs.c.done > 0, jobs.c.failed > 0
    is_cancelled = and_(~has_failed, ~has_done, jobs.c.cancelled > 0)
    made = {
        "done": and_(~has_failed, ~is_cancelled),
        "failed": has_failed,  # all that failed, also in part: a search for failures wants both
        "partly failed": and_(has_failed, has_done),
        "cancelled": is_cancelled,
    }
    as_stored = jobs.c.state == state
    if state not in MADE_STATES:
        return as_stored
    of_done = and_(jobs.c.state == "done", made[state])
    return of_done if state == "done" else or_(as_stored, of_done)
