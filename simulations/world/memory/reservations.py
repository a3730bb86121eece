"""Reservations at this site and at others."""

from collections.abc import Callable, Iterator

from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.reservations.store import OPEN_STATES
from simulations.world.memory.tables import Tables


class MemoryReservations:
    """The ReservationStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def get(self, side: str, name: str) -> ReservationKept | None:
        """See ReservationStore."""
        return self._tables().reservations.get((side, name))

    def names(self, side: str) -> Iterator[tuple[str, str]]:
        """See ReservationStore."""
        for (of, name), row in self._tables().reservations.items():
            if of == side and row.site:
                yield row.site, name

    def latest(self, limit: int, is_open: bool = False, start: int = 0) -> list[ReservationKept]:
        """See ReservationStore."""
        kept = sorted(
            self._tables().reservations.values(),
            key=lambda each: (-each.until_s, each.side, each.reservation),
        )
        if is_open:
            return [each for each in kept if each.state in OPEN_STATES]
        return kept[start : start + limit]
