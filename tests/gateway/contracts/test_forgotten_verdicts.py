"""A buyer keeps few verdicts in memory: the books answer for the others. Pure objects."""

import pytest
from support.pure.town import CHEAP, DEAR, Town

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import Delivery, Tab, Verdict
from gateway.contracts.buying import deliveries
from gateway.contracts.model import purchase as purchases
from gateway.contracts.model.purchase import VERDICTS_KEPT, is_owed
from gateway.ledger.db import records

KEPT = 1
TASKS = 20_000


@pytest.fixture
def town(monkeypatch):
    for module in (deliveries, purchases):
        monkeypatch.setattr(module, "VERDICTS_KEPT", KEPT)
    made = Town()
    made.build("london", DEAR, 1)
    made.build("paris", CHEAP, 4)
    made.show()
    return made


def bought(town):
    """A contract of London with Paris that goes on, and of which verdicts are forgotten."""
    london = town.sites["london"]
    london.submit(TASKS, detached=True)
    contracts = london.exchange.purchases.purchases
    town.run(lambda: any(each.tab.has_forgotten for each in contracts.values()))
    return london, next(each for each in contracts.values() if each.tab.has_forgotten)


def test_a_tab_forgets_the_oldest_verdicts_and_says_so():
    tab = Tab()
    for first in range(5):
        tab.deliver(Delivery(1, first, first + 1, 10))
        tab.settle(1, first, Verdict.POST)
        tab.forget(3)
    assert list(tab.verdicts) == [(1, 2), (1, 3), (1, 4)]
    assert tab.has_forgotten
    assert is_owed(tab, [1, 4, 1, 10, 0, 0])
    assert is_owed(tab, [1, 0, 1, 10, 0, 0]) is None  # the books know
    assert is_owed(Tab(), [1, 0, 1, 10, 0, 0]) is False  # never delivered
    with pytest.raises(ProtocolError):
        is_owed(tab, [1, 4, 1, 11, 0, 0])


def test_a_bill_for_forgotten_verdicts_is_answered_from_the_books(town):
    london, purchase = bought(town)
    assert len(purchase.tab.verdicts) <= KEPT
    old = [
        each
        for each in london.books
        if isinstance(each, records.Posted)
        and each.contract == purchase.contract
        and (each.epoch, each.first) not in {*purchase.tab.verdicts, *purchase.tab.pending}
    ]
    assert old
    row = [old[0].epoch, old[0].first, old[0].tasks, old[0].cost_nanos, old[0].wall_ns, 0]
    strange = [old[0].epoch, 10_000, 1, 5, 0, 0]
    town.said.clear()
    bill = deals.Bill(purchase.contract, [row, strange])
    london.exchange.purchases.hear("paris", bill, town.now_s, 1_000_000.0)
    london.do()
    settles = [each for *_, each in town.said if isinstance(each, deals.Settle)]
    assert [each.verdicts for each in settles] == [[[row[0], row[1], 1], [strange[0], 10_000, 0]]]


def test_a_repeated_delivery_whose_verdict_is_forgotten_changes_nothing(town):
    london, purchase = bought(town)
    spent, posted = purchase.spent_nanos, len(london.postings("buy"))
    purchase.max_cost_nanos = spent  # even if it could not be paid once more
    again = deals.Deliver(
        *(purchase.contract, 1 << 30, 0, [b"r"], [], [], 10**6, 0, 0, 10, 0, []),
    )
    london.exchange.purchases.hear("paris", again, town.now_s, 1_000_000.0)
    assert (purchase.spent_nanos, len(london.postings("buy"))) == (spent, posted)
    assert not purchase.is_void


def test_few_are_kept():
    assert VERDICTS_KEPT <= 1_000
