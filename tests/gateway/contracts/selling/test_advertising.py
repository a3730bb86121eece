"""A pool's forecast: slots and price at each moment."""

from dataclasses import replace
from itertools import count, islice

import pytest
from support.pure.town import CHEAP, UTC_S, Town

from federation.messages.adverts import START_MAX_S, WINDOWS_MAX, SiteAdvert
from gateway.contracts.selling.advertising import _windows
from gateway.scheduler.model import events
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.windows import Allowed, Window, WindowPlan, rules_at
from policies.calendar.hours import Business, Hours
from policies.calendar.weeks import EVERY_DAY, WeekSpan
from policies.costs.pricelist import Adjustment, Band, PriceList
from policies.parties import OTHERS
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import CapacityOffer

HOUR_S = 3_600
DAY_S = 86_400.0
NO_OTHERS = Claims((Claim(OTHERS, borrows=NOTHING),))
CLOSED = Window("risk run", Hours(17 * HOUR_S, 23 * HOUR_S, Business()), NO_OTHERS)
PEAK = Band("peak", WeekSpan(8 * HOUR_S, 12 * HOUR_S, EVERY_DAY), Adjustment(factor=2_000_000))
WEEKLY = Band(
    "peak", WeekSpan(8 * HOUR_S, 12 * HOUR_S, frozenset({6})), Adjustment(factor=2_000_000)
)


def spans(slots=5):
    """For ever an hour with slots, and one without."""
    for at in count():
        yield Allowed(at * HOUR_S, (at + 1) * HOUR_S, slots * (at % 2 == 0), 10**6)


def test_no_more_of_the_time_to_come_is_looked_at_than_is_shown():
    """An advert is made for each job that is placed: parts left out of it must cost nothing."""
    looked = iter(spans())
    found = list(_windows(looked, None, 7))
    assert [(each.from_s, each.slots, each.price_nanos) for each in found] == [
        (2 * at * HOUR_S, 5, 7) for at in range(WINDOWS_MAX)
    ]
    assert next(looked).from_s <= 2 * (WINDOWS_MAX + 1) * HOUR_S


def test_a_span_is_shown_in_parts_where_the_price_is_another():
    bands = (Band("half", WeekSpan(900, 1_800), Adjustment(factor=500_000)),)
    prices = PriceList(1_000, "USD", "1", bands=bands).at(0.0)
    found = list(_windows(islice(spans(), 1), prices, 1_000))
    assert [(each.from_s, each.until_s, each.price_nanos) for each in found] == [
        (0.0, 900.0, 1_000),
        (900.0, 1_800.0, 500),
        (1_800.0, 3_600.0, 1_000),
    ]


def test_a_pool_drains_if_all_its_workers_do_or_the_whole_site():
    site = Town().build("paris", CHEAP, 4)
    (worker,) = site.broker.workers
    assert not site.exchange.show(UTC_S).draining
    for whom in (worker, 0):
        site.do(events.DrainAsked(whom, True))
        assert site.exchange.show(UTC_S).draining
        site.do(events.DrainAsked(whom, False))
        assert not site.exchange.show(UTC_S).draining


@pytest.fixture
def site():
    return Town().build("paris", CHEAP, 4)


def turn(site, plan, prices=None, utc_s=UTC_S):
    site.do(events.RulesTurned({"local": rules_at(plan, utc_s)}))
    if prices is not None:
        site.do(events.PricesChanged({"local": prices.at(utc_s)}))


def shown(site, utc_s=UTC_S):
    return site.exchange.show(utc_s).pools[0].windows


@pytest.mark.parametrize("band", [PEAK, WEEKLY], ids=["daily", "weekly"])
def test_each_moment_that_is_shown_has_its_slots_and_price(site, band):
    plan = WindowPlan((CLOSED,))
    prices = PriceList(CHEAP, "USD", "1", bands=(band,), plan=plan)
    turn(site, plan, prices)
    windows = shown(site)
    assert 1 < len(windows) <= WINDOWS_MAX
    ends_s = min(windows[-1].until_s, UTC_S + 14 * DAY_S)
    at_s = UTC_S
    while at_s < ends_s:
        found = [(e.slots, e.price_nanos) for e in windows if e.from_s <= at_s < e.until_s]
        assert found == ([] if plan.at(at_s) else [(4, prices.public_nanos(at_s))]), at_s
        at_s += 900.0


def test_what_is_over_is_not_shown(site):
    plan = WindowPlan((CLOSED,))
    turn(site, plan, PriceList(CHEAP, "USD", "1", bands=(PEAK,), plan=plan))
    later_s = UTC_S + 0.9 * DAY_S  # no other rules were told meanwhile
    site.do(events.WorkerJoined(9, "w9", "local", 1, {}, "3.11"))
    assert min(each.until_s for each in shown(site, later_s)) > later_s


def test_other_prices_rules_and_workers_are_shown_at_once(site):
    plan = WindowPlan((CLOSED,))
    prices = PriceList(CHEAP, "USD", "1", plan=plan)
    turn(site, plan, prices)
    before = shown(site)
    assert shown(site) is before  # it is not made for each look
    turn(site, plan, replace(prices, price_nanos=2 * CHEAP))
    assert {each.price_nanos for each in shown(site)} == {2 * CHEAP}
    site.do(events.WorkerJoined(9, "w9", "local", 3, {}, "3.11"))
    assert {each.slots for each in shown(site)} == {7}
    turn(site, WindowPlan((replace(CLOSED, claims=Claims()),), NO_OTHERS))
    assert shown(site)[0].from_s > before[0].from_s


def test_a_start_of_months_is_shown_as_the_longest_that_may_be(site):
    """A batch system's estimate of its queue must not make others refuse the whole advert."""
    site.broker.offers["pool local"] = CapacityOffer("pool local", "local", {}, "3.11", "USD")
    site.do(events.PoolGrows("local", PoolGrowth(3, 1e7, 60.0)))
    found = site.exchange.show(UTC_S)
    assert SiteAdvert.from_plain(found.to_plain()).pools[0].start_s == START_MAX_S


def test_what_takes_no_work_of_other_sites_is_not_shown_to_them(site):
    def joined(handle, slots, takes_others):
        name = f"w{handle}"
        return events.WorkerJoined(
            handle, name, "local", slots, {}, "3.11", takes_others=takes_others
        )

    before = site.exchange.show(UTC_S).pools[0].slots_total
    site.do(joined(901, 8, False))
    assert site.exchange.show(UTC_S).pools[0].slots_total == before + 8, "our own users have it"
    assert site.exchange.show(UTC_S, for_others=True).pools[0].slots_total == before
    for worker in list(site.broker.workers.values()):
        if worker.offer.takes_others:
            site.do(events.WorkerGone(worker.handle, "it was stopped", is_orderly=True))
    site.broker.offers.pop("pool local", None)
    assert site.exchange.show(UTC_S, for_others=True).pools == ()
    assert site.exchange.show(UTC_S).pools[0].slots_total == 8
