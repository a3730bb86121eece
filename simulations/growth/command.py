"""`python -m simulations growth`: up, down, days and the gateway's own cost, with a report."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulations.growth.days import Day, run_day
from simulations.growth.report import report
from simulations.growth.runs import Climb, run_climb

RESULTS: Final = Path(__file__).parent.parent / "results"
LOGS: Final = ("nasa", "hpc2n")
DAYS: Final = (9, 10, 13)  # of 2023: a Tuesday, a Wednesday and a Saturday
SEEDS: Final = 2
STEPS: Final = ((0.0, 3), (3_600.0, 1))  # how time is billed, and for how many days
PROMISED: Final = 1.1  # the maximum ratio to the launches, and to the lower bound of the cost

Figures = dict[str, Any]


def say(line: str) -> None:
    """Print a line."""
    print(line, flush=True)  # noqa: T201


def read(arguments: Sequence[str]) -> Namespace:
    """Parse the command line."""
    parser = ArgumentParser(prog="python -m simulations growth", description=__doc__)
    parser.add_argument(
        "--slots", type=int, default=20_000, help="slots to grow to, in pilots of 4"
    )
    parser.add_argument("--days", type=int, default=len(DAYS), help="days of each log, 0 to 3")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the climbs, and the first seed of the days"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds for each day, 1 to 9")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the report")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    given = parser.parse_args(arguments)
    if not 40 <= given.slots <= 100_000:
        parser.error(f"--slots {given.slots}: must be from 40 to 100000")
    if not 0 <= given.days <= len(DAYS):
        parser.error(f"--days {given.days}: must be from 0 to {len(DAYS)}")
    if not 1 <= given.seeds <= 9:
        parser.error(f"--seeds {given.seeds}: must be from 1 to 9")
    return given


def figures_of_climb(climb: Climb) -> Figures:
    """Run a climb, and return its figures."""
    found = run_climb(climb)
    figures = asdict(found)
    figures["slots"] = climb.slots
    figures["ratio"] = found.working_s / found.needed_s
    for name in ("spent", "at_work"):
        spent = getattr(found, name)
        figures[name]["round_ms"] = 1e3 * spent.controller_s / max(1, spent.rounds)
        figures[name]["batch_ms"] = 1e3 * spent.broker_s / max(1, spent.batches)
    return figures


def figures_of_day(day: Day) -> Figures:
    """Run a day, and return its figures."""
    found = run_day(day)
    return {
        **asdict(found),
        "log": day.log,
        "day": day.number,
        "step_s": day.step_s,
        "seed": day.seed,
        "ratio": found.ratio,
        "ratio_to_work": found.ratio_to_work,
    }


def run_all(given: Namespace) -> Figures:
    """Run everything, on so many processes."""
    jobs: list[Callable[[], Figures]] = [
        partial(figures_of_climb, Climb(slots, seed=given.seed))
        for slots in (given.slots, given.slots // 10)
    ]
    jobs += [
        partial(figures_of_day, Day(name, number, step_s, given.seed + at))
        for step_s, days in STEPS
        for name in LOGS
        for number in DAYS[: min(days, given.days)]
        for at in range(given.seeds)
    ]
    if given.processes == 1:
        found = [job() for job in jobs]
    else:
        with ProcessPoolExecutor(given.processes) as pool:
            found = [each.result() for each in [pool.submit(job) for job in jobs]]
    return {"climb": found[0], "small": found[1], "days": found[2:]}


def is_kept(found: Figures) -> bool:
    """Whether all promises are kept; of the days, only those billed by the second count."""
    climbs = [found["climb"], found["small"]]
    by_second = [each for each in found["days"] if not each["step_s"]]
    return (
        all(each["ratio"] <= PROMISED for each in [*climbs, *by_second])
        and all(each["done"] == each["tasks"] == each["booked"] for each in climbs + found["days"])
        and not any(each["left"] for each in climbs + found["days"])
    )


def main(arguments: Sequence[str], tell: Callable[[str], None] = say) -> int:
    """Run, and write the report. Return 1 when a promise is not kept."""
    given = read(arguments)
    began_s = time.monotonic()
    found = run_all(given)
    command = f"python -m simulations growth --seed {given.seed}"
    command += f" --slots {given.slots}" * (given.slots != 20_000)
    command += f" --days {given.days}" * (given.days != len(DAYS))
    command += f" --seeds {given.seeds}" * (given.seeds != SEEDS)
    found = {"command": command, "promised": PROMISED, "is_kept": is_kept(found), **found}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "growth.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    text = report(found)
    (given.out / "growth.md").write_text(text)
    tell(text)
    tell(f"{time.monotonic() - began_s:.0f} s")
    return 0 if found["is_kept"] else 1
