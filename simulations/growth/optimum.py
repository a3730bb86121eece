"""What a day of work would have cost somebody who had known it all before. Pure.

Two figures, one above and one below what the best could pay:

*For the same waiting* (`cost_of_curve`): every task runs when it ran with us. Of the slots that are
busy at a moment the k-th is level k; a level is busy in some spans of time and idle in the gaps
between them. Whoever knows the gaps starts each level so that it is ready at the first span, and at
each gap takes the cheaper of two: to stay, and pay for the gap, or to stop and start again. By the
second that is `min(gap, start)` for each gap (rent or buy, with knowledge); tasks do not move, and
levels are the best way to share them out (the last slot that fell idle goes first: Lu, Chen and
Andrew 2013, "Simple and effective dynamic provisioning for power-proportional data centers"). Where
time is billed in steps a run of a level costs whole ones, and the cheapest way to cut the level
into runs is found by going through its spans (`_cheapest_runs`).

*Whatever the waiting*: nobody pays less than for each slot-second of the work, and one start.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[float, float, int]  # from, to, so many slots


class Terms(NamedTuple):
    """What a slot costs beside its work.

    Attributes:
        start_s: that are paid before it can work, at each start.
        step_s: time is billed in whole steps of this; 0: by the second.
        least_s: that each run of a slot is billed, at least.
    """

    start_s: float
    step_s: float = 0.0
    least_s: float = 0.0

    def bill(self, busy_s: float) -> float:
        """What one run of a slot costs, from its start to its stop."""
        paid_s = max(self.least_s, self.start_s + busy_s)
        return math.ceil(paid_s / self.step_s - 1e-9) * self.step_s if self.step_s else paid_s


def cost_of_curve(spans: Iterable[Span], terms: Terms) -> float:
    """The least slot-seconds that serve these, each in its own time.

    In steps it is the least of two ways: by levels, or a slot for each span alone.
    """
    spans = list(spans)
    in_levels = sum(_cheapest_runs(level, terms) for level in levels(spans))
    alone = sum(slots * terms.bill(end_s - begin_s) for begin_s, end_s, slots in spans)
    return min(in_levels, alone)


def levels(spans: Iterable[Span]) -> list[list[tuple[float, float]]]:
    """For each level the spans of time in which it is busy, in order."""
    changes: dict[float, int] = {}
    for begin_s, end_s, slots in spans:
        if end_s > begin_s:
            changes[begin_s] = changes.get(begin_s, 0) + slots
            changes[end_s] = changes.get(end_s, 0) - slots
    found: list[list[tuple[float, float]]] = []
    since: list[float] = []  # when each level that is busy became so
    for at_s in sorted(changes):
        more = changes[at_s]
        for _ in range(more):
            since.append(at_s)
        for _ in range(-more):
            begin_s = since.pop()
            while len(found) <= len(since):
                found.append([])
            found[len(since)].append((begin_s, at_s))
    return found


def _cheapest_runs(busy: Sequence[tuple[float, float]], terms: Terms) -> float:
    """The least that one level costs, cut into runs at some of its gaps."""
    best = [0.0]  # of the first so many spans
    for last in range(len(busy)):
        end_s = busy[last][1]
        found = math.inf
        for first in range(last, -1, -1):
            length_s = end_s - busy[first][0]
            if length_s + terms.start_s >= found:
                break  # no run so long is cheaper, whatever comes before it
            found = min(found, best[first] + terms.bill(length_s))
        best.append(found)
    return best[-1]
