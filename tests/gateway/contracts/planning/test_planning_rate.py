"""How much is planned in a while: bounded however many ask, and never for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.planning.planning_rate import (
    JUDGED_PLANS,
    LOOKS_MAX,
    PLAN_LOOKS,
    PlanningRateLimit,
)

ROUND_S = 0.25
THOUSAND = 1000 - PLAN_LOOKS  # candidates, with which a plan takes a thousand looks


@pytest.mark.parametrize(
    ("candidates", "plans"),
    [(0, LOOKS_MAX / PLAN_LOOKS), (4, LOOKS_MAX / 20), (THOUSAND, 8), (10**6, 1)],
)
def test_a_round_has_so_many_plans_and_one_at_least(candidates, plans):
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(5.0, candidates)
    assert (looks.plans, looks.judgements) == (plans, pytest.approx(plans / 10))


def test_what_a_round_had_too_many_is_taken_off_the_next():
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(0.0, THOUSAND)
    looks.plans -= 12
    looks.begin(ROUND_S / 2, THOUSAND)  # it is not over
    assert looks.plans == -4
    looks.begin(ROUND_S, THOUSAND)
    assert looks.plans == 4
    looks.begin(10 * ROUND_S, THOUSAND)  # and nothing is saved up
    assert looks.plans == 8


def test_a_refusal_takes_as_long_as_many_plans_and_many_jobs_as_long_as_a_look():
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(0.0, 4)
    before = looks.judgements
    looks.judged(0, is_refused=True)
    assert before - looks.judgements == JUDGED_PLANS
    looks.judged(100, is_refused=False)
    assert before - looks.judgements == pytest.approx(JUDGED_PLANS + 1 + 2 / 20)
    assert looks.plans == LOOKS_MAX / 20


@given(st.integers(1, 2000), st.lists(st.booleans(), min_size=1, max_size=200))
def test_whoever_is_refused_again_and_again_is_judged_so_often_and_no_more(candidates, refused):
    looks, judged, at = PlanningRateLimit(ROUND_S), 0.0, 0
    for at, is_refused in enumerate(refused):
        looks.begin(at * ROUND_S, candidates)
        if looks.judgements > 0:
            looks.judged(0, is_refused=is_refused)
            judged += JUDGED_PLANS if is_refused else 1
    most = (at + 1) * max(1.0, LOOKS_MAX / (candidates + PLAN_LOOKS)) / 10
    assert judged <= most + JUDGED_PLANS
