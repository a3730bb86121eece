"""The records that a gateway asks its store to write: a closed union of frozen facts.

Writes are idempotent: writing a record twice changes nothing. A gateway that was killed can
therefore repeat every write that it is not sure of, and nothing is charged or stored twice.

Every number and every text is checked here, where the mistake is made: SQL integers end at
2**63 - 1, PostgreSQL stores no NUL, and neither database stores half a surrogate pair. A value from
a worker, a client or another site that the database can't store must not stop the writer, which all
jobs share.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from federation.messages.contracts import Delivery, Verdict
from federation.messages.payments import digest_of

NUMBER_LIMIT: Final = 2**63 - 1
TIME_LIMIT_S: Final = 253_402_300_800  # the end of the year 9999, where calendars end
HOUR_S: Final = 3_600

STORED_BYTES_MAX: Final = 1 << 31  # of one packed value: terms, arguments, outcome
# Charged tasks may run again for free if their client or this gateway was lost. The wall time of
# these repeats may be this many times the paid wall time, in total, plus a minimum.
REPEATS_MAX: Final = 3
REPEAT_MIN_NS: Final = 10**9
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
ContractSide = Literal["buy", "sell"]
DisputeState = Literal["accepted", "rejected"]
DISPUTE_STATES: Final = ("open", *get_args(DisputeState))
PaymentDirection = Literal["paid", "received"]
PaymentMeans = Literal["bank", "exchange", "loss"]
DIRECTIONS: Final = get_args(PaymentDirection)
MEANS: Final = get_args(PaymentMeans)
# Raised when a record is made from invalid fields that were read, and not written by us.
NO_RECORD: Final = (ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class FunctionKept:
    """A function that a detached job needs, by the digest of its body.

    Write it in the same call as the JobOpened that names it.
    """

    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class JobOpened:
    """A job was accepted; `spec` is opaque here.

    `function` is the digest of a stored function, or None for an attached job. Opening a job that
    exists changes nothing, except that a lost or abandoned job is open again, because its client
    has come back.
    """

    job: str
    name: str
    user: str
    project: str
    detached: bool
    spec: bytes
    submitted_at_s: float
    function: bytes | None = None

    def __post_init__(self) -> None:
        _check_texts(self.job, self.name, self.user, self.project)
        _check_times(self.submitted_at_s)


@dataclass(frozen=True, slots=True)
class BundleKept:
    """The arguments of tasks [first, first + count) of a detached job."""

    job: str
    first: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        _check_texts(self.job)
        _check(self.first, self.count)


@dataclass(frozen=True, slots=True)
class JobClosed:
    """A job is closed for submission: it has `total` tasks."""

    job: str
    total: int

    def __post_init__(self) -> None:
        _check_texts(self.job)
        _check(self.total)


@dataclass(frozen=True, slots=True)
class OutcomeKept:
    """The results of tasks [first, first + count) of a detached job.

    The ranges of one job must not overlap.
    """

    job: str
    first: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        _check_texts(self.job)
        _check(self.first, self.count)


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job ended; the stored arguments of its tasks are dropped. The first end stands."""

    job: str
    state: str
    reason: str
    ended_at_s: float
    done: int
    failed: int
    cancelled: int

    def __post_init__(self) -> None:
        _check_texts(self.job, self.state, self.reason)
        _check(self.done, self.failed, self.cancelled)
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Usage and cost of a run of tasks [first, first + tasks); unique by (job, first, attempt).

    Attributes:
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
        free_ns: the part of its slot time that its tasks had paid before. No column of the books:
            it follows from the records of the job (gateway.scheduler.model.credits).
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
    started_at_s: float
    ended_at_s: float
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
    free_ns: int = 0

    def __post_init__(self) -> None:
        _check_texts(
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
        )
        if self.list_cost_nanos is None:
            object.__setattr__(self, "list_cost_nanos", self.cost_nanos)
        if self.list_price_nanos is None:
            object.__setattr__(self, "list_price_nanos", self.price_nanos)
        _check(self.first, self.tasks, self.attempt)
        _check(self.wall_ns, self.free_ns, self.cpu_ns, self.peak_memory_bytes)
        _check(self.price_nanos, self.list_price_nanos or 0)
        _check(self.cost_nanos, self.list_cost_nanos or 0)
        _check(self.energy_uj, self.carbon_ng, self.embodied_ng, self.intensity_mg_per_kwh)
        _check_times(self.started_at_s, self.ended_at_s)

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
class Capacity:
    """A pool offered `slots` slots from one moment to another; unique by (pool, since_s).

    Slot time that no usage record accounts for was idle. The interval lies within one UTC hour.
    """

    pool: str
    since_s: float
    until_s: float
    slots: int

    def __post_init__(self) -> None:
        _check_texts(self.pool)
        _check_times(self.since_s, self.until_s)
        _check(self.slots, self.slot_ns)

    @property
    def hour(self) -> int:
        """The UTC hour of the interval, counted from 1970-01-01T00."""
        return int(self.since_s // HOUR_S)

    @property
    def slot_ns(self) -> int:
        """The slot time of the interval."""
        return max(0, round((self.until_s - self.since_s) * 1e9)) * self.slots


@dataclass(frozen=True, slots=True)
class AttachedLost:
    """Every open attached job died with its gateway: end each with the state "lost"."""

    ended_at_s: float

    def __post_init__(self) -> None:
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """Drop the results of an ended job, and its function unless another job needs it.

    The job's row and its usage remain. For a job that has not ended, nothing is dropped.
    """

    job: str

    def __post_init__(self) -> None:
        _check_texts(self.job)


@dataclass(frozen=True, slots=True)
class ContractOpened:
    """A contract with another site began: we buy, or we sell. Written before the site is told.

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
    opened_at_s: float
    max_cost_nanos: int | None = None
    minimum_nanos: int = 0
    step_ns: int = 0
    tariff: str = ""
    window: str = ""
    price_class: PriceClass = "guaranteed"
    list_nanos: int | None = None

    def __post_init__(self) -> None:
        _check_texts(
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
        _check(self.slots, self.price_nanos, self.max_cost_nanos or 0)
        _check(self.minimum_nanos, self.step_ns, self.list_nanos or 0)
        _check_times(self.opened_at_s)


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
    posted_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.contract, self.side, self.site, self.currency)
        _check(self.epoch, self.first, self.tasks, self.wall_ns, self.cost_nanos)
        _check_times(self.posted_at_s)

    @property
    def delivery(self) -> Delivery:
        """The delivery as both sides report it."""
        return delivery_of(self)


@dataclass(frozen=True, slots=True)
class PostingSettled:
    """The verdict on a posting: "post" (it is paid) or "void". The first verdict stands."""

    contract: str
    side: ContractSide
    site: str
    epoch: int
    first: int
    state: str
    cost_nanos: int  # of the posting
    currency: str
    settled_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.contract, self.side, self.site, self.state, self.currency)
        _check(self.epoch, self.first, self.cost_nanos)
        _check_times(self.settled_at_s)


@dataclass(frozen=True, slots=True)
class ContractEnded:
    """A contract ended, with nothing in flight: "settled" or "lapsed"."""

    contract: str
    side: ContractSide
    state: str
    ended_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.contract, self.side, self.state)
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class Disputed:
    """A buyer claims that a delivery should not have been charged. The first dispute stands."""

    side: ContractSide
    contract: str
    epoch: int
    first: int
    site: str  # the other site
    reason: str
    disputed_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.side, self.contract, self.site, self.reason)
        _check(self.epoch, self.first)
        _check_times(self.disputed_at_s)


@dataclass(frozen=True, slots=True)
class DisputeSettled:
    """The seller's answer to a dispute: "accepted" (reversed) or "rejected". The first stands.

    `cost_nanos` and `currency` are those of the delivery.
    """

    side: ContractSide
    contract: str
    epoch: int
    first: int
    site: str
    state: DisputeState
    answer: str
    settled_at_s: float
    cost_nanos: int
    currency: str

    def __post_init__(self) -> None:
        _check_texts(self.side, self.contract, self.site, self.state, self.answer, self.currency)
        _check(self.epoch, self.first, self.cost_nanos)
        _check_times(self.settled_at_s)


@dataclass(frozen=True, slots=True)
class StatementKept:
    """The outcome of reconciling one side's deliveries to the other in [first_ms, stop_ms).

    The newest statement stands, but an agreed one is replaced only by an agreed and final one.

    Attributes:
        state: "agreed", "pending", "differs"; "accepted" by an operator who goes on although our
            books lack entries that the other site's have.
        sums: federation.messages.reconciliation.Tally.plain, packed; `digest` is of the entries.
        details: the differences, for people to read.
        ours, theirs: the signed envelopes of both sides' statements.
    """

    side: ContractSide
    site: str
    first_ms: int
    stop_ms: int
    is_final: bool
    state: str
    sums: bytes
    digest: bytes
    details: str
    ours: bytes
    theirs: bytes
    kept_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.side, self.site, self.state, self.details)
        _check(self.first_ms, self.stop_ms)
        _check_times(self.kept_at_s)

    def replaces(self, before: "StatementKept") -> bool:
        """Whether it replaces another statement of the same time."""
        if before.state != "agreed":
            return True
        return self.state == "agreed" and self.is_final and not before.is_final


@dataclass(frozen=True, slots=True)
class Payment:
    """An amount between us and another site that is not a delivery.

    Unique by site, reference, currency and attempt.

    Attributes:
        direction: "paid" by us, "received" by us.
        through: "bank"; "exchange", into or out of another currency; "loss", written off.
        note: the rate, or the reason.
        attempt: how many bookings under this reference were reversed before.
    """

    site: str
    reference: str
    currency: str
    direction: PaymentDirection
    through: PaymentMeans
    amount_nanos: int
    note: str
    paid_at_s: float
    attempt: int = 0

    def __post_init__(self) -> None:
        _check_texts(
            self.site, self.reference, self.currency, self.direction, self.through, self.note
        )
        _check(self.amount_nanos, self.attempt)
        _check_times(self.paid_at_s)
        if self.direction not in DIRECTIONS or self.through not in MEANS:
            raise ValueError(f"{self.direction!r} through {self.through!r} is no payment")


@dataclass(frozen=True, slots=True)
class PaymentUndone:
    """A payment was booked by mistake, and is reversed. The first reversal stands.

    The fields that it shares with the payment are equal to the payment's.
    """

    site: str
    reference: str
    currency: str
    attempt: int
    direction: PaymentDirection
    through: PaymentMeans
    amount_nanos: int
    undone_why: str
    undone_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.site, self.reference, self.currency, self.direction, self.undone_why)
        _check(self.amount_nanos, self.attempt)
        _check_times(self.undone_at_s)


@dataclass(frozen=True, slots=True)
class PaymentsTold:
    """The payments with us that another site reports that it has booked; the newest report stands.

    Attributes:
        lines: federation.messages.payments.Payments.lines, packed; complete from `since_ms` on.
        heard: the digest of our last report that the site had received by then.
        envelope: the signed envelope of the report.
    """

    site: str
    lines: bytes
    since_ms: int
    heard: bytes
    envelope: bytes
    told_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.site)
        _check(self.since_ms)
        _check_times(self.told_at_s)

    @property
    def digest(self) -> bytes:
        """The digest by which the report is acknowledged."""
        return digest_of(self.lines, self.since_ms)


@dataclass(frozen=True, slots=True)
class AlertFired:
    """An alert was sent to the operators; unique by (name, key, level).

    An alert that has ended can fire again; it then starts anew.

    Attributes:
        key: its subject: a budget's period and amount, a pool, a site.
        level: of a budget, in per cent; 0 for an alert without levels.
    """

    name: str
    key: str
    level: int
    at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.name, self.key)
        _check(self.level)
        _check_times(self.at_s)


@dataclass(frozen=True, slots=True)
class AlertEnded:
    """The condition of an alert is over: if it returns, the operators are alerted again."""

    name: str
    key: str
    level: int
    ended_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.name, self.key)
        _check(self.level)
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class ReservationKept:
    """The whole new state of a reservation; the record with the later step stands.

    Attributes:
        side: "sell": of one of our pools; "buy": of another site's pool, for us.
        site: the other site; empty: it is between us and a local user.
        who: the principal that it is for, as rules name it.
        whole: the booking that it is a part of.
        price_nanos: of a slot-hour.
        step: counts its records; the first is its creation time, in milliseconds since 1970, or 0.
        left_at_s: when it was cancelled.
        billed_nanos: the charge at its end, in addition to its usage; booked at `billed_at_s`.
    """

    side: ContractSide
    reservation: str
    site: str
    whole: str
    step: int
    state: str
    pool: str
    who: str
    slots: int
    from_s: float
    until_s: float
    price_nanos: int
    currency: str
    unused_factor: int
    cancel_factor: int
    user: str
    group: str
    project: str
    made_at_s: float
    lease_s: float
    left_at_s: float | None = None
    used_ns: int = 0
    billed_nanos: int = 0
    billed_at_s: float = 0.0

    def __post_init__(self) -> None:
        _check_texts(self.side, self.reservation, self.site, self.whole, self.state, self.pool)
        _check_texts(self.who, self.currency, self.user, self.group, self.project)
        _check(self.step, self.slots, self.price_nanos, self.unused_factor, self.cancel_factor)
        _check(self.used_ns, self.billed_nanos)
        _check_times(self.from_s, self.until_s, self.made_at_s, self.lease_s, self.left_at_s or 0.0)
        _check_times(self.billed_at_s)


@dataclass(frozen=True, slots=True)
class SliceLent:
    """Another site's share of a budget of ours; the newest stands. Written before the site is told.

    Unique by budget, unit, site and account: the holder's account, by its opening time. Amounts are
    decimal texts, in nano-units, counted from then: they may exceed an integer.

    Attributes:
        granted: the total; of it `returned` was given back and `spent` was spent, as the holder
            reports.
        before: spent before its period at `since_ms`, as the holder reports.
        base: the part of `spent` that was spent before our period at `period_ms`.
        life, number: of the last request that counted: the number of the site's run, and the
            request's.
    """

    budget: str
    unit: str
    site: str
    account: int
    granted: str
    returned: str
    spent: str
    before: str
    base: str
    since_ms: int
    period_ms: int
    life: int
    number: int
    heard_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.budget, self.unit, self.site)
        _check_texts(self.granted, self.returned, self.spent, self.before, self.base)
        _check(self.account, self.since_ms, self.period_ms, self.life, self.number)
        _check_times(self.heard_at_s)


@dataclass(frozen=True, slots=True)
class SliceHeld:
    """Our account of another site's budget: our spending from then on counts.

    Unique by owner, budget and account: its opening time, in milliseconds since 1970.

    Attributes:
        unit, party, span, zone: of the budget, as we knew it then.
        is_closed: all of it was spent or given back, and its owner knows.
    """

    owner: str
    budget: str
    account: int
    unit: str
    party: str
    span: str
    zone: str
    is_closed: bool = False

    def __post_init__(self) -> None:
        _check_texts(self.owner, self.budget, self.unit, self.party, self.span, self.zone)
        _check(self.account)


# --- reading records ------------------------------------------------------------------------------


def seller_of(pool: str) -> str:
    """Return a pool's site; empty: ours. Only pools of other sites have a slash in the name."""
    site, slash, _ = pool.partition("/")
    return site if slash else ""


def sender_of(job: str) -> str:
    """Return the site that sent a job; empty: none. Only such a job has a colon in its name."""
    site, colon, _ = job.partition(":")
    return site if colon else ""


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
        posted_at_s=delivery.at_ms / 1000,
    )


def settled(
    contract: str,
    side: ContractSide,
    site: str,
    delivery: Delivery,
    verdict: Verdict,
    currency: str,
    at_s: float,
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


Record = (
    FunctionKept
    | JobOpened
    | BundleKept
    | JobClosed
    | OutcomeKept
    | JobEnded
    | UsageRecord
    | Capacity
    | AttachedLost
    | JobForgotten
    | ContractOpened
    | Posted
    | PostingSettled
    | ContractEnded
    | Disputed
    | DisputeSettled
    | StatementKept
    | Payment
    | PaymentUndone
    | PaymentsTold
    | AlertFired
    | AlertEnded
    | ReservationKept
    | SliceLent
    | SliceHeld
)


def _check(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= NUMBER_LIMIT:
            raise ValueError(f"{number} is not a number from 0 to {NUMBER_LIMIT}")


def _check_texts(*texts: str) -> None:
    together = "".join(texts)
    if "\0" in together or not (together.isascii() or _is_unicode(together)):
        raise ValueError("a text with a character that no database holds")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def _check_times(*times_s: float) -> None:
    for time_s in times_s:
        if not 0 <= time_s < TIME_LIMIT_S:  # also refuses NaN
            raise ValueError(f"{time_s} is not a time in seconds since 1970")
