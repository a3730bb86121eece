"""The representation of money at all sites: integer nano-units of an ISO currency, never floats.

One unit of a currency is 10**9 nano-units, so that the cost of a millisecond at a few cents an hour
is still an exact integer, and sums stay exact.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Final

NANOS_PER_UNIT: Final = 10**9
NANOS_LIMIT: Final = 2**63 - 1  # the range of a database's integer column

# Of the minor unit of a currency, by ISO 4217, where they are not two.
CURRENCY_DIGITS: Final = dict.fromkeys(
    ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV"), 0
) | dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3)
_MONEY: Final = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?) ([A-Z]{3})\b", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_DECIMALS: Final = 9
_EXAMPLE: Final = 'write an amount and a currency, for example "0.04 USD"'


def parse_money(text: str) -> tuple[int, str]:
    """Read an amount of money, "0.04 USD", as nano-units and currency, exactly.

    Raises ValueError, with the reason, for anything that is not a finite amount of zero or more
    with at most nine decimals, followed by a currency of three capital letters.
    """
    words = text.split()
    if len(words) != 2:
        raise ValueError(f"{text!r} is not an amount of money: {_EXAMPLE}")
    number, currency = words
    try:
        amount = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{number!r} in {text!r} is not a number: {_EXAMPLE}") from None
    if not amount.is_finite():
        raise ValueError(f"{text!r} is not a finite amount: {_EXAMPLE}")
    if amount.is_signed():
        raise ValueError(f"{text!r} is negative: the amount must be zero or more")
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_DECIMALS:
        raise ValueError(f"{text!r} has more than {_DECIMALS} decimals: round it")
    if amount > Decimal(NANOS_LIMIT).scaleb(-_DECIMALS):
        raise ValueError(f"{text!r} is too large: the limit is {format_amount(NANOS_LIMIT)}")
    check_currency(currency)
    return int(amount.scaleb(_DECIMALS)), currency


def format_amount(nanos: int) -> str:
    """Write nano-units as an exact decimal number, without needless zeros: "0.012345678"."""
    units, fraction = divmod(abs(nanos), NANOS_PER_UNIT)
    sign = "-" if nanos < 0 else ""
    if fraction == 0:
        return f"{sign}{units}"
    return f"{sign}{units}.{fraction:0{_DECIMALS}d}".rstrip("0")


def format_money(nanos: int, currency: str) -> str:
    """Write an amount of money exactly, as `parse_money` reads it: "0.012345678 USD"."""
    return f"{format_amount(nanos)} {currency}"


def rounded_amount(amount: str | Decimal, currency: str) -> str:
    """Round an amount for people to the digits of its currency: "12.35", for JPY "1200".

    An amount below half of the smallest unit, such as the cost of a short task, keeps two
    significant digits, because it is not zero: "0.00031". A sum of exact amounts is to be rounded
    once, here; amounts in books and JSON are never rounded.
    """
    exact = Decimal(amount)
    found = round(exact, CURRENCY_DIGITS.get(currency, 2))
    if exact and not found:
        found = round(exact, 1 - exact.adjusted())
        return f"{found.normalize():f}"
    return f"{found:f}"


def rounded_money(text: str) -> str:
    """Return a text with each amount of money in it, such as "0.012345678 USD", rounded so."""

    def shown(match: re.Match[str]) -> str:
        return f"{rounded_amount(match[1], match[2])} {match[2]}"

    return _MONEY.sub(shown, text)


def is_currency(text: str) -> bool:
    """Whether a text has the form of a currency."""
    return _CURRENCY.fullmatch(text) is not None


def check_currency(currency: str) -> None:
    """Raise ValueError unless it is three capital letters."""
    if not is_currency(currency):
        raise ValueError(
            f"{currency!r} is not a currency: use three capital letters, for example USD"
        )
