"""An explanation of a job's deadline, and of workers that the plan leaves out."""

import pytest
from support.pure.parts import whole
from support.pure.town import CHEAP, DEAR, UTC_S, Town, spec

from gateway.api.views import job_limits, work_views
from gateway.api.views.federation_views import explain_job
from policies.placement.asks import Wishes


@pytest.fixture
def town():
    """Two cheap slots here, and forty dear ones at a peer."""
    made = Town()
    made.build("london", CHEAP, 2)
    made.build("paris", DEAR, 40)
    made.show()
    return made


def explained(town, site, approved=None):
    [job] = site.broker.jobs.values()
    return whole(explain_job(job, site.exchange, site.broker, UTC_S + town.now_s, approved))


def test_a_job_that_will_miss_its_deadline_says_so(town):
    london = town.sites["london"]
    wishes = Wishes(deadline_s=UTC_S + 25, allowed_sites=frozenset({"london"}))
    london.submit(12, task_s=10.0, wishes=wishes)
    town.deliver()
    found = explained(town, london)
    assert found["deadline"]["is_met"] is False
    assert "will be missed" in found["deadline"]["text"]
    assert any("paris" in each for each in found["deadline"]["ways"])


def test_running_tasks_have_an_expected_end(town):
    london = town.sites["london"]
    wishes = Wishes(deadline_s=UTC_S + 100, allowed_sites=frozenset({"london"}))
    london.submit(2, task_s=10.0, wishes=wishes)
    town.deliver()
    found = explained(town, london)
    assert found["waiting"] == 0
    assert found["deadline"]["is_met"] is True


def test_a_job_without_a_deadline_has_none(town):
    london = town.sites["london"]
    london.submit(2, task_s=10.0)
    town.deliver()
    assert explained(town, london)["deadline"] is None


def test_a_contract_with_a_site_that_is_expelled_says_what_comes_of_its_tasks(town):
    london = town.sites["london"]
    london.submit(8, task_s=10.0, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.deliver()
    town.pass_time(2.0)
    [job] = london.broker.jobs.values()
    assert any(each.worker.job for each in job.assignments.values())
    found = explained(town, london, approved=set())
    rows = [each for each in found["places"] if "/" in each["pool"]]
    assert rows
    for row in rows:
        assert "site paris is expelled, or not approved any more" in row["why_not"]
        assert "run again elsewhere when the contract ends, within" in row["why_not"]
    trusted = explained(town, london, approved={"paris"})["places"]
    assert not any("expelled" in each["why_not"] for each in trusted)


def test_a_plan_without_a_place_says_why_in_place_of_naming_itself(town):
    london = town.sites["london"]
    wishes = Wishes(deadline_s=UTC_S + 12, allowed_sites=frozenset({"london"}))
    london.submit(40, task_s=10.0, wishes=wishes)
    town.pass_time(3.0)  # some have begun, and the others would end too late by now
    [job] = london.broker.jobs.values()
    reasons = work_views.why_waiting(london.broker, job, UTC_S + town.now_s)
    assert job_limits.is_left_out(reasons)
    decision = london.exchange.deciding.decide_for(job, job.waiting, UTC_S + town.now_s)
    assert "would end its first task" in job_limits.why_no_place(decision)
    [here] = [each for each in explained(town, london)["places"] if "/" not in each["pool"]]
    assert here["why_not"].startswith("the plan leaves its pool out: it would end its first task")


def test_a_misspelt_site_is_answered_by_the_one_that_is_meant(town):
    london = town.sites["london"]
    wishes = Wishes(allowed_sites=frozenset({"pariss"}))
    assert london.exchange.reach.why_nowhere(spec(wishes=wishes)) == (
        "the job may run only at pariss (did you mean 'paris'?); no site pariss is known here; "
        "known: london, paris"
    )
    known = Wishes(allowed_sites=frozenset({"paris"}))
    assert london.exchange.reach.why_nowhere(spec(wishes=known)) == ""
