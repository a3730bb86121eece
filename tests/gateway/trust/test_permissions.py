"""The rights of a site: none by default, forbid over permit, in any order."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.trust.permissions import (
    ANY,
    ITSELF,
    PermissionAnswer,
    PermissionReason,
    PermissionRequest,
    PermissionRule,
    Verb,
    decide,
    explain,
    forbid,
    from_plain,
    permit,
    to_plain,
)

ASKED = PermissionRequest(
    verb=Verb.SEND,
    site="paris",
    pool="cpu",
    project="risk",
    data_class="internal",
    other="paris",
    slots=10,
    open_nanos=500,
    currency="EUR",
)


def names(*each):
    return frozenset(each)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([], PermissionReason.NOT_PERMITTED),
        ([permit(Verb.SEND)], PermissionReason.PERMITTED),
        ([permit(Verb.RUN)], PermissionReason.NOT_PERMITTED),
        ([permit(Verb.SEND, pools=names("cpu", "gpu"))], PermissionReason.PERMITTED),
        ([permit(Verb.SEND, pools=names("gpu"))], PermissionReason.NOT_PERMITTED),
        ([permit(Verb.SEND, projects=names("pricing"))], PermissionReason.NOT_PERMITTED),
        ([permit(Verb.SEND, classes=names("public"))], PermissionReason.NOT_PERMITTED),
        ([permit(Verb.SEND, slots_max=10)], PermissionReason.PERMITTED),
        ([permit(Verb.SEND, slots_max=9)], PermissionReason.OVER_SLOTS),
        ([permit(Verb.SEND, budget_nanos=500, currency="EUR")], PermissionReason.PERMITTED),
        ([permit(Verb.SEND, budget_nanos=499, currency="EUR")], PermissionReason.OVER_BUDGET),
        ([permit(Verb.SEND, budget_nanos=10**9, currency="USD")], PermissionReason.OVER_BUDGET),
        (
            [permit(Verb.SEND, slots_max=9), permit(Verb.SEND, pools=names("cpu"))],
            PermissionReason.PERMITTED,
        ),
        (
            [permit(Verb.SEND), forbid(Verb.SEND, classes=names("internal"))],
            PermissionReason.FORBIDDEN,
        ),
        (
            [permit(Verb.SEND), forbid(Verb.SEND, classes=names("secret"))],
            PermissionReason.PERMITTED,
        ),
        ([permit(Verb.SEND), forbid(Verb.RUN)], PermissionReason.PERMITTED),
    ],
)
def test_rules(rules, why):
    assert decide(rules, ASKED).why is why
    assert decide(rules[::-1], ASKED).why is why
    assert decide(rules, ASKED).is_yes is (why is PermissionReason.PERMITTED)


def test_permits_are_not_added_up():
    halves = [permit(Verb.SEND, slots_max=5, pools=names(pool)) for pool in ("cpu", ANY)]
    assert decide(halves, ASKED).why is PermissionReason.OVER_SLOTS


def test_a_permit_is_for_the_neighbours_own_work_unless_it_names_others():
    relayed = replace(ASKED, other="lyon")
    assert decide([permit(Verb.SEND)], relayed).why is PermissionReason.NOT_PERMITTED
    named = permit(Verb.SEND, sites=names(ITSELF, "lyon"))
    assert decide([named], relayed).is_yes
    assert decide([named], ASKED).is_yes
    assert not decide([named], replace(ASKED, other="oslo")).is_yes
    assert not decide([permit(Verb.SEND, sites=names("lyon"))], ASKED).is_yes
    assert decide([permit(Verb.SEND, sites=names(ANY))], relayed).is_yes


def test_what_is_forbidden_is_so_whoever_brings_it():
    relayed = replace(ASKED, other="lyon")
    everything = permit(Verb.SEND, sites=names(ANY))
    assert (
        decide([everything, forbid(Verb.SEND, pools=names("cpu"))], relayed).why
        is PermissionReason.FORBIDDEN
    )
    only_lyon = forbid(Verb.SEND, sites=names("lyon"))
    assert decide([everything, only_lyon], relayed).why is PermissionReason.FORBIDDEN
    assert decide([everything, only_lyon], ASKED).is_yes


def test_the_rule_that_decided_is_told():
    rule = permit(Verb.SEND, slots_max=10)
    assert decide([rule, permit(Verb.SEND, slots_max=3)], ASKED).rule == rule
    assert decide([rule, forbid(Verb.SEND)], ASKED).rule == forbid(Verb.SEND)


def test_a_limit_on_a_prohibition_makes_no_sense():
    with pytest.raises(ValueError, match="forbids everything"):
        forbid(Verb.SEND, slots_max=3)
    with pytest.raises(ValueError, match="must be set together"):
        permit(Verb.SEND, budget_nanos=3)


# --- against a second, naive evaluator -----------------------------------------------------------

some = st.sampled_from(["a", "b", ANY])
sets = st.frozensets(some, min_size=1, max_size=2)
others = st.frozensets(st.sampled_from(["x-site", "y-site", ITSELF, ANY]), min_size=1, max_size=2)


@st.composite
def any_rule(draw):
    details = {
        "pools": draw(sets),
        "projects": draw(sets),
        "classes": draw(sets),
        "sites": draw(others),
    }
    verb = draw(st.sampled_from(Verb))
    if draw(st.booleans()):
        return forbid(verb, **details)
    budget = draw(st.none() | st.integers(0, 3))
    currency = "" if budget is None else draw(st.sampled_from(["EUR", "USD"]))
    slots = draw(st.none() | st.integers(0, 3))
    return permit(verb, **details, slots_max=slots, budget_nanos=budget, currency=currency)


requests = st.builds(
    PermissionRequest,
    verb=st.sampled_from(Verb),
    site=st.just("x-site"),
    pool=st.sampled_from(["a", "b"]),
    project=st.sampled_from(["a", "b"]),
    data_class=st.sampled_from(["a", "b"]),
    other=st.sampled_from(["x-site", "y-site"]),
    slots=st.integers(0, 4),
    open_nanos=st.integers(0, 4),
    currency=st.sampled_from(["EUR", "USD"]),
)


def is_about(rule, asked):
    if ANY in rule.sites:
        reaches = True
    elif asked.other == asked.site:
        reaches = ITSELF in rule.sites
    else:
        reaches = asked.other in rule.sites
    return (
        rule.verb == asked.verb
        and (ANY in rule.pools or asked.pool in rule.pools)
        and (ANY in rule.projects or asked.project in rule.projects)
        and (ANY in rule.classes or asked.data_class in rule.classes)
        and reaches
    )


def naive(rules, asked):
    """The same in the plainest words, for the yes or no alone."""
    about = [rule for rule in rules if is_about(rule, asked)]
    if any(not rule.permits for rule in about):
        return False
    for rule in about:
        if rule.slots_max is not None and asked.slots > rule.slots_max:
            continue
        budget, currency = rule.budget_nanos, rule.currency
        if budget is not None and (asked.currency != currency or asked.open_nanos > budget):
            continue
        return True
    return False


@settings(max_examples=400)
@given(st.lists(any_rule(), max_size=5), requests, st.randoms())
def test_two_evaluators_agree_and_order_does_not_matter(rules, asked, random):
    answer = decide(rules, asked)
    assert answer.is_yes == naive(rules, asked)
    shuffled = list(rules)
    random.shuffle(shuffled)
    assert decide(shuffled, asked) == answer


@given(any_rule())
def test_a_rule_survives_the_file(rule):
    assert from_plain(json.loads(json.dumps(to_plain(rule)))) == rule


def test_a_rule_in_the_file_says_no_more_than_it_must():
    assert to_plain(permit(Verb.SEND)) == {"rule": "permit", "verb": "send"}
    assert from_plain({"rule": "forbid", "verb": "run"}) == forbid(Verb.RUN)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {},
        {"rule": "allow", "verb": "send"},
        {"rule": "permit"},
        {"rule": "permit", "verb": "fly"},
        {"rule": "permit", "verb": "send", "pool": ["a"]},
        {"rule": "permit", "verb": "send", "pools": "a"},
        {"rule": "permit", "verb": "send", "pools": []},
        {"rule": "permit", "verb": "send", "sites": ["Not A Site"]},
        {"rule": "permit", "verb": "send", "slots_max": -1},
        {"rule": "permit", "verb": "send", "budget_nanos": 5},
        {"rule": "forbid", "verb": "send", "slots_max": 5},
    ],
)
def test_a_wrong_rule_is_told(plain):
    with pytest.raises(ValueError, match=r"rule|Verb|must|must be set together"):
        from_plain(plain)


def test_a_rule_is_a_value():
    assert (
        len({permit(Verb.SEND), permit(Verb.SEND), PermissionRule(**_fields(permit(Verb.SEND)))})
        == 1
    )


def _fields(rule):
    return {name: getattr(rule, name) for name in PermissionRule.__dataclass_fields__}


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([permit(Verb.SEND)], ""),
        ([], "there is no may-send rule"),
        ([permit(Verb.RUN)], "there is no may-send rule"),
        (
            [permit(Verb.SEND, projects=names("eod"))],
            "no may-send rule permits work of project risk",
        ),
        ([permit(Verb.SEND, pools=names("gpu"))], "no may-send rule permits work in pool cpu"),
        (
            [permit(Verb.SEND, pools=names("gpu")), permit(Verb.SEND, projects=names("eod"))],
            "no may-send rule permits all of this: work in pool cpu of project risk of class "
            "internal of site paris",
        ),
        (
            [permit(Verb.SEND), forbid(Verb.SEND, projects=names("risk", "eod"))],
            "a never-send rule forbids work of project risk",
        ),
        ([permit(Verb.SEND), forbid(Verb.SEND)], "a never-send rule forbids any work"),
        (
            [permit(Verb.SEND, slots_max=8), permit(Verb.SEND, slots_max=4)],
            "the may-send rule with slots=8 allows no more at a time",
        ),
        (
            [permit(Verb.SEND, budget_nanos=499, currency="EUR")],
            "the may-send rule with budget=0.000000499EUR allows 0.000000499 EUR at a time, and 10 "
            "slots cost 0.0000005 EUR an hour",
        ),
    ],
)
def test_a_refusal_names_its_rule_and_nothing_that_was_not_asked_about(rules, text):
    found = explain(rules, ASKED, decide(rules, ASKED))
    assert found == text
    assert "eod" not in found


def test_a_refusal_by_the_trust_in_a_site_is_a_sentence():
    texts = {
        why: explain([], ASKED, PermissionAnswer(why))
        for why in (
            PermissionReason.NOT_APPROVED,
            PermissionReason.EXPELLED,
            PermissionReason.ORIGIN_UNKNOWN,
        )
    }
    assert list(texts.values()) == [
        "paris is not approved",
        "paris, or the site that it works for, is expelled",
        "paris, whose work it is, is not known",
    ]
