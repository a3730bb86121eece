"""Jobs: their rows, functions, arguments and results."""

from collections.abc import Callable, Iterator
from itertools import islice

from federation.clocks import UtcS
from gateway.base.job_states import ended_state
from gateway.ledger.db.jobs.records import ALL_JOBS, JobRow, JobsWanted, KeptRange
from gateway.ledger.db.usage.records import is_for_its_user
from simulations.world.memory.tables import Kept, KeptJob, Tables


class MemoryJobs:
    """The JobStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def latest(
        self,
        limit: int,
        user: str | None = None,
        project: str | None = None,
        wanted: JobsWanted = ALL_JOBS,
    ) -> list[JobRow]:
        """See JobStore."""
        rows = [
            row
            for row in self._tables().jobs.values()
            if user in (None, row.opened.user) and project in (None, row.opened.project)
        ]
        rows.sort(key=lambda row: (-row.opened.submitted_at_s, row.opened.job))
        found = (self._row(row) for row in rows)
        return list(islice((row for row in found if _is_wanted(row, wanted)), limit))

    def get(self, job: str) -> JobRow | None:
        """See JobStore."""
        row = self._tables().jobs.get(job)
        return self._row(row) if row is not None else None

    def unfinished(self) -> list[JobRow]:
        """See JobStore."""
        rows = [
            row
            for row in self._tables().jobs.values()
            if row.opened.detached and row.ended_at_s is None
        ]
        rows.sort(key=lambda row: (row.opened.submitted_at_s, row.opened.job))
        return [self._row(row) for row in rows]

    def forgettable(self, start_at_s: UtcS, end_at_s: UtcS, limit: int) -> list[str]:
        """See JobStore."""
        found = [
            (row.ended_at_s, row.opened.job)
            for row in self._tables().jobs.values()
            if row.opened.detached and not row.forgotten and row.ended_at_s is not None
        ]
        return [job for at_s, job in sorted(found) if start_at_s <= at_s < end_at_s][:limit]

    def function(self, digest: bytes) -> bytes | None:
        """See JobStore."""
        return self._tables().functions.get(digest)

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """See JobStore."""
        yield from _ranges(self._tables().bundles, job)

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """See JobStore."""
        kept = (each for each in _ranges(self._tables().outcomes, job) if each[0] + each[1] > start)
        return list(islice(kept, limit))

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """See JobStore."""
        return [(first, count) for first, count, _ in _ranges(self._tables().outcomes, job)]

    def _row(self, row: KeptJob) -> JobRow:
        opened, usage = row.opened, self._tables().usage_of(row.opened.job)
        costs_nanos: dict[str, int] = {}
        prices_nanos: dict[str, int] = {}
        for each in sorted(usage, key=lambda each: each.currency):
            costs_nanos[each.currency] = costs_nanos.get(each.currency, 0) + each.cost_nanos
            highest = prices_nanos.get(each.currency, 0)
            prices_nanos[each.currency] = max(highest, each.price_nanos)
        done, failed, cancelled = row.counts
        return JobRow(
            job=opened.job,
            name=opened.name,
            user=opened.user,
            project=opened.project,
            detached=opened.detached,
            spec=opened.spec,
            submitted_at_s=opened.submitted_at_s,
            total=row.total,
            state=row.state,
            reason=row.reason,
            ended_at_s=row.ended_at_s,
            done=done,
            failed=failed,
            cancelled=cancelled,
            forgotten=row.forgotten,
            wall_ns=sum(each.wall_ns for each in usage if each.state != "lost"),
            cpu_ns=sum(each.cpu_ns for each in usage if each.state != "lost"),
            costs_nanos=costs_nanos,
            prices_nanos=prices_nanos,
            attempt_max=max((each.attempt for each in usage), default=0),
            repeat_ns=sum(each.wall_ns for each in usage if each.state == "repeat"),
            unpaid_ns=sum(
                each.wall_ns
                for each in usage
                if each.state not in ("repeat", "lost")
                and not is_for_its_user(each.state, each.price_class)
            ),
        )


def _ranges(kept: Kept, job: str) -> list[KeptRange]:
    return sorted((first, *value) for first, value in kept.get(job, {}).items())


def _is_wanted(row: JobRow, wanted: JobsWanted) -> bool:
    state = ended_state(row.state, row.done, row.failed, row.cancelled)
    at_s, job = wanted.after or (row.submitted_at_s, "")
    return (
        wanted.name in ("", row.name)
        and row.job.startswith(wanted.prefix)
        and (wanted.state in ("", state) or (wanted.state, state) == ("failed", "partly failed"))
        and (-at_s, job) < (-row.submitted_at_s, row.job)
    )
