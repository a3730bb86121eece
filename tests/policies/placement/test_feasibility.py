"""Pools that may never run a job: one table of filters, each with its reason and its figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.market import make_market, make_pool, make_terms

from federation.messages.adverts import OBJECTS_TAG, PULLS_TAG
from federation.objects.labels import UNLABELLED, read_label
from federation.reasons import NEVER, Reason
from policies.placement.feasibility import FILTERS, filters_for, judge_terms
from policies.placement.market import Market

OBJECTS = {OBJECTS_TAG: True}


def verdict(terms, site="a", **pool):
    market = make_market(**{site: make_pool(**pool)})
    (candidate,) = market.candidates
    return market.verdicts(terms)[candidate.number]


@pytest.mark.parametrize(
    ("terms", "pool", "reason", "text"),
    [
        ({}, {}, None, ""),
        ({"trusted": frozenset({"b"})}, {}, Reason.SITE_NOT_TRUSTED, "is not trusted to run this"),
        ({"barred": frozenset({"a/main"})}, {}, Reason.SITE_NOT_TRUSTED, "not trusted to run"),
        ({"barred": frozenset({"a/other"})}, {}, None, ""),
        ({"readable": frozenset("b")}, {}, Reason.RESULTS_NOT_TRUSTED, "not accepted here"),
        ({"readable": frozenset("a")}, {}, None, ""),
        ({"hops_left": 0}, {}, Reason.NO_HOPS_LEFT, "one hop away"),
        ({"hops_left": 1}, {}, None, ""),
        ({"path": ("c", "a")}, {}, Reason.ALREADY_VISITED, "c > a"),
        ({"path": ("c",)}, {}, None, ""),
        ({"forbidden_sites": frozenset("a")}, {}, Reason.SITE_FORBIDDEN, "excluded by the job"),
        ({"allowed_sites": frozenset("b")}, {}, Reason.SITE_FORBIDDEN, "not among the sites"),
        ({"allowed_sites": frozenset("a")}, {}, None, ""),
        (
            {"jurisdictions": frozenset({"GB", "DE"})},
            {"jurisdiction": "US"},
            Reason.OUTSIDE_JURISDICTION,
            "in jurisdiction US, the job allows DE, GB",
        ),
        ({"jurisdictions": frozenset({"GB"})}, {}, Reason.OUTSIDE_JURISDICTION, "unknown"),
        ({"jurisdictions": frozenset({"GB"})}, {"jurisdiction": "GB"}, None, ""),
        ({}, {"projects": frozenset({"fx"})}, Reason.NOT_ENTITLED, "no work of project risk"),
        ({}, {"projects": frozenset({"risk"})}, None, ""),
        ({}, {"sites": frozenset({"c"})}, Reason.NOT_ENTITLED, "no work from this site"),
        ({}, {"sites": frozenset({"home"})}, None, ""),
        ({"python": "3.12"}, {}, Reason.PYTHON_DIFFERS, "Python 3.11, the job requires 3.12"),
        ({"python": "3.12"}, {"pythons": ("3.11", "3.12")}, None, ""),
        ({}, {"pythons": ()}, None, ""),
        ({"currency": "EUR"}, {}, Reason.CURRENCY_DIFFERS, "in USD, the cost limit is in EUR"),
        ({"currency": "USD"}, {}, None, ""),
        ({"tags": OBJECTS}, {"tags": OBJECTS}, Reason.OBJECTS_STAY, "does not fetch objects"),
        ({"tags": OBJECTS}, {"tags": OBJECTS | {PULLS_TAG: True}}, None, ""),
        ({"tags": OBJECTS}, {"tags": {PULLS_TAG: True}}, Reason.TAG_MISSING, "no tag objects"),
        (
            {"tags": OBJECTS, "objects_stay": "they stay"},
            {"tags": OBJECTS | {PULLS_TAG: True}},
            Reason.OBJECTS_STAY,
            "belongs to another site, and they stay",
        ),
        ({"objects_stay": "they stay"}, {}, None, ""),
        (
            {"label": read_label(["EU"]).named("object book")},
            {"jurisdiction": "US", "labels": True},
            Reason.OUTSIDE_LABEL,
            "object book may lie only in EU, and site a is in US",
        ),
        (
            {"label": read_label(["EU"])},
            {"jurisdiction": "EU"},
            Reason.OUTSIDE_LABEL,
            "older version, which knows no labels",
        ),
        ({"label": read_label(["EU"])}, {"jurisdiction": "EU", "labels": True}, None, ""),
        ({"tags": {"gpu": 2}}, {}, Reason.TAG_MISSING, "no tag gpu=2"),
        ({"tags": {"gpu": 2}}, {"tags": {"gpu": 1}}, Reason.TAG_TOO_SMALL, "gpu=1, gpu=2 needed"),
        ({"tags": {"gpu": 2}}, {"tags": {"gpu": 2}}, None, ""),
    ],
)
def test_each_filter_names_its_reason(terms, pool, reason, text) -> None:
    refusal = verdict(make_terms(**terms), **pool)
    assert (refusal and refusal.reason) == reason
    if reason:
        assert text in refusal.text
        assert reason in NEVER


def test_our_own_pools_are_trusted_and_nearby_but_not_above_the_users_word() -> None:
    alone = {"trusted": frozenset(), "hops_left": 0, "path": ("home",)}
    closed = {"sites": frozenset()}
    assert verdict(make_terms(**alone), "home", **closed) is None
    elsewhere = make_terms(allowed_sites=frozenset("a"))
    assert verdict(elsewhere, "home").reason == Reason.SITE_FORBIDDEN
    assert (
        verdict(make_terms(jurisdictions=frozenset({"GB"})), "home").reason
        == Reason.OUTSIDE_JURISDICTION
    )


def test_the_cheapest_filter_speaks_first() -> None:
    wrong = make_terms(trusted=frozenset(), python="2.7", tags={"gpu": 1})
    assert verdict(wrong).reason == Reason.SITE_NOT_TRUSTED


names = st.frozensets(st.sampled_from("ab"))
demands = st.fixed_dictionaries(
    {
        "trusted": names,
        "allowed_sites": st.none() | names,
        "forbidden_sites": names,
        "jurisdictions": st.none() | st.frozensets(st.sampled_from(["GB", "US"])),
        "path": st.sampled_from([(), ("a",), ("c",)]),
        "hops_left": st.integers(0, 1),
        "readable": st.none() | names,
        "currency": st.sampled_from([None, "USD", "EUR"]),
        "tags": st.sampled_from([{}, {"gpu": 1}]),
        "label": st.sampled_from([UNLABELLED, read_label(["GB"]), read_label(["not-site:b"])]),
    }
)


@given(demands, st.sampled_from(["a", "home"]), st.sampled_from(["", "GB", "US"]))
def test_filters_that_are_left_out_refuse_nobody(demanded, site, jurisdiction) -> None:
    terms = make_terms(**demanded)
    (candidate,) = make_market(**{site: make_pool(jurisdiction=jurisdiction)}).candidates
    some, every = (
        judge_terms(terms, candidate.profile, filters) for filters in (filters_for(terms), FILTERS)
    )
    assert some == every


def test_an_empty_market_has_no_verdicts() -> None:
    assert Market("home").verdicts(make_terms()) == {}
