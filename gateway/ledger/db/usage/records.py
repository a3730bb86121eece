"""Usage of tasks and capacity of pools: what is written, what is read, and its dimensions."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from federation.clocks import UtcS
from gateway.ledger.db.checks import HOUR_S, check_numbers, check_texts, check_times
from gateway.ledger.db.jobs.records import sender_of

# Charged tasks may run again for free if their client or this gateway was lost. The wall time of
# these repeats may be this many times the paid wall time, in total, plus a minimum.
REPEATS_MAX: Final = 3

REPEAT_MIN_NS: Final = 10**9
# What a record is of: slot time of tasks, bytes held, or bytes that came from other sites.
UsageKind = Literal["time", "held", "moved"]
UsageState = Literal["ok", "failed", "cancelled", "preempted", "repeat", "void", "lost", "wasted"]

# States of tasks that ended without a result. They are charged, if they did anything.
TRIED: Final = ("failed", "cancelled", "preempted")


def is_for_its_user(state: str, price_class: str) -> bool:
    """Whether the user pays for a run: not for work that was lost through the grid's doing.

    The user does not pay for work that ran again through no fault of the user's, that could not be
    delivered to the site that sent it, or that was sold and ended with its worker. Preempted work
    is free too, unless its price class is preemptible.
    """
    is_free = state in ("repeat", "void", "lost")
    return not is_free and (state != "preempted" or price_class == "preemptible")


def earns_volume(state: str, price_class: str) -> bool:
    """Whether the time of a run counts towards volume prices: paid time, except wasted time.

    For a run that ended with its worker, the next run counts.
    """
    return state != "wasted" and is_for_its_user(state, price_class)


PriceClass = Literal["guaranteed", "preemptible"]
FootprintKnown = Literal["carbon", "energy", ""]


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Usage and cost of a run of tasks [first, first + tasks); unique by (job, first, attempt).

    Of kind "held" or "moved" it is of no run: it has neither tasks nor slot time. Its job,
    numbers and worker are those of gateway.objects.billing.

    Attributes:
        kind: the resource: slot time, memory for objects, or the way between sites.
        held_byte_s: whole byte-seconds, of kind "held"; else 0.
        moved_bytes: of kind "moved"; else 0.
        price_nanos: of a slot-hour; of data, of a GB-month held or a GB moved.
        state: "cancelled" for tasks that were stopped on request, which is "failed" in older
            books; "preempted" for tasks that were stopped to make room for others, and run again;
            "repeat" for tasks that were charged before and had to run again; "void" for another
            site's work that ended after its contract was over, so that it was never delivered;
            "wasted" for a run that ended with its worker, "lost" for such time of sold work, which
            is not paid.
        group: of its user; empty when none is given.
        tags: the worker tags that the job asks for, as `policies.placement.placement.show_tags`
        writes them.
        price_class: the class that was bought.
        window: the name of the tariff window that was in force; empty: the tariff has none.
        list_cost_nanos: the cost at list price, without a contract; None: the same.
        list_price_nanos: of a slot-hour, without a contract; None: the same.
        energy_uj: microjoules, of the pool's hardware and building.
        carbon_ng: nanograms of CO2e for that energy; `embodied_ng` for the making of the hardware.
        intensity_mg_per_kwh: the CO2e intensity from which `carbon_ng` was computed.
        carbon_source: the source of that figure; empty: unknown, and `carbon_ng` is meaningless.
        rules: the version of this site's rules that it ran under (gateway.rules); 0: none is named.
        free_ns: the part of its slot time that its tasks had paid before. No column of the books:
            it follows from the records of the job (gateway.scheduler.model.paid_time).
    """

    job: str
    first: int
    tasks: int
    attempt: int
    user: str
    project: str
    name: str
    pool: str
    worker: str
    state: UsageState
    started_at_s: UtcS
    ended_at_s: UtcS
    wall_ns: int
    cpu_ns: int
    peak_memory_bytes: int
    price_nanos: int
    currency: str
    tariff: str
    cost_nanos: int
    group: str = ""
    tags: str = ""
    price_class: PriceClass = "guaranteed"
    window: str = ""
    list_cost_nanos: int | None = None
    energy_uj: int = 0
    carbon_ng: int = 0
    embodied_ng: int = 0
    intensity_mg_per_kwh: int = 0
    carbon_source: str = ""
    list_price_nanos: int | None = None
    rules: int = 0
    free_ns: int = 0
    kind: UsageKind = "time"
    held_byte_s: int = 0
    moved_bytes: int = 0

    def __post_init__(self) -> None:
        check_texts(
            self.job,
            self.user,
            self.project,
            self.name,
            self.pool,
            self.worker,
            self.state,
            self.currency,
            self.tariff,
            self.group,
            self.tags,
            self.price_class,
            self.window,
            self.carbon_source,
            self.kind,
        )
        if self.list_cost_nanos is None:
            object.__setattr__(self, "list_cost_nanos", self.cost_nanos)
        if self.list_price_nanos is None:
            object.__setattr__(self, "list_price_nanos", self.price_nanos)
        check_numbers(self.first, self.tasks, self.attempt, self.rules)
        check_numbers(self.wall_ns, self.free_ns, self.cpu_ns, self.peak_memory_bytes)
        check_numbers(self.price_nanos, self.list_price_nanos or 0)
        check_numbers(self.cost_nanos, self.list_cost_nanos or 0)
        check_numbers(self.energy_uj, self.carbon_ng, self.embodied_ng, self.intensity_mg_per_kwh)
        check_numbers(self.held_byte_s, self.moved_bytes)
        check_times(self.started_at_s, self.ended_at_s)

    @property
    def charged_nanos(self) -> int:
        """The charge to the user; the user's site pays overhead to the site that ran the tasks."""
        return self.cost_nanos if is_for_its_user(self.state, self.price_class) else 0

    @property
    def charged_ns(self) -> int:
        """The slot time that its user is charged for, whatever that costs."""
        is_for_user = is_for_its_user(self.state, self.price_class)
        return self.wall_ns - self.free_ns if is_for_user else 0

    @property
    def is_overhead(self) -> bool:
        """Whether this site pays for it, and no user."""
        return self.cost_nanos > 0 and not is_for_its_user(self.state, self.price_class)

    @property
    def is_charge(self) -> bool:
        """Whether it charges for its tasks: a run that failed before it used any time does not."""
        return self.state == "ok" or (self.state in TRIED and self.wall_ns > 0)

    @property
    def hour(self) -> int:
        """The UTC hour of `ended_at_s`, counted from 1970-01-01T00.

        Computed here, not in SQL, because databases disagree on the conversion of floats to
        integers.
        """
        return int(self.ended_at_s // HOUR_S)

    @property
    def site(self) -> str:
        """The site that the run was bought from; empty: it ran here."""
        return seller_of(self.pool)

    @property
    def origin(self) -> str:
        """The site that sent the job; empty: it is a job of a local user."""
        return sender_of(self.job)

    @property
    def footprint(self) -> FootprintKnown:
        """The known part of its footprint: energy and its carbon, energy only, or nothing."""
        if self.carbon_source:
            return "carbon"
        return "energy" if self.energy_uj or self.embodied_ng else ""

    @property
    def records(self) -> int:
        """The number of records that it stands for; above one where old records are rolled up."""
        return 1


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """A pool offered `slots` slots from one moment to another; unique by (pool, since_s).

    Slot time that no usage record accounts for was idle. The interval lies within one UTC hour.
    """

    pool: str
    since_s: UtcS
    until_s: UtcS
    slots: int

    def __post_init__(self) -> None:
        check_texts(self.pool)
        check_times(self.since_s, self.until_s)
        check_numbers(self.slots, self.slot_ns)

    @property
    def hour(self) -> int:
        """The UTC hour of the interval, counted from 1970-01-01T00."""
        return int(self.since_s // HOUR_S)

    @property
    def slot_ns(self) -> int:
        """The slot time of the interval."""
        return max(0, round((self.until_s - self.since_s) * 1e9)) * self.slots


def seller_of(pool: str) -> str:
    """Return a pool's site; empty: ours. Only pools of other sites have a slash in the name."""
    site, slash, _ = pool.partition("/")
    return site if slash else ""


class Dimension(StrEnum):
    """The dimensions by which usage is summed up; the values are columns of its tables, except DAY.

    All but JOB and WORKER are summed hour by hour, and fast to read.
    """

    USER = "user"
    GROUP = "group"
    PROJECT = "project"
    NAME = "name"
    JOB = "job"
    SITE = "site"  # the site that ran it; empty: here
    ORIGIN = "origin"  # the site that sent it; empty: none
    POOL = "pool"
    WORKER = "worker"
    WINDOW = "window"
    TAGS = "tags"
    PRICE_CLASS = "price_class"
    STATE = "state"
    TARIFF = "tariff"
    KIND = "kind"  # slot time, bytes held or bytes moved
    FOOTPRINT = "footprint"  # the known part: carbon and energy, energy, or nothing
    HOUR = "hour"  # counted from 1970-01-01T00, UTC
    DAY = "day"  # counted from 1970-01-01, UTC


@dataclass(frozen=True, slots=True)
class UsedRun:
    """A run of tasks [first, first + tasks), from its usage record."""

    first: int
    tasks: int
    state: str
    wall_ns: int
    price_class: str
    site: str
    price_nanos: int
    currency: str
    cost_nanos: int
    ended_at_s: UtcS


@dataclass(frozen=True, slots=True)
class JobPlace:
    """The runs of a job's tasks at one place, on the same terms.

    A task that ran twice counts twice in `tasks`. The amounts are those of a UsageRecord.

    Attributes:
        pool: ours, or "site/pool" of another site.
        rules: the version of this site's rules that they ran under; 0: none is named.
        first_at_s, last_at_s: when the first began and the last ended.
    """

    pool: str
    window: str
    tariff: str
    price_class: str
    price_nanos: int
    list_price_nanos: int
    currency: str
    group: str
    rules: int
    tasks: int
    wall_ns: int
    cost_nanos: int
    first_at_s: UtcS
    last_at_s: UtcS


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The sums of the usage records of one key and one currency.

    `key` has a value for each dimension asked for, in that order. A task that ran twice counts
    twice in `tasks`. `peak_memory_bytes` is the largest. The amounts are those of a UsageRecord.
    """

    key: tuple[str | int, ...]
    currency: str
    records: int
    peak_memory_bytes: int
    tasks: int
    wall_ns: int
    cpu_ns: int
    cost_nanos: int
    list_cost_nanos: int = 0
    energy_uj: int = 0
    carbon_ng: int = 0
    embodied_ng: int = 0
    held_byte_s: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CapacityTotal:
    """The slot time that a pool had in one hour, counted from 1970-01-01T00, used or not."""

    pool: str
    hour: int
    slot_ns: int
