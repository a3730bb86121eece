"""The SQL that writes usage and capacity."""

from sqlalchemy import Dialect

from gateway.ledger.db.sql import BODY_ROWS, USAGE_ROWS, Rows, Writers
from gateway.ledger.db.usage.records import Capacity, UsageRecord
from gateway.ledger.db.usage.tables import capacity, usage


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        UsageRecord: Rows(dialect, usage, USAGE_ROWS, is_strict=True),
        Capacity: Rows(dialect, capacity, BODY_ROWS),
    }
