"""Logs are replayed in step with the week, and no work is lost or gained when jobs become bags."""

from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from simulations.year.facts import BEGIN_S, DAY_S, Log, LogEntry
from simulations.year.scenario import Manners
from simulations.year.work import YearJob, replay

MANNERS = Manners()
# Two weeks from a Monday 00:00 on; something on the first Tuesday at ten, and on the second Friday.
SMALL = Log(
    (
        LogEntry(DAY_S + 36_000, 600.0, 4, "1"),
        LogEntry(11 * DAY_S + 50_000, 9_000.0, 3, "2"),
    ),
    0.0,
    2,
)


def all_of(log: Log, zone: str, days: int = 365, begin_day: int = 0, weeks_in: int = 0):
    begin_s = BEGIN_S + begin_day * DAY_S
    return list(replay("nasa", log, zone, MANNERS, begin_s, days * DAY_S, 0, weeks_in))


def clocks(work: YearJob, zone: str) -> datetime:
    return datetime.fromtimestamp(BEGIN_S + work.at_s, UTC).astimezone(ZoneInfo(zone))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_who_worked_on_a_tuesday_at_ten_does_so_all_year(zone):
    times = {(clocks(work, zone).strftime("%a %H:%M"), work.user) for work in all_of(SMALL, zone)}
    assert times == {("Tue 10:00", "u1"), ("Fri 13:53", "u2")}


def test_two_weeks_are_repeated_all_year_without_a_gap():
    counts = Counter(clocks(work, "UTC").isocalendar().week for work in all_of(SMALL, "UTC"))
    assert sorted(counts) == list(range(1, 53))
    assert set(counts.values()) == {1}


def test_the_year_may_begin_in_another_week_of_the_log():
    first, second = (all_of(SMALL, "UTC", days=9, weeks_in=weeks)[0].user for weeks in (0, 1))
    assert {first, second} == {"u1", "u2"}


def test_a_part_of_the_year_is_the_same_as_in_the_whole():
    whole = [work.at_s - 30 * DAY_S for work in all_of(SMALL, "Europe/Berlin")]
    part = [work.at_s for work in all_of(SMALL, "Europe/Berlin", days=20, begin_day=30)]
    assert part == [pytest.approx(at_s) for at_s in whole if 0 <= at_s < 20 * DAY_S]


def test_long_runs_are_cut_into_equal_parts_and_none_of_their_time_is_lost():
    found = {work.user: work for work in all_of(SMALL, "UTC", days=14)}
    short, long = found["u1"], found["u2"]
    assert (short.tasks, short.task_s) == (4, 600.0)
    assert (long.tasks, long.task_s) == (9, 3_000.0)
    assert long.tasks * long.task_s == 3 * 9_000.0
    assert (short.patience_s, long.patience_s) == (MANNERS.patience_s, MANNERS.patience_long_s)
    assert short.objective == MANNERS.objective
    assert long.objective in MANNERS.objectives


def test_a_wait_is_how_much_later_it_was_done_than_with_its_slots_at_once():
    work = all_of(SMALL, "UTC", days=14)[0]
    work.first_start_s, work.end_s = work.at_s + 5.0, work.at_s + work.run_s + 70.0
    assert (work.begin_wait_s, work.wait_s) == (5.0, pytest.approx(70.0))
    work.end_s = work.at_s + 1.0  # on more slots than it had in its log
    assert work.wait_s == 0.0
