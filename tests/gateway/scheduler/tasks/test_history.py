"""The answer to a client that opens a job of an id that was used before."""

import pytest
from support.pure.town import spec

from federation.messages.messages import Kept, RejectJob
from gateway.scheduler.model.events import JobOpened
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.tasks import history
from gateway.scheduler.tasks.history import History


def ended(state="done", *, detached=False, total=4, user="ann"):
    """A history in which job j ended."""
    terms = spec(detached=detached, user=user)
    job = Job("j", terms, 1, 1, 0.0, terms.need, {})
    job.total = total
    made = History()
    made.end(job, state)
    return made


@pytest.mark.parametrize(
    ("state", "again", "objects"),
    [
        ("done", False, True),  # an id is used once
        ("done", True, False),  # but a client that was lost may come back
        ("cancelled", False, True),
        ("cancelled", True, True),  # its client was away when somebody else cancelled it
        ("abandoned", False, False),
        ("lost", False, False),
    ],
)
def test_an_attached_job_of_a_used_id(state, again, objects):
    opened = JobOpened(1, "j", spec(), again=again)
    assert isinstance(ended(state).objection(opened), RejectJob) is objects


def test_a_job_of_somebody_else_is_never_opened_again():
    opened = JobOpened(1, "j", spec(user="eve"), again=True)
    refusal = ended("lost").objection(opened)
    assert isinstance(refusal, RejectJob)
    assert "was used before" in refusal.reason


def test_who_opens_a_detached_job_that_is_done_is_told_that_it_was_kept():
    opened = JobOpened(1, "j", spec(detached=True))
    answer = ended(detached=True).objection(opened)
    assert isinstance(answer, Kept)
    assert (answer.tasks, answer.closed) == (4, True)


def test_what_nobody_has_used_is_free():
    assert ended().objection(JobOpened(1, "k", spec())) is None


def test_the_oldest_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(history, "ENDED_MAX", 3)
    monkeypatch.setattr(history, "REMEMBERED_MAX", 2)
    made, terms = History(), spec()
    for name in "abcde":
        made.end(Job(name, terms, 1, 1, 0.0, terms.need, {}), "done")
    assert [name for name in "abcde" if made.has_ended(name)] == ["c", "d", "e"]
    assert [name for name in "abcde" if made.charged(name)] == ["d", "e"]
