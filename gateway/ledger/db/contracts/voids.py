"""Finds the runs whose charge was taken back between sites: statements do not charge them. Pure.

Books have runs of tasks and deliveries of results, each with its time and cost, and under one
contract both have equal sums. The runs of a delivery are not recorded: they are matched by cost and
time. Where that is ambiguous, as where one run was delivered in parts, the amount is taken off the
runs that are nearest in time, so that the sum is right in any case.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from federation.clocks import UtcS

Key = tuple[int, int]  # the first task of a run, and its attempt
NEAR: Final = 16  # runs on either side that are searched for one of the same cost


def taken_back(
    runs: Sequence[tuple[UtcS, Key, int]], voids: Iterable[tuple[UtcS, int]]
) -> dict[Key, int]:
    """Return the amount that is taken off each run of a contract, in nano-units.

    Args:
        runs: (when it ended, its key, its cost), by end.
        voids: (when it was delivered, its cost) of the void deliveries, by time of delivery.
    """
    left = {key: cost for _, key, cost in runs}
    found: dict[Key, int] = {}
    ends = [at_s for at_s, _, _ in runs]
    for at_s, cost in voids:
        at = bisect_left(ends, at_s)
        near = sorted(runs[max(0, at - NEAR) : at + NEAR], key=lambda run: abs(run[0] - at_s))
        same = (key for _, key, _ in near if left[key] == cost)
        others = (runs[each][1] for each in chain(range(at - 1, -1, -1), range(at, len(runs))))
        for key in chain(same, others):
            part = min(cost, left[key])
            if part:
                left[key] -= part
                found[key] = found.get(key, 0) + part
                cost -= part
            if not cost:
                break
    return found
