"""Deadline and cost limit together, at a whole site: refused at first, or said as soon as known."""

from math import inf

import pytest
from town import CHEAP, DEAR, UTC_S, Town, spec

from federation.messages import Dropped, Kept, RejectJob
from gateway import events, views
from gateway.accounts import Limits
from gateway.federation_views import explain_job
from gateway.ledger import records
from gateway.limits import UNMET_S
from policies.asks import Wishes

FUNCTION = b"f" * 32
HOUR_S = 3600.0


@pytest.fixture
def town():
    """Four cheap slots here, and forty dear ones at a peer."""
    made = Town()
    made.build("london", CHEAP, 4)
    made.build("paris", DEAR, 40)
    made.show()
    return made


def bound(seconds, nanos, *, task_s=None, tasks=None, **wishes):
    """A job that is to be done in so many seconds, for so much."""
    return {
        "wishes": Wishes(deadline_s=UTC_S + seconds, **wishes),
        "max_cost_nanos": nanos,
        "currency": "USD",
        "task_s": task_s,
        "tasks": tasks,
    }


def opened(site, *, again=False, job="j", **changes):
    """Open a job; why it was refused, if it was."""
    if 1 not in site.broker.clients:
        site.do(events.ClientJoined(1, "ann"))
    site.do(events.JobOpened(1, job, spec(**changes), again=again))
    found = [each for each in site.told if isinstance(each, RejectJob)]
    return found[-1] if found else None


def slot_hours(hours, price_nanos):
    return round(hours * price_nanos)


def test_what_can_not_keep_both_is_refused_with_offers_and_taken_by_either(town):
    london = town.sites["london"]
    # Forty hours of work: ten hours here, one at the peer's for a hundred times the money.
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S, tasks=40)
    refused = opened(london, **limits)
    assert refused.code == "limits-unmet"
    assert not london.broker.jobs
    assert not [each for each in london.books if isinstance(each, records.JobOpened)]
    later, dearer = refused.details["offers"]
    assert "40 tasks of 3,600 s can't all be done by 1970-01-12 15:46:40 UTC" in refused.reason
    for offer in (later, dearer):
        assert offer["places"][0]["site"] in refused.reason
        job = offer["kind"]
        wishes = Wishes(deadline_s=offer["deadline_s"])
        terms = {**limits, "wishes": wishes, "max_cost_nanos": offer["max_cost_nanos"]}
        opened(london, job=job, **terms)
        assert job in london.broker.jobs
    assert 10 * HOUR_S < later["deadline_s"] - UTC_S < 12 * HOUR_S
    assert dearer["max_cost_nanos"] > slot_hours(32, DEAR)


@pytest.mark.parametrize(
    "limits",
    [
        bound(2 * HOUR_S, 0, tasks=40),  # nobody knows how long it takes
        bound(11 * HOUR_S, slot_hours(41, CHEAP), task_s=HOUR_S, tasks=40),
        {**bound(2 * HOUR_S, None, task_s=HOUR_S, tasks=400), "currency": None},  # one limit
        {**bound(0, 1, task_s=HOUR_S, tasks=400), "wishes": Wishes()},
        bound(1.0, 1, task_s=HOUR_S, tasks=40),  # not for more time alone, nor for money
    ],
)
def test_what_may_be_kept_or_is_not_known_is_not_refused(town, limits):
    assert opened(town.sites["london"], **limits) is None


def test_what_was_measured_judges_and_a_user_s_word_before_it(town):
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 3_600 * 10**9)
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), tasks=40)
    assert opened(london, **limits).code == "limits-unmet"
    london.told.clear()
    assert opened(london, **{**limits, "task_s": 60.0}) is None


@pytest.mark.parametrize("limit", ["wishes", "max_cost_nanos"])
def test_what_is_of_use_only_as_a_whole_is_held_against_one_limit_too(town, limit):
    london = town.sites["london"]
    terms = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S, tasks=400, whole=True)
    if limit == "wishes":
        terms |= {"max_cost_nanos": None, "currency": None}
    else:
        terms["wishes"] = Wishes(whole=True)
    refused = opened(london, **terms)
    (offer,) = refused.details["offers"]
    assert offer["kind"] == ("later" if limit == "wishes" else "dearer")
    assert (offer["deadline_s"] is None) is (limit == "max_cost_nanos")
    assert (offer["max_cost_nanos"] is None) is (limit == "wishes")


def test_how_many_there_are_may_be_known_at_the_end_only(town):
    """A generator says nothing: it is judged before the gateway answers for all of it."""
    london = town.sites["london"]
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S)
    assert opened(london, detached=True, **limits) is None
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 40))
    town.pass_time(1.0)
    assert not any(london.at_work.values())
    london.do(events.JobClosed(1, "j", 40))
    [refused] = [each for each in london.told if isinstance(each, RejectJob)]
    assert refused.code == "limits-unmet"
    assert not [each for each in london.told if isinstance(each, Kept) and each.closed]
    [ended] = [each for each in london.books if isinstance(each, records.JobEnded)]
    assert (ended.state, ended.done) == ("rejected", 0)
    assert not london.broker.jobs


def test_what_is_taken_begins_when_it_is_submitted_whole(town):
    london = town.sites["london"]
    opened(london, detached=True, **bound(11 * HOUR_S, slot_hours(41, CHEAP), task_s=HOUR_S))
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 40))
    london.do(events.JobClosed(1, "j", 40))
    assert any(london.at_work.values())


def test_what_the_gateway_keeps_from_being_submitted_begins(town):
    """Only its running makes room for the rest of it."""
    london = town.sites["london"]
    london.broker.limits = Limits(kept_bytes_max=30)
    opened(london, detached=True, **bound(11 * HOUR_S, slot_hours(41, CHEAP), task_s=HOUR_S))
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 40))
    assert any(london.at_work.values())


def test_a_job_that_goes_on_elsewhere_is_not_judged_anew(town):
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S, tasks=40)
    assert opened(town.sites["london"], again=True, **limits) is None


def test_of_very_many_in_one_breath_those_at_the_end_are_not_judged(town, monkeypatch):
    # A refusal takes as long as twelve plans over two pools, and a tenth of the looks is for them.
    monkeypatch.setattr("gateway.exchange.LOOKS_MAX", 280)
    london = town.sites["london"]
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S, tasks=40)
    for number in range(5):
        opened(london, job=f"job {number}", **limits)
    refused = [each.job for each in london.told if isinstance(each, RejectJob)]
    assert refused == ["job 0", "job 1"]
    town.pass_time(1.0)
    opened(london, job="later", **limits)
    assert "later" in [each.job for each in london.told if isinstance(each, RejectJob)]


# --- what becomes known later --------------------------------------------------------------------


def begin_slow(town, **wishes):
    """Tasks that seem to take a second each, and take sixty."""
    london = town.sites["london"]
    limits = bound(30.0, 10**9, task_s=1.0, allowed_sites=frozenset({"london"}), **wishes)
    del limits["tasks"]  # which nobody announced
    london.submit(40, **limits)
    town.pass_time(1.0)
    london.work(most=4, task_s=60.0)
    return london, london.broker.jobs["j"]


def test_what_can_not_be_kept_any_more_is_said_and_goes_on(town):
    london, job = begin_slow(town)
    town.pass_time(UNMET_S / 2)
    assert job.unmet == ""
    town.pass_time(UNMET_S)
    assert job.unmet.startswith("of what is left, 36 tasks of 60 s")
    assert "tasks of 60 s can't all be done by" in job.unmet
    assert "All can by" in job.unmet
    assert [note["text"] for note in views.notes(job)] == [job.unmet]
    [why] = views.why_waiting(london.broker, job, UTC_S)
    assert (why["reason"], why["text"]) == ("limits-unmet", job.unmet)
    found = explain_job(job, london.exchange, london.broker, UTC_S + town.now_s)
    assert found["unmet"]["offers"][0]["kind"] == "later"
    assert found["unmet"]["reason"] == "deadline"
    assert job.in_flight or job.waiting


def test_what_can_be_kept_again_is_said_too(town):
    london, job = begin_slow(town)
    town.pass_time(2 * UNMET_S)
    for _ in range(20):
        london.broker.durations.learn(FUNCTION, 1_000, 10**9)
    town.pass_time(1.0)
    assert job.unmet == ""
    assert views.notes(job)[-1]["text"] == "all of it can be done within its limits again"


def test_a_moment_of_doubt_is_not_told(town):
    london, job = begin_slow(town)
    town.pass_time(UNMET_S / 2)
    for _ in range(20):
        london.broker.durations.learn(FUNCTION, 1_000, 10**9)
    town.pass_time(2 * UNMET_S)
    assert not job.notes


def test_what_is_of_use_only_as_a_whole_is_ended_and_nothing_more_is_spent(town):
    london, job = begin_slow(town, whole=True)
    town.pass_time(2 * UNMET_S)
    town.deliver()
    [dropped] = [each for each in london.told if isinstance(each, Dropped)][:1]
    assert dropped.failure == "deadline"
    assert "can't all be done by" in dropped.reason
    assert job.waiting == 0
    assert not begun_after(london, job)


def begun_after(london, job):
    """Whether anything of a job is begun that was not under way."""
    before = job.in_flight
    london.work(task_s=60.0)
    return job.in_flight > before or job.waiting


def test_what_costs_more_than_it_may_as_a_whole_is_ended_for_its_budget(town):
    london = town.sites["london"]
    here = frozenset({"london"})
    limits = bound(inf, slot_hours(1, CHEAP), task_s=60.0)
    limits["wishes"] = Wishes(whole=True, allowed_sites=here)
    del limits["tasks"]  # which nobody announced
    london.submit(40, **limits)
    town.pass_time(1.0)
    london.work(most=4, task_s=600.0)
    town.pass_time(2 * UNMET_S)
    dropped = [each for each in london.told if isinstance(each, Dropped)]
    assert {each.failure for each in dropped} == {"budget"}
