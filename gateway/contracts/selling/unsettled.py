"""Bytes of results that buyers have not settled: a buyer with too many has to wait. Pure.

A seller keeps its deliveries until the buyer has settled the bill for them, for the buyer may come
back and ask again. A buyer that takes results and settles nothing would fill the seller's memory:
so no more of its tasks start while it owes verdicts on too many bytes.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from federation.messages.deals import Deliver

DELIVERY_BYTES: Final = 1000
VALUE_BYTES: Final = 50
POSTING_BYTES: Final = 300  # of one whose results are not kept any more


@dataclass(slots=True)
class UnsettledResults:
    """The bytes kept for each buyer; over `bytes_max` it is full, until half of that."""

    bytes_max: int
    _held: Counter[str] = field(default_factory=Counter)
    _full: set[str] = field(default_factory=set)

    def is_full(self, buyer: str) -> bool:
        """Whether a buyer may run nothing more."""
        return buyer in self._full

    def bytes_of(self, buyer: str) -> int:
        """Return the bytes kept for a buyer."""
        return self._held[buyer]

    def keep(self, buyer: str, message: Deliver) -> bool:
        """Count a delivery that is kept. Return whether `is_full` has changed by it."""
        return self._add(buyer, size_of(message))

    def owe(self, buyer: str) -> bool:
        """Count an unsettled delivery of an earlier run. Return whether `is_full` has changed."""
        return self._add(buyer, POSTING_BYTES)

    def shed(self, buyer: str, message: Deliver) -> bool:
        """Keep only the cost of a delivery. Return whether `is_full` has changed by it."""
        return self._drop(buyer, size_of(message) - POSTING_BYTES)

    def forget(self, buyer: str, message: Deliver) -> bool:
        """Drop a delivery. Return whether `is_full` has changed by it."""
        return self._drop(buyer, size_of(message))

    def settle(self, buyer: str) -> bool:
        """Settle a delivery kept as its cost alone. Return whether `is_full` has changed."""
        return self._drop(buyer, POSTING_BYTES)

    def _add(self, buyer: str, size: int) -> bool:
        self._held[buyer] += size
        if self._held[buyer] <= self.bytes_max or buyer in self._full:
            return False
        self._full.add(buyer)
        return True

    def _drop(self, buyer: str, size: int) -> bool:
        self._held[buyer] -= size
        if not self._held[buyer]:
            del self._held[buyer]
        if self._held[buyer] > self.bytes_max // 2 or buyer not in self._full:
            return False
        self._full.remove(buyer)
        return True


def size_of(message: Deliver) -> int:
    """Return the bytes of a delivery: returned, raised and printed data, and their overhead."""
    raised = sum(len(text) + len(body) for _, _, text, body in message.failures)
    printed = sum(len(text) for _, text in message.prints)
    kept_in = DELIVERY_BYTES + VALUE_BYTES * len(message.values)
    return sum(map(len, message.values)) + raised + printed + kept_in
