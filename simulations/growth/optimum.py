"""What nobody could have paid less than, had he known a whole day of work before. Pure.

Two bounds. Both are below what the best could pay, so that a ratio to them is never below one, and
what was promised of the optimum holds where it holds of them.

*For the same waiting* (`least_for_curve`): every task runs when it ran with us, so that there is a
curve: how many slots are busy at each moment. It may be served by any slots that are there, and a
task that runs may change from one to another at no cost: that only makes the bound lower. What a
grid bills at least for each run is left out, which does the same.

- By the second (`_in_levels`) the least is exact for such a curve. Of the slots that are there at a
  moment the k-th is level k. Both the time that is paid and the number of starts are the sums of
  those of the levels (a start is where some level begins), and level k must be there whenever the
  curve is at k or above. So each level is a matter by itself: at each gap of the curve there it
  pays the cheaper of two, to stay or to stop and start again. (The same slots by another way: Lu,
  Chen and Andrew 2013, "Simple and effective dynamic provisioning for power-proportional data
  centers".)
- In steps (`steps_needed`) a run of n steps is n blocks of a step each, one after another; that a
  slot can't work while it starts is left out, which is much where tasks fill whole steps (see the
  README). The fewest blocks that cover a curve are found from
  left to right: a block is begun only at a moment at which there are too few. Proof: let blocks
  that cover the curve begin at c1 <= c2 <= ..., and those found at g1 <= g2 <= ...; then ci <= gi.
  For if that holds up to i - 1, and ci > gi, those of the c that are there at gi are among the
  first i - 1, and of those each g is there too, as it has begun by gi and ends no sooner: so there
  are no more of the c than of the g, which are too few. Hence there are as many c as g, or more.

*Whatever the waiting*: nobody pays less than for each slot-second of the work.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

Span = tuple[float, float, int]  # from, to, so many slots


class Terms(NamedTuple):
    """What a slot costs beside its work.

    Attributes:
        start_s: that are paid before it can work, at each start.
        step_s: time is billed in whole steps of this; 0: by the second.
    """

    start_s: float
    step_s: float = 0.0


def least_for_curve(spans: Iterable[Span], terms: Terms) -> float:
    """The slot-seconds below which nobody serves these spans, each in its own time.

    In steps the bound by the second holds too: a step is no shorter than what is used of it.
    """
    spans = list(spans)
    in_seconds = sum(_in_levels(level, terms.start_s) for level in levels(spans))
    return max(in_seconds, steps_needed(spans, terms.step_s) * terms.step_s)


def levels(spans: Iterable[Span]) -> list[list[tuple[float, float]]]:
    """For each level the spans of time in which it is busy, in order."""
    found: list[list[tuple[float, float]]] = []
    since: list[float] = []  # when each level that is busy became so
    for at_s, more in _changes(spans):
        since += [at_s] * more
        for _ in range(-more):
            begin_s = since.pop()
            while len(found) <= len(since):
                found.append([])
            found[len(since)].append((begin_s, at_s))
    return found


def steps_needed(spans: Iterable[Span], step_s: float) -> int:
    """The fewest blocks of a step each that cover these spans; none where there are no steps."""
    if not step_s:
        return 0
    blocks: deque[tuple[float, int]] = deque()  # that are there: their end, how many
    needed = there = busy = 0
    changes = deque(_changes(spans))
    while changes:
        at_s = min(changes[0][0], blocks[0][0] if blocks else changes[0][0])
        while blocks and blocks[0][0] <= at_s:
            there -= blocks.popleft()[1]
        if changes[0][0] <= at_s:
            busy += changes.popleft()[1]
        if busy > there:
            needed += busy - there
            blocks.append((at_s + step_s, busy - there))
            there = busy
    return needed


def _changes(spans: Iterable[Span]) -> list[tuple[float, int]]:
    """By how much the number of busy slots changes at each moment, in order."""
    changes: dict[float, int] = {}
    for begin_s, end_s, slots in spans:
        if end_s > begin_s:
            changes[begin_s] = changes.get(begin_s, 0) + slots
            changes[end_s] = changes.get(end_s, 0) - slots
    return sorted(changes.items())


def _in_levels(busy: Sequence[tuple[float, float]], start_s: float) -> float:
    """The least that one level costs, by the second."""
    gaps = sum(min(start_s, after[0] - before[1]) for before, after in pairwise(busy))
    return start_s + sum(end_s - begin_s for begin_s, end_s in busy) + gaps
