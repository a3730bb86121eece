"""The journal of double entry."""

from contextlib import closing
from itertools import islice
from typing import Protocol

from gateway.ledger.accounting.journal import Booked, booked
from gateway.ledger.accounting.journal import balances as read_balances
from gateway.ledger.accounting.postings import Balance, LedgerAccount
from gateway.ledger.audit.deliveries import undercharged
from gateway.ledger.audit.finding import under_rules
from gateway.ledger.db.database import OpenReader


class JournalStore(Protocol):
    """The journal of double entry: booked transfers, and their sums by account."""

    def balances(self) -> dict[LedgerAccount, Balance]:
        """Sum up the transfers by account."""

    def booked(self, after: int, limit: int) -> list[Booked]:
        """Return up to `limit` transfers, in order, from the one after number `after` on."""

    def unlike(self, site: str, limit: int) -> list[str]:
        """Describe the jobs between a site and us whose charges differ from their deliveries."""


class SqlJournal:
    """The JournalStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def balances(self) -> dict[LedgerAccount, Balance]:
        """See JournalStore."""
        with self._reading() as connection:
            return read_balances(connection)

    def booked(self, after: int, limit: int) -> list[Booked]:
        """See JournalStore."""
        with self._reading() as connection:
            return list(booked(connection, after, limit))

    def unlike(self, site: str, limit: int) -> list[str]:
        """See JournalStore."""
        with self._reading() as connection, closing(undercharged(connection, site)) as found:
            first = list(islice(found, limit))
            return [str(under_rules(connection, each)) for each in first]
