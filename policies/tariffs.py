"""Prices and the cost of work by them: integer nano-units of a currency per slot-hour.

**The one rounding rule.** A usage record is charged for the total time of its tasks, rounded up to
whole steps, at least one step for each task; that time at the price is rounded half up to a
nano-unit, once; and it is never less than the minimum charge of each task:

    charge = max(tasks · minimum, ⌊price · max(⌈wall/step⌉, tasks) · step / 3600 s + ½⌋)

and never more than the books can hold (NANOS_LIMIT).

Prices themselves are rounded half up to a nano-unit before they are shown: the advertised and
quoted price is the charged one, to the nano-unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal

from federation.money import NANOS_LIMIT, check_currency

HOUR_S: Final = 3_600
HOUR_NS: Final = HOUR_S * 10**9
MILLION: Final = 10**6  # factors are whole millionths: exact, and the same on every machine

# Guaranteed work keeps its slot; preemptible work is cheaper, and yields to it.
PriceClass = Literal["guaranteed", "preemptible"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """A buyer's price of a slot-hour, with the version of the price list behind it.

    Attributes:
        price_nanos: of a slot-hour.
        version: names the price list.
        window: the name of the part of the list that is in force; empty: none.
        price_class: the class that is bought.
        list_nanos: the price of a slot-hour without a contract; None: the same.
        minimum_nanos: the minimum charge of each task.
        step_ns: the step, in nanoseconds, to which time is rounded up; 0: none.
        reservation: the id of the reservation that it is the price of; empty: none.
        rules: the version of this site's rules that were in force; 0: none is named.
        receive_nanos, send_nanos: of a GB of objects that comes to the seller, or goes from it,
            under a contract (policies.costs.moving).
    """

    price_nanos: int
    currency: str
    version: str
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0
    reservation: str = ""
    rules: int = 0
    receive_nanos: int = 0
    send_nanos: int = 0

    def __post_init__(self) -> None:
        prices = (self.price_nanos, self.list_nanos or 0, self.minimum_nanos)
        for nanos in (*prices, self.receive_nanos, self.send_nanos):
            if not 0 <= nanos <= NANOS_LIMIT:
                raise ValueError(f"a price of {nanos} nano-units is out of range")
        if not 0 <= self.step_ns <= HOUR_NS:
            raise ValueError(f"time in steps of {self.step_ns} ns: must be at most an hour")
        check_currency(self.currency)

    def charge_nanos(self, tasks: int, wall_ns: int) -> int:
        """Return the charge for tasks with this total slot time."""
        return _charge(self.price_nanos, tasks, wall_ns, self.minimum_nanos, self.step_ns)

    def list_charge_nanos(self, tasks: int, wall_ns: int) -> int:
        """Return the charge for the same without a contract."""
        price_nanos = self.price_nanos if self.list_nanos is None else self.list_nanos
        return _charge(price_nanos, tasks, wall_ns, self.minimum_nanos, self.step_ns)

    def expected_nanos(self, tasks: int, task_s: float | None) -> int:
        """Return the expected charge for tasks that are reported one by one, as the broker sees it.

        `task_s` is the duration of one; None: unknown, and only certain charges count.
        """
        return tasks * self.charge_nanos(1, round((task_s or 0.0) * 1e9))

    def most_nanos(self, task_ns: int) -> int:
        """Return the most that a task of this maximum duration can cost.

        Rounded up: tasks that are charged together cost no more than the sum of these.
        """
        billed_ns = _billed_ns(1, task_ns, self.step_ns)
        by_time_nanos = -(-self.price_nanos * billed_ns // HOUR_NS)
        return min(NANOS_LIMIT, max(by_time_nanos, self.minimum_nanos))

    def for_tasks_of(self, task_ns: int) -> int:
        """Return the price of a slot-hour of tasks of this duration, minimum and steps included."""
        return effective_nanos(self.price_nanos, task_ns, self.minimum_nanos, self.step_ns)


@dataclass(frozen=True, slots=True)
class Surcharge:
    """The effect of a requested tag on the price of a slot-hour.

    `add_nanos` is for each unit of a counted tag. The factor is in millionths.
    """

    add_nanos: int = 0
    factor: int = MILLION


@dataclass(frozen=True, slots=True)
class Extras:
    """The adjustments of a pool's price for one job: class, tags, duration of its tasks.

    It is all on the pool's advert, so that buyer and seller compute the same, to the nano-unit.
    """

    preemptible: int = MILLION  # the factor of that class, in millionths
    surcharges: Mapping[str, Surcharge] = field(default_factory=dict)  # by tag
    minimum_nanos: int = 0
    step_ns: int = 0

    def price_nanos(
        self, public_nanos: int, price_class: PriceClass, tags: Mapping[str, float]
    ) -> int:
        """Return the price of a slot-hour of a job: (public · Π factors + Σ additions) · class."""
        asked = [(each, tags[name]) for name, each in self.surcharges.items() if name in tags]
        if price_class == "guaranteed" and not asked:
            return public_nanos
        price = Fraction(public_nanos)
        for surcharge, _ in asked:
            price *= Fraction(surcharge.factor, MILLION)
        for surcharge, amount in asked:
            price += surcharge.add_nanos * Fraction(amount)  # a plain tag is True, which is one
        if price_class == "preemptible":
            price *= Fraction(self.preemptible, MILLION)
        return round_half_up(price)

    def effective_nanos(
        self,
        public_nanos: int,
        price_class: PriceClass,
        tags: Mapping[str, float],
        task_ns: int,
    ) -> int:
        """Return the effective price of a slot-hour for tasks of this duration, for comparison."""
        price_nanos = self.price_nanos(public_nanos, price_class, tags)
        minimum_nanos = min(self.minimum_nanos, price_nanos)
        return effective_nanos(price_nanos, task_ns, minimum_nanos, self.step_ns)

    def tariff(self, public: Tariff, price_nanos: int, list_nanos: int, wanted: "Wanted") -> Tariff:
        """Return a job's tariff, from the base prices for its buyer and without a contract.

        The minimum is never above the price of a slot-hour: so a discount lowers it too.
        """
        price = self.price_nanos(price_nanos, wanted.price_class, wanted.tags)
        return replace(
            public,
            price_nanos=price,
            price_class=wanted.price_class,
            list_nanos=self.price_nanos(list_nanos, wanted.price_class, wanted.tags),
            minimum_nanos=min(self.minimum_nanos, price),
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a price.

    Attributes:
        site: the site that buys; empty: a user of this site.
        price_class: which one.
        tags: that the job asks for.
        bought_ns: slot time that the buyer has had of the pool in this calendar month.
    """

    site: str = ""
    price_class: PriceClass = "guaranteed"
    tags: Mapping[str, float] = field(default_factory=dict)
    bought_ns: int = 0


def round_half_up(amount: Fraction) -> int:
    """Round to nano-units, halves up, within the range of a database integer."""
    return min(NANOS_LIMIT, (2 * amount.numerator + amount.denominator) // (2 * amount.denominator))


def cost_nanos(price_nanos: int, wall_ns: int) -> int:
    """Return the cost of `wall_ns` of one slot at a price per slot-hour, halves rounded up."""
    if price_nanos < 0 or wall_ns < 0:
        raise ValueError(
            f"the cost of {wall_ns} ns at {price_nanos} is undefined: both must be zero or more"
        )
    return (2 * price_nanos * wall_ns + HOUR_NS) // (2 * HOUR_NS)


def effective_nanos(price_nanos: int, task_ns: int, minimum_nanos: int, step_ns: int) -> int:
    """Return the price of a slot-hour at which a lone task of `task_ns` costs its charge.

    Rounded up, so that a plan by it is never too optimistic. It is a price that is shown, quoted
    and stored: at most NANOS_LIMIT, which is reached only by a task with a minimum of over 2.5
    million nano-units for each nanosecond of its duration.
    """
    if not minimum_nanos and not step_ns:
        return price_nanos
    task_ns = max(1, task_ns)
    billed_ns = _billed_ns(1, task_ns, step_ns)
    by_time_nanos = -(-price_nanos * billed_ns // task_ns)
    return min(NANOS_LIMIT, max(by_time_nanos, -(-minimum_nanos * HOUR_NS // task_ns)))


def _charge(price_nanos: int, tasks: int, wall_ns: int, minimum_nanos: int, step_ns: int) -> int:
    if tasks < 0:
        raise ValueError(f"the cost of {tasks} tasks is undefined: the number must be zero or more")
    costs = cost_nanos(price_nanos, _billed_ns(tasks, wall_ns, step_ns))
    return min(NANOS_LIMIT, max(costs, tasks * minimum_nanos))


def _billed_ns(tasks: int, wall_ns: int, step_ns: int) -> int:
    if not step_ns:
        return wall_ns
    return max(-(-wall_ns // step_ns), tasks) * step_ns
