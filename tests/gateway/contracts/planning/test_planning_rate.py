"""How much is planned in a while: bounded however many ask, and never for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.planning.planning_rate import (
    JUDGED_PLANS,
    LOOKS_MAX,
    PLAN_LOOKS,
    SPANS_A_LOOK,
    TURN_LOOKS,
    PlanningRateLimit,
)

ROUND_S = 0.25
THOUSAND = 1000 - PLAN_LOOKS  # candidates, with which a plan takes a thousand looks


def spend(looks, at_s, candidates, turns):
    """All that may be planned in so many turns of one round."""
    made = 0.0
    for turn in range(turns):
        looks.begin(at_s + turn * ROUND_S / turns / 2, candidates)
        looks.begin_turn()
        plans = max(0.0, looks.plans)
        looks.planned(plans)
        made += plans
    return made


@pytest.mark.parametrize(
    ("candidates", "plans"),
    [(0, LOOKS_MAX / PLAN_LOOKS), (4, LOOKS_MAX / 20), (THOUSAND, 8), (10**6, 1)],
)
def test_a_round_has_so_many_plans_and_one_at_least(candidates, plans):
    looks = PlanningRateLimit(ROUND_S)
    assert spend(looks, 5.0, candidates, turns=20) == pytest.approx(plans)
    assert looks.judgements == pytest.approx(plans / 10)


@pytest.mark.parametrize(("candidates", "plans"), [(4, TURN_LOOKS / 20), (10**6, 1)])
def test_a_turn_has_a_part_of_them_however_late_it_comes(candidates, plans):
    looks = PlanningRateLimit(ROUND_S)
    for at_s in (5.0, 50.0, 500.0):
        looks.begin(at_s, candidates)
        looks.begin_turn()
        assert looks.plans == pytest.approx(plans)
        looks.planned(plans)
        assert looks.plans == pytest.approx(0.0)


def test_reservations_make_plans_longer_and_fewer():
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(5.0, 4, spans=20 * SPANS_A_LOOK)
    looks.begin_turn()
    assert looks.plans == pytest.approx(TURN_LOOKS / 40)


def test_what_a_round_had_too_many_is_taken_off_the_next():
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(0.0, THOUSAND)
    looks.begin_turn()
    looks.planned(12)
    looks.begin(ROUND_S / 2, THOUSAND)  # it is not over
    looks.begin_turn()
    assert looks.plans == -4
    looks.begin(ROUND_S, THOUSAND)
    assert looks.plans == 1
    assert spend(looks, ROUND_S + 0.001, THOUSAND, turns=20) == 4
    assert spend(looks, 10 * ROUND_S, THOUSAND, turns=20) == 8  # and nothing is saved up


def test_a_refusal_takes_as_long_as_many_plans_and_many_jobs_as_long_as_a_look():
    looks = PlanningRateLimit(ROUND_S)
    looks.begin(0.0, 4)
    looks.begin_turn()
    before = looks.judgements
    looks.judged(0, is_refused=True)
    assert before - looks.judgements == JUDGED_PLANS
    looks.judged(100, is_refused=False)
    assert before - looks.judgements == pytest.approx(JUDGED_PLANS + 1 + 2 / 20)
    assert looks.plans == TURN_LOOKS / 20


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
