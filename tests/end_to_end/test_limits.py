"""A deadline and a cost limit together, as users meet them: refused with offers, or told later."""

import json
import time

import pytest
from members_support import run
from tests_support import InnerSite, wait_until

from federation import Client
from federation.errors import DeadlinePassed, JobRefused
from gateway.config import PoolConfig

HOUR_S = 3600.0


def double(x):
    return 2 * x


def slow(x):
    time.sleep(0.6)
    return x


@pytest.fixture
def site(tmp_path):
    """A slot that is cheap, and two that are dear."""
    pools = (
        PoolConfig("cheap", "local", 1, price="0.01 USD"),
        PoolConfig("dear", "local", 2, price="1 USD"),
    )
    made = InnerSite(tmp_path, pools=pools)
    yield made
    made.stop()


@pytest.fixture
def client(site):
    with Client(site.address) as made:
        wait_until(lambda: len(made.ask("workers")) == 2, "both pools are there")
        yield made


def limits(**changes):
    """Eight calls that take an hour: three hours and two dollars are too little."""
    terms = {"deadline_s": time.time() + 3.5 * HOUR_S, "max_cost": "2 USD", "task_s": HOUR_S}
    return terms | changes


@pytest.mark.slow
def test_a_job_that_can_not_keep_both_is_refused_and_taken_by_what_it_was_offered(client):
    with pytest.raises(JobRefused) as caught:
        client.options(**limits()).submit_job(double, range(8))
    refused = caught.value
    assert refused.code == "limits-unmet"
    assert "8 tasks of 3,600 s can't all be done by 20" in str(refused)
    assert "All can be done for that money by 20" in str(refused)
    later, dearer = refused.offers
    assert (later["kind"], dearer["kind"]) == ("later", "dearer")
    assert {each["pool"] for each in dearer["places"]} == {"cheap", "dear"}
    assert later["deadline_s"] > time.time() + 5 * HOUR_S
    for offer in refused.offers:
        view = client.options(**limits(**{key: offer[key] for key in ("deadline_s", "max_cost")}))
        job = view.submit_job(double, range(8))
        assert list(job.results()) == [2 * x for x in range(8)]
    # By then it is measured that a call takes no hour; who says so all the same is believed.
    assert list(client.options(**limits(task_s=None)).map(double, range(8)))[-1] == 14
    with pytest.raises(JobRefused):
        client.options(**limits()).submit_job(double, range(8))


@pytest.mark.slow
def test_map_submit_and_a_generator_are_refused_as_well(client):
    with pytest.raises(JobRefused) as caught:
        list(client.options(**limits()).map(double, range(8)))
    assert [each["kind"] for each in caught.value.offers] == ["later", "dearer"]
    hopeless = limits(deadline_s=time.time() + 60.0, max_cost="0.02 USD")
    with pytest.raises(JobRefused) as caught:
        client.options(**hopeless).submit(double, 1).result(20)
    assert [each["kind"] for each in caught.value.offers] == ["later"]
    # What does not say how many there are is judged when it does.
    with pytest.raises(JobRefused) as caught:
        client.options(**limits()).submit_job(double, (x for x in range(8)))
    assert caught.value.offers
    assert all(job["state"] in ("rejected", "done") for job in client.jobs())


@pytest.mark.slow
def test_the_command_line_says_what_a_job_could_have_instead(site, client):
    asked = ("explain", "--gateway", site.address, "--tasks", "8", "--task-s", "3600")
    said = run(*asked, "--within-s", "12600", "--max-cost", "2 USD")
    assert "8 tasks of 3,600 s can't all be done by 20" in said
    assert "or in that time for" in said
    found = json.loads(run(*asked, "--within-s", "12600", "--max-cost", "2 USD", "--json"))
    later, dearer = found["unmet"]["offers"]
    assert later["max_cost"] == "2 USD"
    assert dearer["max_cost_nanos"] > 2 * 10**9
    enough = json.loads(run(*asked, "--within-s", "12600", "--max-cost", "20 USD", "--json"))
    assert enough["unmet"] is None


@pytest.mark.slow
def test_what_turns_out_to_be_too_slow_is_said_and_a_whole_is_ended(site, client):
    """Sixty calls that are said to take 0.1 s, and take 0.6: they need twelve seconds, not two."""
    terms = {"max_cost": "5 USD", "task_s": 0.1}
    view = client.options(**terms, deadline_s=time.time() + 9.0)
    job = view.submit_job(slow, range(60))
    whole = client.options(**terms, whole=True, deadline_s=time.time() + 9.0)
    futures = [whole.submit(slow, x) for x in range(60)]
    explained = {}

    def is_said():
        explained.update(client.ask("job", job=job.id))
        return any(each["reason"] == "limits-unmet" for each in explained.get("why_waiting", ()))

    wait_until(is_said, "it is said")
    said = run("job", job.id, "--gateway", site.address)
    assert "can't all be done by" in said
    assert "limits-unmet" not in said
    job.cancel(stop=True)
    with pytest.raises(DeadlinePassed, match="can't all be done by"):
        futures[-1].result(20)
    assert futures[0].result(20) == 0
