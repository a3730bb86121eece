"""Pictures of the results, drawn from the benchmarks' JSON files."""

import json
from collections.abc import Callable
from typing import Any, Final

from benchmarks.data import targets
from benchmarks.data.targets import TargetRow
from benchmarks.harness import RESULTS

GRID: Final = {"axis": "x", "which": "major", "alpha": 0.3}


def draw(name: str) -> None:
    """Draw one benchmark's picture beside its figures, if it has one and matplotlib exists."""
    painter = PAINTERS.get(name)
    if painter is None:
        return
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"{name} was not drawn: matplotlib is not installed (gridfed[bench])")
        return
    mpl.use("Agg")
    # The same figures give the same file, byte for byte.
    mpl.rcParams["svg.hashsalt"] = name
    from matplotlib import pyplot as plt

    body = json.loads((RESULTS / f"{name}.json").read_text())
    figure = painter(plt, body["series"])
    figure.suptitle(f"{body['command']}, {body['machine']['cores']} cores", fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def draw_targets(found: list[tuple[TargetRow, float | None]]) -> None:
    """Draw how far the targets are reached, if matplotlib exists."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("targets was not drawn: matplotlib is not installed (gridfed[bench])")
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "targets"
    from matplotlib import pyplot as plt

    figure = targets.draw(plt, found)
    figure.tight_layout()
    figure.savefig(RESULTS / "targets.svg", metadata={"Date": None})
    plt.close(figure)


def _draw_peers(plt: Any, series: list[dict[str, Any]]) -> Any:
    """Draw tasks a second and a lone task's time, each on a logarithmic scale."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3))
    for axis, measure, title in zip(
        axes,
        ("submit and results", "lone p50"),
        ("submit loop and results, tasks/s", "lone task, median µs"),
        strict=True,
    ):
        rows = sorted(
            (sorted(each["values"]), each["contestant"])
            for each in series
            if each["measure"] == measure
        )
        names = [name for _, name in rows]
        medians = [values[len(values) // 2] for values, _ in rows]
        colours = ["tab:orange" if name == "gridfed" else "tab:gray" for name in names]
        bars = axis.barh(names, medians, color=colours)
        axis.bar_label(bars, [f"{median:,.0f}" for median in medians], fontsize=7, padding=2)
        axis.set_xscale("log")
        axis.margins(x=0.25)
        axis.set_title(title, fontsize=9)
        axis.grid(**GRID)
    return figure


def _draw_jobs(plt: Any, series: list[dict[str, Any]]) -> Any:
    """Draw the distribution of the jobs' durations, as AWS HTC-Grid shows it."""
    figure, axis = plt.subplots(figsize=(6, 3))
    for each in series:
        values = sorted(value / 1000 for value in each["values"])
        shares = [(at + 1) / len(values) for at in range(len(values))]
        axis.step(values, shares, where="post", label=each["measure"])
    axis.set_xscale("log")
    axis.set_xlabel("end-to-end time, ms")
    axis.set_ylabel("share of the jobs")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)
    return figure


def _draw_gossip(plt: Any, series: list[dict[str, Any]]) -> Any:
    """Draw the growth of cost and delays with the number of sites, and their limits."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    panels = (
        (
            ("sent at rest, mean of members", "sent at rest, busiest member"),
            "kB/s sent by a gateway at rest",
            20.0,
        ),
        (
            (
                "a change is known to 99 %",
                "a change is known to all",
                "a dead gateway is detected by all",
            ),
            "seconds, worst of the samples",
            15.0,
        ),
    )
    for axis, (measures, title, limit) in zip(axes, panels, strict=True):
        for measure in measures:
            points = sorted(
                (int(row["contestant"].split()[0]), max(row["values"]))
                for row in series
                if row["measure"] == measure
            )
            axis.plot(*zip(*points, strict=True), marker="o", label=measure)
        axis.axhline(limit, color="tab:gray", linestyle="--", linewidth=1)
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("sites")
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    return figure


PAINTERS: Final[dict[str, Callable[[Any, list[dict[str, Any]]], Any]]] = {
    "peers": _draw_peers,
    "jobs": _draw_jobs,
    "gossip": _draw_gossip,
}
