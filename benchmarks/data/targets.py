"""The targets of objects and graphs, and how far they are reached: from the results of other runs.

Nothing is measured here. Each row names the file of its figures; ratios are of pairs in one run.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.harness import RESULTS


@dataclass(frozen=True)
class TargetRow:
    """A target.

    Attributes:
        what: is measured.
        target: in words.
        limit: the figure to reach.
        source: the results file without its ending.
        figure: takes the figure from that file; None where it has none.
        at_most: whether lower is better.
        unit: of the figure.
    """

    what: str
    target: str
    limit: float
    source: str
    figure: Callable[["RunFigures"], float | None]
    at_most: bool = False
    unit: str = "x"


class RunFigures:
    """The figures of one run."""

    def __init__(self, source: str) -> None:
        path = RESULTS / f"{source}.json"
        series = json.loads(path.read_text())["series"] if path.exists() else []
        self._values: dict[tuple[str, str], list[float]] = {
            (each["contestant"], each["measure"]): each["values"] for each in series
        }

    def median(self, contestant: str, measure: str) -> float | None:
        """Return a median; None where it was not measured."""
        values = self._values.get((contestant, measure))
        return statistics.median(values) if values else None

    def ratio(self, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        """Return the median of the ratios of two series, pair by pair."""
        first, second = self._values.get(one), self._values.get(other)
        if not first or not second:
            return None
        return statistics.median(a / b for a, b in zip(first, second, strict=False))


def _ratio(one: str, other: str, measure: str, against: str = "") -> Callable[[Any], float | None]:
    return lambda run: run.ratio((one, measure), (other, against or measure))


def _median(who: str, measure: str, factor: float = 1.0) -> Callable[[Any], float | None]:
    def figure(run: RunFigures) -> float | None:
        found = run.median(who, measure)
        return None if found is None else found * factor

    return figure


PUT, RESULT = "put of 100 MB", "result of 100 MB"
CHAIN, FAN_IN = "chain of two functions in turn", "fan-in of 10,000"
MILLION: Final = "map-reduce of 1,000,000"
TLS: Final = "200 MB over TLS"
TARGETS: Final = (
    TargetRow(
        "put of 100 MB / a plain copy",
        *("at most 2.5 x", 2.5, "objects", _ratio("gridfed", "floor", PUT), True),
    ),
    TargetRow(
        "put of 100 MB / ray.put",
        *("at most 0.7 x", 0.7, "objects", _ratio("gridfed", "Ray", PUT), True),
    ),
    TargetRow(
        "the same, processor time",
        *("at most 0.7 x", 0.7, "objects"),
        *(_ratio("gridfed", "Ray", f"{PUT}, processor time"), True),
    ),
    TargetRow(
        "a held 100 MB argument loads in a slot",
        *("at most 0.3 ms", 0.3, "objects"),
        *(_median("gridfed", "100 MB loaded in a slot", 1e3), True, "ms"),
    ),
    TargetRow(
        "warm task on a reference of 100 MB / lone task",
        *("at most 1.2 x", 1.2, "objects"),
        *(_ratio("gridfed", "gridfed", "next task on it", "lone task"), True),
    ),
    TargetRow(
        "result of 100 MB / Ray's",
        *("at most 1 x", 1.0, "objects", _ratio("gridfed", "Ray", RESULT), True),
    ),
    TargetRow(
        "argument of 40 MB: af22feb / now",
        *("at least 50 x", 50.0, "objects", _ratio("before", "gridfed", "argument of 40 MB")),
    ),
    TargetRow(
        "spill / a plain write",
        *("at most 1.43 x", 1.43, "objects", _ratio("gridfed", "floor", "spill of 100 MB"), True),
    ),
    TargetRow(
        "mapped from disk",
        *("at most 1 ms", 1.0, "objects", _median("gridfed", "mapped from disk", 1e3), True, "ms"),
    ),
    TargetRow(
        "gateway to gateway / loopback TLS",
        *("at least 0.7 x", 0.7, "carrying", _ratio("gridfed", "floor", TLS)),
    ),
    TargetRow(
        "the same / loopback TLS that keeps what it gets",
        *("at least 0.7 x", 0.7, "carrying", _ratio("gridfed", "floor, kept", TLS)),
    ),
    TargetRow(
        "gateway to gateway / loopback TLS, processor time",
        *("at least 0.7 x", 0.7, "carrying", _ratio("floor", "gridfed", f"{TLS}, processor time")),
    ),
    TargetRow(
        "gateway to gateway / loopback TCP",
        *("at least 0.7 x", 0.7, "carrying", _ratio("gridfed", "floor", "200 MB over TCP")),
    ),
    TargetRow(
        "chain, unfused / Ray", "at least 1 x", 1.0, "graphs", _ratio("gridfed", "Ray", CHAIN)
    ),
    TargetRow(
        "chain, unfused / Dask", "at least 1 x", 1.0, "graphs", _ratio("gridfed", "Dask", CHAIN)
    ),
    TargetRow(
        "chain, fused / unfused",
        *("at least 20 x", 20.0, "graphs"),
        _median("gridfed", "chain, against two functions in turn"),
    ),
    TargetRow(
        "fan-in of 10,000 / Ray", "at least 20 x", 20.0, "graphs", _ratio("gridfed", "Ray", FAN_IN)
    ),
    TargetRow(
        "fan-in of 10,000 / Dask",
        *("at least 20 x", 20.0, "graphs", _ratio("gridfed", "Dask", FAN_IN)),
    ),
    TargetRow(
        "fan-in of 10,000 / dask.threaded",
        *("at least 1 x", 1.0, "graphs", _ratio("gridfed", "floor", FAN_IN)),
    ),
    TargetRow(
        "map-reduce of a million nodes: taken in by the core",
        *("at most 2 s", 2.0, "graph_core", _median("core", f"{MILLION}: taken in"), True, "s"),
    ),
    TargetRow(
        "the same: calls submitted by the client",
        *("at least 500,000/s", 500_000.0, "graphs"),
        *(_median("client", "submits of calls that wait for others"), False, "/s"),
    ),
    TargetRow(
        "the same: memory of the core",
        *(
            "at most 64 B a node",
            64.0,
            "graph_core",
            _median("core", f"{MILLION}: held"),
            True,
            "B",
        ),
    ),
    TargetRow(
        "the same: released by the core",
        *("at least 200,000/s", 200_000.0, "graph_core"),
        *(_median("core", f"{MILLION}: released"), False, "/s"),
    ),
    *(
        TargetRow(
            f"{kind} / before objects, processor time",
            *("at least 0.98 x", 0.98, "versions"),
            _ratio("before", "now", f"{kind}, processor time of a task"),
        )
        for kind in ("lone", "map", "submit of a script's function")
    ),
)
NOT_MEASURED: Final = (
    "Not measured: an object to 8 agents, 10,000 references to one task (the limit of a call is "
    "256), stores in S3, a line of 50 ms, nested calls beside Ray, placement with affinity. A "
    "later and shorter run of `versions` (two pairs, load 24, commit aa06bd46) gave 0.96, 1.14 and "
    "0.74 for the last three rows."
)


def reach(row: TargetRow, figure: float) -> float:
    """Return how far a target is reached: 1 and more is reached."""
    return row.limit / figure if row.at_most else figure / row.limit


def targets() -> list[tuple[TargetRow, float | None]]:
    """Return each target with its figure, write the table, and draw it."""
    runs = {source: RunFigures(source) for source in {row.source for row in TARGETS}}
    found = [(row, row.figure(runs[row.source])) for row in TARGETS]
    lines = [
        "# targets",
        "",
        "The targets of objects and graphs, by `python -m benchmarks targets` from the results "
        "that each row names. Those have their commands, machines and loads. Ratios are medians of "
        "pairs, in one run.",
        "",
        "| what | target | measured | reached | from |",
        "|---|---|---:|---|---|",
    ]
    for row, figure in found:
        shown, told = "", "not measured"
        if figure is not None:
            shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
            told = "yes" if reach(row, figure) >= 1 else "**no**"
        link = f"[{row.source}]({row.source}.md)"
        lines.append(f"| {row.what} | {row.target} | {shown} {row.unit} | {told} | {link} |")
    lines += ["", NOT_MEASURED, "", "![how far each target is reached](targets.svg)"]
    text = "\n".join(lines) + "\n"
    (RESULTS / "targets.md").write_text(text)
    print(text)
    return found


def draw(plt: Any, found: list[tuple[TargetRow, float | None]]) -> Any:
    """Draw how far each target is reached, on a logarithmic scale."""
    rows = [(row.what, reach(row, figure)) for row, figure in reversed(found) if figure is not None]
    figure, axis = plt.subplots(figsize=(9, 0.28 * len(rows) + 1))
    colours = ["tab:green" if share >= 1 else "tab:red" for _, share in rows]
    bars = axis.barh([name for name, _ in rows], [share for _, share in rows], color=colours)
    axis.bar_label(bars, [f"{share:.2g}" for _, share in rows], fontsize=7, padding=2)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.tick_params(labelsize=7)
    axis.set_title("share of each target that is reached (1: reached)", fontsize=9)
    return figure
