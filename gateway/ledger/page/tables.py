"""The tables of a page: cells that know how they are written. Pure data."""

from dataclasses import dataclass
from fractions import Fraction

from federation.money import format_amount

from . import writing


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a cell.

    Attributes:
        exact: the number that `text` is rounded from, if it is.
        is_right: it is a number, or stands over numbers.
        is_name: somebody chose it.
    """

    text: str
    exact: str = ""
    is_right: bool = False
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading each; `foot` is their sum, or empty."""

    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: tuple[Cell, ...] = ()


def heads(*words: str, texts: int = 1) -> tuple[Cell, ...]:
    """Headings: so many over texts, the others over numbers."""
    return tuple(Cell(each, is_right=at >= texts) for at, each in enumerate(words))


def name_head(name: object) -> Cell:
    """A heading that somebody chose, over numbers."""
    return Cell(writing.name(name), is_right=True, is_name=True)


def name(name: object) -> Cell:
    """A name that somebody chose."""
    return Cell(writing.name(name), is_name=True)


def text(words: str) -> Cell:
    """Words of ours."""
    return Cell(words)


def number(words: str, exact: str = "") -> Cell:
    """A number as it is written."""
    return Cell(words, exact, is_right=True)


def count(whole: int) -> Cell:
    """A whole number."""
    return number(f"{whole:,}", str(whole))


def money(nanos: int, places: int) -> Cell:
    """An amount, rounded to so many decimals; a dash for none, as accountants have it."""
    return number(writing.amount(nanos, places) if nanos else writing.NOTHING, format_amount(nanos))


def hours(wall_ns: int) -> Cell:
    """Slot time in slot-hours; a dash for none."""
    found = writing.slot_hours(wall_ns)
    shown = writing.rounded(found, 2 if found >= 1 else 4) if wall_ns else writing.NOTHING
    return number(shown, f"{wall_ns} ns")


def price(mean: Fraction | None) -> Cell:
    """What a slot-hour cost."""
    return number(writing.NOTHING if mean is None else writing.rounded(mean, 4))


def share(part: int, whole: int) -> Cell:
    """A part in per cent."""
    return number(writing.share(part, whole))


def measure(value: Fraction) -> Cell:
    """A number with three digits that count."""
    return number(writing.significant(value))
