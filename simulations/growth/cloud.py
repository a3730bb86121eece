"""A cloud in virtual time that implements gateway.grids.contract, with instances like EC2's.

    start ──► waits for the cloud's rate ──► pending ──► running ──► its worker's hello
              (queued, not paid)             (starting)  (paid)

The duration of a start is from published measurements (see `Habits`); faults are drawn from a seed.
A Cloud is one account: gateways start and stop, and open it again by their mark.
"""

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NamedTuple

import trio

from federation.clocks import UtcS
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    Limits,
    Order,
    PilotState,
    Shape,
    Sighting,
    check_order,
)
from simulations.world.clock import Clock

ENDED_SHOWN_S: Final = 600.0  # how long ended instances are shown


class Spread(NamedTuple):
    """A log-normal time: half are below `median_s`; `sigma` is that of its logarithm."""

    median_s: float
    sigma: float

    def draw(self, dice: Random) -> float:
        """Draw one time."""
        return self.median_s * math.exp(self.sigma * dice.gauss(0.0, 1.0))


RUNS: Final = Spread(22.7, 0.25)
DIALS: Final = Spread(8.0, 0.4)


@dataclass(frozen=True, slots=True)
class Habits:
    """The behaviour of a cloud.

    The defaults: a cold launch took 25.8 s on average from the call to an answer on port 22, of
    which the call 19 %, pending to running 69 %, the boot 12 %, within 0.7 s the same for six
    families (github.com/brevdev/ec2-coldboot-research, t3 to r7i, 2025); others report 40 s
    (depot.dev, May 2024). So the median is 22.7 s until it runs, and 3.1 s until it has booted; the
    worker's environment, read from a cold disk, takes an assumed 4.9 s more. The spread of these is
    assumed: one start in a hundred takes 1.8 and 2.5 times as long. RunInstances launches 1,000 at
    once and 2 a second after that, TerminateInstances 1,000 and 20 (Amazon EC2 Developer Guide,
    "Request throttling"); accounts that start thousands have had the first raised: 16.7 a second
    starts 20,000 in 20 minutes.

    Attributes:
        runs: from the call until it runs, and is paid.
        dials: from then until its worker's hello.
        burst, launches_s: instances launched at once, and per second after that.
        ends_burst, ends_s: the same, of instances that are stopped.
        instances_max: the maximum of instances; more are refused.
        orders_max: orders accepted in a minute.
        call_s: the duration of each call.
        shown_s: how long a launched instance is not yet shown.
        lost: the share of calls without an answer: half of them were performed, half were not.
        mute: the share of instances that run, but whose worker never connects.
        taken_an_hour: the hourly share of instances that are interrupted, as spot instances are.
        notice_s: how long before that their worker is notified.
        paid_min_s: the minimum billed time.
        doubled: the share of sightings shown twice, once as ended, as by a list and by books that
            know of an earlier try.
    """

    runs: Spread = RUNS
    dials: Spread = DIALS
    burst: float = 1_000.0
    launches_s: float = 1_000.0 / 60.0
    ends_burst: float = 1_000.0
    ends_s: float = 20.0
    instances_max: int | None = None
    orders_max: int = 60
    call_s: float = 1.0
    shown_s: float = 0.0
    lost: float = 0.0
    mute: float = 0.0
    taken_an_hour: float = 0.0
    notice_s: float = 120.0
    paid_min_s: float = 60.0
    doubled: float = 0.0


@dataclass(slots=True, eq=False)
class CloudInstance:
    """One instance, from the call that asked for it."""

    mark: str
    name: str
    id: str
    slots: int
    asked_s: float
    state: PilotState = PilotState.QUEUED
    paid_s: float | None = None
    came_s: float | None = None
    ended_s: float | None = None
    fault: str = ""

    def bill_s(self, now_s: float, least_s: float, step_s: float = 0.0) -> float:
        """Return the seconds billed until now, by the second or in whole steps."""
        if self.paid_s is None:
            return 0.0
        until_s = now_s if self.ended_s is None else self.ended_s
        paid_s = max(least_s, until_s - self.paid_s)
        return math.ceil(paid_s / step_s - 1e-9) * step_s if step_s else paid_s


@dataclass(slots=True)
class Bucket:
    """Tokens that refill at a rate, up to a burst."""

    burst: float
    rate_s: float
    free_s: float = -math.inf  # when it is empty, by the tokens taken so far

    def take(self, now_s: float) -> float:
        """Take one token; return the time at which it is available."""
        full_since_s = now_s - self.burst / self.rate_s
        self.free_s = max(self.free_s, full_since_s) + 1 / self.rate_s
        return max(now_s, self.free_s)


class InstanceObserver:
    """An observer of instances: the gateway whose workers they are."""

    def came(self, instance: CloudInstance) -> None:
        """Note that its worker dials."""

    def warned(self, instance: CloudInstance) -> None:
        """Note that it will be interrupted in a while."""

    def ended(self, instance: CloudInstance, *, is_orderly: bool) -> None:
        """Note that it is gone; `is_orderly`: its worker had time to say goodbye."""


class Cloud:
    """One account of a cloud.

    Args:
        seed: of all random choices. The n-th instance has the same times in each run.
        observer_of: returns the observer of a mark; None: there is none.
    """

    def __init__(
        self,
        clock: Clock,
        habits: Habits,
        seed: int,
        observer_of: Callable[[str], InstanceObserver | None],
    ) -> None:
        self.clock = clock
        self.habits = habits
        self.instances: dict[tuple[str, str], CloudInstance] = {}  # by mark and name
        self.all: list[CloudInstance] = []
        self._seed = seed
        self._doubles = Random(f"{seed} doubles")
        self._observer_of = observer_of
        self._numbers = itertools.count()
        self._launches = Bucket(habits.burst, habits.launches_s)
        self._ends = Bucket(habits.ends_burst, habits.ends_s)
        self._orders: dict[tuple[str, str], float] = {}

    def living(self, mark: str = "") -> list[CloudInstance]:
        """Return the instances that have not ended; of one mark, or of all."""
        found = self.instances.values()
        return [each for each in found if each.ended_s is None and mark in ("", each.mark)]

    # --- orders --------------------------------------------------------------------------------

    def order(self, mark: str, order: Order) -> None:
        """Launch an order, unless it is known. Raise GridFault when it can't all be launched."""
        check_order(order, Limits())
        now_s = self.clock.now_s
        if (mark, order.name) in self._orders:
            return
        recent = sum(each > now_s - 60.0 for each in self._orders.values())
        if recent >= self.habits.orders_max:
            raise GridFault(FailureClass.AGAIN, "RequestLimitExceeded: too many calls in a minute")
        self._orders[mark, order.name] = now_s
        most = self.habits.instances_max
        room = order.pilots if most is None else max(0, most - len(self.living()))
        for name in order.names()[:room]:
            self._launch(mark, name, order.shape.slots)
        if room < order.pilots:
            text = f"InsufficientInstanceCapacity: {room} of {order.pilots} were started"
            raise GridFault(FailureClass.ELSEWHERE, text)

    def _launch(self, mark: str, name: str, slots: int) -> None:
        number = next(self._numbers)
        dice = Random(f"{self._seed} {number}")
        instance = CloudInstance(mark, name, f"i-{number:08x}", slots, self.clock.now_s)
        self.instances[mark, name] = instance
        self.all.append(instance)
        launched_s = self._launches.take(self.clock.now_s)
        runs_s, dials_s = self.habits.runs.draw(dice), self.habits.dials.draw(dice)
        is_mute = dice.random() < self.habits.mute
        self.clock.at(launched_s, lambda: self._pend(instance, runs_s, dials_s, dice, is_mute))

    def _pend(
        self, instance: CloudInstance, runs_s: float, dials_s: float, dice: Random, is_mute: bool
    ) -> None:
        if instance.ended_s is not None:
            return
        instance.state = PilotState.STARTING

        def run() -> None:
            if instance.ended_s is None:
                instance.state, instance.paid_s = PilotState.RUNNING, self.clock.now_s
                if not is_mute:
                    self.clock.after(dials_s, lambda: self._dial(instance))
                self._may_be_taken(instance, dice)

        self.clock.after(runs_s, run)

    def _dial(self, instance: CloudInstance) -> None:
        observer = self._observer_of(instance.mark)
        if instance.state is PilotState.RUNNING:
            if observer is None:
                self.clock.after(1.0, lambda: self._dial(instance))
                return
            instance.came_s = self.clock.now_s
            observer.came(instance)

    def _may_be_taken(self, instance: CloudInstance, dice: Random) -> None:
        if self.habits.taken_an_hour:
            after_s = dice.expovariate(self.habits.taken_an_hour / 3600.0)
            self.clock.after(after_s, lambda: self.take(instance))

    def take(self, instance: CloudInstance) -> None:
        """Interrupt an instance, with notice."""
        if instance.state is PilotState.RUNNING:
            instance.fault = "spot interruption"
            instance.state = PilotState.ENDING
            observer = self._observer_of(instance.mark)
            if observer is not None:
                observer.warned(instance)
            self.clock.after(self.habits.notice_s, lambda: self._end(instance, is_orderly=False))

    def stop(self, mark: str, names: Collection[str]) -> None:
        """Stop these instances, at the cloud's rate."""
        for name in sorted(names):
            found = self.instances.get((mark, name))
            if found is not None and found.ended_s is None and found.state is not PilotState.ENDING:
                found.state = PilotState.ENDING
                at_s = self._ends.take(self.clock.now_s)
                self.clock.at(at_s, partial(self._end, found, is_orderly=True))

    def _end(self, instance: CloudInstance, *, is_orderly: bool) -> None:
        if instance.ended_s is not None:
            return
        instance.ended_s, instance.state = self.clock.now_s, PilotState.ENDED
        observer = self._observer_of(instance.mark)
        if observer is not None:
            observer.ended(instance, is_orderly=is_orderly)

    def shown(self, mark: str, utc_s: UtcS) -> list[Sighting]:
        """Return the visible instances of a mark; `utc_s` is the present calendar time."""
        now_s, offset_s = self.clock.now_s, float(utc_s) - self.clock.now_s
        found = []
        for key, each in list(self.instances.items()):
            if each.ended_s is not None and now_s - each.ended_s > ENDED_SHOWN_S:
                del self.instances[key]
            elif each.mark == mark and now_s - each.asked_s >= self.habits.shown_s:
                paid_at_s = None if each.paid_s is None else UtcS(each.paid_s + offset_s)
                found.append(
                    Sighting(
                        *(each.name, each.state, each.id, each.slots),
                        paid_at_s=paid_at_s,
                        fault=each.fault,
                    )
                )
                if self.habits.doubled and self._doubles.random() < self.habits.doubled:
                    ended = Sighting(each.name, PilotState.ENDED, f"{each.id}-try-1", each.slots)
                    found.insert(self._doubles.randrange(len(found) + 1), ended)
        return found


class CloudGrid:
    """The adapter of a cloud, for one mark: see `Provisioning`."""

    def __init__(self, cloud: Cloud, mark: str, seed: int, utc_s: Callable[[], UtcS]) -> None:
        self.cloud = cloud
        self.mark = mark
        self._utc_s = utc_s
        self._dice = Random(f"{seed} calls")

    async def check(self) -> str:
        """See Provisioning."""
        await self._call()
        return "a simulated cloud"

    async def limits(self) -> Limits:
        """See Provisioning."""
        await self._call()
        return Limits(orders_max=self.cloud.habits.orders_max)

    async def capacity(self, shape: Shape) -> Capacity:
        """See Provisioning."""
        await self._call()
        most = self.cloud.habits.instances_max
        if most is None:
            return Capacity(1_000 * shape.slots)
        left = max(0, most - len(self.cloud.living())) * shape.slots
        return Capacity(left, left)

    async def pilots(self) -> Sequence[Sighting]:
        """See Provisioning."""
        is_lost = self._is_lost()
        await self._call()
        if is_lost:
            raise GridFault(FailureClass.AGAIN, "the answer was lost")
        return self.cloud.shown(self.mark, self._utc_s())

    async def price_nanos(self) -> tuple[int, str] | None:
        """See Provisioning."""
        return None

    async def start(self, order: Order) -> None:
        """See Provisioning."""
        is_lost, is_done = self._is_lost(), self._dice.random() < 0.5
        await self._call()
        if not is_lost or is_done:
            self.cloud.order(self.mark, order)
        if is_lost:
            raise trio.TooSlowError

    async def stop(self, names: Collection[str]) -> None:
        """See Provisioning."""
        is_lost = self._is_lost()
        await self._call()
        if not is_lost:
            self.cloud.stop(self.mark, names)
        elif self._dice.random() < 0.5:
            raise GridFault(FailureClass.AGAIN, "the answer was lost")

    def _is_lost(self) -> bool:
        return self._dice.random() < self.cloud.habits.lost

    async def _call(self) -> None:
        await trio.sleep(self.cloud.habits.call_s)
