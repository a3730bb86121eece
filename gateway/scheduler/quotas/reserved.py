"""The cost of reservations, in the budgets of their makers. Pure.

A reservation costs its price whether it is used or not, so all of it is held when it is made, in
each of its maker's budgets of money, as for a contract. The cost of its tasks moves out of the
hold, and is spent by the user that runs them; the bill at its end is spent by its maker, and the
rest is free again.
"""

from collections.abc import Iterator

from federation.clocks import UtcS
from federation.money import format_money
from gateway.ledger.db.usage.records import seller_of
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from policies.costs.budgets import BudgetAccount, Earmark, named, payers, unpayable
from policies.parties import Owner
from policies.reservations.reservations import Reservation
from policies.tariffs import Tariff


class ReservedAmounts:
    """The amounts held for reservations, by the pool's site and the name of the price.

    A seller chooses the names of its prices, so the name alone does not prove that a reservation is
    charged. A `pool` is named as in usage records: `local` is this site's, `paris/local` is of
    Paris.

    Args:
        budget_accounts: of this site.
    """

    def __init__(self, budget_accounts: BudgetAccounts) -> None:
        self._budget_accounts = budget_accounts
        # By seller, which is empty for this site's own pools, and by id.
        self._held: dict[tuple[str, str], Earmark] = {}
        self._made: dict[tuple[str, str], Reservation] = {}  # also those that no budget pays for

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def __iter__(self) -> Iterator[Earmark]:
        return iter(self._held.values())

    def accounts_of(self, pool: str, tariff: Tariff) -> tuple[BudgetAccount, ...]:
        """Return the budgets that already hold a pool's charges by a tariff."""
        earmark = self._earmark(pool, tariff)
        return earmark.budget_accounts if earmark is not None and earmark.left_nanos else ()

    def booked(self, pool: str, tariff: Tariff) -> Reservation | None:
        """Return the open reservation of slots of this very pool that a tariff is the price of."""
        seller = seller_of(pool)
        made = self._made.get((seller, tariff.reservation))
        return made if made is not None and pool == _pool_of(made, seller) else None

    def _earmark(self, pool: str, tariff: Tariff) -> Earmark | None:
        if self.booked(pool, tariff) is None:
            return None
        return self._held.get((seller_of(pool), tariff.reservation))

    def objection(self, by: Owner, nanos: int, currency: str) -> str:
        """Return why budgets don't pay for a reservation, with the figure; empty: they do."""
        budget_accounts = self._budget_accounts.of(by)
        found = unpayable(budget_accounts, currency, by.site)
        if found is not None:
            return found[1]
        for budget_account in payers(budget_accounts):
            budget = budget_account.budget
            if budget.is_hard and budget.unit == currency and nanos > budget_account.room_nanos:
                price = format_money(nanos, currency)
                return f"{named(budget)} has no room for {price}: {budget_account.standing()}"
        return ""

    def hold(self, reservation: Reservation, seller: str = "") -> None:
        """Hold a new or restored reservation's cost, for a pool of `seller`, or of this site."""
        key = seller, reservation.id
        self._made[key] = reservation
        if key in self._held:
            return
        paying = self._paying(reservation)
        for budget_account in paying:
            budget_account.held_nanos += reservation.total_nanos
        if paying:
            self._held[key] = Earmark(paying, reservation.total_nanos)

    def use(self, pool: str, tariff: Tariff, nanos: int) -> None:
        """Count a pool's charge by a tariff against the hold; the user of the slots pays it."""
        earmark = self._earmark(pool, tariff)
        if earmark is not None:
            earmark.use(nanos)

    def end(self, reservation: Reservation, utc_s: UtcS, seller: str = "") -> None:
        """End a reservation: the billed amount is spent."""
        key = seller, reservation.id
        self._made.pop(key, None)
        earmark = self._held.pop(key, None)
        if earmark is not None:
            earmark.end()
        for budget_account in self._paying(reservation) if reservation.billed_nanos else ():
            budget_account.spend(reservation.billed_nanos, utc_s)

    def _paying(self, reservation: Reservation) -> tuple[BudgetAccount, ...]:
        found = payers(self._budget_accounts.of(reservation.by))
        return tuple(each for each in found if each.budget.unit == reservation.currency)


def _pool_of(reservation: Reservation, seller: str) -> str:
    """Return the pool of a reservation as usage records name it."""
    return f"{seller}/{reservation.pool}" if seller else reservation.pool
