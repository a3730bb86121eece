"""Prices that change: the price of assignments, quotes, deliveries and bookings."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.pure.broker import after_its_time
from support.pure.town import CHEAP, RULES, UTC_S, Town, dear_and_cheap, spec

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.messages import Results
from gateway.api.views.estimates import claims, estimates
from gateway.config.site import PoolConfig
from gateway.contracts.model.purchase import Purchase, check_delivery
from gateway.contracts.model.quotations import allowed_nanos, quoted_terms, tariff_of
from gateway.ledger.db import records
from gateway.ledger.db.usage.records import UsageTotal
from gateway.runtime.prices import Prices
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Charge, PeerSide
from gateway.scheduler.model.events import PricesChanged
from policies.costs.pricelist import Adjustment, PriceList, Tier
from policies.costs.volumes import Buyer
from policies.parties import OTHERS, Owner
from policies.placement.asks import Wishes
from policies.reservations.reservations import Reservation
from policies.tariffs import HOUR_NS, Extras, Surcharge, Tariff

MINUTE = 60.0


def charge(site, prices, at_s=UTC_S):
    """Have a site charge by a list."""
    now = prices.at(at_s)
    site.do(PricesChanged({"local": now}))
    return now


def usage(site):
    return [each for each in site.books if isinstance(each, records.UsageRecord)]


def deliveries(town):
    return [m for *_, m in town.said if isinstance(m, deals.Deliver)]


def finished(town, tasks, site="london"):
    return lambda: len(town.sites[site].answers()) == tasks


def test_a_contract_goes_on_at_its_price_for_a_lease_after_that_has_risen_and_no_longer():
    """Tasks begun by then are paid as agreed; the rest as it is quoted anew."""
    town = dear_and_cheap()
    london, paris = town.sites["london"], town.sites["paris"]
    low, high = (
        PriceList(nanos, "USD", name) for nanos, name in ((10**7, "night"), (10**8, "day"))
    )
    charge(paris, low)
    town.show()
    london.submit(5000, wishes=Wishes(forbidden_sites=frozenset({"london"})))
    town.run(lambda: len(london.answers()) > 100)
    charge(paris, high, UTC_S + town.now_s)
    town.show()
    risen_s, old = UTC_S + town.now_s, {each.contract for each in deliveries(town)}
    while town.now_s + UTC_S < risen_s + 2 * RULES.lease_s:
        town.deliver()
        paris.work(1)
        town.pass_time(0.05)
    town.run(finished(town, 5000))
    town.pass_time(2.0)
    remote = [each for each in usage(london) if each.site]
    late = [each for each in remote if each.ended_at_s > risen_s + RULES.lease_s + 2.0]
    assert {each.price_nanos for each in remote} == {10**7, 10**8}
    assert {each.price_nanos for each in late} == {10**8}
    ended = [m for *_, m in town.said if isinstance(m, deals.Decline) and m.contract in old]
    assert {(each.code, "costs more than 0.01 USD" in each.reason) for each in ended} == {
        ("expired", True)
    }
    assert london.postings("buy") == paris.postings("sell")


def test_a_price_that_rises_for_a_moment_ends_no_contract():
    town = dear_and_cheap()
    london, paris = town.sites["london"], town.sites["paris"]
    charge(paris, PriceList(10**7, "USD", "low"))
    town.show()
    london.submit(5000, wishes=Wishes(forbidden_sites=frozenset({"london"})))
    town.run(lambda: len(london.answers()) > 100)
    for _ in range(4):
        for nanos in (10**8, 10**7):
            charge(paris, PriceList(nanos, "USD", str(nanos)), UTC_S + town.now_s)
            for _ in range(round(RULES.lease_s / 2 / 0.5)):
                paris.work(1)
                town.pass_time(0.5)
    assert not [each for *_, each in town.said if isinstance(each, deals.Decline)]
    assert {each.price_nanos for each in usage(london) if each.site} == {10**7}


# --- at one site ----------------------------------------------------------------------------------


@pytest.fixture
def alone():
    """One site with one slot."""
    town = Town()
    return town, town.build("london", CHEAP, 1)


def test_work_is_charged_at_the_price_in_force_when_it_was_handed_out(alone):
    town, london = alone
    charge(london, PriceList(36 * 10**9, "USD", "day"))
    london.submit(2)
    charge(london, PriceList(72 * 10**9, "USD", "night"))
    town.now_s += 2.0
    london.work(task_s=1.0)
    town.now_s += 2.0
    london.work(task_s=1.0)
    found = [(each.first, each.tariff, each.cost_nanos) for each in usage(london)]
    assert found == [(0, "day", 10**7), (1, "night", 2 * 10**7)]


def test_a_record_names_window_class_list_and_what_it_would_have_cost(alone):
    town, london = alone
    prices = PriceList(
        36 * 10**9,
        "USD",
        "v7",
        extras=Extras(preemptible=500_000, surcharges={"gpu": Surcharge(factor=2 * 10**6)}),
        volume=(Tier(1, Adjustment(factor=900_000)),),
    )
    london.join(1, gpu=1)
    now = charge(london, prices)
    london.broker.prices["local"] = replace(now, tariff=replace(now.tariff, window="night"))
    london.do(events.VolumesKnown({Buyer("local", "", "ann"): HOUR_NS}))
    london.submit(1, tags={"gpu": 1}, price_class="preemptible")
    town.now_s += 2.0
    london.work(task_s=1.0)
    (record,) = usage(london)
    assert (record.tariff, record.window, record.price_class) == ("v7", "night", "preemptible")
    assert record.price_nanos == 36 * 9 * 10**8
    assert (record.cost_nanos, record.list_cost_nanos) == (9 * 10**6, 10**7)


def test_each_task_costs_the_minimum_and_time_counts_in_steps(alone):
    _, london = alone
    extras = Extras(minimum_nanos=1000, step_ns=10**6)
    charge(london, PriceList(36 * 10**5, "USD", "v", extras=extras))
    london.submit(3)
    while london.work(task_s=0.0015):  # 1.5 ms: two steps of a nano-unit, alone
        pass
    assert [(each.tasks, each.cost_nanos) for each in usage(london)] == [(1, 1000), (2, 2000)]


def test_what_fails_before_it_did_anything_costs_nothing(alone):
    _, london = alone
    charge(london, PriceList(CHEAP, "USD", "v", extras=Extras(minimum_nanos=1000)))
    london.submit(1)
    (order,) = london.at_work[1]
    failure = [0, "error", "no", b""]
    london.do(events.Reported(1, order.assignment, 0, [b""], [failure], [], 0, 0))
    assert [each.cost_nanos for each in usage(london)] == [0]


def test_volume_counts_on_and_makes_it_cheaper(alone):
    town, london = alone
    tier = Tier(1, Adjustment(factor=500_000))
    charge(london, PriceList(36 * 10**9, "USD", "v", volume=(tier,)))
    london.do(events.VolumesKnown({Buyer("local", "", "ann"): HOUR_NS - 10**9}))
    london.submit(2)
    for _ in range(2):
        town.now_s += 2.0
        london.work(task_s=1.0)
    assert [each.cost_nanos for each in usage(london)] == [10**7, 5 * 10**6]


def preempted(site, wall_ns):
    """Let the worker say that its task was stopped to make room."""
    [order] = site.at_work[1]
    site.at_work[1].clear()
    stopped = [[0, "preempted", "to make room", b""]]
    used = ([b""], stopped, [], wall_ns, wall_ns)
    report = events.Reported(1, order.assignment, order.first, *used)
    site.do(after_its_time(site.broker, report))


@pytest.mark.parametrize(
    ("price_class", "price"), [("guaranteed", 36 * 10**9), ("preemptible", 9 * 10**9)]
)
def test_time_that_nobody_paid_for_earns_no_discount(alone, price_class, price):
    """Tasks stopped to make room cost nothing, but for buyers that pay less for that."""
    town, london = alone
    tier = Tier(1, Adjustment(factor=500_000))
    extras = Extras(preemptible=500_000)
    charge(london, PriceList(36 * 10**9, "USD", "v", volume=(tier,), extras=extras))
    london.submit(1, price_class=price_class)
    town.now_s += 3700.0
    preempted(london, HOUR_NS)
    town.now_s += 2.0
    london.work(task_s=1.0)
    first, second = usage(london)
    assert (first.state, first.wall_ns) == ("preempted", HOUR_NS)
    assert second.price_nanos == price


def test_a_run_that_was_wasted_and_is_done_again_counts_once_towards_a_discount(alone):
    town, london = alone
    tier = Tier(1, Adjustment(factor=500_000))
    charge(london, PriceList(36 * 10**9, "USD", "v", volume=(tier,)))
    london.submit(1)
    [order] = london.at_work[1]
    london.do(events.TasksBegun(1, ((order.assignment, 0, 0.0),)))
    town.now_s += 3700.0
    london.do(events.WorkerGone(1, "its lease ran out"))
    london.at_work[1].clear()
    london.join(1)
    town.now_s += 2.0
    london.work(task_s=1.0)
    assert [each.state for each in usage(london)] == ["wasted", "ok"]
    assert {each.price_nanos for each in usage(london)} == {36 * 10**9}


@pytest.mark.parametrize(
    ("price", "extras", "one"),
    [
        (40 * 10**6, Extras(minimum_nanos=100_000), 100_000),  # by time alone 11 nano-units
        (36 * 10**5, Extras(step_ns=10**9), 1000),
        (36 * 10**8, Extras(), 1000),
    ],
)
def test_what_runs_is_estimated_at_what_it_will_be_charged(alone, price, extras, one):
    _, london = alone
    charge(london, PriceList(price, "USD", "v", extras=extras))
    london.submit(1001)
    london.work(1, task_s=0.001)  # it tells how long they take
    job = london.broker.jobs["j"]
    assert job.in_flight > 1
    expected = job.in_flight * one
    assert estimates(job, 0.0) == {"USD": expected}
    assert [each.cost_nanos for each in claims([job], 0.0)] == [expected] == [job.load_nanos]
    before, tasks = sum(each.cost_nanos for each in usage(london)), job.in_flight
    london.work(tasks, task_s=0.001)
    assert sum(each.cost_nanos for each in usage(london)) - before == expected


def test_preemptible_work_waits_for_all_that_is_guaranteed(alone):
    town, london = alone
    london.submit(5, "cheap", 1, price_class="preemptible", priority=9.0)
    london.submit(5, "sure", 2, function=b"g" * 32)
    order = []
    while london.at_work[1]:
        order += [each.job for each in london.at_work[1]]
        town.now_s += 1.0
        london.work(task_s=0.5)
    assert order.index("sure") == 1  # after the one that was there before
    assert len([job for job in order if job == "sure"]) == 5
    assert order[1:6] == ["sure"] * 5


# --- between sites --------------------------------------------------------------------------------

TERMS = PriceList(
    2 * CHEAP,
    "USD",
    "paris-7",
    extras=Extras(preemptible=500_000, minimum_nanos=100, step_ns=10**6),
    contracts={"london": Adjustment(nanos=CHEAP)},
)


@pytest.fixture
def town():
    town = dear_and_cheap()
    charge(town.sites["paris"], TERMS)
    town.show()
    return town


def check_books(town):
    bought, sold = (
        town.sites[name].postings(side) for name, side in (("london", "buy"), ("paris", "sell"))
    )
    assert bought == sold
    assert bought
    assert {row[2] for row in bought.values()} == {"post"}
    return sum(row[1] for row in bought.values())


def test_a_quote_has_the_buyers_price_and_both_books_name_the_list(town):
    town.sites["london"].submit(500, price_class="preemptible")
    town.run(finished(town, 500))
    town.pass_time(2.0)
    quote = next(m for *_, m in town.said if isinstance(m, deals.Quote))
    assert (quote.price_nanos, quote.list_nanos) == (CHEAP // 2, CHEAP)
    assert (quote.tariff, quote.preemptible) == ("paris-7", True)
    assert (quote.minimum_nanos, quote.step_ns) == (100, 10**6)
    paid_nanos = check_books(town)
    sold = [each for each in usage(town.sites["paris"]) if each.origin]
    bought = [each for each in usage(town.sites["london"]) if each.site]
    for found in (sold, bought):
        assert {each.tariff for each in found} == {"paris-7"}
        assert {each.price_class for each in found} == {"preemptible"}
        assert sum(each.cost_nanos for each in found) == paid_nanos
        assert all(each.cost_nanos >= 100 * each.tasks for each in found)
        assert sum(each.tasks for each in found) > 100


def test_an_open_contract_keeps_its_price_and_the_next_one_has_the_new(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 2000)
    charge(paris, replace(TERMS, version="paris-8"))
    town.run(finished(town, 20_000))
    sold = {each.tariff for each in usage(paris) if each.origin}
    assert "paris-7" in sold
    town.pass_time(2 * RULES.idle_s)
    town.show()
    london.submit(500, "k", 2)
    town.run(lambda: len(london.answers(2)) == 500)
    assert {each.tariff for each in usage(paris) if each.origin} == {"paris-7", "paris-8"}
    town.pass_time(4.0)
    check_books(town)


@pytest.mark.parametrize("detached", [True, False])
def test_a_buyer_that_restarts_pays_by_the_terms_of_before(town, detached):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(600, detached=detached)
    town.run(lambda: bool(deliveries(town)))
    london.recover(2, *_recovered(london, 600) if detached else ())
    london.join(1)
    paris.exchange.buyer_came("london")
    paris.do()
    town.pass_time(1.0)
    town.show()
    if detached:
        town.run(lambda: bool([r for r in london.books if isinstance(r, records.JobEnded)]))
    town.pass_time(3 * RULES.lease_s)
    for row in check_both(town):
        assert row[1] >= 100 * row[0]


def restarted(town, tasks=600):
    """London, started again with work out to Paris at terms none of which is as usual."""
    london, paris = town.sites["london"], town.sites["paris"]
    now = charge(paris, TERMS)
    paris.broker.prices["local"] = replace(now, tariff=replace(now.tariff, window="night"))
    town.show()
    london.submit(tasks, detached=True, price_class="preemptible")
    town.run(lambda: bool(deliveries(town)))
    charge(paris, replace(TERMS, version="paris-8"))
    london.recover(2, *_recovered(london, tasks, price_class="preemptible"))
    london.join(1)
    quote = next(m for *_, m in town.said if isinstance(m, deals.Quote))
    return london, quote, london.exchange.purchases.purchases[quote.contract]


def test_both_sides_store_all_that_a_contract_is_charged_by(town):
    london, quote, purchase = restarted(town)
    paris = town.sites["paris"]
    for site, side in ((london, "buy"), (paris, "sell")):
        row = next(each for each in site.books if isinstance(each, records.ContractOpened))
        assert (row.contract, row.side) == (quote.contract, side)
        assert (row.price_nanos, row.list_nanos) == (CHEAP // 2, CHEAP)
        assert (row.minimum_nanos, row.step_ns) == (100, 10**6)
        assert (row.tariff, row.window, row.price_class) == ("paris-7", "night", "preemptible")
    assert purchase.tariff == tariff_of(quote)
    sold = paris.exchange.sales.sales["london", quote.contract].price
    paris.recover(2)
    assert paris.exchange.sales.sales["london", quote.contract].price == sold == tariff_of(quote)


@pytest.mark.parametrize(
    ("wall_ns", "most"),
    [(0, 100), (72 * 10**6, 100), (10**8 + 1, 140)],  # 139 were it not for the steps
)
def test_a_restarted_buyer_holds_its_seller_to_the_very_terms_that_were_quoted(town, wall_ns, most):
    london, quote, purchase = restarted(town)
    town.deliver()  # what Paris has of it is out again
    assignments = london.broker.workers[purchase.handle].assignments
    epoch, assignment = next(iter(assignments.items()))
    ((first, _), *_) = assignment.left
    now_s, utc_s = town.now_s, UTC_S + town.now_s
    terms = (*([b"r"], [], [], wall_ns, 0, 0), most, int(utc_s * 1000), [])
    message = deals.Deliver(quote.contract, epoch, first, *terms)
    check_delivery(purchase, message)
    dearer = replace(quote, minimum_nanos=most + 1, step_ns=HOUR_NS, tariff="paris-8")
    for said in (quote, dearer):
        with pytest.raises(ProtocolError, match="a second quote"):
            london.kernel.hear("paris", PeerSide.SELLER, said, now_s, utc_s)
    with pytest.raises(ProtocolError, match="more than was agreed"):
        london.kernel.hear(
            "paris", PeerSide.SELLER, replace(message, cost_nanos=most + 1), now_s, utc_s
        )


def test_usage_after_a_restart_names_list_window_and_class_as_before(town):
    london, quote, _ = restarted(town)
    before = len(usage(london))
    town.sites["paris"].exchange.buyer_came("london")
    town.sites["paris"].do()
    town.run(lambda: bool([r for r in london.books if isinstance(r, records.JobEnded)]))
    found = [
        each for each in usage(london)[before:] if quote.contract in _contracts_of(london, each)
    ]
    assert found
    for each in found:
        assert (each.tariff, each.window) == ("paris-7", "night")
        assert (each.price_class, each.price_nanos) == ("preemptible", CHEAP // 2)
        assert each.list_cost_nanos >= each.cost_nanos >= 100 * each.tasks
    town.pass_time(3 * RULES.lease_s)
    assert check_both(town)


def _contracts_of(site, record):
    """The contracts under which the tasks of a usage record were delivered."""
    return {
        each.contract
        for each in site.books
        if isinstance(each, records.Posted) and each.first == record.first
    }


def check_both(town):
    bought, sold = town.sites["london"].postings("buy"), town.sites["paris"].postings("sell")
    paid = {key: row for key, row in sold.items() if row[2] == "post"}
    assert paid == {key: row for key, row in bought.items() if row[2] == "post"}
    return paid.values()


def _recovered(site, tasks, **changes):
    ended = sorted(
        (each.first, each.first + each.count)
        for each in site.books
        if isinstance(each, records.OutcomeKept)
    )
    terms = spec(detached=True, **changes)
    yield events.JobRecovered("j", terms, tasks, tuple(ended), 0, 0, (), {}, 0, 0)
    done = {task for low, high in ended for task in range(low, high)}
    for at in range(tasks):
        if at not in done:
            yield events.TasksArrived(0, "j", at, [b"%d" % at])


def test_an_open_contract_is_not_quoted_again_not_even_at_the_same_terms(town):
    london = town.sites["london"]
    london.submit(5000)
    town.run(lambda: bool(deliveries(town)))
    quote = next(m for *_, m in town.said if isinstance(m, deals.Quote))
    now_s, utc_s = town.now_s, UTC_S + town.now_s
    for changes in ({}, {"minimum_nanos": 99}, {"tariff": "x"}, {"price_nanos": 1}):
        with pytest.raises(ProtocolError, match="a second quote"):
            london.kernel.hear("paris", PeerSide.SELLER, replace(quote, **changes), now_s, utc_s)


@pytest.mark.parametrize(
    "changes",
    [
        {"minimum_nanos": CHEAP + 1},
        {"step_ns": HOUR_NS + 1},
        {"tariff": "x" * 1000},
        {"window": "a\nb"},
        {"preemptible": True},
    ],
)
def test_a_quote_with_terms_that_make_no_sense_is_refused(town, changes):
    london = town.sites["london"]
    london.submit(400)
    ask = next(m for *_, m in town.said if isinstance(m, deals.AskQuote))
    quote = deals.Quote(ask.contract, "local", 4, 4, CHEAP, "USD", 0.0, 1.0, 5.0, 5.0)
    with pytest.raises(ProtocolError):
        london.kernel.hear("paris", PeerSide.SELLER, replace(quote, **changes), town.now_s, UTC_S)


@pytest.mark.parametrize(
    ("failures", "wall_ns", "most"),
    [
        ([], 0, 7500),
        ([], 10**9, 10**6),
        ([], 10**9 + 1, 1001 * 1000),
        ([[0, "cancelled", "", b""]], 0, 5000),
        ([[at, "error", "", b""] for at in range(3)], 0, 0),
        ([[at, "error", "", b""] for at in range(3)], 1, 7500),
    ],
)
def test_a_delivery_may_cost_what_was_agreed_and_not_a_nano_unit_more(failures, wall_ns, most):
    price = 3600 * 10**6  # 1,000 nano-units a millisecond
    terms = {"minimum_nanos": 2500, "step_ns": 10**6}
    quote = deals.Quote("london-1-1", "p", 1, 1, price, "USD", 0.0, 0.0, 0.0, 0.0, **terms)
    purchase = Purchase("london-1-1", "j", "paris", "p", 3, 0.0, quote=quote)
    message = deals.Deliver("london-1-1", 1, 0, [b""] * 3, failures, [], wall_ns, 0, 0, most, 0, [])
    check_delivery(purchase, message)
    with pytest.raises(ProtocolError, match="more than was agreed"):
        check_delivery(purchase, replace(message, cost_nanos=most + 1))


def test_an_advert_says_what_makes_a_price_another_and_when_it_changes():
    pool = PoolConfig(
        "local",
        price="0.04 USD",
        tariff={
            "bands": [{"name": "late", "from": "12:00", "to": "13:00", "factor": 2}],
            "tags": {"gpu": {"add": "1 USD"}},
            "minimum": "0.001 USD",
        },
    )
    town = Town()
    london = town.build("london", CHEAP, 1)
    noon_s = 12 * 3600.0
    london.do(PricesChanged({"local": pool.prices.at(noon_s - MINUTE)}))
    (shown,) = london.exchange.show(noon_s - MINUTE).pools
    assert shown.price_nanos == 40_000_000
    assert (shown.next_price.price_nanos, shown.next_price.at_s) == (80_000_000, noon_s)
    assert shown.minimum_nanos == 1_000_000
    assert shown.tag_prices["gpu"].add_nanos == 10**9


def test_a_job_with_a_tag_that_costs_more_is_sold_all_the_same(town):
    """The buyer reckons as the seller does: the quote is what the advert made it expect."""
    paris = town.sites["paris"]
    paris.join(4, gpu=2)
    surcharges = {"gpu": Surcharge(add_nanos=5 * CHEAP)}
    charge(paris, PriceList(CHEAP, "USD", "v", extras=Extras(surcharges=surcharges)))
    town.show()
    town.sites["london"].submit(50, tags={"gpu": 2})
    town.run(finished(town, 50))
    quote = next(m for *_, m in town.said if isinstance(m, deals.Quote))
    assert quote.price_nanos == 11 * CHEAP


# --- as time passes -------------------------------------------------------------------------------


class Busy:
    """Workers of which so many slots are busy."""

    def __init__(self, broker, slots=10):
        broker.handle(events.WorkerJoined(1, "w", "local", slots, {}, "3.11"), 0.0)
        self.worker = broker.workers[1]


def renewing(**tariff):
    pool = PoolConfig("local", price="0.04 USD", tariff=tariff)
    prices = Prices([pool], 0.0)
    return prices, Broker({"local": prices.now["local"].tariff}, prices=prices.now)


def test_a_band_is_told_once_when_it_begins_and_once_when_it_ends():
    prices, broker = renewing(
        bands=[{"name": "b", "from": "01:00", "to": "02:00", "price": "0.02 USD"}]
    )
    told = []
    for at_s in range(0, 4 * 3600, 10):
        changed = prices.renew(broker, float(at_s))
        if changed is not None:
            broker.handle(changed, float(at_s))
            told.append((at_s, broker.tariffs["local"].price_nanos))
    assert told == [(3600, 20_000_000), (7200, 40_000_000)]


def test_a_clock_that_is_set_back_sets_the_price_back():
    prices, broker = renewing(
        bands=[{"name": "b", "from": "01:00", "to": "02:00", "price": "0.02 USD"}]
    )
    assert prices.renew(broker, 5000.0) is not None
    changed = prices.renew(broker, 3000.0)
    assert changed is not None
    assert changed.prices["local"].tariff.price_nanos == 40_000_000
    assert prices.renew(broker, 5000.0) is not None


def test_a_spot_price_follows_what_is_busy():
    prices, broker = renewing(spot={"floor": "0.01 USD", "ceiling": "0.11 USD", "damp_s": 10.0})
    assert prices.renew(broker, 0.0) is None, "nobody is there"
    worker = Busy(broker).worker
    seen = []
    for at_s in range(100):
        worker.in_flight = 10 if at_s < 50 else 0
        changed = prices.renew(broker, float(at_s))
        if changed is not None:
            broker.handle(changed, float(at_s))
        seen.append(broker.tariffs["local"].price_nanos)
    assert max(seen) == seen[40] == 110_000_000
    assert seen[50:] == sorted(seen[50:], reverse=True)
    assert seen[-1] < 20_000_000


def test_a_list_without_bands_and_spot_has_nothing_to_tell():
    prices, broker = renewing()
    assert all(prices.renew(broker, at_s * 1e5) is None for at_s in range(100))


class Books:
    """A store that has usage of this month."""

    def totals(self, by, start_at_s, *_):
        assert start_at_s == 0.0
        rows = [("local", "paris", "ann@paris", "ok"), ("local", "paris", "bob@paris", "failed")]
        rows += [("local", "paris", "bob@paris", "preempted"), ("local", "", "ann", "void")]
        rows += [
            ("local", "", "ann", "ok"),
            ("local", "", "ann", "repeat"),
            ("other", "", "x", "ok"),
        ]
        return [UsageTotal((*row, "guaranteed"), "USD", 1, 0, 1, 10, 0, 0) for row in rows]


def test_what_was_bought_this_month_is_read_from_the_books():
    prices, _ = renewing(volume=[{"from": 10, "factor": 0.5}])
    had = prices.had_ns(Books(), 86_400.0)
    assert had == {Buyer("local", "paris"): 20, Buyer("local", "", "ann"): 10}
    assert renewing()[0].had_ns(None, 0.0) == {}


def test_what_is_reported_together_and_delivered_in_parts_costs_no_more_in_any(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(200)
    town.run(lambda: any(len(each.arguments) > 4 for each in paris.at_work[1]))
    order = next(each for each in paris.at_work[1] if len(each.arguments) > 4)
    sale = next(each for each in paris.exchange.sales.sales.values() if each.job == order.job)
    quote = next(m for *_, m in town.said if isinstance(m, deals.Quote))
    town.said.clear()
    utc_s = UTC_S + town.now_s
    for first, count, charged in (
        (order.first, 1, Charge(0, 0, 0, 500)),
        (order.first + 1, 4, None),
    ):
        part = Results(sale.job, first, [b"r"] * count, [], [], [])
        paris.exchange.sales.told(sale.handle, part, charged, utc_s)
    paris.do()
    assert [each.cost_nanos for each in deliveries(town)] == [100, 400]
    assert all(
        each.cost_nanos <= allowed_nanos(tariff_of(quote), each) for each in deliveries(town)
    )


@given(
    st.builds(
        Tariff,
        st.integers(10**6, 10**12),
        st.just("USD"),
        st.just("v"),
        st.sampled_from(["", "night"]),
        st.sampled_from(["guaranteed", "preemptible"]),
        st.integers(10**12, 10**13),
        st.integers(0, 10**6),
        st.integers(0, HOUR_NS),
    )
)
@example(Reservation("r1", "p", OTHERS, 1, 0.0, 1.0, 7, "USD", Owner("ann"), 0.0).tariff)
def test_a_tariff_travels_in_a_quote_whole(tariff):
    quote = deals.Quote(
        contract="c",
        pool="p",
        tasks=1,
        slots=1,
        begin_in_s=0.0,
        finish_in_s=0.0,
        valid_s=0.0,
        lease_s=0.0,
        **quoted_terms(tariff),
    )
    list_nanos = tariff.price_nanos if tariff.list_nanos is None else tariff.list_nanos
    assert tariff_of(quote) == replace(tariff, list_nanos=list_nanos)
