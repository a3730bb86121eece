"""Random clouds and faults: invariants of a pool controller and its broker.

A seed determines a cloud (slow, full, forgetful, taking back instances, showing them late or
twice), rules, jobs, restarts of the gateway, steps of its clock and workers that dial twice. Once a
second all invariants are checked. In the end all work must be done, each task billed once, and no
instance may be left.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

import trio

from gateway.base.child import first_of
from gateway.grids.contract import PilotState
from gateway.grids.scaling.fleet import DIAL_S, DIAL_STARTS
from gateway.grids.scaling.ordering import STOP_AGAIN_S
from policies.placement.asks import CHEAPEST, FASTEST
from policies.placement.autoscaling import MINUTE_S, PAUSE_MAX_S, PAUSE_MIN_S, ScalingRules
from simulations.growth.cloud import Cloud, CloudInstance, Habits, Spread
from simulations.growth.runs import pool_of, under_clock, work_of
from simulations.growth.site import GrowthSite, Life, Seen
from simulations.world.trioclock import TrioClock
from simulations.year.work import YearJob

JOBS_S: Final = 900.0  # all jobs come by then, and all faults are over
SETTLE_S: Final = 4 * 3_600.0  # the maximum for the rest
GONE_S: Final = 900.0  # no instance is left this long after the last task
LATE_S: Final = 30.0  # calls and rounds take their time
# A restarted gateway orders instances beside those that it was not shown. The surplus is gone by
# then, as no working instance is stopped.
SHRUNK_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Fate:
    """The events that a seed determines."""

    seed: int
    habits: Habits
    rules: ScalingRules
    works: tuple[YearJob, ...]
    restarts_s: tuple[float, ...]
    jumps: tuple[tuple[float, float], ...]  # of the gateway's clock: when, how far
    redials_s: tuple[float, ...] = ()  # when the latest worker dials a second time


def draw_fate(seed: int) -> Fate:
    """Draw a fate."""
    dice = Random(f"fate {seed}")
    more = Random(f"more of fate {seed}")
    restarts = sorted(dice.uniform(20.0, JOBS_S) for _ in range(dice.choice((0, 0, 1, 2))))
    habits = Habits(
        runs=Spread(dice.uniform(5.0, 40.0), dice.uniform(0.1, 0.6)),
        dials=Spread(dice.uniform(1.0, 10.0), dice.uniform(0.1, 0.6)),
        burst=dice.choice((5.0, 1_000.0)),
        launches_s=dice.choice((0.5, 20.0)),
        instances_max=dice.choice((None, None, 5, 20)),
        orders_max=dice.choice((10, 60)),
        call_s=dice.choice((0.1, 1.0, 4.0)),
        # A gateway is away for 5 s: later sightings are unknown to one that has just started.
        shown_s=more.choice((0.0, 20.0)) if restarts else dice.choice((0.0, 5.0)),
        lost=dice.choice((0.0, 0.1, 0.3)),
        mute=dice.choice((0.0, 0.1, 0.3)),
        taken_an_hour=dice.choice((0.0, 0.0, 6.0)),
        notice_s=dice.choice((5.0, 120.0)),
        doubled=more.choice((0.0, 0.3)),
    )
    rules = ScalingRules(
        slots_max=dice.choice((8, 40, 120)),
        pilot_slots=dice.choice((1, 4)),
        starts_max=dice.choice((5, 100)),
        stops_max=dice.choice((5, 100)),
        waste=dice.choice((0.05, 0.5)),
    )
    works = tuple(
        work_of(
            *(key, dice.randrange(1, 150), dice.uniform(1.0, 120.0)),
            dice.choice((CHEAPEST, FASTEST)),
            dice.uniform(0.0, JOBS_S),
        )
        for key in range(dice.randrange(1, 6))
    )
    jumps = tuple(
        (dice.uniform(0.0, JOBS_S), dice.uniform(-20.0, 20.0)) for _ in range(dice.choice((0, 1)))
    )
    redials = tuple(more.uniform(0.0, JOBS_S) for _ in range(more.choice((0, 3))))
    return Fate(seed, habits, rules, works, tuple(restarts), jumps, redials)


class FateRun:
    """A run of a fate."""

    def __init__(self, fate: Fate, clock: TrioClock, nursery: trio.Nursery) -> None:
        self.fate = fate
        self.clock = clock
        self.seen = Seen()
        self.cloud = Cloud(clock, fate.habits, fate.seed, lambda _: self.site)
        self.site: GrowthSite | None = None
        self._nursery = nursery
        self._life = 0
        self._skew_s = 0.0
        self._by_payload = {each.payload: each for each in fate.works}
        self._submitted: list[YearJob] = []
        self._began_s: list[float] = []  # of each run of the gateway
        self._jumped_s: list[float] = []
        self._alone: dict[CloudInstance, float] = {}
        self.boot()
        for work in fate.works:
            clock.at(work.at_s, self._submit_of(work))
        for at_s in fate.restarts_s:
            clock.at(at_s, self.die)
        for at_s, far_s in fate.jumps:
            clock.at(at_s, self._jump_of(far_s))
        for at_s in fate.redials_s:
            clock.at(at_s, self.redial)

    # --- events --------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start the gateway: pilots find it, and its client reconnects."""
        self._life += 1
        self._began_s.append(self.clock.now_s)
        self._unseen = sum(
            each.slots
            for each in self.cloud.living()
            if self.clock.now_s - each.asked_s < self.fate.habits.shown_s
        )
        pool = pool_of(self.fate.rules)
        site = GrowthSite(
            *(self.clock, pool, self.cloud, self._by_payload, self.seen),
            Life(self._life, seed=self.fate.seed, round_s=1.0),
        )
        site.skew_s = self._skew_s
        self.site = site
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._keep, site, self._scope)
        for each in self.cloud.living():
            if each.came_s is not None and each.state is PilotState.RUNNING:
                site.came(each)
        for work in self._submitted:
            if work.done < work.tasks:
                self._open(work)

    async def _keep(self, site: GrowthSite, scope: trio.CancelScope) -> None:
        with scope:
            await site.controller.run()

    def die(self) -> None:
        """Kill the gateway; it restarts after a while."""
        if self.site is not None:
            self.site.die()
            self._scope.cancel()
            self.site = None
            self.clock.after(5.0, self.boot)

    def redial(self) -> None:
        """Let the latest worker dial by a second connection, under its name."""
        there = [
            each for each in self.cloud.living() if each.came_s and each.state is PilotState.RUNNING
        ]
        if there and self.site is not None:
            self.site.redials(max(there, key=lambda each: each.came_s or 0.0))

    def _submit_of(self, work: YearJob) -> Callable[[], None]:
        def submit() -> None:
            self._submitted.append(work)
            if self.site is not None:
                self._open(work)

        return submit

    def _open(self, work: YearJob) -> None:
        assert self.site is not None
        job = f"job-{work.key}-{self._life}"
        self.site.submit(work, work.tasks - work.done, job, work.task_s)

    def _jump_of(self, far_s: float) -> Callable[[], None]:
        def jump() -> None:
            self._skew_s += far_s
            self._jumped_s.append(self.clock.now_s)
            if self.site is not None:
                self.site.skew_s = self._skew_s

        return jump

    # --- invariants ----------------------------------------------------------------------------

    def look(self) -> None:
        """Check all invariants of the moment."""
        rules, now_s = self.fate.rules, self.clock.now_s
        living = [each for each in self.cloud.living() if each.state is not PilotState.ENDING]
        slots = sum(each.slots for each in living)
        # A restarted gateway can't count instances that it was not shown yet.
        most = rules.slots_max + self._unseen * (now_s - self._began_s[-1] < SHRUNK_S)
        assert slots <= most, f"{slots} slots exceed {most} at {now_s:.0f} s"
        self._look_at_rates(now_s)
        self._look_for_strays(living, now_s)

    def _look_at_rates(self, now_s: float) -> None:
        if any(now_s - each < 2 * MINUTE_S for each in (*self._began_s[1:], *self._jumped_s)):
            return  # a restarted gateway knows nothing of earlier starts and stops
        rules = self.fate.rules
        # A lost order is repeated, and its instances may exist twice.
        most = rules.starts_max * (2 if self.fate.habits.lost else 1)
        asked = _within([each.asked_s for each in self.cloud.all], now_s)
        assert asked <= most, f"{asked} starts a minute, at {now_s:.0f} s"
        if self.site is None:
            return
        fleet = self.site.controller.fleet
        stops = _within(map(float, fleet.stops), float(self.site.utc_s()))
        assert stops <= rules.stops_max, f"{stops} stops a minute, at {now_s:.0f} s"
        if fleet.failures and fleet.starts and max(fleet.starts) > fleet.failed_at_s:
            pause_s = min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0 ** (fleet.failures - 1))
            rested_s = max(fleet.starts) - fleet.failed_at_s
            assert rested_s >= pause_s, f"a start {rested_s:.1f} s after failure {fleet.failures}"

    def _look_for_strays(self, living: Iterable[CloudInstance], now_s: float) -> None:
        """Check that no instance runs for long without a gateway."""
        alone = {}
        for each in living:
            if each.state is PilotState.RUNNING and each.came_s is None:
                alone[each] = self._alone.get(each, now_s)
        self._alone = alone
        start_s = self.site.controller.fleet.start_s if self.site is not None else 0.0
        patience_s = max(DIAL_S, DIAL_STARTS * start_s) + 2 * STOP_AGAIN_S + LATE_S
        patience_s += 4 * STOP_AGAIN_S * (self.fate.habits.lost > 0)  # its stop may be lost too
        patience_s += (max(DIAL_S, DIAL_STARTS * start_s)) * (self._life - 1)
        for each, since_s in alone.items():
            assert now_s - since_s <= patience_s, (
                f"{each.name} runs without a worker since {since_s:.0f} s"
            )

    @property
    def is_done(self) -> bool:
        """Whether all work is done."""
        return len(self._submitted) == len(self.fate.works) and all(
            each.end_s is not None for each in self.fate.works
        )

    def finish(self) -> None:
        """Check the invariants at the end."""
        assert self.is_done, f"not done: {[(w.key, w.done, w.tasks) for w in self.fate.works]}"
        for work in self.fate.works:
            booked = sum(
                tasks
                for job, tasks in self.seen.booked.items()
                if job.startswith(f"job-{work.key}-")
            )
            assert work.done == work.tasks == booked, f"{work.done} done, {booked} billed"
        left = [each.name for each in self.cloud.living()]
        assert not left, f"instances exist {GONE_S:.0f} s after the last task: {left}"


def _within(moments: Iterable[float], now_s: float) -> int:
    return sum(now_s - MINUTE_S < each <= now_s for each in moments)


def run_fate(fate: Fate) -> FateRun:
    """Run a fate; an AssertionError names the broken invariant."""
    runs: list[FateRun] = []

    async def happen(clock: TrioClock, nursery: trio.Nursery) -> None:
        run = FateRun(fate, clock, nursery)
        runs.append(run)
        while clock.now_s < JOBS_S + SETTLE_S and not run.is_done:
            await clock.pass_until(clock.now_s + 1.0, lambda: False)
            run.look()
        until_s = clock.now_s + GONE_S
        while clock.now_s < until_s and run.cloud.living():
            await clock.pass_until(clock.now_s + 1.0, lambda: False)
            run.look()
        run.finish()

    try:
        under_clock(fate.seed, happen)
    except* AssertionError as group:
        error = first_of(group)
        raise AssertionError(f"seed {fate.seed}: {error}") from error
    return runs[0]
