"""Alerts that were sent to the operators."""

from dataclasses import fields
from typing import Protocol

from sqlalchemy import select

from gateway.ledger.db.alerts.records import AlertRow
from gateway.ledger.db.alerts.tables import alerts
from gateway.ledger.db.database import OpenReader


class AlertStore(Protocol):
    """Alerts that were sent to the operators."""

    def all(self) -> list[AlertRow]:
        """Return every alert as it fired last, in order."""


class SqlAlerts:
    """The AlertStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def all(self) -> list[AlertRow]:
        """See AlertStore."""
        kept = [alerts.c[field.name] for field in fields(AlertRow)]
        query = select(*kept).order_by(*alerts.primary_key.columns)
        with self._reading() as connection:
            return [AlertRow(*row) for row in connection.execute(query)]
