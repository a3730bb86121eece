"""Two commits of gridfed side by side: both are up at once and measured in turn, phase by phase.

The other commit is a checkout with an environment of its own (`make .venv/ready` there). Each
contestant runs `versions_probe.py` with its own Python and its own code; this module asks one and
then the other for the same phase, so that other load on the machine affects both alike. Processor
time is that of the client, gateways, agents and slots together.
"""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import BenchSeries, machine, save

HERE = Path(__file__).parent.parent
PHASES = ("lone", "map", "submit", "submit own", "forwarded map", "forwarded lone")


def versions(repeats: int, quick: bool, against: Path) -> None:
    """Measure this checkout and another in turn; save the figures and the ratios pair by pair."""
    facts = machine()
    found: dict[tuple[str, str], BenchSeries] = {}
    with ExitStack() as stack:
        probes = {
            name: stack.enter_context(_probe(folder, quick=quick))
            for name, folder in (("before", against.resolve()), ("now", HERE))
        }
        for repeat in range(-1, repeats):  # the first round warms up
            for phase in PHASES:
                order = ("before", "now") if repeat % 2 else ("now", "before")
                for name in order:
                    for measure, unit, value in _ask(probes[name], phase):
                        series = found.setdefault((name, measure), BenchSeries(name, measure, unit))
                        if repeat >= 0:
                            series.values.append(value)
    series_list = list(found.values())
    commit = subprocess.run(
        ["git", "-C", str(against), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    shorter = " --quick" if quick else ""
    command = f"python -m benchmarks versions{shorter} --repeats {repeats} --against FOLDER"
    save("versions", facts, series_list, _ratios(found, commit), command)


def _ratios(found: dict[tuple[str, str], BenchSeries], commit: str) -> list[str]:
    """Return a table: the median of the pairs' ratios, over 1 where this checkout is better."""
    lines = [
        f"`before` is commit {commit}. Speed of now against before, of each pair:  ",
        "",
        "| measure | median of pairs | lowest | highest | best of each |",
        "|---|---:|---:|---:|---:|",
    ]
    for (name, measure), before in found.items():
        if name != "before":
            continue
        now = found["now", measure]
        lower = before.unit.endswith("s") and not before.unit.endswith("/s")
        best = min if lower else max
        pairs = [
            was / this if lower else this / was
            for was, this in zip(before.values, now.values, strict=True)
        ]
        was, this = best(before.values), best(now.values)
        peak = was / this if lower else this / was
        lines.append(
            f"| {measure} | {statistics.median(pairs):.3f} | {min(pairs):.3f} | {max(pairs):.3f} | "
            f"{peak:.3f} |"
        )
    return lines


@contextmanager
def _probe(folder: Path, *, quick: bool) -> "Iterator[subprocess.Popen[str]]":
    """Start the probe with the code and the environment of one checkout."""
    python = folder / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{folder} has no .venv: run `make .venv/ready` in it first")
    process = subprocess.Popen(
        [str(python), str(HERE / "benchmarks" / "versions_probe.py"), *(["--quick"] * quick)],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": f"{python.parent}:/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"the sites of {folder} did not start: see the lines above")
        yield process
    finally:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait(120)


def _ask(process: "subprocess.Popen[str]", phase: str) -> list[tuple[str, str, float]]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(phase + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a contestant ended in the phase {phase!r}")
    return [(measure, unit, value) for measure, unit, value in json.loads(line)]
