"""A site's promises about slots that are yet to be started, to other sites and its own people."""

from math import inf

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town

from federation.messages import deals
from federation.reasons import Reason
from gateway.grids.scaling.demand import PilotShape, demand
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.access.claims import WHOLE, Amount, Claim, Claims
from policies.access.windows import PoolRules, WindowSpan
from policies.parties import OTHERS, OURS
from policies.placement.asks import CHEAPEST, FASTEST, Wishes
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import CapacityOffer

START_S = 60.0


def make_town(warm, growth):
    """London has one dear slot; Paris has some, and could start more."""
    town = Town()
    town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, warm)
    paris.broker.offers["pool local"] = CapacityOffer("pool local", "local", {}, "3.11", "USD")
    paris.do(events.PoolGrows("local", growth))
    town.show()
    return town


def answered(town, job, tasks):
    """The answer of Paris to London's question of a job of so many tasks, of ten seconds each."""
    wishes = Wishes(allowed_sites=frozenset({"paris"}))
    town.sites["london"].submit(tasks, job, task_s=10.0, wishes=wishes)
    asked = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    town.sites["paris"].kernel.hear("london", PeerSide.BUYER, asked[-1], town.now_s, UTC_S)
    town.sites["paris"].do()
    return next(m for *_, m in reversed(town.said) if isinstance(m, (deals.Quote, deals.Decline)))


def quoted(town, job, tasks):
    found = answered(town, job, tasks)
    assert isinstance(found, deals.Quote), found
    return found


def committed(town, quote):
    """London takes up a quote of Paris, and Paris has told so."""
    paris = town.sites["paris"]
    for message in (
        deals.Hold(quote.contract),
        deals.Commit(
            contract=quote.contract,
            pool=quote.pool,
            lease_s=30.0,
            **{
                name: getattr(quote, name)
                for name in ("price_nanos", "currency", "tariff", "minimum_nanos", "step_ns")
            },
        ),
    ):
        paris.kernel.hear("london", PeerSide.BUYER, message, town.now_s, UTC_S)
        paris.do()
    return paris


def shown_cold(site):
    return site.exchange.show(UTC_S).pools[0].slots_cold


def test_a_quote_tells_how_late_the_slots_are_that_are_started():
    quote = quoted(make_town(1, PoolGrowth(99, START_S, 1.0)), "j", 100)
    assert (quote.slots, quote.begin_in_s) == (100, 0.0)
    assert quote.finish_in_s == pytest.approx(0.99 * START_S + 10.0)


def test_slots_that_are_held_before_they_are_started_are_promised_to_nobody_else():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    paris = town.sites["paris"]
    first = quoted(town, "j", 3)
    paris.kernel.hear("london", PeerSide.BUYER, deals.Hold(first.contract), town.now_s, UTC_S)
    second = quoted(town, "k", 4)
    assert second.contract != first.contract
    assert (first.slots, second.slots) == (3, 1)
    assert min(first.begin_in_s, second.begin_in_s) >= START_S


def test_slots_of_a_contract_are_sold_to_nobody_else_before_they_are_started():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    first = quoted(town, "j", 3)
    paris = committed(town, first)
    assert shown_cold(paris) == 1
    assert quoted(town, "k", 4).slots == 1
    paris.kernel.hear(
        "london",
        PeerSide.BUYER,
        deals.Forward(first.contract, 1, 0, [b"1", b"2"]),
        town.now_s,
        UTC_S,
    )
    paris.do()
    assert shown_cold(paris) == 2  # it has tasks for two
    paris.join(1)
    assert shown_cold(paris) == 3  # one of them is there, and the pool was not told yet
    paris.do(events.PoolGrows("local", PoolGrowth(3, START_S, 0.0)))
    assert shown_cold(paris) == 2


def test_slots_are_not_kept_for_who_commits_and_sends_nothing():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    paris = committed(town, quoted(town, "j", 3))
    paris.kernel.tick(town.now_s + town.rules.hold_s, UTC_S)
    assert shown_cold(paris) == 4


def test_what_a_former_life_had_sold_takes_no_slots():
    """Nothing of it runs, and its buyer is told so: it is placed, and maybe sold, anew."""
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    paris = committed(town, quoted(town, "j", 3))
    paris.recover(2)
    paris.broker.offers["pool local"] = CapacityOffer("pool local", "local", {}, "3.11", "USD")
    paris.do(events.PoolGrows("local", PoolGrowth(4, START_S, 0.0)))
    assert paris.exchange.sales.sales
    assert (work_of(town).owed, shown_cold(paris)) == (0, 4)


@pytest.mark.parametrize("warm", [0, 2, 5])
@pytest.mark.parametrize("part", [None, 25, 50, 100])
def test_a_quote_promises_what_the_advert_shows(warm, part):
    town = make_town(warm, PoolGrowth(8 - warm, START_S, 0.0))
    paris = town.sites["paris"]
    if part is not None:
        claims = Claims((Claim(OTHERS, borrows=Amount(part=part * WHOLE // 100)),))
        rules = PoolRules((WindowSpan(UTC_S, UTC_S + 86_400.0, None, claims),), UTC_S)
        paris.do(events.RulesTurned({"local": rules}))
    [shown] = paris.exchange.show(UTC_S).pools
    assert shown.slots_total == 8 * (part or 100) // 100
    assert quoted(town, "j", 100).slots == shown.slots_total


def test_a_pool_that_can_start_nothing_now_is_quoted_and_shown_no_more():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    paris = town.sites["paris"]
    paris.do(events.PoolGrows("local", PoolGrowth(0, 0.0, 0.0)))
    found = answered(town, "j", 3)
    assert (type(found), found.code) == (deals.Decline, Reason.NO_SLOTS)
    assert paris.exchange.show(UTC_S).pools[0].slots_total == 0


@pytest.mark.parametrize("warm", [0, 2])
def test_who_may_have_nothing_of_a_pool_that_grows_is_told_so(warm):
    """Else it would ask again soon, as one does where all slots are taken."""
    town = make_town(warm, PoolGrowth(4, START_S, 0.0))
    town.sites["paris"].permits.refused = "not you"
    found = answered(town, "j", 3)
    assert (type(found), found.code) == (deals.Decline, Reason.NOT_ENTITLED)


def test_what_was_sold_of_a_pool_that_can_start_nothing_now_is_given_back():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    quote = quoted(town, "j", 3)
    paris = committed(town, quote)
    paris.kernel.hear(
        "london",
        PeerSide.BUYER,
        deals.Forward(quote.contract, 1, 0, [b"1", b"2"]),
        town.now_s,
        UTC_S,
    )
    paris.do()

    def given_back(after_s):
        paris.kernel.tick(town.now_s + after_s, UTC_S + after_s)
        paris.do()
        return [m.ranges for *_, m in town.said if isinstance(m, deals.GivenBack)]

    assert given_back(1.0) == []
    paris.do(events.PoolGrows("local", PoolGrowth(0, 0.0, 0.0)))
    assert given_back(1.0) == []
    assert given_back(1.0 + town.rules.hold_s) == [[[0, 2]]]
    declined = [m for *_, m in town.said if isinstance(m, deals.Decline)]
    assert [each.reason for each in declined] == ["pool local of paris can't start slots now"]


def test_a_share_is_of_what_could_be_there_as_adverts_say():
    """A quarter of twelve are three: of the three that were started for it, all."""
    town = make_town(3, PoolGrowth(9, START_S, 0.0))
    paris = town.sites["paris"]
    claims = Claims((Claim(OURS, borrows=Amount(part=WHOLE // 4)),))
    paris.do(
        events.RulesTurned(
            {"local": PoolRules((WindowSpan(UTC_S, UTC_S + 86_400.0, None, claims),), UTC_S)}
        )
    )
    paris.submit(10)
    assert sum(each.in_flight for each in paris.broker.workers.values()) == 3


def work_of(town):
    broker = town.sites["paris"].broker
    shape = PilotShape([broker.offers["pool local"]], start_s=START_S)
    return demand(broker, "local", UTC_S, 1.0, CHEAPEST, shape=shape, slots_max=100)


def test_what_there_is_to_do_is_what_plans_gave_the_pool():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
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
    town = make_town(2, PoolGrowth(4, START_S, 0.0))
    town.sites["paris"].submit(2, "a", task_s=10.0)
    found = work_of(town)
    assert (found.tasks, found.due, found.owed) == (2, (), 0)
    assert found.running_s == found.slot_s > 0


def test_a_site_that_drains_has_nothing_to_do():
    town = make_town(0, PoolGrowth(4, START_S, 0.0))
    paris = town.sites["paris"]
    paris.submit(6, "a", task_s=10.0)
    assert work_of(town).tasks
    paris.do(events.DrainAsked(0, on=True))
    assert not work_of(town).tasks
