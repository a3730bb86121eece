"""The names that buyers give to contracts and reservations that we sell. Pure.

Deliveries are booked by the name of their contract, and the bill of a reservation is booked as a
delivery by the reservation's name. A name must therefore not be used twice: the second sale would
be lost, because the books hold each delivery once.

A buyer takes all its names from one sequence (gateway.contracts.model.sale.number_of). Contracts
arrive in the order of their names, so the last name of contracts and of reservations is enough. A
reservation is requested again until it is answered, possibly after contracts with later names: the
books show whether its name was used (gateway.reservations.reserving).
"""

from collections.abc import Container, Iterable
from typing import Final

from federation.errors import ProtocolError
from gateway.contracts.model.sale import number_of

NONE_YET: Final = (0, 0)


class Names:
    """The last names of each buyer.

    Args:
        sold: the current contracts, by buyer and name; only read.
    """

    def __init__(self, sold: Container[tuple[str, str]] = ()) -> None:
        self._sold = sold
        self._contracts: dict[str, tuple[int, int]] = {}
        self._reservations: dict[str, tuple[int, int]] = {}

    def begin(self, buyer: str, contract: str) -> None:
        """Claim the name of a requested contract; ProtocolError if it is invalid or used."""
        number = number_of(buyer, contract)
        if number <= self._contracts.get(buyer, NONE_YET):
            raise ProtocolError(f"contract {contract}: the name was used before")
        self._contracts[buyer] = number

    def is_reserved(self, buyer: str, contract: str) -> bool:
        """Whether a reservation of that buyer has this name, or a later one."""
        return number_of(buyer, contract) <= self._reservations.get(buyer, NONE_YET)

    def is_sold(self, buyer: str, name: str) -> bool:
        """Whether a current contract of that buyer has this name."""
        return (buyer, name) in self._sold

    def reserve(self, buyer: str, reservation: str) -> None:
        """Claim the name of a reservation: later contracts need later names."""
        _raise(self._reservations, buyer, number_of(buyer, reservation))

    def used(self, buyer: str, contract: str) -> None:
        """Claim the name of a contract from before a restart: new ones need later names."""
        _raise(self._contracts, buyer, number_of(buyer, contract))

    def recover(
        self, contracts: Iterable[tuple[str, str]], reservations: Iterable[tuple[str, str]]
    ) -> None:
        """Claim names of before a restart, as (buyer, name): last contracts, all reservations."""
        left = set(contracts)
        for buyer, name in reservations:
            left.discard((buyer, name))  # its bill is booked as a contract
            try:
                self.reserve(buyer, name)
            except ProtocolError:
                continue  # from before there was a rule for names: no contract can be named so
        for buyer, name in left:
            self.used(buyer, name)


def _raise(last: dict[str, tuple[int, int]], buyer: str, number: tuple[int, int]) -> None:
    last[buyer] = max(number, last.get(buyer, NONE_YET))
