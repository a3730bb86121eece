"""What is asked of the grid, and by what taste it is placed: an ask, its objective, the house."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from policies.feasibility import Terms
from policies.tariffs import PriceClass


@dataclass(frozen=True, slots=True)
class Objective:
    """What counts, as weights of zero or more that are not all zero.

    What has no weight still decides among equals.
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
    """An objective as people write it: a name, or a map of weights. ValueError if neither."""
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
        f"objective must be one of {names}, or weights as in {{ money = 1, time = 2, carbon = 0 }}"
    )


class WhenClosed(StrEnum):
    """What a job's owner wants done about pools whose windows open later."""

    WAIT = "wait"  # for one that, once open, would suit it better than all that are open now
    ELSEWHERE = "elsewhere"  # where it is open now; nowhere, while none is


@dataclass(frozen=True, slots=True)
class Wishes:
    """Where and how a user wants a job placed; what is left out does not limit."""

    objective: Objective | None = None  # None: the site's own taste
    deadline_s: float | None = None  # UTC; until then it must be done
    allowed_sites: frozenset[str] | None = None
    forbidden_sites: frozenset[str] = frozenset()
    jurisdictions: frozenset[str] | None = None  # where its data may go
    environment: str = ""  # what it runs in, as policies.environments writes it; "": anything
    when_closed: WhenClosed | None = None  # None: a window's delay is weighed as any other
    deferrable: bool = False  # may wait for better hours, so that it is done by its deadline
    whole: bool = False  # is of use only if all of it is done within its limits


@dataclass(frozen=True, slots=True)
class Ask:
    """Tasks of one job that are to be placed, and the limits that hold for all of them."""

    terms: Terms
    objective: Objective
    tasks: int
    task_s: float | None = None  # measured seconds of a task; None: nobody ever ran its function
    task_s_at: Mapping[str, float] = field(default_factory=dict)  # and by site, where they differ
    function_bytes: int = 0
    task_bytes: int = 0  # of one task's arguments and result
    deadline_s: float | None = None  # UTC
    budget_nanos: int | None = None  # what is left, in the currency of the terms
    price_class: PriceClass = "guaranteed"
    when_closed: WhenClosed | None = None
    deferrable: bool = False  # may wait for better hours, until its deadline

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError("an ask is for one task or more")
        if self.task_s is None and self.task_s_at:
            raise ValueError("what was measured at a site is measured")
        if self.budget_nanos is not None and self.terms.need.currency is None:
            raise ValueError("a budget has a currency")
        if self.deferrable and self.deadline_s is None:
            raise ValueError("what may wait has a deadline")


@dataclass(frozen=True, slots=True)
class House:
    """How a site likes its work placed: its own choice, whatever its peers do."""

    currency: str = "USD"  # prices are compared in it
    # Its units for one of another currency, to compare by only: charges are never converted.
    rates: Mapping[str, float] = field(default_factory=dict)
    objective: Objective = CHEAPEST  # of jobs that wish for none
    # Work stays at home as long as it starts there within so many seconds; then price decides.
    # 0: price alone decides. inf: what may run at home never leaves.
    prefer_own_s: float = 0.0
    # What differs by no more than this share counts as equal: it is drawn among, and spread over,
    # by lots that are a job's own, so that its waiting work does not wander. 0 .. 1
    band: float = 0.10
    quotes_max: int = 3  # sites asked for a quote for the same work
    sites_max: int = 8  # places that one job is split over at a time
    task_s_unknown: float = 1.0  # a task of unknown length is compared as if it took this
    # Of jobs that may wait for better hours: they do for a gain of this share at least, 0 .. 1; and
    # so that all is done so many seconds before their deadline, were tasks longer by a share.
    defer_gain: float = 0.10
    defer_margin_s: float = 60.0
    defer_margin: float = 0.5

    def rate(self, currency: str) -> float | None:
        """Units of our currency for one of another; None when we know no rate."""
        return 1.0 if currency == self.currency else self.rates.get(currency)
