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
- In steps (`steps_needed`) a run of n steps is there for n steps less its start. The fewest steps
  are exact for such a curve, by a linear program (HiGHS): so many runs of each kind, the least
  steps in all, and at each moment no fewer than are busy.
  * A run begins only where the curve rises. Of the best ways take one of the fewest runs, and of
    those one whose runs begin the latest. Were there a run that begins at another moment, then
    nobody else ends there, and it could begin later; or one does, and could go on for as many steps
    instead, for one start less.
  * Between two changes of the curve runs only end. So who is not there until the second is no help,
    and the program has as many rows as the curve has changes.
  * Each run is there for moments that follow on each other: such a matrix is totally unimodular, so
    the program's best has whole numbers. (It is a flow on a line: what is there at a moment goes on
    from it; Veinott and Wagner 1962.)

*Whatever the waiting*: nobody pays less than for each slot-second of the work.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from scipy.optimize import linprog
from scipy.sparse import csr_array

Span = tuple[float, float, int]  # from, to, so many slots
SLACK: Final = 1e-6  # seconds that a run is there for more: sums of moments are not exact


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
    return max(in_seconds, steps_needed(spans, terms) * terms.step_s)


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


def steps_needed(spans: Iterable[Span], terms: Terms) -> int:
    """The fewest steps of runs that serve these spans; none where there are no steps."""
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
        raise ArithmeticError(f"no fewest steps were found: {found.message}")
    return round(float(found.fun))


def _runs(moments: Sequence[float], begin_s: float, terms: Terms) -> Iterable[tuple[int, int]]:
    """The runs that may begin at a moment: until which, and of how many steps."""
    before, steps = bisect_right(moments, begin_s) - 1, 0
    while before < len(moments) - 1:
        steps += 1
        until_s = begin_s + steps * terms.step_s - terms.start_s + SLACK
        until = bisect_right(moments, until_s) - 1
        if until > before:
            yield until, steps
            before = until


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
