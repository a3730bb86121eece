"""The window in force, precedence among windows, and the future share of a party in a pool."""

from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise
from math import inf
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.access.claims import NOTHING, Amount, Claim, Claims
from policies.access.windows import (
    WINDOWS_MAX,
    Allowed,
    Closing,
    Window,
    WindowPlan,
    allowed,
    closings,
    differences,
    rules_at,
)
from policies.calendar.calendars import Calendar
from policies.calendar.crons import Cron
from policies.calendar.hours import Business, Hours, Weekdays
from policies.parties import OTHERS, Owner

LONDON, NEW_YORK = ZoneInfo("Europe/London"), ZoneInfo("America/New_York")
HOUR_S, DAY_S = 3_600, 86_400
OURS_ALONE = Claims((Claim(OTHERS, borrows=NOTHING),))
HALF = Claims((Claim(OTHERS, borrows=Amount(part=5_000)),))
PARIS, ADA = Owner("cy@paris", site="paris"), Owner("ada")
RISK_RUN = Window(
    "risk run",
    Hours(17 * HOUR_S, 23 * HOUR_S, Business(), LONDON, Calendar()),
    OURS_ALONE,
    drain_lead_s=600.0,
    grace_s=30.0,
)
WEEKEND = Window("weekend", Hours(days=Weekdays(frozenset({5, 6})), zone=LONDON), HALF)
MONTH_END = Window(
    "month end", Hours(12 * HOUR_S, 24 * HOUR_S, Business(-1), LONDON), OURS_ALONE, priority=5
)
PLAN = WindowPlan((RISK_RUN, WEEKEND, MONTH_END))


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("2026-11-20T16:59:59", None),
        ("2026-11-20T17:00:00", "risk run"),
        ("2026-11-20T22:59:59", "risk run"),
        ("2026-11-20T23:00:00", None),
        ("2026-11-21T00:00:00", "weekend"),
        ("2026-11-23T00:00:00", None),
        # Both are open on the last business day: who has the higher priority holds.
        ("2026-11-30T11:59:59", None),
        ("2026-11-30T12:00:00", "month end"),
        ("2026-11-30T18:00:00", "month end"),
        ("2026-11-30T23:59:59", "month end"),
        ("2026-12-01T00:00:00", None),
    ],
)
def test_which_window_holds(moment, name):
    window = PLAN.at(at(moment))
    assert (window.name if window else None) == name


def test_who_wins_is_told_with_who_else_is_open():
    assert [each.name for each in PLAN.open_at(at("2026-11-30T18:00:00"))] == [
        "month end",
        "risk run",
    ]


def test_a_plan_has_so_many_windows():
    windows = [Window(f"w{at}", Hours(0, HOUR_S)) for at in range(WINDOWS_MAX + 1)]
    WindowPlan(tuple(windows[:-1]))
    with pytest.raises(ValueError, match="more than 64 windows"):
        WindowPlan(tuple(windows))


def test_two_plans_differ_where_one_has_another_window_and_nowhere_else():
    noon, start_at_s = Window("noon", Hours(12 * HOUR_S, 14 * HOUR_S)), at("2026-11-20T00:00:00")
    longer = replace(noon, when=Hours(11 * HOUR_S, 15 * HOUR_S))
    dearer = replace(noon, price_factor=2_000_000)
    for other, spans in ((noon, []), (longer, [(11, 12), (14, 15)]), (dearer, [(12, 14)])):
        found = differences(
            WindowPlan((noon,)), WindowPlan((other,)), start_at_s, start_at_s + DAY_S
        )
        hours = [
            ((each.from_s - start_at_s) / HOUR_S, (each.until_s - start_at_s) / HOUR_S)
            for each in found
        ]
        assert hours == spans


def test_the_span_of_a_moment_begins_with_it():
    rules = rules_at(
        WindowPlan((Window("noon", Hours(12 * HOUR_S, 14 * HOUR_S)),)), at("2026-11-20")
    )
    names = {
        hour: window.name if (window := rules.span_at(at(f"2026-11-20T{hour}")).window) else None
        for hour in ("11:59:59", "12:00:00", "13:59:59", "14:00:00")
    }
    assert names == {"11:59:59": None, "12:00:00": "noon", "13:59:59": "noon", "14:00:00": None}
    assert rules.span_at(inf) == rules.spans[-1]


def test_of_equal_ones_the_first_holds_and_their_meeting_is_found():
    first = Window("first", Hours(10 * HOUR_S, 14 * HOUR_S))
    second = Window("second", Hours(13 * HOUR_S, 15 * HOUR_S))
    plan = WindowPlan((first, second))
    assert plan.at(at("2026-11-20T13:30")) == first
    start_at_s = at("2026-11-20T00:00")
    assert plan.clash(start_at_s, start_at_s + 7 * DAY_S) == (first, second, at("2026-11-20T13:00"))
    assert PLAN.clash(start_at_s, start_at_s + 30 * DAY_S) is None


def test_windows_that_meet_leave_no_moment_between_them():
    plan = WindowPlan(
        (
            Window("day", Hours(8 * HOUR_S, 20 * HOUR_S)),
            Window("night", Hours(20 * HOUR_S, 8 * HOUR_S)),
        )
    )
    start_at_s = at("2026-11-20T00:00")
    spans = list(plan.spans(start_at_s, start_at_s + 2 * DAY_S))
    assert [each.window.name for each in spans] == ["night", "day", "night", "day", "night"]
    assert plan.clash(start_at_s, start_at_s + 2 * DAY_S) is None


class Counted:
    """When a window is open, with how often that was asked."""

    def __init__(self, when):
        self.when, self.asked = when, 0

    def is_open(self, at_s):
        self.asked += 1
        return self.when.is_open(at_s)

    def edges(self, start_at_s, end_at_s):
        return self.when.edges(start_at_s, end_at_s)


def test_each_window_is_asked_for_its_own_times_alone():
    """Else the look ahead takes seconds for a pool of many windows, while all its work waits."""
    times = [Counted(Hours(60 * at, 60 * at + 60)) for at in range(60)]
    plan = WindowPlan(tuple(Window(f"w{at}", when) for at, when in enumerate(times)))
    start_at_s = at("2026-11-20T12:00")
    assert len(rules_at(plan, start_at_s, 2 * DAY_S).spans) == 2 * 60 + 2 + 1
    assert plan.clash(start_at_s, start_at_s + 2 * DAY_S) is None
    assert max(each.asked for each in times) <= 2 * (2 * 2 + 1)


@pytest.mark.parametrize(
    ("fields", "is_too_busy"),
    [("*/15 * * * *", True), ("*/30 * * * *", False), ("*/2 * 1-14 5 *", True)],
)
def test_windows_may_not_begin_and_end_too_often(fields, is_too_busy):
    window = Window("w", Cron(fields, 60))
    start_at_s = at("2026-11-20T00:00")
    found = WindowPlan((RISK_RUN, window)).busiest(start_at_s, start_at_s + 400 * DAY_S)
    assert found == (window if is_too_busy else None)


def test_two_windows_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two windows are named 'weekend'"):
        WindowPlan((WEEKEND, WEEKEND))


def test_what_others_may_have_of_a_pool_in_time_to_come():
    start_at_s = at("2026-11-20T12:00")  # a Friday
    rules = rules_at(PLAN, start_at_s, 2 * DAY_S)
    assert allowed(rules.spans, PARIS, 101) == [
        Allowed(start_at_s, at("2026-11-20T17:00"), 101, 10**6),
        Allowed(at("2026-11-20T17:00"), at("2026-11-20T23:00"), 0, 10**6),
        Allowed(at("2026-11-20T23:00"), at("2026-11-21T00:00"), 101, 10**6),
        Allowed(at("2026-11-21T00:00"), start_at_s + 2 * DAY_S, 50, 10**6),
    ]
    assert allowed(rules.spans, ADA, 101) == [
        Allowed(start_at_s, start_at_s + 2 * DAY_S, 101, 10**6)
    ]


def test_when_somebody_must_make_room():
    rules = rules_at(PLAN, at("2026-11-20T12:00"))
    begins_s = at("2026-11-20T17:00")
    assert closings(rules, PARIS, 100)[0] == Closing(
        begins_s, begins_s, begins_s - 600, begins_s + 30, 0, "risk run", 0, 100
    )
    assert closings(rules, ADA, 100) == ()


def test_what_may_spill_over_and_what_is_never_stopped():
    window = Window("w", Hours(17 * HOUR_S, 23 * HOUR_S), OURS_ALONE, preempts=False, spill_s=60.0)
    found = closings(rules_at(WindowPlan((window,)), at("2026-11-20T12:00")), PARIS, 100)[0]
    assert (found.ends_at_s, found.stops_at_s) == (at("2026-11-20T17:01"), inf)


def test_the_end_of_a_window_that_gave_more_is_known_too():
    plan = WindowPlan((WEEKEND,), OURS_ALONE)
    monday_s = at("2026-11-23T00:00")
    found = closings(rules_at(plan, at("2026-11-21T12:00")), PARIS, 100)[0]
    assert found is not None
    assert (found.at_s, found.stops_at_s, found.slots, found.window) == (monday_s, inf, 0, "")


def test_when_a_window_began_is_known_as_far_back_as_work_may_spill_into_it():
    """So that a later look does not let work run longer for it."""
    window = Window("w", Hours(17 * HOUR_S, 23 * HOUR_S), OURS_ALONE, spill_s=600.0)
    begins_s = at("2026-11-20T17:00")
    for looked_s, begun_s in ((0, 0), (60, 0), (599, 0), (600, 0), (3_600, 3_000)):
        assert rules_at(WindowPlan((window,)), begins_s + looked_s).begun_at_s == begins_s + begun_s


def test_where_nothing_is_claimed_base_claims_hold():
    plan = WindowPlan((WEEKEND,), OURS_ALONE)
    spans = rules_at(plan, at("2026-11-20T12:00"), 2 * DAY_S).spans
    assert [each.most(PARIS, 10) for each in spans] == [0, 5]
    assert WindowPlan().is_trivial
    assert not plan.is_trivial


def test_both_nights_of_clocks_in_london_and_new_york():
    """A run at 01:30 local time that ends at 03:30 by the wall clock."""
    for zone, day, hours in (
        (LONDON, "2026-03-29", 1.5), (LONDON, "2026-10-25", 3),
        (NEW_YORK, "2026-03-08", 1), (NEW_YORK, "2026-11-01", 3),
    ):  # fmt: skip
        for when in (
            Hours(90 * 60, 210 * 60, zone=zone),
            Cron("30 1 * * *", 7_200, zone),
        ):
            start_at_s = at(f"{day}T00:00")
            spans = WindowPlan((Window("run", when),)).spans(start_at_s, start_at_s + DAY_S)
            [run] = [each for each in spans if each.window]
            assert run.until_s - run.from_s == hours * HOUR_S


times = st.integers(0, 23).map(lambda hour: hour * HOUR_S)
windows = st.lists(
    st.tuples(times, times, st.sampled_from([LONDON, NEW_YORK]), st.integers(0, 2)),
    min_size=1,
    max_size=5,
).map(
    lambda rows: WindowPlan(
        tuple(
            Window(f"w{at}", Hours(low, high or DAY_S, zone=zone), OURS_ALONE, priority)
            for at, (low, high, zone, priority) in enumerate(rows)
            if low != (high or DAY_S)
        )
    )
)


@given(
    plan=windows,
    day=st.dates(date(2026, 1, 1), date(2028, 12, 31)),
    points=st.lists(st.integers(0, 3 * DAY_S - 1), max_size=50),
)
def test_spans_have_no_gap_no_overlap_and_agree_with_each_moment(plan, day, points):
    start_at_s = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    spans = list(plan.spans(start_at_s, start_at_s + 3 * DAY_S))
    assert spans[0].from_s == start_at_s
    assert spans[-1].until_s == start_at_s + 3 * DAY_S
    assert all(low.until_s == high.from_s for low, high in pairwise(spans))
    assert all(each.from_s < each.until_s for each in spans)
    assert all(low.window != high.window for low, high in pairwise(spans))
    edges = [each.from_s for each in spans]
    for at_s in [*edges, *(start_at_s + each for each in points)]:
        [span] = [each for each in spans if each.from_s <= at_s < each.until_s]
        assert span.window == plan.at(at_s)
