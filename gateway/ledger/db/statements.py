"""The SQL of all records, for the writer."""

from collections.abc import Sequence
from itertools import groupby

from sqlalchemy import Dialect, literal_column, update

from gateway.ledger.db.alerts import sql as alerts
from gateway.ledger.db.budgets import sql as budgets
from gateway.ledger.db.contracts import sql as contracts
from gateway.ledger.db.drains import sql as drains
from gateway.ledger.db.jobs import sql as jobs
from gateway.ledger.db.records import Record
from gateway.ledger.db.reservations import sql as reservations
from gateway.ledger.db.rules import sql as rules
from gateway.ledger.db.settlement import sql as settlement
from gateway.ledger.db.sql import Statement, Writers, compiled
from gateway.ledger.db.tables import hardenings
from gateway.ledger.db.usage import sql as usage

_SUBJECTS = (*(jobs, usage, contracts, settlement, reservations, budgets, alerts, rules, drains),)


class SqlStatements:
    """Turns records into statements for one dialect, whose parameters must be positional."""

    def __init__(self, dialect: Dialect) -> None:
        self._writers: Writers = {
            kind: writer
            for subject in _SUBJECTS
            for kind, writer in subject.writers(dialect).items()
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
