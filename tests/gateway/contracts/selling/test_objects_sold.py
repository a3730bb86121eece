"""Calls that refer to objects of their buyer wait at the seller until these are there."""

from dataclasses import replace

import pytest
from support.pure.broker import after_its_time
from support.pure.town import dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.adverts import OBJECTS_TAG, PULLS_TAG
from federation.objects.left import left_value
from federation.reasons import Reason
from gateway.base.tags import OBJECTS_TAG as SAME_TAG
from gateway.contracts.buying import enquiries
from gateway.contracts.selling.offering import Offering
from gateway.scheduler.model import events
from policies.costs.moving import MovePrices
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))
BOOK, CURVE = (b"\x02" + each * 32 for each in (b"b", b"c"))


@pytest.fixture
def town():
    found = dear_and_cheap()
    for site in found.sites.values():
        site.exchange.moves.fetches = True
        site.exchange.moves.why_ours_stay = lambda: ""
        site.join(2, **{OBJECTS_TAG: True})
    found.now_s += 1.0  # for adverts of their own time
    found.show()
    found.deliver()
    return found


def keeping(town):
    """Both sites move results, and London's client takes those of others as objects."""
    town.sites["london"].exchange.moves.fetches = True
    town.sites["paris"].exchange.moves.leaves_results = lambda: True
    tags = {OBJECTS_TAG: True}  # for workers that can keep them
    return {"wishes": ABROAD, "results": "auto", "far_results": True, "tags": tags}


def sold(town):
    [sale] = town.sites["paris"].exchange.sales.sales.values()
    return sale


def said(town, kind):
    return [each for _, _, each in town.said if isinstance(each, kind)]


def come(town, reason=""):
    """The first objects that Paris waits for are there, or will not be."""
    paris = town.sites["paris"]
    pull = paris.pulls.pop(0)
    paris.exchange.sales.objects_came(pull.buyer, pull.contract, reason)
    paris.do()
    town.deliver()


def at_work(town):
    return sum(
        len(order.arguments) for each in town.sites["paris"].at_work.values() for order in each
    )


def test_one_tag_has_one_name():
    assert SAME_TAG == OBJECTS_TAG


def test_tasks_wait_at_the_seller_until_their_objects_are_there(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4, wishes=ABROAD, objects=[BOOK, CURVE])
    town.deliver()
    sale = sold(town)
    [pull] = paris.pulls
    assert (pull.buyer, pull.contract, pull.job) == ("london", sale.contract, sale.job)
    assert pull.digests == (BOOK, CURVE)
    assert pull.scope == "risk\u00a0@london" != "risk"
    assert said(town, deals.Forward)[0].objects
    assert at_work(town) == 0
    come(town)
    assert at_work(town) > 0
    while paris.work():
        town.deliver()
    assert sum(len(each.values) for each in london.results[1]) == 4
    assert not paris.pulls  # each once for a contract


def test_tasks_go_back_where_an_object_can_not_come(town):
    london = town.sites["london"]
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    sold(town)
    come(town, "an object of its calls can't come to paris: it is too large")
    assert at_work(town) == 0
    declines = said(town, deals.Decline)
    assert [each.code for each in declines] == [Reason.OBJECTS_STAY]
    assert "it is too large" in declines[0].reason
    assert len(london.broker.jobs["j"].queue) > 0


def test_a_job_with_objects_goes_to_no_site_that_does_not_fetch_them(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.exchange.moves.fetches = False  # as one of an older version
    town.now_s += 1.0
    town.show()
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    assert not said(town, deals.AskQuote)


def test_objects_stay_where_the_site_has_no_bulk_port(town):
    london = town.sites["london"]
    london.exchange.moves.why_ours_stay = lambda: "this site has no bulk port"
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    assert not said(town, deals.AskQuote)


def test_results_that_stay_keep_their_job_here(town):
    london = town.sites["london"]
    london.submit(4, wishes=ABROAD, results="ref", tags={OBJECTS_TAG: True})
    town.deliver()
    assert not said(town, deals.AskQuote)


def test_a_contract_that_ends_waits_for_no_object(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    sale = sold(town)
    [forward] = said(town, deals.Forward)
    back = deals.Reclaim(sale.contract, forward.epoch, forward.first, forward.first + 1, False)
    paris.exchange.sales.hear("london", back, town.now_s, 1e6)
    paris.do()
    town.deliver()
    assert len(said(town, deals.GivenBack)) == 1  # also while they wait
    come(town)
    paris.exchange.sales.objects_came("london", "london-1-99", "it is gone")  # nobody's


def test_the_tag_is_shown_with_pools_that_have_objects(town):
    [pool] = town.sites["paris"].exchange.show(1e6).pools
    assert {OBJECTS_TAG, PULLS_TAG} <= set(pool.tags)
    town.sites["paris"].exchange.moves.fetches = False
    [pool] = town.sites["paris"].exchange.show(1e6).pools
    assert PULLS_TAG not in pool.tags


def test_a_seller_may_keep_large_results_where_both_sites_move_them(town):
    how = keeping(town)
    town.sites["london"].submit(4, **how)
    town.deliver()
    assert said(town, deals.AskQuote)[0].results == "auto"
    assert sold(town).spec.results == "auto"
    orders = [each for found in town.sites["paris"].at_work.values() for each in found]
    assert {(each.results, each.project) for each in orders} == {("auto", "risk\u00a0@london")}


@pytest.mark.parametrize("lacks", ["the client", "the buyer", "the seller"])
def test_results_come_as_values_where_one_can_not_move_them(town, lacks):
    how = keeping(town)
    if lacks == "the client":
        how["far_results"] = False  # an older one
    elif lacks == "the buyer":
        town.sites["london"].exchange.moves.fetches = False
    else:
        town.sites["paris"].exchange.moves.leaves_results = lambda: False
    town.sites["london"].submit(4, **how)
    town.deliver()
    assert sold(town).spec.results == ""


def test_a_seller_lets_go_of_a_result_when_its_delivery_is_settled(town):
    how = keeping(town)
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(1, **how)
    town.deliver()
    [order] = [each for found in paris.at_work.values() for each in found]
    [worker] = [each for each, found in paris.at_work.items() if found]
    value = left_value(BOOK, 5)
    report = events.Reported(
        worker, order.assignment, order.first, [value], [], [], 10**6, 10**6, left=True
    )
    paris.do(after_its_time(paris.broker, report))
    assert not paris.let_go  # its buyer has not fetched it
    town.deliver()
    [delivery] = said(town, deals.Deliver)
    assert (delivery.left, delivery.values) == (True, [value])
    town.run(lambda: paris.let_go)
    assert paris.let_go == [(BOOK,)]
    [results] = london.results[1]
    assert results.left


def test_objects_that_were_lost_are_fetched_again_for_later_calls(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    come(town)
    sale = sold(town)
    [forward] = said(town, deals.Forward)
    paris.exchange.sales.objects_lost()
    again = deals.Forward(sale.contract, forward.epoch + 1, 100, forward.arguments[:1], True)
    paris.exchange.sales.hear("london", again, town.now_s, 1e6)
    paris.do()
    assert [each.digests for each in paris.pulls] == [(BOOK,)]


PRICES = MovePrices(10_000_000, 90_000_000, "USD")


def charging(town):
    paris = town.sites["paris"]
    paris.exchange.moves.prices = lambda: PRICES
    town.now_s += 1.0
    town.show()
    town.deliver()
    return paris


def test_the_price_of_moved_bytes_is_advertised_quoted_and_kept(town):
    paris = charging(town)
    [pool] = paris.exchange.show(town.now_s).pools
    assert (pool.receive_nanos, pool.send_nanos) == (10_000_000, 90_000_000)
    town.sites["london"].submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    price = sold(town).price
    assert (price.receive_nanos, price.send_nanos) == (10_000_000, 90_000_000)
    [purchase] = town.sites["london"].exchange.purchases.purchases.values()
    assert (purchase.tariff.receive_nanos, purchase.tariff.send_nanos) == (10**7, 9 * 10**7)
    # Later prices are those of later contracts.
    paris.exchange.moves.prices = MovePrices
    assert sold(town).price.receive_nanos == 10_000_000


def test_a_dearer_quote_than_advertised_is_not_taken(town):
    paris = charging(town)
    paris.exchange.moves.prices = lambda: MovePrices(20_000_000, 90_000_000, "USD")
    town.sites["london"].submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    assert said(town, deals.Quote)
    assert not said(town, deals.Hold)


def test_a_quote_with_prices_of_moves_that_were_not_asked_for_is_refused(town, monkeypatch):
    charging(town)
    monkeypatch.setattr(enquiries, "_pays_moves", lambda _: False)
    monkeypatch.setattr(Offering, "_with_moves", lambda _, __, each: replace(each, send_nanos=1))
    town.sites["london"].submit(4, wishes=ABROAD)
    with pytest.raises(ProtocolError, match="none was asked for"):
        town.deliver()


@pytest.mark.parametrize("price", ["receive_nanos", "send_nanos"])
def test_no_price_of_moves_is_paid_to_a_pool_without_an_advert(town, monkeypatch, price):
    asked, is_fair = [], enquiries._is_fair
    monkeypatch.setattr(enquiries, "_is_fair", lambda *each: asked.append(each) or is_fair(*each))
    town.sites["london"].submit(4, wishes=ABROAD)
    town.deliver()
    [(site, quote, decision, _)] = asked
    quote, decision = replace(quote, pool="another"), replace(decision, preferred=())
    assert is_fair(site, quote, decision, None)
    assert not is_fair(site, replace(quote, **{price: 1}), decision, None)


def test_a_buyer_that_does_not_pay_for_moves_has_its_objects_at_home(town, monkeypatch):
    charging(town)
    monkeypatch.setattr(enquiries, "_pays_moves", lambda _: False)  # as an older version
    london = town.sites["london"]
    london.submit(4, wishes=ABROAD, objects=[BOOK])
    town.deliver()
    [declined] = said(town, deals.Decline)
    assert declined.code == Reason.OBJECTS_STAY
    assert "charges for objects" in declined.reason


def test_results_of_a_buyer_that_does_not_pay_for_moves_come_as_values(town, monkeypatch):
    how = keeping(town)
    charging(town)
    monkeypatch.setattr(enquiries, "_pays_moves", lambda _: False)
    monkeypatch.setattr(Offering, "_check_moves", lambda *_: None)
    town.sites["london"].submit(2, **how)
    town.deliver()
    assert sold(town).spec.results == ""
