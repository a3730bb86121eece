"""The hourly sums of usage records, written in the transaction that writes the records.

Reports read these sums, of which there are thousands where there are millions of records. A sum is
stored in two halves (exact.py), as an hour of a large grid comes near the limit of a database's
integers.

A record must be counted once. The insert of a usage record is therefore strict: an existing record
fails the transaction, and the writer retries with `unknown`, which leaves it out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Select, and_, case, or_, select

from gateway.ledger.db.exact import HALF
from gateway.ledger.db.records import Record
from gateway.ledger.db.sql import Batches, Statement, compiled, insert_into
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.db.usage.tables import SUMMED, SUMMED_BY, usage, usage_hours

_key: Final = attrgetter(*SUMMED_BY)
_amounts: Final[Callable[[Any], tuple[int, ...]]] = attrgetter(*SUMMED)
_identity: Final = attrgetter("job", "first", "attempt")
_COUNTS: Final = 2  # records, and the largest peak; the halves follow
KEYS_AT_ONCE: Final = 300  # SQLite allows 1,000 levels in an expression, and older ones 999 values
_ROWS: Final = (256, 32, 4, 1)  # per statement: see sql.py


class Summaries:
    """Turns usage records into statements, for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        sql, names = compiled(dialect, _add(dialect))
        columns = [column.name for column in usage_hours.columns]
        order = itemgetter(*map(columns.index, names))
        self._batches = Batches(sql, _ROWS, lambda item: order((*item[0], *item[1])))

    def statements(self, records: Iterable[Record]) -> list[Statement]:
        """Return statements that add these records to the sums; each record must be new."""
        found: dict[tuple[Any, ...], list[int]] = {}
        for record in records:
            if isinstance(record, UsageRecord):
                _count(found, record)
        return self._batches.statements(tuple(found.items()))


def unknown(connection: Connection, records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records without usage records that are stored, or that repeat an earlier one."""
    keys = [_identity(each) for each in records if isinstance(each, UsageRecord)]
    seen: set[tuple[str, int, int]] = set()
    for at in range(0, len(keys), KEYS_AT_ONCE):
        query = stored_query(keys[at : at + KEYS_AT_ONCE])
        seen.update(map(tuple, connection.execute(query)))
    for record in records:
        if isinstance(record, UsageRecord):
            if _identity(record) in seen:
                continue
            seen.add(_identity(record))
        yield record


def stored_query(keys: Sequence[tuple[str, int, int]]) -> Select[Any]:
    """Select those of these usage records that are stored, by job, first task and attempt.

    SQLite compares a list of tuples with every row of the table; a list of alternatives it looks up
    one by one, as PostgreSQL does.
    """
    columns = (usage.c.job, usage.c.first, usage.c.attempt)
    each = (and_(*(column == at for column, at in zip(columns, key, strict=True))) for key in keys)
    return select(*columns).where(or_(*each))


def _count(found: dict[tuple[Any, ...], list[int]], record: UsageRecord) -> None:
    key = _key(record)
    sums = found.get(key)
    if sums is None:
        sums = found[key] = [0] * (_COUNTS + 2 * len(SUMMED))
    sums[0] += record.records
    sums[1] = max(sums[1], record.peak_memory_bytes)
    at = _COUNTS
    for amount in _amounts(record):
        sums[at] += amount // HALF
        sums[at + 1] += amount % HALF
        at += 2


def _add(dialect: Dialect) -> Any:
    """Return an insert that adds to an existing row."""
    insert = insert_into(dialect, usage_hours, [column.name for column in usage_hours.columns])
    new, peak = insert.excluded, usage_hours.c.peak_memory_bytes
    changed = {
        column.name: column + new[column.name]
        for column in usage_hours.columns
        if column.name not in SUMMED_BY
    }
    changed["peak_memory_bytes"] = case(
        (peak < new.peak_memory_bytes, new.peak_memory_bytes), else_=peak
    )
    keys = [usage_hours.c[name] for name in SUMMED_BY]
    return insert.on_conflict_do_update(index_elements=keys, set_=changed)
