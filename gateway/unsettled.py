"""Results that buyers have not settled, by their bytes: who lets them pile up waits. Pure.

A seller keeps what it delivered until the buyer has settled the bill for it, for the buyer may
come back and ask again. A buyer that takes results and settles nothing would fill our memory; so
no more of its tasks start while it owes us a verdict on too much.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from federation.deals import Deliver

DELIVERY_BYTES: Final = 1000
VALUE_BYTES: Final = 50
POSTING_BYTES: Final = 300  # of one whose results are not kept any more


@dataclass(slots=True)
class Unsettled:
    """How many bytes each buyer leaves us with; over `bytes_max` it is full, until half of that."""

    bytes_max: int
    _held: Counter[str] = field(default_factory=Counter)
    _full: set[str] = field(default_factory=set)

    def is_full(self, buyer: str) -> bool:
        """Whether nothing more is to run for a buyer."""
        return buyer in self._full

    def bytes_of(self, buyer: str) -> int:
        """How many bytes a buyer leaves us with."""
        return self._held[buyer]

    def keep(self, buyer: str, message: Deliver) -> bool:
        """A delivery is kept. Whether `is_full` has changed by it."""
        return self._add(buyer, size_of(message))

    def owe(self, buyer: str) -> bool:
        """What a delivery of a former life cost is not settled. Whether `is_full` has changed."""
        return self._add(buyer, POSTING_BYTES)

    def shed(self, buyer: str, message: Deliver) -> bool:
        """Only what a delivery cost is kept of it. Whether `is_full` has changed by it."""
        return self._drop(buyer, size_of(message) - POSTING_BYTES)

    def forget(self, buyer: str, message: Deliver) -> bool:
        """A delivery is not kept any more. Whether `is_full` has changed by it."""
        return self._drop(buyer, size_of(message))

    def settle(self, buyer: str) -> bool:
        """A delivery of which only the cost was kept is settled. Whether `is_full` has changed."""
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
    """The bytes of a delivery: what tasks returned, raised and printed, and what it is kept in."""
    raised = sum(len(text) + len(body) for _, _, text, body in message.failures)
    printed = sum(len(text) for _, text in message.prints)
    kept_in = DELIVERY_BYTES + VALUE_BYTES * len(message.values)
    return sum(map(len, message.values)) + raised + printed + kept_in
