"""The SQL that writes disputes, statements and payments."""

from typing import Final

from sqlalchemy import ClauseElement, Dialect, Text, and_, literal_column, not_, or_, update

from gateway.ledger.db.settlement.records import (
    Disputed,
    DisputeSettled,
    Payment,
    PaymentsTold,
    PaymentUndone,
    StatementKept,
)
from gateway.ledger.db.settlement.tables import disputes, payments, payments_told, statements
from gateway.ledger.db.sql import (
    BODY_ROWS,
    Changes,
    RowInserts,
    Writers,
    field,
    insert_into,
    keep_newest,
)

# Literals in the SQL itself: every parameter is a record's field.
_OPEN: Final = literal_column("'open'", Text)
_AGREED: Final = literal_column("'agreed'", Text)
_POSTING: Final = ("side", "contract", "epoch", "first")
_PAYMENT: Final = ("site", "reference", "currency", "attempt")


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        Disputed: RowInserts(dialect, disputes, BODY_ROWS, Disputed),
        Payment: RowInserts(dialect, payments, BODY_ROWS, Payment),
        DisputeSettled: Changes(
            dialect,
            [
                update(disputes)
                .where(*(disputes.c[name] == field(name) for name in _POSTING))
                .where(disputes.c.state == _OPEN)
                .values({name: field(name) for name in ("state", "answer", "settled_at_s")})
            ],
        ),
        StatementKept: Changes(dialect, [_keep_statement(dialect)]),
        PaymentUndone: Changes(
            dialect,
            [
                update(payments)
                .where(*(payments.c[name] == field(name) for name in _PAYMENT))
                .where(payments.c.undone_at_s.is_(None))
                .values({name: field(name) for name in ("undone_at_s", "undone_why")})
            ],
        ),
        PaymentsTold: Changes(dialect, [keep_newest(dialect, payments_told, PaymentsTold)]),
    }


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
