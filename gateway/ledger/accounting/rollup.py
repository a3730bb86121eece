"""Rolling up old records: many rows become one, and every sum stays as it was.

    1. a checkpoint is made of old transfers, and they are dropped (checkpoints.py);
    2. alike usage records of one job become one row, once their transfers are dropped;
       `usage_ranges` keeps the ranges of their tasks;
    3. settled postings of an ended contract are merged alike (merging.py defines which are alike);
    4. SQLite releases the free space; PostgreSQL has its autovacuum.

The work is done in pieces, each planned beside the writer and stored in one transaction of its own:
a plan stays true, because only this module changes records and transfers. A process that is killed
between two pieces continues from there; a piece cut short is rolled back.

Unchanged remain: records of an open job, sums that exceed a database's integers, and attempts in
which a task was charged twice, which an audit has to find.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    exists,
    func,
    insert,
    literal,
    select,
    text,
    tuple_,
    update,
)

from federation.clocks import UtcS
from gateway.ledger.accounting.checkpoints import dropping, is_live, next_checkpoint
from gateway.ledger.accounting.journal import past_of
from gateway.ledger.accounting.merging import (
    Merging,
    keep_ranges,
    merge,
    postings_before,
    ranges_near,
    usage_before,
    without_doubles,
)
from gateway.ledger.db.contracts.tables import contracts
from gateway.ledger.db.jobs.tables import jobs
from gateway.ledger.db.tables import roll_ups, transfers
from gateway.ledger.db.usage.tables import usage

PIECE_ROWS: Final = 2_000  # dropped or merged by one transaction
_PAGE: Final = 500  # jobs or contracts that are read together
_SLICE_S: Final = 3_600.0
_PAGES_AT_ONCE: Final = 256  # of 4 KiB
_PAGES_SPARE: Final = 2_048


@dataclass(frozen=True, slots=True)
class RollupPiece:
    """The work of one transaction: statements, their subject, and the number of rows removed."""

    statements: tuple[Any, ...]
    what: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class RollupProgress:
    """The progress of the roll-up, in seconds since 1970.

    Attributes:
        before_s: records that ended later are unchanged.
        jobs_to_s: our jobs that ended before it are rolled up; `others_to_s`, other sites' jobs
            that ended before it; `contracts_to_s`, contracts.
    """

    before_s: UtcS = UtcS(0.0)
    jobs_to_s: UtcS = UtcS(0.0)
    others_to_s: UtcS = UtcS(0.0)
    contracts_to_s: UtcS = UtcS(0.0)


Pieces = Generator[RollupPiece, None, bool]  # returns whether some work must wait


def progress(connection: Connection) -> RollupProgress:
    """Return the progress in this database."""
    names = RollupProgress.__dataclass_fields__
    row = connection.execute(select(*(roll_ups.c[name] for name in names))).first()
    return RollupProgress(*row) if row is not None else RollupProgress()


def pieces(readers: Engine, utc_s: UtcS, keep_s: float) -> Iterator[RollupPiece]:
    """Yield the pieces that roll up the records older than `keep_s`, one transaction each.

    Each has to be committed before the next is asked for.
    """
    before_s = utc_s - keep_s
    with readers.begin() as connection:
        begun = progress(connection)
        is_first = connection.execute(select(roll_ups.c.id)).first() is None
    if is_first:
        fields = {"id": 1, "jobs_to_s": 0.0, "others_to_s": 0.0, "contracts_to_s": 0.0}
        yield RollupPiece((insert(roll_ups).values(before_s=before_s, **fields),), "progress")
    elif begun.before_s < before_s:
        yield _advanced("before_s", before_s)
    yield from _transfers(readers, utc_s, keep_s)
    old_usage = usage_before(before_s)
    ends = (jobs.c.ended_at_s, jobs.c.job)
    yield from _ended(readers, ends, "jobs_to_s", (begun.jobs_to_s, before_s), [old_usage])
    yield from _others(readers, (begun.others_to_s, before_s), old_usage)
    sides = [postings_before(before_s, side) for side in ("buy", "sell")]
    ends = (contracts.c.ended_at_s, contracts.c.contract)
    yield from _ended(readers, ends, "contracts_to_s", (begun.contracts_to_s, before_s), sides)
    if readers.dialect.name == "sqlite":
        yield from _space(readers)


def _space(readers: Engine) -> Iterator[RollupPiece]:
    """Release free pages to the file system, except some that will be used again soon.

    A file from before the roll-up existed can't release them: `gridfed db roll-up` converts it.
    """
    while True:
        with readers.begin() as connection:
            is_incremental = connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() == 2
            free = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
        if not is_incremental or free < _PAGES_SPARE + _PAGES_AT_ONCE:
            return
        yield RollupPiece((text(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})"),), "space")


def _advanced(name: str, to_s: UtcS) -> RollupPiece:
    return RollupPiece((update(roll_ups).values({name: to_s}),), "progress")


def _transfers(readers: Engine, utc_s: UtcS, keep_s: float) -> Iterator[RollupPiece]:
    """Yield all possible checkpoints, and the deletion of the transfers that they stand for."""
    made: Sequence[Any] = [None]
    while made:
        with readers.begin() as connection:
            made = next_checkpoint(connection, utc_s, keep_s)
            number = past_of(connection).number
        if made:
            yield RollupPiece(tuple(made), "checkpoint")
    old = select(transfers.c.number).where(transfers.c.number <= number, ~is_live(number))
    rows = PIECE_ROWS
    while rows == PIECE_ROWS:
        with readers.begin() as connection:
            some = old.limit(PIECE_ROWS).subquery()
            rows = connection.execute(select(func.count()).select_from(some)).scalar_one()
        if rows:
            yield RollupPiece((dropping(number, PIECE_ROWS),), "transfers", rows)


def _ended(
    readers: Engine,
    columns: tuple[ColumnElement[Any], ColumnElement[str]],
    progress_name: str,
    period_s: tuple[UtcS, UtcS],
    mergings: Sequence[Merging],
) -> Iterator[RollupPiece]:
    """Merge ended jobs or contracts, by time of end; the progress stops at those that must wait."""
    at, name = columns
    after: tuple[Any, ...] = (period_s[0], "")
    is_behind = False
    while True:
        query = (
            select(at, name)
            .where(at >= after[0], at < period_s[1])
            .where(tuple_(at, name) > tuple_(*map(literal, after)))
            .order_by(at, name)
            .limit(_PAGE)
        )
        with readers.begin() as connection:
            page = connection.execute(query).all()
        if not page:
            return
        for merging in mergings:
            names = list(dict.fromkeys(row[1] for row in page))
            is_behind |= yield from _merged(readers, merging, names)
        after = tuple(page[-1])
        if not is_behind:
            yield _advanced(progress_name, after[0])


def _others(
    readers: Engine, period_s: tuple[UtcS, UtcS], merging: Merging
) -> Iterator[RollupPiece]:
    """Merge the usage of other sites' jobs, of which only the usage is known."""
    at, (from_s, before_s) = usage.c.ended_at_s, period_s
    is_ours = exists().where(jobs.c.job == usage.c.job)
    is_behind = False
    while True:
        with readers.begin() as connection:
            first = select(func.min(at)).where(at >= from_s, at < before_s)
            begin_s = connection.execute(first).scalar()
            if begin_s is None:
                return
            from_s = min(begin_s + _SLICE_S, before_s)
            found = select(usage.c.job).where(at >= begin_s, at < from_s, ~is_ours).distinct()
            names = sorted(connection.execute(found).scalars())
        for begin in range(0, len(names), _PAGE):
            page = names[begin : begin + _PAGE]
            with readers.begin() as connection:
                last = select(usage.c.job).where(usage.c.job.in_(page)).group_by(usage.c.job)
                over = connection.execute(last.having(func.max(at) < before_s)).scalars().all()
            is_behind |= yield from _merged(readers, merging, over)
        if not is_behind:
            yield _advanced("others_to_s", from_s)


def _merged(readers: Engine, merging: Merging, names: Sequence[str]) -> Pieces:
    """Merge the rows of these jobs or contracts: small ones together, a large one in parts."""
    name = merging.name
    count = func.count()
    query = select(name, count).where(name.in_(names), *merging.of).group_by(name)
    with readers.begin() as connection:
        found = connection.execute(query.having(count > 1)).all()
    is_behind = False
    batch: list[str] = []
    rows = 0
    for one, its_rows in sorted((row[0], row[1]) for row in found):
        if its_rows > PIECE_ROWS:
            is_behind |= yield from _merged_in_parts(readers, merging, one)
            continue
        if rows + its_rows > PIECE_ROWS:
            _, behind = yield from _merged_at_once(readers, merging, batch, 0, None)
            is_behind |= behind
            batch, rows = [], 0
        batch.append(one)
        rows += its_rows
    if batch:
        _, behind = yield from _merged_at_once(readers, merging, batch, 0, None)
        is_behind |= behind
    return is_behind


def _merged_in_parts(readers: Engine, merging: Merging, name: str) -> Pieces:
    """Merge part by part in the order of tasks, repeatedly until no more rows can merge."""
    first = merging.table.c.first
    while True:
        low, parts, merged = 0, 0, 0
        high: int | None = 0
        is_behind = False
        while high is not None:
            query = select(first).where(merging.name == name, *merging.of, first >= low)
            with readers.begin() as connection:
                stop = query.order_by(first).offset(PIECE_ROWS).limit(1)
                high = connection.execute(stop).scalar()
            if high is not None:
                high = max(high, low + 1)  # rows that begin with the same task are one part
            rows, behind = yield from _merged_at_once(readers, merging, [name], low, high)
            is_behind |= behind
            low, parts, merged = high or 0, parts + 1, merged + rows
        if not merged or parts == 1:
            return is_behind


def _merged_at_once(
    readers: Engine, merging: Merging, names: Sequence[str], low: int, high: int | None
) -> Generator[RollupPiece, None, tuple[int, bool]]:
    """Yield one piece, or none; return the rows removed, and whether some must wait."""
    table = merging.table
    chosen = [merging.name.in_(names), *merging.of, table.c.first >= low]
    if high is not None:
        chosen.append(table.c.first < high)
    with readers.begin() as connection:
        groups, is_behind = merging.find(connection, chosen)
        kept = ranges_near(connection, names, low, high) if table is usage else {}
    more: Iterator[Any] = iter(())
    if table is usage:
        groups = without_doubles(groups, kept)
        more = keep_ranges(groups, kept)
    rows = sum(len(each.members) - 1 for each in groups)
    if rows:
        yield RollupPiece((*merge(table, groups), *more), table.name, rows)
    return rows, is_behind
