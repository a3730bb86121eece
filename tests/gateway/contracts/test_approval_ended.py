"""A site is approved no more while contracts with it are open, and is approved again."""

import pytest
from support.pure.town import RULES, UTC_S, dear_and_cheap

from federation.messages import deals
from gateway.ledger.db import records


@pytest.fixture
def town():
    """London works at paris, which has delivered some of it."""
    town = dear_and_cheap()
    town.sites["london"].submit(20_000)
    town.run(lambda: len(town.sites["london"].answers()) > 1000)
    town.deliver()
    return town


def end_approval(town, here, there):
    """As the router does: the messages of `here` may be lost, or arrive later."""
    site, utc_s = town.sites[here], UTC_S + town.now_s
    site.exchange.approval_ended(there, f"site {there!r} is expelled here", town.now_s, utc_s)
    site.do()


def ended(site, side):
    return [
        each.state
        for each in site.books
        if isinstance(each, records.ContractEnded) and each.side == side
    ]


def test_no_result_of_an_expelled_seller_counts_although_it_is_approved_again_at_once(town):
    london, paris = town.sites["london"], town.sites["paris"]
    before, answered = set(london.postings("buy")), len(london.answers())
    end_approval(town, "london", "paris")
    assert sum(map(len, paris.at_work.values()))
    paris.work()  # it has not heard
    town.deliver()
    assert set(london.postings("buy")) == before
    assert len(london.answers()) == answered
    note = "site 'paris' is expelled here: "
    assert any(text.startswith(note) for _, text in london.broker.jobs["j"].notes)
    town.run(lambda: "j" not in london.broker.jobs, seconds=600.0)
    assert len(london.answers()) == 20_000
    assert not any(part.failures for part in london.results[1])


def test_tasks_at_an_expelled_seller_run_elsewhere_only_when_its_lease_has_ended(town):
    london = town.sites["london"]
    town.cut.add(frozenset(("london", "paris")))
    [purchase] = [each for each in london.exchange.purchases.purchases.values() if each.is_live]
    out = london.broker.workers[purchase.handle].in_flight
    assert out
    end_approval(town, "london", "paris")
    town.pass_time(purchase.until_s - town.now_s - 0.2)
    assert london.broker.workers[purchase.handle].in_flight == out
    town.pass_time(0.5)
    assert purchase.handle not in london.broker.workers
    assert not any(task.losses for task in london.broker.jobs["j"].queue)
    assert not london.broker.jobs["j"].strikes
    town.pass_time(RULES.lease_s + 1.0)
    assert ended(london, "buy") == ["ended"]


def test_what_was_delivered_before_an_expulsion_stays_owed(town):
    london, paris = town.sites["london"], town.sites["paris"]
    delivered = set(london.postings("buy"))
    assert delivered
    end_approval(town, "london", "paris")
    town.run(lambda: "j" not in london.broker.jobs, seconds=600.0)
    town.pass_time(3 * RULES.lease_s)
    for site, side in ((london, "buy"), (paris, "sell")):
        states = {key: row[2] for key, row in site.postings(side).items()}
        assert {states[key] for key in delivered} == {"post"}, site.name


def test_the_tasks_of_an_expelled_buyer_are_stopped_and_it_runs_them_elsewhere(town):
    london, paris = town.sites["london"], town.sites["paris"]
    end_approval(town, "paris", "london")
    town.deliver()
    assert not paris.broker.jobs
    assert any(isinstance(each, deals.Decline) for *_, each in town.said)
    assert not [each for each in london.exchange.purchases.purchases.values() if each.is_live]
    town.run(lambda: "j" not in london.broker.jobs, seconds=600.0)
    assert len(london.answers()) == 20_000


def test_a_contract_in_the_making_is_given_up_with_its_site():
    town = dear_and_cheap()
    london = town.sites["london"]
    london.submit(20_000)
    town.deliver(lambda: any(isinstance(each, deals.Commit) for *_, each in town.said))
    end_approval(town, "london", "paris")
    assert not london.exchange.purchases.purchases
    town.deliver()
    end_approval(town, "paris", "london")
    assert not [each for each in town.sites["paris"].exchange.sales.sales.values() if each.is_live]
