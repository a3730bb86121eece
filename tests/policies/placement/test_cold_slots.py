"""Slots that would have to be started: their place in plans. Begins like test_estimates."""

from dataclasses import replace

import pytest
from support.pure.market import CENT, NOW_S, make_ask, make_market, make_pool

from policies.placement.asks import CHEAPEST, FASTEST, Objective, Preferences
from policies.placement.autoscaling import (
    PoolGrowth,
    ScalingHistory,
    ScalingRules,
    growth,
    haste,
    overhead_s,
)
from policies.placement.brokering import place
from policies.placement.estimates import estimate
from policies.placement.ranking import tie_break

PREFERENCES = Preferences()
START_S = 60.0
WORK_S = 1_200.0  # of work, for each slot that is started: twice 60 s, at a tenth of waste


def cold(name="rented", warm=0, slots_cold=100, **changes):
    values = {
        "slots_total": warm + slots_cold,
        "slots_free": warm,
        "slots_cold": slots_cold,
        "start_s": START_S,
        "slot_work_s": WORK_S,
    }
    return make_pool(name, **values | changes)


def estimated(pool, ask):
    [candidate] = make_market({"home": [pool]}).candidates
    return estimate(ask, candidate, NOW_S, PREFERENCES)


@pytest.mark.parametrize(
    ("pool", "ask", "begins_s", "slots", "ends_s"),
    [
        pytest.param(cold(), make_ask(tasks=1), 60, 1, 70, id="one task waits for one start"),
        pytest.param(
            cold(), make_ask(tasks=240), 60, 2, 60 + 1_200, id="2,400 slot-s: two are started"
        ),
        pytest.param(
            cold(slots_cold=1), make_ask(tasks=240), 60, 1, 60 + 2_400, id="there is but one"
        ),
        pytest.param(
            cold(), make_ask(FASTEST, tasks=240), 60, 20, 60 + 120, id="ten times for haste"
        ),
        pytest.param(cold(warm=10), make_ask(tasks=10), 0, 110, 10, id="idle ones do it"),
        pytest.param(
            cold(warm=10), make_ask(tasks=60), 0, 10, 60, id="done before one could be started"
        ),
        pytest.param(
            cold(warm=10),
            make_ask(tasks=300),
            0,
            12,
            25 * 10 + 60 * 2 / 12,
            id="two more take a part of what is left by then",
        ),
        pytest.param(
            cold(warm=4, slots_free=0, load_slot_s=4_000.0),
            make_ask(tasks=100),
            60 + 4_000 / 5,
            5,
            60 + 4_000 / 5 + 20 * 10,
            id="busy ones, and one is started before they are free",
        ),
        pytest.param(
            cold(warm=4, slots_free=0, load_slot_s=400.0),
            make_ask(tasks=100),
            100,
            5,
            100 + 20 * 10,
            id="busy ones, which are free before one is there",
        ),
    ],
)
def test_what_a_pool_with_cold_slots_would_do(pool, ask, begins_s, slots, ends_s):
    found = estimated(pool, ask)
    assert found.begin_at_s - NOW_S == pytest.approx(begins_s)
    assert found.slots == slots
    assert found.finish_at_s - NOW_S == pytest.approx(ends_s)


def chosen(ask, preferences=PREFERENCES, **pools):
    """The pools that a plan of a site `home` gives something, with how much."""
    decision = place(ask, make_market(pools), preferences, NOW_S, tie_break("seed"))
    return {lane.key: tasks for lane, tasks in decision.plan.shares}


CHEAP = {"price_nanos": 1 * CENT}
DEAR = {"price_nanos": 40 * CENT}


@pytest.mark.parametrize(
    ("ask", "preferences", "pools", "expected"),
    [
        pytest.param(
            make_ask(FASTEST),
            PREFERENCES,
            {"home": [make_pool("owned"), cold(**CHEAP)]},
            ("home", "owned"),
            id="what is owned and idle goes first",
        ),
        pytest.param(
            make_ask(FASTEST),
            PREFERENCES,
            {"home": [cold()], "a": [make_pool()]},
            ("a", "main"),
            id="a peer that is sooner",
        ),
        pytest.param(
            make_ask(CHEAPEST),
            PREFERENCES,
            {"home": [cold(**DEAR)], "a": [make_pool()]},
            ("a", "main"),
            id="a peer that is cheaper",
        ),
        pytest.param(
            make_ask(CHEAPEST),
            PREFERENCES,
            {"home": [cold(**CHEAP)], "a": [make_pool(**DEAR)]},
            ("home", "rented"),
            id="rented, as no peer is as cheap",
        ),
        pytest.param(
            make_ask(Objective(money=1.0)),
            replace(PREFERENCES, prefer_own_s=300.0),
            {"home": [cold()], "a": [make_pool(**CHEAP)]},
            ("a", "main"),
            id="who prefers his own does not mean what he would have to rent",
        ),
        pytest.param(
            make_ask(FASTEST, tasks=1),
            PREFERENCES,
            {"home": [make_pool("owned", slots_free=0, load_slot_s=1e6), cold()]},
            ("home", "rented"),
            id="rented, as what is owned is busy for hours",
        ),
    ],
)
def test_nothing_is_rented_for_what_others_do_sooner_or_cheaper(ask, preferences, pools, expected):
    assert set(chosen(ask, preferences, **pools)) == {expected}


LONG = {"task_s": 3_600.0}  # so that a start of a minute is as good as none


@pytest.mark.parametrize("objective", [CHEAPEST, FASTEST])
@pytest.mark.parametrize("where", ["home", "a"])
def test_of_what_is_as_good_nothing_is_rented(objective, where):
    """Within the band it is drawn among all, but never a slot that would have to be started."""
    pools = {"home": [cold()], "b": [cold()]}
    pools.setdefault(where, []).append(make_pool("idle"))
    for seed in range(20):
        decision = place(
            make_ask(objective, tasks=10, **LONG),
            make_market(pools),
            PREFERENCES,
            NOW_S,
            tie_break(str(seed)),
        )
        assert [lane.key for lane, _ in decision.plan.shares] == [(where, "idle")], seed


def test_who_prefers_his_own_has_what_is_there_and_rents_nothing_for_it():
    """One slot is idle at home; the rest would be rented, and a peer has a hundred that idle."""
    preferences = replace(PREFERENCES, prefer_own_s=300.0)
    pools = {"home": [cold(warm=1)], "a": [make_pool(**CHEAP)]}
    found = chosen(make_ask(tasks=100, task_s=1_000.0), preferences, **pools)
    assert found == {("home", "rented"): 1, ("a", "main"): 99}


RULES = ScalingRules(slots_max=100)
PAST = ScalingHistory(start_s=60.0)


@pytest.mark.parametrize(
    ("rules", "past", "there", "coming", "attainable", "slots"),
    [
        pytest.param(RULES, PAST, 0, 0, None, 100, id="all"),
        pytest.param(RULES, PAST, 30, 0, None, 70, id="what is not there"),
        pytest.param(RULES, PAST, 30, 0, 5, 5, id="no more than the grid has"),
        pytest.param(RULES, PAST, 30, 20, 5, 25, id="and what it gives already"),
        pytest.param(RULES, PAST, 90, 20, 5, 10, id="never more than there may be"),
        pytest.param(RULES, PAST, 130, 0, None, 0, id="never less than none"),
        pytest.param(
            RULES,
            replace(PAST, failures=1, failed_at_s=NOW_S - 1),
            *(0, 3, None, 3),
            id="after a failure what comes all the same",
        ),
        pytest.param(
            RULES,
            replace(PAST, failures=1, failed_at_s=NOW_S - 11),
            *(0, 3, None, 100),
            id="after the pause",
        ),
        pytest.param(
            replace(RULES, hourly_nanos=200 * CENT),
            replace(PAST, price_nanos=10 * CENT),
            *(0, 0, None, 20),
            id="as many as an hour's money pays for",
        ),
    ],
)
def test_what_a_pool_could_grow_by(rules, past, there, coming, attainable, slots):
    found = growth(rules, replace(past, attainable=attainable), there, coming, NOW_S)
    assert found == PoolGrowth(slots, 60.0, overhead_s(rules, 60.0) / rules.waste)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [(CHEAPEST, 1.0), (FASTEST, 10.0), (Objective(1.0, 1.0), 5.5), (Objective(carbon=1.0), 1.0)],
)
def test_haste(objective, expected):
    assert haste(objective) == expected


@pytest.mark.parametrize(
    ("found", "slot_s", "tasks", "slots"),
    [
        pytest.param(
            PoolGrowth(100, 60.0, 1_200.0), 2_400.0, 240, 2, id="one for each 1,200 slot-s"
        ),
        pytest.param(PoolGrowth(100, 60.0, 1_200.0), 1.0, 1, 1, id="one at least"),
        pytest.param(
            PoolGrowth(0, 60.0, 1_200.0), 2_400.0, 240, 0, id="none where there can be none"
        ),
        pytest.param(PoolGrowth(9, 60.0, 0.0), 1.0, 240, 9, id="all, where starting costs nothing"),
        pytest.param(PoolGrowth(9, 60.0, 5e-324), 1.0, 240, 9, id="what a peer may write"),
    ],
)
def test_how_many_would_be_started_for_work(found, slot_s, tasks, slots):
    assert found.for_work(slot_s, tasks, CHEAPEST) == slots
