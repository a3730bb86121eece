"""Hours to come: packed small, never filled in, and their means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.messages.adverts import OUTLOOK_STEPS_MAX, Outlook, PoolAdvert
from policies.placement.outlook import HORIZON_S, Curve, added, curve_of, differs, flat, outlook

HOUR = 3600.0
NOW_S = 1_795_341_600.0  # 2026-11-22T10:00Z
STAIRS = Curve((10.0, 20.0, 40.0), (1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize(
    ("begin", "end", "mean"),
    [
        (0, 10, 1.0),
        (0, 20, 1.5),
        (10, 20, 2.0),
        (15, 25, 2.5),
        (15, 45, (5 * 2 + 20 * 3 + 5 * 4) / 30),
        (0, 50, (10 + 20 + 60 + 40) / 50),
        (50, 60, 4.0),
        (12, 12, 2.0),  # no time: what it is then
        (20, 20, 3.0),
        (9.5, 10.5, 1.5),
    ],
)
def test_the_mean_of_a_span_is_weighted_by_time(begin, end, mean):
    assert STAIRS.mean(begin, end) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("time", "value"), [(0, 1.0), (9.9, 1.0), (10, 2.0), (20, 3.0), (39, 3.0), (40, 4.0), (99, 4.0)]
)
def test_from_its_edge_on_a_value_holds(time, value):
    assert STAIRS.at(time) == value


def test_within_one_step_the_mean_is_exact():
    # 300.1 is no binary fraction, and the times are large.
    curve = Curve((NOW_S,), (1.0, 300.1))
    assert curve.mean(NOW_S + 7, NOW_S + 7.001) == 300.1


curves = st.lists(st.floats(0, 1e4), max_size=6, unique=True).flatmap(
    lambda edges: st.builds(
        Curve,
        st.just(tuple(sorted(edges))),
        st.lists(st.floats(0, 1e3), min_size=len(edges) + 1, max_size=len(edges) + 1),
    )
)


@given(curves, st.lists(st.floats(0, 1e4), min_size=3, max_size=3).map(sorted))
def test_a_span_has_what_its_parts_have(curve, times):
    first, middle, last = times
    whole = curve.mean(first, last) * (last - first)
    parts = curve.mean(first, middle) * (middle - first) + curve.mean(middle, last) * (
        last - middle
    )
    assert whole == pytest.approx(parts, rel=1e-6, abs=1e-4)
    # What is shorter than times of this size can tell is rounded away.
    slack = 1e-6 * max(curve.values)
    assert curve.least - slack <= curve.mean(first, last) <= max(curve.values) + slack


@given(st.lists(curves, min_size=1, max_size=3), st.floats(0, 1e4))
def test_a_sum_is_that_of_its_parts_at_each_time(some, time):
    assert added(some).at(time) == pytest.approx(sum(each.at(time) for each in some))


def test_what_does_not_change():
    assert flat(7.0).mean(0, 1e9) == flat(7.0).at(3) == 7.0
    assert flat(7.0).times(2).at(0) == 14.0


def test_before_what_is_foreseen_now_counts_and_after_it_the_worst():
    curve = curve_of(200.0, Outlook(100.0, 10.0, (2_505, 1_500)))
    assert [curve.at(time) for time in (99, 100, 110, 120)] == [200.0, 250.5, 150.0, 250.5]


def hours(*grams, first=1):
    """Steps of an hour from the next on."""
    return [(NOW_S + (first + at) * HOUR, 1_000 * each) for at, each in enumerate(grams)]


@pytest.mark.parametrize(
    ("steps", "step_s", "found"),
    [
        (hours(100, 90), HOUR, Outlook(NOW_S + HOUR, HOUR, (1_000, 900))),
        # What has begun is known better, what is past is over.
        (hours(300, 200, 100, first=-1), HOUR, Outlook(NOW_S + HOUR, HOUR, (1_000,))),
        # Where an hour is missing it ends.
        ([*hours(100, 90), *hours(10, first=4)], HOUR, Outlook(NOW_S + HOUR, HOUR, (1_000, 900))),
        (
            [(NOW_S + 1_800 * at, 50_000) for at in range(4)],
            None,
            Outlook(NOW_S + 1_800, 1_800.0, (500,) * 3),
        ),
        (  # Of two lengths one that there is.
            [(NOW_S + at, 50_000) for at in (1_800, 3_600, 7_200)],
            None,
            Outlook(NOW_S + 1_800, 1_800.0, (500,) * 2),
        ),
        ([(NOW_S + 60, 149_950)], None, Outlook(NOW_S + 60, HOUR, (1_500,))),
        ([(NOW_S - 60, 149_950)], None, None),
        ([], None, None),
        (hours(1, first=49), HOUR, None),  # beyond what anybody foresees
        ([(NOW_S + 0.1 * at, 1_000) for at in range(1, 9)], None, None),  # finer than can be told
    ],
)
def test_what_is_foreseen_is_packed(steps, step_s, found):
    assert outlook(steps, NOW_S, step_s) == found


def test_many_steps_are_averaged_to_as_many_as_an_advert_has():
    fine = [(NOW_S + 300 * at, 1_000 * (at % 6)) for at in range(1, 601)]
    found = outlook(fine, NOW_S)
    assert len(found.dg_per_kwh) <= OUTLOOK_STEPS_MAX
    assert found.until_s <= NOW_S + 300 + HORIZON_S
    assert found.step_s == 1_800.0
    assert set(found.dg_per_kwh) == {25}


@given(
    st.lists(
        st.tuples(st.floats(NOW_S - 1e5, NOW_S + 1e6), st.integers(0, 5_000_000)), max_size=200
    ),
    st.none() | st.just(HOUR),
)
def test_whatever_is_foreseen_can_be_advertised(steps, step_s):
    found = outlook(sorted(dict(steps).items()), NOW_S, step_s)
    if found is not None:
        plain = PoolAdvert("p", 1, 1, "USD", carbon_ahead=found).to_plain()
        assert PoolAdvert.from_plain(plain).carbon_ahead == found
        assert NOW_S < found.from_s <= NOW_S + HORIZON_S


AHEAD = Outlook(NOW_S, HOUR, (1_000, 2_000, 3_000))


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (None, None, False),
        (AHEAD, None, True),
        (None, AHEAD, True),
        (AHEAD, AHEAD, False),
        (AHEAD, Outlook(NOW_S, HOUR, (1_000, 2_000, 3_301)), True),
        (AHEAD, Outlook(NOW_S, HOUR, (1_000, 2_000, 3_300)), False),
        # An hour later nothing of what both know is another.
        (AHEAD, Outlook(NOW_S + HOUR, HOUR, (2_000, 3_000, 9_000)), False),
        (AHEAD, Outlook(NOW_S + HOUR, HOUR, (3_000, 3_000, 9_000)), True),
        (AHEAD, Outlook(NOW_S, HOUR / 2, (1_000, 1_000, 2_000, 2_000, 3_000)), False),
    ],
)
def test_what_makes_a_difference_is_told_anew(one, other, verdict):
    assert differs(one, other, 0.1) is verdict
