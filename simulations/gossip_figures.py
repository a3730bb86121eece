"""`python -m simulations gossip --members 100 --seed 7`: run a story, and print its figures."""

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from simulations.stories import (
    Settings,
    StoryFigure,
    tell_calm,
    tell_joining,
    tell_lossy,
    tell_parted,
)

RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
STORIES: Final = ("calm", "parted", "joining", "lossy")


def main(arguments: Sequence[str]) -> None:
    """Run the requested stories."""
    settings, stories, is_kept = _read(arguments)
    gc.disable()  # the only cyclic objects here live to the end
    for story in stories:
        started_s = time.monotonic()
        figures = _tell(story, settings)
        seconds = time.monotonic() - started_s
        _say(f"# {story}, {settings.members} members, seed {settings.seed}: {seconds:.0f} s")
        for figure in figures:
            _say(f"{figure.measure}: {_show(figure.values)} {figure.unit}".rstrip())
        if is_kept:
            _keep(settings, figures, _command(arguments, story), seconds)


def _read(arguments: Sequence[str]) -> tuple[Settings, list[str], bool]:
    parser = argparse.ArgumentParser(prog="python -m simulations gossip", description=__doc__)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--story", choices=STORIES, action="append", help="default: all but lossy")
    parser.add_argument(
        "--hours", type=float, default=24.0, help="of the lossy story, simulated time"
    )
    parser.add_argument("--loss", type=float, default=0.05, help="share of messages lost")
    parser.add_argument("--cut", type=float, default=0.0, help="share of pairs that can't connect")
    parser.add_argument("--samples", type=int, default=20, help="changes and deaths to measure")
    parser.add_argument("--save", action="store_true", help=f"add the figures to {RESULTS.name}/")
    chosen = parser.parse_args(arguments)
    settings = Settings(
        chosen.members, chosen.seed, chosen.hours, chosen.loss, chosen.cut, chosen.samples
    )
    return settings, chosen.story or list(STORIES[:-1]), chosen.save


def _command(arguments: Sequence[str], story: str) -> str:
    plain = [word for word in arguments if word != "--save"]
    if "--story" not in plain:
        plain += ["--story", story]
    return f"python -m simulations gossip {' '.join(plain)}"


def _tell(story: str, settings: Settings) -> list[StoryFigure]:
    match story:
        case "calm":
            return tell_calm(settings)
        case "parted":
            return tell_parted(settings)
        case "joining":
            return tell_joining(settings)
        case _:
            return tell_lossy(settings, _say)


def _keep(settings: Settings, figures: list[StoryFigure], command: str, seconds: float) -> None:
    """Replace these figures in the results, and write a new table."""
    path = RESULTS / "gossip.json"
    body: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"series": []}
    who = f"{settings.members} members"
    fresh = {figure.measure for figure in figures}
    series = [
        row for row in body["series"] if row["contestant"] != who or row["measure"] not in fresh
    ]
    for figure in figures:
        series.append(
            {
                "contestant": who,
                "measure": figure.measure,
                "unit": figure.unit,
                "values": list(figure.values),
                "command": command,
            }
        )
    series.sort(key=lambda row: (row["measure"], int(row["contestant"].split()[0])))
    runs: dict[str, Any] = body.get("runs", {})
    runs[command] = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "seconds": round(seconds),
        "python": platform.python_version(),
    }
    body = {
        "command": "python -m simulations gossip",
        "machine": {"cores": os.cpu_count()},
        "runs": runs,
        "series": series,
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
    (RESULTS / "gossip.md").write_text(_table(body))


def _table(body: dict[str, Any]) -> str:
    lines = [
        "# gossip",
        "",
        "Membership and adverts of simulated gateways (docs/membership.md defines the figures).",
        "",
        "| measure | members | median | lowest | highest | samples |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in body["series"]:
        values = row["values"]
        figures = (_number(v) for v in (statistics.median(values), min(values), max(values)))
        measure = ", ".join(filter(None, (row["measure"], row["unit"])))
        members = row["contestant"].split()[0]
        lines.append(f"| {measure} | {members} | {' | '.join(figures)} | {len(values)} |")
    lines += ["", "Made by:", ""]
    for command, run in body["runs"].items():
        lines.append(f"- `{command}` ({run['date']}, {run['seconds']} s, Python {run['python']})")
    return "\n".join(lines) + "\n"


def _show(values: Sequence[float]) -> str:
    if len(values) == 1:
        return _number(values[0])
    middle = _number(statistics.median(values))
    return f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
