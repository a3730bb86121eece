"""Chooses the rows to merge, and makes the statements that merge them; nothing is written here.

Rows of `usage` are alike when they agree in every field that a report may ask for, and in the hour;
rows of `postings` when they are of one contract, epoch, verdict and day. Alike rows become one row
with their exact sums. `records` counts the rows that were merged; `first` is the smallest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    String,
    Subquery,
    Table,
    and_,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from federation.clocks import UtcS
from federation.ranges import RangeSet
from gateway.ledger.accounting.checkpoints import is_live
from gateway.ledger.accounting.journal import past_of
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.contracts.tables import OF_CONTRACT, contracts, move_receipts, postings
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.settlement.tables import disputes, statements
from gateway.ledger.db.tables import transfers
from gateway.ledger.db.usage.tables import IS_CHARGE, SUMMED, usage, usage_ranges

_INSERTED_AT_ONCE: Final = 16
_NAMED_AT_ONCE: Final = 400

USE_KEY: Final = (
    literal_column("'use/'", String)
    + usage.c.job
    + literal_column("'/'", String)
    + cast(usage.c.first, String)
    + literal_column("'/'", String)
    + cast(usage.c.attempt, String)
)
DELIVERY_KEY: Final = (
    postings.c.side
    + literal_column("'/'", String)
    + postings.c.contract
    + literal_column("'/'", String)
    + cast(postings.c.epoch, String)
    + literal_column("'/'", String)
    + cast(postings.c.first, String)
)
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Rows to merge into one.

    Attributes:
        row: the merged row.
        members: (first, tasks, records) of each of the rows.
        is_charge: whether the rows charge for their tasks.
    """

    row: dict[str, Any]
    members: tuple[tuple[int, int, int], ...]
    is_charge: bool = False


Found = tuple[list[MergeGroup], bool]  # the second: some can't merge yet, as their transfers remain
Attempt = tuple[str, int, bool]  # a job, an attempt, and whether it is charged
Ranges = dict[Attempt, list[tuple[int, int]]]  # first, tasks


@dataclass(frozen=True, slots=True)
class Merging:
    """How rows of a table are merged.

    Attributes:
        name: the column by which they are chosen: the id of a job or a contract.
        of: the conditions on all rows.
        find: (connection, conditions) → the groups among the rows that meet the conditions.
    """

    table: Table
    name: ColumnElement[str]
    of: tuple[ColumnElement[bool], ...]
    find: Callable[[Connection, Sequence[ColumnElement[bool]]], Found]


# --- usage ----------------------------------------------------------------------------------------

_NOT_SAME: Final = (
    *("first", "started_at_s", "ended_at_s", "records", "peak_memory_bytes", *SUMMED),
)
_SAME: Final = tuple(each.name for each in usage.columns if each.name not in _NOT_SAME)


def usage_before(before_s: UtcS) -> Merging:
    """Return the merging of usage that ended before a moment."""
    return Merging(usage, usage.c.job, (usage.c.ended_at_s < before_s,), _usage_groups)


def _usage_groups(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> Found:
    number = past_of(connection).number
    is_booked = exists().where(transfers.c.key == USE_KEY, transfers.c.number > number)
    # Of bytes, held or moved, the worker is the object: the rows of all objects are one in the end.
    worker = case((usage.c.kind != literal_column("'time'", String), ""), else_=usage.c.worker)
    inner = (
        select(
            *(each for each in usage.columns if each.name != "worker"),
            worker.label("worker"),
            and_(usage.c.cost_nanos > 0, is_booked).label("is_booked"),
            IS_CHARGE.label("is_charge"),
        )
        .where(*conditions)
        .subquery()
    )
    same = [inner.c[name] for name in _SAME]
    query = (
        select(
            inner.c.is_booked,
            _members(inner),
            *same,
            inner.c.is_charge,
            func.min(inner.c.started_at_s).label("started_at_s"),
            func.max(inner.c.ended_at_s).label("ended_at_s"),
            func.max(inner.c.peak_memory_bytes).label("peak_memory_bytes"),
            *exact_sums(*(inner.c[name] for name in SUMMED)),
        )
        .group_by(*same, inner.c.is_booked, inner.c.is_charge)
        .having(func.count() > literal_column("1"))
    )
    kept = (*_SAME, "started_at_s", "ended_at_s", "peak_memory_bytes")
    return _groups(connection.execute(query).all(), kept, SUMMED)


def ranges_near(connection: Connection, jobs: Sequence[str], low: int, high: int | None) -> Ranges:
    """Return the stored task ranges of these jobs that overlap or touch [low, high)."""
    near = [usage_ranges.c.job.in_(jobs), usage_ranges.c.first + usage_ranges.c.tasks >= low]
    if high is not None:
        near.append(usage_ranges.c.first <= high)
    found: Ranges = {}
    for job, attempt, is_charge, first, tasks in connection.execute(
        select(usage_ranges).where(*near).order_by(*usage_ranges.primary_key.columns)
    ).all():
        found.setdefault((job, attempt, bool(is_charge)), []).append((first, tasks))
    return found


def without_doubles(groups: Sequence[MergeGroup], kept: Ranges) -> list[MergeGroup]:
    """Drop the groups of attempts in which a task was charged twice: an audit must find those."""
    charged: Ranges = {}
    for each in groups:
        charged.setdefault(_attempt(each), []).extend(_ranges(each))
    doubled = {
        key for key, ranges in charged.items() if key[2] and _overlap([*ranges, *kept.get(key, ())])
    }
    return [each for each in groups if _attempt(each) not in doubled]


def keep_ranges(groups: Sequence[MergeGroup], kept: Ranges) -> Iterator[Any]:
    """Yield statements that add the tasks of these groups to the stored ranges."""
    new: Ranges = {}
    for each in groups:
        new.setdefault(_attempt(each), []).extend(_ranges(each))
    rows = []
    for key, ranges in new.items():
        before = set(kept.get(key, ()))
        whole = RangeSet((first, first + tasks) for first, tasks in (*before, *ranges))
        after = {(first, stop - first) for first, stop in whole}
        named = dict(zip(("job", "attempt", "is_charge"), key, strict=True))
        gone = sorted(first for first, _ in before - after)
        yield from _delete(usage_ranges, named, gone)
        rows += [
            {**named, "first": first, "tasks": tasks} for first, tasks in sorted(after - before)
        ]
    for at in range(0, len(rows), _NAMED_AT_ONCE):
        yield insert(usage_ranges).values(rows[at : at + _NAMED_AT_ONCE])


def _attempt(group: MergeGroup) -> Attempt:
    return group.row["job"], group.row["attempt"], group.is_charge


def _ranges(group: MergeGroup) -> Iterator[tuple[int, int]]:
    """Yield the tasks of rows as written; the ranges of rolled-up rows are stored already."""
    return ((first, tasks) for first, tasks, records in group.members if records == 1)


def _overlap(ranges: Sequence[tuple[int, int]]) -> bool:
    stop = 0
    for first, tasks in sorted(ranges):
        if first < stop and tasks:
            return True
        stop = max(stop, first + tasks)
    return False


# --- deliveries -----------------------------------------------------------------------------------

_DELIVERED: Final = ("tasks", "wall_ns", "cost_nanos")


def postings_before(before_s: UtcS, side: str) -> Merging:
    """Return the merging of settled deliveries before a moment, of one side.

    Paid purchases stay row by row: they are the answer to a seller that bills late. Paid sales stay
    until both sites have closed their period: before that the sites may compare each row. Disputed
    deliveries stay row by row for good.
    """
    state = postings.c.state
    same = (disputes.c[name] == postings.c[name] for name in ("side", "contract", "epoch", "first"))
    at_ms = postings.c.posted_at_s * literal_column("1000")
    is_closed = exists().where(
        OF_CONTRACT,
        statements.c.side == postings.c.side,
        statements.c.site == contracts.c.site,
        statements.c.is_final,
        statements.c.state == literal_column("'agreed'", String),
        statements.c.first_ms <= at_ms,
        statements.c.stop_ms > at_ms,
    )
    of = (
        postings.c.side == side,
        postings.c.posted_at_s < before_s,
        state == "void"
        if side == "buy"
        else or_(state == "void", and_(state == "post", is_closed)),
        ~exists().where(*same),
    )
    return Merging(postings, postings.c.contract, of, _delivered_groups)


def _delivered_groups(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> Found:
    is_booked = exists().where(transfers.c.key == DELIVERY_KEY, is_live(past_of(connection).number))
    days = postings.c.posted_at_s / _DAY_S
    is_sqlite = connection.dialect.name == "sqlite"  # there a cast truncates, elsewhere it rounds
    inner = (
        select(
            postings,
            and_(postings.c.cost_nanos > 0, is_booked).label("is_booked"),
            (cast(days, BigInteger) if is_sqlite else func.floor(days)).label("day"),
        )
        .where(*conditions)
        .subquery()
    )
    kept = ("side", "contract", "epoch", "state")
    same = [inner.c[name] for name in kept]
    query = (
        select(
            inner.c.is_booked,
            _members(inner),
            *same,
            func.max(inner.c.posted_at_s).label("posted_at_s"),
            *exact_sums(*(inner.c[name] for name in _DELIVERED)),
        )
        .group_by(*same, inner.c.day, inner.c.is_booked)
        .having(func.count() > literal_column("1"))
    )
    return _groups(connection.execute(query).all(), (*kept, "posted_at_s"), _DELIVERED)


# --- both -----------------------------------------------------------------------------------------


def merge(table: Table, groups: Sequence[MergeGroup]) -> Iterator[Any]:
    """Yield statements that replace each group with one row."""
    keys = [each.name for each in table.primary_key.columns if each.name != "first"]

    def key(group: MergeGroup) -> tuple[Any, ...]:
        return tuple(group.row[name] for name in keys)

    for values, several in groupby(sorted(groups, key=key), key=key):
        gone = sorted(first for each in several for first, _, _ in each.members)
        named = dict(zip(keys, values, strict=True))
        yield from _delete(table, named, gone)
        if table is postings:  # the proof of a single move proves nothing of a sum
            yield from _delete(move_receipts, named, gone)
    for at in range(0, len(groups), _INSERTED_AT_ONCE):
        rows = [each.row for each in groups[at : at + _INSERTED_AT_ONCE]]
        yield insert(table).values(rows)


def _delete(table: Table, named: dict[str, Any], firsts: Sequence[int]) -> Iterator[Any]:
    conditions = [table.c[name] == value for name, value in named.items()]
    for at in range(0, len(firsts), _NAMED_AT_ONCE):
        part = table.c.first.in_(firsts[at : at + _NAMED_AT_ONCE])
        yield delete(table).where(*conditions, part)


def _members(inner: Subquery) -> ColumnElement[str]:
    """Return a group's rows as one text: a driver gives up the interpreter lock for each row."""
    colon = literal_column("':'", String)
    text: Any = cast(inner.c.first, String)
    for name in ("tasks", "records"):
        text = text + colon + cast(inner.c[name], String)
    return func.aggregate_strings(text, ",").label("members")


def _groups(found: Sequence[Row[Any]], kept: Sequence[str], amounts: Sequence[str]) -> Found:
    groups = []
    is_behind = False
    for each in found:
        if each.is_booked:
            is_behind = True
            continue
        row = {name: each._mapping[name] for name in kept}
        row |= zip(amounts, joined(each[-2 * len(amounts) :]), strict=True)
        members = sorted(_member(text) for text in each.members.split(","))
        row |= {"first": members[0][0], "records": sum(records for _, _, records in members)}
        # Amounts that exceed a column stay in several rows.
        if all(row[name] <= NUMBER_LIMIT for name in amounts):
            is_charge = bool(each._mapping.get("is_charge", False))
            groups.append(MergeGroup(row, tuple(members), is_charge))
    return groups, is_behind


def _member(text: str) -> tuple[int, int, int]:
    first, tasks, records = map(int, text.split(":"))
    return first, tasks, records
