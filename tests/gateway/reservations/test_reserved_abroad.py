"""Work in slots that are reserved at another site."""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town

from federation.errors import ProtocolError
from federation.messages import deals
from gateway.contracts.model.purchase import check_quote
from gateway.ledger.db.contracts.records import ContractOpened
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model import events
from policies.access.windows import EVERYBODY, WindowPlan, rules_at
from policies.costs.budgets import Budget
from policies.costs.pricelist import PriceList
from policies.parties import Owner, read_party
from policies.placement.asks import Wishes
from policies.reservations.reservations import (
    Reservation,
    ReservationRules,
    ReservationState,
    overlay,
)
from policies.tariffs import Extras, cost_nanos

ABROAD = Wishes(forbidden_sites=frozenset({"london"}), allowed_sites=frozenset({"paris"}))
PRICE = 36 * 10**9
EXTRAS = Extras(preemptible=333_333, minimum_nanos=10**6, step_ns=10**9)


def reserved(price_nanos=PRICE, asked_nanos=0, seller="paris"):
    """London has reserved two slots of Paris, or of Rome; Paris asks as much for its own, or more.

    The pools of all sites have the same name.
    """
    town = Town()
    budget = Budget("desk", read_party("user:ann"), "USD", 10**15, span=None)
    london = town.build("london", DEAR, 1, [budget])
    paris = town.build("paris", CHEAP, 4)
    town.build("rome", CHEAP, 4)
    paris.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v", extras=EXTRAS).at(UTC_S)}))
    town.show()
    made = Reservation(
        "london-1-1", "local", read_party("user:ann@london"), 2, UTC_S - 1, UTC_S + 3600.0,
        price_nanos, "USD", Owner("ann"), made_at_s=0.0, state=ReservationState.BOOKED,
    )  # fmt: skip
    london.broker.reserved.hold(made, seller)
    there = replace(made, price_nanos=asked_nanos or price_nanos)
    rules = overlay(rules_at(WindowPlan((), EVERYBODY), UTC_S), [there], ReservationRules(), UTC_S)
    paris.do(events.RulesTurned({"local": rules}))
    return town, london, paris


def at_work(site):
    return [
        assignment.tariff
        for worker in site.broker.workers.values()
        for assignment in worker.assignments.values()
    ]


@pytest.mark.parametrize("price_class", ["guaranteed", "preemptible"])
@pytest.mark.parametrize("price_nanos", [PRICE, 3 * PRICE])
def test_work_of_each_class_has_the_slots_at_what_was_booked(price_class, price_nanos):
    town, london, paris = reserved(price_nanos)
    london.submit(2, wishes=ABROAD, price_class=price_class)
    town.deliver()
    town.pass_time(0.6)
    assert {each.version for each in at_work(paris)} == {"reservation london-1-1"}
    assert {(each.price_nanos, each.minimum_nanos, each.step_ns) for each in at_work(london)} == {
        (price_nanos, 0, 0)
    }
    for site in (london, paris):
        assert {each.price_class for each in at_work(site)} == {"guaranteed"}
    town.now_s += 2.0
    paris.work(2, task_s=2.0)
    town.deliver()
    for site in (london, paris):
        used = [each for each in site.books if isinstance(each, UsageRecord)]
        contracts = [each for each in site.books if isinstance(each, ContractOpened)]
        assert {each.price_class for each in (*used, *contracts)} == {"guaranteed"}
        assert sum(each.cost_nanos for each in used) == 2 * cost_nanos(price_nanos, 2 * 10**9)


def test_another_class_than_was_asked_for_is_against_the_rules_outside_of_a_reservation():
    _, london, _ = reserved(PRICE)
    london.submit(2, wishes=ABROAD)
    [purchase] = london.exchange.purchases.purchases.values()
    quote = deals.Quote(
        *(purchase.contract, "local", 2, 2, PRICE, "USD", 0.0, 1.0, 1.0, 1.0),
        preemptible=False,
        tariff="by the day",
    )
    for asked, tariff, preemptible in (
        ("preemptible", "by the day", False),
        ("guaranteed", "reservation london-1-1", True),
    ):
        purchase.price_class = asked
        with pytest.raises(ProtocolError, match="another price class"):
            check_quote(purchase, replace(quote, tariff=tariff, preemptible=preemptible))
    purchase.price_class = "preemptible"
    check_quote(purchase, replace(quote, tariff="reservation london-1-1"))


def test_a_quote_above_what_was_booked_is_not_taken():
    town, london, paris = reserved(PRICE, PRICE + 1)
    london.submit(2, wishes=ABROAD)
    town.deliver()
    town.pass_time(0.6)
    assert at_work(paris) == []


def test_a_price_that_another_site_was_promised_is_not_taken():
    town, london, paris = reserved(10 * PRICE, seller="rome")
    london.submit(2, wishes=ABROAD)
    town.deliver()
    town.pass_time(0.6)
    assert at_work(paris) == at_work(london) == []


def test_what_a_seller_charges_by_the_name_of_anothers_reservation_is_held_and_spent_beside_it():
    town, london, paris = reserved(PRICE, seller="rome")
    [earmark] = london.broker.reserved
    total_nanos = earmark.left_nanos
    budget_account = london.broker.budget_accounts.own["desk"]
    london.submit(2, wishes=ABROAD)
    town.deliver()
    town.pass_time(0.6)
    assert {each.version for each in at_work(london)} == {"reservation london-1-1"}
    assert budget_account.held_nanos > total_nanos, "what the contract may cost is held"
    town.now_s += 2.0
    paris.work(2, task_s=2.0)
    town.deliver()
    assert budget_account.spent_nanos > 0
    assert earmark.left_nanos == total_nanos
