"""Alerts of a real gateway, by its command line, over a kill."""

import time

import pytest
from support.answers import answer
from support.command import quick
from support.processes import wait_until

pytestmark = pytest.mark.real

CONFIG = """
[alerts]
interval_s = 0.1

[[alert]]
name = "tiny"
kind = "budget"
amount = "0.000000001 USD"
zone = "Europe/London"
command = ["sh", "-c", 'echo "$GRIDFED_ALERT_LEVEL $GRIDFED_ALERT_TEST" >> told']
"""


def gridfed(site, *arguments, code=0):
    return quick(*arguments, "--gateway", site.address, code=code)


def test_a_budget_is_told_once_whatever_becomes_of_the_gateway(make_site):
    site = make_site(1, config=CONFIG)
    told = site.folder / "told"
    (before,) = answer(gridfed(site, "alerts", "--json"))
    assert (before["spent_nanos"], before["raised"]) == (0, [])
    with site.client() as client:
        client.submit(time.sleep, 0.01).result()  # which costs more than a nano-unit
    wait_until(lambda: told.exists() and told.read_text().count("\n") == 3, "all three levels")
    assert told.read_text() == "50 0\n80 0\n100 0\n"
    wait_until(lambda: _raised(site) == [50, 80, 100], "that they are recorded")
    site.kill()
    site.start()
    gridfed(site, "alerts", "test", "tiny")
    wait_until(lambda: "0 1" in told.read_text(), "the test")
    assert told.read_text().count("\n") == 4
    assert "nothing has happened" in site.gateway.text()
    table = gridfed(site, "alerts")
    assert "tiny" in table
    assert "50 %, 80 %, 100 %" in table
    assert "not found; known alerts" in gridfed(site, "alerts", "test", "other", code=1)


def _raised(site):
    return answer(gridfed(site, "alerts", "--json"))[0]["raised"]
