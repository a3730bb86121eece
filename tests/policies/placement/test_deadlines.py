"""The expected end of a job against its deadline, and the changes that would meet it."""

import pytest
from support.pure.market import (
    CENT,
    NOW_S,
    make_ask,
    make_market,
    make_pool,
    make_preferences,
    make_terms,
    seeded,
)

from policies.placement.asks import CHEAPEST
from policies.placement.brokering import place
from policies.placement.deadlines import check_deadline
from policies.placement.offers import judge

EXACT = make_preferences(band=0.0)
SMALL = make_pool(slots_total=2, price_nanos=CENT)
LARGE = make_pool(slots_total=100, price_nanos=CENT)


def checked(ask, busy_until_s=None, **pools):
    market = make_market(**pools)
    chance = seeded()
    decision = place(ask, market, EXACT, NOW_S, chance)
    unmet = judge(ask, market, EXACT, NOW_S, chance)
    offers = unmet.offers if unmet is not None else ()
    return check_deadline(decision, market, EXACT, chance, {}, offers, busy_until_s)


def within(seconds, tasks=12, task_s=10.0, **changes):
    """Tasks of ten seconds, to be done in so many seconds."""
    return make_ask(CHEAPEST, tasks, task_s, deadline_s=NOW_S + seconds, **changes)


def test_a_job_without_a_deadline_has_nothing_to_compare():
    assert checked(make_ask(CHEAPEST, 12, 10.0), a=SMALL) is None


def test_a_deadline_that_is_met_says_by_how_much():
    found = checked(within(100), a=SMALL)
    assert found.is_met is True
    assert found.finish_at_s == pytest.approx(NOW_S + 60)
    assert found.text.endswith("is met: done by 1970-01-01 00:17:40 UTC, 40 s before it")


def test_a_deadline_that_will_be_missed_says_by_how_much_and_what_would_meet_it():
    found = checked(within(25), a=SMALL)
    assert found.is_met is False
    assert found.in_time == 4
    assert found.finish_at_s == pytest.approx(NOW_S + 60)
    assert "will be missed: 12 tasks would be done by 1970-01-01 00:17:40 UTC, 35 s" in found.text
    assert "; 4 of them can be done in time. It would be met by a deadline of 1970" in found.text


def test_a_site_that_the_job_leaves_out_is_a_way_to_meet_it():
    terms = make_terms(allowed_sites=frozenset({"a"}))
    found = checked(within(25, terms=terms), a=SMALL, b=LARGE)
    assert found.is_met is False
    assert any("letting it run at b/main as well" in each for each in found.ways)


def test_more_money_is_a_way_to_meet_it():
    dear = make_pool(slots_total=100, price_nanos=100 * CENT)
    found = checked(within(25, budget_nanos=CENT // 10), a=SMALL, b=dear)
    assert found.is_met is False
    assert any("a cost limit of" in each and "b/main" in each for each in found.ways)


def test_tasks_that_run_now_count_for_the_end():
    found = checked(within(100), busy_until_s=NOW_S + 130, a=SMALL)
    assert found.is_met is False
    assert "30 s after it" in found.text


def test_an_unknown_duration_is_said_and_not_guessed():
    found = checked(within(100, task_s=None), a=SMALL)
    assert found.is_met is None
    assert "it is not known whether" in found.text
    assert "task_s" in found.text


def test_a_deadline_that_has_passed_is_said():
    found = checked(within(-5), a=SMALL)
    assert found.is_met is False
    assert found.text == "the deadline 1970-01-01 00:16:35 UTC has passed"


def test_where_no_slot_is_known_the_end_is_not_known():
    found = checked(within(100), a=make_pool(slots_total=0))
    assert found.finish_at_s is None
    assert found.in_time == 0
    assert found.to_plain()["finish_s"] is None
