"""What a chart shows, whoever draws it: labels, numbers and which colour. Pure data.

A colour is a place in the palette; None is the grey of what has no name of its own. Labels are
written by `writing.labels` and need nothing but escaping.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers under one name; None where there is none. `is_main` is drawn to stand out."""

    name: str
    values: tuple[float | None, ...]
    colour: int | None
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """Upright bars, of one part for each series."""

    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Lines:
    """A line for each series, over the same labels."""

    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Panels:
    """Two charts, one above the other, over the same labels."""

    upper: Lines
    lower: Stacks
    axis: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Lying bars, each with its number written at its end; `colours` has one for each."""

    labels: tuple[str, ...]
    values: tuple[float, ...]
    texts: tuple[str, ...]
    colours: tuple[int | None, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Shares:
    """Lying bars of equal length, divided among the series; their values are shares of one."""

    labels: tuple[str, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A field of cells, the darker the nearer to `top`; None is a cell without a number.

    `about` says what rows, columns and numbers are.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    top: float
    about: str


Chart = Stacks | Lines | Panels | Bars | Shares | Matrix
