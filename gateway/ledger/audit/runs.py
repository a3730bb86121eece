"""Each run of a task is charged once, each result was paid for, and hours are sums of records."""

from collections.abc import Generator

from sqlalchemy import Connection, String, except_, func, literal_column, select, union_all

from federation.errors import ProtocolError
from federation.messages.wire import unpack
from federation.ranges import RangeSet
from gateway.ledger.audit.finding import AuditFinding
from gateway.ledger.audit.keys import rows_of
from gateway.ledger.db.checks import NO_RECORD
from gateway.ledger.db.contracts.tables import postings
from gateway.ledger.db.exact import carried, exact_sums, joined
from gateway.ledger.db.jobs.records import STORED_BYTES_MAX
from gateway.ledger.db.jobs.tables import outcomes
from gateway.ledger.db.usage.records import REPEAT_MIN_NS, REPEATS_MAX
from gateway.ledger.db.usage.tables import SUMMED, SUMMED_BY, usage, usage_hours, usage_ranges


def charged_twice(connection: Connection) -> Generator[AuditFinding]:
    """Yield tasks that were charged twice: in one attempt, or in a later one although done.

    Where some tasks of a run failed, these are charged again when they are retried, and the run is
    "ok" all the same; a run is therefore reported when all of its tasks are charged again. Charged
    tasks may be charged again when their repeats ran longer than Job.may_repeat_free allows.
    Rolled-up usage is only checked within an attempt: its attempts have no wall time of their own
    any more.
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
    later, now = RangeSet(), RangeSet()  # charged in later attempts, and in this one
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
            text = (
                f"tasks of job {job} from {first} on are charged twice, first in attempt {attempt}"
            )
            yield AuditFinding(text, job)
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
            text = f"tasks of job {job} from {first} on are charged twice in attempt {attempt}"
            yield AuditFinding(text, job)


def delivered_twice(connection: Connection) -> Generator[AuditFinding]:
    """Yield deliveries of tasks that were delivered before, under the same contract and epoch.

    A task is delivered once for each time that it was sent; a retry is sent under another epoch.
    Rolled-up sales are not known task by task; purchases always are.
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
            text = f"{side}/{contract}/{epoch}/{first} has tasks that were delivered before"
            yield AuditFinding(text, side=side, contract=contract)
        stop = max(stop, first + tasks)


def _repeats(connection: Connection) -> dict[str, tuple[int, frozenset[int]]]:
    """Return the time and the attempts of the repeats of each job."""
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
    """Yield results of detached jobs whose tasks were not charged, repeated or failed.

    Tasks that never ran have a failure for an outcome, and no usage. The converse need not hold:
    results are dropped when their job is forgotten, and attached jobs have none here.
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
                yield f"results of job {job} from {start} on have no usage record"


def _failed(connection: Connection, job: str, first: int) -> RangeSet:
    """Return the tasks whose stored results are failures."""
    query = select(outcomes.c.body).where(outcomes.c.job == job, outcomes.c.first == first)
    _, failures, *_ = unpack(connection.execute(query).scalar_one(), STORED_BYTES_MAX)
    return RangeSet((first + int(at), first + int(at) + 1) for at, *_ in failures)


def misadded(connection: Connection) -> Generator[str]:
    """Yield hours whose sums differ from those of the records, in any dimension or amount."""
    keys = [[table.c[name] for name in SUMMED_BY] for table in (usage, usage_hours)]
    sums = exact_sums(*(usage.c[name] for name in SUMMED))
    counted = select(*keys[0], func.sum(usage.c.records), *carried(sums)).group_by(*keys[0])
    halves = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
    kept = select(*keys[1], usage_hours.c.records, *carried(halves))
    for query in (except_(counted, kept), except_(kept, counted)):
        for hour, *key in rows_of(connection, query):
            yield (
                f"the sums of hour {hour} for {'/'.join(map(str, key[:7]))} differ from their "
                "records"
            )
