"""The SQL that writes usage and capacity."""

from sqlalchemy import Dialect

from gateway.ledger.db.sql import BODY_ROWS, USAGE_ROWS, RowInserts, Writers
from gateway.ledger.db.usage.records import CapacityRecord, UsageRecord
from gateway.ledger.db.usage.tables import capacity, usage


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        UsageRecord: RowInserts(dialect, usage, USAGE_ROWS, is_strict=True),
        CapacityRecord: RowInserts(dialect, capacity, BODY_ROWS),
    }
