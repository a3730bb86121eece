"""The contents of charts, independent of the drawing: labels, numbers and colours. Pure data.

A colour is an index into the palette; None is grey, for series without a name of their own. Labels
are written by `writing.labels` and only need escaping.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Numbers under one name; None where there is none. `is_main` emphasises it."""

    name: str
    values: tuple[float | None, ...]
    colour: int | None
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """Vertical bars, stacked from one part for each series."""

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Lines:
    """A line for each series, over the same labels."""

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class Panels:
    """Two charts, one above the other, over the same labels."""

    upper: Lines
    lower: Stacks
    axis: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, each with its number at its end; `colours` has one for each."""

    labels: tuple[str, ...]
    values: tuple[float, ...]
    texts: tuple[str, ...]
    colours: tuple[int | None, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class ShareBars:
    """Horizontal bars of equal length, divided among the series; their values are shares of one."""

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A grid of cells, the darker the nearer to `top`; None is a cell without a number.

    `about` describes rows, columns and numbers.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    top: float
    about: str


Chart = Stacks | Lines | Panels | Bars | ShareBars | Matrix
