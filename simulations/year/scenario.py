"""The assumptions of the year: the owners of sites, their users, and their rules.

The owners' configuration is in sites/, in the format of any site's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from federation.clocks import UtcS
from gateway.config.site import SiteConfig, check, load
from policies.placement.asks import CHEAPEST, FASTEST, GREENEST, Objective
from simulations.year.facts import BEGIN_S, HOUR_S, YEAR_DAYS

SITES: Final = Path(__file__).parent / "sites"
ELASTIC_SLOTS: Final = 100_000  # of a cloud pool: more than is ever needed


@dataclass(frozen=True, slots=True)
class YearSitePlan:
    """A site: the zone of its electricity, the slots that it owns, and its department.

    Attributes:
        department: a log's name; empty where there is none.
        zone: of its clocks, by which a department's people work.
    """

    name: str
    electricity: str
    slots: int
    department: str = ""
    zone: str = "Europe/London"

    def config(self) -> SiteConfig:
        """Return its owner's configuration."""
        return check(load(str(SITES / f"{self.name}.toml")), BEGIN_S)


@dataclass(frozen=True, slots=True)
class Manners:
    """The habits of a department's people.

    Attributes:
        slice_s: the maximum duration of a task: longer runs are cut into equal parts.
        short_s: the user of a job shorter than that waits for it at a screen.
        patience_s: how long tasks of short jobs wait before their owner pays for the cloud;
            `patience_long_s` those of others.
        again_s: the interval of checks for tasks that wait again after they were preempted.
        objective: of short jobs.
        objectives: of others: each user has one of these, by a hash of the name.
    """

    slice_s: float = HOUR_S
    short_s: float = 1_800.0
    patience_s: float = 900.0
    patience_long_s: float = 4 * HOUR_S
    again_s: float = 1_800.0
    objective: Objective = FASTEST
    objectives: tuple[Objective, ...] = (
        Objective(money=1.0, time=1.0),
        Objective(carbon=1.0, time=1.0),
    )


@dataclass(frozen=True, slots=True)
class Production:
    """The run that begins with its window: `waves` tasks a slot, each of so many seconds."""

    site: str = "london"
    project: str = "risk"
    window: str = "risk run"
    waves: int = 5
    task_s: tuple[float, float] = (2_700.0, 3_900.0)  # drawn from, one a run


@dataclass(frozen=True, slots=True)
class YearScenario:
    """A year, or the first days of one.

    Attributes:
        begin_day: days of 2023 before it begins.
        tick_s: how often a gateway looks at the clock; messages arrive at any time.
        advert_s: how often it sends its advert to the others.
        message_s: the latency of a message to another site.
        late_s: production is late if it lacks its whole grid this long after its window began.
        settle_days: the maximum time to finish running work at the end.
        preempts: False plants a fault: nothing is stopped for production.
    """

    sites: tuple[YearSitePlan, ...] = (
        YearSitePlan("london", "gb", 160),
        YearSitePlan("frankfurt", "de", 64, "nasa", "Europe/Berlin"),
        YearSitePlan("newyork", "ny", 104, "hpc2n", "America/New_York"),
    )
    manners: Manners = field(default_factory=Manners)
    production: Production = field(default_factory=Production)
    days: int = YEAR_DAYS
    begin_day: int = 0
    seed: int = 1
    tick_s: float = 60.0
    advert_s: float = 300.0
    message_s: float = 0.05
    late_s: float = 1.0
    settle_days: int = 14
    preempts: bool = True

    @property
    def begin_s(self) -> UtcS:
        """When it begins, UTC."""
        return BEGIN_S + self.begin_day * 86_400.0

    @property
    def length_s(self) -> float:
        """Its duration."""
        return self.days * 86_400.0


OBJECTIVES: Final[Mapping[str, tuple[Objective, ...]]] = {
    "mixed": Manners().objectives,
    "cheapest": (CHEAPEST,),
    "greenest": (GREENEST,),
    "fastest": (FASTEST,),
}
