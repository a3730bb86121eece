"""Deadline and budget together: the refused jobs, and their offers."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
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

from federation.messages.adverts import AdvertisedWindow
from federation.offers import read_offers
from federation.reasons import Reason
from policies.placement.asks import CHEAPEST, FASTEST, GREENEST, Objective
from policies.placement.brokering import BackoffEnd, place
from policies.placement.offers import KEEP_S, SPARE, falls_short, judge

HOUR = 3600.0
EXACT = make_preferences(band=0.0)
# Ten slots at a cent an hour, and a hundred at ten cents.
SLOW = make_pool(slots_total=10, price_nanos=CENT)
QUICK = make_pool(slots_total=100, price_nanos=10 * CENT)


def both(hours, cents, tasks=100, task_s=HOUR, **changes):
    """Tasks of an hour with a deadline and a budget."""
    return make_ask(
        changes.pop("objective", CHEAPEST),
        tasks,
        task_s,
        deadline_s=NOW_S + hours * HOUR,
        budget_nanos=round(cents * CENT),
        **changes,
    )


def judged(ask, preferences=EXACT, now_s=NOW_S, site_backoff=None, **pools):
    pools = pools or {"slow": SLOW, "quick": QUICK}
    return judge(ask, market_of(pools), preferences, now_s, seeded(), site_backoff)


def market_of(pools):
    return make_market(**dict(zip("abcdefgh", pools.values(), strict=False)))


def offered(unmet):
    return {offer.kind: offer for offer in unmet.offers}


@pytest.mark.parametrize(
    ("hours", "cents", "is_taken"),
    [
        (10, 100, True),  # all where it is cheap
        (10, 99, False),
        (9.9, 100, False),
        (1, 1_000, True),  # all where it is quick
        (1, 910, True),  # a round of ten where it is cheap, the rest where it is quick
        (1, 909, False),
        (5, 550, True),  # fifty at each
        (5, 549, False),
        (0.99, 10_000, False),  # nobody does a task in less
    ],
)
def test_what_both_limits_have_room_for_is_taken(hours, cents, is_taken):
    """In any preference among the plans within them."""
    for objective in (CHEAPEST, FASTEST, GREENEST, Objective(1, 1)):
        ask = both(hours, cents, objective=objective)
        assert (judged(ask) is None) is is_taken, objective


def test_the_nearest_offers_are_the_earliest_end_and_the_least_money():
    unmet = judged(both(5, 200))
    later, dearer = offered(unmet)["later"], offered(unmet)["dearer"]
    # For 200 cents 11 of a hundred may run at ten cents: the other 89 take nine rounds of an hour.
    need_s = 9 * HOUR
    spare_s = later.deadline_s - NOW_S - KEEP_S - need_s * (1 + SPARE)
    assert 0 <= spare_s <= need_s / 20
    assert later.deadline_s % 1 == 0
    assert later.max_cost_nanos == 200 * CENT >= later.cost_nanos
    assert later.finish_s <= later.deadline_s
    # In five hours fifty run at one cent, and the others at ten; accepted a minute later forty.
    assert dearer.cost_nanos == 550 * CENT
    assert dearer.max_cost_nanos == 672 * CENT  # (40 + 60 * 10) * (1 + SPARE)
    assert dearer.deadline_s == NOW_S + 5 * HOUR >= dearer.finish_s
    assert {place[:2] for place in dearer.places} == {("a", "main"), ("b", "main")}
    assert sum(tasks for *_, tasks in dearer.places) == 100


def test_both_are_said_in_words_and_as_fields():
    unmet = judged(both(5, 200))
    assert unmet.text == (
        "100 tasks of 1 h can't all be done by 1970-01-01 05:16:40 UTC for 2 USD; 65 "
        "of them can. All can by 1970-01-01 09:48:37 UTC, at a/main, b/main; or for 6.72 "
        "USD, at a/main, b/main"
    )
    plain = unmet.to_plain()
    assert (plain["short"], plain["reason"]) == (35, "cost-limit")
    assert read_offers(plain) == unmet.offers


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            both(0.5, 2_000, tasks=1),
            "1 task of 1 h can't be done by 1970-01-01 00:46:40 UTC for 20 USD. "
            "It can by 1970-01-01 01:20:40 UTC, at a/main",
        ),
        (
            both(10, 0.5, tasks=2),
            "2 tasks of 1 h can't all be done by 1970-01-01 10:16:40 UTC for 0.005 "
            "USD; none of them can. All can for 0.021 USD, at a/main",
        ),
        (
            replace(both(0.5, 50), budget_nanos=None),
            "100 tasks of 1 h can't all be done by 1970-01-01 00:46:40 UTC; none of "
            "them can. All can by 1970-01-01 01:20:40 UTC, at b/main, a/main",
        ),
        (
            replace(both(5, 50), deadline_s=None),
            "100 tasks of 1 h can't all be done for 0.5 USD; 50 of them can. All can "
            "for 1.05 USD, at a/main",
        ),
    ],
)
def test_one_limit_and_one_task_in_words(ask, text):
    assert judged(ask).text == text


def test_what_is_charged_in_several_currencies_has_no_sum():
    preferences = make_preferences(band=0.0, rates={"EUR": 1.0})
    pools = {"usd": SLOW, "eur": replace(SLOW, currency="EUR")}
    ask = make_ask(CHEAPEST, 20, HOUR, deadline_s=NOW_S + HOUR / 2)
    (offer,) = judge(ask, market_of(pools), preferences, NOW_S, seeded()).offers
    assert (offer.currency, offer.cost_nanos, offer.max_cost_nanos) == ("", None, None)
    assert offer.options == {"deadline_s": offer.deadline_s}
    assert read_offers({"offers": [offer.to_plain()]}) == (offer,)


def test_an_offer_of_more_money_is_still_taken_when_it_is_accepted_some_time_later():
    """The cheapest plan for it ends a second before the deadline: no time to accept it."""
    pools = {
        "tight": make_pool(slots_total=50, price_nanos=10 * CENT),
        "roomy": make_pool(slots_total=100, price_nanos=20 * CENT),
    }
    ask = both(2 + 1 / HOUR, 1)
    offer = offered(judged(ask, **pools))["dearer"]
    accepted = replace(ask, budget_nanos=offer.max_cost_nanos)
    for after_s in (0.0, 2.0, 10.0, 30.0):
        assert judged(accepted, now_s=NOW_S + after_s, **pools) is None, after_s


NIGHT = AdvertisedWindow(NOW_S + 5 * HOUR, NOW_S + 9 * HOUR, 100, CENT)
DAY = AdvertisedWindow(NOW_S - HOUR, NOW_S + 2 * HOUR, 10, 10 * CENT)


@pytest.mark.parametrize(
    ("ask", "pools", "kinds"),
    [
        # Not for that money at any time; not in that time for any money.
        (both(5, 50), {}, ["dearer"]),
        (both(0.5, 2_000), {}, ["later"]),
        # Neither: then nobody is refused, as nothing can be named.
        (both(0.5, 50), {}, None),
        (both(1, 1, tasks=1), {"far": make_pool(slots_total=0)}, None),
        # At night it is cheap: by then, not before.
        (both(3, 150), {"w": make_pool(windows=(DAY, NIGHT), slots_total=10)}, ["later"]),
        (both(6, 150), {"w": make_pool(windows=(DAY, NIGHT), slots_total=10)}, []),
    ],
)
def test_an_offer_is_named_only_if_it_can_be_kept(ask, pools, kinds):
    unmet = judged(ask, **pools)
    if kinds == []:
        assert unmet is None
        return
    assert [offer.kind for offer in unmet.offers] == (kinds or [])


def test_while_the_length_of_a_task_is_unknown_nothing_is_judged():
    assert judged(both(0.01, 0, task_s=None)) is None


@pytest.mark.parametrize("limits", [{"deadline_s": None}, {"budget_nanos": None}])
def test_one_limit_alone_is_judged_by_itself(limits):
    ask = replace(both(0.5, 50), **limits)
    kinds = [offer.kind for offer in judged(ask).offers]
    assert kinds == (["dearer"] if "deadline_s" in limits else ["later"])
    assert judged(replace(ask, deadline_s=None, budget_nanos=None)) is None


def test_who_was_not_heard_of_lately_or_is_spared_is_no_place():
    ask = both(2, 1_000)
    assert judged(ask) is None
    assert judged(both(2, 1_000), now_s=NOW_S + 61.0).offers == ()
    (offer,) = judged(ask, site_backoff={"b": BackoffEnd(NOW_S + 5)}).offers
    assert {place[0] for place in offer.places} == {"a"}


def test_limits_go_before_the_liking_for_home():
    """The site's preferred plan is dear: all of it at home is over the budget."""
    homely = make_preferences(band=0.0, prefer_own_s=inf)
    market = make_market(home=QUICK, a=SLOW)
    ask = both(10, 100)
    assert judge(ask, market, homely, NOW_S, seeded()) is None
    plan = place(ask, market, homely, NOW_S, seeded()).plan
    assert {lane.key[0]: n for lane, n in plan.shares} == {"a": 100}
    freely = replace(ask, budget_nanos=1_000 * CENT)
    plan = place(freely, market, homely, NOW_S, seeded()).plan
    assert {lane.key[0]: n for lane, n in plan.shares} == {"home": 100}


def test_waiting_for_better_hours_is_no_limit():
    assert judged(replace(both(10, 100), deferrable=True)) is None


@pytest.mark.parametrize(
    ("ask", "pools", "is_short"),
    [
        (both(10, 100), {}, False),
        (both(5, 200), {}, True),
        (both(0.5, 200), {}, True),
        (both(0.5, 200, task_s=None), {}, False),
        (make_ask(tasks=10**6, task_s=HOUR), {}, False),  # it has no limits
        # Short for another reason: the pool closes, or there is nobody now who may come.
        (both(99, 999), {"w": make_pool(windows=(DAY,), slots_total=10)}, False),
        (both(5, 200), {"none": make_pool(slots_total=0)}, False),
        (both(0.5, 200), {"slow": SLOW, "none": make_pool(slots_total=0)}, False),
        (both(0.5, 200), {"slow": SLOW, "never": make_pool(pythons=("3.9",))}, True),
    ],
)
def test_a_plan_falls_short_of_its_own_limits_alone(ask, pools, is_short):
    market = market_of(pools or {"slow": SLOW, "quick": QUICK})
    assert falls_short(place(ask, market, EXACT, NOW_S, seeded())) is is_short


# --- properties ----------------------------------------------------------------------------------

pools = st.builds(
    make_pool,
    slots_total=st.sampled_from([0, 1, 3, 10, 100]),
    price_nanos=st.integers(0, 20).map(lambda each: each * CENT),
    load_slot_s=st.sampled_from([0.0, 0.0, 5_000.0]),
    minimum_nanos=st.sampled_from([0, 0, CENT // 100]),
    carbon_g_per_kwh=st.none() | st.floats(10, 700),
    slot_watts=st.just(100.0),
    windows=st.sampled_from([(), (), (DAY, NIGHT), (NIGHT,)]),
)
markets = st.lists(pools, min_size=1, max_size=12)
asks = st.builds(
    both,
    st.floats(0.05, 12),
    st.floats(0, 1_500),
    tasks=st.integers(1, 300),
    task_s=st.sampled_from([7.0, 600.0, HOUR, 2 * HOUR]),
    objective=st.sampled_from([CHEAPEST, FASTEST, GREENEST, Objective(1, 2, 3)]),
    terms=st.just(make_terms(currency="USD")),
)
some_preferences = st.builds(
    make_preferences,
    band=st.sampled_from([0.0, 0.1]),
    sites_max=st.sampled_from([2, 8]),
    prefer_own_s=st.sampled_from([0.0, inf]),
)


def town_of(some):
    return make_market(dict(zip(["home", *"abcdefghijk"], ([each] for each in some), strict=False)))


@given(markets, asks, some_preferences, st.integers(0, 9))
def test_what_is_taken_is_planned_whole_within_its_limits(some, ask, preferences, seed):
    market = town_of(some)
    if judge(ask, market, preferences, NOW_S, seeded(seed)) is not None:
        return
    plan = place(ask, market, preferences, NOW_S, seeded(seed)).plan
    assert plan.short == 0
    assert sum(plan.tasks) == ask.tasks
    assert NOW_S + plan.finish_s <= ask.deadline_s + 1e-3
    assert plan.cost_nanos <= ask.budget_nanos


@given(markets, asks, some_preferences, st.integers(0, 9))
def test_an_offer_is_taken_when_it_is_asked_for(some, ask, preferences, seed):
    market = town_of(some)
    unmet = judge(ask, market, preferences, NOW_S, seeded(seed))
    assume(unmet is not None)
    for offer in unmet.offers:
        wanted = replace(ask, deadline_s=offer.deadline_s, budget_nanos=offer.max_cost_nanos)
        assert judge(wanted, market, preferences, NOW_S, seeded(seed)) is None
        is_later = offer.kind == "later"
        assert (offer.max_cost_nanos == ask.budget_nanos) is is_later
        assert (offer.deadline_s == ask.deadline_s) is not is_later
        assert offer.deadline_s > ask.deadline_s or offer.max_cost_nanos > ask.budget_nanos
        assert offer.finish_s <= offer.deadline_s + 1e-3
        assert offer.cost_nanos <= offer.max_cost_nanos
        assert sum(tasks for *_, tasks in offer.places) == ask.tasks


@given(st.lists(pools, min_size=1, max_size=8), asks, st.integers(0, 9))
def test_what_would_be_taken_with_more_time_or_money_is_offered_it(some, ask, seed):
    """As long as no pool closes, and no more pools are known than may share a job."""
    market, preferences = town_of([replace(each, windows=()) for each in some]), EXACT
    unmet = judge(ask, market, preferences, NOW_S, seeded(seed))
    assume(unmet is not None)
    kinds = set(offered(unmet))
    in_a_week = replace(ask, deadline_s=NOW_S + 168 * HOUR)
    if judge(in_a_week, market, preferences, NOW_S, seeded(seed)) is None:
        assert "later" in kinds
    for_a_fortune = replace(ask, budget_nanos=10**7 * CENT)
    if judge(for_a_fortune, market, preferences, NOW_S, seeded(seed)) is None:
        assert "dearer" in kinds


@given(markets, asks, some_preferences, st.integers(0, 9))
def test_more_time_and_money_are_never_a_reason_to_refuse(some, ask, preferences, seed):
    market = town_of(some)
    assume(judge(ask, market, preferences, NOW_S, seeded(seed)) is None)
    more = replace(
        ask,
        deadline_s=ask.deadline_s + HOUR,
        budget_nanos=ask.budget_nanos * 2,
        objective=CHEAPEST,
    )
    assert judge(more, market, make_preferences(band=0.0), NOW_S, seeded(seed)) is None


def test_the_reason_is_named():
    assert judged(both(0.5, 2_000)).reason is Reason.DEADLINE
    assert judged(both(10, 50)).reason is Reason.COST_LIMIT
