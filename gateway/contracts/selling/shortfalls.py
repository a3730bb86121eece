"""Slot time that small grants have left unpaid, by buyer. Pure.

A seller charges no more than a grant allows, and stops a task only when it notices that the grant
is used up (gateway.contracts.selling.stopping). A user could run many short tasks, each for a grant
of next to nothing. So the unpaid time of a buyer is counted, and forgotten at a steady rate. While
there is too much of it, a grant must pay for a second of a slot, or for a task of measured
duration.
"""

from typing import Final

from federation.clocks import MonoS
from gateway.base.fading import FadingAmounts
from gateway.contracts.model.sale import Sale
from policies.tariffs import HOUR_NS

ALLOWED_S: Final = 10.0  # unpaid slot-seconds of a buyer, before small grants are declined
FORGOTTEN_SHARE: Final = 1 / 60  # of a second, with each second that passes


class Shortfalls:
    """The unpaid slot-seconds of each buyer."""

    def __init__(self) -> None:
        self._unpaid_s = FadingAmounts[MonoS](FORGOTTEN_SHARE)  # by buyer

    def note(self, sale: Sale, unpaid_nanos: int, mono_s: MonoS) -> None:
        """Note an amount that a delivery cost beyond its contract's grant."""
        price_nanos = sale.price.price_nanos
        if unpaid_nanos > 0 and price_nanos:
            self._unpaid_s.add(sale.buyer, unpaid_nanos * HOUR_NS / price_nanos / 1e9, mono_s)

    def is_over(self, buyer: str, mono_s: MonoS) -> bool:
        """Whether a buyer's unpaid time is more than is allowed."""
        return self._unpaid_s.at(buyer, mono_s) > ALLOWED_S
