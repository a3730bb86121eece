"""Corrections: work follows the measured speed, and moves only when that is worth it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from market_support import CENT

from federation.reasons import Reason
from policies.asks import CHEAPEST, FASTEST, Objective
from policies.resplitting import Progress, measured_rate, resplit
from policies.splitting import Lane, Limits

BAND = 0.10
NONE = Limits()


def lane(name, slots=10, task_s=1.0, **changes):
    return Lane(("site", name), slots / task_s, task_s, **changes)


def has(name, waiting, running=0, **changes):
    return Progress(lane(name, **changes), waiting, running)


A, B, C = (("site", name) for name in "abc")


def test_what_is_not_placed_goes_where_it_is_done_first() -> None:
    done = resplit([has("a", 40, 10), has("b", 0)], 50, FASTEST, NONE, BAND)
    assert done.place == {B: 50}
    assert done.recall == {}


def test_a_place_that_turned_out_slow_gives_back() -> None:
    slow = Progress(replace(lane("a"), rate=2.0), waiting=90, running=10)
    done = resplit([slow, has("b", 40, 10)], 0, FASTEST, NONE, BAND)
    # 150 tasks at 2 and 10 a second
    assert done.place == {}
    assert 60 <= done.recall[A] <= 80
    assert B not in done.recall


def test_what_runs_is_never_recalled() -> None:
    stuck = Progress(replace(lane("a"), rate=0.01), waiting=0, running=10)
    assert resplit([stuck, has("b", 0)], 0, FASTEST, NONE, BAND).recall == {}


@pytest.mark.parametrize(("ahead", "moves"), [(0, False), (8, False), (60, True)])
def test_nothing_moves_for_less_than_the_band(ahead, moves) -> None:
    places = [has("a", 200 + ahead), has("b", 200 - ahead)]
    done = resplit(places, 0, FASTEST, NONE, BAND)
    assert bool(done.recall) == moves


def test_a_dearer_place_gives_back_when_money_counts() -> None:
    places = [has("a", 0, price_nanos=CENT), has("b", 100, price_nanos=2 * CENT)]
    assert resplit(places, 0, CHEAPEST, NONE, 0.0).recall == {B: 100}
    # Within the band time decides, so a tenth more may be paid for an earlier end.
    assert resplit(places, 0, CHEAPEST, NONE, BAND).recall == {B: 90}
    close = [has("a", 0, price_nanos=100 * CENT), has("b", 100, price_nanos=105 * CENT)]
    assert resplit(close, 0, CHEAPEST, NONE, BAND).recall == {}


def test_a_deadline_moves_work_however_little_it_gains() -> None:
    places = [has("a", 101), has("b", 99)]
    assert resplit(places, 0, FASTEST, NONE, BAND).recall == {}
    assert resplit(places, 0, FASTEST, Limits(deadline_s=10.0), BAND).recall == {A: 1}


def test_a_window_that_closes_sends_work_on() -> None:
    places = [has("a", 100, closes_s=5.0), has("b", 0)]
    assert resplit(places, 0, CHEAPEST, NONE, BAND).recall[A] >= 50


def test_a_budget_that_no_longer_suffices_calls_back() -> None:
    dear = has("a", 100, 10, price_nanos=CENT)
    budget_nanos = dear.lane.cost_nanos(60)
    done = resplit([dear], 0, FASTEST, Limits(budget_nanos=budget_nanos), BAND)
    assert done.recall == {A: 50}
    assert done.plan.reason == Reason.COST_LIMIT


def test_what_is_late_everywhere_is_left_where_it_is() -> None:
    late = resplit([has("a", 100)], 0, FASTEST, Limits(deadline_s=5.0), BAND)
    assert late.recall == {}
    # Ten of them can still be on time elsewhere; the others stay.
    places = [has("a", 100), has("b", 0, slots=2)]
    assert resplit(places, 0, FASTEST, Limits(deadline_s=5.0), BAND).recall == {A: 10}


def test_what_finds_no_place_stays_and_is_named() -> None:
    done = resplit([has("a", 0)], 100, FASTEST, Limits(deadline_s=3.0), BAND)
    assert done.place == {A: 30}
    assert (done.plan.short, done.plan.reason) == (70, Reason.DEADLINE)


def test_free_places_are_left_alone() -> None:
    places = [has("a", 50, price_nanos=0), has("b", 50, price_nanos=0)]
    done = resplit(places, 0, CHEAPEST, NONE, BAND)
    assert done.recall == {}


def test_work_leaves_a_place_that_costs_for_one_that_does_not() -> None:
    places = [has("a", 50, price_nanos=0), has("b", 50, price_nanos=1)]
    assert resplit(places, 0, CHEAPEST, NONE, BAND).recall == {B: 50}


places_of = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 1000), st.integers(0, 50), st.floats(0, 50)),
    min_size=1,
    max_size=5,
).map(
    lambda rows: [
        has(str(n), waiting, running, slots=slots, start_s=start_s, price_nanos=CENT + n * slots)
        for n, (slots, waiting, running, start_s) in enumerate(rows)
    ]
)
objectives = st.sampled_from([CHEAPEST, FASTEST, Objective(1, 1)])


@given(
    places_of,
    st.integers(0, 5000),
    objectives,
    st.just(math.inf) | st.floats(1, 500),
    st.none() | st.integers(0, 10**9),
)
def test_no_more_is_moved_than_there_is(places, unplaced, objective, deadline_s, budget) -> None:
    done = resplit(places, unplaced, objective, Limits(deadline_s, budget), BAND)
    assert sum(done.place.values()) <= unplaced
    assert not done.place.keys() & done.recall.keys()
    waiting = {each.lane.key: each.waiting for each in places}
    assert all(0 < n <= waiting[key] for key, n in done.recall.items())
    assert all(n > 0 for n in done.place.values())


@given(places_of, st.integers(0, 5000), objectives)
def test_it_comes_to_rest(places, unplaced, objective) -> None:
    """Recalled work is placed by the next correction, and then nothing moves any more."""
    for _ in range(3):
        done = resplit(places, unplaced, objective, NONE, BAND)
        unplaced += sum(done.recall.values()) - sum(done.place.values())
        places = [
            replace(
                each,
                waiting=each.waiting
                + done.place.get(each.lane.key, 0)
                - done.recall.get(each.lane.key, 0),
            )
            for each in places
        ]
    assert unplaced == 0
    assert resplit(places, 0, objective, NONE, BAND).recall == {}


@pytest.mark.parametrize(
    ("done", "running", "busy_s", "rate"),
    [
        (0, 0, 0.0, 10.0),  # nothing known yet: as expected
        (0, 10, 0.5, 10.0),  # half way through the first round, on time
        (95, 10, 9.5, 10.05),  # as fast as expected
        (45, 10, 9.5, 5.71),  # half as fast
        (0, 10, 99.0, 0.15),  # not one has come back
    ],
)
def test_the_rate_moves_from_what_was_expected_to_what_is_measured(
    done, running, busy_s, rate
) -> None:
    assert measured_rate(lane("a"), done, running, busy_s) == pytest.approx(rate, rel=0.05)


def test_it_finds_the_split_although_it_was_told_wrong_rates() -> None:
    """Three places of 10 slots that really do 10, 5 and 1 tasks a second; told they are alike."""
    truth = {"a": 10.0, "b": 5.0, "c": 1.0}
    waiting, running, done = (dict.fromkeys("abc", 0) for _ in range(3))
    unplaced, total, now_s = 3000, 3000, 0.0
    while sum(done.values()) < total:
        places = [
            Progress(
                replace(
                    lane(name),
                    rate=measured_rate(lane(name), done[name], running[name], now_s),
                    task_s=1.0,
                ),
                waiting[name],
                running[name],
            )
            for name in "abc"
        ]
        moved = resplit(places, unplaced, FASTEST, NONE, BAND)
        for (_, name), n in moved.place.items():
            waiting[name] += n
            unplaced -= n
        for (_, name), n in moved.recall.items():
            waiting[name] -= n
            unplaced += n
        now_s += 1.0
        for name in "abc":
            ended = min(running[name], int(truth[name]))
            done[name] += ended
            started = min(waiting[name], 10 - running[name] + ended)
            waiting[name] -= started
            running[name] += started - ended
        assert now_s < 300
    # 3000 tasks at 16 a second are 188 s; blindly split in three, the slow one needs 1000 s.
    assert now_s < 188 * 1.15
    assert done["a"] > done["b"] > done["c"]
