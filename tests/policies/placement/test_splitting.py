"""Splits: GridWay's formula, Nimrod-G's three optimisations, and limits that are never broken."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.pure.market import CENT

from federation.reasons import Reason
from policies.placement.asks import CHEAPEST, FASTEST, GREENEST, Objective
from policies.placement.splitting import Lane, SplitLimits, fastest, fill, split

BAND = 0.10
NONE = SplitLimits()


def lane(name="a", slots=10, task_s=10.0, **changes):
    return Lane(("site", name), slots / task_s, task_s, **changes)


lanes_of = st.lists(
    st.builds(
        lane,
        slots=st.integers(1, 500),
        task_s=st.floats(0.01, 100),
        start_s=st.floats(0, 100),
        closes_s=st.just(math.inf) | st.floats(1, 10**4),
        tasks_max=st.integers(0, 10**5),
        price_nanos=st.integers(0, 10**9),
        task_g=st.floats(0, 10),
    ),
    min_size=1,
    max_size=6,
).map(lambda some: [replace(one, key=("site", str(n))) for n, one in enumerate(some)])
objectives = st.builds(
    Objective, st.floats(0.01, 1), *[st.sampled_from([0.0, 0.3, 1.0])] * 2
) | st.sampled_from([CHEAPEST, FASTEST, GREENEST])
counts = st.integers(1, 10**6)


def test_what_is_left_by_rounding_goes_nowhere_beyond_its_room() -> None:
    """Rates that differ by more than the digits of a float: the shares add up to too little."""
    small = Lane(("site", "a"), 1.4e12, 1.0, tasks_max=1)
    large = Lane(("site", "b"), 8.5e16, 1.0, start_s=1.0)
    assert fastest([large, small], 778_628) == [778_627, 1]


def test_a_budget_pays_first_for_what_is_somewhere_in_any_case() -> None:
    """At 1 and 10 nanos a task: 3 and 1 are there, for 13; the other 44 pay for 1 and 4 more."""
    lanes = [
        Lane(("site", "a"), 1.0, 1.0, tasks_min=1, price_nanos=36_000),
        Lane(("site", "b"), 1.0, 1.0, tasks_min=3, tasks_max=4, price_nanos=3_600),
    ]
    found = split(lanes, 50, CHEAPEST, SplitLimits(budget_nanos=57), BAND)
    assert (found.tasks, found.reason) == ((5, 4), Reason.COST_LIMIT)
    assert found.cost_nanos == 54


# --- the model --------------------------------------------------------------------------------


def test_the_model_of_a_homogeneous_pool() -> None:
    # research 4.16: N slots and task time T give r∞ = N/T and n½ = N/2.
    one = lane(slots=40, task_s=8.0)
    assert (one.rate, one.head) == (5.0, 20.0)
    # A start t later is behind by r·t tasks more.
    assert replace(one, start_s=4.0).head == 40.0


@pytest.mark.parametrize(("tasks", "seconds"), [(0, 0), (1, 13), (10, 13), (11, 23), (100, 103)])
def test_a_lane_finishes_in_whole_rounds(tasks, seconds) -> None:
    one = lane(start_s=3.0)
    assert one.finish_s(tasks) == seconds
    assert one.tasks_by(seconds) >= tasks


def test_what_a_lane_can_do_by_a_time_is_bounded_by_all_that_bounds_it() -> None:
    assert lane().tasks_by(35) == 30
    assert lane(closes_s=25).tasks_by(35) == 20
    assert lane(tasks_max=7).tasks_by(35) == 7
    assert lane(tasks_min=40).tasks_by(35) == 40
    assert lane(start_s=30).tasks_by(35) == 0
    assert lane(start_s=30).tasks_by(-1) == 0


# --- the fastest split ---------------------------------------------------------------------------


def test_the_fastest_split_is_gridways_formula() -> None:
    lanes = [lane("a", 100, 10.0), lane("b", 50, 10.0, start_s=20.0), lane("c", 10, 2.0)]
    tasks = 3000
    rates, heads = sum(each.rate for each in lanes), sum(each.head for each in lanes)
    ideal = [each.rate * (tasks + heads) / rates - each.head for each in lanes]
    given_ = fastest(lanes, tasks)
    assert sum(given_) == tasks
    assert all(abs(n - share) < 1 for n, share in zip(given_, ideal, strict=True))


def test_a_site_that_would_get_less_than_one_task_is_dropped() -> None:
    far = lane("far", 10, 10.0, start_s=1000.0)
    assert fastest([lane("near"), far], 50) == [50, 0]
    # Without it the formula holds for the others alone.
    assert fastest([lane("a"), far, lane("b")], 50) == [25, 0, 25]


def test_one_task_goes_to_one_lane() -> None:
    assert sorted(fastest([lane(str(n)) for n in range(5)], 1)) == [0, 0, 0, 0, 1]


def test_lanes_keep_their_bounds_and_the_others_take_the_rest() -> None:
    lanes = [lane("a", tasks_max=5), lane("b"), lane("c", tasks_min=60)]
    assert fastest(lanes, 100) == [5, 35, 60]


@given(lanes_of, counts)
def test_the_fastest_split_places_all_within_bounds(lanes, tasks) -> None:
    assume(sum(each.tasks_max for each in lanes) >= tasks)
    given_ = fastest(lanes, tasks)
    assert sum(given_) == tasks
    assert all(0 <= n <= each.tasks_max for n, each in zip(given_, lanes, strict=True))


@given(lanes_of, st.integers(500, 10**5))
def test_no_lane_of_the_fastest_split_ends_much_before_another(lanes, tasks) -> None:
    lanes = [replace(each, tasks_max=10**7, closes_s=math.inf) for each in lanes]
    given_ = fastest(lanes, tasks)
    ends = [
        ((n + each.head) / each.rate, 1 / each.rate)
        for n, each in zip(given_, lanes, strict=True)
        if n
    ]
    last = max(end for end, _ in ends)
    assert all(last - end <= (step + max(s for _, s in ends)) * 1.01 for end, step in ends)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([1.0, 2.0, 5.0])), min_size=2, max_size=3
    ),
    st.integers(1, 25),
)
def test_the_fastest_split_is_near_the_best_there_is(shapes, tasks) -> None:
    lanes = [lane(str(n), slots, task_s) for n, (slots, task_s) in enumerate(shapes)]

    def ends(given_):
        return max(each.finish_s(n) for each, n in zip(lanes, given_, strict=True))

    best = min(
        ends((*some, tasks - sum(some)))
        for some in product(range(tasks + 1), repeat=len(lanes) - 1)
        if sum(some) <= tasks
    )
    # The model is a straight line through a staircase: it is off by a round at most.
    assert ends(fastest(lanes, tasks)) <= best + max(task_s for _, task_s in shapes)
    chosen = split(lanes, tasks, FASTEST, NONE, 0.0)
    assert chosen.finish_s <= ends(fastest(lanes, tasks))


# --- objectives ----------------------------------------------------------------------------------

CHEAP = lane("cheap", 10, price_nanos=1 * CENT, task_g=2.0)
MIDDLE = lane("middle", 20, price_nanos=2 * CENT, task_g=1.0)
DEAR = lane("dear", 70, price_nanos=4 * CENT, task_g=3.0)
THREE = [CHEAP, MIDDLE, DEAR]


def test_cost_optimisation_fills_the_cheapest_up_to_the_deadline() -> None:
    # Nimrod-G: n_s = ⌊r_s·(D - t)⌋ by ascending cost. 10 and 20 in 5 rounds each, then the dear.
    chosen = split(THREE, 200, CHEAPEST, SplitLimits(deadline_s=50.0), 0.0)
    assert chosen.tasks == (50, 100, 50)
    assert chosen.finish_s <= 50
    assert split(THREE, 200, CHEAPEST, NONE, 0.0).tasks == (200, 0, 0)


def test_time_optimisation_uses_all() -> None:
    chosen = split(THREE, 1000, FASTEST, NONE, 0.0)
    assert chosen.finish_s == 100.0
    assert chosen.tasks == (100, 200, 700)


def test_time_optimisation_keeps_to_the_budget() -> None:
    all_cheap = sum(each.cost_nanos(1000) for each in THREE[:1])
    fastest_of_all = split(THREE, 1000, FASTEST, NONE, 0.0)
    budget_nanos = (all_cheap + fastest_of_all.cost_nanos) // 2
    chosen = split(THREE, 1000, FASTEST, SplitLimits(budget_nanos=budget_nanos), 0.0)
    assert chosen.short == 0
    assert chosen.cost_nanos <= budget_nanos
    assert fastest_of_all.finish_s < chosen.finish_s < CHEAP.finish_s(1000)


def test_equally_dear_places_are_used_together() -> None:
    # Cost-time optimisation, Buyya and Murshed: within a group of equal cost, time.
    twins = [CHEAP, replace(CHEAP, key=("site", "twin")), DEAR]
    chosen = split(twins, 200, CHEAPEST, NONE, 0.0)
    assert chosen.tasks == (100, 100, 0)


def test_nearly_equal_is_equal_within_the_band() -> None:
    close = [CHEAP, replace(CHEAP, key=("site", "twin"), price_nanos=105 * CENT // 100)]
    assert min(split(close, 200, CHEAPEST, NONE, BAND).tasks) >= 80
    assert split(close, 200, CHEAPEST, NONE, 0.0).tasks == (200, 0)


def test_the_greenest_waits_for_green_slots() -> None:
    assert split([MIDDLE, CHEAP, DEAR], 500, GREENEST, NONE, BAND).tasks == (500, 0, 0)


def test_weights_lie_between() -> None:
    plans = [
        split(THREE, 1000, Objective(money=money, time=1 - money), NONE, 0.0)
        for money in (1.0, 0.8, 0.5, 0.2, 0.0)
    ]
    costs, times = [plan.money for plan in plans], [plan.finish_s for plan in plans]
    assert costs == sorted(costs)
    assert times == sorted(times, reverse=True)
    assert len(set(costs)) > 2


def test_what_fits_in_one_place_is_not_scattered() -> None:
    lanes = [lane(str(n), 100) for n in range(4)]
    assert split(lanes, 100, FASTEST, NONE, BAND).tasks == (100, 0, 0, 0)


def test_of_equal_places_the_one_that_is_liked_more_is_taken() -> None:
    lanes = [lane(str(n), 100) for n in range(4)]
    for objective in (CHEAPEST, FASTEST, GREENEST, Objective(1, 1, 1)):
        assert split(lanes, 1, objective, NONE, BAND).tasks == (1, 0, 0, 0)


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lanes", "limits", "short", "reason"),
    [
        ([lane()], SplitLimits(deadline_s=25.0), 80, Reason.DEADLINE),
        ([lane(closes_s=25.0)], NONE, 80, Reason.WINDOW_CLOSED),
        ([lane(closes_s=25.0)], SplitLimits(deadline_s=35.0), 80, Reason.WINDOW_CLOSED),
        ([lane(tasks_max=60)], NONE, 40, Reason.WINDOW_CLOSED),
        ([CHEAP], SplitLimits(budget_nanos=30 * CHEAP.cost_nanos(1)), 70, Reason.COST_LIMIT),
        ([CHEAP], SplitLimits(budget_nanos=0), 100, Reason.COST_LIMIT),
        ([CHEAP], SplitLimits(deadline_s=25.0, budget_nanos=0), 100, Reason.COST_LIMIT),
        ([], NONE, 100, Reason.WINDOW_CLOSED),
    ],
)
def test_a_shortfall_has_a_name(lanes, limits, short, reason) -> None:
    chosen = split(lanes, 100, CHEAPEST, limits, BAND)
    assert (chosen.short, chosen.reason) == (short, reason)


@given(
    lanes_of,
    counts,
    objectives,
    st.just(math.inf) | st.floats(0.1, 10**4),
    st.none() | st.integers(0, 10**12),
    st.sampled_from([0.0, BAND]),
)
def test_limits_are_kept_and_nothing_gets_lost(
    lanes, tasks, objective, deadline_s, budget_nanos, band
) -> None:
    chosen = split(lanes, tasks, objective, SplitLimits(deadline_s, budget_nanos), band)
    assert sum(chosen.tasks) + chosen.short == tasks
    assert (chosen.short == 0) == (chosen.reason is None)
    if budget_nanos is not None:
        assert chosen.cost_nanos <= budget_nanos
    for each, n in chosen.shares:
        assert 0 < n <= each.tasks_max
        assert each.finish_s(n) <= min(deadline_s, each.closes_s) * (1 + 1e-6)


@given(lanes_of, counts, objectives, st.integers(0, 10**12))
def test_no_task_is_left_that_the_cheapest_could_still_pay_for(
    lanes, tasks, objective, budget_nanos
) -> None:
    chosen = split(lanes, tasks, objective, SplitLimits(budget_nanos=budget_nanos), BAND)
    if chosen.reason is not Reason.COST_LIMIT:
        return
    by_cost = sorted(lanes, key=lambda each: each.money)
    least = fill(by_cost, sum(chosen.tasks), math.inf, range(len(lanes)))
    spent = sum(each.cost_nanos(n) for each, n in zip(by_cost, least, strict=True))
    next_one = min(
        each.money for each, n in zip(by_cost, least, strict=True) if n < each.tasks_by(math.inf)
    )
    assert spent + next_one > budget_nanos - len(lanes)


@given(lanes_of, counts, st.lists(st.integers(0, 50), min_size=6, max_size=6))
def test_what_a_lane_has_in_any_case_it_keeps(lanes, tasks, held) -> None:
    lanes = [
        replace(each, tasks_min=n, tasks_max=max(n, each.tasks_max))
        for each, n in zip(lanes, held, strict=False)
    ]
    tasks += sum(each.tasks_min for each in lanes)
    chosen = split(lanes, tasks, FASTEST, SplitLimits(deadline_s=1.0, budget_nanos=0), BAND)
    assert all(n >= each.tasks_min for n, each in zip(chosen.tasks, lanes, strict=True))


def test_more_money_or_time_never_makes_it_worse() -> None:
    shorts = [
        split(THREE, 1000, FASTEST, SplitLimits(deadline_s, budget), BAND).short
        for deadline_s, budget in [(10, 10**6), (50, 10**6), (50, 10**8), (100, 10**9)]
    ]
    assert shorts == sorted(shorts, reverse=True)
    assert shorts[-1] == 0


@given(st.floats(0, 1e4), st.integers(2, 4), st.integers(1, 5))
@example(3600.0, 3, 1)
def test_tasks_add_up_whatever_the_rates(start_s, places, tasks) -> None:
    """A hundred million slots for tasks of a microsecond: no digits are left for one task."""
    lanes = [lane(str(at), 10**8, 1e-6, start_s=start_s, tasks_max=tasks) for at in range(places)]
    given = fastest(lanes, tasks)
    assert sum(given) == tasks
    assert min(given) >= 0
