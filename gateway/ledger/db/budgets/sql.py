"""The SQL that writes shares of budgets."""

from sqlalchemy import Dialect

from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.budgets.tables import slices_held, slices_lent
from gateway.ledger.db.sql import Changes, Writers, keep_newest


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        SliceLent: Changes(dialect, [keep_newest(dialect, slices_lent, SliceLent)]),
        SliceHeld: Changes(dialect, [keep_newest(dialect, slices_held, SliceHeld)]),
    }
