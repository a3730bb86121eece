"""The names that buyers give to what they buy of us: contracts, and reservations. Pure.

Deliveries are booked by the name of their contract, and the bill of a reservation as a delivery by
the name of that. So nothing is sold under a name that something else was sold under before: what
is booked second would be lost, as the books have each delivery once.

A buyer takes all its names from one sequence (gateway.sale.number_of). Contracts arrive in the
order of their names; so it is enough to know the last, of contracts and of reservations. A
reservation is asked for again until that is answered, maybe after contracts with later names:
whether its own was used is looked up in the books (gateway.reserving).
"""

from collections.abc import Container, Iterable
from typing import Final

from federation.errors import ProtocolError
from gateway.sale import number_of

NONE_YET: Final = (0, 0)


class Names:
    """The last names of each buyer.

    Args:
        sold: the contracts that there are now, by buyer and name; read.
    """

    def __init__(self, sold: Container[tuple[str, str]] = ()) -> None:
        self._sold = sold
        self._contracts: dict[str, tuple[int, int]] = {}
        self._reservations: dict[str, tuple[int, int]] = {}

    def begin(self, buyer: str, contract: str) -> None:
        """Take the name of a contract that is asked for; ProtocolError when it is none, or used."""
        number = number_of(buyer, contract)
        if number <= self._contracts.get(buyer, NONE_YET):
            raise ProtocolError(f"contract {contract}: a name that was used before")
        self._contracts[buyer] = number

    def is_reserved(self, buyer: str, contract: str) -> bool:
        """Whether a reservation of that buyer has this name, or a later one."""
        return number_of(buyer, contract) <= self._reservations.get(buyer, NONE_YET)

    def is_sold(self, buyer: str, name: str) -> bool:
        """Whether a contract of that buyer has this name now."""
        return (buyer, name) in self._sold

    def reserve(self, buyer: str, reservation: str) -> None:
        """Take the name of a reservation: no contract that is asked for later comes before it."""
        _raise(self._reservations, buyer, number_of(buyer, reservation))

    def used(self, buyer: str, contract: str) -> None:
        """Take the name of a contract of a former life: no new one comes before it."""
        _raise(self._contracts, buyer, number_of(buyer, contract))

    def recover(
        self, contracts: Iterable[tuple[str, str]], reservations: Iterable[tuple[str, str]]
    ) -> None:
        """Take names of a former life, as (buyer, name): the last contracts, all reservations."""
        left = set(contracts)
        for buyer, name in reservations:
            left.discard((buyer, name))  # its bill is booked as a contract
            try:
                self.reserve(buyer, name)
            except ProtocolError:
                continue  # of before there was a rule for names: no contract can be named so
        for buyer, name in left:
            self.used(buyer, name)


def _raise(last: dict[str, tuple[int, int]], buyer: str, number: tuple[int, int]) -> None:
    last[buyer] = max(number, last.get(buyer, NONE_YET))
