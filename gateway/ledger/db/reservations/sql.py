"""The SQL that writes reservations."""

from sqlalchemy import ClauseElement, Dialect

from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.reservations.tables import reservations
from gateway.ledger.db.sql import Changes, Writers, insert_into


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        ReservationKept: Changes(dialect, [_keep_reservation(dialect)]),
    }


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
