"""Alternating runs, medians, ratios, and the facts without which a figure means nothing."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass
class BenchSeries:
    """One measure of one contestant: higher is better unless its unit is a time."""

    contestant: str
    measure: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of its repeats."""
        return statistics.median(self.values)


def alternate(
    runs: Sequence[Callable[[], list[tuple[str, str, str, float]]]], repeats: int
) -> list[BenchSeries]:
    """Run contestants in turn, so that other load on the machine affects all alike.

    Each run returns (contestant, measure, unit, value) rows.
    """
    found: dict[tuple[str, str], BenchSeries] = {}
    for _ in range(repeats):
        for run in runs:
            for contestant, measure, unit, value in run():
                series = found.setdefault(
                    (contestant, measure), BenchSeries(contestant, measure, unit)
                )
                series.values.append(value)
    return list(found.values())


def machine() -> dict[str, Any]:
    """Return facts of the machine and the time: cores, versions, load before."""
    versions = {}
    for name in ("pynng", "trio", "msgpack", "cloudpickle", "sqlalchemy"):
        module = __import__(name)
        versions[name] = getattr(module, "__version__", "?")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_average_before": os.getloadavg()[0],
        "versions": versions,
        "commit": _commit(),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def ratio_notes(series: Sequence[BenchSeries], one: str, other: str) -> list[str]:
    """Return lines with the speed of one contestant against another, pair by pair.

    Over 1 where the first is better: less time, or more in it.
    """
    found = {(each.contestant, each.measure): each for each in series}
    lines = [
        f"Speed of {one} against {other}, of each pair:  ",
        "",
        "| measure | median of pairs | lowest | highest |",
        "|---|---:|---:|---:|",
    ]
    for (name, measure), mine in found.items():
        theirs = found.get((other, measure))
        if name != one or theirs is None:
            continue
        is_time = mine.unit in ("s", "ms", "µs")
        pairs = [
            b / a if is_time else a / b for a, b in zip(mine.values, theirs.values, strict=True)
        ]
        lines.append(
            f"| {measure} | {statistics.median(pairs):.2f} | {min(pairs):.2f} | {max(pairs):.2f} |"
        )
    return lines


def save(
    name: str,
    facts: dict[str, Any],
    series: Sequence[BenchSeries],
    notes: Sequence[str],
    command: str = "",
) -> None:
    """Write a run's figures as JSON, and as a table for people, with ratios to the floor.

    Args:
        name: of the benchmark, and of the files.
        facts: what `machine` said.
        series: the figures.
        notes: lines of Markdown below the table.
        command: what gave the figures, without paths of a machine; by default, as it was typed.
    """
    RESULTS.mkdir(exist_ok=True)
    command = command or f"python -m benchmarks {' '.join(sys.argv[1:])}"
    body = {"command": command, "machine": facts, "series": [asdict(each) for each in series]}
    (RESULTS / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")
    floor = {each.measure: each.median for each in series if each.contestant == "floor"}
    lines = [
        f"# {name}",
        "",
        f"`{command}`, {facts['date']}, {facts['cores']} cores, Python {facts['python']}, load "
        f"{facts['load_average_before']:.2f} before, commit {facts['commit']}. Medians of "
        f"{max(len(each.values) for each in series)} repeats, contestants in turn.",
        "",
        "| measure | contestant | median | lowest | highest | ratio to the floor |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for each in sorted(series, key=lambda one: (one.measure, one.contestant)):
        ratio = f"{each.median / floor[each.measure]:.2f}" if each.measure in floor else ""
        figures = (_figure(v) for v in (each.median, min(each.values), max(each.values)))
        lines.append(
            f"| {each.measure}, {each.unit} | {each.contestant} | {' | '.join(figures)} | {ratio} |"
        )
    lines += ["", *notes]
    text = "\n".join(lines).rstrip() + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
