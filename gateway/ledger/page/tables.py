"""The tables of a page: cells with their text and format. Pure data."""

from dataclasses import dataclass
from fractions import Fraction

from federation.money import format_amount
from gateway.ledger.page import writing


@dataclass(frozen=True, slots=True)
class Cell:
    """The contents of a cell.

    Attributes:
        exact: the number from which `text` was rounded, if any.
        is_right: it is a number, or a heading over numbers.
        is_name: it is a name that a user chose.
    """

    text: str
    exact: str = ""
    is_right: bool = False
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a heading for each column; `foot` is their sum, or empty."""

    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: tuple[Cell, ...] = ()


def heads(*words: str, texts: int = 1) -> tuple[Cell, ...]:
    """Return headings: the first `texts` over texts, the others over numbers."""
    return tuple(Cell(each, is_right=at >= texts) for at, each in enumerate(words))


def name_head(name: object) -> Cell:
    """Return a heading with a user-chosen name, over numbers."""
    return Cell(writing.name(name), is_right=True, is_name=True)


def name(name: object) -> Cell:
    """Return a cell with a user-chosen name."""
    return Cell(writing.name(name), is_name=True)


def text(words: str) -> Cell:
    """Return a cell with our own text."""
    return Cell(words)


def number(words: str, exact: str = "") -> Cell:
    """Return a cell with a formatted number."""
    return Cell(words, exact, is_right=True)


def count(whole: int) -> Cell:
    """Return a whole number."""
    return number(f"{whole:,}", str(whole))


def money(nanos: int, places: int) -> Cell:
    """Return an amount, rounded to `places` decimals; a dash for zero, as in accounting."""
    return number(writing.amount(nanos, places) if nanos else writing.NOTHING, format_amount(nanos))


def hours(wall_ns: int) -> Cell:
    """Return slot time in slot-hours; a dash for none."""
    found = writing.slot_hours(wall_ns)
    shown = writing.rounded(found, 2 if found >= 1 else 4) if wall_ns else writing.NOTHING
    return number(shown, f"{wall_ns} ns")


def data(amount: int, per: int, unit: str) -> Cell:
    """Return bytes or byte-seconds, in units of `per`; a dash for none."""
    shown = writing.significant(Fraction(amount, per)) if amount else writing.NOTHING
    return number(shown, f"{amount} {unit}")


def price(mean: Fraction | None) -> Cell:
    """Return the price of a slot-hour."""
    return number(writing.NOTHING if mean is None else writing.rounded(mean, 4))


def share(part: int, whole: int) -> Cell:
    """Return a part in per cent."""
    return number(writing.share(part, whole))


def measure(value: Fraction) -> Cell:
    """Return a number with three significant digits."""
    return number(writing.significant(value))
