"""The contract between a gateway and a grid, which every adapter keeps.

A *provisioning* grid starts and stops our own workers, called pilots. A pilot is a worker agent
with some slots that dials the gateway once the grid runs it; tasks are bound to it late, as to any
worker. The unit of a request is an *order*: a number of pilots of one shape.

    controller ── start(order) ──► grid    a job array, a fleet of instances
    controller ◄── pilots() ────── grid    all of ours, also those of former runs
    controller ── stop(names) ───► grid
    worker     ── hello ─────────► gateway by the pilot's name

*The grid's own list is the truth.* Each pilot carries its owner's mark (`Launch.mark`) and its name
in a field of the grid (a job's name, an instance's tags), so our books keep no pilots: a gateway
that restarts finds its pilots, and releases those that are not needed. The name of an order is
unique across all runs of the gateway: starting the same order twice starts it once.

A kind of grid is an entry point of the group `gridfed.grids` that names a `GridKind`: it reads its
table `[pool.KIND]` of the configuration, and opens the grid. Our own kinds are entry points too.

*Delegating* grids hand bundles to an engine that has its own workers: see gateway.grids.delegating.
"""

import functools
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from federation.clocks import UtcS
from gateway.base.interpreter import run_module
from policies.placement.placement import TagValue, show_tags

PILOT_MARK: Final = "."  # between an order's name and a pilot's number
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,40}", re.ASCII)


class PilotState(StrEnum):
    """The state of a pilot, as its grid reports it."""

    QUEUED = "queued"  # it is queued there, and costs nothing
    STARTING = "starting"  # a host is being prepared for it
    RUNNING = "running"
    ENDING = "ending"  # it was told to stop, or the grid is taking it away
    ENDED = "ended"


class FailureClass(StrEnum):
    """The prospects of an order that a grid did not fulfil."""

    AGAIN = "again"  # the same may work later: a rate limit, a controller that restarts
    ELSEWHERE = "elsewhere"  # not here and now: no capacity, a quota
    NEVER = "never"  # until something is changed: a wrong partition, no permission


class GridFault(Exception):
    """A grid failed to carry out a request; the text says what is wrong, and gives advice.

    Attributes:
        failure_class: whether it may succeed later, elsewhere, or not before a change.
        is_full: the grid takes no more of our pilots: the order waits for its turn, nothing failed.
    """

    def __init__(self, failure_class: FailureClass, text: str, *, is_full: bool = False) -> None:
        super().__init__(text)
        self.failure_class = failure_class
        self.is_full = is_full

    @property
    def blame(self) -> FailureClass:
        """The former name of `failure_class`; it warns."""
        _warn_renamed("GridFault.blame", "failure_class")
        return self.failure_class


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a pilot. Amounts are of the whole pilot; 0: the grid's own."""

    slots: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    tags: Mapping[str, TagValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """A number of pilots of one shape.

    Attributes:
        name: unique for ever. Letters, digits and "-" only, no more than 40.
        limit_s: the grid may stop them after this time; None: it need not.
    """

    name: str
    pilots: int
    shape: Shape
    limit_s: float | None = None

    def names(self) -> tuple[str, ...]:
        """Return the names of the pilots."""
        return tuple(f"{self.name}{PILOT_MARK}{at}" for at in range(self.pilots))


@dataclass(frozen=True, slots=True)
class Sighting:
    """A pilot, as its grid reports it. Instants are None where the grid gives none.

    Attributes:
        state: where it is in its life; a pilot never returns to an earlier state.
        grid_id: the grid's own name for it.
        paid_at_s: since when it costs.
        begins_at_s: when it is expected to begin.
        ends_at_s: when the grid will stop it.
        fault: why it ended, or will: the grid's reason.
    """

    name: str
    state: PilotState
    grid_id: str
    slots: int
    paid_at_s: UtcS | None = None
    begins_at_s: UtcS | None = None
    ends_at_s: UtcS | None = None
    fault: str = ""

    @property
    def stand(self) -> PilotState:
        """The former name of `state`; it warns, as does the argument of that name."""
        _warn_renamed("Sighting.stand", "state")
        return self.state

    @property
    def paid_s(self) -> UtcS | None:
        """The former name of `paid_at_s`; it warns, as does the argument of that name."""
        _warn_renamed("Sighting.paid_s", "paid_at_s")
        return self.paid_at_s

    @property
    def begins_s(self) -> UtcS | None:
        """The former name of `begins_at_s`; it warns, as does the argument of that name."""
        _warn_renamed("Sighting.begins_s", "begins_at_s")
        return self.begins_at_s

    @property
    def ends_s(self) -> UtcS | None:
        """The former name of `ends_at_s`; it warns, as does the argument of that name."""
        _warn_renamed("Sighting.ends_s", "ends_at_s")
        return self.ends_at_s


@dataclass(frozen=True, slots=True)
class Capacity:
    """The slots that a grid could give us.

    Attributes:
        slots_now: more, that would begin at once.
        slots_max: more, sooner or later; None: as many as we pay for.
        begins_at_s: when the first of those would that don't begin at once; None: unknown.
    """

    slots_now: int
    slots_max: int | None = None
    begins_at_s: UtcS | None = None

    @property
    def begins_s(self) -> UtcS | None:
        """The former name of `begins_at_s`; it warns, as does the argument of that name."""
        _warn_renamed("Capacity.begins_s", "begins_at_s")
        return self.begins_at_s


@dataclass(frozen=True, slots=True)
class Limits:
    """The grid's own limits.

    Attributes:
        pilots_max: of one order.
        orders_max: in a minute.
        limit_s: the time that a pilot may run; None: for ever.
        pilots_left: the number that it takes now beside the existing ones; None: any number.
    """

    pilots_max: int = 1_000
    orders_max: int = 60
    limit_s: float | None = None
    pilots_left: int | None = None


def check_order(order: Order, limits: Limits) -> None:
    """Refuse an invalid order: for the beginning of each `start`.

    Raises GridFault with NEVER: the name may end up in commands and in files.
    """
    if not _NAME.fullmatch(order.name):
        text = (
            f"{order.name[:60]!r} is not a valid order name: use at most 40 letters, digits and '-'"
        )
        raise GridFault(FailureClass.NEVER, text)
    if order.shape.slots < 1:
        raise GridFault(
            FailureClass.NEVER, f"a pilot needs at least one slot, not {order.shape.slots}"
        )
    if not 1 <= order.pilots <= limits.pilots_max:
        text = f"an order must have 1 to {limits.pilots_max} pilots here, not {order.pilots}"
        raise GridFault(FailureClass.NEVER, text)


@dataclass(frozen=True, slots=True)
class Launch:
    """The owner of a grid's pilots, and how one is started.

    Attributes:
        mark: ours: the same in each run of this gateway and pool, and no other's. Letters, digits
            and "-" only, no more than 40.
        address: the gateway's, as pilots dial it.
        environment: variables of a pilot, secrets among them: to be handed over so that neither a
            log nor a list of processes shows them.
        folder: for the grid's own files, ours alone; it exists.
        say: takes a line for the operator.
        dial_s: how long a pilot looks for its gateway before it ends by itself. This ends the
            pilots of a gateway that never comes back, and their bills.
        options: further options of a pilot's command: resources and environments of its slots.
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
        """Return the command of a pilot. `name` may be an expression for the grid's shell.

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
    """A grid that runs pilots. Each call may take long, and raises only GridFault."""

    async def check(self) -> str:
        """Check whether orders could be fulfilled; return a description of the grid."""
        ...

    async def limits(self) -> Limits:
        """Return the grid's own limits, as of now."""
        ...

    async def capacity(self, shape: Shape) -> Capacity:
        """Return the capacity for a shape."""
        ...

    async def pilots(self) -> Sequence[Sighting]:
        """Return all pilots of ours that it knows of, except those that ended long ago."""
        ...

    async def start(self, order: Order) -> None:
        """Start the pilots of an order. A known order is left as it is."""
        ...

    async def stop(self, names: Collection[str]) -> None:
        """Stop pilots, even at work; absent ones count as stopped."""
        ...


@runtime_checkable
class Priced(Protocol):
    """Optional beside Provisioning: a grid whose prices change by themselves."""

    async def price_nanos(self) -> tuple[int, str] | None:
        """Return the present price of a slot-hour, and the currency; None: unknown."""
        ...


@runtime_checkable
class Maintained(Protocol):
    """Optional beside Provisioning: a grid that takes hosts out of service under running pilots.

    Slurm drains nodes, HTCondor startds; Kubernetes cordons nodes; EC2 announces maintenance of
    instances. Their pilots may go on running, for days: only the grid knows that they should end.
    """

    async def leaving(self) -> Mapping[str, str]:
        """Return the pilots that are to end, by name, each with the grid's reason.

        Such a pilot gets no new task; its running ones end, and then it is stopped. One that is no
        longer named before that gets tasks again. Names of ended or unknown pilots do no harm.
        Asked after `pilots`, at most once in each `look` of `[pool.scale]`; raises GridFault, and
        then the last answer stands.
        """
        ...


@dataclass(frozen=True, slots=True)
class GridKind:
    """A kind of grid.

    Attributes:
        read: reads the table `[pool.KIND]`; SettingError names the wrong key and its valid values.
        open: opens a grid with the result of `read`, without contacting it yet.
        needs: the extra of `gridfed` that brings the libraries it imports; empty: none.
        is_here: its pilots run on the gateway's own host, where they can dial local addresses.
        example: TOML of a pool of this kind, which `gridfed init` writes, commented out.
    """

    name: str
    read: Callable[[Mapping[str, Any]], Any]
    open: Callable[[Any, Launch], Provisioning]
    needs: str = ""
    is_here: bool = False
    example: str = ""


def _warn_renamed(former: str, name: str) -> None:
    """Warn the caller of our caller that a name has changed."""
    text = f"{__name__}.{former} is named {name} now"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def _renamed_arguments(
    create: Callable[..., None], names: Mapping[str, str]
) -> Callable[..., None]:
    """Have an `__init__` accept arguments by their former names as well, with a warning.

    `names` are the present names by the former ones. `dataclasses.replace` passes both: the former
    name is the one that the caller wrote.
    """

    @functools.wraps(create)
    def wrapped(self: object, *args: Any, **kwargs: Any) -> None:
        for former in names.keys() & kwargs.keys():
            _warn_renamed(f"{type(self).__name__}({former}=…)", names[former])
            kwargs[names[former]] = kwargs.pop(former)
        create(self, *args, **kwargs)

    return wrapped


# Grids of third parties use the former names.
_INSTANTS: Final = {
    "paid_s": "paid_at_s",
    "begins_s": "begins_at_s",
    "ends_s": "ends_at_s",
}
Sighting.__init__ = _renamed_arguments(Sighting.__init__, {"stand": "state", **_INSTANTS})  # type: ignore[method-assign]
Capacity.__init__ = _renamed_arguments(Capacity.__init__, {"begins_s": "begins_at_s"})  # type: ignore[method-assign]
GridFault.__init__ = _renamed_arguments(GridFault.__init__, {"blame": "failure_class"})  # type: ignore[method-assign]


def __getattr__(name: str) -> Any:
    """Give grids of third parties the classes by their former names, with a warning."""
    renamed = {"Stand": PilotState, "Blame": FailureClass}
    if name not in renamed:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _warn_renamed(name, renamed[name].__name__)
    return renamed[name]
