"""Messages that wait for deliveries ahead of them (gateway.peering.fetch_order)."""

import pytest

from federation.errors import ProtocolError
from federation.messages.deals import Bill, Closed, Decline, Deliver, GivenBack, Holding
from gateway.peering.fetch_order import WAITING_MAX, FetchOrder

DECLINE, BILL, CLOSED = Decline("c", "draining", ""), Bill("c", []), Closed("c")


def delivery(first=0, contract="c"):
    return Deliver(contract, 1, first, [b"1"], [], [], 1, 1, 1, 1, 1, [], left=True)


def test_the_end_of_a_contract_waits_for_all_deliveries_before_it():
    order = FetchOrder()
    assert order.begin("paris", delivery(0))
    assert order.begin("paris", delivery(1))
    assert order.waits("paris", DECLINE)
    assert order.begin("paris", delivery(2))
    assert order.waits("paris", BILL)
    assert order.end("paris", delivery(1)) == []
    assert order.end("paris", delivery(0)) == [DECLINE]
    assert order.waits("paris", CLOSED)
    assert order.end("paris", delivery(2)) == [BILL, CLOSED]
    assert not order.waits("paris", CLOSED)


def test_messages_of_other_tasks_contracts_and_sites_wait_for_nothing():
    order = FetchOrder()
    order.begin("paris", delivery())
    assert not order.waits("paris", GivenBack("c", 1, [[5, 6]]))
    assert not order.waits("paris", Holding("c", []))
    assert not order.waits("paris", Decline("d", "", ""))
    assert not order.waits("rome", DECLINE)


def test_a_delivery_is_fetched_once_at_a_time():
    order = FetchOrder()
    assert order.begin("paris", delivery())
    assert not order.begin("paris", delivery())
    assert order.begin("paris", delivery(contract="d"))
    order.end("paris", delivery())
    assert order.begin("paris", delivery())


def test_a_seller_can_not_fill_the_queue():
    order = FetchOrder()
    order.begin("paris", delivery())
    for _ in range(WAITING_MAX - 1):
        assert order.waits("paris", BILL)
    with pytest.raises(ProtocolError, match="wait for results"):
        order.waits("paris", BILL)
