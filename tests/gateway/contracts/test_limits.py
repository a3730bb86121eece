"""Deadline and cost limit together, at a whole site: refused at first, or said as soon as known."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.pure.parts import whole
from support.pure.town import CHEAP, DEAR, UTC_S, Town, spec

from federation.messages.messages import Dropped, Kept, RejectJob
from federation.offers import read_offers
from gateway.api.views import work_views
from gateway.api.views.federation_views import explain_job
from gateway.contracts.planning.limits import START_S, UNMET_S, committed_nanos, said_s
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.placement.asks import FASTEST, Wishes

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
    assert not [each for each in london.books if isinstance(each, records.JobOpenedRecord)]
    later, dearer = refused.details["offers"]
    assert "40 tasks of 1 h can't all be done by 1970-01-12 15:46:40 UTC" in refused.reason
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
        {**bound(0, CHEAP, task_s=HOUR_S, tasks=400), "wishes": Wishes()},
        # Not for more time alone, nor for money; but for one task there is enough of that.
        bound(HOUR_S, CHEAP, task_s=HOUR_S, tasks=40),
    ],
)
def test_what_may_be_kept_or_is_not_known_is_not_refused(town, limits):
    assert opened(town.sites["london"], **limits) is None


HOPELESS = "60 tasks of 10 min can't all be done {}for 0.00001 USD; none of them can: one task "


@pytest.mark.parametrize("deadline_s", [None, HOUR_S])
def test_what_pays_for_no_task_anywhere_is_refused_at_once_with_the_figure(deadline_s):
    """Also where no site could do all of it in time, and there is no offer."""
    made = Town()
    london = made.build("london", CHEAP, 4)
    limits = bound(deadline_s or 0.0, 10_000, task_s=600.0, tasks=60)
    if deadline_s is None:
        limits["wishes"] = Wishes()
    refused = opened(london, **limits)
    by = "by 1970-01-12 14:46:40 UTC " if deadline_s else ""
    found = f"{HOPELESS.format(by)}costs 0.001666667 USD at london/local, the cheapest pool"
    assert refused is not None
    assert (refused.code, refused.reason) == ("limits-unmet", found)
    assert refused.details == {"offers": []}
    # One task of it can be paid for, though not all: what can't be is said as it goes on.
    assert opened(london, job="k", **(limits | {"max_cost_nanos": 1_666_667})) is refused


@pytest.mark.parametrize("tasks", [1, 40])
def test_what_takes_longer_than_the_time_left_is_refused_at_once_with_the_figure(town, tasks):
    london = town.sites["london"]
    limits = bound(600.0, None, task_s=HOUR_S, tasks=tasks) | {"currency": None}
    refused = opened(london, **limits)
    assert refused is not None
    assert refused.code == "limits-unmet"
    found = "can't be done" if tasks == 1 else "can't all be done"
    assert f" of 1 h {found} by 1970-01-12 13:56:40 UTC" in refused.reason
    assert ": one that begins now ends 50 min after the deadline. " in refused.reason
    offer = refused.details["offers"][0]
    assert offer["kind"] == "later"
    wishes = Wishes(deadline_s=offer["deadline_s"])
    opened(london, job="later", **(limits | {"wishes": wishes}))
    assert "later" in london.broker.jobs


def test_a_call_that_seems_too_long_by_other_calls_begins_at_an_idle_slot(town):
    """They may have been longer than this one; its client has not said how long it takes."""
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 3_600 * 10**9)
    limits = bound(60.0, None)
    london.submit(1, wishes=limits["wishes"])
    town.deliver()
    assert london.broker.jobs["j"].in_flight == 1


@pytest.mark.parametrize("given", [{"task_s": 60.0}, {"whole": True}])
def test_a_call_does_not_begin_where_its_end_in_time_is_a_limit_or_not_known_to_be_late(
    town, given
):
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 3_600 * 10**9)
    limits = bound(600.0, None, **given)
    refused = opened(london, **(limits | {"currency": None}))
    assert (refused is None) is ("task_s" in given)


def test_what_a_site_that_is_not_heard_of_yet_may_do_for_less_is_not_hopeless():
    made = Town()
    london = made.build("london", DEAR, 4)
    made.build("paris", CHEAP, 4)
    limits = bound(HOUR_S, 10**7, task_s=600.0, tasks=60)
    assert opened(london, **limits) is None
    made.show()
    assert opened(london, job="k", **limits) is None  # Paris would do six of them
    assert opened(london, job="l", **(limits | {"max_cost_nanos": 1000})) is not None


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
    london.broker.limits = ClientLimits(kept_bytes_max=30)
    opened(london, detached=True, **bound(11 * HOUR_S, slot_hours(41, CHEAP), task_s=HOUR_S))
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 40))
    assert any(london.at_work.values())


def test_a_job_that_goes_on_elsewhere_is_not_judged_anew(town):
    limits = bound(2 * HOUR_S, slot_hours(40, CHEAP), task_s=HOUR_S, tasks=40)
    assert opened(town.sites["london"], again=True, **limits) is None


def test_of_very_many_in_one_breath_those_at_the_end_are_not_judged(town, monkeypatch):
    # A refusal is as long as twelve plans, a plan with one known pool as 17 or 18 looks, and a
    # tenth of the looks is for them: one refusal fits, and a second begins.
    monkeypatch.setattr("gateway.contracts.planning.planning_rate.LOOKS_MAX", 2400)
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
    assert job.unmet.startswith("of the remaining tasks, 36 tasks of 1 min")
    assert "tasks of 1 min can't all be done by" in job.unmet
    assert "All can by" in job.unmet
    assert [note["text"] for note in work_views.notes(job)] == [job.unmet]
    [why] = work_views.why_waiting(london.broker, job, UTC_S)
    assert (why["reason"], why["text"]) == ("limits-unmet", job.unmet)
    found = whole(explain_job(job, london.exchange, london.broker, UTC_S + town.now_s))
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
    assert work_views.notes(job)[-1]["text"] == "all of it can be done within its limits again"


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


# --- what is planned again as results come in ----------------------------------------------------


def plan_town(paris_slots):
    town = Town()
    london, paris = town.build("london", CHEAP, 4), town.build("paris", DEAR, paris_slots)
    town.show()
    return town, london, paris


def submit(town, london, tasks, seconds, nanos, said, **wishes):
    limits = bound(seconds, nanos, task_s=said, **wishes)
    del limits["tasks"]
    london.submit(tasks, **limits)
    town.deliver()
    renew(town)


def renew(town):
    """Adverts are renewed when something has changed; until then earlier requests count."""
    for _ in range(4):
        town.show()
        town.pass_time(0.5)


def begun(site):
    return sum(len(each.arguments) for work in site.at_work.values() for each in work)


def take(town, seconds):
    """Each begun task takes so long, everywhere."""
    held = {site: begun(site) for site in town.sites.values()}
    for _ in range(round(seconds / 10.0)):
        town.pass_time(10.0, step_s=1.0)
        town.show()
    for site, most in held.items():
        site.work(most=most, task_s=seconds)
    town.deliver()
    renew(town)


def test_tasks_that_turn_out_longer_make_a_job_go_where_it_is_dearer():
    """Said to take a minute, four slots can do forty at home; of five minutes they can't."""
    town, london, paris = plan_town(40)
    submit(town, london, 40, 750.0, 20 * 10**9, 60.0)
    assert (begun(london), begun(paris)) == (4, 0)
    take(town, 300.0)
    # 449 s are left: one round more here, and the rest there.
    assert (begun(london), begun(paris)) == (4, 32)
    take(town, 300.0)
    assert len(london.answers()) == 40


def test_tasks_of_which_none_ends_are_not_expected_soon_any_more():
    town, london, paris = plan_town(40)
    submit(town, london, 40, 750.0, 20 * 10**9, 60.0)
    town.pass_time(60.0 + START_S / 2, step_s=1.0)
    assert begun(paris) == 0
    town.show()
    town.pass_time(30.0, step_s=1.0)
    assert begun(paris) > 0


def test_tasks_that_turn_out_shorter_make_a_job_go_where_it_is_cheaper():
    """Of ten minutes four slots at home do twelve in three rounds; of one minute they do all."""
    town, london, _ = plan_town(8)
    submit(town, london, 36, 1_900.0, 20 * 10**9, 600.0)
    job = london.broker.jobs["j"]
    assert set(job.places) == {"local", "paris/local"}
    take(town, 60.0)
    assert set(job.places) == {"local"}
    while london.broker.jobs:
        take(town, 60.0)
    assert len(london.answers()) == 36
    used = [each for each in london.books if isinstance(each, records.UsageRecord)]
    assert sum(each.tasks for each in used if each.pool == "paris/local") <= 16


def test_what_is_fastest_goes_slower_when_it_turns_out_too_dear():
    town, london, paris = plan_town(8)
    budget = 3 * 10**9  # forty minutes are 0.67 USD there
    submit(town, london, 40, 10 * HOUR_S, budget, 60.0, objective=FASTEST)
    assert (begun(london), begun(paris)) == (4, 8)
    job = london.broker.jobs["j"]
    assert set(job.places) == {"local", "paris/local"}
    take(town, 600.0)
    # Ten minutes are 0.167 USD there, and next to nothing at home: what is out takes what is left.
    assert set(job.places) == {"local"}
    while "j" in london.broker.jobs:
        take(town, 600.0)
    assert len(london.answers()) == 40
    assert job.limited_nanos <= budget


@pytest.mark.parametrize(
    ("hint_s", "measured_s", "ran_s", "has_ended", "expected_s"),
    [
        (None, None, 0.0, False, None),
        (None, None, 999.0, False, None),  # nobody knows: the usual round
        (None, 5.0, 0.0, False, None),  # what was measured counts
        (None, 5.0, 5.0 + START_S, False, None),
        (None, 5.0, 6.0 + START_S, False, 6.0),
        (60.0, None, 0.0, False, 60.0),
        (60.0, 5.0, 0.0, False, 60.0),  # its client knows better
        (60.0, 5.0, 61.0 + START_S, False, 61.0),
        (60.0, 5.0, 999.0, True, None),  # it is seen
        (60.0, None, 999.0, True, 60.0),
    ],
)
def test_whose_word_counts_of_how_long_a_task_takes(
    town, hint_s, measured_s, ran_s, has_ended, expected_s
):
    london = town.sites["london"]
    london.submit(8, task_s=hint_s, wishes=Wishes(allowed_sites=frozenset({"london"})))
    job = london.broker.jobs["j"]
    assert job.assignments
    if has_ended:
        job.ended.add(0, 1)
    assert said_s(job, measured_s, UTC_S + ran_s) == expected_s


def test_what_is_under_way_costs_what_is_known_now(town):
    london = town.sites["london"]
    limits = bound(2 * HOUR_S, 10**9, task_s=60.0)
    del limits["tasks"]
    london.submit(8, **limits)
    job = london.broker.jobs["j"]
    four = job.in_flight * CHEAP // 60
    assert (job.in_flight, job.committed_nanos) == (4, pytest.approx(four, abs=4))
    assert committed_nanos(job, 600.0) == pytest.approx(10 * four, abs=40)
    assert committed_nanos(job, None) == job.committed_nanos
    job.spec = replace(job.spec, wishes=Wishes())  # not held to both
    assert committed_nanos(job, 600.0) == job.committed_nanos


# --- who is taken is served ----------------------------------------------------------------------

TASK_S = 20.0


def live(town, until_s):
    """Time passes at both sites, and each task takes TASK_S of it; when the last one ended."""
    begun_s, last_s = {}, 0.0
    while town.now_s < until_s and any(site.broker.jobs for site in town.sites.values()):
        for site in town.sites.values():
            for worker, work in site.at_work.items():
                for order in list(work):
                    key = site.name, worker, order.assignment
                    has_run_s = town.now_s - begun_s.setdefault(key, town.now_s)
                    if has_run_s >= TASK_S and order in work:
                        site._report(worker, order, len(order.arguments), TASK_S)
                        last_s = town.now_s
        town.deliver()
        town.show()
        town.pass_time(0.5, step_s=0.25)
    return last_s


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(
    here=st.integers(1, 6),
    there=st.integers(1, 12),
    tasks=st.integers(1, 30),
    rounds=st.integers(1, 5),
    cents=st.integers(1, 20),
    which=st.sampled_from([min, max]),
)
def test_who_takes_an_offer_is_done_in_time_and_for_no_more(
    here, there, tasks, rounds, cents, which
):
    """Also if taken at once; as long as nothing changes, and tasks take the estimated time."""
    town = Town()
    london = town.build("london", CHEAP, here)
    town.build("paris", DEAR, there)
    town.show()
    limits = bound(rounds * TASK_S + 10.0, cents * 10**7, task_s=TASK_S, tasks=tasks)
    london.exchange.refresh(UTC_S)
    plan = london.exchange.deciding.decide(spec(**limits), tasks, UTC_S, TASK_S).plan
    refused = opened(london, **limits)
    assert (plan is None or plan.short > 0) or refused is None
    if refused is not None:
        offer = which(read_offers(refused.details), key=lambda each: each.kind)
        limits["wishes"] = Wishes(deadline_s=offer.deadline_s)
        limits["max_cost_nanos"] = offer.max_cost_nanos
        london.told.clear()
        assert opened(london, **limits) is None
    else:
        assume(plan is not None and not plan.short)
    job = london.broker.jobs["j"]
    london.do(events.TasksArrived(1, "j", 0, [b"%d" % at for at in range(tasks)]))
    london.do(events.JobClosed(1, "j", tasks))
    town.deliver()
    until_s = limits["wishes"].deadline_s - UTC_S
    ended_s = live(town, until_s + 60.0)
    assert len(london.answers()) == tasks
    assert ended_s <= until_s
    assert job.limited_nanos <= limits["max_cost_nanos"]
