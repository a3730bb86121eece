"""Deliveries that this site pays for, and no user: which those are, by usage records. Pure.

A task that was charged before and ran again at another site is delivered as any other is. Its usage
record alone says that it is overhead: it has a cost, and no user. It is of the delivery that its
tasks came back with: of those that have its tasks, the nearest in time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from federation.clocks import UtcS
from gateway.ledger.db.contracts.records import PendingDeliveries

DeliveryKey = tuple[str, int, int]  # contract, epoch, first task


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks [first, first + tasks) at a moment: a delivery to us, or a usage record of overhead."""

    first: int
    tasks: int
    cost_nanos: int
    at_s: UtcS


def overhead(
    deliveries: Mapping[DeliveryKey, Part], used: Iterable[Part]
) -> dict[DeliveryKey, tuple[int, int]]:
    """Tasks and nano-units (or whatever `cost_nanos` counts) of each delivery that are overhead.

    Args:
        deliveries: all of one job and seller, whatever their verdict.
        used: the overhead of the same job and seller.
    """
    ordered = sorted(deliveries.items(), key=lambda item: (item[1].first, item[0]))
    firsts = [part.first for _, part in ordered]
    longest = max((part.tasks for _, part in ordered), default=0)
    left = {key: part.cost_nanos for key, part in ordered}
    found: dict[DeliveryKey, tuple[int, int]] = {}
    for each in sorted(used, key=lambda part: (part.at_s, part.first)):
        stop = each.first + each.tasks
        low, high = bisect_left(firsts, stop - longest), bisect_right(firsts, each.first)
        near = [
            (abs(part.at_s - each.at_s), key)
            for key, part in ordered[low:high]
            if stop <= part.first + part.tasks and each.cost_nanos <= left[key]
        ]
        if near:
            _, key = min(near)
            tasks, nanos = found.get(key, (0, 0))
            found[key] = tasks + each.tasks, nanos + each.cost_nanos
            left[key] -= each.cost_nanos
    return found


def apart(
    whole: PendingDeliveries,
    deliveries: Mapping[DeliveryKey, Part],
    found: Mapping[DeliveryKey, tuple[int, int]],
) -> Iterator[PendingDeliveries]:
    """Some deliveries of one contract, summed up in `whole`: the user's, and overhead.

    A delivery of which a part is the user's counts as one of the user's.
    """
    kinds: tuple[list[tuple[int, int, int, UtcS]], ...] = ([], [])
    for key, part in deliveries.items():
        tasks, nanos = found.get(key, (0, 0))
        has_user = tasks < part.tasks
        if has_user:
            kinds[0].append((1, part.tasks - tasks, part.cost_nanos - nanos, part.at_s))
        if tasks:
            kinds[1].append((int(not has_user), tasks, nanos, part.at_s))
    nobody = replace(whole, user="", project="", group="")
    for pending, rows in zip((whole, nobody), kinds, strict=True):
        if rows:
            records, all_tasks, cost_nanos, times_at_s = zip(*rows, strict=True)
            yield replace(
                pending,
                records=sum(records),
                oldest_s=min(times_at_s),
                tasks=sum(all_tasks),
                cost_nanos=sum(cost_nanos),
            )
