"""The market: newest adverts win, our own placements correct them, verdicts are remembered."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.market import NOW_S, make_advert, make_market, make_pool, make_terms

from federation.errors import ProtocolError
from federation.messages.adverts import AdvertisedWindow
from federation.reasons import Reason
from policies.placement.market import EMPTY_S, SENT_MAX, TERMS_REMEMBERED, Market, NetworkLink
from policies.placement.placement import Need, judge

KEY = ("a", "main")


def only(market):
    (candidate,) = market.candidates
    return candidate


def backlog(after_s=0.0, **changes):
    return only(make_market(a=make_pool(**changes))).backlog_slot_s(NOW_S + after_s)


@pytest.mark.parametrize(
    ("after_s", "changes", "expected"),
    [
        # L̂ = L + sent + (λ̂ - μ̂)·τ, research 4.10
        (0.0, {"load_slot_s": 50.0}, 50.0),
        (10.0, {"load_slot_s": 50.0}, 50.0),  # no rates known: as it was
        (10.0, {"load_slot_s": 500.0, "slots_free": 0, "work_rate": 90.0}, 500.0),  # in balance
        (
            10.0,
            {"load_slot_s": 500.0, "slots_free": 0, "work_rate": 90.0, "arrival_rate": 100.0},
            600.0,
        ),
        (
            10.0,
            {"load_slot_s": 500.0, "slots_free": 0, "work_rate": 90.0, "arrival_rate": 60.0},
            200.0,
        ),
        # With slots free, all of them can serve: (60 - 100) slot-seconds per second.
        (1.0, {"load_slot_s": 50.0, "slots_free": 40, "work_rate": 60.0}, 10.0),
        (100.0, {"load_slot_s": 50.0, "slots_free": 40, "work_rate": 60.0}, 0.0),
        # A measured rate of nothing says nothing of what the slots can do.
        (1.0, {"load_slot_s": 500.0, "slots_free": 0, "work_rate": 0.0}, 400.0),
    ],
)
def test_the_load_is_corrected_for_its_age(after_s, changes, expected) -> None:
    assert backlog(after_s, **changes) == pytest.approx(expected)


def test_what_we_sent_adds_to_the_load_and_takes_free_slots() -> None:
    market = make_market(a=make_pool(slots_free=30, load_slot_s=5.0))
    market.sent(KEY, 20, 100.0, NOW_S + 1)
    assert only(market).slots_free == 10
    assert only(market).backlog_slot_s(NOW_S + 1) == 105.0
    market.sent(KEY, 20, 100.0, NOW_S + 2)
    assert only(market).slots_free == 0
    market.sent(KEY, -40, -200.0, NOW_S + 3)
    assert only(market).slots_free == 30
    assert only(market).backlog_slot_s(NOW_S + 3) == 5.0


def test_what_was_sent_for_a_job_is_in_the_way_of_others_alone() -> None:
    market = make_market(a=make_pool(slots_free=30, load_slot_s=5.0))
    market.sent(KEY, 20, 100.0, NOW_S + 1, "ours")
    market.sent(KEY, 4, 40.0, NOW_S + 1, "another")
    ours = only(market.without("ours", [KEY, ("nobody", "none")]))
    assert (ours.slots_free, ours.backlog_slot_s(NOW_S + 1)) == (26, 45.0)
    assert (only(market).slots_free, only(market).backlog_slot_s(NOW_S + 1)) == (6, 145.0)


def test_what_an_advert_has_seen_is_no_longer_added() -> None:
    market = make_market(a=make_pool(), link=NetworkLink(0.5, 1e9))
    market.sent(KEY, 1, 10.0, NOW_S + 1.0)
    market.sent(KEY, 1, 20.0, NOW_S + 1.8)
    market.sent(KEY, 1, 40.0, NOW_S + 3.0)
    market.learn(make_advert("a", version=2, issued_s=NOW_S + 2), NOW_S + 4)
    # What left less than a round trip before had not arrived when it was written.
    assert only(market).load_slot_s == 60.0


def test_sendings_are_bounded_and_none_is_lost() -> None:
    market = make_market(a=make_pool())
    for n in range(3 * SENT_MAX):
        market.sent(KEY, 1, 1.0, NOW_S + n)
    assert len(only(market).sent) == SENT_MAX
    assert only(market).load_slot_s == 3 * SENT_MAX
    market.sent(("a", "unknown"), 1, 1.0, NOW_S)
    market.sent(("unknown", "main"), 1, 1.0, NOW_S)


@given(st.permutations(range(5)))
def test_the_newest_advert_wins_in_whatever_order_they_come(order) -> None:
    market = Market("home")
    for version in order:
        pool = make_pool(slots_total=version + 1)
        market.learn(make_advert("a", pool, version=version), NOW_S)
    assert only(market).advert.slots_total == 5


def test_our_own_pools_are_live_and_at_no_distance() -> None:
    market = make_market(link=NetworkLink(1.0, 1.0))
    for slots in (5, 6):  # of the same version
        assert market.learn(make_advert("home", make_pool(slots_total=slots)), NOW_S)
    own = only(market)
    assert own.is_own
    assert own.advert.slots_total == 6
    assert own.expires_s == float("inf")
    assert own.link == NetworkLink(0.0, float("inf"))


def test_a_pool_that_is_no_longer_advertised_is_gone() -> None:
    market = make_market({"a": [make_pool("x"), make_pool("y")]})
    market.learn(make_advert("a", make_pool("y"), version=2), NOW_S)
    assert [candidate.key for candidate in market.candidates] == [("a", "y")]
    market.forget("a")
    market.forget("a")
    assert market.candidates == []


def test_an_advert_from_the_future_is_refused() -> None:
    market = Market("home")
    assert market.learn(make_advert("a", issued_s=NOW_S + 1.9), NOW_S)
    assert only(market).as_of_s == NOW_S  # never younger than now
    with pytest.raises(ProtocolError, match=r"2\.1 s ahead"):
        market.learn(make_advert("b", issued_s=NOW_S + 2.1), NOW_S)


def test_the_number_of_sites_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("policies.placement.market.SITES_MAX", 2)
    market = make_market(a=make_pool(), b=make_pool())
    with pytest.raises(ProtocolError, match="the limit of 2 sites"):
        market.learn(make_advert("c"), NOW_S)
    assert market.learn(make_advert("a", version=2), NOW_S)


def test_a_measured_link_counts_for_more_than_a_hint() -> None:
    market = Market("home", NetworkLink(0.5, 100.0))
    market.learn(make_advert("a", make_pool(rtt_s=0.2)), NOW_S)
    assert only(market).link == NetworkLink(0.2, 100.0)
    market.measured("a", NetworkLink(0.01, 1e6))
    assert only(market).link == NetworkLink(0.01, 1e6)
    market.learn(make_advert("a", make_pool(rtt_s=0.2), version=2), NOW_S)
    assert only(market).link == NetworkLink(0.01, 1e6)


def test_carbon_of_a_slot_second() -> None:
    # research 5.5: an AWS vCPU at half load draws .74 + .5·(3.5 - .74) W, PUE 1.135; per hour
    # that is .54 g in London, .91 g in Virginia, .02 g in Stockholm.
    watts = (0.74 + 0.5 * (3.5 - 0.74)) * 1.135
    for g_per_kwh, g_per_h in ((225.0, 0.54), (379.0, 0.91), (9.0, 0.02)):
        pool = make_pool(slot_watts=watts, carbon_g_per_kwh=g_per_kwh)
        grams = only(make_market(a=pool)).carbon_g_per_slot_s
        assert round(grams * 3600, 2) == g_per_h
    assert only(make_market(a=make_pool(slot_watts=2.0))).carbon_g_per_slot_s is None


def test_verdicts_are_made_once_and_again_when_a_pool_changes() -> None:
    market = make_market(a=make_pool(tags={"linux": True}))
    terms = make_terms(tags={"gpu": 2})
    number = only(market).number
    first = market.verdicts(terms)[number]
    assert first.reason == Reason.TAG_MISSING
    assert market.verdicts(terms)[number] is first

    busier = make_pool(tags={"linux": True}, slots_free=0, load_slot_s=9.0)
    market.learn(make_advert("a", busier, version=2), NOW_S)
    assert market.verdicts(terms)[number] is first

    better = make_pool(tags={"linux": True, "gpu": 4})
    market.learn(make_advert("a", better, version=3), NOW_S)
    assert market.verdicts(terms) == {only(market).number: None}


def test_verdicts_are_bounded() -> None:
    market = make_market(a=make_pool())
    for n in range(3 * TERMS_REMEMBERED):
        market.verdicts(make_terms(project=str(n)))
    assert len(market._verdicts) == TERMS_REMEMBERED


def test_a_candidate_is_never_changed() -> None:
    market = make_market(a=make_pool())
    before = only(market)
    copy = dataclasses.replace(before)
    market.sent(KEY, 5, 5.0, NOW_S)
    market.measured("a", NetworkLink(1.0, 1.0))
    assert before == copy
    assert only(market) != copy


def seen(market, at_s, version, **changes):
    """The knowledge about a pool that is shown at a time."""
    shown = make_advert("a", make_pool(**changes), version=version, issued_s=NOW_S + at_s)
    market.learn(shown, NOW_S + at_s)
    return only(market)


@pytest.mark.parametrize("changes", [{"slots_total": 0}, {"pythons": ()}])
def test_a_pool_is_deserted_that_has_shown_no_slot_for_long(changes) -> None:
    market = make_market(a=make_pool(**changes))
    assert not seen(market, EMPTY_S - 1, 2, **changes).is_deserted(NOW_S + EMPTY_S - 1)
    assert only(market).is_deserted(NOW_S + EMPTY_S)  # also when nothing is heard of it any more
    assert not seen(market, EMPTY_S, 3).is_deserted(NOW_S + 10 * EMPTY_S)
    again = seen(market, EMPTY_S + 1, 4, **changes)
    assert not again.is_deserted(NOW_S + 2 * EMPTY_S)
    assert again.is_deserted(NOW_S + 2 * EMPTY_S + 1)


def test_a_pool_that_opens_later_is_not_deserted() -> None:
    later = AdvertisedWindow(NOW_S + 5 * EMPTY_S, NOW_S + 6 * EMPTY_S, 4, 1)
    market = make_market(a=make_pool(windows=(later,)))
    assert not only(market).is_deserted(NOW_S + 2 * EMPTY_S)


def test_calls_that_wait_for_others_run_in_our_own_pools_alone() -> None:
    market = make_market({"home": [make_pool()], "a": [make_pool()]})
    need = Need({}, "3.11", None, has_inputs=True)
    refusals = {
        each.profile.site: judge(need, each.profile.offer) is not None for each in market.candidates
    }
    assert refusals == {"home": False, "a": True}
