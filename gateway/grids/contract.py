"""What a grid is to its gateway: the contract that every adapter keeps.

A *provisioning* grid starts and stops our own workers, called pilots. A pilot is a worker agent
with some slots that dials the gateway once the grid runs it; tasks are given to it late, as to any
worker. What is asked for is an *order*: so many pilots of one shape.

    keeper ── start(order) ──► grid        a job array, a fleet of instances
    keeper ◄── pilots() ────── grid        all of ours, also those of former lives
    keeper ── stop(names) ───► grid
    worker ── hello ─────────► gateway     by the pilot's name

*The grid's own list is the truth.* Each pilot carries our owner's mark (`Launch.mark`) and its
name in whatever the grid has for that (a job's name, an instance's tags), so nothing of it is kept
in our books: a gateway that starts again finds what it had, and what nobody needs is let go. An
order's name is new in each life, and for ever: to start the same order twice is to start it once.

A kind of grid is an entry point of the group `gridfed.grids` that names a `GridKind`: what reads
its table `[pool.KIND]` of the configuration, and what opens it. Ours are entry points too.

*Delegating* grids hand bundles to an engine that has its own workers: see gateway.grids.delegating.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from gateway.interpreter import run_module
from policies.placement import TagValue, show_tags

PILOT_MARK: Final = "."  # between an order's name and a pilot's number
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,40}", re.ASCII)


class Stand(StrEnum):
    """How far a pilot is, as its grid tells."""

    QUEUED = "queued"  # it waits there, and costs nothing
    STARTING = "starting"  # a host is being made ready for it
    RUNNING = "running"
    ENDING = "ending"  # it was told to stop, or it is being taken from us
    ENDED = "ended"


class Blame(StrEnum):
    """What becomes of an order that a grid did not fulfil."""

    AGAIN = "again"  # the same may work later: a rate limit, a controller that restarts
    ELSEWHERE = "elsewhere"  # not here and now: no capacity, a quota
    NEVER = "never"  # until somebody changes something: a wrong partition, no permission


class GridFault(Exception):
    """A grid did not do what was asked; the text says what is wrong, and what to do about it.

    Attributes:
        is_full: it has as many of ours as it takes: an order waits for its turn, nothing failed.
    """

    def __init__(self, blame: Blame, text: str, *, is_full: bool = False) -> None:
        super().__init__(text)
        self.blame = blame
        self.is_full = is_full


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pilot is. Amounts are of the whole pilot; 0: the grid's own."""

    slots: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    tags: Mapping[str, TagValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """So many pilots of one shape.

    Attributes:
        name: no other order ever has it. Letters, digits and "-" alone, no more than 40.
        limit_s: the grid may stop them after so long; None: it need not.
    """

    name: str
    pilots: int
    shape: Shape
    limit_s: float | None = None

    def names(self) -> tuple[str, ...]:
        """The pilots, by name."""
        return tuple(f"{self.name}{PILOT_MARK}{at}" for at in range(self.pilots))


@dataclass(frozen=True, slots=True)
class Sighting:
    """A pilot, as its grid shows it. Moments are UTC; None where the grid does not say.

    Attributes:
        grid_id: the grid's own name for it.
        paid_s: since when it costs.
        begins_s: when it is expected to begin.
        ends_s: when the grid will stop it.
        fault: why it ended, or will: what the grid says of it.
    """

    name: str
    stand: Stand
    grid_id: str
    slots: int
    paid_s: float | None = None
    begins_s: float | None = None
    ends_s: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a grid could give us.

    Attributes:
        slots_now: more, that would begin at once.
        slots_max: more, sooner or later; None: as many as we pay for.
        begins_s: when the first would that don't begin at once (UTC); None: nobody knows.
    """

    slots_now: int
    slots_max: int | None = None
    begins_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The grid's own limits.

    Attributes:
        pilots_max: of one order.
        orders_max: in a minute.
        limit_s: that a pilot may run; None: for ever.
        pilots_left: that it takes now beside those that there are; None: any number.
    """

    pilots_max: int = 1_000
    orders_max: int = 60
    limit_s: float | None = None
    pilots_left: int | None = None


def check_order(order: Order, limits: Limits) -> None:
    """Refuse an order that no grid may be given: for the beginning of each `start`.

    Raises GridFault, which says NEVER: the name may end in commands and in files.
    """
    if not _NAME.fullmatch(order.name):
        text = f"{order.name[:60]!r} is no order's name: letters, digits and '-', no more than 40"
        raise GridFault(Blame.NEVER, text)
    if order.shape.slots < 1:
        raise GridFault(Blame.NEVER, f"a pilot has one slot or more, not {order.shape.slots}")
    if not 1 <= order.pilots <= limits.pilots_max:
        text = f"an order has 1 to {limits.pilots_max} pilots here, not {order.pilots}"
        raise GridFault(Blame.NEVER, text)


@dataclass(frozen=True, slots=True)
class Launch:
    """For whom a grid runs pilots, and how one is started.

    Attributes:
        mark: ours: the same in each life of this gateway and pool, and no other's. Letters, digits
            and "-" alone, no more than 40.
        address: the gateway's, as pilots dial it.
        environment: what a pilot needs beside its command, secrets among it: to be handed over so
            that neither a log nor a list of processes shows it.
        folder: for the grid's own files, ours alone; it is there.
        say: takes a line for the operator.
        dial_s: how long a pilot looks for its gateway before it ends by itself. What a gateway that
            never comes back had started is so gone and not billed any more.
        options: more of a pilot's command: what its slots may use, and run in.
    """

    site: str
    pool: str
    mark: str
    address: str
    environment: Mapping[str, str]
    folder: Path
    say: Callable[[str], None]
    dial_s: float = 300.0
    options: tuple[str, ...] = ()

    def command(self, name: str, shape: Shape, python: str = sys.executable) -> list[str]:
        """What runs a pilot. `name` may be an expression that the grid's shell works out.

        `python` is the interpreter there, of an environment that has gridfed in it.
        """
        tags = ["--tags", show_tags(shape.tags)] if shape.tags else []
        return [
            *run_module("gateway.worker.agent", python=python),
            *("--gateway", self.address),
            *("--pool", self.pool, "--name", name, "--slots", str(shape.slots)),
            *("--memory", str(shape.memory_bytes // max(1, shape.slots))),
            *("--give-up-s", f"{self.dial_s:g}", *tags, *self.options),
        ]


class Provisioning(Protocol):
    """A grid that runs pilots. Each call may take its time, and raises GridFault, and no other."""

    async def check(self) -> str:
        """Look whether orders could be fulfilled: what the grid is, in words."""
        ...

    async def limits(self) -> Limits:
        """The grid's own limits, as of now."""
        ...

    async def capacity(self, shape: Shape) -> Capacity:
        """What it could give us of a shape."""
        ...

    async def pilots(self) -> Sequence[Sighting]:
        """All pilots of ours that it knows of and that have not long ended."""
        ...

    async def start(self, order: Order) -> None:
        """Have an order fulfilled. One that is known already is left as it is."""
        ...

    async def stop(self, names: Collection[str]) -> None:
        """Stop pilots, whatever they are at; those that are not there are stopped already."""
        ...


@runtime_checkable
class Priced(Protocol):
    """Beside Provisioning, of a grid whose prices change by themselves."""

    async def price_nanos(self) -> tuple[int, str] | None:
        """What a slot-hour costs there now, and the currency; None: it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class GridKind:
    """A kind of grid.

    Attributes:
        read: reads the table `[pool.KIND]`; KnobError says which key is wrong and what it may be.
        open: opens a grid by what `read` returned; nothing is asked of it yet.
        needs: the extra of `gridfed` that brings the libraries it imports; empty: none.
        is_here: its pilots run on the gateway's own host, where they can dial what others can't.
    """

    name: str
    read: Callable[[Mapping[str, Any]], Any]
    open: Callable[[Any, Launch], Provisioning]
    needs: str = ""
    is_here: bool = False
