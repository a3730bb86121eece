"""The texts about jobs that a name may mean, and about those that have ended."""

import pytest

from federation.clocks import UtcS
from gateway.api.views.job_choices import CANDIDATES_MAX, ended, several, too_short

NOW_S = UtcS(1_800_000_000.0)


def view(number, **changes):
    made = {
        "id": f"01job{number}",
        "name": "nightly",
        "state": "running",
        "user": "ann",
        "submitted_at_s": NOW_S - 60.0 * number,
        "ended_at_s": NOW_S - 7200.0,
        "reason": "",
        "first_error": "",
    }
    return made | changes


def test_several_jobs_are_listed_with_their_state_and_age():
    text = several("nightly", [view(5), view(2)], NOW_S, "unfinished")
    assert text.splitlines() == [
        "'nightly' may mean several unfinished jobs; name one by its id:",
        "01job2  nightly, running, of ann, submitted 2 min ago, 2027-01-15 07:58:00 UTC",
        "01job5  nightly, running, of ann, submitted 5 min ago, 2027-01-15 07:55:00 UTC",
    ]


def test_the_list_is_bounded():
    many = several("x", [view(each) for each in range(CANDIDATES_MAX + 1)], NOW_S).splitlines()
    assert (len(many), many[-1]) == (CANDIDATES_MAX + 2, "and others")


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"state": "done"}, "as done: only"),
        ({"state": "failed", "first_error": "ValueError: x"}, "as failed (ValueError: x): only"),
        ({"state": "lost", "reason": "gone"}, "as lost (gone): only"),
    ],
)
def test_a_job_that_has_ended_says_when_and_how(changes, how):
    text = ended(view(1, **changes), NOW_S)
    assert text.startswith(
        "job 01job1 (nightly) of ann has ended 2 h ago, 2027-01-15 06:00:00 UTC, "
    )
    assert how in text


def test_a_short_beginning_says_how_long_it_must_be():
    assert "at least 4 characters" in too_short("01m")
