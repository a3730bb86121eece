"""A day of a department's work on a pool without permanent slots, and its cost."""

import math
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import trio

from policies.placement.asks import Objective
from policies.placement.autoscaling import ScalingRules
from simulations.growth.cloud import Cloud, Habits
from simulations.growth.optimum import SlotCosts, Span, least_for_curve
from simulations.growth.runs import DAY_S, pool_of, under_clock
from simulations.growth.site import GrowthSite, Life, Seen
from simulations.world.trioclock import TrioClock
from simulations.year.facts import BEGIN_S, log
from simulations.year.scenario import Manners
from simulations.year.work import YearJob, replay

ZONES: Final = {"nasa": "America/Los_Angeles", "hpc2n": "Europe/Stockholm"}
ROUND_S: Final = 5.0  # of the pool controller: a day has 17,000 rounds, and not 350,000
BALANCED: Final = Objective(money=1.0, time=1.0)


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a log, and the billing step.

    Attributes:
        number: of 2023, from 0; the log is repeated in step with the days of the week.
        seed: of the cloud, and of the choice of the log's week.
    """

    log: str
    number: int
    step_s: float = 0.0
    seed: int = 1
    slots_max: int = 2_000
    waste: float = 0.1
    objective: Objective = BALANCED
    habits: Habits = field(default_factory=Habits)

    def works(self) -> list[YearJob]:
        """Return its jobs."""
        found, begin_s = log(self.log), BEGIN_S + self.number * DAY_S
        manners = Manners(objective=self.objective, objectives=(self.objective,))
        weeks = Random(f"{self.seed} {self.log}").randrange(found.weeks)
        return list(replay(self.log, found, ZONES[self.log], manners, begin_s, DAY_S, 0, weeks))


@dataclass(slots=True)
class DayFigures:
    """The figures of a day; money is in paid slot-seconds.

    Attributes:
        paid_s: the cost of this pool.
        least_s: a lower bound of the cost, with foreknowledge, for the same waiting.
        work_s: slot-seconds of the work, the minimum cost of all.
        at_once_s: `least_s`, if no task had waited at all.
        wait_s: until the first task of a job began, the mean over jobs; `late_s` is how much later
            than at once a job was done, and `run_s` how long it takes.
        starts: of this pool.
    """

    jobs: int = 0
    tasks: int = 0
    paid_s: float = 0.0
    least_s: float = 0.0
    work_s: float = 0.0
    at_once_s: float = 0.0
    wait_s: float = 0.0
    late_s: float = 0.0
    run_s: float = 0.0
    starts: int = 0
    start_s: float = 0.0
    done: int = 0
    booked: int = 0
    left: int = 0

    @property
    def ratio(self) -> float:
        """The ratio of this pool's cost to the lower bound for the same waiting: one, or above."""
        return self.paid_s / self.least_s

    @property
    def ratio_to_work(self) -> float:
        """The ratio of this pool's cost to the work alone."""
        return self.paid_s / self.work_s


def at_once(works: list[YearJob]) -> list[Span]:
    """Return the busy slots if nothing ever waits: each job's slices one after another."""
    found: list[Span] = []
    for each in works:
        width = each.tasks / max(1.0, round(each.run_s / each.task_s))
        found.append((each.at_s, each.at_s + each.run_s, max(1, round(width))))
    return found


def run_day(day: Day) -> DayFigures:
    """Run a day, until all of its work is done and no instance is left."""
    works = day.works()
    found = DayFigures(jobs=len(works), tasks=sum(each.tasks for each in works))
    found.work_s = sum(each.tasks * each.task_s for each in works)
    found.run_s = sum(each.run_s for each in works) / len(works)

    async def run(clock: TrioClock, nursery: trio.Nursery) -> None:
        rules = ScalingRules(
            day.slots_max, waste=day.waste, step_s=day.step_s, starts_max=1_000, stops_max=1_000
        )
        sites: list[GrowthSite] = []
        cloud = Cloud(clock, day.habits, day.seed, lambda _: sites[0])
        seen = Seen()
        by_payload = {each.payload: each for each in works}
        left = [len(works)]

        def ended(_: YearJob) -> None:
            left[0] -= 1

        sites.append(
            GrowthSite(
                *(clock, pool_of(rules), cloud, by_payload, seen),
                *(Life(seed=day.seed, round_s=ROUND_S), ended),
            )
        )
        site = sites[0]
        nursery.start_soon(site.controller.run)
        for each in works:
            job = f"job-{each.key}"
            clock.at(each.at_s, partial(site.submit, each, each.tasks, job))
        await clock.pass_until(13 * DAY_S, lambda: not left[0] and not cloud.living())
        site.die()
        terms = SlotCosts(_start_paid_s(cloud), day.step_s)
        found.starts, found.start_s = len(cloud.all), terms.start_s
        found.paid_s = sum(
            each.bill_s(clock.now_s, day.habits.paid_min_s, day.step_s) * each.slots
            for each in cloud.all
        )
        found.least_s = least_for_curve(seen.spans, terms)
        found.at_once_s = least_for_curve(at_once(works), terms)
        found.done = sum(seen.done.values())
        found.booked = sum(seen.booked.values())
        found.left = len(cloud.living())
        begun = [each for each in works if each.first_start_s is not None]
        found.wait_s = sum(each.begin_wait_s for each in begun) / len(works)
        found.late_s = sum(each.wait_s for each in works if each.end_s is not None) / len(works)

    under_clock(day.seed, run)
    return found


def _start_paid_s(cloud: Cloud) -> float:
    """Return the mean time that is paid before a slot can work, over the day."""
    found = [
        each.came_s - each.paid_s
        for each in cloud.all
        if each.came_s is not None and each.paid_s is not None
    ]
    return sum(found) / len(found) if found else math.nan
