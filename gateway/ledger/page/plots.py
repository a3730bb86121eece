"""Draws charts as SVG, with matplotlib: the same chart gives the same bytes.

A chart is put into a page as a picture, a separate document that can't run or load anything. Its
text stays text, in the reader's fonts, so that a name in any script is shown; space is measured
with DejaVu Sans, which is wider than most.
"""

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any, Final, assert_never

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

from gateway.ledger.page.charts import (
    Bars,
    Chart,
    ChartSeries,
    Lines,
    Matrix,
    Panels,
    ShareBars,
    Stacks,
)

INK: Final = "#1f2a36"
QUIET: Final = "#5b6875"
RULE: Final = "#dfe4e9"
PAPER: Final = "#fefefe"
COLOURS: Final = (
    *("#2b5c8a", "#d08c2e", "#4a9a8f", "#8a6fa8", "#6f8f3a", "#b4534b", "#8c7b68", "#5f86b5"),
)
OTHERS: Final = "#b3bcc6"
_EMPTY: Final = "#eff2f5"
_SHADES: Final = LinearSegmentedColormap.from_list("shades", ["#e6eef6", "#7fa8cd", "#1d4a75"])

# A page may be light or dark: the browser selects the colours.
_DARK: Final = {
    INK: "#e3e8ed",
    QUIET: "#a3adb8",
    RULE: "#3a444f",
    PAPER: "#161b21",
    _EMPTY: "#222932",
}
_FONTS: Final = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_STEPS: Final = (1, 2, 2.5, 5, 10)
_LEGEND: Final = 110  # characters that fit above a chart
_WIDTH_INCHES: Final = 9.6
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gridfed",
    "text.parse_math": False,  # a name may have dollars
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": QUIET,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 1.0,
    "legend.handleheight": 1.0,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
}


def draw(chart: Chart) -> str:
    """Draw a chart as an SVG document."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # For scripts that DejaVu Sans lacks; the reader's fonts will have them.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=(_WIDTH_INCHES, _height_inches(chart)), layout="constrained")
        figure.patch.set_visible(False)
        _paint(figure, chart)
        svg = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
    return _for_both_lights(svg.getvalue())


def _height_inches(chart: Chart) -> float:
    match chart:
        case Bars() | ShareBars():
            return 0.9 + 0.3 * len(chart.labels)
        case Matrix():
            return 0.9 + (0.34 if len(chart.columns) > 12 else 0.5) * len(chart.rows)
        case Panels():
            return 4.4
        case _:
            return 3.4


def _paint(figure: Figure, chart: Chart) -> None:
    match chart:
        case Stacks():
            _stacks(figure.subplots(), chart)
        case Lines():
            _lines(figure.subplots(), chart)
            _axis_name(figure.axes[0], "hour of the day, UTC")
        case Panels():
            upper, lower = figure.subplots(2, 1, sharex=True)
            _lines(upper, chart.upper)
            upper.tick_params(labelbottom=False)
            _stacks(lower, chart.lower)
            _axis_name(lower, chart.axis)
        case Bars():
            _bars(figure.subplots(), chart)
        case ShareBars():
            _shares(figure.subplots(), chart)
        case Matrix():
            _matrix(figure.subplots(), chart)
        case _:
            assert_never(chart)


def _stacks(axes: Axes, chart: Stacks) -> None:
    at = range(len(chart.labels))
    below = [0.0] * len(chart.labels)
    for series in chart.series:
        values = [value or 0.0 for value in series.values]
        axes.bar(
            at,
            values,
            bottom=below,
            width=min(0.78, 0.16 * len(chart.labels)),  # limits the width of few bars
            color=_colour(series.colour),
            edgecolor=PAPER,
            linewidth=0.5,
            label=_literal(series.name),
        )
        below = [low + value for low, value in zip(below, values, strict=True)]
    _numbers(axes, chart.unit)
    axes.set_ylim(0, max(below) * 1.06 or 1)
    _ticks(axes, chart.labels)
    _legend(axes, chart.series)


def _lines(axes: Axes, chart: Lines) -> None:
    at = range(len(chart.labels))
    values = [value for series in chart.series for value in series.values if value is not None]
    for series in chart.series:
        axes.plot(
            at,
            [float("nan") if value is None else value for value in series.values],
            color=INK if series.is_main and series.colour is None else _colour(series.colour),
            linewidth=2.2 if series.is_main else 1.4,
            marker="o",
            markersize=3.4 if series.is_main else 2.6,
            label=_literal(series.name),
        )
    _numbers(axes, chart.unit)
    axes.set_ylim(0, max(values, default=0) * 1.12 or 1)
    _ticks(axes, chart.labels)
    _legend(axes, chart.series)


def _bars(axes: Axes, chart: Bars) -> None:
    at = range(len(chart.labels))
    bars = axes.barh(at, chart.values, height=0.66, color=[*map(_colour, chart.colours)])
    axes.bar_label(bars, chart.texts, padding=4, fontsize=8, color=INK)
    axes.set_yticks(at, [*map(_literal, chart.labels)], color=INK)
    axes.set_ylim(len(chart.labels) - 0.5, -0.5)
    axes.set_xlim(0, max(chart.values) * 1.14 or 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.xaxis.set_major_formatter(_figures())
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x")
    _axis_name(axes, chart.unit)


def _shares(axes: Axes, chart: ShareBars) -> None:
    at = range(len(chart.labels))
    left = [0.0] * len(chart.labels)
    for series in chart.series:
        values = [value or 0.0 for value in series.values]
        colour = _colour(series.colour)
        bars = axes.barh(
            at,
            values,
            left=left,
            height=0.66,
            color=colour,
            edgecolor=PAPER,
            linewidth=0.5,
            label=_literal(series.name),
        )
        texts = [f"{value:.1%}".replace("%", " %") if value >= 0.06 else "" for value in values]
        axes.bar_label(bars, texts, label_type="center", fontsize=8, color=_on(colour))
        left = [low + value for low, value in zip(left, values, strict=True)]
    axes.set_yticks(at, [*map(_literal, chart.labels)], color=INK)
    axes.set_ylim(len(chart.labels) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    _legend(axes, chart.series)


def _matrix(axes: Axes, chart: Matrix) -> None:
    for row, (values, texts) in enumerate(zip(chart.values, chart.texts, strict=True)):
        for column, (value, text) in enumerate(zip(values, texts, strict=True)):
            shade = min(1.0, value / chart.top) if value is not None and chart.top else 0.0
            colour = _EMPTY if value is None else mpl.colors.to_hex(_SHADES(shade))
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(
                mpl.patches.Rectangle(corner, 1, 1, facecolor=colour, edgecolor=PAPER, linewidth=1)
            )
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=_on(colour))
    axes.set_xlim(-0.5, len(chart.columns) - 0.5)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(chart.columns)), [*map(_literal, chart.columns)], color=INK)
    axes.set_yticks(range(len(chart.rows)), [*map(_literal, chart.rows)], color=INK)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(chart.about, loc="left", fontsize=8, color=QUIET)


def _numbers(axes: Axes, unit: str) -> None:
    """Number the vertical axis, and write the unit above it, horizontally."""
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.yaxis.set_major_formatter(_figures())
    axes.grid(axis="y")
    axes.set_title(unit, loc="left", fontsize=8, color=QUIET)


def _ticks(axes: Axes, labels: Sequence[str]) -> None:
    step = -(-len(labels) // 16)
    shown = range(0, len(labels), step)
    axes.set_xticks(shown, [labels[at] for at in shown])
    axes.set_xlim(-0.7, len(labels) - 0.3)


def _axis_name(axes: Axes, text: str) -> None:
    axes.set_xlabel(text, fontsize=8)


class _Thousands(ScalarFormatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        whole, point, fraction = super().__call__(x, pos).partition(".")
        return f"{int(whole):,}{point}{fraction}" if whole.isdecimal() else whole + point + fraction


def _legend(axes: Axes, series: Sequence[ChartSeries]) -> None:
    """Place the legend above the chart, on the right, clear of the plot."""
    if len(series) > 1:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=min(len(series), _LEGEND // (4 + max(len(each.name) for each in series))),
            fontsize=8,
            borderaxespad=0.2,
        )


def _figures() -> ScalarFormatter:
    """Return a format with as many decimals as the neighbouring ticks, and thousands separators."""
    formatter = _Thousands(useOffset=False)
    formatter.set_scientific(False)
    return formatter


def _colour(place: int | None) -> str:
    return OTHERS if place is None else COLOURS[place % len(COLOURS)]


def _on(colour: str) -> str:
    """Return a readable text colour for a background."""
    red, green, blue = mpl.colors.to_rgb(colour)
    if colour == _EMPTY:
        return INK
    return "#ffffff" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.6 else "#17202a"


def _literal(text: str) -> str:
    """Return a label that matplotlib shows: it hides labels that begin with an underscore."""
    return f"\u200b{text}" if text.startswith("_") else text


def _for_both_lights(svg: str) -> str:
    """Let the browser select the colours, and the fonts."""
    names = {colour: f"--c{at}" for at, colour in enumerate(_DARK)}
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{name}:{_DARK[colour]}" for colour, name in names.items())
    style = (
        f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"
        f"text{{font-family:{_FONTS}!important}}</style>"
    )
    declared = re.compile(rf"((?:fill|stroke): )({'|'.join(_DARK)})(?=[;\"])")

    def named(tag: re.Match[str]) -> str:
        return declared.sub(lambda found: f"{found[1]}var({names[found[2]]})", tag[0])

    # Only within tags: a name may look like a colour.
    svg = re.sub(r"<[^>]+>", named, svg)
    return re.sub(r"(<svg [^>]*>)", lambda found: found[1] + style, svg, count=1)
