"""Slot time that small grants have left unpaid, by buyer. Pure.

A seller charges no more than a grant allows, and stops a task only when it notices that the grant
is used up (gateway.contracts.selling.stopping). A user could run many short tasks, each for a grant
of next to nothing. So the unpaid time of a buyer is counted, and forgotten at a steady rate. While
there is too much of it, a grant must pay for a second of a slot, or for a task of measured
duration.
"""

from typing import Final

from gateway.contracts.model.sale import Sale
from policies.tariffs import HOUR_NS

ALLOWED_S: Final = 10.0  # unpaid slot-seconds of a buyer, before small grants are declined
FORGOTTEN_SHARE: Final = 1 / 60  # of a second, with each second that passes


class Shortfalls:
    """The unpaid slot-seconds of each buyer."""

    def __init__(self) -> None:
        self._of: dict[
            str, tuple[float, float]
        ] = {}  # by buyer: slot-seconds, and when (monotonic)

    def note(self, sale: Sale, unpaid_nanos: int, now_s: float) -> None:
        """Note an amount that a delivery cost beyond its contract's grant."""
        price_nanos = sale.price.price_nanos
        if unpaid_nanos <= 0 or not price_nanos:
            return
        unpaid_s = unpaid_nanos * HOUR_NS / price_nanos / 1e9
        self._of[sale.buyer] = self._left_s(sale.buyer, now_s) + unpaid_s, now_s

    def is_over(self, buyer: str, now_s: float) -> bool:
        """Whether a buyer's unpaid time is more than is allowed."""
        return self._left_s(buyer, now_s) > ALLOWED_S

    def _left_s(self, buyer: str, now_s: float) -> float:
        unpaid_s, at_s = self._of.get(buyer, (0.0, now_s))
        return max(0.0, unpaid_s - FORGOTTEN_SHARE * max(0.0, now_s - at_s))
