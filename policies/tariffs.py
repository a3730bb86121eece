"""Prices and what work costs by them: integer nano-units of a currency per slot-hour."""

from dataclasses import dataclass
from typing import Final

from federation.money import NANOS_LIMIT, check_currency

HOUR_S: Final = 3_600
HOUR_NS: Final = HOUR_S * 10**9


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a slot-hour of a pool costs, and which version of the price list said so."""

    price_nanos: int
    currency: str
    version: str

    def __post_init__(self) -> None:
        if not 0 <= self.price_nanos <= NANOS_LIMIT:
            raise ValueError(f"a price of {self.price_nanos} nano-units is out of range")
        check_currency(self.currency)


def cost_nanos(price_nanos: int, wall_ns: int) -> int:
    """Return what `wall_ns` of one slot cost at a price per slot-hour, halves rounded up."""
    if price_nanos < 0 or wall_ns < 0:
        raise ValueError(f"no cost of {wall_ns} ns at {price_nanos}: both must be zero or more")
    return (2 * price_nanos * wall_ns + HOUR_NS) // (2 * HOUR_NS)
