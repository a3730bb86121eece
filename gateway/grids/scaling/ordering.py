"""A pool controller's calls to its grid: lists and limits, orders for pilots, and stops.

A grid may be a third party's, slow, or wrong. Each call has a time limit, an invalid answer is the
grid's fault like any other, and a fault is reported once, as is its end.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio

from federation.clocks import UtcS
from federation.words import count, duration_text
from gateway.base.faults import describe_fault
from gateway.config.environments import gpus_tagged
from gateway.config.site import PoolConfig
from gateway.grids.answers import checked
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    Limits,
    Maintained,
    Order,
    PilotState,
    Priced,
    Provisioning,
    Shape,
)
from gateway.grids.scaling.fleet import Fleet, order_of
from policies.placement.autoscaling import MINUTE_S
from policies.placement.placement import Tags

CALL_S: Final = 60.0  # the time limit of a call to the grid
# a pilot that was told to stop, and has not, is told again after this time, …
STOP_AGAIN_S: Final = 60.0
STOP_RETRY_S: Final = 10.0  # … sooner if the grid did not accept it
SAY_S: Final = 10.0  # the least interval between reports of orders and stops


class Ordering:
    """Queries one grid, and has it start and stop pilots.

    Args:
        fleet: told of orders and refusals.
        utc_s: the time of day.
        say: takes lines for the operator.

    Attributes:
        pool: its present configuration.
        limits: the grid's own, as far as they are known.
        charged: by the grid, for a slot-hour.
        troubles: the grid's faults, by the call; empty: all is well.
    """

    def __init__(
        self,
        pool: PoolConfig,
        grid: Provisioning,
        fleet: Fleet,
        utc_s: Callable[[], UtcS],
        say: Callable[[str], None],
    ) -> None:
        self.pool = pool
        self.grid = grid
        self.limits = Limits()
        self.charged: tuple[int, str] | None = None
        self.troubles: dict[str, str] = {}
        self._fleet = fleet
        self._utc_s = utc_s
        self._say = say
        self._capacity: Capacity | None = None
        # The slots that it could give, including our visible ones; None: unknown.
        self._with_ours: int | None = None
        self._told_at_s: dict[str, UtcS] = {}  # when pilots were told to stop
        self._starting: dict[str, int] = {}  # orders being sent to the grid: how often
        self._orders_at_s: list[UtcS] = []  # when orders of the last minute were made
        self._names = self._name_orders()

    @property
    def shape(self) -> Shape:
        """The properties of a pilot."""
        assert self.pool.scale is not None
        slots, tags = self.pool.scale.rules.pilot_slots, self.pool.tags
        return Shape(slots, self.pool.memory_bytes * slots, gpus_tagged(tags), tags)

    def clock_set(self, by_s: float) -> None:
        """Shift all noted times, as the time of day was set."""
        self._told_at_s = {name: at_s + by_s for name, at_s in self._told_at_s.items()}
        self._orders_at_s = [each + by_s for each in self._orders_at_s]

    # --- questions -----------------------------------------------------------------------------

    async def ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Return the grid's answer; None for a fault, which is reported once."""
        try:
            with trio.fail_after(CALL_S):
                found = checked(what, await call())
        except GridFault as error:
            self.note_trouble(what, str(error))
        except trio.TooSlowError:
            self.note_trouble(what, f"the adapter did not answer within {duration_text(CALL_S)}")
        except Exception as error:  # noqa: BLE001 - a third party's code: the site goes on
            self.note_trouble(what, describe_fault("the adapter", error))
        else:
            self.note_trouble(what, "")
            return found
        return None

    def note_trouble(self, what: str, text: str) -> None:
        """Note a fault of a call; empty: none."""
        before = self.troubles.get(what, "")
        if text and text != before:
            self._say(f"`{what}` of the grid failed: {text}")
        elif before and not text:
            self._say(f"`{what}` of the grid works again")
        self.troubles[what] = text

    async def ask_facts(self) -> None:
        """Ask for the grid's limits, capacity and price."""
        self.limits = await self.ask("limits", self.grid.limits) or self.limits
        known = self._capacity = await self.ask("capacity", lambda: self.grid.capacity(self.shape))
        self._with_ours = None
        if known is not None and known.slots_max is not None:
            self._with_ours = known.slots_max + self._fleet.slots(is_shown=True)
        if isinstance(self.grid, Priced):
            self.charged = await self.ask("prices", self.grid.price_nanos) or self.charged

    async def ask_leaving(self) -> Mapping[str, str] | None:
        """Ask which pilots the grid wants to end, and why; None: as before, or it never tells."""
        if not isinstance(self.grid, Maintained):
            return None
        found: Mapping[str, str] | None = await self.ask("leaving", self.grid.leaving)
        return found

    @property
    def attainable(self) -> int | None:
        """The slots that the grid could give beyond those ordered; None: unknown.

        The grid is asked seldom: later orders are subtracted, and ended pilots added.
        """
        if self._with_ours is None:
            return None
        return max(0, self._with_ours - self._fleet.slots())

    def wait_s(self, utc_s: UtcS) -> float:
        """Return the time until the grid would begin further pilots, as far as it is known."""
        known = self._capacity
        if known is None or known.slots_now or known.begins_at_s is None:
            return 0.0
        return max(0.0, known.begins_at_s - utc_s)

    # --- orders --------------------------------------------------------------------------------

    def order(self, pilots: int, utc_s: UtcS) -> list[Order]:
        """Return new orders for pilots, as many and as large as the grid takes in a minute."""
        self._orders_at_s = [each for each in self._orders_at_s if each > utc_s - MINUTE_S]
        made: list[Order] = []
        while pilots > 0 and len(self._orders_at_s) < self.limits.orders_max:
            left = self.limits.pilots_left
            some = min(pilots, self.limits.pilots_max, pilots if left is None else left)
            if not some:
                break  # it is full, until it is asked again
            if left is not None:
                self.limits = replace(self.limits, pilots_left=left - some)
            self._orders_at_s.append(utc_s)
            made.append(self._new(some, self.shape, utc_s))
            pilots -= some
        return made

    def limited(self, pilots: int) -> list[str]:
        """Return why fewer pilots are ordered, if the grid takes no more."""
        left = self.limits.pilots_left
        return (
            [] if left is None or pilots <= left else [f"the grid accepts {left:,} more pilots now"]
        )

    def order_one(self, tags: Tags, utc_s: UtcS) -> Order:
        """Return a new order for one pilot that carries these tags beside the pool's."""
        return self._new(1, replace(self.shape, tags={**self.pool.tags, **tags}), utc_s)

    def _new(self, pilots: int, shape: Shape, utc_s: UtcS) -> Order:
        order = Order(next(self._names), pilots, shape, self.walltime_s)
        self._fleet.ordered(order, utc_s)
        return order

    @property
    def walltime_s(self) -> float | None:
        """How long a pilot may run; None: for ever."""
        assert self.pool.scale is not None
        both = self.pool.scale.walltime_s, self.limits.limit_s
        return min((each for each in both if each is not None), default=None)

    async def start(self, order: Order) -> str:
        """Make an order; return the grid's reason if it refused, else ""."""
        self._starting[order.name] = self._starting.get(order.name, 0) + 1
        try:
            return await self._start(order)
        finally:
            self._starting[order.name] -= 1
            if not self._starting[order.name]:
                del self._starting[order.name]

    async def _start(self, order: Order) -> str:
        try:
            with trio.fail_after(CALL_S):
                await self.grid.start(order)
            self.note_trouble("start", "")
            return ""
        except GridFault as error:
            fault = error
        except trio.TooSlowError:
            return ""  # the outcome is unknown: the order is made again if it does not show
        except Exception as error:  # noqa: BLE001 - a third party's code: the site goes on
            self._say(describe_fault("the adapter", error))
            fault = GridFault(FailureClass.AGAIN, f"the adapter failed: {type(error).__name__}")
        self._fleet.refused(order, fault, self._utc_s())
        if fault.is_full:
            self.limits = replace(self.limits, pilots_left=0)
            self.note_trouble("start", str(fault))
        else:
            more = "; no pilots are started until `gridfed reload` or `gridfed pool test`"
            self._say(
                f"no pilot was started: {fault}{more * (fault.failure_class is FailureClass.NEVER)}"
            )
        return str(fault)

    # --- stopping pilots -----------------------------------------------------------------------

    def to_tell(self, names: Collection[str], utc_s: UtcS) -> frozenset[str]:
        """Return those pilots of `names` that are to be told to stop now.

        Not while their order is being made: the grid would find nothing to stop, and start them.
        """
        over = {
            name
            for name in names
            if not utc_s - self._told_at_s.get(name, UtcS(-1e18)) < STOP_AGAIN_S
            and not self._is_being_started(name)
        }
        if over:
            self._told_at_s = {
                name: at_s for name, at_s in self._told_at_s.items() if name in self._fleet.pilots
            } | dict.fromkeys(over, utc_s)
        return frozenset(over)

    def _is_being_started(self, name: str) -> bool:
        known = self._fleet.pilots.get(name)
        is_shown = known is not None and known.sighting is not None
        return not is_shown and order_of(name) in self._starting

    def was_told(self, name: str) -> bool:
        """Whether a pilot was told to stop."""
        return name in self._told_at_s

    async def stop(self, names: Collection[str]) -> None:
        """Have pilots stopped."""

        async def stop() -> str:
            await self.grid.stop(names)
            return "told"

        if await self.ask("stop", stop) is None:
            again_s = self._utc_s() - STOP_AGAIN_S + STOP_RETRY_S
            self._told_at_s |= dict.fromkeys(names, again_s)

    def _name_orders(self) -> Iterator[str]:
        """Yield unique names of orders: the first part is the time of this run of the site."""
        life = f"{int(self._utc_s() * 1000):x}"
        return (f"{life}-{number}" for number in itertools.count(1))


@dataclass(slots=True)
class Tidings:
    """Reports orders and releases: at once, and then batched."""

    say: Callable[[str], None]
    said_at_s: UtcS = UtcS("-inf")
    _waiting: dict[str, tuple[int, str]] = field(default_factory=dict)  # how many, and why

    def add(self, what: str, pilots: int, why: str) -> None:
        """Add pilots to the next report; their last reason stands for all."""
        if pilots:
            self._waiting[what] = self._waiting.get(what, (0, ""))[0] + pilots, why

    def tell(self, utc_s: UtcS) -> None:
        """Report the batch, if it is time."""
        if self._waiting and not 0 <= utc_s - self.said_at_s < SAY_S:
            self.said_at_s = utc_s
            for what, (pilots, why) in self._waiting.items():
                self.say(f"{count(pilots, 'pilot')} {what} ({why})")
            self._waiting.clear()


def in_words(found: Any) -> str:
    """Format a grid's answer as text."""
    match found:
        case str():
            return found
        case Limits():
            ends = (
                "no time limit"
                if found.limit_s is None
                else f"a time limit of {duration_text(found.limit_s)}"
            )
            said = (
                f"{found.pilots_max:,} pilots an order, {found.orders_max} orders a minute, {ends}"
            )
            return said + ("" if found.pilots_left is None else f"; {found.pilots_left:,} more now")
        case Capacity():
            most = "any number" if found.slots_max is None else f"{found.slots_max:,}"
            return f"{found.slots_now:,} more slots would start at once, {most} in all"
        case _:
            there = [each for each in found if each.state is not PilotState.ENDED]
            return f"{len(there):,} exist"
