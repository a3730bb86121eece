"""Whom a buyer leaves alone, and for how long."""

from dataclasses import replace

import pytest
from support.pure.town import RULES, spec

from federation.clocks import MonoS
from gateway.contracts.buying.site_backoff import (
    FULL_MAX_S,
    FULL_REST_MAX_S,
    FULL_S,
    SILENT_MAX_S,
    SiteBackoff,
)
from gateway.contracts.model.purchase import Purchase


@pytest.fixture
def resting():
    return SiteBackoff(RULES)


def test_a_site_rests_twice_as_long_each_time_until_a_contract_opens(resting):
    utc_s, waits = 1000.0, []
    for _ in range(3):
        resting.spare("paris", utc_s, "declined")
        waits.append(resting.sites["paris"].until_s - utc_s)
        utc_s = resting.sites["paris"].until_s
    assert waits == [RULES.rest_s, 2 * RULES.rest_s, 4 * RULES.rest_s]
    resting.note_useful(None, "paris", "fast")
    resting.spare("paris", utc_s, "declined")
    assert resting.sites["paris"].until_s - utc_s == RULES.rest_s


def test_what_goes_wrong_meanwhile_makes_no_rest_longer(resting):
    resting.spare("paris", 0.0, "declined")
    until_s = resting.sites["paris"].until_s
    resting.spare("paris", until_s - 0.1, "declined again")
    assert resting.sites["paris"].until_s == until_s


def test_a_payment_ends_the_rest_of_a_site_for_our_debt_alone(resting):
    for utc_s in (0.0, 1e5, 2e5):
        resting.spare_creditor("paris", utc_s, "we owe it too much")
    resting.spare("rome", 2e5, "declined")
    assert not resting.paid("rome")
    assert resting.is_resting("rome", 2e5 + 0.1)
    assert resting.paid("paris")
    assert not resting.is_resting("paris", 2e5 + 0.1)
    assert not resting.paid("paris")
    resting.spare("paris", 2e5, "drains")
    assert resting.sites["paris"].until_s - 2e5 == RULES.rest_s, "its refusals for debt count"
    resting.spare_creditor("paris", 2e5 + 0.1, "we owe it too much")
    assert not resting.paid("paris"), "it drains"


def test_a_session_ends_the_rest_of_a_site_that_could_not_be_reached(resting):
    resting.unreachable("paris", 0.0)
    assert resting.is_resting("paris", 0.1)
    resting.reached("paris")
    assert not resting.is_resting("paris", 0.1)


def test_a_lost_and_found_session_ends_no_rest_for_another_reason(resting):
    resting.spare("paris", 0.0, "declined")
    resting.unreachable("paris", 0.1)
    resting.reached("paris")
    assert resting.is_resting("paris", 0.2)


def test_a_refusal_of_one_kind_of_work_at_one_pool_counts_for_nothing_else(resting):
    resting.refuse(spec(project="secret"), "paris", "fast", 0.0, "declined", is_no=True)
    assert set(resting.rests(spec(project="secret"))) == {"paris/fast"}
    assert resting.was_refused(spec(project="secret"), "paris", "fast")
    assert not resting.was_refused(spec(project="secret"), "paris", "slow")
    for other in (spec(), spec(project="secret", user="bob"), spec(project="secret", path=("x",))):
        assert not resting.rests(other)


def test_a_refused_kind_of_work_rests_twice_as_long_each_time_until_a_contract_opens(resting):
    utc_s, waits = 1000.0, []
    for _ in range(3):
        resting.refuse(spec(), "paris", "fast", utc_s, "declined")
        resting.refuse(spec(), "paris", "fast", utc_s + 0.1, "declined again")
        until_s = resting.rests(spec())["paris/fast"].until_s
        waits.append(until_s - utc_s)
        utc_s = until_s
        resting.tidy(utc_s, ())
    assert waits == [RULES.rest_s, 2 * RULES.rest_s, 4 * RULES.rest_s]
    resting.note_useful(spec(), "paris", "fast")
    assert not resting.rests(spec())


def test_refusals_of_work_that_is_not_asked_for_any_more_are_forgotten(resting):
    for project in range(100):
        resting.refuse(spec(project=f"p{project}"), "paris", "fast", 0.0, "declined")
    resting.tidy(RULES.rest_s + RULES.rest_max_s, ())
    assert not resting._of_kind


def test_an_answer_ends_the_rest_of_a_silent_site_and_no_other(resting):
    resting.spare_silent("paris", 0.0, "sent no quote in time")
    resting.answered("paris")
    assert not resting.is_resting("paris", 0.1)
    resting.spare("paris", 0.2, "declined")
    resting.spare_silent("paris", 0.3, "sent no quote in time")
    resting.answered("paris")
    assert resting.is_resting("paris", 0.4)


def test_a_silent_site_never_rests_for_long(resting):
    utc_s = 0.0
    for _ in range(20):
        resting.spare_silent("paris", utc_s, "sent no quote in time")
        assert resting.sites["paris"].until_s - utc_s <= SILENT_MAX_S
        utc_s = resting.sites["paris"].until_s


def test_who_has_no_slot_rests_for_a_moment_however_often(resting):
    for utc_s in (0.0, 10.0, 20.0):
        resting.refuse_full(spec(), "paris", "fast", utc_s, "full")
        assert resting.rests(spec())["paris/fast"].until_s - utc_s <= RULES.rest_s


def test_a_pool_that_shows_slots_and_has_none_is_asked_less_and_less_often():
    resting = SiteBackoff(replace(RULES, rest_s=60.0))
    utc_s, rests = 0.0, []
    for _ in range(7):
        resting.refuse_full(spec(), "paris", "fast", utc_s, "full")
        rests.append(resting.rests(spec())["paris/fast"].until_s - utc_s)
        utc_s += rests[-1] + 0.1
    assert rests == [FULL_S, 1.0, 2.0, 4.0, FULL_MAX_S, FULL_MAX_S, FULL_MAX_S]
    utc_s += 2 * FULL_MAX_S
    resting.refuse_full(spec(), "paris", "fast", utc_s, "full")
    assert resting.rests(spec())["paris/fast"].until_s - utc_s == FULL_S


def test_what_was_said_of_jobs_that_are_gone_is_forgotten(resting):
    resting.note_useless("j", "paris", 0.0)
    resting.spare("rome", 0.0, "declined")
    resting.tidy(0.1, {"j"})
    assert resting.is_useless("j", "paris", 0.1)
    resting.tidy(1e6, set())
    assert not resting.is_useless("j", "paris", 0.1)
    assert resting.sites == {}


def test_other_terms_end_the_back_offs_that_the_former_ones_caused(resting):
    resting.refuse(spec(), "paris", "fast", 0.0, "declined", is_no=True)
    resting.refuse(spec(), "paris", "slow", 0.0, "made room", is_of_terms=False)
    resting.refuse(spec(), "rome", "fast", 0.0, "declined")
    resting.spare("paris", 0.0, "drains")
    resting.note_useless("j", "paris", 0.0)
    resting.terms_changed("paris", 1.0)
    ends = {place: rest.until_s for place, rest in resting.rests(spec()).items()}
    until_s = RULES.rest_s
    assert ends == {
        "paris/fast": 1.0,
        "paris/slow": until_s,
        "rome/fast": until_s,
        "paris": until_s,
    }
    assert not resting.was_refused(spec(), "paris", "fast")
    assert not resting.is_useless("j", "paris", 1.0)
    resting.refuse(spec(), "paris", "fast", 1.0, "declined")
    assert resting.rests(spec())["paris/fast"].until_s == 1.0 + 2 * until_s


def test_a_contract_that_ends_frees_its_slots_for_other_work(resting):
    resting.refuse_full(spec(), "paris", "fast", 0.0, "full")
    resting.refuse_full(spec(user="bob"), "paris", "slow", 0.0, "full")
    resting.refuse(spec(project="secret"), "paris", "fast", 0.0, "declined", is_no=True)
    resting.note_useless("j", "paris", 0.0)
    resting.spare("paris", 0.0, "drains")
    resting.freed("paris", "fast")
    del resting.sites["paris"]
    assert resting.rests(spec())["paris/fast"].until_s < 0.0
    assert resting.rests(spec(user="bob"))["paris/slow"].until_s > 0.0
    assert resting.was_refused(spec(project="secret"), "paris", "fast")
    assert resting.rests(spec(project="secret"))["paris/fast"].until_s > 0.0
    assert not resting.is_useless("j", "paris", 0.0)


@pytest.mark.parametrize(("code", "most_s"), [("no-slots", FULL_REST_MAX_S), ("not-entitled", 300)])
def test_a_site_without_a_slot_for_a_job_is_asked_again_soon(resting, code, most_s):
    purchase = Purchase("london-1-1", "j", "paris", "", 5, MonoS(0.0))
    purchase.spec, purchase.is_blind = spec(), True
    utc_s, longest_s = 0.0, 0.0
    for _ in range(10):
        resting.declined(purchase, code, "declined", utc_s)
        began_s = utc_s
        while resting.is_useless("j", "paris", utc_s):
            utc_s += 1.0
        longest_s = max(longest_s, utc_s - began_s)
    assert longest_s == most_s
