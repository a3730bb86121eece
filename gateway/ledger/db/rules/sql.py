"""The SQL that writes changes of rules."""

from sqlalchemy import Dialect, update

from gateway.ledger.db.rules.records import RuleChangeCancelled, RuleChangeKept, RuleEditKept
from gateway.ledger.db.rules.tables import rule_changes, rule_edits
from gateway.ledger.db.sql import BODY_ROWS, Changes, RowInserts, Writers, field


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    cancel = (
        update(rule_changes)
        .where(rule_changes.c.number == field("number"))
        .where(rule_changes.c.cancelled_at_s.is_(None))
        .values(cancelled_at_s=field("cancelled_at_s"))
    )
    return {
        RuleChangeKept: RowInserts(dialect, rule_changes, BODY_ROWS, RuleChangeKept),
        RuleEditKept: RowInserts(dialect, rule_edits, BODY_ROWS, RuleEditKept),
        RuleChangeCancelled: Changes(dialect, [cancel]),
    }
