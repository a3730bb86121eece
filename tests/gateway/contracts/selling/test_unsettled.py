"""Bytes that a buyer has not settled: the ones that count, and the start and end of its wait."""

import pytest

from federation.messages import deals
from gateway.contracts.selling.unsettled import (
    DELIVERY_BYTES,
    POSTING_BYTES,
    VALUE_BYTES,
    UnsettledResults,
    size_of,
)


def delivery(*values, failures=(), prints=()):
    return deals.Deliver("c", 1, 0, [*values], [*failures], [*prints], 0, 0, 0, 0, 0, [])


def test_a_delivery_counts_all_that_it_carries():
    failed = [3, "raised", "text", b"pickled"]
    whole = delivery(b"12", b"345", failures=[failed], prints=[[0, "said"]])
    assert size_of(whole) == DELIVERY_BYTES + 2 * VALUE_BYTES + 5 + 4 + 7 + 4


def test_a_buyer_is_full_above_the_limit_until_half_of_it_is_settled():
    one = delivery(b"x" * 1_950)
    kept = UnsettledResults(bytes_max=4 * size_of(one))
    assert [kept.keep("london", one) for _ in range(6)] == [False] * 4 + [True, False]
    assert (kept.is_full("london"), kept.is_full("paris")) == (True, False)
    assert kept.bytes_of("london") == 6 * size_of(one)
    changed = [kept.forget("london", one) for _ in range(6)]
    assert changed == [False, False, False, True, False, False]
    assert not kept.is_full("london")
    assert kept.bytes_of("london") == 0


def test_of_a_delivery_that_is_shed_its_cost_remains_until_it_is_settled():
    one = delivery(b"x" * 5_000)
    kept = UnsettledResults(bytes_max=size_of(one) - 1)
    assert kept.keep("london", one)
    assert kept.shed("london", one), "half is free again"
    assert kept.bytes_of("london") == POSTING_BYTES
    assert not kept.settle("london")
    assert kept.bytes_of("london") == 0


@pytest.mark.parametrize("count", [3, 4])
def test_deliveries_of_an_earlier_run_count_with_their_cost(count):
    kept = UnsettledResults(bytes_max=3 * POSTING_BYTES)
    owed = [kept.owe("london") for _ in range(count)]
    assert owed == [False] * 3 + [True] * (count - 3)
    settled = [kept.settle("london") for _ in range(count)]
    assert sum(settled) == count - 3
