"""A seller is expelled while it runs tasks, and admitted again: real gateways, the command line."""

import time

import pytest
from support.members import LEASE_S, MemberSite, federate, run
from support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]


def slow(at):
    time.sleep(LEASE_S - 1.5)
    return at


def test_the_tasks_of_an_expelled_seller_run_elsewhere_and_are_not_paid_there(tmp_path):
    london = MemberSite(tmp_path, "london", 1, "4 USD")
    paris = MemberSite(tmp_path, "paris", 2, "0.04 USD")
    try:
        federate(london, paris)
        with london.client() as client:
            job = client.options(retries=0, name="nightly").submit_job(slow, [1, 2])
            wait_until(
                lambda: sum(row["in_flight"] for row in paris.ask("jobs")) == 2, "both run abroad"
            )
            run("expel", "paris", "--yes", *london.where)
            run("keep", "paris", *london.where)
            run("approve", "paris", paris.fingerprint, *london.where)
            assert list(job.results()) == [1, 2]
            assert job.state == "done"
        assert not london.deals("buy")
        assert "post" not in paris.deals("sell")
    finally:
        london.gateway.stop()
        paris.gateway.stop()
