"""Requests for placement (asks), the objectives of their owners, and the site's preferences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.clocks import UtcS
from federation.objects.labels import UNLABELLED, DataLabel
from policies.placement.feasibility import PlacementTerms
from policies.tariffs import PriceClass


@dataclass(frozen=True, slots=True)
class Objective:
    """The weights of money, time and carbon: zero or more, and not all zero.

    A quantity of weight zero still breaks ties.
    """

    money: float = 0.0
    time: float = 0.0
    carbon: float = 0.0

    def __post_init__(self) -> None:
        weights = (self.money, self.time, self.carbon)
        if not all(0 <= weight <= 1e6 for weight in weights) or not any(weights):
            raise ValueError(f"weights {weights} must be from 0 to 1e6, and not all zero")


CHEAPEST: Final = Objective(money=1.0)
FASTEST: Final = Objective(time=1.0)
GREENEST: Final = Objective(carbon=1.0)
OBJECTIVES: Final[Mapping[str, Objective]] = {
    "cheapest": CHEAPEST,
    "fastest": FASTEST,
    "greenest": GREENEST,
}


def read_objective(value: object) -> Objective:
    """Parse an objective: a name, or a map of weights. Raise ValueError if it is neither."""
    if isinstance(value, str) and value in OBJECTIVES:
        return OBJECTIVES[value]
    if (
        isinstance(value, dict)
        and value.keys() <= {"money", "time", "carbon"}
        and all(type(weight) in (int, float) for weight in value.values())
    ):
        return Objective(**value)
    names = ", ".join(OBJECTIVES)
    raise ValueError(
        f"objective must be one of {names}, or weights, for example "
        f"{{ money = 1, time = 2, carbon = 0 }}"
    )


class WhenClosed(StrEnum):
    """How a job treats pools whose windows open later."""

    WAIT = "wait"  # for a closed pool that, once open, would suit it better than all open ones
    ELSEWHERE = "elsewhere"  # run where it is open now; nowhere, while no pool is


@dataclass(frozen=True, slots=True)
class Wishes:
    """A user's constraints and preferences for the placement of a job; unset ones do not limit."""

    objective: Objective | None = None  # None: the site's default
    deadline_s: UtcS | None = None  # UTC; the job must be done by then
    allowed_sites: frozenset[str] | None = None
    forbidden_sites: frozenset[str] = frozenset()
    jurisdictions: frozenset[str] | None = None  # its data may go only there
    data: frozenset[str] = frozenset()  # the classes of its data, for rules about places
    label: DataLabel = UNLABELLED  # where the objects and results that its calls read may lie
    environment: str = (
        ""  # its environment, in the notation of policies.placement.environments; "": any
    )
    when_closed: WhenClosed | None = None  # None: a window's delay is weighed like any other
    deferrable: bool = False  # may wait for better hours, as long as it meets its deadline
    whole: bool = False  # worthless unless all of it is done within its limits


@dataclass(frozen=True, slots=True)
class Demand:
    """Tasks of one job that need placement, and the limits that hold for all of them."""

    terms: PlacementTerms
    objective: Objective
    tasks: int
    task_s: float | None = None  # measured seconds of a task; None: its function has never run
    task_s_at: Mapping[str, float] = field(default_factory=dict)  # by site, where it differs
    function_bytes: int = 0
    task_bytes: int = 0  # of one task's arguments and result
    deadline_s: UtcS | None = None  # UTC
    budget_nanos: int | None = None  # the remaining budget, in the currency of the terms
    price_class: PriceClass = "guaranteed"
    when_closed: WhenClosed | None = None
    deferrable: bool = False  # may wait for better hours, until its deadline
    moved_bytes: int = 0  # of objects that would have to move to another site for it
    moved_to: frozenset[str] = frozenset()  # the sites that have them already

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError("an ask must have at least one task")
        if self.task_s is None and self.task_s_at:
            raise ValueError("a measurement at a site needs measured durations")
        if self.budget_nanos is not None and self.terms.need.currency is None:
            raise ValueError("a budget needs a currency")
        if self.deferrable and self.deadline_s is None:
            raise ValueError("a deferrable ask needs a deadline")


@dataclass(frozen=True, slots=True)
class Preferences:
    """A site's own placement preferences, independent of its peers."""

    currency: str = "USD"  # the currency in which prices are compared
    # Units of `currency` for one of another, for comparison only: charges are never converted.
    rates: Mapping[str, float] = field(default_factory=dict)
    objective: Objective = CHEAPEST  # of jobs that name none
    # Work stays at home as long as it starts there within this many seconds; beyond that, price
    # decides. 0: price alone decides. inf: work that may run at home never leaves.
    prefer_own_s: float = 0.0
    # Places that differ by no more than this share, from 0 to 1, count as equal: work is drawn
    # among them and spread over them. The tie-break is fixed for a job, so its queued work does not
    # move around.
    band: float = 0.10
    quotes_max: int = 3  # sites asked for a quote for the same work
    sites_max: int = 8  # places that one job is split over at a time
    task_s_unknown: float = 1.0  # the assumed duration of a task of unknown length, for comparison
    # Deferrable jobs wait for a gain of at least the share `defer_gain`, from 0 to 1. They are
    # planned to finish `defer_margin_s` before their deadline even if tasks take longer by the
    # share `defer_margin`.
    defer_gain: float = 0.10
    defer_margin_s: float = 60.0
    defer_margin: float = 0.5

    def rate(self, currency: str) -> float | None:
        """Units of the site's currency for one of another; None when the rate is unknown."""
        return 1.0 if currency == self.currency else self.rates.get(currency)
