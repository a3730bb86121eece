"""A gateway whose pool is on the simulated cloud: the real exchange, broker and pool controller.

As in simulations.year there are no sessions, frames and store around them: events are passed
directly. The pool controller is unchanged and runs under trio's MockClock; its grid's calls take
virtual time.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from federation.clocks import MonoS, UtcS
from federation.messages.messages import Answer, Dropped, RejectJob, Results
from gateway.config.site import PoolConfig, SiteConfig
from gateway.contracts.exchange import Exchange
from gateway.grids.scaling.pool_controller import ROUND_S, PoolController
from gateway.ledger.db.usage.records import UsageRecord
from gateway.runtime.kernel import Kernel
from gateway.runtime.prices import Prices
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Effect, Expel, SendToClient, SendToWorker, Write
from gateway.scheduler.model.terms import JobSpec
from gateway.trust.grant_signer import KeyGrantSigner
from policies.placement.asks import Wishes
from policies.placement.placement import CapacityOffer
from simulations.growth.cloud import Cloud, CloudGrid, CloudInstance, InstanceObserver
from simulations.world.clock import EPOCH_S, Clock
from simulations.world.peers import SimRoll
from simulations.world.plan import PYTHON
from simulations.year.slots import Batch, YearSlots
from simulations.year.work import YearJob

CLIENT: Final = 1  # the owner of all work
POOL: Final = "cloud"
UNTIL_S: Final = 14 * 86_400.0  # no run goes on for longer
BROKEN_S: Final = 10.0  # the time to detect a broken connection
LOOK_S: Final = 1.0  # how often a gateway looks at the clock


class PilotSlots(YearSlots):
    """The slots of one pilot, which end with their instance. `spans`: the busy slots over time."""

    spans: list[tuple[float, float, int]]

    def _count(self, batch: Batch) -> float:
        self.spans.append((batch.since_s, self._clock.now_s, batch.stop - batch.first))
        return (self._clock.now_s - batch.since_s) * (batch.stop - batch.first)

    def halt(self) -> None:
        """End all running tasks, without a report."""
        for batches in self._running.values():
            for each in batches:
                each.timer.cancel()
                if each.stops is not None:
                    each.stops.cancel()
                self.used.lost_s += self._count(each)
        self._running.clear()
        self._queue.clear()


@dataclass(slots=True)
class CpuSpent:
    """CPU time of this process, by purpose."""

    controller_s: float = 0.0
    rounds: int = 0
    broker_s: float = 0.0
    batches: int = 0
    worst_round_s: float = 0.0


@dataclass(slots=True)
class Seen:
    """The observations of a client and the books of a site, over all its runs."""

    done: dict[str, int] = field(default_factory=dict)  # by job
    booked: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    spans: list[tuple[float, float, int]] = field(default_factory=list)  # (from, to, slots) busy


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a gateway. `mark` is the same in each; `is_spied`: measure the pool controller's
    CPU.
    """

    number: int = 1
    mark: str = "site-cloud"
    seed: int = 0
    round_s: float = ROUND_S
    is_spied: bool = False


class GrowthSite(InstanceObserver):
    """A gateway in one of its runs.

    Args:
        seen: continued from run to run.
        ended: called with each job that is done.
    """

    def __init__(
        self,
        clock: Clock,
        pool: PoolConfig,
        cloud: Cloud,
        works: Mapping[bytes, YearJob],
        seen: Seen,
        life: Life,
        ended: Callable[[YearJob], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self.is_up = True
        self.skew_s = 0.0  # of its calendar
        self._works = works
        self._seen = seen
        self._ended = ended
        self.spent = CpuSpent()
        self.config = SiteConfig(name="site", pools=(pool,))
        self._prices = Prices(self.config.pools, self.utc_s())
        boot = int(EPOCH_S) + life.number
        tariffs = {name: each.tariff for name, each in self._prices.now.items()}
        offer = CapacityOffer(
            f"pool {pool.name}", pool.name, pool.tags, PYTHON, tariffs[POOL].currency
        )
        roll = SimRoll("site", (), boot)
        facts = {each.name: each.facts for each in self.config.pools}
        self._handles = itertools.count(1)
        self.kernel = Kernel(
            lambda peers: Broker(
                *(tariffs, {offer.name: offer}), boot=boot, peers=peers, prices=self._prices.now
            ),
            lambda broker: Exchange(
                *("site", boot, broker, self.config.deals, self.config.preferences),
                *(roll, facts, KeyGrantSigner(roll), self._handles),
            ),
        )
        self.broker, self.exchange = self.kernel.broker, self.kernel.exchange
        self.grid = CloudGrid(cloud, life.mark, life.seed * 1_000 + life.number, self.utc_s)
        self.controller = PoolController(
            *(pool, self.grid, self.broker),
            expect=self.expect,
            utc_s=self.utc_s,
            say=seen.said.append,
            preferences=self.config.preferences,
        )
        self.controller.round_s = life.round_s
        self._came: list[events.Event] = [events.ClientJoined(CLIENT, "user")]
        self._is_looking = False
        self.slots: dict[int, PilotSlots] = {}
        self._by_name: dict[str, int] = {}
        self._jobs: dict[str, YearJob] = {}
        if life.is_spied:
            self._spy()
        self._clock.after(LOOK_S, self._tick)

    def utc_s(self) -> UtcS:
        """Return its calendar time."""
        return EPOCH_S + self._clock.now_s + self.skew_s

    def die(self) -> None:
        """Kill it at once; its running tasks are useless to the next run."""
        self.is_up = False
        for each in self.slots.values():
            each.halt()
        self.slots.clear()

    # --- client --------------------------------------------------------------------------------

    def submit(
        self, work: YearJob, tasks: int, job: str, said_s: float | None = None, pool: str = ""
    ) -> None:
        """Open a job of so many tasks; `said_s`: the duration of one, as stated by the client."""
        self._jobs[job] = work
        spec = JobSpec(
            name=work.owner,
            function=work.function,
            detached=False,
            user=work.user,
            project=work.owner,
            priority=0.0,
            tags={},
            timeout_s=None,
            retries=3,
            max_cost_nanos=None,
            currency=None,
            python=PYTHON,
            prints=False,
            wishes=Wishes(objective=work.objective),
            pool=pool,
            tasks=tasks,
            task_s=said_s,
        )
        self.expect(
            events.JobOpened(CLIENT, job, spec),
            events.TasksArrived(CLIENT, job, 0, [work.payload] * tasks),
            events.JobClosed(CLIENT, job, tasks),
        )

    # --- events of instances -------------------------------------------------------------------

    def came(self, instance: CloudInstance) -> None:
        """See InstanceObserver."""
        handle = next(self._handles)
        self._by_name[instance.name] = handle
        self.slots[handle] = PilotSlots(
            self._clock, handle, instance.slots, self._works, self.expect, UNTIL_S
        )
        self.slots[handle].spans = self._seen.spans
        self.expect(events.WorkerJoined(handle, instance.name, POOL, instance.slots, {}, PYTHON))

    def redials(self, instance: CloudInstance) -> None:
        """Let its worker dial by another connection; the old one is found broken later."""
        old = self._by_name.get(instance.name)
        if old is None or not self.is_up:
            return
        self.came(instance)

        def broke() -> None:
            slots = self.slots.pop(old, None)
            if slots is not None:
                slots.halt()
                self.expect(events.WorkerGone(old, "its connection was lost"))

        self._clock.after(BROKEN_S, broke)

    def warned(self, instance: CloudInstance) -> None:
        """See InstanceObserver."""
        handle = self._by_name.get(instance.name)
        if handle is not None:
            self.expect(events.DrainAsked(handle, on=True, by=events.Drainer.ITSELF))

    def ended(self, instance: CloudInstance, *, is_orderly: bool) -> None:
        """See InstanceObserver."""
        handle = self._by_name.pop(instance.name, None)
        if handle is None:
            return
        self.slots.pop(handle).halt()
        self.expect(events.WorkerGone(handle, "its instance ended", is_orderly))

    # --- the gateway ---------------------------------------------------------------------------

    def expect(self, *happened: events.Event) -> None:
        """Queue events: they are processed together with all others of this moment."""
        self._came += happened
        if not self._is_looking:
            self._is_looking = True
            self._clock.after(0.0, self._look)

    def _look(self) -> None:
        self._is_looking = False
        came, self._came = self._came, []
        if self.is_up:
            self._act(came)

    def _tick(self) -> None:
        if not self.is_up:
            return
        is_due = self.kernel.tick(MonoS(self._clock.now_s), self.utc_s())
        if is_due or self.broker.is_uneven:
            self._act([])
        self._clock.after(LOOK_S, self._tick)

    def _act(self, happened: Iterable[events.Event]) -> None:
        began_s = time.process_time()
        effects = self.kernel.act(happened, MonoS(self._clock.now_s), self.utc_s())
        self.spent.broker_s += time.process_time() - began_s
        self.spent.batches += 1
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Write(record=UsageRecord() as record) if record.state == "ok":
                self._seen.booked[record.job] = self._seen.booked.get(record.job, 0) + record.tasks
            case SendToClient(_, message):
                self._told(message)
            case SendToWorker(worker, message) if worker in self.slots:
                self.slots[worker].order(message)
            case Expel():
                raise AssertionError(f"unexpected expulsion: {effect}")
            case _:
                return

    def _told(self, message: Any) -> None:
        match message:
            case Results():
                assert not message.failures, message.failures
                work = self._jobs[message.job]
                self._seen.done[message.job] = self._seen.done.get(message.job, 0) + len(
                    message.values
                )
                work.done += len(message.values)
                if work.done >= work.tasks:
                    work.end_s = self._clock.now_s
                    self._ended(work)
            case Dropped() | RejectJob():
                raise AssertionError(f"unexpected refusal: {message}")
            case Answer() | _:
                return

    def _spy(self) -> None:
        """Measure the CPU time of the pool controller's rounds, without their waits."""
        controller, spent = self.controller, self.spent
        carry_on = controller._round

        async def round_() -> float:
            meter = _Metered(carry_on())
            took_s: float = await meter
            spent.controller_s += meter.cpu_s
            spent.rounds += 1
            spent.worst_round_s = max(spent.worst_round_s, meter.cpu_s)
            return took_s

        controller._round = round_  # type: ignore[method-assign]


class _Metered:
    """Awaits an awaitable, and measures the CPU time of its own steps."""

    def __init__(self, what: Any) -> None:
        self._what = what
        self.cpu_s = 0.0

    def __await__(self) -> Any:
        steps = self._what.__await__()
        value: Any = None
        while True:
            began_s = time.process_time()
            try:
                found = steps.send(value)
            except StopIteration as stop:
                return stop.value
            finally:
                self.cpu_s += time.process_time() - began_s
            value = yield found
