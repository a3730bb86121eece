"""The number of slots in pools over time, as records for the books. Pure.

A gateway reads its slots about once a second and reports them to the meter, which makes a record
every quarter of an hour, and at most once a minute when their number changes. A record lies within
one UTC hour and has one number of slots: a time in which the number changed becomes two records,
which come to the same slot time.

Unobserved time is not counted: where a reading is late by more than a minute (the gateway was
stopped, its host slept, or its clock was set) the time between is left out. Where the clock was set
back, or a gateway died and left records, `uncounted` subtracts the records that are in the books
already.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from federation.clocks import CALENDAR_END_S, UNIX_EPOCH_S, UtcS
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.usage.records import CapacityRecord

RECORD_S: Final = 900.0
CHANGE_S: Final = 60.0  # the shortest time between records of a pool that changes
GAP_S: Final = 60.0


@dataclass(slots=True)
class _Cell:
    """A stretch of time that is not written yet."""

    since_s: UtcS
    seen_until_s: UtcS  # its slots are known up to here
    slots: int  # from then on
    slot_s: float = 0.0
    is_even: bool = True  # the number never changed


class CapacityMeter:
    """Turns readings of the slots of each pool into records."""

    def __init__(self) -> None:
        self._cells: dict[str, _Cell] = {}

    def look(self, slots: Mapping[str, int], utc_s: UtcS) -> list[CapacityRecord]:
        """Take the current slots of each pool; return the records that can be written."""
        if not UNIX_EPOCH_S <= utc_s < CALENDAR_END_S:
            return []
        records: list[CapacityRecord] = []
        for pool in {*slots, *self._cells}:
            records += self._look(pool, slots.get(pool, 0), utc_s)
        return sorted(records, key=lambda each: (each.pool, each.since_s))

    def unwritten(self) -> list[CapacityRecord]:
        """Return records of the time not reported yet: to be read now, not to be written."""
        return [record for pool, cell in self._cells.items() for record in _records(pool, cell)]

    def close(self) -> list[CapacityRecord]:
        """Return records of the unwritten time, when there will be no more readings."""
        records = self.unwritten()
        self._cells.clear()
        return records

    def _look(self, pool: str, slots: int, utc_s: UtcS) -> Iterator[CapacityRecord]:
        cell = self._cells.get(pool)
        if cell is not None and not 0 <= utc_s - cell.seen_until_s <= GAP_S:
            yield from _records(pool, cell)
            cell = None
        if cell is None:
            self._cells[pool] = _Cell(utc_s, utc_s, slots)
            return
        hour_end_s = UtcS((cell.since_s // HOUR_S + 1) * HOUR_S)
        if utc_s >= hour_end_s:
            _count(cell, hour_end_s)
            yield from _records(pool, cell)
            cell = self._cells[pool] = _Cell(hour_end_s, hour_end_s, cell.slots)
        _count(cell, utc_s)
        is_changed = slots != cell.slots or not cell.is_even
        age_s = utc_s - cell.since_s
        if age_s >= RECORD_S or (is_changed and age_s >= CHANGE_S):
            yield from _records(pool, cell)
            self._cells[pool] = _Cell(utc_s, utc_s, slots)
        elif slots != cell.slots:
            cell.slots, cell.is_even = slots, age_s == 0.0


def uncounted(
    records: Iterable[CapacityRecord], kept: Iterable[CapacityRecord]
) -> list[CapacityRecord]:
    """Return the parts of records that are not in the books; `kept` are booked ones nearby."""
    fresh: list[CapacityRecord] = []
    taken = sorted((each.since_s, each.until_s) for each in kept)
    for record in records:
        since_s = record.since_s
        for low, high in taken:
            if low >= record.until_s:
                break
            if high <= since_s:
                continue
            if since_s < low:
                fresh.append(CapacityRecord(record.pool, since_s, low, record.slots))
            since_s = max(since_s, high)
        if since_s < record.until_s:
            fresh.append(CapacityRecord(record.pool, since_s, record.until_s, record.slots))
    return fresh


def _count(cell: _Cell, until_s: UtcS) -> None:
    cell.slot_s += cell.slots * (until_s - cell.seen_until_s)
    cell.seen_until_s = until_s


def _records(pool: str, cell: _Cell) -> Iterator[CapacityRecord]:
    """Yield one record, or two where the number of slots changed."""
    since_s, until_s = cell.since_s, cell.seen_until_s
    if until_s <= since_s:
        return
    if cell.is_even:
        if cell.slots:
            yield CapacityRecord(pool, since_s, until_s, cell.slots)
        return
    passed_s = until_s - since_s
    few = math.floor(cell.slot_s / passed_s)
    middle_s = min(until_s, since_s + (cell.slot_s - few * passed_s))  # one slot more up to here
    if middle_s > since_s:
        yield CapacityRecord(pool, since_s, middle_s, few + 1)
    if few and until_s > middle_s:
        yield CapacityRecord(pool, middle_s, until_s, few)
