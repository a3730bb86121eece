"""Prices and what work costs by them: integer nano-units of a currency per slot-hour.

**The one rounding rule.** A usage record is charged for the time that its tasks took together,
rounded up to whole steps, at least one step for each task; that time at the price is rounded half
up to a nano-unit, once; and it is never less than the minimum charge of each task:

    charge = max(tasks · minimum, ⌊price · max(⌈wall/step⌉, tasks) · step / 3600 s + ½⌋)

and never more than what the books can hold (NANOS_LIMIT).

Prices themselves are rounded half up to a nano-unit whenever somebody is told one: what is
advertised and quoted is what is charged by, to the nano-unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal

from federation.money import NANOS_LIMIT, check_currency

HOUR_S: Final = 3_600
HOUR_NS: Final = HOUR_S * 10**9
MILLION: Final = 10**6  # factors are whole millionths: exact, and the same on every machine

# Guaranteed work keeps its slot; preemptible work is cheaper, and goes after it.
PriceClass = Literal["guaranteed", "preemptible"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a slot-hour costs somebody now, and which version of the price list said so.

    Attributes:
        price_nanos: of a slot-hour.
        version: names the price list.
        window: the part of the list that is in force, by its name; empty: it has none.
        price_class: what is bought.
        list_nanos: what a slot-hour costs whoever has no contract; None: the same.
        minimum_nanos: that each task costs at least.
        step_ns: time is rounded up to whole steps of so many nanoseconds; 0: it is not.
    """

    price_nanos: int
    currency: str
    version: str
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0

    def __post_init__(self) -> None:
        for nanos in (self.price_nanos, self.list_nanos or 0, self.minimum_nanos):
            if not 0 <= nanos <= NANOS_LIMIT:
                raise ValueError(f"a price of {nanos} nano-units is out of range")
        if not 0 <= self.step_ns <= HOUR_NS:
            raise ValueError(f"time in steps of {self.step_ns} ns: it must be up to an hour")
        check_currency(self.currency)

    def charge_nanos(self, tasks: int, wall_ns: int) -> int:
        """What so many tasks cost that took so much time of their slots together."""
        return _charge(self.price_nanos, tasks, wall_ns, self.minimum_nanos, self.step_ns)

    def list_charge_nanos(self, tasks: int, wall_ns: int) -> int:
        """What the same would have cost whoever has no contract."""
        price_nanos = self.price_nanos if self.list_nanos is None else self.list_nanos
        return _charge(price_nanos, tasks, wall_ns, self.minimum_nanos, self.step_ns)

    def expected_nanos(self, tasks: int, task_s: float | None) -> int:
        """What so many tasks are expected to cost, each reported by itself, as the broker reckons.

        `task_s` is how long one takes; None: nobody knows, and only what is certain counts.
        """
        return tasks * self.charge_nanos(1, round((task_s or 0.0) * 1e9))

    def most_nanos(self, task_ns: int) -> int:
        """The most that a task comes to which takes so long at the most.

        Rounded up: however many are charged together, they cost no more than each by itself here.
        """
        billed_ns = _billed_ns(1, task_ns, self.step_ns)
        by_time_nanos = -(-self.price_nanos * billed_ns // HOUR_NS)
        return min(NANOS_LIMIT, max(by_time_nanos, self.minimum_nanos))

    def for_tasks_of(self, task_ns: int) -> int:
        """The price of a slot-hour of tasks that take so long, minimum and steps included."""
        return effective_nanos(self.price_nanos, task_ns, self.minimum_nanos, self.step_ns)


@dataclass(frozen=True, slots=True)
class Surcharge:
    """What a tag that a job asks for does to the price of a slot-hour.

    `add_nanos` for each one of a tag that is counted. The factor is in millionths.
    """

    add_nanos: int = 0
    factor: int = MILLION


@dataclass(frozen=True, slots=True)
class Extras:
    """What makes one job's price differ from a pool's: class, tags, how long its tasks take.

    It is all on the pool's advert, so that a buyer reckons as the seller does, to the nano-unit.
    """

    preemptible: int = MILLION  # the factor of that class, in millionths
    surcharges: Mapping[str, Surcharge] = field(default_factory=dict)  # by tag
    minimum_nanos: int = 0
    step_ns: int = 0

    def price_nanos(
        self, public_nanos: int, price_class: PriceClass, tags: Mapping[str, float]
    ) -> int:
        """The price of a slot-hour of a job: (public · Π factors + Σ additions) · class."""
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
        """What a slot-hour comes to for tasks that take so long, to compare and to plan by."""
        price_nanos = self.price_nanos(public_nanos, price_class, tags)
        minimum_nanos = min(self.minimum_nanos, price_nanos)
        return effective_nanos(price_nanos, task_ns, minimum_nanos, self.step_ns)

    def tariff(self, public: Tariff, price_nanos: int, list_nanos: int, wanted: "Wanted") -> Tariff:
        """What a job is charged by, from base prices for its buyer and for whoever has no contract.

        The minimum is never above the price of a slot-hour: so a discount reaches it too.
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
    """What somebody wants a price for.

    Attributes:
        site: the site that buys; empty: a user of ours.
        price_class: which one.
        tags: that the job asks for.
        bought_ns: slot time that the buyer has had of the pool in this calendar month.
    """

    site: str = ""
    price_class: PriceClass = "guaranteed"
    tags: Mapping[str, float] = field(default_factory=dict)
    bought_ns: int = 0


def round_half_up(amount: Fraction) -> int:
    """Nano-units, halves up, and never more than a database's integer holds."""
    return min(NANOS_LIMIT, (2 * amount.numerator + amount.denominator) // (2 * amount.denominator))


def cost_nanos(price_nanos: int, wall_ns: int) -> int:
    """Return what `wall_ns` of one slot cost at a price per slot-hour, halves rounded up."""
    if price_nanos < 0 or wall_ns < 0:
        raise ValueError(f"no cost of {wall_ns} ns at {price_nanos}: both must be zero or more")
    return (2 * price_nanos * wall_ns + HOUR_NS) // (2 * HOUR_NS)


def effective_nanos(price_nanos: int, task_ns: int, minimum_nanos: int, step_ns: int) -> int:
    """The price of a slot-hour at which a lone task of `task_ns` costs what it is charged.

    Rounded up, so that what is planned by it is never too hopeful. It is a price, which is told,
    quoted and written down: at most NANOS_LIMIT, which only a task with a minimum of over 2.5
    million nano-units for each nanosecond that it takes comes to.
    """
    if not minimum_nanos and not step_ns:
        return price_nanos
    task_ns = max(1, task_ns)
    billed_ns = _billed_ns(1, task_ns, step_ns)
    by_time_nanos = -(-price_nanos * billed_ns // task_ns)
    return min(NANOS_LIMIT, max(by_time_nanos, -(-minimum_nanos * HOUR_NS // task_ns)))


def _charge(price_nanos: int, tasks: int, wall_ns: int, minimum_nanos: int, step_ns: int) -> int:
    if tasks < 0:
        raise ValueError(f"no cost of {tasks} tasks")
    costs = cost_nanos(price_nanos, _billed_ns(tasks, wall_ns, step_ns))
    return min(NANOS_LIMIT, max(costs, tasks * minimum_nanos))


def _billed_ns(tasks: int, wall_ns: int, step_ns: int) -> int:
    if not step_ns:
        return wall_ns
    return max(-(-wall_ns // step_ns), tasks) * step_ns
