"""Changes of a site's rules."""

from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from sqlalchemy import select

from gateway.ledger.db.database import OpenReader
from gateway.ledger.db.rules.records import RuleChangeKept, RuleChangeRow, RuleEditKept
from gateway.ledger.db.rules.tables import rule_changes, rule_edits


class RuleStore(Protocol):
    """The changes of a site's rules."""

    def changes(self) -> list[RuleChangeRow]:
        """Return all changes, by number, each with its edits in order."""


class SqlRules:
    """The RuleStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def changes(self) -> list[RuleChangeRow]:
        """See RuleStore."""
        kept = [rule_changes.c[each.name] for each in fields(RuleChangeKept)]
        heads = select(*kept, rule_changes.c.cancelled_at_s).order_by(rule_changes.c.number)
        bodies = select(*(rule_edits.c[each.name] for each in fields(RuleEditKept)))
        bodies = bodies.order_by(rule_edits.c.number, rule_edits.c.place)
        with self._reading() as connection:
            rows = connection.execute(heads).all()
            edits = [RuleEditKept(*row) for row in connection.execute(bodies)]
        of = {number: tuple(found) for number, found in groupby(edits, key=attrgetter("number"))}
        return [
            RuleChangeRow(RuleChangeKept(*row[:-1]), row[-1], of.get(row[0], ())) for row in rows
        ]
