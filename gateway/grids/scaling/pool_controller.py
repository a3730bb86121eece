"""The pool controller of a pool whose workers a grid starts: it looks, asks the autoscaler, and
acts.

    run ── every ROUND_S, or less often if a round takes long:
    ├── grid.pilots()      every `look`, and each second while pilots start or end
    ├── grid.leaving()     every `look`, of grids that take hosts out of service
    ├── Fleet.see          the grid's list, and the workers that have come
    ├── autoscaling.attend how many slots there should be
    └── grid.start / stop  each in a task of its own: a grid may be slow

policies.placement.autoscaling and gateway.grids.scaling.fleet decide; gateway.grids.scaling.demand
measures the work of the pool; gateway.grids.scaling.ordering queries the grid. The broker is told
the possible size of the pool, so that plans count with it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from federation.clocks import UtcS
from federation.money import format_money
from federation.words import count
from gateway.base.clocks import mono_now
from gateway.config.site import PoolConfig
from gateway.grids.contract import Order, PilotState, Provisioning, Sighting
from gateway.grids.scaling.carried import Carried
from gateway.grids.scaling.demand import PilotShape, demand
from gateway.grids.scaling.fleet import AtWork, Fleet
from gateway.grids.scaling.ordering import Ordering, Tidings, in_words
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.jobs import Worker
from policies.placement.asks import Preferences
from policies.placement.autoscaling import (
    NO_GROWTH,
    Pilot,
    PilotStage,
    PoolGrowth,
    PoolWork,
    ScalingHistory,
    ScalingOrders,
    ScalingRules,
    attend,
    growth,
    slots_max,
)
from policies.placement.placement import Tags

ROUND_S: Final = 0.25
ROUND_SHARE: Final = 0.05  # of the time, at most, goes into rounds
HASTE_S: Final = 1.0  # the interval of looks at the grid while pilots start or end
PRICE_STEP: Final = 0.02  # a smaller change of a price is ignored
START_STEP: Final = 0.05  # a smaller change of the start time is ignored
FACTS_S: Final = 30.0  # the interval of queries for capacity and limits
STRANGER_S: Final = 120.0  # a worker that the grid does not show is drained after this time
CLOCK_SET_S: Final = 5.0  # a larger jump means that the clock was set
# Queued pilots of a former run are kept for this time, as work returns only with the clients.
SETTLE_S: Final = 60.0
SAID_MAX: Final = 20  # reasons for stranded work, until the operator acts
PROBE_S: Final = 60.0  # a tested pilot is kept so much longer than its tester waits

Expect = Callable[[events.Event], None]


class PoolController:
    """Keeps the pilots of one pool.

    Args:
        pool: its `scale` says how it may grow.
        grid: starts the pilots.
        broker: read for its work, never changed.
        expect: takes events for the broker.
        utc_s: the time of day.
        say: takes lines for the operator.
        preferences: the defaults of task durations and of jobs' objective.
        reprice: has the pool charge by another price list from now on.

    Attributes:
        round_s: the least wait between two rounds.
    """

    def __init__(
        self,
        pool: PoolConfig,
        grid: Provisioning,
        broker: Broker,
        *,
        expect: Expect,
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
        preferences: Preferences,
        reprice: Callable[[PoolConfig], None] = lambda _: None,
    ) -> None:
        assert pool.scale is not None
        self.pool = pool
        self.grid = grid
        self.scale = pool.scale
        self.decided = ScalingOrders(0)
        self.work = PoolWork()
        self.fleet = Fleet(self.scale.start_s)
        self._broker = broker
        self._expect = expect
        self._utc_s = utc_s
        self._ahead_s: float | None = None  # the time of day minus the monotonic clock
        self._say_it = say
        self._ordering = Ordering(pool, grid, self.fleet, self._now, self._say)
        self._tidings = Tidings(self._say)
        self._preferences = preferences
        self.round_s = ROUND_S
        self._reprice = reprice
        self._followed_nanos = 0  # the grid's charge when our own price was set
        self._idle_since_s: dict[str, UtcS] = {}
        self._strange_at_s: dict[str, UtcS] = {}  # since when workers are here that are no pilots
        self._drained: dict[str, int] = {}  # pilots that we drained, with their workers' handles
        self._carried = Carried()
        self._promised = broker.offers.get(f"pool {pool.name}")
        self._told_tags: Tags | None = None
        self._stranded: set[str] = set()  # reported reasons for work that no pilot can do
        self._noted: set[str] = set()  # jobs with such work that have been told so
        self._kept: dict[str, UtcS] = {}  # pilots that are kept until a moment
        self._has_looked = False
        # by worker, the values told to the broker
        self._seen: dict[int, tuple[str, UtcS | None]] = {}
        # the same, of pilots without a worker yet
        self._awaited: dict[str, tuple[str, UtcS | None]] = {}
        self._looked_at_s = self._asked_at_s = UtcS("-inf")
        self._leaving_asked_at_s = UtcS("-inf")

    async def run(self) -> None:
        """Keep the pool until cancelled. Its pilots go on: the next run of the site adopts them."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            utc_s = self._now()
            self._tell_growth(self._workers(), self._past(utc_s), utc_s)
            await self._look_whether_it_works()
            while True:
                took_s = await self._round()
                await trio.sleep(max(self.round_s, took_s / ROUND_SHARE - took_s))

    def take_in(self, pool: PoolConfig) -> None:
        """Continue with a changed configuration."""
        assert pool.scale is not None
        self.pool, self.scale, self._ordering.pool = pool, pool.scale, pool
        self._followed_nanos = 0  # the list is as configured, until the grid is asked again
        self._forgive()

    def _forgive(self) -> None:
        """Retry all failures, as the operator has acted."""
        self.fleet.forgive()
        self._carried.forgive()
        self._stranded.clear()

    async def probe(self, tags: Tags, wait_s: float) -> dict[str, Any]:
        """Ask the grid all questions, and have a pilot started that carries these tags.

        The pilot is one of the pool's, and is released as all others are once it has done a task,
        or `wait_s` have passed. A failure ends the probe: `failed` describes it.
        """
        steps: list[tuple[str, str]] = []
        asked: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("check", self.grid.check),
            ("limits", self.grid.limits),
            ("capacity", lambda: self.grid.capacity(self._ordering.shape)),
            ("pilots", self.grid.pilots),
        ]
        for what, call in asked:
            found = await self._ordering.ask(what, call)
            if found is None:
                return {"steps": steps, "failed": [what, self._ordering.troubles[what]]}
            steps.append((what, in_words(found)))
        objection = self._objection()
        if objection:
            return {"steps": steps, "failed": ["start", objection]}
        self._forgive()
        utc_s = self._now()
        order = self._ordering.order_one(tags, utc_s)
        self._kept[order.names()[0]] = utc_s + wait_s + PROBE_S
        fault = await self._start(order)
        if fault:
            return {"steps": steps, "failed": ["start", fault]}
        return {"steps": steps, "failed": None, "pilot": order.names()[0]}

    def _objection(self) -> str:
        """Return why no pilot can be tried now, by the owner's limits; empty if one can."""
        if self.scale.dry_run:
            return "dry_run is set in [pool.scale]: no pilots are started"
        most = slots_max(self.rules, self._past(self._now()))
        there = self.fleet.slots()
        if there + self.rules.pilot_slots > most:
            return (
                f"{there} of at most {most} slots exist: try again when there are fewer, or "
                "raise max"
            )
        return ""

    @property
    def trouble(self) -> str:
        """Why nothing is known of the pilots now; empty when all is well."""
        return self._ordering.troubles.get("pilots", "")

    # --- a round -------------------------------------------------------------------------------

    async def _round(self) -> float:
        """Look, decide and act; return the time it took, without waiting for the grid."""
        await self._look()
        began_s, utc_s = mono_now(), self._now()
        workers = self._workers()
        at_work = self._at_work(workers, utc_s)
        self.work = demand(
            *(self._broker, self.pool.name, utc_s),
            *(self._preferences.task_s_unknown, self._preferences.objective),
            shape=self._shape(workers),
            slots_max=self.rules.slots_max,
            is_dry=self.scale.dry_run,
        )
        self._say_what_is_stranded()
        past = self._past(utc_s)
        pilots = self._with_kept(self.fleet.view(at_work), workers, utc_s)
        pilots = self._with_returning(pilots, workers)
        self.decided = attend(self.rules, pilots, self.work, past, utc_s)
        self._tell_growth(workers, past, utc_s)
        if not self.scale.dry_run and not self.trouble:
            self._carry_out(self.decided, workers, at_work, utc_s)
            self._tidings.tell(utc_s)
        return mono_now() - began_s

    def _now(self) -> UtcS:
        """Return the time of day; if the clock was set, shift all noted times.

        Otherwise pilots would idle, and none be started, until the old time comes again.
        """
        utc_s = self._utc_s()
        ahead_s = float(utc_s) - float(mono_now())
        if self._ahead_s is None:
            self._ahead_s = ahead_s
        by_s = ahead_s - self._ahead_s
        if abs(by_s) > CLOCK_SET_S:
            self._ahead_s = ahead_s
            self.fleet.clock_set(by_s)
            self._ordering.clock_set(by_s)
            self._tidings.said_at_s += by_s
            for noted in (self._idle_since_s, self._strange_at_s, self._kept):
                noted.update({name: at_s + by_s for name, at_s in noted.items()})
            self._looked_at_s += by_s
            self._asked_at_s += by_s
            self._leaving_asked_at_s += by_s
        return utc_s

    def _with_kept(
        self, pilots: list[Pilot], workers: Mapping[str, Worker], utc_s: UtcS
    ) -> list[Pilot]:
        """Return the pilots, with those that are kept marked as busy."""
        if not self._kept:
            return pilots
        done = {name for name, each in workers.items() if each.tasks_done}
        self._kept = {
            name: until_s
            for name, until_s in self._kept.items()
            if name in self.fleet.pilots and name not in done and utc_s < until_s
        }
        needed = {PilotStage.QUEUED: PilotStage.STARTING}
        return [
            replace(each, stage=needed.get(each.stage, each.stage), busy=max(1, each.busy))
            if each.name in self._kept
            else each
            for each in pilots
        ]

    def _with_returning(self, pilots: list[Pilot], workers: Mapping[str, Worker]) -> list[Pilot]:
        """Return the pilots, with those marked that only we drained, and may undrain."""
        self._drained = {
            name: handle
            for name, handle in self._drained.items()
            if name in workers and workers[name].handle == handle and workers[name].draining
        }
        if not self._drained:
            return pilots
        return [
            replace(each, can_return=self._can_return(workers[each.name]))
            if each.name in self._drained
            else each
            for each in pilots
        ]

    def _can_return(self, worker: Worker) -> bool:
        sighting = self.fleet.pilots[worker.name].sighting
        is_taken = sighting is not None and sighting.state is PilotState.ENDING
        is_taken |= bool(self.fleet.pilots[worker.name].leaves)
        is_others = worker.drained_by != {events.Drainer.CONTROLLER}
        return not is_taken and not is_others and not self._ordering.was_told(worker.name)

    def _shape(self, workers: Mapping[str, Worker]) -> PilotShape:
        """Return the properties of a pilot, as known by now."""
        pilots = self.fleet.pilots
        self._carried.see(
            (each, pilots[name].asked_at_s is not None)
            for name, each in workers.items()
            if name in pilots and not each.draining
        )
        offers = self._carried.offers(self._promised)
        return PilotShape(
            *(offers, self.rules.pilot_slots, self.fleet.start_s), self._ordering.walltime_s
        )

    def _say_what_is_stranded(self) -> None:
        """Tell the operator, and the status of the jobs, of work that no pilot can do."""
        work, jobs = self.work, self._broker.jobs
        why = f"no pilots are started for it: the worker of a pilot {work.stranded_why}"
        for job in work.stranded_jobs:
            if job not in self._noted:
                self._expect(events.JobNoted(job, f"pool {self.pool.name}: {why}"))
        self._noted = {each for each in {*self._noted, *work.stranded_jobs} if each in jobs}
        if work.stranded and why not in self._stranded and len(self._stranded) < SAID_MAX:
            self._stranded.add(why)
            self._say(f"queued work; {why}")

    @property
    def rules(self) -> ScalingRules:
        """The owner's rules."""
        return self.scale.rules

    def _past(self, utc_s: UtcS) -> ScalingHistory:
        tariff = self._broker.tariffs[self.pool.name]
        nanos, currency = self._ordering.charged or (tariff.price_nanos, tariff.currency)
        if currency != self.scale.currency:  # `hourly_cost` is in the scale's currency
            nanos = tariff.price_nanos if tariff.currency == self.scale.currency else 0
        return replace(
            self.fleet.past(utc_s), price_nanos=nanos, attainable=self._ordering.attainable
        )

    async def _look(self) -> None:
        utc_s = self._now()
        wait_s = self.scale.look_s
        if self.fleet.is_moving:
            wait_s = min(HASTE_S, wait_s)
        if 0 <= utc_s - self._looked_at_s < wait_s:
            return
        self._looked_at_s = utc_s
        found = await self._ordering.ask("pilots", self.grid.pilots)
        if found is None:
            return
        if not 0 <= utc_s - self._leaving_asked_at_s < self.scale.look_s:
            self._leaving_asked_at_s = utc_s
            self._note_leaving(await self._ordering.ask_leaving())
        workers = self._workers()
        utc_s = self._now()
        drains = self._broker.drains
        self.fleet.drained = {name for name, each in workers.items() if drains.cover(each)}
        self.fleet.see(found, self._at_work(workers, utc_s), utc_s)
        self._tell_what_was_seen(found, workers)
        if not self._has_looked:
            self._has_looked = True
            self._found_again(found, utc_s)
        if not 0 <= utc_s - self._asked_at_s < FACTS_S:
            self._asked_at_s = utc_s
            await self._ordering.ask_facts()
            self._follow_price()

    def _note_leaving(self, leaving: Mapping[str, str] | None) -> None:
        """Have the fleet know the pilots that the grid wants to end, and report changes."""
        if leaving is None:
            return
        before, self.fleet.leaving = self.fleet.leaving, leaving
        for why, pilots in Counter(
            why for name, why in leaving.items() if name not in before
        ).items():
            self._say(f"{count(pilots, 'pilot')} draining: {why}")
        back = sum(name not in leaving and name in self.fleet.pilots for name in before)
        if back:
            self._say(f"{count(back, 'pilot')} in service again, with the hosts")

    def _found_again(self, found: Collection[Sighting], utc_s: UtcS) -> None:
        """Report the pilots of the former run of the site, and keep the queued ones for work."""
        there = [each for each in found if each.state is not PilotState.ENDED]
        if there:
            stands = ", ".join(
                f"{sum(each.state is state for each in there):,} {state}"
                for state in PilotState
                if any(each.state is state for each in there)
            )
            self._say(f"found the pilots of an earlier run: {stands}")
        queued = (each.name for each in there if each.state is PilotState.QUEUED)
        self._kept |= dict.fromkeys(queued, utc_s + SETTLE_S)

    def _carry_out(
        self,
        orders: ScalingOrders,
        workers: Mapping[str, Worker],
        at_work: Mapping[str, AtWork],
        utc_s: UtcS,
    ) -> None:
        tidings, why = self._tidings, orders.why[0] if orders.why else ""
        made = self._ordering.order(orders.start, utc_s)
        tidings.add("ordered", sum(each.pilots for each in made), why)
        tidings.add("released", len(orders.cancel) + len(orders.drain), why)
        tidings.add("kept, their drain cancelled", len(orders.undrain), why)
        for order in made:
            self._nursery.start_soon(self._start, order)
        for order in self.fleet.unseen(utc_s):
            self._nursery.start_soon(self._start, order)
        self.fleet.stopped([*orders.drain, *orders.cancel], utc_s)
        self.fleet.taken_back(orders.undrain, utc_s)
        for name in orders.undrain:
            handle = self._drained.pop(name)
            self._expect(events.DrainAsked(handle, on=False, by=events.Drainer.CONTROLLER))
        self._drain(workers, self._strangers(at_work, utc_s))
        # A worker that was not draining at the last look may have been given tasks since.
        done = {
            name
            for name in self.fleet.done(at_work)
            if name not in workers or workers[name].draining
        }
        silent = self.fleet.silent(utc_s)
        over = self._ordering.to_tell({*orders.cancel, *silent, *done}, utc_s)
        tidings.add("stopped", len(over & set(silent)), "no worker connected in time")
        # From now on it ends by us, even if its host is back in service meanwhile.
        self.fleet.stopped([name for name in over if name in self.fleet.leaving], utc_s)
        if over:
            self._nursery.start_soon(self._ordering.stop, over)

    async def _start(self, order: Order) -> str:
        """Make an order, and look at once: a worker may come before the next scheduled look."""
        fault = await self._ordering.start(order)
        self._looked_at_s = UtcS("-inf")
        return fault

    async def _look_whether_it_works(self) -> None:
        text = await self._ordering.ask("check", self.grid.check)
        if text is not None:
            self._say(text)

    def _follow_price(self) -> None:
        """Charge the grid's price, times the markup; small changes are not passed on."""
        markup = self.scale.markup
        if markup is None or self._ordering.charged is None:
            return
        nanos, currency = self._ordering.charged
        ours = self._broker.tariffs[self.pool.name].currency
        if currency != ours:
            self._ordering.note_trouble("prices", f"it charges in {currency}, this pool in {ours}")
        elif abs(nanos - self._followed_nanos) > PRICE_STEP * self._followed_nanos:
            self._followed_nanos = nanos
            price = format_money(round(nanos * markup), currency)
            # A version that the owner has configured belongs to the configured price.
            tariff = {key: each for key, each in self.pool.tariff.items() if key != "version"}
            self._reprice(replace(self.pool, price=price, tariff=tariff))
            self._say(f"the price of a slot-hour is {price} from now on")

    # --- exchange with the broker --------------------------------------------------------------

    def _workers(self) -> dict[str, Worker]:
        """Return the pool's workers, by name."""
        return {
            each.name: each
            for each in self._broker.workers.values()
            if each.offer.pool == self.pool.name and not each.job
        }

    def _at_work(self, workers: Mapping[str, Worker], utc_s: UtcS) -> dict[str, AtWork]:
        idle = {
            name: self._idle_since_s.get(name, utc_s)
            for name, each in workers.items()
            if not each.in_flight
        }
        self._idle_since_s = idle
        return {
            name: AtWork(
                each.slots,
                min(each.slots, each.in_flight),
                idle.get(name, utc_s),
                max(0.0, utc_s * each.long - each.given_s),
                each.tasks_done,
            )
            for name, each in workers.items()
        }

    def _strangers(self, at_work: Mapping[str, AtWork], utc_s: UtcS) -> list[str]:
        """Return workers that have been here for long, and are no pilots of ours.

        They belong to another mark, of a gateway whose state lay elsewhere: the grid does not show
        them to us, so nothing else would ever stop them. A drained one ends.
        """
        strange = at_work.keys() - self.fleet.pilots.keys()
        self._strange_at_s = {name: self._strange_at_s.get(name, utc_s) for name in strange}
        found = [name for name, at_s in self._strange_at_s.items() if utc_s - at_s >= STRANGER_S]
        for name in found:
            self._say(f"the grid does not show worker {name}, which is released")
            self._strange_at_s[name] = utc_s
        return found

    def _drain(self, workers: Mapping[str, Worker], strangers: Collection[str]) -> None:
        """Drain workers that are released, or taken from us; also those that have reconnected."""
        for name, worker in workers.items():
            known = self.fleet.pilots.get(name)
            is_over = known is not None and known.stage is PilotStage.DRAINING
            if (is_over or name in strangers) and not worker.draining:
                self._expect(
                    events.DrainAsked(worker.handle, on=True, by=events.Drainer.CONTROLLER)
                )
                if is_over:
                    self._drained[name] = worker.handle
        self._undrain()

    def _undrain(self) -> None:
        """Give tasks again to workers that were drained for their hosts, which are back."""
        for name, handle in list(self._drained.items()):
            known = self.fleet.pilots.get(name)
            if known is not None and known.stage is PilotStage.READY:
                del self._drained[name]
                self._expect(events.DrainAsked(handle, on=False, by=events.Drainer.CONTROLLER))

    def _tell_what_was_seen(
        self, found: Collection[Sighting], workers: Mapping[str, Worker]
    ) -> None:
        """Tell the broker the grid's names of workers, and when it will stop them.

        Also of those without a worker yet: their first usage is booked by that name, too.
        """
        told: dict[int, tuple[str, UtcS | None]] = {}
        awaited: dict[str, tuple[str, UtcS | None]] = {}
        for each in found:
            worker, says = workers.get(each.name), (each.grid_id, each.ends_at_s)
            if worker is not None:
                told[worker.handle] = says
                if says not in (self._seen.get(worker.handle), (worker.grid_id, worker.ends_at_s)):
                    self._expect(events.PilotSeen(worker.handle, *says))
            elif each.state is not PilotState.ENDED:
                awaited[each.name] = says
        self._seen = told
        if awaited != self._awaited:
            self._awaited = awaited
            self._expect(events.PilotsAwaited(self.pool.name, awaited))

    def _tell_growth(
        self, workers: Mapping[str, Worker], past: ScalingHistory, utc_s: UtcS
    ) -> None:
        there = sum(each.slots for each in workers.values() if not each.draining)
        there += sum(
            each.slots for each in self.fleet.pilots.values() if each.stage is PilotStage.DRAINING
        )
        found = NO_GROWTH
        if not self.trouble and not self.scale.dry_run:
            found = growth(self.rules, past, there, self.fleet.slots_coming, utc_s)
            wait_s = self._ordering.wait_s(utc_s)
            found = found._replace(start_s=round(found.start_s + wait_s, 1))
        tags = self._carried.kept(self._promised.tags) if self._promised is not None else None
        if _is_news(self._broker.growth.get(self.pool.name), found) or tags != self._told_tags:
            self._told_tags = tags
            self._expect(events.PoolGrows(self.pool.name, found, tags))

    # --- status --------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """Return the state of the pool: its slots, the wanted number, and why."""
        utc_s = self._now()
        pilots = self.fleet.view(self._at_work(self._workers(), utc_s))
        slots = dict.fromkeys(PilotStage, 0)
        for each in pilots:
            slots[each.stage] += each.slots
        rules, past = self.rules, self._past(utc_s)
        found = self._broker.growth.get(self.pool.name)
        return {
            "pool": self.pool.name,
            "kind": self.pool.kind,
            "wanted": self.decided.wanted,
            "slots": {str(stage): count for stage, count in slots.items()},
            "busy": sum(each.busy for each in pilots),
            "pilots": len(pilots),
            "tasks": self.work.tasks,
            "slot_s": self.work.slot_s,
            "min": rules.slots_min,
            "max": rules.slots_max,
            "attainable": found.slots if found else 0,
            "start_s": past.start_s,
            "start": self.decided.start,
            "cancel": len(self.decided.cancel),
            "drain": len(self.decided.drain),
            "why": [
                *self.decided.why,
                *self._ordering.limited(self.decided.start),
                *(
                    f"{count(pilots, 'pilot')} ending: {why}"
                    for why, pilots in Counter(
                        each.leaves for each in self.fleet.pilots.values() if each.leaves
                    ).items()
                ),
            ],
            "failures": past.failures,
            "failed": self.fleet.why,
            "barred": past.barred,
            "pilot_slots": rules.pilot_slots,
            "trouble": self.trouble,
            "dry_run": self.scale.dry_run,
        }

    def _say(self, text: str) -> None:
        self._say_it(f"pool {self.pool.name}: {text}")


def _is_news(told: PoolGrowth | None, found: PoolGrowth) -> bool:
    """Whether a pool's growth has changed; small changes of the start time do not count."""
    if told is None or told._replace(start_s=found.start_s) != found:
        return True
    return abs(found.start_s - told.start_s) > max(ROUND_S, START_STEP * told.start_s)
