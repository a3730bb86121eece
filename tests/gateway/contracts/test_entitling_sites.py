"""Entitlements between sites: quotes, views and ends by them, and the work that may not leave."""

import pytest
from support.pure.town import UTC_S, dear_and_cheap, spec

from federation.messages import deals
from federation.messages.messages import RejectJob
from federation.reasons import Reason
from gateway.scheduler.model import events
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.parties import read_party
from policies.placement.asks import Wishes


def rule(who, *, allows=True, pools="", **limits):
    return EntitlementRule(allows, (read_party(who),), frozenset(pools.split()), **limits)


def entitle(site, *rules):
    site.do(events.EntitlementsKnown(Entitlements(rules, "site.toml"), {"local": frozenset()}))


@pytest.fixture
def town():
    """A dear small site, London, and a cheap large one, Paris."""
    return dear_and_cheap()


def said(town, kind):
    return [message for *_, message in town.said if isinstance(message, kind)]


def finished(town, tasks):
    return lambda: len(town.sites["london"].answers()) == tasks


def test_a_site_that_is_denied_gets_no_quote_and_not_the_rule(town):
    entitle(town.sites["paris"], rule("site:london", allows=False))
    town.sites["london"].submit(50)
    town.run(finished(town, 50))
    declined = said(town, deals.Decline)
    assert {each.code for each in declined} == {Reason.NOT_ENTITLED}
    assert {each.reason for each in declined} == {
        "the entitlements of paris allow london no slots for this job"
    }
    assert not said(town, deals.Forward)


def test_a_list_of_other_sites_leaves_out_who_is_not_on_it(town):
    entitle(town.sites["paris"], rule("site:tokyo"))
    town.sites["london"].submit(50)
    town.run(finished(town, 50))
    assert not said(town, deals.Forward)


def test_a_quote_is_for_as_many_slots_as_there_may_be(town):
    entitle(town.sites["paris"], rule("site:london", slots_max=2))
    town.sites["london"].submit(200)
    town.run(finished(town, 200))
    quotes = said(town, deals.Quote)
    assert quotes
    assert max(each.slots for each in quotes) == 2


def test_a_contract_ends_when_its_site_is_denied_and_nothing_is_lost(town):
    london, paris = town.sites["london"], town.sites["paris"]
    entitle(paris, rule("site:london"))
    london.submit(5000)
    town.run(lambda: said(town, deals.Forward) and len(london.answers()) > 100)
    entitle(paris, rule("site:london", allows=False))
    town.run(finished(town, 5000))
    town.pass_time(3.0)
    assert not paris.broker.jobs
    ended = [
        each for each in said(town, deals.Decline) if "no slots for this job now" in each.reason
    ]
    assert {each.code for each in ended} == {Reason.NOT_ENTITLED}


def test_a_contract_with_more_tasks_than_its_site_may_have_gives_them_back(town):
    london, paris = town.sites["london"], town.sites["paris"]
    entitle(paris, rule("site:london", queued_max=20))
    london.submit(5000)
    most = 0

    def is_done():
        nonlocal most
        jobs = [job for job in paris.broker.jobs.values() if job.whose.site]
        most = max(most, sum(job.waiting + job.in_flight for job in jobs))
        return len(london.answers()) == 5000

    town.run(is_done)
    assert most <= 20


@pytest.mark.parametrize("pools", ["local", "local elsewhere"])
def test_work_leaves_only_if_a_rule_has_pools_of_others(town, pools):
    london = town.sites["london"]
    entitle(london, rule("ours", pools=pools))
    london.submit(50)
    town.run(finished(town, 50))
    assert bool(said(town, deals.Forward)) is ("elsewhere" in pools)


def test_it_is_explained_why_work_does_not_leave(town):
    london = town.sites["london"]
    entitle(london, rule("ours", pools="local"))
    london.exchange.refresh(UTC_S + town.now_s)
    decision = london.exchange.deciding.decide(spec(), 10, UTC_S + town.now_s)
    texts = {candidate.key[0]: refusal.text for candidate, refusal in decision.refused}
    assert texts == {
        "paris": "belongs to another site, and the user is not entitled to use other sites"
    }


@pytest.mark.parametrize(
    ("rules", "slots"),
    [
        ([], 10),
        ([rule("site:london", slots_max=3)], 3),
        ([rule("ours", slots_max=3)], 10),
        ([rule("others", allows=False)], 0),
    ],
)
def test_an_advert_shows_what_some_other_site_may_have(town, rules, slots):
    paris = town.sites["paris"]
    total = paris.exchange.show(UTC_S).pools[0].slots_total
    entitle(paris, *rules)
    pool = paris.exchange.show(UTC_S).pools[0]
    assert pool.slots_total == min(total, slots)
    assert pool.slots_free <= pool.slots_total


def test_a_job_for_other_sites_alone_of_a_user_who_may_use_none_is_refused_at_once(town):
    london = town.sites["london"]
    entitle(london, rule("ours", pools="local"))
    london.submit(5, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    refused = [each for each in london.told if isinstance(each, RejectJob)]
    assert refused[0].code == Reason.SITE_FORBIDDEN
    assert "the user is not entitled to use other sites (`gridfed can`)" in refused[0].reason


def test_a_refusal_names_the_line_of_the_rule_for_the_sellers_operator(town):
    entitle(town.sites["paris"], rule("site:london", allows=False, line=12))
    town.sites["london"].submit(50)
    town.run(finished(town, 50))
    assert {each.reason for each in said(town, deals.Decline)} == {
        "the entitlements of paris allow london no slots for this job (the [[entitlement]] at line "
        "12 of its file)"
    }
