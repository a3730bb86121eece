"""Work in slots that are reserved at another site."""

from dataclasses import replace

import pytest
from town import CHEAP, DEAR, UTC_S, Town

from gateway import events
from policies.asks import Wishes
from policies.parties import Whose, read_party
from policies.pricelist import PriceList
from policies.reservations import Reservation, ReservationRules, State, overlay
from policies.tariffs import Extras
from policies.windows import EVERYBODY, Plan, rules_at

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
PRICE = 36 * 10**9
EXTRAS = Extras(preemptible=333_333, minimum_nanos=10**6, step_ns=10**9)


def reserved(price_nanos=PRICE, asked_nanos=0):
    """Paris, where London has reserved two slots; it asks as much, or more."""
    town = Town()
    london = town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, 4)
    paris.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v", extras=EXTRAS).at(UTC_S)}))
    town.show()
    made = Reservation(
        "london-1-1", "local", read_party("user:ann@london"), 2, UTC_S - 1, UTC_S + 3600.0,
        price_nanos, "USD", Whose("ann"), made_s=0.0, state=State.BOOKED,
    )  # fmt: skip
    london.broker.reserved.hold(made)
    there = replace(made, price_nanos=asked_nanos or price_nanos)
    rules = overlay(rules_at(Plan((), EVERYBODY), UTC_S), [there], ReservationRules(), UTC_S)
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


def test_a_quote_above_what_was_booked_is_not_taken():
    town, london, paris = reserved(PRICE, PRICE + 1)
    london.submit(2, wishes=ABROAD)
    town.deliver()
    town.pass_time(0.6)
    assert at_work(paris) == []
