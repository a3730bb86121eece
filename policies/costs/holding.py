"""The price of bytes that are held: an amount of money for a GB-month. Pure.

GB are of 10**9 bytes, and a month has 730 hours, as in the price lists of clouds, so that a byte
costs the same in each month. Byte-seconds are whole numbers; a record is charged for them at the
price, rounded half up to a nano-unit, once:

    charge = ⌊price · byte-seconds / (10**9 · 730 · 3600) + ½⌋
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from federation.money import NANOS_LIMIT, check_currency, format_money, parse_money

GB: Final = 10**9
HOUR_S: Final = 3_600
MONTH_S: Final = 730 * HOUR_S
_UNIT: Final = re.compile(r"\s*/\s*GB-month\s*$")
_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class HoldPrice:
    """The price of holding a GB for a month, in nano-units of a currency; 0: free."""

    nanos: int = 0
    currency: str = "USD"

    def __post_init__(self) -> None:
        if not 0 <= self.nanos <= NANOS_LIMIT:
            raise ValueError(f"a price of {self.nanos} nano-units is out of range")
        check_currency(self.currency)

    def charge_nanos(self, byte_s: int) -> int:
        """Return the charge of a record for so many byte-seconds."""
        whole = GB * MONTH_S
        return min(NANOS_LIMIT, (2 * self.nanos * byte_s + whole) // (2 * whole))

    def __str__(self) -> str:
        return f"{format_money(self.nanos, self.currency)}/GB-month"


def parse_hold_price(text: str) -> HoldPrice:
    """Read a price, "0.03 USD/GB-month". Raises ValueError, with the reason, for anything else."""
    amount, unit, _ = text.partition("/")
    if not unit or not _UNIT.fullmatch(text[len(amount) :]):
        raise ValueError(
            f'{text!r:.60} is no price of held bytes: write it as in "0.03 USD/GB-month"'
        )
    return HoldPrice(*parse_money(amount))


def byte_seconds(size: int, since_s: UtcS, until_s: UtcS) -> int:
    """Return the byte-seconds of `size` bytes for a time, halves rounded up; none if it is over
    before it begins, as where a clock was set back."""
    ns = max(0, round((until_s - since_s) * _NS))
    return (2 * size * ns + _NS) // (2 * _NS)


def by_hours(since_s: UtcS, until_s: UtcS) -> Iterator[tuple[UtcS, UtcS]]:
    """Yield [since, until) in parts that lie within one UTC hour each."""
    while since_s < until_s:
        next_s = UtcS((since_s // HOUR_S + 1) * HOUR_S)
        yield since_s, min(next_s, until_s)
        since_s = next_s


def in_all(price: HoldPrice, size: int, since_s: UtcS, until_s: UtcS) -> tuple[int, int]:
    """Return byte-seconds and charge of `size` bytes for a time that is charged by the hour.

    Both are exactly the sums over the parts of `by_hours`. All whole hours are alike, so the time
    that this takes does not depend on their number.
    """
    is_whole = since_s % HOUR_S == 0
    first_s = since_s if is_whole else UtcS((since_s // HOUR_S + 1) * HOUR_S)
    last_s = UtcS(until_s // HOUR_S * HOUR_S)
    if last_s <= first_s:
        parts = [byte_seconds(size, *part) for part in by_hours(since_s, until_s)]
        return sum(parts), sum(map(price.charge_nanos, parts))
    hours, whole = int((last_s - first_s) // HOUR_S), size * HOUR_S
    ends = (byte_seconds(size, since_s, first_s), byte_seconds(size, last_s, until_s))
    byte_s = sum(ends) + hours * whole
    return byte_s, sum(map(price.charge_nanos, ends)) + hours * price.charge_nanos(whole)


def last_within(until_s: UtcS) -> UtcS:
    """Return the end of a part for the books, which count by the hour in which a record ended.

    The end of an hour is the last instant within it: the next float is the next hour.
    """
    return UtcS(math.nextafter(until_s, 0.0)) if until_s % HOUR_S == 0 else until_s


def end_of(ended_at_s: UtcS) -> UtcS:
    """Return the `until_s` of which `last_within` made this."""
    next_s = UtcS(math.nextafter(ended_at_s, math.inf))
    return next_s if next_s % HOUR_S == 0 else ended_at_s
