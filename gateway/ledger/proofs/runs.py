"""Each run of a task is charged once, each result was paid for, and hours are sums of records."""

from collections.abc import Generator

from sqlalchemy import Connection, String, except_, func, literal_column, select, union_all

from federation.errors import ProtocolError
from federation.ranges import RangeSet
from federation.wire import unpack
from gateway.jobs import REPEAT_MIN_NS, REPEATS_MAX
from gateway.ledger.exact import carried, exact_sums, joined
from gateway.ledger.proofs.keys import rows_of
from gateway.ledger.records import NO_RECORD
from gateway.ledger.tables import (
    SUMMED,
    SUMMED_BY,
    outcomes,
    postings,
    usage,
    usage_hours,
    usage_ranges,
)
from gateway.terms import STORED_BYTES_MAX


def charged_twice(connection: Connection) -> Generator[str]:
    """Charges of the same tasks: in one attempt, or in a later one although they were done.

    Where some tasks of a run failed, these are charged again when they are tried again, and the
    run is "ok" all the same; so it is found when all of its tasks are charged again. And what was
    charged may be charged again when it ran longer for nothing than Job.may_repeat_free allows.
    Of what is rolled up only the first is known: attempts have no wall time of their own any more.
    """
    repeats = _repeats(connection)
    names = ("job", "attempt", "first", "tasks", "state", "wall_ns", "cost_nanos")
    written = select(*(usage.c[name] for name in names)).where(
        usage.c.state.not_in(("repeat", "lost", "wasted")), usage.c.records == 1
    )
    kept = select(
        *(usage_ranges.c[name] for name in names[:4]),
        literal_column("''", String),
        literal_column("0"),
        literal_column("1"),
    ).where(usage_ranges.c.is_charge)
    both = union_all(written, kept).subquery()
    query = select(both).order_by(both.c.job, both.c.attempt.desc(), both.c.first)
    at: tuple[str, int] | None = None
    stop = later_ns = now_ns = 0
    later, now = RangeSet(), RangeSet()  # what is charged in later attempts, and in this one
    for job, attempt, first, tasks, state, wall_ns, cost_nanos in rows_of(connection, query):
        if (job, attempt) != at:
            if at is None or at[0] != job:
                later, later_ns = RangeSet(), 0
                repeat_ns, repeated = repeats.get(job, (0, frozenset()))
            else:
                later_ns += now_ns
                for low, high in now:
                    later.add(low, high)
            at, stop, now, now_ns = (job, attempt), 0, RangeSet(), 0
        if state:
            now_ns += wall_ns
        if not cost_nanos or not tasks:
            continue
        if first < stop:
            yield f"tasks of job {job} from {first} on were charged before, in attempt {attempt}"
        stop = max(stop, first + tasks)
        if state:
            now.add(first, first + tasks)
        if (
            state == "ok"
            and later
            and attempt not in repeated
            and not later.missing(first, first + tasks)
            and repeat_ns + later_ns <= REPEATS_MAX * wall_ns + REPEAT_MIN_NS
        ):
            yield f"tasks of job {job} from {first} on, of attempt {attempt}, are charged again"


def delivered_twice(connection: Connection) -> Generator[str]:
    """Deliveries, under one contract and epoch, of tasks that were delivered under it before.

    A task comes back once from where it went; who tries it again sends it under another epoch. What
    we sold is not known task by task once it is rolled up; what we paid for never is.
    """
    names = ("side", "contract", "epoch", "first", "tasks")
    query = (
        select(*(postings.c[name] for name in names))
        .where(postings.c.state != "void", postings.c.records == 1)
        .order_by(*(postings.c[name] for name in names[:4]))
    )
    at, stop = ("", "", 0), 0
    for side, contract, epoch, first, tasks in rows_of(connection, query):
        if (side, contract, epoch) != at:
            at, stop = (side, contract, epoch), 0
        if first < stop:
            yield f"{side}/{contract}/{epoch}/{first} is of tasks that were delivered before"
        stop = max(stop, first + tasks)


def _repeats(connection: Connection) -> dict[str, tuple[int, frozenset[int]]]:
    """Of each job that ran again for nothing: for how long, and in which attempts."""
    found: dict[str, tuple[int, frozenset[int]]] = {}
    query = (
        select(usage.c.job, usage.c.attempt, *exact_sums(usage.c.wall_ns))
        .where(usage.c.state == "repeat")
        .group_by(usage.c.job, usage.c.attempt)
    )
    for job, attempt, *halves in rows_of(connection, query):
        [wall_ns] = joined(halves)
        before_ns, attempts = found.get(job, (0, frozenset()))
        found[job] = before_ns + wall_ns, attempts | {attempt}
    return found


def unused(connection: Connection) -> Generator[str]:
    """Results of detached jobs that nobody charged, repeated or failed.

    What never ran has a failure for an outcome, and no usage. The other way round nothing has to
    hold: results are dropped when their job is forgotten, and attached jobs have none here.
    """
    names = ("job", "first", "tasks")
    theirs = select(outcomes.c.job)
    ranges = union_all(
        *(
            select(
                *(table.c[name] for name in names), literal_column("0").label("is_outcome")
            ).where(table.c.job.in_(theirs), *conditions)
            for table, conditions in ((usage, [usage.c.records == 1]), (usage_ranges, []))
        ),
        select(outcomes.c.job, outcomes.c.first, outcomes.c.count, literal_column("1")),
    ).subquery()
    query = select(ranges).order_by(ranges.c.job, ranges.c.is_outcome, ranges.c.first)
    at, used = "", RangeSet()
    for job, first, tasks, is_outcome in rows_of(connection, query):
        if job != at:
            at, used = job, RangeSet()
        if not is_outcome:
            used.add(first, first + tasks)
            continue
        missing = used.missing(first, first + tasks)
        if not missing:
            continue
        try:
            failed = _failed(connection, job, first)
        except (ProtocolError, *NO_RECORD) as error:
            yield f"results of job {job} from {first} on can't be read: {error}"
            continue
        for low, high in missing:
            for start, _ in failed.missing(low, high):
                yield f"results of job {job} from {start} on are there, and no usage of them"


def _failed(connection: Connection, job: str, first: int) -> RangeSet:
    """The tasks whose kept results are failures."""
    query = select(outcomes.c.body).where(outcomes.c.job == job, outcomes.c.first == first)
    _, failures, *_ = unpack(connection.execute(query).scalar_one(), STORED_BYTES_MAX)
    return RangeSet((first + int(at), first + int(at) + 1) for at, *_ in failures)


def misadded(connection: Connection) -> Generator[str]:
    """Hours whose sums are not those of the records, in any dimension or amount."""
    keys = [[table.c[name] for name in SUMMED_BY] for table in (usage, usage_hours)]
    sums = exact_sums(*(usage.c[name] for name in SUMMED))
    counted = select(*keys[0], func.sum(usage.c.records), *carried(sums)).group_by(*keys[0])
    halves = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
    kept = select(*keys[1], usage_hours.c.records, *carried(halves))
    for query in (except_(counted, kept), except_(kept, counted)):
        for hour, *key in rows_of(connection, query):
            yield f"the sums of hour {hour} for {'/'.join(map(str, key[:7]))} are not its records'"
