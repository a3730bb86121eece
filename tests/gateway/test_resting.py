"""Whom a buyer leaves alone, and for how long."""

import pytest
from town import RULES

from gateway.resting import Resting


@pytest.fixture
def resting():
    return Resting(RULES)


def test_a_site_rests_twice_as_long_each_time_until_a_contract_opens(resting):
    utc_s, waits = 1000.0, []
    for _ in range(3):
        resting.spare("paris", utc_s, "declined")
        waits.append(resting.sites["paris"].until_s - utc_s)
        utc_s = resting.sites["paris"].until_s
    assert waits == [RULES.rest_s, 2 * RULES.rest_s, 4 * RULES.rest_s]
    resting.note_useful("paris")
    resting.spare("paris", utc_s, "declined")
    assert resting.sites["paris"].until_s - utc_s == RULES.rest_s


def test_what_goes_wrong_meanwhile_makes_no_rest_longer(resting):
    resting.spare("paris", 0.0, "declined")
    until_s = resting.sites["paris"].until_s
    resting.spare("paris", until_s - 0.1, "declined again")
    assert resting.sites["paris"].until_s == until_s


def test_a_session_ends_the_rest_of_a_site_that_could_not_be_reached(resting):
    resting.unreachable("paris", 0.0)
    assert resting.is_resting("paris", 0.1)
    resting.reached("paris")
    assert not resting.is_resting("paris", 0.1)


def test_a_lost_and_found_session_ends_no_rest_for_another_reason(resting):
    resting.spare("paris", 0.0, "declined", is_no=True)
    resting.unreachable("paris", 0.1)
    resting.reached("paris")
    assert resting.was_refused("paris")
    assert resting.is_resting("paris", 0.2)


def test_who_has_no_slot_rests_for_a_moment_however_often(resting):
    for utc_s in (0.0, 10.0, 20.0):
        resting.spare_full("paris", utc_s, "full")
        assert resting.sites["paris"].until_s - utc_s <= RULES.rest_s


def test_what_was_said_of_jobs_that_are_gone_is_forgotten(resting):
    resting.note_useless("j", "paris", 0.0)
    resting.spare("rome", 0.0, "declined")
    resting.tidy(0.1, {"j"})
    assert resting.is_useless("j", "paris", 0.1)
    resting.tidy(1e6, set())
    assert not resting.is_useless("j", "paris", 0.1)
    assert resting.sites == {}
