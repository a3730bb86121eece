"""Results that a buyer fetches count, whatever its seller says behind their delivery."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.broker import after_its_time
from support.pure.lone_router import LoneRouter
from support.pure.town import UTC_S

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.adverts import OBJECTS_TAG
from federation.objects.left import left_value
from federation.reasons import Reason
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.placement.asks import Wishes

BOOK = b"\x02" + b"b" * 32


class Fetching:
    """London buys of Paris, and its router holds deliveries until their results are fetched."""

    def __init__(self):
        self.alone = LoneRouter()
        self.town, self.london = self.alone.town, self.alone.london
        self.paris = self.town.sites["paris"]
        self.deliveries = []
        self.alone.router.transfers = SimpleNamespace(
            fetch_results=lambda site, message: self.deliveries.append((site, message))
        )
        self._hear = self.london.kernel.hear
        server = self.alone.router._server
        server.kernel = SimpleNamespace(hear=self._hear)
        server.act = lambda happened: self.london.do(*happened)
        self.london.kernel.hear = self._by_router
        for site in self.town.sites.values():
            site.exchange.moves.fetches = True
            site.exchange.moves.why_ours_stay = lambda: ""
            site.join(2, **{OBJECTS_TAG: True})
        self.london.exchange.moves.fetches = True
        self.paris.exchange.moves.leaves_results = lambda: True
        self.town.now_s += 1.0
        self.town.show()
        self.town.deliver()

    def _by_router(self, site, side, message, mono_s, utc_s):
        is_of_seller = side is PeerSide.SELLER
        if not (is_of_seller and self.alone.router._waits(site, message)):
            self._hear(site, side, message, mono_s, utc_s)

    def submit(self):
        wishes = Wishes(allowed_sites=frozenset({"paris"}))
        tags = {OBJECTS_TAG: True}
        self.london.submit(1, wishes=wishes, results="auto", far_results=True, tags=tags)
        self.town.deliver()

    def report(self):
        """Paris's worker leaves its result there."""
        [(worker, order)] = [
            (worker, order) for worker, found in self.paris.at_work.items() for order in found
        ]
        self.paris.at_work.clear()
        values, used = [left_value(BOOK, 5)], (10**6, 10**6)
        report = events.Reported(
            worker, order.assignment, order.first, values, [], [], *used, left=True
        )
        self.paris.do(after_its_time(self.paris.broker, report))

    @property
    def sale(self):
        [sale] = self.paris.exchange.sales.sales.values()
        return sale

    def said(self, kind):
        return [each for _, _, each in self.town.said if isinstance(each, kind)]

    def come(self):
        self.alone.router.hear_later(*self.deliveries.pop(0))
        self.town.deliver()


@pytest.fixture
def fetching():
    found = Fetching()
    found.submit()
    return found


def test_an_end_behind_a_delivery_waits_for_its_results_and_so_does_the_lease(fetching):
    """The seller here ends at once, as older ones do."""
    fetching.report()
    sales, sale = fetching.paris.exchange.sales, fetching.sale
    sales._decline("london", sale.contract, Reason.DRAINING, "is draining")
    sales._stop(sale, "ended")
    fetching.paris.do()
    fetching.town.deliver()
    fetching.town.pass_time(3 * fetching.town.rules.lease_s)
    assert not fetching.paris.at_work.get(1)
    fetching.come()
    fetching.town.pass_time(2.0)
    assert list(fetching.london.answers()) == [0]
    assert len(fetching.said(deals.Forward)) == 1
    [posting] = fetching.paris.postings("sell").values()
    assert posting[2] == "post"
    assert fetching.london.exchange.purchases.sellers == set()


def test_a_seller_ends_a_contract_when_its_last_results_are_fetched(fetching):
    fetching.report()
    sales, sale = fetching.paris.exchange.sales, fetching.sale
    sales._end_early(sale, Reason.DRAINING, "is draining")
    fetching.paris.do()
    fetching.town.pass_time(3.0)
    assert sale.is_live  # tickets are given
    assert sale.job in fetching.paris.broker.jobs  # it holds the results
    fetching.come()
    fetching.town.pass_time(2.0)
    assert list(fetching.london.answers()) == [0]
    declined, *_ = fetching.said(deals.Decline)
    assert declined.code == Reason.DRAINING
    assert not fetching.paris.exchange.sales.sales


def test_a_seller_does_not_wait_for_ever_for_a_buyer_that_settles_nothing(fetching, monkeypatch):
    monkeypatch.setattr("gateway.contracts.selling.sales.FETCH_S", 3.0)
    fetching.report()
    fetching.paris.exchange.sales._end_early(fetching.sale, Reason.DRAINING, "is draining")
    fetching.paris.do()
    fetching.town.pass_time(2.0)
    assert fetching.sale.is_live
    fetching.town.pass_time(2.0)
    assert not fetching.sale.is_live


def test_a_delivery_that_is_repeated_is_fetched_once(fetching):
    fetching.report()
    fetching.town.deliver()
    fetching.paris.exchange.sales.buyer_came("london")
    fetching.paris.do()
    fetching.town.deliver()
    assert len(fetching.said(deals.Deliver)) == 2
    assert len(fetching.deliveries) == 1
    fetching.come()
    assert list(fetching.london.answers()) == [0]


@pytest.mark.parametrize(
    "changes",
    [{"contract": "london-1-9"}, {"epoch": 7}, {"first": 5}],
    ids=lambda each: next(iter(each)),
)
def test_nothing_is_fetched_for_a_delivery_that_does_not_count(fetching, changes):
    fetching.report()
    fetching.town.deliver()
    [delivery] = fetching.said(deals.Deliver)
    other = replace(delivery, **changes)
    assert not fetching.alone.router._waits("paris", other)
    assert not fetching.alone.router._waits("rome", delivery)
    assert len(fetching.deliveries) == 1


def test_a_delivery_that_has_counted_is_not_fetched_again(fetching):
    fetching.report()
    fetching.town.deliver()
    fetching.come()
    [delivery] = fetching.said(deals.Deliver)
    assert not fetching.alone.router._waits("paris", delivery)


def test_a_delivery_that_breaks_the_rules_is_refused_before_anything_is_fetched(fetching):
    fetching.report()
    fetching.town.deliver()
    [delivery] = fetching.said(deals.Deliver)
    for changes in ({"cost_nanos": 10**15}, {"failures": [[5, "x", "y", b""]]}):
        with pytest.raises(ProtocolError):
            fetching.alone.router._waits("paris", replace(delivery, **changes))


def test_a_delivery_whose_results_do_not_come_is_void_and_its_task_returns_at_once(fetching):
    """It was paid for, failed, and went to the same seller once more."""
    fetching.report()
    fetching.town.deliver()
    contract = fetching.sale.contract
    purchase = fetching.london.exchange.purchases.purchases[contract]
    job = fetching.london.broker.jobs[purchase.job]
    site, delivery = fetching.deliveries.pop(0)
    fetching.alone.router.refuse_later(site, delivery, "it can't be fetched")
    assert (job.in_flight, job.waiting, purchase.fetching) == (0, 1, 0)
    fetching.town.deliver()
    rests = fetching.london.exchange.purchases.site_backoff.rests(job.spec)
    assert rests["paris"].why == "it can't be fetched"
    fetching.town.pass_time(1.0)
    assert not fetching.said(deals.Settle) or not fetching.london.postings("buy")
    [posting] = fetching.paris.postings("sell").values()
    assert posting[2] == "void"
    assert not fetching.london.answers()


def test_a_site_whose_results_can_not_be_fetched_is_asked_less_and_less_often(fetching):
    """Each new contract with it opens well: that alone is no reason to trust it again."""
    waits = []
    backoff = fetching.london.exchange.purchases.site_backoff
    for _ in range(3):
        fetching.town.pass_time(60.0, until=lambda: any(fetching.paris.at_work.values()))
        fetching.report()
        fetching.town.deliver()
        [job] = fetching.london.broker.jobs.values()
        site, delivery = fetching.deliveries.pop(0)
        fetching.alone.router.refuse_later(site, delivery, "it can't be fetched")
        waits.append(backoff.rests(job.spec)["paris"].until_s - UTC_S - fetching.town.now_s)
        fetching.town.deliver()
    first_s = fetching.town.rules.rest_s
    assert waits == pytest.approx([first_s, 2 * first_s, 4 * first_s])
    fetching.town.pass_time(60.0, until=lambda: any(fetching.paris.at_work.values()))
    fetching.report()
    fetching.town.deliver()
    fetching.come()
    assert list(fetching.london.answers()) == [0]
    assert "paris" not in backoff.rests(job.spec)
