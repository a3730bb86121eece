"""Wishes as they are written: missing ones do not travel, impossible ones are refused."""

import pytest

from federation.client import Options
from federation.wishes import wishes_plain

SOON_S = 2e9


@pytest.mark.parametrize(
    ("wishes", "plain"),
    [
        ({"objective": None, "deadline_s": None}, {}),
        ({"objective": "greenest", "deadline_s": None}, {"objective": "greenest"}),
        ({"objective": None, "deadline_s": SOON_S}, {"deadline_s": SOON_S}),
        (
            {"objective": None, "deadline_s": SOON_S, "deferrable": True, "whole": True},
            {"deadline_s": SOON_S, "deferrable": True, "whole": True},
        ),
        ({"objective": None, "deadline_s": None, "whole": True}, {"whole": True}),
        ({"objective": None, "deadline_s": None, "deferrable": False, "whole": False}, {}),
    ],
)
def test_what_nobody_wished_does_not_travel(wishes, plain):
    assert wishes_plain(**wishes) == plain


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"deferrable": True}, ValueError, "deferrable needs deadline_s"),
        ({"deferrable": "yes", "deadline_s": SOON_S}, TypeError, "deferrable is 'yes'"),
        ({"whole": 1}, TypeError, "whole is 1; it must be True or False"),
        ({"sites": []}, ValueError, "sites is empty, so no pool could run the job"),
        ({"jurisdictions": ()}, ValueError, "jurisdictions is empty"),
        ({"retries": 1.5}, ValueError, "retries is 1.5; it must be a whole number from 0 to 1000"),
        ({"retries": True}, ValueError, "retries is True; it must be a whole number from 0"),
        ({"project": None}, ValueError, "project is None; it must be text: 'default' is"),
        ({"task_s": 0}, ValueError, "task_s is 0; it must be greater than zero"),
        ({"task_s": -1.0}, ValueError, "task_s is -1.0"),
        ({"task_s": float("nan")}, ValueError, "task_s is nan"),
        ({"task_s": True}, ValueError, "task_s is True"),
        ({"task_s": "a minute"}, ValueError, "task_s: 'a minute' is not a length"),
    ],
)
def test_what_can_not_be_is_told(options, error, why):
    with pytest.raises(error, match=why):
        Options(**options)


def test_options_that_plan_otherwise_make_another_job():
    views = [Options(), Options(task_s=1.0), Options(whole=True), Options(deadline_s=SOON_S)]
    assert len({each.key() for each in views}) == len(views)


@pytest.mark.parametrize("bad", ["18:00", "soon", "2 parsecs", -5, 0, True, b"2h", "1e400s"])
def test_a_wrong_deadline_says_which_forms_are_taken(bad):
    with pytest.raises((TypeError, ValueError), match=r'as in "2h".*timedelta.*datetime.*1970'):
        Options(deadline_s=bad)


def test_a_deadline_as_a_small_number_says_how_a_duration_is_written():
    with pytest.raises(ValueError, match='use "3600s" or'):
        Options(deadline_s=3600)
