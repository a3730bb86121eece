"""Repeats at another site are paid by the site whose user it is, and booked there."""

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town
from support.pure.town import spec as job_spec

from gateway.ledger.db.contracts.records import Posted
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model import events
from policies.costs.budgets import Budget
from policies.costs.pricelist import PriceList
from policies.parties import read_party
from policies.placement.asks import Wishes

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
PRICE = 36 * 10**9


def buys_twice(budgets=()):
    """London, whose user came back without any of the results that it had bought of Paris."""
    town = Town()
    london = town.build("london", DEAR, 1, list(budgets))
    paris = town.build("paris", CHEAP, 4)
    paris.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v1").at(UTC_S)}))
    town.show()
    for client in (1, 2):
        london.do(events.ClientJoined(client, "ann"))
        london.do(events.JobOpened(client, "j", job_spec(wishes=ABROAD), again=client > 1))
        london.do(events.TasksArrived(client, "j", 0, [b"0", b"1", b"2"]))
        town.deliver()
        town.pass_time(0.6)
        town.now_s += 2.0
        paris.work(3, task_s=2.0)
        town.deliver()
        london.do(events.ClientGone(client))
        town.deliver()
        town.pass_time(0.6)
    return london


def test_what_was_bought_twice_is_in_the_buyers_books_as_often_and_charged_once():
    london = buys_twice()
    used = [each for each in london.books if isinstance(each, UsageRecord)]
    bought = [each.cost_nanos for each in london.books if isinstance(each, Posted)]
    assert len(bought) >= 2
    assert sum(each.cost_nanos for each in used) == sum(bought)
    charged = [each for each in used if each.user]
    assert {each.state for each in charged} == {"ok"}
    assert sum(each.cost_nanos for each in charged) * 2 == sum(bought)
    assert {(each.job, each.state) for each in used if not each.user} == {("j", "repeat")}


@pytest.mark.parametrize("party", ["ours", "all", "user:ann"])
def test_budgets_are_charged_once_for_what_was_bought_twice_also_after_a_restart(party):
    london = buys_twice([Budget("b", read_party(party), "USD", 10**15, span=None)])
    bought = sum(each.cost_nanos for each in london.books if isinstance(each, Posted))
    for _ in range(2):
        assert london.broker.budget_accounts.own["b"].spent_nanos * 2 == bought
        london.start(2)
