"""The sites in a buyer's back-off, and for how long."""

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
def site_backoff():
    return SiteBackoff(RULES)


def test_a_site_rests_twice_as_long_each_time_until_a_contract_opens(site_backoff):
    utc_s, waits = 1000.0, []
    for _ in range(3):
        site_backoff.spare("paris", utc_s, "declined")
        waits.append(site_backoff.sites["paris"].until_s - utc_s)
        utc_s = site_backoff.sites["paris"].until_s
    assert waits == [RULES.rest_s, 2 * RULES.rest_s, 4 * RULES.rest_s]
    site_backoff.note_useful(None, "paris", "fast")
    site_backoff.spare("paris", utc_s, "declined")
    assert site_backoff.sites["paris"].until_s - utc_s == RULES.rest_s


def test_what_goes_wrong_meanwhile_makes_no_rest_longer(site_backoff):
    site_backoff.spare("paris", 0.0, "declined")
    until_s = site_backoff.sites["paris"].until_s
    site_backoff.spare("paris", until_s - 0.1, "declined again")
    assert site_backoff.sites["paris"].until_s == until_s


def test_a_payment_ends_the_rest_of_a_site_for_our_debt_alone(site_backoff):
    for utc_s in (0.0, 1e5, 2e5):
        site_backoff.spare_creditor("paris", utc_s, "we owe it too much")
    site_backoff.spare("rome", 2e5, "declined")
    assert not site_backoff.paid("rome")
    assert site_backoff.is_backed_off("rome", 2e5 + 0.1)
    assert site_backoff.paid("paris")
    assert not site_backoff.is_backed_off("paris", 2e5 + 0.1)
    assert not site_backoff.paid("paris")
    site_backoff.spare("paris", 2e5, "drains")
    assert site_backoff.sites["paris"].until_s - 2e5 == RULES.rest_s, "its refusals for debt count"
    site_backoff.spare_creditor("paris", 2e5 + 0.1, "we owe it too much")
    assert not site_backoff.paid("paris"), "it drains"


def test_a_session_ends_the_rest_of_a_site_that_could_not_be_reached(site_backoff):
    site_backoff.unreachable("paris", 0.0)
    assert site_backoff.is_backed_off("paris", 0.1)
    site_backoff.reached("paris")
    assert not site_backoff.is_backed_off("paris", 0.1)


def test_a_lost_and_found_session_ends_no_rest_for_another_reason(site_backoff):
    site_backoff.spare("paris", 0.0, "declined")
    site_backoff.unreachable("paris", 0.1)
    site_backoff.reached("paris")
    assert site_backoff.is_backed_off("paris", 0.2)


def test_a_refusal_of_one_kind_of_work_at_one_pool_counts_for_nothing_else(site_backoff):
    site_backoff.refuse(spec(project="secret"), "paris", "fast", 0.0, "declined", is_no=True)
    assert set(site_backoff.rests(spec(project="secret"))) == {"paris/fast"}
    assert site_backoff.was_refused(spec(project="secret"), "paris", "fast")
    assert not site_backoff.was_refused(spec(project="secret"), "paris", "slow")
    for other in (spec(), spec(project="secret", user="bob"), spec(project="secret", path=("x",))):
        assert not site_backoff.rests(other)


def test_a_refused_kind_of_work_rests_twice_as_long_each_time_until_a_contract_opens(site_backoff):
    utc_s, waits = 1000.0, []
    for _ in range(3):
        site_backoff.refuse(spec(), "paris", "fast", utc_s, "declined")
        site_backoff.refuse(spec(), "paris", "fast", utc_s + 0.1, "declined again")
        until_s = site_backoff.rests(spec())["paris/fast"].until_s
        waits.append(until_s - utc_s)
        utc_s = until_s
        site_backoff.tidy(utc_s, ())
    assert waits == [RULES.rest_s, 2 * RULES.rest_s, 4 * RULES.rest_s]
    site_backoff.note_useful(spec(), "paris", "fast")
    assert not site_backoff.rests(spec())


def test_refusals_of_work_that_is_not_asked_for_any_more_are_forgotten(site_backoff):
    for project in range(100):
        site_backoff.refuse(spec(project=f"p{project}"), "paris", "fast", 0.0, "declined")
    site_backoff.tidy(RULES.rest_s + RULES.rest_max_s, ())
    assert not site_backoff._of_kind


def test_an_answer_ends_the_rest_of_a_silent_site_and_no_other(site_backoff):
    site_backoff.spare_silent("paris", 0.0, "sent no quote in time")
    site_backoff.answered("paris")
    assert not site_backoff.is_backed_off("paris", 0.1)
    site_backoff.spare("paris", 0.2, "declined")
    site_backoff.spare_silent("paris", 0.3, "sent no quote in time")
    site_backoff.answered("paris")
    assert site_backoff.is_backed_off("paris", 0.4)


def test_a_silent_site_never_rests_for_long(site_backoff):
    utc_s = 0.0
    for _ in range(20):
        site_backoff.spare_silent("paris", utc_s, "sent no quote in time")
        assert site_backoff.sites["paris"].until_s - utc_s <= SILENT_MAX_S
        utc_s = site_backoff.sites["paris"].until_s


def test_who_has_no_slot_rests_for_a_moment_however_often(site_backoff):
    for utc_s in (0.0, 10.0, 20.0):
        site_backoff.refuse_full(spec(), "paris", "fast", utc_s, "full")
        assert site_backoff.rests(spec())["paris/fast"].until_s - utc_s <= RULES.rest_s


def test_a_pool_that_shows_slots_and_has_none_is_asked_less_and_less_often():
    site_backoff = SiteBackoff(replace(RULES, rest_s=60.0))
    utc_s, rests = 0.0, []
    for _ in range(7):
        site_backoff.refuse_full(spec(), "paris", "fast", utc_s, "full")
        rests.append(site_backoff.rests(spec())["paris/fast"].until_s - utc_s)
        utc_s += rests[-1] + 0.1
    assert rests == [FULL_S, 1.0, 2.0, 4.0, FULL_MAX_S, FULL_MAX_S, FULL_MAX_S]
    utc_s += 2 * FULL_MAX_S
    site_backoff.refuse_full(spec(), "paris", "fast", utc_s, "full")
    assert site_backoff.rests(spec())["paris/fast"].until_s - utc_s == FULL_S


def test_what_was_said_of_jobs_that_are_gone_is_forgotten(site_backoff):
    site_backoff.note_useless("j", "paris", 0.0)
    site_backoff.spare("rome", 0.0, "declined")
    site_backoff.tidy(0.1, {"j"})
    assert site_backoff.is_useless("j", "paris", 0.1)
    site_backoff.tidy(1e6, set())
    assert not site_backoff.is_useless("j", "paris", 0.1)
    assert site_backoff.sites == {}


def test_other_terms_end_the_back_offs_that_the_former_ones_caused(site_backoff):
    site_backoff.refuse(spec(), "paris", "fast", 0.0, "declined", is_no=True)
    site_backoff.refuse(spec(), "paris", "slow", 0.0, "made room", is_of_terms=False)
    site_backoff.refuse(spec(), "rome", "fast", 0.0, "declined")
    site_backoff.spare("paris", 0.0, "drains")
    site_backoff.note_useless("j", "paris", 0.0)
    site_backoff.terms_changed("paris", 1.0)
    ends = {place: rest.until_s for place, rest in site_backoff.rests(spec()).items()}
    until_s = RULES.rest_s
    assert ends == {
        "paris/fast": 1.0,
        "paris/slow": until_s,
        "rome/fast": until_s,
        "paris": until_s,
    }
    assert not site_backoff.was_refused(spec(), "paris", "fast")
    assert not site_backoff.is_useless("j", "paris", 1.0)
    site_backoff.refuse(spec(), "paris", "fast", 1.0, "declined")
    assert site_backoff.rests(spec())["paris/fast"].until_s == 1.0 + 2 * until_s


def test_a_contract_that_ends_frees_its_slots_for_other_work(site_backoff):
    site_backoff.refuse_full(spec(), "paris", "fast", 0.0, "full")
    site_backoff.refuse_full(spec(user="bob"), "paris", "slow", 0.0, "full")
    site_backoff.refuse(spec(project="secret"), "paris", "fast", 0.0, "declined", is_no=True)
    site_backoff.note_useless("j", "paris", 0.0)
    site_backoff.spare("paris", 0.0, "drains")
    site_backoff.freed("paris", "fast")
    del site_backoff.sites["paris"]
    assert site_backoff.rests(spec())["paris/fast"].until_s < 0.0
    assert site_backoff.rests(spec(user="bob"))["paris/slow"].until_s > 0.0
    assert site_backoff.was_refused(spec(project="secret"), "paris", "fast")
    assert site_backoff.rests(spec(project="secret"))["paris/fast"].until_s > 0.0
    assert not site_backoff.is_useless("j", "paris", 0.0)


@pytest.mark.parametrize(("code", "most_s"), [("no-slots", FULL_REST_MAX_S), ("not-entitled", 300)])
def test_a_site_without_a_slot_for_a_job_is_asked_again_soon(site_backoff, code, most_s):
    purchase = Purchase("london-1-1", "j", "paris", "", 5, MonoS(0.0))
    purchase.spec, purchase.is_blind = spec(), True
    utc_s, longest_s = 0.0, 0.0
    for _ in range(10):
        site_backoff.declined(purchase, code, "declined", utc_s)
        began_s = utc_s
        while site_backoff.is_useless("j", "paris", utc_s):
            utc_s += 1.0
        longest_s = max(longest_s, utc_s - began_s)
    assert longest_s == most_s
