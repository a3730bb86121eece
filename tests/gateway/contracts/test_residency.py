"""Work that a rule of its site, or a guarantee there, keeps from other sites."""

import pytest
from support.pure.town import UTC_S, dear_and_cheap

from federation.messages import deals
from gateway.scheduler.model import events
from policies.access.claims import Amount, Claim, Claims
from policies.access.entitlements import NO_ENTITLEMENTS
from policies.access.residency import ResidencyRule
from policies.access.windows import PoolRules, WindowSpan
from policies.parties import OURS, read_party
from policies.placement.asks import Wishes

DAY_S = 86_400.0


@pytest.fixture
def town():
    """A dear small site, London, and a cheap large one, Paris."""
    return dear_and_cheap()


def bind(site, *rules):
    site.do(events.EntitlementsKnown(NO_ENTITLEMENTS, {}, rules))


def rule(**places):
    named = {key: frozenset(names) for key, names in places.items()}
    return ResidencyRule((OURS,), **named)


def forwarded(town):
    return [message for *_, message in town.said if isinstance(message, deals.Forward)]


def finish(town, tasks, client=1):
    london = town.sites["london"]
    town.run(lambda: len(london.answers(client)) == tasks)


def test_without_a_rule_cheap_work_leaves(town):
    town.sites["london"].submit(50)
    finish(town, 50)
    assert forwarded(town)


@pytest.mark.parametrize("places", [{"sites": ["london"]}, {"not_sites": ["paris"]}])
def test_a_rule_of_the_site_keeps_work_at_home(town, places):
    bind(town.sites["london"], rule(**places))
    town.sites["london"].submit(50)
    finish(town, 50)
    assert not forwarded(town)


def test_a_rule_about_data_keeps_the_work_that_has_such_data(town):
    london = town.sites["london"]
    bind(london, rule(data=["personal"], sites=["london"]))
    london.submit(50, "personal", wishes=Wishes(data=frozenset({"personal"})))
    finish(town, 50)
    assert not forwarded(town)
    london.submit(50, "market", client=2, wishes=Wishes(data=frozenset({"market"})))
    finish(town, 50, client=2)
    assert forwarded(town)


def test_a_rule_that_comes_later_counts_for_what_is_still_to_be_placed(town):
    london = town.sites["london"]
    bind(london, rule(sites=["london"]))
    london.submit(20, "before")
    finish(town, 20)
    assert not forwarded(town)
    bind(london)
    london.submit(50, "after", client=2)
    finish(town, 50, client=2)
    assert forwarded(town)


def test_what_is_passed_on_tells_the_next_site_of_the_rule(town):
    bind(town.sites["london"], rule(sites=["london", "paris"]))
    town.sites["london"].submit(50)
    finish(town, 50)
    asked = [message for *_, message in town.said if isinstance(message, deals.AskQuote)]
    assert {tuple(each.wishes["sites"]) for each in asked} == {("london", "paris")}


@pytest.mark.parametrize(
    ("claim", "leaves"),
    [
        (Claim(read_party("project:risk"), Amount(part=8000)), False),
        (Claim(read_party("project:risk"), Amount(part=8000), elsewhere=True), True),
        (Claim(read_party("project:risk")), True),
        (Claim(read_party("project:risk"), elsewhere=False), False),
        (Claim(read_party("project:other"), Amount(part=8000)), True),
    ],
)
def test_guaranteed_work_stays_unless_its_claim_says_otherwise(town, claim, leaves):
    london = town.sites["london"]
    span = WindowSpan(UTC_S, UTC_S + DAY_S, None, Claims((claim,)))
    london.do(events.RulesTurned({"local": PoolRules((span,), UTC_S)}))
    london.submit(50, project="risk")
    finish(town, 50)
    assert bool(forwarded(town)) is leaves


def test_guaranteed_work_goes_where_its_user_sends_it(town):
    london = town.sites["london"]
    claims = Claims((Claim(OURS, Amount(part=10_000)),))
    span = WindowSpan(UTC_S, UTC_S + DAY_S, None, claims)
    london.do(events.RulesTurned({"local": PoolRules((span,), UTC_S)}))
    london.submit(20, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    finish(town, 20)
    assert forwarded(town)
