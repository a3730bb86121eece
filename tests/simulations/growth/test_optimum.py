"""The least possible bill: small cases by hand, and all tiny cases tried out."""

from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulations.growth.optimum import SlotCosts, least_for_curve, levels, steps_needed


@pytest.mark.parametrize(
    ("spans", "terms", "expected"),
    [
        pytest.param([], SlotCosts(10), 0, id="no work"),
        pytest.param([(0, 100, 3)], SlotCosts(10), 330, id="three slots, each started once"),
        pytest.param(
            [(0, 100, 1), (105, 200, 1)], SlotCosts(10), 210, id="it stays for five seconds"
        ),
        pytest.param([(0, 100, 1), (150, 200, 1)], SlotCosts(10), 170, id="it stops for fifty"),
        pytest.param([(0, 50, 1), (20, 50, 1)], SlotCosts(10), 100, id="two levels"),
        pytest.param([(0, 100, 1)], SlotCosts(10, 3600), 3600, id="a whole hour"),
        pytest.param(
            [(0, 3600, 2)], SlotCosts(0, 3600), 7200, id="no hour that nothing is done in"
        ),
        pytest.param(
            [(0, 100, 1), (3000, 3100, 1)], SlotCosts(10, 3600), 3600, id="in the same hour"
        ),
        pytest.param(
            [(0, 100, 1), (7300, 7400, 1)], SlotCosts(9, 3600), 7200, id="two hours, not 3"
        ),
        pytest.param(
            [(0, 3595, 2)], SlotCosts(9, 3600), 14400, id="a start, and then no whole hour"
        ),
        pytest.param(
            [(0, 3595, 1), (3600, 7190, 1)], SlotCosts(9, 3600), 7200, id="one start for two tasks"
        ),
        pytest.param([(0, 4000, 1), (100, 4100, 1)], SlotCosts(9, 3600), 14400, id="two each"),
        pytest.param(
            [(0, 100, 1), (3000, 3700, 1)], SlotCosts(9, 3600), 7200, id="goes on in another hour"
        ),
        pytest.param(
            [(0, 100, 1)], SlotCosts(10, 1), 110, id="the start counts where steps are short"
        ),
    ],
)
def test_what_it_costs_at_least(spans, terms, expected):
    assert least_for_curve(spans, terms) == pytest.approx(expected)


def tiny(spans):
    """At so few slots that all ways to serve them can be tried."""
    return st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 2)).map(
            lambda each: (each[0], each[0] + each[1], each[2])
        ),
        max_size=spans,
    )


def curve(spans):
    return [sum(n for begin, end, n in spans if begin <= at < end) for at in range(15)]


def runs_of(steps, begins):
    """All lots of runs that have so many steps together; of each its begin, and its steps."""
    if not steps:
        yield []
    for at, begin in enumerate(begins):
        for length in range(1, steps + 1):
            for others in runs_of(steps - length, begins[at:]):
                yield [(begin, length), *others]


@given(tiny(3), st.integers(1, 6), st.integers(0, 4))
@example([(0, 1, 1), (3, 4, 1)], 4, 0)
@example([(0, 4, 1), (4, 8, 1)], 4, 1)
def test_no_fewer_steps_serve_a_curve(spans, step, start):
    """All lots of runs of one step less are tried, and one of as many serves it."""
    busy = curve(spans)
    found = steps_needed(spans, SlotCosts(start, step))
    assert found >= max(busy)
    if not 1 <= found <= 3:
        return

    def serves(runs):
        there = (sum(at < b + n * step - start for b, n in runs if b <= at) for at in range(15))
        return all(n >= wanted for n, wanted in zip(there, busy, strict=True))

    assert not any(serves(runs) for runs in runs_of(found - 1, range(15)))
    assert any(serves(runs) for runs in runs_of(found, range(15)))


def least_by_trying(spans, bill):
    """The cost of the cheapest way to have each task on one slot, in its own time."""
    tasks = sorted((begin, end) for begin, end, slots in spans for _ in range(slots))
    best = [sum(bill(end - begin) for begin, end in tasks)]

    def give(number, slots, cost):
        if cost >= best[0]:
            return
        if number == len(tasks):
            best[0] = cost
            return
        begin, end = tasks[number]
        for at, (since, until) in enumerate(slots):
            if until <= begin:
                more = bill(end - since) - bill(until - since)
                give(number + 1, [*slots[:at], (since, end), *slots[at + 1 :]], cost + more)
        give(number + 1, [*slots, (begin, end)], cost + bill(end - begin))

    give(0, [], 0.0)
    return best[0]


@given(tiny(4), st.integers(0, 4), st.integers(0, 5), st.integers(0, 6))
def test_nobody_pays_less(spans, start, step, least):
    """With any minimum bill for each run."""

    def bill(length):
        paid = max(least, start + length)
        return ceil(paid / step) * step if step else paid

    found = least_for_curve(spans, SlotCosts(start, step))
    assert sum((end - begin) * slots for begin, end, slots in spans) <= found
    assert found <= least_by_trying(spans, bill)


@given(tiny(5), st.integers(0, 4))
def test_by_the_second_somebody_pays_just_that(spans, start):
    """Of all numbers of slots, at least as many as are busy: the cheapest, moment by moment."""
    busy = curve(spans)
    cost = {0: 0}
    for wanted in busy:
        cost = {
            there: there
            + min(paid + start * max(0, there - before) for before, paid in cost.items())
            for there in range(wanted, max(busy) + 1)
        }
    assert least_for_curve(spans, SlotCosts(start)) == min(cost.values())


@given(tiny(12))
def test_levels_are_as_busy_as_the_curve(spans):
    found = levels(spans)
    assert curve([(*span, 1) for level in found for span in level]) == curve(spans)
