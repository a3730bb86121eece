"""A seller's refusal blocks no other work: two real sites, one with rules."""

import time

import pytest
from support.members import MemberSite, federated, run
from support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

REST_S = 600  # a back-off that a test would not outlast
BACK_OFF = f"[contracts]\nrest_s = {REST_S}\nrest_max_s = {REST_S}\n"


def nap(seconds):
    time.sleep(seconds)
    return seconds


@pytest.fixture
def pair(tmp_path):
    """London, and Paris, whose back-off would be long."""
    members = tuple(
        MemberSite(tmp_path, name, 2, "0.04 USD", start=False) for name in ("london", "paris")
    )
    for each in members:
        text = each.config.read_text()
        each.config.write_text(text.replace("[contracts]\n", BACK_OFF))
        each.start()
    with federated(*members):
        yield members


def test_a_forbidden_job_of_another_user_slows_no_permitted_one(pair):
    london, paris = pair
    run("trust", "london", "--may-send", "projects=risk", *paris.where)
    why = "the rules of paris allow london no slots: no may-send rule permits work of project "
    with london.client() as client, london.client(user="bob") as other:
        there, elsewhere = client.options(sites=["paris"]), other.options(sites=["paris"])
        forbidden = elsewhere.options(project="secret").submit_job(nap, [0.0] * 4)
        wait_until(
            lambda: f"{why}secret" in str(london.ask("explain", job=forbidden.id)["refused"]),
            "Paris declines the forbidden job",
        )
        began_s = time.monotonic()
        for _ in range(3):
            futures = [there.options(project="risk").submit(nap, 0.2) for _ in range(4)]
            assert [each.result(timeout=REST_S / 2) for each in futures] == [0.2] * 4
        assert time.monotonic() - began_s < REST_S / 2
        forbidden.cancel()


def test_work_goes_on_as_soon_as_a_slot_within_the_limit_is_free(pair):
    london, paris = pair
    run("trust", "london", "--may-send", "slots=1", *paris.where)
    with london.client() as client:
        there = client.options(sites=["paris"])
        began_s = time.monotonic()
        jobs = [there.options(name=f"j{n}").submit_job(nap, [0.5] * 4) for n in range(4)]
        for job in jobs:
            assert list(job.results()) == [0.5] * 4
        assert time.monotonic() - began_s < REST_S / 2
