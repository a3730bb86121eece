"""Runs of a pool on the simulated cloud: growth to a number of slots and back, and days of work."""

import hashlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import trio
from trio.testing import MockClock

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.scaling.pool_controller import ROUND_S
from policies.placement.asks import FASTEST, Objective
from policies.placement.autoscaling import ScalingRules
from simulations.growth.cloud import Bucket, Cloud, Habits
from simulations.growth.site import POOL, CpuSpent, GrowthSite, Life, Seen
from simulations.world.trioclock import TrioClock, determined
from simulations.year.work import YearJob

PRICE: Final = "0.097 USD"
DAY_S: Final = 86_400.0
# A round of a real pool controller with 5,000 pilots takes some 50 ms, followed by a pause nineteen
# times as long: a second, which virtual time does not see. With few pilots the pause is the
# minimum.
PILOT_ROUND_S: Final = 1.0 / 5_000


def pool_of(rules: ScalingRules, start_s: float = 30.0, look_s: float = 5.0) -> PoolConfig:
    """Return a pool on the cloud."""
    return PoolConfig(
        POOL, "processes", price=PRICE, scale=ScaleConfig(rules, start_s=start_s, look_s=look_s)
    )


def work_of(
    key: int, tasks: int, task_s: float, objective: Objective, at_s: float = 0.0
) -> YearJob:
    """Return a job of equal tasks."""
    return YearJob(
        *(key, "owner", "user", at_s, task_s, tasks, task_s, objective, math.inf),
        hashlib.sha256(b"%d" % key).digest(),
    )


def under_clock(seed: int, run: Callable[[TrioClock, trio.Nursery], Awaitable[None]]) -> None:
    """Run a function under trio, in virtual time, the same for the same seed."""

    async def main() -> None:
        clock = TrioClock()
        async with trio.open_nursery() as nursery:
            await run(clock, nursery)
            nursery.cancel_scope.cancel()

    with determined(Random(seed).getrandbits(64)):
        trio.run(main, clock=MockClock(autojump_threshold=0))


# --- up and down ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Climb:
    """A climb from no slot to so many, and back.

    Attributes:
        work_s: of each slot, about: tasks take from a half of it to all of it.
    """

    slots: int = 20_000
    pilot_slots: int = 4
    habits: Habits = field(default_factory=lambda: Habits(orders_max=600))
    work_s: float = 600.0
    seed: int = 1
    starts_max: int = 10_000

    @property
    def pilots(self) -> int:
        """The number of pilots when all slots exist."""
        return self.slots // self.pilot_slots

    @property
    def round_s(self) -> float:
        """The interval of the pool controller's rounds then."""
        return max(ROUND_S, self.pilots * PILOT_ROUND_S)


@dataclass(slots=True)
class Climbed:
    """The figures of a climb.

    Seconds count from the submission of its work, or from the end of the last task.

    Attributes:
        ready_s: until all slots had their worker.
        working_s: until all were busy at once.
        needed_s: until all would have had a worker, if all had been ordered at once.
        gone_s: from the end of the last task until no instance was left.
        let_go_s: the part of that due to the rules and the cloud's own rate.
    """

    ready_s: float = math.inf
    working_s: float = math.inf
    needed_s: float = 0.0
    worked_s: float = math.inf
    gone_s: float = math.inf
    let_go_s: float = 0.0
    launched: int = 0
    tasks: int = 0
    done: int = 0
    booked: int = 0
    left: int = 0
    interrupted: int = 0
    spent: CpuSpent = field(default_factory=CpuSpent)
    at_work: CpuSpent = field(default_factory=CpuSpent)  # while all slots existed


def launches_need_s(climb: Climb) -> float:
    """Return the time until the last worker's hello when all are ordered at once.

    It uses the same cloud with the same dice: the n-th instance takes as long as the n-th in the
    run.
    """
    bucket = Bucket(climb.habits.burst, climb.habits.launches_s)
    last_s = 0.0
    for number in range(climb.pilots):
        dice = Random(f"{climb.seed} {number}")
        at_s = bucket.take(0.0)
        last_s = max(last_s, at_s + climb.habits.runs.draw(dice) + climb.habits.dials.draw(dice))
    return last_s


def ends_need_s(climb: Climb, start_s: float) -> float:
    """Return the time to release slots that all fell idle at once: idle for a start, then ended."""
    return start_s + max(0.0, climb.pilots - climb.habits.ends_burst) / climb.habits.ends_s


def run_climb(climb: Climb) -> Climbed:
    """Run a climb."""
    found = Climbed(needed_s=launches_need_s(climb))

    async def run(clock: TrioClock, nursery: trio.Nursery) -> None:
        rules = ScalingRules(
            climb.slots,
            pilot_slots=climb.pilot_slots,
            starts_max=climb.starts_max,
            stops_max=climb.starts_max,
        )
        works = [
            work_of(at, climb.slots // 2, climb.work_s * (0.5 + at / 6), FASTEST) for at in range(4)
        ]
        sites: list[GrowthSite] = []
        cloud = Cloud(clock, climb.habits, climb.seed, lambda _: sites[0])
        seen = Seen()
        sites.append(
            GrowthSite(
                *(clock, pool_of(rules), cloud, {each.payload: each for each in works}, seen),
                Life(seed=climb.seed, round_s=climb.round_s, is_spied=True),
            )
        )
        site = sites[0]
        nursery.start_soon(site.controller.run)
        await clock.pass_until(10.0, lambda: False)
        for each in works:
            site.submit(each, each.tasks, f"job-{each.key}", each.task_s)
        begun_s = clock.now_s
        found.tasks = sum(each.tasks for each in works)

        def look() -> bool:
            workers = site.broker.workers.values()
            if found.ready_s == math.inf and len(workers) * climb.pilot_slots >= climb.slots:
                found.ready_s = max(each.came_s or 0.0 for each in cloud.all) - begun_s
            if found.working_s == math.inf and found.ready_s < math.inf:
                busy = sum(min(each.slots, each.in_flight) for each in workers)
                if busy >= climb.slots:
                    found.working_s = clock.now_s - begun_s
                    found.at_work = replace(site.spent)
            if found.worked_s == math.inf and all(each.end_s is not None for each in works):
                found.worked_s = max(each.end_s or 0.0 for each in works) - begun_s
                found.at_work = _since(site.spent, found.at_work)
                found.let_go_s = ends_need_s(climb, site.controller.fleet.start_s)
            return found.worked_s < math.inf and not cloud.living()

        await clock.pass_until(2 * DAY_S, look)
        ends_s = [each.ended_s for each in cloud.all if each.ended_s is not None]
        found.gone_s = max(ends_s) - begun_s - found.worked_s
        found.left = len(cloud.living())
        found.launched = len(cloud.all)
        found.done = sum(seen.done.values())
        found.booked = sum(seen.booked.values())
        found.interrupted = sum(bool(each.fault) for each in cloud.all)
        found.spent = site.spent

    under_clock(climb.seed, run)
    return found


def _since(now: CpuSpent, then: CpuSpent) -> CpuSpent:
    return CpuSpent(
        now.controller_s - then.controller_s,
        now.rounds - then.rounds,
        now.broker_s - then.broker_s,
        now.batches - then.batches,
        now.worst_round_s,
    )
