"""A site's view for another: never more than its rules say, never more than there is."""

from hypothesis import given
from hypothesis import strategies as st
from support.pure.market import make_advert, make_pool

from federation.messages.adverts import AdvertisedWindow, Outlook, SiteAdvert
from policies.disclosure import Disclosure, redact

POOL = make_pool(
    slots_total=100,
    slots_free=33,
    tasks_queued=5,
    load_slot_s=1000.5,
    work_rate=67.0,
    windows=(AdvertisedWindow(0.0, 1.0, 70, 1), AdvertisedWindow(2.0, 3.0, 9, 2)),
    projects=frozenset({"risk"}),
    sites=frozenset({"b"}),
    carbon_g_per_kwh=225.0,
    carbon_ahead=Outlook(1_000.0, 3_600.0, (2_250, 900)),
)
ADVERT = make_advert("a", POOL)


def test_prices_with_coarse_capacity() -> None:
    (shown,) = redact(ADVERT, [Disclosure(coarse=True)]).pools
    assert shown.price_nanos == POOL.price_nanos
    assert (shown.slots_total, shown.slots_free) == (64, 32)
    assert (shown.tasks_queued, shown.load_slot_s) == (8, 1024.0)
    assert [window.slots for window in shown.windows] == [64, 8]
    assert shown.work_rate is None


@given(st.integers(0, 10**8), st.floats(0, 1e12))
def test_coarse_figures_never_promise_more(slots, load_slot_s) -> None:
    pool = make_pool(slots_total=slots, slots_free=slots, load_slot_s=load_slot_s)
    advert = redact(make_advert("a", pool), [Disclosure(coarse=True)])
    (shown,) = advert.pools
    assert slots / 2 < shown.slots_total <= slots or slots == shown.slots_total == 0
    assert load_slot_s <= shown.load_slot_s
    assert SiteAdvert.from_plain(advert.to_plain()) == advert


def test_a_friend_sees_more_than_all_and_does_not_pass_it_on() -> None:
    rules = [Disclosure(readers=frozenset({"b"}), members=True), Disclosure(coarse=True)]
    friend, everybody = redact(ADVERT, rules, "b"), redact(ADVERT, rules)
    assert friend.pools == (POOL,)
    assert friend.audience == "b"
    assert everybody.audience == ""
    assert everybody.pools[0].slots_total == 64
    assert friend.supersedes(everybody)


def test_who_may_use_a_pool_is_not_told_by_default() -> None:
    (shown,) = redact(ADVERT, [Disclosure()]).pools
    assert shown.projects is None
    assert shown.sites is None


def test_the_calendar_can_be_kept_short() -> None:
    (shown,) = redact(ADVERT, [Disclosure(windows=False)]).pools
    assert shown.windows == POOL.windows[:1]


def test_what_no_rule_shows_is_hidden() -> None:
    two = make_advert("a", make_pool("open"), make_pool("secret"))
    only_open = [Disclosure(pools=frozenset({"open"}))]
    hidden_first = [Disclosure(pools=frozenset({"secret"}), hidden=True), Disclosure()]
    for rules in (only_open, hidden_first):
        assert [pool.pool for pool in redact(two, rules).pools] == ["open"]
    assert redact(two, []).pools == ()


def test_how_clean_a_pool_is_and_will_be_is_shown_with_it() -> None:
    """It is the weather's, and no secret of the site's."""
    for rule in (Disclosure(coarse=True), Disclosure(windows=False)):
        (shown,) = redact(ADVERT, [rule]).pools
        assert shown.carbon_g_per_kwh == POOL.carbon_g_per_kwh
        assert shown.carbon_ahead == POOL.carbon_ahead
