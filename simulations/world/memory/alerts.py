"""Alerts that were sent to the operators."""

from collections.abc import Callable

from gateway.ledger.db.alerts.records import AlertRow
from simulations.world.memory.tables import Tables


class MemoryAlerts:
    """The AlertStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def all(self) -> list[AlertRow]:
        """See AlertStore."""
        return [each for _, each in sorted(self._tables().alerts.items())]
