"""`python -m simulations list | run SCENARIO | swarm | gossip | year | growth`: see README.md."""

import sys
import time
from argparse import ArgumentParser, Namespace
from itertools import count

from simulations import gossip_figures
from simulations.bugs import BUGS, TREATY_BUGS, planted
from simulations.draw import draw_plan
from simulations.growth import command as growth
from simulations.scenarios import SCENARIOS
from simulations.swarm import swarm
from simulations.world.trioclock import run_under_trio
from simulations.world.world import World, WorldRun
from simulations.year import command as year

STORY_LINES = 200
TELL_EVERY = 1000  # worlds


def say(line: str) -> None:
    """Print a line."""
    print(line, flush=True)  # noqa: T201


def list_scenarios() -> int:
    """List the scenarios."""
    for name, scenario in SCENARIOS.items():
        say(f"{name:24} {(scenario.__doc__ or '').splitlines()[0]}")
    say(f"{'random':24} The random world of the seed.")
    return 0


def run_one(given: Namespace) -> int:
    """Run a scenario with one seed."""
    scenario = SCENARIOS.get(given.scenario, draw_plan)
    plan = scenario(given.seed)
    began_s = time.monotonic()
    with planted(given.bug):
        run = run_under_trio(plan, given.seed) if given.trio else World(plan, given.seed).run()
    took_s = time.monotonic() - began_s
    if given.trace:
        for entry in run.trace.entries:
            say(entry.line)
    speed = round(run.events / max(took_s, 1e-9))
    say(
        f"{given.scenario} seed {given.seed}: {run.seconds:.1f} s of simulated time, "
        f"{run.events:,} events in {took_s:.2f} s ({speed:,}/s), trace {run.digest[:16]}"
    )
    if given.story:
        job, _, task = given.story.partition(":")
        names = list(dict.fromkeys(entry.job for entry in run.trace.entries if entry.job))
        name = next((each for each in names if each.endswith(job)), names[0] if names else "")
        tell(run, name, int(task or 0))
    if run.broken is None:
        return 0
    say(f"BROKEN {run.broken}")
    if run.broken.job and not given.story:
        tell(run, run.broken.job, run.broken.task)
    return 1


def tell(run: WorldRun, job: str, task: int) -> None:
    """Print the story of one task."""
    say(f"the history of task {task} of job {job}:")
    for line in list(run.trace.story(job, task))[-STORY_LINES:]:
        say(line)


def run_swarm(given: Namespace) -> int:
    """Run random worlds until one breaks."""
    began_s = time.monotonic()
    until_s = began_s + given.minutes * 60 if given.minutes else None
    seeds = count(given.first) if given.minutes else range(given.first, given.first + given.seeds)
    done = events = broken = 0
    virtual_s = 0.0
    for verdict in swarm(seeds, given.processes, until_s):
        done += 1
        events += verdict.events
        virtual_s += verdict.virtual_s
        if verdict.broken:
            broken += 1
            say(f"seed {verdict.seed}: {verdict.broken}")
            if not given.go_on:
                break
        if done % TELL_EVERY == 0:
            say(f"{done:,} worlds, up to seed {verdict.seed}: {broken or 'none'} broken")
    took_s = time.monotonic() - began_s
    say(
        f"{done} worlds, {virtual_s / 3600:.1f} hours of simulated time, {events:,} events "
        f"in {took_s:.1f} s ({events / took_s:,.0f}/s): {broken or 'none'} broken"
    )
    if broken:
        say("python -m simulations run random --seed SEED prints the history")
    return 1 if broken else 0


def main() -> int:
    """Parse the command line and run the command."""
    parser = ArgumentParser(prog="python -m simulations")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the scenarios")
    run = commands.add_parser("run", help="run one scenario, or `random`")
    run.add_argument("scenario", choices=[*SCENARIOS, "random"])
    run.add_argument("--seed", type=int, default=1)
    run.add_argument(
        "--story", default="", metavar="JOB:TASK", help="the last letters of the id of a job"
    )
    run.add_argument("--trace", action="store_true", help="print all events")
    run.add_argument("--bug", choices=[*BUGS, *TREATY_BUGS], default="", help="inject a bug")
    run.add_argument(
        "--trio", action="store_true", help="run the gateways in trio, on a mock clock"
    )
    many = commands.add_parser("swarm", help="run random worlds until one breaks")
    many.add_argument("--minutes", type=float, default=0.0)
    many.add_argument("--seeds", type=int, default=300)
    many.add_argument("--first", type=int, default=0, help="the first seed")
    many.add_argument("--processes", type=int, default=2)
    many.add_argument("--go-on", action="store_true", help="do not stop at the first failure")
    commands.add_parser("gossip", help="membership and adverts: speed, cost, reliability")
    commands.add_parser("year", help="three sites in 2023, alone and federated", add_help=False)
    commands.add_parser("growth", help="a pool on a cloud, growing and shrinking", add_help=False)
    given, more = parser.parse_known_args()
    if given.command == "year":
        return year.main(more)
    if given.command == "growth":
        return growth.main(more)
    if given.command == "gossip":
        gossip_figures.main(more)
        return 0
    if more:
        parser.error(f"unexpected argument: {' '.join(more)}")
    if given.command == "list":
        return list_scenarios()
    return run_one(given) if given.command == "run" else run_swarm(given)


if __name__ == "__main__":
    sys.exit(main())
