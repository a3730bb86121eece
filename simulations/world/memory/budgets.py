"""Shares of budgets that span sites."""

from collections.abc import Callable

from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from simulations.world.memory.tables import Tables


class MemoryBudgets:
    """The BudgetStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def lent(self) -> list[SliceLent]:
        """See BudgetStore."""
        return [each for _, each in sorted(self._tables().slices_lent.items())]

    def held(self) -> list[SliceHeld]:
        """See BudgetStore."""
        found = (each for _, each in sorted(self._tables().slices_held.items()))
        return [each for each in found if not each.is_closed]
