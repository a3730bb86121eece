"""What two sites must agree on: deliveries, disputes, statements and payments."""

from collections.abc import Iterator
from typing import Protocol

from federation.messages.reconciliation import BookEntry, Sums
from gateway.ledger.db.database import OpenReader
from gateway.ledger.db.settlement import queries
from gateway.ledger.db.settlement.records import DisputeRow, PaymentRow, PaymentsTold, StatementKept


class SettlementStore(Protocol):
    """What two sites must agree on: deliveries, disputes, statements and payments."""

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """Yield the deliveries and reversals of one side with a site in [first_ms, stop_ms).

        By contract, epoch, first task and state; of all contracts when none is named. Void
        deliveries are left out. To be consumed in one thread.
        """

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """Sum up the `entries` of all contracts, by currency."""

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """Return `entry_sums`, and the sums of the `voids`, counted as deliveries."""

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """Yield the void deliveries of that time, in the same order."""

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """Return the booking time of the first delivery or reversal at or after this moment."""

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """Return disputes, oldest first: all, those of a contract, or those without an answer."""

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """Return the results of reconciliation with other sites, by site, side and time.

        Of one side, and of one site, if these are named.
        """

    def payments(self, site: str = "") -> list[PaymentRow]:
        """Return all payments, oldest first, including reversed ones.

        Only those with one site, if it is named.
        """

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """Return the last report of each other site on its booked payments, by site.

        Of one site, if it is named.
        """


class SqlSettlement:
    """The SettlementStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """See SettlementStore."""
        with self._reading() as connection:
            yield from queries.entries(connection, side, site, first_ms, stop_ms, contract)

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.sums(connection, side, site, first_ms, stop_ms)

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.verdict_sums(connection, side, site, first_ms, stop_ms)

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """See SettlementStore."""
        with self._reading() as connection:
            yield from queries.voids(connection, side, site, first_ms, stop_ms, contract)

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.next_delivery_ms(connection, side, site, since_ms)

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.read_disputes(connection, contract, is_open)

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.read_statements(connection, side, site)

    def payments(self, site: str = "") -> list[PaymentRow]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.read_payments(connection, site)

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """See SettlementStore."""
        with self._reading() as connection:
            return queries.read_payments_told(connection, site)
