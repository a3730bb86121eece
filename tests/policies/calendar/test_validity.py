"""Schedules that count from one moment to another: edges, open spans, parts of parts."""

from datetime import UTC, datetime

import pytest

from federation.clocks import NEVER_S
from policies.access.windows import Window, WindowPlan
from policies.calendar.crons import Cron
from policies.calendar.hours import Hours, open_spans
from policies.calendar.validity import ALWAYS_S, During, within

NIGHT = Hours(22 * 3600, 6 * 3600)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def opened(when, start, end):
    return [
        tuple(datetime.fromtimestamp(each, UTC).strftime("%dT%H:%M") for each in span)
        for span in open_spans(when, at(start), at(end))
    ]


def test_a_schedule_opens_only_within_its_span():
    when = During(NIGHT, at("2026-11-20T23:30"), at("2026-11-22T03:00"))
    found = opened(when, "2026-11-19T00:00", "2026-11-24T00:00")
    assert found == [("20T23:30", "21T06:00"), ("21T22:00", "22T03:00")]
    assert opened(when, "2026-11-22T03:00", "2026-11-24T00:00") == []
    assert opened(when, "2026-11-19T00:00", "2026-11-20T23:30") == []


def test_it_ends_while_its_cron_window_is_open():
    when = During(Cron("0 17 * * *", 7200), until_s=at("2026-11-20T18:00"))
    assert opened(when, "2026-11-20T00:00", "2026-11-22T00:00") == [("20T17:00", "20T18:00")]


def test_a_part_of_a_part_lies_in_both():
    when = During(NIGHT, 100.0, 900.0)
    assert within(when, 0.0, 500.0) == During(NIGHT, 100.0, 500.0)
    assert within(when, ALWAYS_S, NEVER_S) == when
    assert within(NIGHT, ALWAYS_S, NEVER_S) == NIGHT
    assert within(when, 900.0, NEVER_S) is None


def test_a_span_without_length_is_refused():
    with pytest.raises(ValueError, match="valid from"):
        During(NIGHT, 5.0, 5.0)


def test_a_window_may_change_at_a_known_time():
    change_s = at("2026-11-21T00:00")
    early, late = Hours(9 * 3600, 17 * 3600), Hours(12 * 3600, 17 * 3600)
    plan = WindowPlan(
        (
            Window("day", During(early, until_s=change_s)),
            Window("day", During(late, from_s=change_s)),
        )
    )
    starts = [
        datetime.fromtimestamp(span.from_s, UTC).strftime("%dT%H:%M")
        for span in plan.spans(at("2026-11-20T00:00"), at("2026-11-22T00:00"))
        if span.window is not None
    ]
    assert starts == ["20T09:00", "21T12:00"]
    assert plan.clash(at("2026-11-20T00:00"), at("2026-11-22T00:00")) is None
    with pytest.raises(ValueError, match="two windows are named 'day'"):
        WindowPlan((Window("day", During(early, until_s=change_s)), Window("day", late)))
