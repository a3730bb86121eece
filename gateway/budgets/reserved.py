"""What reservations cost, in the budgets of those who make them. Pure.

A reservation costs its price whether it is used or not, so all of it is held when it is made, in
each purse of its maker that is about money, as for a contract. What its tasks take is no longer
held, and spent by whoever runs them; what is billed at its end is spent by its maker, and the rest
is free again.
"""

from collections.abc import Iterator

from federation.money import format_money
from gateway.budgets.purses import Purses
from gateway.ledger.records import seller_of
from policies.budgets import Earmark, Purse, named, payers, unpayable
from policies.parties import Whose
from policies.reservations import Reservation


class Reserved:
    """What is held for reservations, by the site whose pool it is and the name of the price.

    A seller chooses what it calls its prices, so the name alone does not prove whose reservation
    is charged. A `pool` is named as in usage records: `local` is ours, `paris/local` is of Paris.

    Args:
        purses: of our site.
    """

    def __init__(self, purses: Purses) -> None:
        self._purses = purses
        # By seller, which is empty for our own pools, and by the name of the price.
        self._held: dict[tuple[str, str], Earmark] = {}
        self._made: dict[tuple[str, str], Reservation] = {}  # also those that no purse pays for

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def __iter__(self) -> Iterator[Earmark]:
        return iter(self._held.values())

    def purses_of(self, pool: str, tariff: str) -> tuple[Purse, ...]:
        """Those in which what a pool charges by a price is held already."""
        earmark = self._earmark(pool, tariff)
        return earmark.purses if earmark is not None and earmark.left_nanos else ()

    def booked(self, pool: str, tariff: str) -> Reservation | None:
        """The open reservation of slots of this very pool of which this is the price."""
        seller = seller_of(pool)
        made = self._made.get((seller, tariff))
        return made if made is not None and pool == _pool_of(made, seller) else None

    def _earmark(self, pool: str, tariff: str) -> Earmark | None:
        if self.booked(pool, tariff) is None:
            return None
        return self._held.get((seller_of(pool), tariff))

    def objection(self, by: Whose, nanos: int, currency: str) -> str:
        """Why somebody's budgets don't pay for a reservation, with the figure; empty: they do."""
        purses = self._purses.of(by)
        found = unpayable(purses, currency, by.site)
        if found is not None:
            return found[1]
        for purse in payers(purses):
            budget = purse.budget
            if budget.is_hard and budget.unit == currency and nanos > purse.room_nanos:
                price = format_money(nanos, currency)
                return f"{named(budget)} has no room for {price}: {purse.standing()}"
        return ""

    def hold(self, reservation: Reservation, seller: str = "") -> None:
        """It was made, or is one of a former life; of a pool of `seller`, or of ours."""
        key = seller, reservation.tariff_name
        self._made[key] = reservation
        if key in self._held:
            return
        paying = self._paying(reservation)
        for purse in paying:
            purse.held_nanos += reservation.total_nanos
        if paying:
            self._held[key] = Earmark(paying, reservation.total_nanos)

    def use(self, pool: str, tariff: str, nanos: int) -> None:
        """A pool has charged so much by a price, to whoever pays for that."""
        earmark = self._earmark(pool, tariff)
        if earmark is not None:
            earmark.use(nanos)

    def end(self, reservation: Reservation, utc_s: float, seller: str = "") -> None:
        """It is over: what is billed is spent."""
        key = seller, reservation.tariff_name
        self._made.pop(key, None)
        earmark = self._held.pop(key, None)
        if earmark is not None:
            earmark.end()
        for purse in self._paying(reservation) if reservation.billed_nanos else ():
            purse.spend(reservation.billed_nanos, utc_s)

    def _paying(self, reservation: Reservation) -> tuple[Purse, ...]:
        found = payers(self._purses.of(reservation.by))
        return tuple(each for each in found if each.budget.unit == reservation.currency)


def _pool_of(reservation: Reservation, seller: str) -> str:
    """The pool of a reservation as usage records name it."""
    return f"{seller}/{reservation.pool}" if seller else reservation.pool
