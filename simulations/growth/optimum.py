"""Lower bounds of the cost of a whole day of work that is known in advance. Pure.

Both bounds are below the true optimum, so a ratio to them is never below one, and a promise about
the optimum holds where it holds for them.

*For the same waiting* (`least_for_curve`): every task runs when it ran in the simulation. That
gives a curve: the number of busy slots at each moment. Any existing slots may serve it, and a
running task may change from one to another at no cost: that only lowers the bound. The minimum bill
of each run is left out, with the same effect.

- By the second (`_in_levels`) the least is exact for such a curve. Of the slots that exist at a
  moment the k-th is level k. Both the paid time and the number of starts are the sums of those of
  the levels (a start is where some level begins), and level k must exist whenever the curve is at k
  or above. So each level is independent: at each gap of the curve there it pays the cheaper of two,
  to stay or to stop and start again. (The same slots by another way: Lu, Chen and Andrew 2013,
  "Simple and effective dynamic provisioning for power-proportional data centers".)
- In steps (`steps_needed`) a run of n steps is available for n steps less its start. The fewest
  steps are exact for such a curve, by a linear program (HiGHS): a number of runs of each kind, the
  least steps in all, and at each moment no fewer than are busy. * A run begins only where the curve
  rises. Of the best ways take one with the fewest runs, and of those one whose runs begin the
  latest. Suppose a run begins at another moment. If no other run ends there, it could begin later;
  if one does, that one could go on for as many steps instead, for one start less. * Between two
  changes of the curve runs only end. So a run that ends before the second change is of no use, and
  the program has as many rows as the curve has changes. * Each run covers consecutive moments: such
  a matrix is totally unimodular, so the program's best has whole numbers. (It is a flow on a line:
  the slots at a moment go on from it; Veinott and Wagner 1962.)

*For any waiting*: the cost is at least each slot-second of the work.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from scipy.optimize import linprog
from scipy.sparse import csr_array

Span = tuple[float, float, int]  # from, to, number of slots
SLACK: Final = 1e-6  # seconds of tolerance on a run's end: sums of moments are not exact


class SlotCosts(NamedTuple):
    """The costs of a slot beside its work.

    Attributes:
        start_s: seconds paid before it can work, at each start.
        step_s: the billing step; 0: by the second.
    """

    start_s: float
    step_s: float = 0.0


def least_for_curve(spans: Iterable[Span], terms: SlotCosts) -> float:
    """Return the least slot-seconds that serve these spans, each in its own time.

    In steps the bound by the second holds too: a step is no shorter than its used part.
    """
    spans = list(spans)
    in_seconds = sum(_in_levels(level, terms.start_s) for level in levels(spans))
    return max(in_seconds, steps_needed(spans, terms) * terms.step_s)


def levels(spans: Iterable[Span]) -> list[list[tuple[float, float]]]:
    """Return for each level its busy spans of time, in order."""
    found: list[list[tuple[float, float]]] = []
    since: list[float] = []  # when each busy level became so
    for at_s, more in _changes(spans):
        since += [at_s] * more
        for _ in range(-more):
            begin_s = since.pop()
            while len(found) <= len(since):
                found.append([])
            found[len(since)].append((begin_s, at_s))
    return found


def steps_needed(spans: Iterable[Span], terms: SlotCosts) -> int:
    """Return the fewest steps of runs that serve these spans; 0 without steps."""
    changes = _changes(spans)
    if not terms.step_s or not changes:
        return 0
    moments = [at_s for at_s, _ in changes]
    # From a change to another: a run, or (back to the one before, for nothing) a slot that is idle.
    arcs = [(at, at - 1, 0) for at in range(1, len(moments))]
    for at, (begin_s, more) in enumerate(changes):
        if more > 0:
            arcs += [(at, until, steps) for until, steps in _runs(moments, begin_s, terms)]
    rows = [begin for begin, _, _ in arcs] + [until for _, until, _ in arcs]
    signs = [1.0] * len(arcs) + [-1.0] * len(arcs)
    matrix = csr_array((signs, (rows, 2 * list(range(len(arcs))))), (len(moments), len(arcs)))
    found = linprog(
        [steps for _, _, steps in arcs], A_eq=matrix, b_eq=[more for _, more in changes]
    )
    if not found.success:
        raise ArithmeticError(f"the optimum was not found: {found.message}")
    return round(float(found.fun))


def _runs(moments: Sequence[float], begin_s: float, terms: SlotCosts) -> Iterable[tuple[int, int]]:
    """Yield the runs that may begin at a moment: their last change, and their steps."""
    before, steps = bisect_right(moments, begin_s) - 1, 0
    while before < len(moments) - 1:
        steps += 1
        until_s = begin_s + steps * terms.step_s - terms.start_s + SLACK
        until = bisect_right(moments, until_s) - 1
        if until > before:
            yield until, steps
            before = until


def _changes(spans: Iterable[Span]) -> list[tuple[float, int]]:
    """Return by how much the number of busy slots changes at each moment, in order."""
    changes: dict[float, int] = {}
    for begin_s, end_s, slots in spans:
        if end_s > begin_s:
            changes[begin_s] = changes.get(begin_s, 0) + slots
            changes[end_s] = changes.get(end_s, 0) - slots
    return sorted(changes.items())


def _in_levels(busy: Sequence[tuple[float, float]], start_s: float) -> float:
    """Return the least cost of one level, by the second."""
    gaps = sum(min(start_s, after[0] - before[1]) for before, after in pairwise(busy))
    return start_s + sum(end_s - begin_s for begin_s, end_s in busy) + gaps
