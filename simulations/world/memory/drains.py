"""Drains that operators have ordered, in memory: see gateway.ledger.db.drains.store.DrainStore."""

from collections.abc import Callable

from gateway.ledger.db.drains.records import DrainKept
from simulations.world.memory.tables import Tables


class MemoryDrains:
    """The DrainStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def all(self) -> list[DrainKept]:
        """See DrainStore."""
        return [each for _, each in sorted(self._tables().drains.items())]
