"""Counts the slots of workers that are present, each host's agents once. Pure.

A worker that has come back has two sessions until the first one is given up: for the grace of the
site, and longer after a late gateway. Its slots are there once: otherwise they would be reserved,
advertised, priced and recorded twice. Agents of equal names on one host count as one.
"""

from collections.abc import Iterable

from gateway.scheduler.model.jobs import Worker


def slots_once(workers: Iterable[Worker]) -> int:
    """Return the slots of these workers; of one with two sessions, those of the larger one."""
    slots: dict[tuple[str, str, str], int] = {}
    for each in workers:
        # Without a host, as from an older agent, equal names say nothing.
        key = (each.offer.pool, each.name, each.host) if each.host else ("", "", str(each.handle))
        slots[key] = max(slots.get(key, 0), each.slots)
    return sum(slots.values())


def busy_slots(workers: Iterable[Worker]) -> tuple[int, int]:
    """Return the busy slots of these workers, and all of them: never more are busy than there are.

    A session that was lost keeps its tasks until it is given up.
    """
    members = list(workers)
    total = slots_once(members)
    return min(total, sum(min(each.slots, each.in_flight) for each in members)), total
