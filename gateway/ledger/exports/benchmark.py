"""How fast a slot is, as APEL wants to know it. Pure."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

# The only ones that APEL's loader takes; its own names for them.
KINDS: Final = ("si2k", "hepspec", "hepscore23")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """So many units of a benchmark a slot."""

    kind: str
    value: str


def parse_benchmark(text: str) -> Benchmark:
    """Read "hepspec=10.5". Raises ValueError, saying what is wrong."""
    kind, equals, number = text.partition("=")
    example = f"write KIND=NUMBER, as in hepspec=10.5, with one of {', '.join(KINDS)}"
    if not equals or kind.lower() not in KINDS:
        raise ValueError(f"{text!r} is no benchmark: {example}")
    try:
        value = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{number!r} is not a number: {example}") from None
    if not value.is_finite() or value <= 0:
        raise ValueError(f"{number!r} is not above zero: {example}")
    return Benchmark(kind.lower(), format(value, "f"))
