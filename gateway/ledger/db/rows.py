"""The rows that are read from the books, and the dimensions by which they are summed up."""

from dataclasses import dataclass
from enum import StrEnum

from federation.messages.contracts import Delivery
from gateway.ledger.db.records import (
    PaymentDirection,
    PaymentMeans,
    PaymentUndone,
    PriceClass,
    delivery_of,
    sender_of,
)

KeptRange = tuple[int, int, bytes]  # first, count, body


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
    FOOTPRINT = "footprint"  # the known part: carbon and energy, energy, or nothing
    HOUR = "hour"  # counted from 1970-01-01T00, UTC
    DAY = "day"  # counted from 1970-01-01, UTC


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the store, with the sums of its usage records.

    `state` is "open" until the job has ended; `total` is None until the job is closed for
    submission; `costs_nanos` is by currency, and so is `prices_nanos`, the highest price per
    slot-hour; `attempt_max` is the highest attempt on its usage records.
    """

    job: str
    name: str
    user: str
    project: str
    detached: bool
    spec: bytes
    submitted_at_s: float
    total: int | None
    state: str
    reason: str
    ended_at_s: float | None
    done: int
    failed: int
    cancelled: int
    forgotten: bool
    wall_ns: int
    cpu_ns: int
    costs_nanos: dict[str, int]
    prices_nanos: dict[str, int]
    attempt_max: int = 0
    repeat_ns: int = 0  # of `wall_ns`, for tasks that had to run again


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
    cost_nanos: int
    ended_at_s: float


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


@dataclass(frozen=True, slots=True)
class CapacityTotal:
    """The slot time that a pool had in one hour, counted from 1970-01-01T00, used or not."""

    pool: str
    hour: int
    slot_ns: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The deliveries under one contract without a verdict; `site` is the other site.

    `ContractStore.reversed` returns the same for reversed deliveries. `oldest_s` is the time of the
    first delivery.
    """

    side: str
    site: str
    pool: str  # the seller's
    job: str
    user: str
    project: str
    name: str
    currency: str
    records: int
    oldest_s: float
    tasks: int
    cost_nanos: int
    group: str = ""  # of its user, where usage is booked

    @property
    def origin(self) -> str:
        """The site that sent the job; empty: it is a job of a local user."""
        return sender_of(self.job)

    @property
    def relayed(self) -> bool:
        """Whether another site sent the job: it is not a job of a local user."""
        return bool(self.origin)


@dataclass(frozen=True, slots=True)
class DealTotal:
    """The sums of the postings with one site, by side, currency and state."""

    site: str
    side: str
    currency: str
    state: str
    tasks: int
    wall_ns: int
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class ContractRow:
    """A contract as it was opened; `side` is "buy" or "sell"."""

    contract: str
    side: str
    site: str
    job: str
    pool: str
    slots: int
    price_nanos: int
    currency: str
    lease_s: float
    opened_at_s: float
    max_cost_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0
    tariff: str = ""
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None


@dataclass(frozen=True, slots=True)
class PostingRow:
    """A delivery under a contract; `state` is "pending", "post" or "void"."""

    epoch: int
    first: int
    tasks: int
    cost_nanos: int
    state: str
    wall_ns: int
    posted_at_s: float
    records: int = 1  # that it stands for, where old records are rolled up

    @property
    def delivery(self) -> Delivery:
        """The delivery as both sides report it."""
        return delivery_of(self)


@dataclass(frozen=True, slots=True)
class DisputeRow:
    """A dispute; `state` is "open", "accepted" or "rejected"; the contract was for `job`."""

    side: str
    contract: str
    job: str
    epoch: int
    first: int
    site: str
    reason: str
    disputed_at_s: float
    state: str
    answer: str
    settled_at_s: float | None
    tasks: int
    cost_nanos: int
    currency: str


@dataclass(frozen=True, slots=True)
class PaymentRow:
    """A payment as it was booked; `undone_at_s` and `undone_why` are None and "" if it stands."""

    site: str
    reference: str
    currency: str
    direction: PaymentDirection
    through: PaymentMeans
    amount_nanos: int
    note: str
    paid_at_s: float
    attempt: int = 0
    undone_at_s: float | None = None
    undone_why: str = ""

    @property
    def stands(self) -> bool:
        """Whether it was not reversed."""
        return self.undone_at_s is None

    def undone(self, why: str, at_s: float) -> PaymentUndone:
        """Return the record that reverses it."""
        return PaymentUndone(
            self.site,
            self.reference,
            self.currency,
            self.attempt,
            self.direction,
            self.through,
            self.amount_nanos,
            why,
            at_s,
        )


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert as it fired last; `ended_at_s` is None while its condition holds."""

    name: str
    key: str
    level: int
    at_s: float
    ended_at_s: float | None
