"""Shares of budgets that span sites."""

from typing import Protocol

from sqlalchemy import select

from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.budgets.tables import slices_held, slices_lent
from gateway.ledger.db.database import OpenReader


class BudgetStore(Protocol):
    """Shares of our budgets held by other sites, and of theirs held by us."""

    def lent(self) -> list[SliceLent]:
        """Return the newest record of each share of our budgets held by another site, in order."""

    def held(self) -> list[SliceHeld]:
        """Return our accounts of other sites' budgets that are not closed, in order."""


class SqlBudgets:
    """The BudgetStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def lent(self) -> list[SliceLent]:
        """See BudgetStore."""
        query = select(slices_lent).order_by(*slices_lent.primary_key)
        with self._reading() as connection:
            return [SliceLent(**row._mapping) for row in connection.execute(query)]

    def held(self) -> list[SliceHeld]:
        """See BudgetStore."""
        query = select(slices_held).where(~slices_held.c.is_closed)
        with self._reading() as connection:
            found = connection.execute(query.order_by(*slices_held.primary_key))
            return [SliceHeld(**row._mapping) for row in found]
