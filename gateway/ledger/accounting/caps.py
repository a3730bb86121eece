"""Deliveries that cost less than their time, as their grant allowed no more. Pure.

A seller may bill what the grant of a contract allows, and runs the rest at its own loss. In a list
of deliveries that looks like a discount: it is named instead.
"""

from collections.abc import Iterable

from gateway.ledger.db.contracts.records import ContractRow, PostingRow
from policies.tariffs import Tariff


def capped(contract: ContractRow, deliveries: Iterable[PostingRow]) -> frozenset[tuple[int, int]]:
    """The deliveries of a contract that were capped, by epoch and first task.

    `deliveries` is all of the contract's: those are capped with which its grant is used up, and
    that cost less than their time.
    """
    if contract.max_cost_nanos is None:
        return frozenset()
    by_time = Tariff(contract.price_nanos, contract.currency, contract.tariff)
    found, spent_nanos = set(), 0
    for each in sorted(deliveries, key=lambda row: (row.posted_at_s, row.epoch, row.first)):
        spent_nanos += each.cost_nanos
        is_spent = spent_nanos >= contract.max_cost_nanos
        if is_spent and each.cost_nanos < by_time.charge_nanos(0, each.wall_ns):
            found.add((each.epoch, each.first))
    return frozenset(found)
