"""`gridfed status` reports problems, with real sites: a partner that is gone, and is back."""

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.members import dear_and_cheap
from support.processes import wait_until

from gateway.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.real]


def status(member, *options):
    done = CliRunner().invoke(cli, ["status", "--gateway", member.address, *options])
    return done.exit_code, done.output


def codes(member):
    code, text = status(member, "--json")
    found = [(each["code"], each["subject"]) for each in answer(text)["problems"]]
    assert code == (1 if found else 0)
    return found


def test_a_partner_that_is_gone_is_a_problem_until_it_is_back(tmp_path):
    with dear_and_cheap(tmp_path) as (london, paris):
        wait_until(lambda: codes(london) == [], "nothing is wrong")
        paris.keep_port()
        paris.gateway.stop()
        wait_until(
            lambda: codes(london) == [("partner-unreachable", "paris")], "London misses Paris"
        )
        code, text = status(london)
        assert code == 1
        assert "problem: paris is " in text
        paris.start()
        wait_until(lambda: codes(london) == [], "Paris is back")
