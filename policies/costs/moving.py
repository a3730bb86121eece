"""The price of bytes that move between sites: an amount of money for a GB. Pure.

GB are of 10**9 bytes. A move is charged once, for the bytes of its receipt, at the price of the
direction, rounded half up to a nano-unit:

    charge = ⌊price · bytes / 10**9 + ½⌋

Both sites compute it from the same receipt, so it is the same at both, to the nano-unit.
"""

import re
from dataclasses import dataclass
from typing import Final

from federation.money import NANOS_LIMIT, check_currency, format_money, parse_money

GB: Final = 10**9
_UNIT: Final = re.compile(r"\s*/\s*GB\s*$")


@dataclass(frozen=True, slots=True)
class MovePrices:
    """What a site charges other sites for a GB that moves under their contracts; 0: nothing.

    Attributes:
        receive_nanos: of a GB that comes to this site, such as inputs, in nano-units.
        send_nanos: of a GB that goes from it, such as results.
        currency: of both; empty where both are free.
    """

    receive_nanos: int = 0
    send_nanos: int = 0
    currency: str = ""

    def __post_init__(self) -> None:
        for nanos in (self.receive_nanos, self.send_nanos):
            if not 0 <= nanos <= NANOS_LIMIT:
                raise ValueError(f"a price of {nanos} nano-units is out of range")
        if self:
            check_currency(self.currency)

    def __bool__(self) -> bool:
        """Whether anything is charged."""
        return bool(self.receive_nanos or self.send_nanos)


@dataclass(frozen=True, slots=True)
class GbPrice:
    """The price of a GB in one direction, in nano-units of a currency."""

    nanos: int
    currency: str

    def __str__(self) -> str:
        return f"{format_money(self.nanos, self.currency)}/GB"


def parse_gb_price(text: str) -> GbPrice:
    """Read a price, "0.02 USD/GB". Raises ValueError, with the reason, for anything else."""
    amount, unit, _ = text.partition("/")
    if not unit or not _UNIT.fullmatch(text[len(amount) :]):
        raise ValueError(f'{text!r:.60} is no price of moved bytes: write it as in "0.02 USD/GB"')
    return GbPrice(*parse_money(amount))


def charge_nanos(price_nanos: int, moved_bytes: int) -> int:
    """Return the charge for bytes that have moved at a price of a GB, in nano-units."""
    if price_nanos < 0 or moved_bytes < 0:
        raise ValueError(f"{moved_bytes} bytes at {price_nanos}: both must be zero or more")
    return min(NANOS_LIMIT, (2 * price_nanos * moved_bytes + GB) // (2 * GB))
