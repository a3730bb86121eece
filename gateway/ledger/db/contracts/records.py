"""Contracts and deliveries under them: what is written, and what is read back."""

from dataclasses import dataclass
from typing import Any, Literal

from federation.clocks import UtcS
from federation.messages.contracts import Delivery, Verdict
from gateway.ledger.db.checks import check_numbers, check_texts, check_times
from gateway.ledger.db.jobs.records import sender_of
from gateway.ledger.db.usage.records import PriceClass

ContractSide = Literal["buy", "sell"]
# How a contract ended: as agreed; by its seller, before that; given up by its buyer, with tasks
# out; with the seller's gateway; or as its lease ran out without word from the other site.
ContractEnd = Literal["settled", "ended", "abandoned", "interrupted", "lapsed"]


@dataclass(frozen=True, slots=True)
class ContractOpened:
    """A contract with another site began: we buy, or we sell. Written before the site is informed.

    It holds all the terms of charging: after a restart the other site's word does not count.

    Attributes:
        job: our own id of the job.
        pool: the seller's.
        max_cost_nanos: the cost limit of its grant; None: no limit.
        minimum_nanos: the least cost of a task.
        step_ns: time is rounded up to whole steps of so many nanoseconds; 0: it is not.
        tariff: the name of the price list; empty: the contract does not name one.
        window: the name of the tariff window that was in force; empty: the tariff has none.
        list_nanos: the list price of a slot-hour, without a contract; None: the same.
        rules: the version of this site's rules when it was opened (gateway.rules); 0: not named.
        receive_nanos, send_nanos: of a GB of objects that moves to the seller, or from it.
    """

    contract: str
    side: ContractSide
    site: str  # the other site
    job: str
    pool: str
    slots: int
    price_nanos: int
    currency: str
    lease_s: float
    opened_at_s: UtcS
    max_cost_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0
    tariff: str = ""
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None
    rules: int = 0
    receive_nanos: int = 0
    send_nanos: int = 0

    def __post_init__(self) -> None:
        check_texts(
            self.contract,
            self.side,
            self.site,
            self.job,
            self.pool,
            self.currency,
            self.tariff,
            self.window,
            self.price_class,
        )
        if self.list_nanos is None:
            object.__setattr__(self, "list_nanos", self.price_nanos)
        check_numbers(self.slots, self.price_nanos, self.max_cost_nanos or 0)
        check_numbers(self.minimum_nanos, self.step_ns, self.list_nanos or 0, self.rules)
        check_numbers(self.receive_nanos, self.send_nanos)
        check_times(self.opened_at_s)


@dataclass(frozen=True, slots=True)
class Posted:
    """Results that were delivered under a contract; the same on both sides.

    Unique by (side, contract, epoch, first). It is pending until it is settled.
    """

    contract: str
    side: ContractSide
    site: str  # the other site
    epoch: int
    first: int
    tasks: int
    wall_ns: int
    cost_nanos: int
    currency: str
    posted_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.contract, self.side, self.site, self.currency)
        check_numbers(self.epoch, self.first, self.tasks, self.wall_ns, self.cost_nanos)
        check_times(self.posted_at_s)

    @property
    def delivery(self) -> Delivery:
        """The delivery as both sides report it."""
        return delivery_of(self)


@dataclass(frozen=True, slots=True)
class MoveProved:
    """The proof of a delivery of moved bytes: its ticket and its receipt, as they were signed."""

    contract: str
    side: ContractSide
    epoch: int
    first: int
    ticket: bytes
    receipt: bytes

    def __post_init__(self) -> None:
        check_texts(self.contract, self.side)
        check_numbers(self.epoch, self.first)


@dataclass(frozen=True, slots=True)
class PostingSettled:
    """The verdict on a posting: "post" (it is paid) or "void". The first verdict counts."""

    contract: str
    side: ContractSide
    site: str
    epoch: int
    first: int
    state: str
    cost_nanos: int  # of the posting
    currency: str
    settled_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.contract, self.side, self.site, self.state, self.currency)
        check_numbers(self.epoch, self.first, self.cost_nanos)
        check_times(self.settled_at_s)


@dataclass(frozen=True, slots=True)
class ContractEnded:
    """A contract ended, with nothing in flight; each site writes what it knows of the reason."""

    contract: str
    side: ContractSide
    state: ContractEnd
    ended_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.contract, self.side, self.state)
        check_times(self.ended_at_s)


def delivery_of(row: Any) -> Delivery:
    """Return the delivery of a Posted, or of a PostingRow, as both sides report it."""
    stop, at_ms = row.first + row.tasks, round(row.posted_at_s * 1000)
    return Delivery(row.epoch, row.first, stop, row.cost_nanos, row.wall_ns, at_ms)


def posted(
    contract: str, side: ContractSide, site: str, delivery: Delivery, currency: str
) -> Posted:
    """Return the record of a delivery."""
    return Posted(
        contract=contract,
        side=side,
        site=site,
        epoch=delivery.epoch,
        first=delivery.first,
        tasks=delivery.stop - delivery.first,
        wall_ns=delivery.wall_ns,
        cost_nanos=delivery.cost_nanos,
        currency=currency,
        posted_at_s=UtcS(delivery.at_ms / 1000),
    )


def settled(
    contract: str,
    side: ContractSide,
    site: str,
    delivery: Delivery,
    verdict: Verdict,
    currency: str,
    at_s: UtcS,
) -> PostingSettled:
    """Return the record of the verdict on a delivery."""
    return PostingSettled(
        contract=contract,
        side=side,
        site=site,
        epoch=delivery.epoch,
        first=delivery.first,
        state=verdict,
        cost_nanos=delivery.cost_nanos,
        currency=currency,
        settled_at_s=at_s,
    )


@dataclass(frozen=True, slots=True)
class UnsettledDeliveries:
    """The number of deliveries to or by a site that have no verdict yet."""

    site: str
    side: str
    records: int


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
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
    oldest_s: UtcS
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
class RelayedTotal:
    """The sums of the postings with one site for one job that we passed on between two sites.

    Attributes:
        side: "sell": delivered to the site that sent the job; "buy": by a site that ran it.
        state: "pending", "post" or "void"; "reversed": of posted deliveries whose dispute was
            accepted, at the time of that.
    """

    side: str
    site: str  # the other site
    job: str
    currency: str
    state: str
    tasks: int
    cost_nanos: int

    @property
    def origin(self) -> str:
        """The site that sent the job."""
        return sender_of(self.job)


@dataclass(frozen=True, slots=True)
class ContractRow:
    """A contract as it was opened; `side` is "buy" or "sell", `state` "open" or a ContractEnd."""

    contract: str
    side: str
    site: str
    job: str
    pool: str
    slots: int
    price_nanos: int
    currency: str
    lease_s: float
    opened_at_s: UtcS
    max_cost_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0
    tariff: str = ""
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None
    rules: int = 0
    receive_nanos: int = 0
    send_nanos: int = 0
    state: str = "open"


@dataclass(frozen=True, slots=True)
class PostingRow:
    """A delivery under a contract; `state` is "pending", "post" or "void"."""

    epoch: int
    first: int
    tasks: int
    cost_nanos: int
    state: str
    wall_ns: int
    posted_at_s: UtcS
    records: int = 1  # that it stands for, where old records are rolled up

    @property
    def delivery(self) -> Delivery:
        """The delivery as both sides report it."""
        return delivery_of(self)
