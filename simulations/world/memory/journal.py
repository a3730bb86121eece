"""The journal of double entry."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from gateway.ledger.accounting.journal import Booked
from gateway.ledger.accounting.postings import Account, Balance
from simulations.world.memory.tables import Tables


class MemoryJournal:
    """The JournalStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def balances(self) -> dict[Account, Balance]:
        """See JournalStore."""
        return {account: replace(each) for account, each in self._tables().balances.items()}

    def booked(self, after: int, limit: int) -> list[Booked]:
        """See JournalStore."""
        return list(islice(self._tables().booked.values(), after, after + limit))
