"""Drains that operators have ordered."""

from dataclasses import fields
from typing import Protocol

from sqlalchemy import select

from gateway.ledger.db.database import OpenReader
from gateway.ledger.db.drains.records import DrainKept
from gateway.ledger.db.drains.tables import drains


class DrainStore(Protocol):
    """Drains that operators have ordered."""

    def all(self) -> list[DrainKept]:
        """Return the drains that have not ended, in order of kind and name."""


class SqlDrains:
    """The DrainStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def all(self) -> list[DrainKept]:
        """See DrainStore."""
        kept = [drains.c[field.name] for field in fields(DrainKept)]
        query = select(*kept).order_by(*drains.primary_key.columns)
        with self._reading() as connection:
            return [DrainKept(*row) for row in connection.execute(query)]
