"""What somebody would have paid who had known it all: small cases that can be reckoned by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.growth.optimum import Terms, cost_of_curve, levels


@pytest.mark.parametrize(
    ("spans", "terms", "expected"),
    [
        pytest.param([], Terms(10), 0, id="no work"),
        pytest.param([(0, 100, 3)], Terms(10), 330, id="three slots, each started once"),
        pytest.param([(0, 100, 1), (105, 200, 1)], Terms(10), 210, id="it stays for five seconds"),
        pytest.param([(0, 100, 1), (150, 200, 1)], Terms(10), 170, id="it stops for fifty"),
        pytest.param([(0, 5, 1)], Terms(10, 0, 60), 60, id="no less than a minute is billed"),
        pytest.param([(0, 100, 1)], Terms(10, 3600), 3600, id="a whole hour"),
        pytest.param([(0, 100, 1), (3000, 3100, 1)], Terms(10, 3600), 3600, id="in the same hour"),
        pytest.param(
            [(0, 100, 1), (7300, 7400, 1)], Terms(10, 3600), 7200, id="two hours, not three"
        ),
        pytest.param([(0, 50, 1), (20, 50, 1)], Terms(10), 100, id="two levels"),
    ],
)
def test_what_it_costs(spans, terms, expected):
    assert cost_of_curve(spans, terms) == pytest.approx(expected)


SPANS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 200), st.integers(1, 3)).map(
        lambda each: (float(each[0]), float(each[0] + each[1]), each[2])
    ),
    max_size=12,
)


@given(SPANS, st.sampled_from([Terms(10), Terms(10, 60), Terms(10, 0, 60)]))
def test_it_pays_for_all_work_and_no_more_than_who_never_keeps_a_slot(spans, terms):
    work_s = sum((until_s - from_s) * slots for from_s, until_s, slots in spans)
    naive = sum(terms.bill(until_s - from_s) * slots for from_s, until_s, slots in spans)
    assert work_s <= cost_of_curve(spans, terms) <= naive + 1e-6
    in_levels = sum(until_s - from_s for level in levels(spans) for from_s, until_s in level)
    assert in_levels == pytest.approx(work_s)
