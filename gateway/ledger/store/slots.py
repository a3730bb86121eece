"""The slots that pools offered, by pool and hour: those in the books and those still unwritten."""

from collections.abc import Iterable

from federation.clocks import UtcS
from gateway.ledger.accounting.capacity import uncounted
from gateway.ledger.db.usage.queries import hours_between
from gateway.ledger.db.usage.records import CapacityRecord, CapacityTotal
from gateway.ledger.db.usage.store import UsageStore


def slots_of(
    usage: UsageStore, start_at_s: UtcS, end_at_s: UtcS, unwritten: Iterable[CapacityRecord]
) -> list[CapacityTotal]:
    """Return `UsageStore.capacity_totals` with capacity that may not be written yet.

    A gateway writes the capacity that it sees each quarter of an hour: without the unwritten part,
    a pool that has just started would have no slots.
    """
    found = {
        (each.pool, each.hour): each.slot_ns for each in usage.capacity_totals(start_at_s, end_at_s)
    }
    first, stop = hours_between(start_at_s, end_at_s)
    for record in unwritten:
        if first <= record.hour < stop:
            fresh = uncounted([record], usage.capacity_of(record.pool, record.hour))
            at = (record.pool, record.hour)
            found[at] = found.get(at, 0) + sum(each.slot_ns for each in fresh)
    return [CapacityTotal(*at, slot_ns) for at, slot_ns in sorted(found.items())]
