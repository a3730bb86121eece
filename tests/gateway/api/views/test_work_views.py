"""The views of jobs for people."""

from dataclasses import dataclass

import pytest

from federation.words import count
from gateway.api.views import work_views
from gateway.ledger.db.jobs.records import JobRow
from policies.access.fairness import Tree
from policies.access.shares import FairShare
from policies.parties import Owner, PartyKind


@dataclass
class Live:
    in_flight: int = 0
    waiting: int = 0
    leaving: str = ""
    blocked: int = 0


def row(**changes):
    fields = dict.fromkeys(JobRow.__dataclass_fields__, 0)
    texts = dict.fromkeys(("job", "name", "user", "project", "state", "reason"), "x")
    return JobRow(**{**fields, **texts, "costs_nanos": {}, "prices_nanos": {}, **changes})


@pytest.mark.parametrize(
    ("job", "state"),
    [
        (Live(1, 1), "running"),
        (Live(0, 1), "waiting"),
        (Live(), "open"),
        (Live(blocked=1), "waiting"),
        (Live(1, 1, "cancelled"), "cancelling"),
        (Live(1, 0, "abandoned"), "ending"),
    ],
)
def test_a_job_with_nothing_to_run_is_open_and_does_not_wait(job, state):
    assert work_views.live_state(job) == state


def test_a_job_all_of_whose_tasks_were_cancelled_is_cancelled():
    assert work_views.stored_job(row(state="done", cancelled=3))["state"] == "cancelled"
    assert work_views.stored_job(row(state="done", cancelled=2, done=1))["state"] == "done"
    assert work_views.stored_job(row(state="done"))["state"] == "done"


@pytest.mark.parametrize(
    ("done", "failed", "cancelled", "state"),
    [
        (3, 0, 0, "done"),
        (3, 0, 1, "done"),
        (0, 3, 0, "failed"),
        (0, 1, 2, "failed"),
        (2, 1, 0, "partly failed"),
    ],
)
def test_a_job_with_failed_tasks_is_not_done(done, failed, cancelled, state):
    ended = row(
        state="done", reason="E: e" * bool(failed), done=done, failed=failed, cancelled=cancelled
    )
    view = work_views.stored_job(ended)
    assert (view["state"], view["first_error"], view["reason"]) == (state, ended.reason, "")


def test_a_job_of_older_books_has_no_first_error():
    view = work_views.stored_job(row(state="done", reason="", failed=2))
    assert (view["state"], view["first_error"]) == ("failed", "")
    view = work_views.stored_job(row(state="cancelled", reason="cancelled on request", failed=2))
    assert (view["state"], view["reason"]) == ("cancelled", "cancelled on request")


def test_the_latest_jobs_are_those_submitted_last():
    jobs = [{"id": at, "submitted_at_s": float(at)} for at in (2, 5, 1, 4)]
    assert [job["id"] for job in work_views.latest(jobs, 2)] == [5, 4]


def test_one_is_written_without_the_s():
    assert [count(number, "slot") for number in (0, 1, 2000)] == [
        "0 slots",
        "1 slot",
        "2,000 slots",
    ]


def test_the_share_of_each_user_is_shown_to_that_user_alone():
    tree = Tree(FairShare(each=PartyKind.USER))
    leaf = tree.leaf_of(Owner("bob", "", "risk", ""))
    assert work_views._is_shown(leaf, lambda party: party.name == "bob")
    assert not work_views._is_shown(leaf, lambda party: party.name == "eve")
