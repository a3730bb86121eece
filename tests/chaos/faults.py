"""The record of a fault; the kinds are in kills.py, outages.py and operations.py.

A kind is one small object. Each happens in a *lane*: faults of one lane come one after the other,
those of different lanes at the same time. A site is a lane; so are the clients, and the network.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from support.programs.namespaces import Network

from tests.chaos.sites import ChaosSite, Federation, Times

if TYPE_CHECKING:
    from tests.chaos.work.clients import Clients

NOT_FOR_GOOD = (0.0, 0.0)


@dataclass
class Stage:
    """All that faults may touch.

    Attributes:
        folder: the run's.
        network: where the sites are hosts of their own; None: all are on this one.
        disks: by site, the folder of a file system of its own.
        clock_file: by site, the file that its gateway's clock is stepped by.
        old_source: the source of the other version; empty: there is none.
        problems: errors that a fault itself found.
        upgraded: by site, when it ceased to run the other version, UTC.
    """

    folder: Path
    times: Times
    federation: Federation
    clients: "Clients"
    network: Network | None
    disks: dict[str, Path]
    clock_files: dict[str, Path]
    old_source: str
    crowd: int
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    killed: int = 0
    upgraded: dict[str, float] = field(default_factory=dict)

    def site(self, name: str) -> ChaosSite:
        """A site by its name."""
        return self.federation.sites[name]

    def count_kills(self, number: int = 1) -> None:
        """Note that so many processes were killed."""
        with self.lock:
            self.killed += number

    def complain(self, text: str) -> None:
        """Note that something is wrong which no evidence would show later."""
        with self.lock:
            self.problems.append(text)


@dataclass(frozen=True)
class Act:
    """One fault of a schedule: all that is drawn, so that it can be repeated.

    Attributes:
        target: the site that it befalls; of the network "BUYER>SELLER".
        hold_s: how long it lasts before it is undone.
        pause_s: how long the lane is quiet before it.
        number: from 0 to 1, for any other choice of the kind.
    """

    lane: str
    kind: str
    target: str
    hold_s: float
    pause_s: float
    number: float


class Fault:
    """A kind of fault.

    Attributes:
        name: as `--faults` has it.
        lanes: where it may happen: names of sites, "clients", "network".
        weight: how often it is drawn, compared with the others of its lane.
        hold_leases: how long it lasts, from and to, in leases.
        waits_for_lease: whether a lease may have to run out before work goes on.
        kills: whether processes are killed by it.
    """

    name: ClassVar[str]
    lanes: ClassVar[Sequence[str]]
    weight: ClassVar[float] = 1.0
    hold_leases: ClassVar[tuple[float, float]] = NOT_FOR_GOOD
    waits_for_lease: ClassVar[bool] = False
    kills: ClassVar[bool] = False

    def missing(self, stage: Stage) -> str:
        """Why it can't be done here; empty when it can."""
        return ""

    def unfit(self, stage: Stage, act: Act) -> str:
        """Why it does not befall this site now; empty when it does."""
        return ""

    def do(self, stage: Stage, act: Act) -> None:
        """Let it happen."""
        raise NotImplementedError

    def undo(self, stage: Stage, act: Act) -> None:
        """Put things right again; returns when all that was ended is started."""

    @property
    def rule(self) -> str:
        """How soon the next task is expected to be done, in words."""
        return "1.5 leases" if self.waits_for_lease else "restart + 1 s"

    @property
    def about(self) -> str:
        """A line that describes the fault."""
        return (self.__doc__ or "").strip().splitlines()[0]


def draw(
    kinds: Sequence[Fault], lane: str, seed: int, lease_s: float, pace_s: float
) -> "Callable[[], Act]":
    """A lane's schedule: each call gives the next act. The same seed gives the same ones."""
    chance = random.Random(f"{seed}-{lane}")
    here = [each for each in kinds if lane in each.lanes]

    def following() -> Act:
        kind = chance.choices(here, [each.weight for each in here])[0]
        target = chance.choice(_targets(lane, kind))
        hold_s = lease_s * chance.uniform(*kind.hold_leases)
        pause_s = pace_s * chance.uniform(0.5, 1.5)
        return Act(lane, kind.name, target, hold_s, pause_s, chance.random())

    return following


def _targets(lane: str, kind: Any) -> Sequence[str]:
    if lane == "network":
        return ("london>paris", "paris>tokyo")
    if lane == "clients":
        return ("london", "paris", "tokyo")
    return (lane,)
