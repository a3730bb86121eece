"""When the broker is told which rules hold for which pool, and when not."""

import pytest

from gateway.runtime.timetable import AGAIN_S, WindowTimetable
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours

DAY_S = 86_400.0
NOON = 12 * 3600.0
RISK = WindowPlan((Window("risk run", Hours(17 * 3600, 23 * 3600)),))
LUNCH = WindowPlan((Window("lunch", Hours(13 * 3600, 14 * 3600)),))


@pytest.fixture
def timetable():
    made = WindowTimetable({"risk": RISK, "batch": LUNCH, "free": WindowPlan()})
    assert made.renew(NOON).rules.keys() == {"risk", "batch"}
    return made


def told(timetable, at_s):
    found = timetable.renew(at_s)
    return {} if found is None else found.rules


def holds(rules):
    return {name: each and each.now.window and each.now.window.name for name, each in rules.items()}


def test_only_the_pool_in_which_something_begins_is_told_of(timetable):
    """A notice of another pool would be given anew, with its whole grace, each time."""
    assert told(timetable, NOON + 3_599) == {}
    assert holds(told(timetable, NOON + 3_600)) == {"batch": "lunch"}
    assert holds(told(timetable, NOON + 7_200)) == {"batch": None}
    assert holds(told(timetable, 17 * 3600.0)) == {"risk": "risk run"}


def test_of_a_changed_file_only_the_changed_pool_is_told(timetable):
    timetable.replace({"risk": RISK, "batch": RISK, "free": WindowPlan()})
    assert holds(told(timetable, NOON + 1)) == {"batch": None}
    timetable.replace({"risk": RISK, "batch": RISK, "free": WindowPlan()})
    assert told(timetable, NOON + 2) == {}


def test_a_pool_that_has_no_rules_any_more_is_told_once(timetable):
    timetable.replace({"risk": WindowPlan(), "batch": LUNCH, "free": WindowPlan()})
    assert told(timetable, NOON + 1) == {"risk": None}
    assert told(timetable, NOON + 2) == {}
    timetable.replace({"risk": RISK, "batch": LUNCH, "free": LUNCH})
    assert holds(told(timetable, NOON + 3)) == {"risk": None, "free": None}


def test_rules_that_go_and_come_before_anybody_is_told_are_told_as_they_came(timetable):
    timetable.replace({"risk": WindowPlan(), "batch": LUNCH})
    timetable.replace({"risk": RISK, "batch": LUNCH})
    assert holds(told(timetable, NOON + 1)) == {"risk": None}
    assert told(timetable, NOON + 1) == {}


def test_what_is_to_come_is_told_each_day_and_when_a_clock_was_set_back(timetable):
    always = WindowTimetable({"risk": WindowPlan((Window("always", Hours()),))})
    always.renew(NOON)
    assert told(always, NOON + AGAIN_S - 1) == {}
    assert holds(told(always, NOON + AGAIN_S)) == {"risk": "always"}
    assert holds(told(always, NOON)) == {"risk": "always"}
