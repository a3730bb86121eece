"""Buyers that let contracts lapse while their tasks run: counted, shown, and made to wait."""

import pytest
from support.pure.town import CHEAP, UTC_S, Town

from federation.messages import deals
from gateway.config.contracts import DealRules
from gateway.contracts.selling.lapses import FORGIVEN_S, Lapses
from gateway.scheduler.model.effects import PeerSide

RULES = DealRules(lease_s=30.0, rest_s=5.0, rest_max_s=300.0)


@pytest.fixture
def lapses():
    return Lapses(RULES)


def wait_s(lapses, now_s, buyer="london"):
    """How long from now a buyer gets no contract, in seconds."""
    return next(each for each in range(1_000) if not lapses.refuses(buyer, now_s + each))


def test_one_is_bad_luck_and_all_of_a_moment_are_one(lapses):
    for at in range(5):
        lapses.note("london", 10.0, 100.0 + at)
    assert not lapses.refuses("london", 105.0)
    assert lapses.told(105.0) == [
        "london let 5 contracts lapse while tasks ran: 50 slot-seconds are unpaid"
    ]


def test_who_does_it_again_waits_longer_each_time_until_an_hour_has_passed(lapses):
    lapses.note("london", 10.0, 0.0)
    now_s = 0.0
    for expected_s in (5, 10, 20, 40):
        now_s += 100.0
        lapses.note("london", 10.0, now_s)
        assert wait_s(lapses, now_s) == expected_s
        assert wait_s(lapses, now_s, "rome") == 0
    assert "5 contracts" in lapses.told(now_s)[0]
    assert lapses.told(now_s)[0].endswith("no new contracts for 40 s")
    now_s += FORGIVEN_S + 1
    assert lapses.told(now_s) == []
    lapses.note("london", 10.0, now_s)
    assert wait_s(lapses, now_s) == 0


def test_a_contract_under_which_nothing_runs_may_lapse(lapses):
    for at in range(5):
        lapses.note("london", 0.0, 100.0 * at)
    assert (wait_s(lapses, 400.0), lapses.told(400.0)) == (0, [])


def test_a_seller_counts_what_ran_under_a_contract_that_was_abandoned():
    town = Town()
    london, paris = town.build("london", CHEAP, 0), town.build("paris", CHEAP, 4)
    town.show()
    london.submit(40)
    sales = paris.exchange.sales
    town.run(lambda: any(job.in_flight for job in paris.broker.jobs.values()))
    [sale] = sales.sales.values()
    town.pass_time(2.0)
    abandon = deals.Abandon(sale.contract)
    paris.kernel.hear("london", PeerSide.BUYER, abandon, town.now_s, UTC_S + town.now_s)
    [told] = sales.lapsed()
    assert told.startswith("london let 1 contract lapse while tasks ran: 8 slot-seconds")
