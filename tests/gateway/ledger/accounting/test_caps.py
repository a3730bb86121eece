"""Deliveries that the grant of their contract has capped, and those that only look like it."""

import pytest

from gateway.ledger.accounting.caps import capped
from gateway.ledger.db.contracts.records import ContractRow, PostingRow

HOUR_NS = 3_600 * 10**9
PRICE = 1_000  # of a slot-hour, with a minimum of ten


def contract(most):
    return ContractRow(
        *("c", "sell", "paris", "j", "gpu", 1, PRICE, "USD", 30.0, 1.0, most), minimum_nanos=10
    )


def delivery(first, cost, hours=0.5, at_s=1.0):
    return PostingRow(1, first, 1, cost, "post", round(hours * HOUR_NS), at_s)


@pytest.mark.parametrize(
    ("most", "deliveries", "found"),
    [
        (700, [delivery(0, 500), delivery(1, 200)], {(1, 1)}),
        (700, [delivery(1, 200, at_s=3.0), delivery(2, 0, at_s=4.0), delivery(0, 500)],
         {(1, 1), (1, 2)}),
        (1000, [delivery(0, 500), delivery(1, 500)], set()),
        (1000, [delivery(0, 500), delivery(1, 0)], set()),  # stopped to make room, for nothing
        (500, [delivery(0, 490), delivery(1, 10, 0.001)], set()),
        (None, [delivery(0, 500), delivery(1, 200)], set()),
    ],
)  # fmt: skip
def test_a_delivery_is_capped_that_uses_up_its_grant_and_costs_less_than_its_time(
    most, deliveries, found
):
    assert capped(contract(most), deliveries) == found
