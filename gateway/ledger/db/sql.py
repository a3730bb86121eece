"""Turns records into SQL: pure, compiled once for a dialect.

Usage, its sums and stored bodies are inserted many rows per statement. That is cheaper, and also
faster beside a busy main thread: a driver releases the interpreter lock for each statement (for
each *row* under `executemany`), and gets it back some milliseconds later.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import ClauseElement, Dialect, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite

Statement = tuple[str, tuple[Any, ...]]

# Rows per statement, largest first: few sizes, so that every statement stays prepared.
USAGE_ROWS: Final = (256, 32, 4, 1)
BODY_ROWS: Final = (8, 1)

_FIELD: Final = "field_"


def field(name: str) -> Any:
    """Return a parameter for a record's field; in an update bare column names are taken."""
    return bindparam(_FIELD + name)


class Batches:
    """An INSERT of one row, repeated for many rows per statement."""

    def __init__(
        self, sql: str, sizes: tuple[int, ...], row: Callable[[Any], tuple[Any, ...]]
    ) -> None:
        """Take the sizes of statements and the function that makes rows.

        sizes: rows per statement, the largest first, the last one 1.
        row: makes the parameters of `sql` from an item.
        """
        self._row = row
        self._sql_by_size = [(size, _repeat_values(sql, size)) for size in sizes]

    def statements(self, items: Sequence[Any]) -> list[Statement]:
        """Return statements that insert them; where a conflict is an update, keys must differ."""
        statements: list[Statement] = []
        done = 0
        for size, sql in self._sql_by_size:
            while len(items) - done >= size:
                rows = map(self._row, items[done : done + size])
                statements.append((sql, tuple(chain.from_iterable(rows))))
                done += size
        return statements


class RowInserts(Batches):
    """Inserts whole records, many rows per statement; existing ones are skipped."""

    def __init__(
        self,
        dialect: Dialect,
        table: Table,
        sizes: tuple[int, ...],
        record: type[Any] | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        """Take the columns to fill and the handling of conflicts.

        record: if it does not fill all columns, the others keep their defaults.
        is_strict: an existing row is an error, and is not skipped.
        """
        fields = record.__dataclass_fields__ if record else None
        filled = [
            column.name for column in table.columns if fields is None or column.name in fields
        ]
        insert = insert_into(dialect, table, filled)
        sql, names = compiled(dialect, insert if is_strict else insert.on_conflict_do_nothing())
        super().__init__(sql, sizes, attrgetter(*names))


class Changes:
    """One or more statements for each record, with its fields as parameters."""

    def __init__(self, dialect: Dialect, changes: Sequence[ClauseElement]) -> None:
        self._changes = [compiled(dialect, change) for change in changes]

    def statements(self, records: Sequence[Any]) -> list[Statement]:
        """Return the statements of each record in turn."""
        return [
            (sql, tuple(getattr(record, name) for name in names))
            for record in records
            for sql, names in self._changes
        ]


def compiled(dialect: Dialect, clause: ClauseElement) -> tuple[str, tuple[str, ...]]:
    """Return a clause's SQL, and the record's fields that fill its parameters, in order."""
    made: Any = clause.compile(dialect=dialect)
    names = made.positiontup
    assert names is not None, "the parameters must be positional"
    return str(made), tuple(name.removeprefix(_FIELD) for name in names)


def insert_into(dialect: Dialect, table: Table, names: Iterable[str]) -> Any:
    """Begin an INSERT that supports ON CONFLICT: the same syntax in both dialects, two classes."""
    kinds: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    return kinds[dialect.name](table).values({name: field(name) for name in names})


def _repeat_values(sql: str, rows: int) -> str:
    """Repeat the row of an INSERT: compiling thousands of parameters would take 70 ms."""
    insert, conflict, action = sql.partition(" ON CONFLICT")
    into, word, values = insert.partition("VALUES (")
    return f"{into}{word}{', ('.join([values] * rows)}{conflict}{action}"


def keep_newest(dialect: Dialect, table: Table, record: type[Any]) -> ClauseElement:
    """Return the SQL that writes a record over the one with the same key."""
    names = list(record.__dataclass_fields__)
    insert = insert_into(dialect, table, names)
    kept: ClauseElement = insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: insert.excluded[name] for name in names}
    )
    return kept


# The statements of each kind of record.
Writers = Mapping[type[Any], RowInserts | Changes]
