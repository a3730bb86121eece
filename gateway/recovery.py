"""What a gateway takes up again after a restart: from the store to the broker's events."""

from collections.abc import Iterator

from federation.ranges import RangeSet
from federation.wire import unpack
from gateway.events import Event, JobRecovered, JobSpec, TasksArrived
from gateway.ledger.store import JobRow, Store
from gateway.terms import STORED_BYTES_MAX, stored_terms


def recovered(store: Store) -> Iterator[Event]:
    """The events that put a fresh broker where the last one was.

    Detached jobs come back whole, less what has ended.
    """
    for row in store.unfinished():
        ended = RangeSet((first, first + count) for first, count in store.outcome_ranges(row.job))
        yield _history(store, row, spec_of(row), tuple(ended))
        for first, count, body in store.bundles(row.job):
            arguments = unpack(body, STORED_BYTES_MAX)
            for low, high in ended.missing(first, first + count):
                yield TasksArrived(0, row.job, low, arguments[low - first : high - first])


def charged_before(store: Store, job: str, user: str) -> JobRecovered | None:
    """What an attached job was charged, when its client comes back with it after a restart.

    The client sends again what it misses, and none of that is charged twice.
    """
    row = store.job(job)
    if row is None or row.detached or row.user != user:
        return None
    return _history(store, row, None, ())


def spec_of(row: JobRow) -> JobSpec:
    """A job's terms as they were stored."""
    terms = stored_terms(row.spec)
    return JobSpec(
        name=row.name, user=row.user, project=row.project, detached=row.detached, **terms
    )


def _history(
    store: Store, row: JobRow, spec: JobSpec | None, ended: tuple[tuple[int, int], ...]
) -> JobRecovered:
    charged = RangeSet((first, first + count) for first, count in store.charged_ranges(row.job))
    for first, stop in ended:
        charged.remove(first, stop)
    return JobRecovered(
        job=row.job,
        spec=spec,
        total=row.total,
        ended=ended,
        failed=0,
        charged=tuple(charged),
        cost_nanos=sum(row.costs_nanos.values()),
        wall_ns=row.wall_ns,
        cpu_ns=row.cpu_ns,
    )
