"""The speed of a slot, in the form that APEL requires. Pure."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

# The only benchmarks that APEL's loader accepts, by its own names.
KINDS: Final = ("si2k", "hepspec", "hepscore23")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The result of a benchmark per slot, and the benchmark's name."""

    kind: str
    value: str


def parse_benchmark(text: str) -> Benchmark:
    """Parse "hepspec=10.5". Raises ValueError with the reason."""
    kind, equals, number = text.partition("=")
    example = f"use KIND=NUMBER, for example hepspec=10.5, with one of {', '.join(KINDS)}"
    if not equals or kind.lower() not in KINDS:
        raise ValueError(f"{text!r} is not a benchmark: {example}")
    try:
        value = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{number!r} is not a number: {example}") from None
    if not value.is_finite() or value <= 0:
        raise ValueError(f"{number!r} is not greater than zero: {example}")
    return Benchmark(kind.lower(), format(value, "f"))
