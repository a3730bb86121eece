"""The SQL that writes alerts."""

from typing import Final

from sqlalchemy import ClauseElement, Dialect, null, update

from gateway.ledger.db.alerts.records import AlertEnded, AlertFired
from gateway.ledger.db.alerts.tables import alerts
from gateway.ledger.db.sql import Changes, Writers, field, insert_into

_ALERT: Final = ("name", "key", "level")


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        AlertFired: Changes(dialect, [_fire_alert(dialect)]),
        AlertEnded: Changes(
            dialect,
            [
                update(alerts)
                .where(*(alerts.c[name] == field(name) for name in _ALERT))
                .where(alerts.c.ended_at_s.is_(None))
                .values(ended_at_s=field("ended_at_s"))
            ],
        ),
    }


def _fire_alert(dialect: Dialect) -> ClauseElement:
    insert = insert_into(dialect, alerts, AlertFired.__dataclass_fields__)
    fired: ClauseElement = insert.on_conflict_do_update(
        index_elements=[alerts.c[name] for name in _ALERT],
        set_={"at_s": insert.excluded.at_s, "ended_at_s": null()},
        where=alerts.c.ended_at_s.is_not(None),
    )
    return fired
