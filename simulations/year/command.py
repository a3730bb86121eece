"""`python -m simulations year`: the sites alone, the federation, and a report of both."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from simulations.year.facts import YEAR_DAYS
from simulations.year.figures import Figures, compare, figures_of, owner_of
from simulations.year.plots import draw
from simulations.year.report import report
from simulations.year.scenario import OBJECTIVES, Manners, YearScenario
from simulations.year.world import Year

RESULTS: Final = Path(__file__).parent.parent / "results"
TELL_DAYS: Final = 30


def say(line: str) -> None:
    """Print a line."""
    print(line, flush=True)  # noqa: T201


def read(arguments: Sequence[str]) -> Namespace:
    """Parse the command line."""
    parser = ArgumentParser(prog="python -m simulations year", description=__doc__)
    parser.add_argument("--days", type=int, default=YEAR_DAYS, help="of 2023, 1 to 365")
    parser.add_argument(
        "--from-day", type=int, default=0, help="first day, counted in days of 2023"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--objective", choices=OBJECTIVES, default="mixed", help="users of long jobs"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the report")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    parser.add_argument(
        "--without-preemption", action="store_true", help="inject a fault: production comes late"
    )
    given = parser.parse_args(arguments)
    if not 1 <= given.days <= YEAR_DAYS:
        parser.error(f"--days {given.days}: must be from 1 to {YEAR_DAYS}")
    if not 0 <= given.from_day <= YEAR_DAYS - given.days:
        parser.error(
            f"--from-day {given.from_day}: {given.days} days from there go past the end of 2023"
        )
    return given


def scenario_of(given: Namespace) -> YearScenario:
    """Return the scenario of the arguments."""
    return YearScenario(
        days=given.days,
        begin_day=given.from_day,
        seed=given.seed,
        manners=Manners(objectives=OBJECTIVES[given.objective]),
        preempts=not given.without_preemption,
    )


def run_one(scenario: YearScenario, is_federated: bool) -> Figures:
    """Run a scenario, with links between its sites or without."""
    what = "federated" if is_federated else "alone"
    began_s = time.monotonic()

    def progress(day: float) -> None:
        if day % TELL_DAYS == 0:
            say(f"{what}: day {day:g} of {scenario.days}, {time.monotonic() - began_s:.0f} s")

    return figures_of(Year(scenario, is_federated=is_federated, progress=progress).run())


def run_both(scenario: YearScenario, processes: int = 1) -> Figures:
    """Run it both ways, and combine the figures."""
    if processes == 1:
        alone, federated = run_one(scenario, False), run_one(scenario, True)
    else:
        with ProcessPoolExecutor(processes) as pool:
            runs = [pool.submit(run_one, scenario, way) for way in (True, False)]
            federated, alone = (each.result() for each in runs)
    return {
        "alone": alone,
        "federated": federated,
        "better": compare(alone, federated),
        "owner": owner_of(federated, alone, scenario.production.site),
    }


def main(arguments: Sequence[str], tell: Callable[[str], None] = say) -> int:
    """Run, and write report and pictures. Return 1 when a promise is not kept."""
    given = read(arguments)
    scenario = scenario_of(given)
    found = run_both(scenario, given.processes)
    # The folder and the number of processes do not affect the figures.
    command = f"python -m simulations year --days {given.days} --seed {given.seed}"
    command += f" --from-day {given.from_day}" * bool(given.from_day)
    command += f" --objective {given.objective}" * (given.objective != "mixed")
    command += " --without-preemption" * given.without_preemption
    found = {"command": command, "days": given.days, "from_day": given.from_day, **found}
    given.out.mkdir(parents=True, exist_ok=True)
    body = json.dumps(found, indent=1, sort_keys=True)
    (given.out / "year.json").write_text(body + "\n")
    pictures = draw(found, given.out)
    text = report(found, scenario, pictures)
    (given.out / "year.md").write_text(text)
    tell(text)
    is_kept = all(each["is_better"] for each in found["better"].values())
    return 0 if is_kept and not found["owner"]["late_starts"] else 1
