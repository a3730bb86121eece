"""A fresh gateway's knowledge of the past users of its slots: as any store's books have it."""

import pytest

from gateway.runtime.recovery import HALF_LIVES_READ, used_before
from policies.access.fairness import spread_ns
from policies.access.shares import FairShare
from policies.parties import Owner, PartyKind

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
NOW_S = 472_222 * HOUR_S + 1800.0
RULES = FairShare(half_life_s=DAY_S, each=PartyKind.PROJECT)
SECOND_NS = 10**9


def test_usage_is_decayed_by_the_hour_and_by_whose_it_is(store, commit, usage):
    at_s = {"fresh": NOW_S - 60.0, "old": NOW_S - 3 * DAY_S, "older": NOW_S - 10 * DAY_S}
    commit(
        store,
        *(
            usage(job=f"j{name}", project=name, ended_at_s=ended_s, wall_ns=1000 * SECOND_NS)
            for name, ended_s in at_s.items()
        ),
        usage(job="j2", project="fresh", group="quants", ended_at_s=at_s["fresh"]),
        usage(job="paris:c", project="fresh", user="x@paris", ended_at_s=at_s["fresh"]),
    )
    found = used_before(store.usage, RULES, NOW_S)
    assert {each.project for each in found} == set(at_s)
    for name, ended_s in at_s.items():
        expected = 1000 * SECOND_NS * 0.5 ** ((NOW_S - ended_s) / DAY_S)
        # It is known to the hour.
        assert found[Owner("ada", "", name)] == pytest.approx(expected, rel=0.03)
    start_at_s = NOW_S - 1800.0
    usual_ns = 1_500_000_000
    half_hour = spread_ns(usual_ns, start_at_s, start_at_s + HOUR_S, NOW_S, DAY_S)
    assert found[Owner("ada", "quants", "fresh")] == half_hour
    assert found[Owner("x@paris", "", "fresh", "paris")] == half_hour


def test_what_ran_elsewhere_or_for_nothing_or_long_ago_is_not_counted(store, commit, usage):
    old_s = NOW_S - (HALF_LIVES_READ + 1) * DAY_S
    commit(
        store,
        usage(job="j1", pool="paris/workers", ended_at_s=NOW_S - 1),
        usage(job="j2", state="repeat", cost_nanos=0, ended_at_s=NOW_S - 1),
        usage(job="j3", ended_at_s=old_s, started_at_s=old_s - 1),
        usage(job="j4", state="preempted", cost_nanos=0, ended_at_s=NOW_S - 1),
    )
    assert used_before(store.usage, RULES, NOW_S) == {}
