"""The keeper of a pool whose workers a grid starts: it looks, asks the butler, and does as told.

    run ── every ROUND_S, and more seldom where that takes long:
    ├── grid.pilots()      every `look`, and each second while pilots are on their way
    ├── Fleet.see          what the grid shows, and which workers have come
    ├── butler.attend      how many slots there should be
    └── grid.start / stop  each in a task of its own: a grid may take its time

What is decided is in policies.butler and gateway.grids.fleet; what there is to do in the pool, in
gateway.grids.demand. The broker is told what the pool could grow to, so that plans count with it.
"""

import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from federation.money import format_money
from gateway import events
from gateway.broker import Broker
from gateway.config import PoolConfig
from gateway.faults import describe_fault
from gateway.grids.answers import checked
from gateway.grids.contract import (
    Blame,
    Capacity,
    GridFault,
    Limits,
    Order,
    Priced,
    Provisioning,
    Shape,
    Sighting,
    Stand,
)
from gateway.grids.demand import demand
from gateway.grids.fleet import AtWork, Fleet
from gateway.jobs import Worker
from gateway.worker.rules import gpus_tagged
from policies.asks import House
from policies.butler import (
    MINUTE_S,
    Growth,
    Orders,
    Past,
    Pilot,
    Rules,
    Stage,
    Work,
    attend,
    growth,
    slots_max,
)
from policies.placement import Tags

ROUND_S: Final = 0.25
ROUND_SHARE: Final = 0.05  # of the time, at most, goes into rounds
HASTE_S: Final = 1.0  # the grid is looked at so often while pilots are on their way
PRICE_STEP: Final = 0.02  # a price that changed by less is as it was
FACTS_S: Final = 30.0  # capacity and limits are asked for so often
CALL_S: Final = 60.0  # what a call to the grid may take
STOP_AGAIN_S: Final = 60.0  # who was told to stop, and has not, is told again, …
STOP_RETRY_S: Final = 10.0  # … sooner where the grid did not take it
STRANGER_S: Final = 120.0  # a worker that the grid does not show is let go after so long
CLOCK_SET_S: Final = 5.0  # a clock that is off by more was set
# What a former life had queued is kept so long, for work comes back only when clients do.
SETTLE_S: Final = 60.0
PROBE_S: Final = 60.0  # a pilot that is tried is kept so much longer than its tester waits

Expect = Callable[[events.Event], None]


class Keeper:
    """Keeps the pilots of one pool.

    Args:
        pool: whose `scale` says how it may grow.
        grid: what starts them.
        broker: whose work it is; it is only looked at.
        expect: takes events for the broker.
        utc_s: the time of day.
        say: takes lines for the operator.
        house: for what a task is taken to be, and jobs' usual objective.
        reprice: has the pool charge by another price list from now on.

    Attributes:
        round_s: how long it waits between two rounds, at least.
    """

    def __init__(
        self,
        pool: PoolConfig,
        grid: Provisioning,
        broker: Broker,
        *,
        expect: Expect,
        utc_s: Callable[[], float],
        say: Callable[[str], None],
        house: House,
        reprice: Callable[[PoolConfig], None] = lambda _: None,
    ) -> None:
        assert pool.scale is not None
        self.pool = pool
        self.grid = grid
        self.scale = pool.scale
        self._troubles: dict[str, str] = {}  # what the grid said, by what it was asked for
        self.decided = Orders(0)
        self.work = Work()
        self.fleet = Fleet(self.scale.start_s)
        self._broker = broker
        self._expect = expect
        self._utc_s = utc_s
        self._ahead_s: float | None = None  # of the time of day before the clock that only runs
        self._say_it = say
        self._house = house
        self.round_s = ROUND_S
        self._reprice = reprice
        self._charged: tuple[int, str] | None = None  # by the grid, for a slot-hour
        self._followed_nanos = 0  # what it charged when our own price was set
        self._limits = Limits()
        self._capacity: Capacity | None = None
        self._idle_since_s: dict[str, float] = {}
        self._strange_s: dict[str, float] = {}  # since when workers are here that no pilot is
        self._told_s: dict[str, float] = {}  # when pilots were told to stop
        self._orders_s: list[float] = []  # when orders of the last minute were made
        self._names = self._name_orders()
        self._kept: dict[str, float] = {}  # pilots that are not let go of before then
        self._has_looked = False
        self._seen: dict[int, tuple[str, float | None]] = {}  # by worker, what the broker was told
        self._looked_s = self._asked_s = float("-inf")

    async def run(self) -> None:
        """Keep the pool until cancelled. What it started goes on: the next life takes it up."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._tell_growth(self._workers(), self._now())
            await self._look_whether_it_works()
            while True:
                took_s = await self._round()
                await trio.sleep(max(self.round_s, took_s / ROUND_SHARE - took_s))

    def take_in(self, pool: PoolConfig) -> None:
        """Go on by other rules."""
        assert pool.scale is not None
        self.pool, self.scale = pool, pool.scale
        self._followed_nanos = 0  # the list is as it was written, until the grid is asked again

    async def probe(self, tags: Tags, wait_s: float) -> dict[str, Any]:
        """Ask the grid all that there is to ask, and have a pilot started that carries these tags.

        It is one of the pool's, and let go as all others are once it has done a task, or `wait_s`
        have passed. What fails ends it: `failed` says so.
        """
        steps: list[tuple[str, str]] = []
        asked: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("check", self.grid.check),
            ("limits", self.grid.limits),
            ("capacity", lambda: self.grid.capacity(self.shape)),
            ("pilots", self.grid.pilots),
        ]
        for what, call in asked:
            found = await self._ask(what, call)
            if found is None:
                return {"steps": steps, "failed": [what, self._troubles[what]]}
            steps.append((what, _in_words(found)))
        objection = self._objection()
        if objection:
            return {"steps": steps, "failed": ["start", objection]}
        shape = replace(self.shape, tags={**self.pool.tags, **tags})
        order = Order(next(self._names), 1, shape, self._walltime_s())
        now_s = self._now()
        self.fleet.ordered(order, now_s)
        self._kept[order.names()[0]] = now_s + wait_s + PROBE_S
        fault = await self._start(order)
        if fault:
            return {"steps": steps, "failed": ["start", fault]}
        return {"steps": steps, "failed": None, "pilot": order.names()[0]}

    def _objection(self) -> str:
        """Why no pilot can be tried now: its owner's limits hold for it too. Empty if one can."""
        if self.scale.dry_run:
            return "dry_run is set in [pool.scale]: nothing is started"
        most = slots_max(self.rules, self._past(self._now()))
        there = sum(each.slots for each in self.fleet.pilots.values())
        if there + self.rules.pilot_slots > most:
            return f"{there} of {most} slots are there: try when there are fewer, or raise max"
        return ""

    @property
    def shape(self) -> Shape:
        """What a pilot is."""
        slots, tags = self.scale.rules.pilot_slots, self.pool.tags
        return Shape(slots, self.pool.memory_bytes * slots, gpus_tagged(tags), tags)

    @property
    def trouble(self) -> str:
        """Why nothing is known of the pilots now; empty when all is well."""
        return self._troubles.get("pilots", "")

    # --- a round -------------------------------------------------------------------------------

    async def _round(self) -> float:
        """Look, decide and do as decided; how long that took, without waiting for the grid."""
        await self._look()
        began_s, now_s = trio.current_time(), self._now()
        workers = self._workers()
        at_work = self._at_work(workers, now_s)
        self.work = demand(
            *(self._broker, self.pool.name, now_s),
            *(self._house.task_s_unknown, self._house.objective),
            slots_max=self.rules.slots_max,
            start_s=self.fleet.start_s,
        )
        past = self._past(now_s)
        pilots = self._with_kept(self.fleet.view(at_work), workers, now_s)
        self.decided = attend(self.rules, pilots, self.work, past, now_s)
        self._tell_growth(workers, now_s)
        if not self.scale.dry_run and not self.trouble:
            self._carry_out(self.decided, workers, at_work, now_s)
        return trio.current_time() - began_s

    def _now(self) -> float:
        """The time of day. Where the clock was set, all that was noted by the old one is moved.

        Else pilots would stand idle, and nothing be started, until the old time comes again.
        """
        utc_s = self._utc_s()
        ahead_s = utc_s - trio.current_time()
        if self._ahead_s is None:
            self._ahead_s = ahead_s
        by_s = ahead_s - self._ahead_s
        if abs(by_s) > CLOCK_SET_S:
            self._ahead_s = ahead_s
            self.fleet.clock_set(by_s)
            for noted in (self._idle_since_s, self._told_s, self._strange_s, self._kept):
                noted.update({name: at_s + by_s for name, at_s in noted.items()})
            self._orders_s = [each + by_s for each in self._orders_s]
            self._looked_s += by_s
            self._asked_s += by_s
        return utc_s

    def _with_kept(
        self, pilots: list[Pilot], workers: Mapping[str, Worker], now_s: float
    ) -> list[Pilot]:
        """The pilots, those that are kept as if there were something to do for each."""
        if not self._kept:
            return pilots
        done = {name for name, each in workers.items() if each.tasks_done}
        self._kept = {
            name: until_s
            for name, until_s in self._kept.items()
            if name in self.fleet.pilots and name not in done and now_s < until_s
        }
        needed = {Stage.QUEUED: Stage.STARTING}
        return [
            replace(each, stage=needed.get(each.stage, each.stage), busy=max(1, each.busy))
            if each.name in self._kept
            else each
            for each in pilots
        ]

    @property
    def rules(self) -> Rules:
        """As the owner wrote them."""
        return self.scale.rules

    def _past(self, now_s: float) -> Past:
        tariff = self._broker.tariffs[self.pool.name]
        nanos, currency = self._charged or (tariff.price_nanos, tariff.currency)
        if currency != self.scale.currency:
            nanos = 0  # `hourly_cost` says nothing of it
        return replace(self.fleet.past(now_s), price_nanos=nanos)

    async def _look(self) -> None:
        now_s = self._now()
        wait_s = self.scale.look_s
        if self.fleet.is_moving:
            wait_s = min(HASTE_S, wait_s)
        if 0 <= now_s - self._looked_s < wait_s:
            return
        self._looked_s = now_s
        found = await self._ask("pilots", self.grid.pilots)
        if found is None:
            return
        workers = self._workers()
        now_s = self._now()
        self.fleet.see(found, self._at_work(workers, now_s), now_s)
        self._tell_what_was_seen(found, workers)
        if not self._has_looked:
            self._has_looked = True
            queued = (each.name for each in found if each.stand is Stand.QUEUED)
            self._kept |= dict.fromkeys(queued, now_s + SETTLE_S)
        if not 0 <= now_s - self._asked_s < FACTS_S:
            self._asked_s = now_s
            self._limits = await self._ask("limits", self.grid.limits) or self._limits
            self._capacity = await self._ask("capacity", lambda: self.grid.capacity(self.shape))
            if isinstance(self.grid, Priced):
                self._charged = await self._ask("prices", self.grid.price_nanos) or self._charged
                self._follow_price()

    def _carry_out(
        self,
        orders: Orders,
        workers: Mapping[str, Worker],
        at_work: Mapping[str, AtWork],
        now_s: float,
    ) -> None:
        if orders.start:
            self._order(orders.start, now_s)
        for order in self.fleet.unseen(now_s):
            self._nursery.start_soon(self._start, order)
        self.fleet.drained(orders.drain, now_s)
        self.fleet.stopped(orders.cancel, now_s)
        self._drain(workers, self._strangers(at_work, now_s))
        # Who was not draining when we looked may have been given something since.
        done = {
            name
            for name in self.fleet.done(at_work)
            if name not in workers or workers[name].draining
        }
        over = {*orders.cancel, *self.fleet.silent(now_s), *done}
        over = {each for each in over if now_s - self._told_s.get(each, -1e18) >= STOP_AGAIN_S}
        if over:
            self._told_s = {
                name: at_s for name, at_s in self._told_s.items() if name in self.fleet.pilots
            } | dict.fromkeys(over, now_s)
            self._nursery.start_soon(self._stop, frozenset(over))

    def _order(self, pilots: int, now_s: float) -> None:
        """Order so many, in as many orders as the grid wants them in, and takes in a minute."""
        self._orders_s = [each for each in self._orders_s if each > now_s - MINUTE_S]
        while pilots > 0 and len(self._orders_s) < self._limits.orders_max:
            left = self._limits.pilots_left
            some = min(pilots, self._limits.pilots_max, pilots if left is None else left)
            if not some:
                return  # it is full, until it is asked again
            if left is not None:
                self._limits = replace(self._limits, pilots_left=left - some)
            order = Order(next(self._names), some, self.shape, self._walltime_s())
            self._orders_s.append(now_s)
            self.fleet.ordered(order, now_s)
            self._nursery.start_soon(self._start, order)
            pilots -= some

    def _walltime_s(self) -> float | None:
        found = [each for each in (self.scale.walltime_s, self._limits.limit_s) if each is not None]
        return min(found, default=None)

    async def _start(self, order: Order) -> str:
        """Make an order; what the grid said if it did not take it, else nothing."""
        fault = None
        try:
            with trio.fail_after(CALL_S):
                await self.grid.start(order)
        except GridFault as error:
            fault = error
        except trio.TooSlowError:
            return ""  # nobody knows whether it did: it is made again when it does not show
        except Exception as error:  # noqa: BLE001 - a third party's code: the site goes on
            self._say_it(describe_fault(f"pool {self.pool.name}", error))
            fault = GridFault(Blame.AGAIN, f"its adapter broke: {type(error).__name__}")
        if fault is None:
            self._note_trouble("more pilots", "")
            return ""
        if fault.is_full:
            self._limits = replace(self._limits, pilots_left=0)
            self._note_trouble("more pilots", str(fault))
            self.fleet.refused(order, str(fault), self._now(), is_full=True)
            return str(fault)
        self.fleet.refused(order, str(fault), self._now())
        self._say(f"no pilot was started: {fault}")
        return str(fault)

    async def _stop(self, names: Collection[str]) -> None:
        async def stop() -> str:
            await self.grid.stop(names)
            return "told"

        if await self._ask("stop", stop) is None:
            again_s = self._now() - STOP_AGAIN_S + STOP_RETRY_S
            self._told_s |= dict.fromkeys(names, again_s)

    async def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """What the grid answers; None when it doesn't, which is said once."""
        try:
            with trio.fail_after(CALL_S):
                found = checked(what, await call())
        except GridFault as error:
            self._note_trouble(what, str(error))
        except trio.TooSlowError:
            self._note_trouble(what, f"it took more than {CALL_S:.0f} s to answer")
        except Exception as error:  # noqa: BLE001 - a third party's code: the site goes on
            self._note_trouble(what, describe_fault("its adapter", error))
        else:
            self._note_trouble(what, "")
            return found
        return None

    def _note_trouble(self, what: str, text: str) -> None:
        before = self._troubles.get(what, "")
        if text and text != before:
            self._say(f"its grid was asked for {what}: {text}")
        elif before and not text:
            self._say(f"its grid answers again when asked for {what}")
        self._troubles[what] = text

    async def _look_whether_it_works(self) -> None:
        text = await self._ask("check", self.grid.check)
        if text is not None:
            self._say(text)

    def _follow_price(self) -> None:
        """Charge what the grid charges, times the markup; small changes are not passed on."""
        markup = self.scale.markup
        if markup is None or self._charged is None:
            return
        nanos, currency = self._charged
        ours = self._broker.tariffs[self.pool.name].currency
        if currency != ours:
            self._note_trouble("prices", f"it charges in {currency}, and this pool in {ours}")
        elif abs(nanos - self._followed_nanos) > PRICE_STEP * self._followed_nanos:
            self._followed_nanos = nanos
            price = format_money(round(nanos * markup), currency)
            # A version that its owner has written stands for the price that he has written.
            tariff = {key: each for key, each in self.pool.tariff.items() if key != "version"}
            self._reprice(replace(self.pool, price=price, tariff=tariff))
            self._say(f"a slot-hour is {price} from now on")

    # --- what the broker knows, and is told ----------------------------------------------------

    def _workers(self) -> dict[str, Worker]:
        """The pool's workers, by name."""
        return {
            each.name: each
            for each in self._broker.workers.values()
            if each.offer.pool == self.pool.name and not each.job
        }

    def _at_work(self, workers: Mapping[str, Worker], now_s: float) -> dict[str, AtWork]:
        idle = {
            name: self._idle_since_s.get(name, now_s)
            for name, each in workers.items()
            if not each.in_flight
        }
        self._idle_since_s = idle
        return {
            name: AtWork(
                each.slots,
                min(each.slots, each.in_flight),
                idle.get(name, now_s),
                max(0.0, each.long * now_s - each.given_s),
            )
            for name, each in workers.items()
        }

    def _strangers(self, at_work: Mapping[str, AtWork], now_s: float) -> list[str]:
        """Workers that are no pilots of ours, and have been here for long.

        They are another mark's, of a gateway whose state lay elsewhere: the grid does not show them
        to us, so nobody would ever stop them. One that is drained ends.
        """
        strange = at_work.keys() - self.fleet.pilots.keys()
        self._strange_s = {name: self._strange_s.get(name, now_s) for name in strange}
        found = [name for name, at_s in self._strange_s.items() if now_s - at_s >= STRANGER_S]
        for name in found:
            self._say(f"its grid does not show worker {name}, so that is let go")
            self._strange_s[name] = now_s
        return found

    def _drain(self, workers: Mapping[str, Worker], strangers: Collection[str]) -> None:
        """Give no more to whoever is let go, or taken from us; also when it has dialled again."""
        for name, worker in workers.items():
            known = self.fleet.pilots.get(name)
            is_over = known is not None and known.stage is Stage.DRAINING
            if (is_over or name in strangers) and not worker.draining:
                self._expect(events.DrainAsked(worker.handle, on=True))

    def _tell_what_was_seen(
        self, found: Collection[Sighting], workers: Mapping[str, Worker]
    ) -> None:
        """Tell the broker the grid's names of workers, and when it will stop them."""
        told: dict[int, tuple[str, float | None]] = {}
        for each in found:
            worker = workers.get(each.name)
            if worker is not None:
                told[worker.handle] = each.grid_id, each.ends_s
                if self._seen.get(worker.handle) != told[worker.handle]:
                    self._expect(events.PilotSeen(worker.handle, each.grid_id, each.ends_s))
        self._seen = told

    def _tell_growth(self, workers: Mapping[str, Worker], now_s: float) -> None:
        there = sum(each.slots for each in workers.values() if not each.draining)
        there += sum(
            each.slots for each in self.fleet.pilots.values() if each.stage is Stage.DRAINING
        )
        coming = self.fleet.slots_coming
        attainable, begins_s = None, None
        if self._capacity is not None:
            attainable, begins_s = self._capacity.slots_max, self._capacity.begins_s
            if self._capacity.slots_now:
                begins_s = None
        found = growth(self.rules, self._past(now_s), there, coming, attainable, now_s)
        if begins_s is not None and begins_s > now_s:
            found = found._replace(start_s=found.start_s + begins_s - now_s)
        if self.trouble or self.scale.dry_run:
            found = Growth(0, 0.0, 0.0)
        found = found._replace(start_s=round(found.start_s, 1))
        if self._broker.growth.get(self.pool.name) != found:
            self._expect(events.PoolGrows(self.pool.name, found))

    # --- for people ----------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """How the pool stands: what there is, what there should be, and why."""
        now_s = self._now()
        pilots = self.fleet.view(self._at_work(self._workers(), now_s))
        slots = dict.fromkeys(Stage, 0)
        for each in pilots:
            slots[each.stage] += each.slots
        rules, past = self.rules, self._past(now_s)
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
            "why": [*self.decided.why, *self._limited()],
            "failures": past.failures,
            "failed": self.fleet.why,
            "trouble": self.trouble,
            "dry_run": self.scale.dry_run,
        }

    def _limited(self) -> list[str]:
        left = self._limits.pilots_left
        if left is None or self.decided.start <= left:
            return []
        return [f"its grid takes {left:,} pilots more now"]

    def _name_orders(self) -> Iterator[str]:
        """Names that no other order has, in this life or another: the first ends by the clock."""
        life = f"{int(self._now() * 1000):x}"
        return (f"{life}-{number}" for number in itertools.count(1))

    def _say(self, text: str) -> None:
        self._say_it(f"pool {self.pool.name}: {text}")


def _in_words(found: Any) -> str:
    match found:
        case str():
            return found
        case Limits():
            ends = "for ever" if found.limit_s is None else f"{found.limit_s:,.0f} s"
            said = f"{found.pilots_max:,} pilots an order, {found.orders_max} a minute, each {ends}"
            return said + ("" if found.pilots_left is None else f"; {found.pilots_left:,} more now")
        case Capacity():
            most = "any number" if found.slots_max is None else f"{found.slots_max:,}"
            return f"{found.slots_now:,} slots more would begin at once, {most} in time"
        case _:
            return f"{len(found):,} are there"
