"""Jobs that may wait, at a whole site: when they begin, when they don't, and the texts about it."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.pure.parts import whole
from support.pure.town import CHEAP, DEAR, UTC_S, Town, spec

from federation.messages import deals
from federation.messages.adverts import Outlook
from gateway.api.views.federation_views import explain_job
from gateway.scheduler.model import events
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.costs.carbon import Emissions, Intensity, Machine
from policies.placement.asks import CHEAPEST, GREENEST, Preferences, Wishes

FUNCTION = b"f" * 32
STEP_S = 5.0
PREFERENCES = Preferences(defer_margin_s=2.0)


def may_wait(for_s=60.0, objective=GREENEST, **changes):
    return Wishes(objective=objective, deadline_s=UTC_S + for_s, deferrable=True, **changes)


def town_of(*sites):
    """Sites of four slots at their prices."""
    town = Town()
    town.preferences = PREFERENCES
    for name, price in sites:
        town.build(name, price, 4)
    return town


@pytest.fixture
def town():
    """One site, whose function is known to take a second."""
    made = town_of(("london", CHEAP))
    made.sites["london"].broker.durations.learn(FUNCTION, 1_000, 1_000 * 10**9)
    electricity(made, "london", 400, 300, 100, 300)
    return made


def electricity(town, site, now, *ahead):
    """The emissions of a site's electricity now and in the steps to come, grams a kilowatt-hour."""
    step = town.now_s // STEP_S * STEP_S
    outlook = Outlook(UTC_S + step + STEP_S, STEP_S, tuple(10 * each for each in ahead))
    known = Emissions(Machine(0, 1_000_000), Intensity(now * 1_000, "test"), outlook)
    town.sites[site].do(events.EmissionsKnown("local", known))
    town.show()


def begun(site):
    return sum(len(each.arguments) for work in site.at_work.values() for each in work)


def first_begun_s(town, site, at_most_s=300.0):
    while not begun(site):
        assert town.now_s < at_most_s
        town.pass_time(0.05)
    return town.now_s


def test_a_job_waits_for_the_greenest_hour_and_then_runs(town):
    london = town.sites["london"]
    london.submit(8, wishes=may_wait())
    town.pass_time(9.5)
    assert not begun(london)
    assert first_begun_s(town, london) == pytest.approx(10.0, abs=0.3)
    town.run(lambda: len(london.answers()) == 8, task_s=1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"wishes": replace(may_wait(), deferrable=False)},
        {"wishes": may_wait(objective=CHEAPEST)},
        {"wishes": may_wait(for_s=8.0)},
        {"wishes": may_wait(objective=None)},  # this site prefers it cheap
    ],
)
def test_a_job_that_gains_nothing_by_it_does_not_wait(town, changes):
    london = town.sites["london"]
    london.submit(8, **changes)
    assert begun(london)


def test_what_nobody_knows_the_length_of_runs_a_round_first():
    town = town_of(("london", CHEAP))
    electricity(town, "london", 400, 300, 100, 300)
    london = town.sites["london"]
    london.submit(12, wishes=may_wait())
    assert begun(london) == 4  # a task for each slot
    london.work(task_s=1.0)
    town.pass_time(5.0)
    assert begun(london) == 0
    assert first_begun_s(town, london) == pytest.approx(10.0, abs=0.3)


def test_a_forecast_that_changes_changes_the_plan(town):
    london = town.sites["london"]
    london.submit(8, wishes=may_wait())
    town.pass_time(1.0)
    electricity(town, "london", 100, 400, 400, 400)
    assert first_begun_s(town, london) < 4.0


def test_the_best_hours_after_its_deadline_are_not_waited_for():
    town = town_of(("london", CHEAP))
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 10**9)
    electricity(town, "london", 800, 400, 200, 100)
    london.submit(4, wishes=may_wait(for_s=14.0))
    # A task is counted as a second and a half, and the margin is two seconds.
    assert first_begun_s(town, london) == pytest.approx(10.0, abs=0.3)


def test_a_peer_s_greener_hour_is_waited_for_and_bought_then():
    town = town_of(("london", CHEAP), ("paris", CHEAP))
    london, paris = town.sites["london"], town.sites["paris"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 10**9)
    electricity(town, "london", 400, 400, 400)
    electricity(town, "paris", 500, 50, 500)
    london.submit(4, wishes=may_wait(for_s=30.0))
    town.deliver()
    town.pass_time(4.5)
    assert not [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    first_begun_s(town, paris)
    assert town.now_s == pytest.approx(5.0, abs=0.3)
    [question] = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    # Who is sent a task is to run it: waiting is for its origin.
    assert "deferrable" not in question.wishes
    assert not begun(london)


def test_what_is_not_submitted_whole_and_may_be_held_back_by_its_client_does_not_wait(
    town, monkeypatch
):
    monkeypatch.setattr("gateway.contracts.planning.deferring.OPEN_TASKS_MAX", 6)
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"))
    for job, tasks, announced in (("few", 5, None), ("many", 6, None), ("told", 6, 8)):
        london.do(events.JobOpened(1, job, spec(wishes=may_wait(), tasks=announced)))
        london.do(events.TasksArrived(1, job, 0, [b"x"] * tasks))
    town.pass_time(1.0)
    out = {each.job for work in london.at_work.values() for each in work}
    assert out == {"many"}


def test_what_was_announced_is_planned_for_before_it_comes(town):
    """Of four hundred tasks four are here: they can't wait for the last moment."""
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"))
    opened = events.JobOpened(1, "j", spec(wishes=may_wait(for_s=165.0), tasks=400))
    london.do(opened)
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 4))
    assert begun(london) == 4


def test_waiting_jobs_do_not_keep_others_out(town):
    london = town.sites["london"]
    london.broker.limits = ClientLimits(kept_bytes_max=100)
    london.submit(8, "small", detached=True, wishes=may_wait())
    assert not begun(london)
    london.do(events.ClientJoined(2, "bob"))
    london.do(events.JobOpened(2, "large", spec(detached=True, wishes=may_wait())))
    london.do(events.TasksArrived(2, "large", 0, [b"x" * 60]))
    assert {each.job for work in london.at_work.values() for each in work} == {"large"}
    town.pass_time(3.0)
    assert {each.job for work in london.at_work.values() for each in work} == {"small", "large"}


def test_explain_says_until_when_it_waits_and_what_that_saves(town):
    london = town.sites["london"]
    london.submit(8, wishes=may_wait())
    job = london.broker.jobs["j"]
    found = whole(explain_job(job, london.exchange, london.broker, UTC_S))
    assert (found["short"], found["short_reason"]) == (8, "better-later")
    deferral = found["deferral"]
    assert deferral["waits"] == 8
    assert deferral["until_s"] == UTC_S + 10
    assert deferral["carbon_g"] == pytest.approx(8 * 100 / 3600)
    assert deferral["at_once_carbon_g"] == pytest.approx(8 * 400 / 3600)
    assert [run["tasks"] for run in deferral["runs"]] == [8]
    london.submit(8, "other", wishes=may_wait(for_s=3.0))
    job = london.broker.jobs["other"]
    found = whole(explain_job(job, london.exchange, london.broker, UTC_S))
    assert found["deferral"]["waits"] == 0
    assert "but starts now: " in found["deferral"]["text"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.integers(1, 20),
    st.floats(4, 30).map(lambda seconds: round(seconds, 1)),
)
def test_no_deadline_is_missed_by_waiting(steps, tasks, for_s):
    """Four slots, and tasks of a second; looks every twentieth of a second see them end."""
    assume(1.05 * -(-tasks // 4) + 0.1 < for_s)
    town = town_of(("london", CHEAP))
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 10**6, 10**15)
    electricity(town, "london", *(100 * each for each in steps))
    london.submit(tasks, wishes=may_wait(for_s=for_s))
    begun_s = {}
    while len(london.answers()) < tasks:
        assert town.now_s < for_s
        town.pass_time(0.05)
        for worker, orders in london.at_work.items():
            for order in list(orders):
                since_s = begun_s.setdefault(order.assignment, town.now_s)
                if town.now_s >= since_s + 1.0 - 1e-6:
                    london._report(worker, order, len(order.arguments), 1.0)


def test_a_dear_green_peer_is_not_what_money_waits_for():
    """The same wish under another objective waits for other hours, or for none."""
    town = town_of(("london", DEAR), ("paris", CHEAP))
    london = town.sites["london"]
    london.broker.durations.learn(FUNCTION, 1_000, 1_000 * 10**9)
    electricity(town, "london", 400, 10, 10)
    electricity(town, "paris", 400)
    london.submit(4, wishes=may_wait(objective=CHEAPEST))
    town.deliver()
    assert begun(town.sites["paris"]) == 4
