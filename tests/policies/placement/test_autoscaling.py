"""The wanted number of slots of a pool: tables, and properties for any course of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.placement.asks import CHEAPEST, FASTEST
from policies.placement.autoscaling import (
    Pilot,
    PilotStage,
    PoolGrowth,
    PoolWork,
    ScalingHistory,
    ScalingOrders,
    ScalingRules,
    attend,
    overhead_s,
)

NOW_S = 10_000.0
RULES = ScalingRules(slots_max=1_000, starts_max=500)
PAST = ScalingHistory(start_s=60.0)


def ready(name: str, since_s: float = NOW_S, busy: int = 0, **changes: object) -> Pilot:
    pilot = Pilot(name, PilotStage.READY, 1, since_s, paid_since_s=since_s - 60.0, busy=busy)
    return replace(pilot, **changes)


def fleet(count: int, stage: PilotStage = PilotStage.READY, busy: int = 1) -> list[Pilot]:
    busy = busy if stage is PilotStage.READY else 0
    return [Pilot(f"p{at}", stage, 1, NOW_S - 1, NOW_S - 1, busy) for at in range(count)]


@pytest.mark.parametrize(
    ("rules", "pilots", "work", "wanted", "start"),
    [
        pytest.param(RULES, [], PoolWork(), 0, 0, id="no work, no slots"),
        pytest.param(RULES, [], PoolWork(1, 10.0), 1, 1, id="any work has one slot"),
        pytest.param(RULES, [], PoolWork(100, 120_000.0), 100, 100, id="no more slots than tasks"),
        pytest.param(
            RULES, [], PoolWork(10_000, 120_000.0), 100, 100, id="waste bounds: 0.1 W / 120"
        ),
        pytest.param(
            replace(RULES, waste=0.2),
            [],
            PoolWork(10_000, 120_000.0),
            200,
            200,
            id="twice the waste",
        ),
        pytest.param(
            replace(RULES, step_s=3600.0),
            [],
            PoolWork(10_000, 192_000.0),
            10,
            10,
            id="paid by the hour: 0.1 W / (120 + 1800)",
        ),
        pytest.param(
            RULES, fleet(100), PoolWork(10_000, 6_000.0), 100, 0, id="done before more could start"
        ),
        pytest.param(
            RULES,
            fleet(10),
            PoolWork(10_000, 120_600.0),
            100,
            90,
            id="what will be done needs none",
        ),
        pytest.param(
            RULES,
            fleet(60, PilotStage.STARTING),
            PoolWork(100, 120_000.0),
            100,
            40,
            id="some are coming",
        ),
        pytest.param(
            RULES, [], PoolWork(5_000, 1e9), 1_000, 500, id="no more than may be started at once"
        ),
        pytest.param(replace(RULES, slots_min=5), [], PoolWork(), 5, 5, id="some are kept"),
        pytest.param(
            replace(RULES, pilot_slots=16), [], PoolWork(100, 48_000.0), 48, 3, id="whole pilots"
        ),
        pytest.param(
            RULES,
            [],
            PoolWork(100, 6_000.0, due=((NOW_S + 160.0, 6_000, 1.0),)),
            60,
            60,
            id="due in 100 s of work: 60 slots",
        ),
        pytest.param(
            RULES,
            [],
            PoolWork(70, 6_000.0, due=((NOW_S + 50.0, 600, 1.0),)),
            5,
            5,
            id="due before any could start: no more than without a deadline",
        ),
        pytest.param(
            RULES,
            [],
            PoolWork(100, 6_000.0, due=((NOW_S + 160.0, 100, 60.0),)),
            100,
            100,
            id="a slot does one minute's task in 100 s, not 1.67",
        ),
        pytest.param(
            RULES,
            fleet(60),
            PoolWork(70, 6_000.0, due=((NOW_S + 100.0, 6_000, 1.0),)),
            60,
            0,
            id="those that are there do it in time",
        ),
        pytest.param(
            RULES,
            fleet(60),
            PoolWork(130, 12_000.0, 6_000.0, due=((NOW_S + 160.0, 6_000, 1.0),)),
            84,
            24,
            id="what they have goes before: 12,000 - 60 x 160 is left, in 100 s",
        ),
        pytest.param(
            RULES,
            fleet(60, PilotStage.STARTING),
            PoolWork(200, 6_000.0, due=((NOW_S + 159.0, 6_000, 1.0),)),
            60,
            0,
            id="those on their way are there a second sooner than new ones",
        ),
        pytest.param(
            RULES,
            [],
            PoolWork(10, 40_000.0, spread=30),
            33,
            33,
            id="one task in four slots: more slots than tasks",
        ),
        pytest.param(
            RULES,
            fleet(2),
            PoolWork(1, 1e6, stranded=70, stranded_why="has no tag gpu"),
            1,
            0,
            id="what no pilot can do starts none",
        ),
        pytest.param(
            replace(RULES, slots_max=8, slots_min=3, pilot_slots=2),
            [],
            PoolWork(),
            4,
            2,
            id="some are kept, in whole pilots",
        ),
        pytest.param(RULES, [], PoolWork(kept=4), 4, 4, id="what is reserved is there"),
        pytest.param(
            RULES,
            fleet(10),
            PoolWork(10, 600.0, 600.0, kept=4),
            14,
            4,
            id="what is reserved is beside what others have",
        ),
        pytest.param(
            RULES,
            [*fleet(4, busy=0), *fleet(2)],
            PoolWork(2, 120.0, 120.0, kept=4),
            6,
            0,
            id="slots that are reserved and there are not started again",
        ),
    ],
)
def test_a_pool_grows_for_the_work_there_is(rules, pilots, work, wanted, start):
    found = attend(rules, pilots, work, PAST, NOW_S)
    assert (found.wanted, found.start) == (wanted, start), found.why


def test_idle_slots_that_are_reserved_are_not_let_go():
    pilots = [ready(f"p{at}", NOW_S - 1_000.0) for at in range(6)]
    found = attend(RULES, pilots, PoolWork(kept=4), PAST, NOW_S)
    assert (found.wanted, len(found.drain)) == (4, 2)


def test_what_new_slots_would_not_help_starts_none():
    # A minute's work for the ten that are there: new ones would come when it is done.
    assert attend(RULES, fleet(10), PoolWork(1_000, 600.0), PAST, NOW_S).start == 0


@pytest.mark.parametrize(
    ("idle_for_s", "rules", "is_released"),
    [
        pytest.param(59.0, RULES, False, id="shorter than a start takes"),
        pytest.param(60.0, RULES, True, id="as long as a start takes"),
        pytest.param(9.0, replace(RULES, idle_s=10.0), False, id="its owner's own wait"),
        pytest.param(10.0, replace(RULES, idle_s=10.0), True, id="after its owner's own wait"),
    ],
)
def test_who_has_rested_is_let_go(idle_for_s, rules, is_released):
    found = attend(rules, [ready("a", NOW_S - idle_for_s)], PoolWork(), PAST, NOW_S)
    assert found.drain == (("a",) if is_released else ())


@pytest.mark.parametrize(
    ("paid_for_s", "is_released"),
    [(3_500.0, False), (3_575.0, True), (3_601.0, False), (7_190.0, True)],
)
def test_a_paid_hour_is_used_to_its_end(paid_for_s, is_released):
    rules = replace(RULES, step_s=3600.0)
    pilot = ready("a", NOW_S - 100.0, paid_since_s=NOW_S - paid_for_s)
    assert bool(attend(rules, [pilot], PoolWork(), PAST, NOW_S).drain) is is_released


@pytest.mark.parametrize(
    ("ends_in_s", "rests_s", "least_s", "start"),
    [
        (500.0, 60.0, 600.0, 1),
        (500.0, 59.0, 600.0, 0),
        (700.0, 60.0, 600.0, 0),
        (5.0, 60.0, 0.0, 0),
    ],
    ids=["in the way", "it may be so with all", "in time", "nobody knows how long"],
)
def test_who_ends_before_what_waits_could_makes_room(ends_in_s, rests_s, least_s, start):
    """Else work waits at pilots that it can't begin at, paid for until they end."""
    pilot = ready("a", NOW_S - rests_s, ends_at_s=NOW_S + ends_in_s)
    work = PoolWork(1, 600.0, least_s=least_s)
    found = attend(RULES, [pilot], work, PAST, NOW_S)
    assert (found.start, found.drain) == (start, ("a",) * start)
    full = attend(
        replace(RULES, slots_max=1), [pilot], PoolWork(1, 600.0, least_s=least_s), PAST, NOW_S
    )
    assert (full.start, full.drain) == (0, ("a",) * start), "once it is gone"


def test_idle_ones_that_waiting_tasks_could_use_stay():
    pilots = [ready(f"p{at}", NOW_S - 1_000.0) for at in range(4)]
    found = attend(RULES, pilots, PoolWork(3, 3.0), PAST, NOW_S)
    assert len(found.drain) == 1


def test_who_waits_in_the_grids_queue_for_nothing_is_cancelled_last_first():
    pilots = [
        Pilot("old", PilotStage.QUEUED, 1, NOW_S - 9),
        Pilot("new", PilotStage.QUEUED, 1, NOW_S - 1),
    ]
    assert attend(RULES, pilots, PoolWork(1, 10.0), PAST, NOW_S).cancel == ("new",)


def test_a_pool_that_must_be_smaller_loses_least():
    pilots = [
        ready("long", busy=1, lost_s=100.0),
        ready("short", busy=1, lost_s=5.0),
        ready("idle"),
        Pilot("coming", PilotStage.STARTING, 1, NOW_S - 5, NOW_S - 5),
        Pilot("queued", PilotStage.QUEUED, 1, NOW_S - 5),
    ]
    work = PoolWork(100, 1e6)
    orders = [
        attend(replace(RULES, slots_max=most), pilots, work, PAST, NOW_S) for most in range(5)
    ]
    gone = [{*each.cancel, *each.drain} for each in orders]
    assert gone == [
        {"queued", "coming", "idle", "short", "long"},
        {"queued", "coming", "idle", "short"},
        {"queued", "coming", "idle"},
        {"queued", "coming"},
        {"queued"},
    ]


def test_what_is_kept_is_no_more_than_is_paid_for():
    rules = replace(RULES, slots_min=4, hourly_nanos=2_000)
    past = replace(PAST, price_nanos=1_000)
    assert attend(rules, [], PoolWork(), past, NOW_S).start == 2
    found = attend(rules, fleet(2, busy=0), PoolWork(), past, NOW_S)
    assert found == ScalingOrders(2, why=found.why), "they would go, and come again, for ever"


def test_what_is_let_go_counts_until_it_is_gone():
    rules = replace(RULES, slots_max=4)
    leaving = [Pilot(f"old{at}", PilotStage.DRAINING, 1, NOW_S) for at in range(3)]
    found = attend(rules, leaving, PoolWork(100, 1e6), PAST, NOW_S)
    assert (found.wanted, found.start) == (4, 1)
    assert "draining pilots count" in found.why[-1]


def test_failed_starts_are_followed_by_pauses():
    pauses = []
    for failures in (1, 2, 3, 30):
        at_s = NOW_S
        past = ScalingHistory(60.0, failures=failures, failed_at_s=NOW_S)
        while not attend(RULES, [], PoolWork(1, 10.0), past, at_s).start:
            at_s += 1.0
        pauses.append(at_s - NOW_S)
    assert pauses == [10.0, 20.0, 40.0, 900.0]


def test_no_more_are_started_or_stopped_in_a_minute_than_may_be():
    rules = replace(RULES, starts_max=10, stops_max=3)
    past = ScalingHistory(60.0, starts=[NOW_S - 61, NOW_S - 59, NOW_S], stops=[NOW_S - 1])
    assert attend(rules, [], PoolWork(100, 1e6), past, NOW_S).start == 8
    pilots = [ready(f"p{at}", NOW_S - 1_000.0) for at in range(10)]
    found = attend(rules, pilots, PoolWork(), past, NOW_S)
    assert len(found.drain) == 2
    assert found.why[-1] == "the limit of 3 stops a minute is reached"


stages = st.sampled_from(
    [PilotStage.QUEUED, PilotStage.STARTING, PilotStage.READY, PilotStage.DRAINING]
)


@st.composite
def pools(draw) -> tuple[ScalingRules, list[Pilot], PoolWork, ScalingHistory]:
    unit = draw(st.sampled_from([1, 2, 16]))
    least = draw(st.integers(0, 20)) * unit
    rules = ScalingRules(
        slots_max=least + draw(st.integers(0, 50)) * unit,
        slots_min=least,
        pilot_slots=unit,
        waste=draw(st.floats(0.01, 1.0)),
        idle_s=draw(st.none() | st.floats(0, 1e4)),
        step_s=draw(st.sampled_from([0.0, 60.0, 3600.0])),
        starts_max=draw(st.integers(0, 100)),
        stops_max=draw(st.integers(0, 100)),
    )
    pilots = []
    for at in range(draw(st.integers(0, 40))):
        stage = draw(stages)
        since_s = NOW_S - draw(st.floats(0, 1e4))
        busy = draw(st.integers(0, unit)) if stage is PilotStage.READY else 0
        paid_s = None if stage is PilotStage.QUEUED else since_s
        pilots.append(Pilot(f"p{at}", stage, unit, since_s, paid_s, busy, draw(st.floats(0, 1e4))))
    running = sum(each.busy for each in pilots)
    work = PoolWork(running + draw(st.integers(0, 1_000)), draw(st.floats(0, 1e7)))
    moments = st.lists(st.floats(NOW_S - 100, NOW_S), max_size=20)
    past = ScalingHistory(draw(st.floats(0, 600)), draw(moments), draw(moments))
    return rules, pilots, work, past


@given(pools())
def test_limits_hold_and_nobody_who_works_goes_before_who_does_not(pool):
    rules, pilots, work, past = pool
    found = attend(rules, pilots, work, past, NOW_S)
    by_name = {each.name: each for each in pilots}
    active = {each.name: each for each in pilots if each.stage is not PilotStage.DRAINING}
    released = {*found.cancel, *found.drain}
    there = sum(each.slots for each in active.values())
    assert rules.slots_min <= found.wanted <= rules.slots_max
    assert not (found.start and released), "both ways at once"
    all_there = sum(each.slots for each in pilots)
    assert not found.start or all_there + found.start * rules.pilot_slots <= rules.slots_max
    assert released <= active.keys()
    lately = [each for each in past.starts if each > NOW_S - 60]
    assert found.start + len(lately) <= max(rules.starts_max, len(lately))
    lately = [each for each in past.stops if each > NOW_S - 60]
    assert len(released) + len(lately) <= max(rules.stops_max, len(lately))
    left = there - sum(by_name[name].slots for name in released)
    # What is let go of its own accord is not missed.
    assert not released or left >= min(found.wanted, rules.slots_max) - rules.pilot_slots + 1
    if any(by_name[name].busy for name in released):
        assert there > rules.slots_max, "who works goes only where the pool must be smaller"
        assert not any(each.is_idle for each in active.values() if each.name not in released)


@given(pools())
def test_a_pool_is_told_the_same_until_something_changes(pool):
    """Started slots count: the same moment again starts no more of the same."""
    rules, pilots, work, past = pool
    first = attend(rules, pilots, work, past, NOW_S)
    made = [
        Pilot(f"new{at}", PilotStage.QUEUED, rules.pilot_slots, NOW_S) for at in range(first.start)
    ]
    again = attend(replace_limits(rules), [*pilots, *made], work, past, NOW_S)
    if first.start and not any("a minute is reached" in each for each in first.why):
        assert again.start == 0
    assert isinstance(again, ScalingOrders)


def replace_limits(rules: ScalingRules) -> ScalingRules:
    return replace(rules, starts_max=10**6, stops_max=10**6)


@pytest.mark.parametrize("slot_work_s", [0.0, 5e-324, 1e-300, 1e12])
def test_what_others_say_of_a_start_is_never_beyond_numbers(slot_work_s):
    found = PoolGrowth(50, 60.0, slot_work_s).for_work(1e9, 100, FASTEST)
    assert found == (50 if slot_work_s < 1 else 1)


def test_starts_that_take_no_time_are_as_many_as_there_are_tasks():
    past = replace(PAST, start_s=5e-324)
    assert attend(RULES, [], PoolWork(70, 1e9), past, NOW_S).start == 70


@given(st.floats(0, 1e4), st.none() | st.floats(0, 1e4), st.floats(0, 1e4))
def test_overhead_grows_with_each_of_its_parts(start_s, idle_s, step_s):
    rules = replace(RULES, idle_s=idle_s, step_s=step_s)
    assert overhead_s(rules, start_s) >= start_s + step_s / 2


@pytest.mark.parametrize(
    ("past", "start", "why"),
    [
        (
            replace(PAST, barred="no such queue"),
            0,
            "until the fault is fixed",
        ),
        (replace(PAST, attainable=7), 7, "the grid can provide 7 slots more now"),
        (replace(PAST, attainable=500), 100, "1 slot in"),
        (replace(PAST, attainable=0), 0, "the grid can provide 0 slots"),
    ],
    ids=["until somebody acts", "a part", "enough", "none"],
)
def test_what_the_grid_can_not_do_is_not_asked_of_it(past, start, why):
    found = attend(RULES, [], PoolWork(100, 1e6), past, NOW_S)
    assert (found.wanted, found.start) == (100, start)
    assert any(why in each for each in found.why) == (start < 100), found.why


def test_the_figures_that_decide_are_named():
    rules = replace(RULES, idle_s=20.0)
    past = replace(PAST, start_s=19.0)
    [why] = attend(rules, fleet(1), PoolWork(30, 58.0), past, NOW_S).why
    assert why == (
        "1 slot: waste 0.1 x 39 slot-s not yet covered (58 in all, 19 done by the present "
        "slots before new ones start) / 39 s for each start (19 to start, 20 idle); raise "
        "waste for more"
    )
    [why] = attend(rules, [], PoolWork(30, 1e4, haste=10.0), past, NOW_S).why
    assert why.startswith(
        "30 slots, limited to the number of queued tasks: waste 0.1 x 10 for urgency x 10,000"
    )
    assert attend(rules, [], PoolWork(), past, NOW_S).why[0].startswith("at rest")


def test_who_still_works_is_taken_back_before_another_is_started():
    leaving = [
        Pilot(f"old{at}", PilotStage.DRAINING, 1, NOW_S - at, busy=1, can_return=at != 1)
        for at in range(3)
    ]
    found = attend(RULES, leaving, PoolWork(2, 1e6), PAST, NOW_S)
    assert (found.undrain, found.start) == (("old0", "old2"), 0)
    found = attend(RULES, leaving, PoolWork(5, 1e6), PAST, NOW_S)
    assert (found.undrain, found.start) == (("old0", "old2"), 3)
    assert attend(RULES, leaving, PoolWork(), PAST, NOW_S).undrain == ()


def test_slots_for_work_come_in_whole_pilots():
    growth = PoolGrowth(20, 60.0, 600.0, pilot_slots=8)
    assert [growth.for_work(each, 100, CHEAPEST) for each in (1.0, 5_400.0, 1e9)] == [8, 16, 20]
