"""What reservations cost, in the budgets of those who make them. Pure.

A reservation costs its price whether it is used or not, so all of it is held when it is made, in
each purse of its maker that is about money, as for a contract. What its tasks take is no longer
held, and spent by whoever runs them; what is billed at its end is spent by its maker, and the rest
is free again.
"""

from collections.abc import Iterator

from federation.money import format_money
from gateway.budgets.purses import Purses
from policies.budgets import Earmark, Purse, named, payers, unpayable
from policies.parties import Whose
from policies.reservations import Reservation


class Reserved:
    """What is held for reservations, by the names of their prices.

    Args:
        purses: of our site.
    """

    def __init__(self, purses: Purses) -> None:
        self._purses = purses
        self._held: dict[str, Earmark] = {}
        self._made: dict[str, Reservation] = {}  # also those that no purse pays for

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def __iter__(self) -> Iterator[Earmark]:
        return iter(self._held.values())

    def purses_of(self, tariff: str) -> tuple[Purse, ...]:
        """Those in which what is charged by a price is held already."""
        earmark = self._held.get(tariff)
        return earmark.purses if earmark is not None and earmark.left_nanos else ()

    def booked(self, tariff: str) -> Reservation | None:
        """The reservation that is open here, or of ours elsewhere, of which this is the price."""
        return self._made.get(tariff)

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

    def hold(self, reservation: Reservation) -> None:
        """It was made, or is one of a former life."""
        self._made[reservation.tariff_name] = reservation
        if reservation.tariff_name in self._held:
            return
        paying = self._paying(reservation)
        for purse in paying:
            purse.held_nanos += reservation.total_nanos
        if paying:
            self._held[reservation.tariff_name] = Earmark(paying, reservation.total_nanos)

    def use(self, tariff: str, nanos: int) -> None:
        """So much of it was charged, to whoever pays for that."""
        earmark = self._held.get(tariff)
        if earmark is not None:
            earmark.use(nanos)

    def end(self, reservation: Reservation, utc_s: float) -> None:
        """It is over: what is billed is spent."""
        self._made.pop(reservation.tariff_name, None)
        earmark = self._held.pop(reservation.tariff_name, None)
        if earmark is not None:
            earmark.end()
        for purse in self._paying(reservation) if reservation.billed_nanos else ():
            purse.spend(reservation.billed_nanos, utc_s)

    def _paying(self, reservation: Reservation) -> tuple[Purse, ...]:
        found = payers(self._purses.of(reservation.by))
        return tuple(each for each in found if each.budget.unit == reservation.currency)
