"""Formats names, amounts and times for people. Pure."""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from federation.clocks import UtcS
from federation.money import NANOS_PER_UNIT, format_amount
from gateway.ledger.output.formulas import FORMULA_STARTS

OTHERS: Final = "(others)"
UNNAMED: Final = "(none)"
NOTHING: Final = "\N{EN DASH}"
LABEL_MAX: Final = 24  # in a plot
NAME_MAX: Final = 120  # in a table

_DECIMALS: Final = ((100 * NANOS_PER_UNIT, 2), (NANOS_PER_UNIT, 4), (NANOS_PER_UNIT // 1000, 6))
_HOUR_NS: Final = 3600 * 10**9
_JOINERS: Final = "\u200c\u200d"  # required by Persian words and some emoji


def name(text: object, limit: int = NAME_MAX) -> str:
    """Format a user-chosen name so that it can't mislead.

    Invisible characters, and those that change the order of text, are written as \\u202e; a name
    that a spreadsheet would take for a formula when pasted is prefixed with an apostrophe.
    """
    if text is None:
        return OTHERS
    seen = "".join(map(_seen, str(text)))
    if not seen.strip():
        return UNNAMED
    if seen.lstrip().startswith(FORMULA_STARTS):
        seen = f"'{seen}"
    return seen if len(seen) <= limit else f"{seen[: limit - 1]}…"


def labels(names: Sequence[object], limit: int = LABEL_MAX) -> list[str]:
    """Format names for a plot: short, and distinct."""
    found: list[str] = []
    for each in names:
        label, tries = name(each, limit), 1
        while label in found:
            tries += 1
            label = f"{name(each, limit - 4)} ({tries})"
        found.append(label)
    return found


def decimals(nanos: int) -> int:
    """Return the number of decimals for an amount of that size, and for amounts beside it."""
    for limit_nanos, places in _DECIMALS:
        if nanos >= limit_nanos:
            return places
    return 9


def exact_decimals(amounts: Iterable[int]) -> int:
    """Return the fewest decimals, two at least, with which none of these amounts is rounded."""
    return max((2, *(len(format_amount(each).partition(".")[2]) for each in amounts)))


def amount(nanos: int, places: int) -> str:
    """Format an amount of money with that many decimals, half to even."""
    return rounded(Fraction(nanos, NANOS_PER_UNIT), places)


def rounded(number: Fraction, places: int) -> str:
    """Format a number with that many decimals and thousands separators."""
    scaled = round(number * 10**places)  # half to even
    return f"{Decimal(scaled).scaleb(-places):,.{places}f}"


def significant(number: Fraction) -> str:
    """Format a number with three significant digits, or all of its whole part."""
    for limit, places in ((100, 0), (10, 1), (1, 2)):
        if number >= limit:
            return rounded(number, places)
    return f"{Decimal(float(number)).normalize():.3g}" if number else "0"


def slot_hours(wall_ns: int) -> Fraction:
    """Return slot time in hours."""
    return Fraction(wall_ns, _HOUR_NS)


def share(part: int, whole: int) -> str:
    """Format a part of a whole in per cent."""
    return f"{rounded(Fraction(100 * part, whole), 1)} %" if whole else NOTHING


def moment(at_s: UtcS) -> str:
    """Format a time to the minute, in UTC."""
    return datetime.fromtimestamp(float(at_s), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _seen(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Zl", "Zp") or (category[0] == "C" and character not in _JOINERS):
        code = ord(character)
        return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
    return character
