"""Turns records into SQL: pure, compiled once for a dialect.

Usage, its sums and stored bodies are inserted many rows per statement. That is cheaper, and also
faster beside a busy main thread: a driver releases the interpreter lock for each statement (for
each *row* under `executemany`), and gets it back some milliseconds later.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Dialect,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    literal_column,
    not_,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from gateway.ledger.db.records import (
    AlertEnded,
    AlertFired,
    AttachedLost,
    BundleKept,
    Capacity,
    ContractEnded,
    ContractOpened,
    Disputed,
    DisputeSettled,
    FunctionKept,
    JobClosed,
    JobEnded,
    JobForgotten,
    JobOpened,
    OutcomeKept,
    Payment,
    PaymentsTold,
    PaymentUndone,
    Posted,
    PostingSettled,
    Record,
    ReservationKept,
    SliceHeld,
    SliceLent,
    StatementKept,
    UsageRecord,
)
from gateway.ledger.db.tables import (
    IS_PENDING,
    alerts,
    bundles,
    capacity,
    contracts,
    disputes,
    functions,
    hardenings,
    jobs,
    outcomes,
    payments,
    payments_told,
    postings,
    reservations,
    slices_held,
    slices_lent,
    statements,
    usage,
)

Statement = tuple[str, tuple[Any, ...]]

# Rows per statement, largest first: few sizes, so that every statement stays prepared.
_USAGE_ROWS: Final = (256, 32, 4, 1)
_BODY_ROWS: Final = (8, 1)

# Literals in the SQL itself: every parameter is a record's field.
_OPEN: Final = literal_column("'open'", Text)
_LOST: Final = literal_column("'lost'", Text)
_ABANDONED: Final = literal_column("'abandoned'", Text)
_LOST_REASON: Final = literal_column("'its gateway stopped before it ended'", Text)
_NO_REASON: Final = literal_column("''", Text)

_AGREED: Final = literal_column("'agreed'", Text)
_POSTING: Final = ("side", "contract", "epoch", "first")
_PAYMENT: Final = ("site", "reference", "currency", "attempt")
_ALERT: Final = ("name", "key", "level")
_END: Final = ("state", "reason", "ended_at_s", "done", "failed", "cancelled")

_FIELD: Final = "field_"


def _field(name: str) -> Any:
    """Return a parameter for a record's field; in an update bare column names are taken."""
    return bindparam(_FIELD + name)


class Statements:
    """Turns records into statements for one dialect, whose parameters must be positional."""

    def __init__(self, dialect: Dialect) -> None:
        self._writers: dict[type[Any], Rows | _Changes] = {
            FunctionKept: Rows(dialect, functions, _BODY_ROWS),
            BundleKept: Rows(dialect, bundles, _BODY_ROWS),
            OutcomeKept: Rows(dialect, outcomes, _BODY_ROWS),
            UsageRecord: Rows(dialect, usage, _USAGE_ROWS, is_strict=True),
            Capacity: Rows(dialect, capacity, _BODY_ROWS),
            ContractOpened: Rows(dialect, contracts, _BODY_ROWS, ContractOpened),
            Posted: Rows(dialect, postings, _USAGE_ROWS, Posted),
            Disputed: Rows(dialect, disputes, _BODY_ROWS, Disputed),
            Payment: Rows(dialect, payments, _BODY_ROWS, Payment),
            **{kind: _Changes(dialect, changes) for kind, changes in _changes(dialect).items()},
        }
        count = hardenings.c.count
        self._harden: Statement = (
            compiled(dialect, update(hardenings).values(count=count + literal_column("1")))[0],
            (),
        )

    def of(self, records: Sequence[Record], durable: bool) -> list[Statement]:
        """Return the statements that write these records, in their order.

        Durable ones always change a row, even if every record exists already: otherwise the
        database would see no reason to sync.
        """
        statements = [self._harden] if durable else []
        for kind, group in groupby(records, key=type):
            statements += self._writers[kind].statements(tuple(group))
        return statements


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


class Rows(Batches):
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


class _Changes:
    """One or more statements for each record, with its fields as parameters."""

    def __init__(self, dialect: Dialect, changes: Sequence[ClauseElement]) -> None:
        self._changes = [compiled(dialect, change) for change in changes]

    def statements(self, records: Sequence[Record]) -> list[Statement]:
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
    return kinds[dialect.name](table).values({name: _field(name) for name in names})


def _repeat_values(sql: str, rows: int) -> str:
    """Repeat the row of an INSERT: compiling thousands of parameters would take 70 ms."""
    insert, conflict, action = sql.partition(" ON CONFLICT")
    into, word, values = insert.partition("VALUES (")
    return f"{into}{word}{', ('.join([values] * rows)}{conflict}{action}"


def _changes(dialect: Dialect) -> dict[type[Any], list[ClauseElement]]:
    this = jobs.c.job == _field("job")
    open_ = jobs.c.ended_at_s.is_(None)
    return {
        JobOpened: [_open_job(dialect)],
        JobClosed: [update(jobs).where(this).values(total=_field("total"))],
        JobEnded: [
            update(jobs).where(this, open_).values({name: _field(name) for name in _END}),
            delete(bundles).where(bundles.c.job == _field("job")),
        ],
        AttachedLost: [
            update(jobs)
            .where(open_, ~jobs.c.detached)
            .values(state=_LOST, reason=_LOST_REASON, ended_at_s=_field("ended_at_s"))
        ],
        JobForgotten: _forget_job(this),
        PostingSettled: [
            update(postings)
            .where(*(postings.c[name] == _field(name) for name in _POSTING))
            .where(IS_PENDING)
            .values(state=_field("state"))
        ],
        DisputeSettled: [
            update(disputes)
            .where(*(disputes.c[name] == _field(name) for name in _POSTING))
            .where(disputes.c.state == _OPEN)
            .values({name: _field(name) for name in ("state", "answer", "settled_at_s")})
        ],
        PaymentUndone: [
            update(payments)
            .where(*(payments.c[name] == _field(name) for name in _PAYMENT))
            .where(payments.c.undone_at_s.is_(None))
            .values({name: _field(name) for name in ("undone_at_s", "undone_why")})
        ],
        PaymentsTold: [_keep_newest(dialect, payments_told, PaymentsTold)],
        SliceLent: [_keep_newest(dialect, slices_lent, SliceLent)],
        SliceHeld: [_keep_newest(dialect, slices_held, SliceHeld)],
        StatementKept: [_keep_statement(dialect)],
        ReservationKept: [_keep_reservation(dialect)],
        ContractEnded: [
            update(contracts)
            .where(*(contracts.c[name] == _field(name) for name in ("side", "contract")))
            .values(state=_field("state"), ended_at_s=_field("ended_at_s"))
        ],
        AlertFired: [_fire_alert(dialect)],
        AlertEnded: [
            update(alerts)
            .where(*(alerts.c[name] == _field(name) for name in _ALERT))
            .where(alerts.c.ended_at_s.is_(None))
            .values(ended_at_s=_field("ended_at_s"))
        ],
    }


def _open_job(dialect: Dialect) -> ClauseElement:
    opened: ClauseElement = insert_into(
        dialect, jobs, JobOpened.__dataclass_fields__
    ).on_conflict_do_update(
        index_elements=[jobs.c.job],
        set_={"state": _OPEN, "reason": _NO_REASON, "ended_at_s": null()},
        where=jobs.c.state.in_([_LOST, _ABANDONED]),
    )
    return opened


def _keep_newest(dialect: Dialect, table: Table, record: type[Any]) -> ClauseElement:
    names = list(record.__dataclass_fields__)
    insert = insert_into(dialect, table, names)
    kept: ClauseElement = insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: insert.excluded[name] for name in names}
    )
    return kept


def _keep_statement(dialect: Dialect) -> ClauseElement:
    insert = insert_into(dialect, statements, StatementKept.__dataclass_fields__)
    keys = [column.name for column in statements.primary_key]
    kept: ClauseElement = insert.on_conflict_do_update(
        index_elements=keys,
        set_={
            column.name: insert.excluded[column.name]
            for column in statements.columns
            if column.name not in keys
        },
        # As StatementKept.replaces.
        where=or_(
            statements.c.state != _AGREED,
            and_(
                insert.excluded.state == _AGREED,
                insert.excluded.is_final,
                not_(statements.c.is_final),
            ),
        ),
    )
    return kept


def _keep_reservation(dialect: Dialect) -> ClauseElement:
    insert = insert_into(dialect, reservations, ReservationKept.__dataclass_fields__)
    keys = [column.name for column in reservations.primary_key]
    others = [name for name in ReservationKept.__dataclass_fields__ if name not in keys]
    kept: ClauseElement = insert.on_conflict_do_update(
        index_elements=keys,
        set_={name: insert.excluded[name] for name in others},
        where=reservations.c.step < insert.excluded.step,
    )
    return kept


def _fire_alert(dialect: Dialect) -> ClauseElement:
    insert = insert_into(dialect, alerts, AlertFired.__dataclass_fields__)
    fired: ClauseElement = insert.on_conflict_do_update(
        index_elements=[alerts.c[name] for name in _ALERT],
        set_={"at_s": insert.excluded.at_s, "ended_at_s": null()},
        where=alerts.c.ended_at_s.is_not(None),
    )
    return fired


def _forget_job(this: ColumnElement[bool]) -> list[ClauseElement]:
    forgotten = select(jobs.c.job).where(this, jobs.c.forgotten)
    unneeded = select(jobs.c.function).where(this, jobs.c.forgotten).scalar_subquery()
    needed = (
        select(jobs.c.job).where(jobs.c.function == functions.c.digest, ~jobs.c.forgotten).exists()
    )
    return [
        update(jobs).where(this, jobs.c.ended_at_s.is_not(None)).values(forgotten=true()),
        delete(outcomes).where(outcomes.c.job.in_(forgotten)),
        delete(functions).where(functions.c.digest == unneeded, ~needed),
    ]
