"""Forecasts of coming hours: packed for an advert, and as a curve to compute with. Pure.

An `Outlook` is the form on the wire: steps of one length. A `Curve` is any step function of time,
be it grams, money, or an objective's value of both; its mean over a span is the mean for a run of
that span.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Final

from federation.clocks import UtcS
from federation.messages.adverts import (
    OUTLOOK_STEP_MAX_S,
    OUTLOOK_STEP_MIN_S,
    OUTLOOK_STEPS_MAX,
    Outlook,
)

HORIZON_S: Final = 48 * 3_600.0  # weather forecasts reach no further, and adverts are small
MG_IN_DG: Final = 100
JITTER_S: Final = 0.5  # times that differ by less are the same


class Curve:
    """A step function of time.

    Args:
        edges: when it changes, in order.
        values: the values before the first edge, between edges, and after the last.
    """

    __slots__ = ("_sums", "edges", "least", "values")

    def __init__(self, edges: Sequence[UtcS], values: Sequence[float]) -> None:
        assert len(values) == len(edges) + 1, "an outlook needs one value more than it has edges"
        self.edges = edges
        self.values = values
        self.least = min(values)
        pieces = zip(values[1:], pairwise(edges), strict=False)
        spans = (value * (stop - start) for value, (start, stop) in pieces)
        self._sums = list(accumulate(spans, initial=0.0))  # from the first edge to each

    def at(self, time: UtcS) -> float:
        """Return the value at a time; at an edge, the value from then on."""
        return self.values[bisect_right(self.edges, time)]

    def mean(self, begin: UtcS, end: UtcS) -> float:
        """Return the mean over [begin, end), weighted by time; of an empty span, the value then."""
        first = bisect_right(self.edges, begin)
        last = bisect_left(self.edges, end)
        if last <= first:
            return self.values[first]
        edges, values, sums = self.edges, self.values, self._sums
        whole = (
            values[first] * (edges[first] - begin)
            + (sums[last - 1] - sums[first])
            + values[last] * (end - edges[last - 1])
        )
        return whole / (end - begin)

    def times(self, factor: float) -> "Curve":
        """Return a copy scaled by a factor."""
        return Curve(self.edges, [factor * value for value in self.values])


def flat(value: float) -> Curve:
    """Return a constant curve."""
    return Curve((), (value,))


def added(curves: Iterable[Curve]) -> Curve:
    """Return the sum of curves, at each time."""
    some = list(curves)
    if len(some) == 1:
        return some[0]
    edges = sorted({edge for curve in some for edge in curve.edges})
    before = sum(curve.values[0] for curve in some)
    return Curve(edges, [before, *(sum(curve.at(edge) for curve in some) for edge in edges)])


def curve_of(now: float, ahead: Outlook) -> Curve:
    """Return the curve of an outlook, preceded by the current figure until the outlook begins.

    After its end the worst value counts: no work waits for hours without a forecast. In the unit of
    `now`, a gram a kilowatt-hour.
    """
    edges = [ahead.from_s + ahead.step_s * at for at in range(len(ahead.dg_per_kwh) + 1)]
    known = [now, *(each / 10 for each in ahead.dg_per_kwh)]
    return Curve(edges, [*known, max(known)])


def outlook(
    steps: Sequence[tuple[UtcS, int]], utc_s: UtcS, step_s: float | None = None
) -> Outlook | None:
    """Pack a forecast; None when there is none.

    Steps are times, in order, with milligrams a kilowatt-hour from then on. Each holds for
    `step_s`, or else for the most common length; so where one is missing the outlook ends: it is
    not interpolated from its neighbours. Too many steps are averaged, a few at a time.
    """
    step_s = _length_s(steps) if step_s is None else step_s
    known = [each for each in steps if utc_s < each[0] <= utc_s + HORIZON_S]
    known = known[: _unbroken(known, step_s)]
    if not known or not OUTLOOK_STEP_MIN_S <= step_s <= OUTLOOK_STEP_MAX_S:
        return None
    together = -(-len(known) // OUTLOOK_STEPS_MAX)
    known = known[: len(known) // together * together]
    groups = [known[at : at + together] for at in range(0, len(known), together)]
    means = tuple(_mean_dg([mg for _, mg in group]) for group in groups)
    return Outlook(known[0][0], step_s * together, means)


def differs(one: Outlook | None, other: Outlook | None, share: float) -> bool:
    """Whether two outlooks differ enough to change plans: by more than a share somewhere.

    One that is missing differs, too. Times that one of them does not cover make no difference.
    """
    if one is None or other is None:
        return one is not other
    steps = enumerate(other.dg_per_kwh)
    for at, dg in steps:
        middle_s = other.from_s + (at + 0.5) * other.step_s
        place = int((middle_s - one.from_s) // one.step_s)
        if 0 <= place < len(one.dg_per_kwh):
            before = one.dg_per_kwh[place]
            if abs(dg - before) > share * before:
                return True
    return False


def _length_s(steps: Sequence[tuple[UtcS, int]]) -> float:
    """Return the median length of the steps; an hour, where there is only one."""
    gaps = [after - before for (before, _), (after, _) in pairwise(steps)]
    return median_low(gaps) if gaps else 3_600.0


def _unbroken(steps: Sequence[tuple[UtcS, int]], step_s: float) -> int:
    """Return how many of them follow each other without a gap."""
    for at, ((before, _), (after, _)) in enumerate(pairwise(steps)):
        if abs(after - before - step_s) > JITTER_S:
            return at + 1
    return len(steps)


def _mean_dg(mg: Sequence[int]) -> int:
    return (2 * sum(mg) + MG_IN_DG * len(mg)) // (2 * MG_IN_DG * len(mg))
