"""Reservations at this site and at others."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Final, Protocol

from sqlalchemy import select

from gateway.ledger.db.database import OpenReader
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.reservations.tables import reservations

_NAMES: Final = 10_000  # reservations per page
OPEN_STATES: Final = ("held", "booking", "booked", "releasing")


class ReservationStore(Protocol):
    """Reservations of our pools, and of other sites' pools for us."""

    def get(self, side: str, name: str) -> ReservationKept | None:
        """Return a reservation in any state, or None if no reservation has that name."""

    def names(self, side: str) -> Iterator[tuple[str, str]]:
        """Yield (site, reservation) of every reservation ever made with other sites on a side."""

    def latest(self, limit: int, is_open: bool = False, start: int = 0) -> list[ReservationKept]:
        """Return `limit` reservations, latest end first, or all open ones.

        `start` skips the first ones, unless `is_open`.
        """


class SqlReservations:
    """The ReservationStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def get(self, side: str, name: str) -> ReservationKept | None:
        """See ReservationStore."""
        kept = [reservations.c[field.name] for field in fields(ReservationKept)]
        query = select(*kept).where(reservations.c.side == side, reservations.c.reservation == name)
        with self._reading() as connection:
            row = connection.execute(query).first()
            return ReservationKept(*row) if row is not None else None

    def names(self, side: str) -> Iterator[tuple[str, str]]:
        """See ReservationStore."""
        query = select(reservations.c.site, reservations.c.reservation).where(
            reservations.c.side == side, reservations.c.site != ""
        )
        with self._reading() as connection:
            found = connection.execute(query.execution_options(yield_per=_NAMES))
            yield from ((site, name) for site, name in found)

    def latest(self, limit: int, is_open: bool = False, start: int = 0) -> list[ReservationKept]:
        """See ReservationStore."""
        kept = [reservations.c[field.name] for field in fields(ReservationKept)]
        query = select(*kept).order_by(
            reservations.c.until_s.desc(), *reservations.primary_key.columns
        )
        if is_open:
            query = query.where(reservations.c.state.in_(OPEN_STATES))
        else:
            query = query.limit(limit).offset(start)
        with self._reading() as connection:
            return [ReservationKept(*row) for row in connection.execute(query)]
