"""What a site promises of slots that are yet to be started, to other sites and its own people."""

from math import inf

import pytest
from town import CHEAP, DEAR, UTC_S, Town

from federation import deals
from gateway import events
from gateway.effects import Side
from gateway.grids.demand import demand
from policies.asks import CHEAPEST, FASTEST, Wishes
from policies.butler import Growth
from policies.claims import WHOLE, Amount, Claim, Claims
from policies.parties import OURS
from policies.placement import Offer
from policies.windows import Rules, Span

START_S = 60.0


def make_town(warm, growth):
    """London has one dear slot; Paris has some, and could start more."""
    town = Town()
    town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, warm)
    paris.broker.offers["pool local"] = Offer("pool local", "local", {}, "3.11", "USD")
    paris.do(events.PoolGrows("local", growth))
    town.show()
    return town


def quoted(town, job, tasks):
    """What Paris says to London's question of a job of so many tasks, of ten seconds each."""
    wishes = Wishes(allowed_sites=frozenset({"paris"}))
    town.sites["london"].submit(tasks, job, task_s=10.0, wishes=wishes)
    asked = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    town.sites["paris"].exchange.hear("london", Side.BUYER, asked[-1], town.now_s, UTC_S)
    town.sites["paris"].do()
    return next(m for *_, m in reversed(town.said) if isinstance(m, deals.Quote))


def test_a_quote_tells_how_late_the_slots_are_that_are_started():
    quote = quoted(make_town(1, Growth(99, START_S, 1.0)), "j", 100)
    assert (quote.slots, quote.begin_in_s) == (100, 0.0)
    assert quote.finish_in_s == pytest.approx(0.99 * START_S + 10.0)


def test_slots_that_are_held_before_they_are_started_are_promised_to_nobody_else():
    town = make_town(0, Growth(4, START_S, 0.0))
    paris = town.sites["paris"]
    first = quoted(town, "j", 3)
    paris.exchange.hear("london", Side.BUYER, deals.Hold(first.contract), town.now_s, UTC_S)
    second = quoted(town, "k", 4)
    assert second.contract != first.contract
    assert (first.slots, second.slots) == (3, 1)
    assert min(first.begin_in_s, second.begin_in_s) >= START_S


def test_a_share_is_of_what_could_be_there_as_adverts_say():
    """A quarter of twelve are three: of the three that were started for it, all."""
    town = make_town(3, Growth(9, START_S, 0.0))
    paris = town.sites["paris"]
    claims = Claims((Claim(OURS, borrows=Amount(part=WHOLE // 4)),))
    paris.do(
        events.RulesTurned({"local": Rules((Span(UTC_S, UTC_S + 86_400.0, None, claims),), UTC_S)})
    )
    paris.submit(10)
    assert sum(each.in_flight for each in paris.broker.workers.values()) == 3


def work_of(town):
    broker = town.sites["paris"].broker
    return demand(broker, "local", UTC_S, 1.0, CHEAPEST, slots_max=100, start_s=START_S)


def test_what_there_is_to_do_is_what_plans_gave_the_pool():
    town = make_town(0, Growth(4, START_S, 0.0))
    paris = town.sites["paris"]
    paris.submit(6, "a", task_s=10.0, wishes=Wishes(FASTEST, UTC_S + 500.0))
    paris.submit(4, "b", task_s=5.0)
    for job, places in (("a", {"local": inf, "london/local": 2}), ("b", {"local": 1})):
        paris.broker.jobs[job].places = places
    found = work_of(town)
    assert (found.tasks, found.slot_s, found.running_s) == (5, 45.0, 0.0)
    assert found.due == ((UTC_S + 500.0, 4, 10.0),)
    assert found.haste == pytest.approx((40 * 10 + 5) / 45)
    paris.broker.jobs["a"].places = None  # nothing was decided: nothing is rented
    assert work_of(town).tasks == 1


def test_what_workers_have_is_to_do_and_before_what_is_due():
    town = make_town(2, Growth(4, START_S, 0.0))
    town.sites["paris"].submit(2, "a", task_s=10.0)
    found = work_of(town)
    assert (found.tasks, found.due, found.owed) == (2, (), 0)
    assert found.running_s == found.slot_s > 0


def test_a_site_that_drains_has_nothing_to_do():
    town = make_town(0, Growth(4, START_S, 0.0))
    paris = town.sites["paris"]
    paris.submit(6, "a", task_s=10.0)
    assert work_of(town).tasks
    paris.do(events.DrainAsked(0, on=True))
    assert not work_of(town).tasks
