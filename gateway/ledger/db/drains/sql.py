"""The SQL that writes drains."""

from sqlalchemy import Dialect, delete

from gateway.ledger.db.drains.records import DrainEnded, DrainKept
from gateway.ledger.db.drains.tables import drains
from gateway.ledger.db.sql import Changes, Writers, field, insert_into


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    kept = insert_into(dialect, drains, DrainKept.__dataclass_fields__)
    return {
        DrainKept: Changes(dialect, [kept.on_conflict_do_nothing()]),
        DrainEnded: Changes(
            dialect,
            [delete(drains).where(*(drains.c[name] == field(name) for name in ("kind", "name")))],
        ),
    }
