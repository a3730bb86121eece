"""What a gateway asks its store to write: a closed union of frozen facts.

Writing a record twice changes nothing. That is what lets a gateway that was killed do again
whatever it is not sure of, and nothing is ever charged or kept twice.

Every number and every text is checked here, where the mistake is made: SQL integers end at
2**63 - 1, PostgreSQL holds no NUL, and neither database half a surrogate pair. What the database
can't hold, from a worker, a client or another site, must not stop the writer, which everybody
shares.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from federation.contracts import Delivery, Verdict
from federation.payments import digest_of

NUMBER_LIMIT: Final = 2**63 - 1
TIME_LIMIT_S: Final = 253_402_300_800  # the end of the year 9999, where calendars end
HOUR_S: Final = 3_600

UsageState = Literal["ok", "failed", "cancelled", "preempted", "repeat", "void", "lost", "wasted"]

# States of tasks that ended without a result. They are charged, if they did anything.
TRIED: Final = ("failed", "cancelled", "preempted")


def is_for_its_user(state: str, price_class: str) -> bool:
    """Whether what was used is for its user to pay: not what was done in vain through our doing.

    That is what ran again through nobody's fault, what could not be delivered to the site that sent
    it, what ended with its worker, and what had to make room for others, unless its price says that
    it may have to.
    """
    is_free = state in ("repeat", "void", "lost")
    return not is_free and (state != "preempted" or price_class == "preemptible")


def earns_volume(state: str, price_class: str) -> bool:
    """Whether time counts towards volume prices: what is paid, and not what is done once more.

    Of a run that ended with its worker the next one counts.
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
# What making a record of fields that are none raises, when they were read and not written by us.
NO_RECORD: Final = (ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class FunctionKept:
    """A function that a detached job needs, by the digest of its body.

    Write it in one call with the JobOpened that names it.
    """

    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class JobOpened:
    """A job was accepted; `spec` is opaque here.

    `function` is the digest of a kept function, None for an attached job. Opening a job that is
    there changes nothing, except that a job that was lost or abandoned is open again: its client
    came back.
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
    """No more tasks will come: the job has `total` of them."""

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
    """A job came to its end, and its kept arguments are dropped. The first end stands."""

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
    """What one run of tasks [first, first + tasks) used and cost; unique by (job, first, attempt).

    Attributes:
        state: "cancelled" for tasks that were stopped as nobody wanted them any more, "failed" in
            older books; "preempted" for those that were stopped to make room, and run again;
            "repeat" for tasks that were charged before and had to run again; "void" for work of
            another site that ended when its contract was over, so that it was never
            delivered; "wasted" for a run that ended with its worker, "lost" for such time of
            work that was sold, which nobody pays.
        group: of its user; empty when nobody said.
        tags: what the job asks of its workers, as `policies.placement.show_tags` writes it.
        price_class: what was bought.
        window: the part of the tariff that was in force, by its name; empty: it has none.
        list_cost_nanos: what it would have cost whoever has no contract; None: the same.
        list_price_nanos: of a slot-hour, without a contract; None: the same.
        energy_uj: microjoules, of the pool's hardware and building.
        carbon_ng: nanograms of CO2e for that energy; `embodied_ng` for the making of the hardware.
        intensity_mg_per_kwh: of CO2e, by which `carbon_ng` was worked out.
        carbon_source: where that figure comes from; empty: unknown, and `carbon_ng` says nothing.
        free_ns: of its slot time, what its tasks had paid for before. No column of the books: it
            follows from the records of the job (gateway.credits).
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
        """What its user is charged: not overhead, which its site pays to the one that ran it."""
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
        """Whether its tasks are charged by it: what failed before it did anything is not."""
        return self.state == "ok" or (self.state in TRIED and self.wall_ns > 0)

    @property
    def hour(self) -> int:
        """The UTC hour of `ended_at_s`, counted from 1970-01-01T00.

        Computed here, and not in SQL, because databases disagree on making a float an integer.
        """
        return int(self.ended_at_s // HOUR_S)

    @property
    def site(self) -> str:
        """The site that it was bought from; empty: it ran here."""
        return seller_of(self.pool)

    @property
    def origin(self) -> str:
        """The site that sent it; empty: its user is ours."""
        return sender_of(self.job)

    @property
    def footprint(self) -> FootprintKnown:
        """What is known of its emissions: its energy and the carbon of it, energy, or nothing."""
        if self.carbon_source:
            return "carbon"
        return "energy" if self.energy_uj or self.embodied_ng else ""

    @property
    def records(self) -> int:
        """How many records it stands for; more than one where old ones are rolled up."""
        return 1


@dataclass(frozen=True, slots=True)
class Capacity:
    """So many slots of a pool were there, from one moment to another; unique by (pool, since_s).

    What of it no usage record accounts for stood idle. It is within one UTC hour.
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
        """The UTC hour that it is in, counted from 1970-01-01T00."""
        return int(self.since_s // HOUR_S)

    @property
    def slot_ns(self) -> int:
        """The slot time that it comes to."""
        return max(0, round((self.until_s - self.since_s) * 1e9)) * self.slots


@dataclass(frozen=True, slots=True)
class AttachedLost:
    """Every attached job that is open died with its gateway: end it with the state "lost"."""

    ended_at_s: float

    def __post_init__(self) -> None:
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """Drop the results of an ended job, and its function unless another job needs it.

    The job's row and its usage stay. Of a job that has not ended nothing is dropped.
    """

    job: str

    def __post_init__(self) -> None:
        _check_texts(self.job)


@dataclass(frozen=True, slots=True)
class ContractOpened:
    """A contract with another site is on: we buy, or we sell. Written before it is said.

    What it is charged by is all here: after a restart nobody else's word on it counts.

    Attributes:
        job: our own id of the job.
        pool: the seller's.
        max_cost_nanos: that its grant allows; None: no limit.
        minimum_nanos: that each task costs at least.
        step_ns: time is rounded up to whole steps of so many nanoseconds; 0: it is not.
        tariff: names the price list; empty: the contract does.
        window: the part of it that was in force, by its name; empty: it has none.
        list_nanos: what a slot-hour costs whoever has no contract; None: the same.
    """

    contract: str
    side: ContractSide
    site: str  # the other one
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
    site: str  # the other one
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
        """What both sides say of it."""
        return delivery_of(self)


@dataclass(frozen=True, slots=True)
class PostingSettled:
    """The verdict on a posting: "post", it is paid, or "void". The first verdict stands."""

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
    """Nothing is out under a contract any more: "settled" or "lapsed"."""

    contract: str
    side: ContractSide
    state: str
    ended_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.contract, self.side, self.state)
        _check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class Disputed:
    """A buyer says that a delivery should not have been charged. The first time stands."""

    side: ContractSide
    contract: str
    epoch: int
    first: int
    site: str  # the other one
    reason: str
    disputed_at_s: float

    def __post_init__(self) -> None:
        _check_texts(self.side, self.contract, self.site, self.reason)
        _check(self.epoch, self.first)
        _check_times(self.disputed_at_s)


@dataclass(frozen=True, slots=True)
class DisputeSettled:
    """The seller's word on a dispute: "accepted", it is reversed, or "rejected". The first stands.

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
    """What was found about what one side delivered to the other in [first_ms, stop_ms).

    The last one stands; what was agreed only makes way for what is agreed and final.

    Attributes:
        state: "agreed", "pending", "differs"; "accepted" by an operator who goes on though our
            books lack what the other's have.
        sums: federation.reconciliation.Tally.plain, packed; `digest` is of the entries.
        details: what differs, for people.
        ours, theirs: the signed envelopes that said so.
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
        """Whether it stands where there was another one of the same time."""
        if before.state != "agreed":
            return True
        return self.state == "agreed" and self.is_final and not before.is_final


@dataclass(frozen=True, slots=True)
class Payment:
    """An amount between us and another site that is no delivery.

    Unique by site, reference, currency and attempt.

    Attributes:
        direction: "paid" by us, "received" by us.
        through: "bank"; "exchange", into or out of another currency; "loss", written off.
        note: the rate, or the reason.
        attempt: how often what was booked under this reference was undone before.
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
    """A payment was booked by mistake, and is reversed. The first time stands.

    What it repeats of the payment is as it is there.
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
    """What another site says it has booked of payments with us; the newest stands.

    Attributes:
        lines: federation.payments.Payments.lines, packed; `since_ms` is from when on that is all.
        heard: the digest of what it had heard of us by then.
        envelope: the signed one that said so.
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
        """By which it is said that this was heard."""
        return digest_of(self.lines, self.since_ms)


@dataclass(frozen=True, slots=True)
class AlertFired:
    """An alert was given: operators were told; unique by (name, key, level).

    One that is over can be fired again, and then begins anew.

    Attributes:
        key: what it is about: a budget's period and amount, a pool, a site.
        level: of a budget, in per cent; 0 for what has none.
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
    """What an alert was about is over: if it comes again, operators are told again."""

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
    """A reservation as it is from now on, whole: of two records the one of the later step stands.

    Attributes:
        side: "sell": of a pool of ours; "buy": of another site's, for us.
        site: the other one; empty: it is between us and a user of ours.
        who: for whom, as rules name them.
        whole: the booking that it is a part of.
        price_nanos: of a slot-hour.
        step: counts its records; the first is when it was made, in milliseconds since 1970, or 0.
        left_at_s: when it was cancelled.
        billed_nanos: what was charged at its end, besides what was used; at `billed_at_s`.
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
    """What another site holds of a budget of ours; the newest stands. Written before it is said.

    Unique by budget, unit, site and account: the holder's, by when it was opened. Amounts are
    decimal texts, in nano-units, counted from then: they may be more than an integer holds.

    Attributes:
        granted: in all; of that `returned` was given back and `spent` is spent, as the holder says.
        before: what was spent before its period at `since_ms`, as it says.
        base: what of `spent` was spent before our period at `period_ms`.
        life, number: of its last question that counted.
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
    """An account of ours of another site's budget: what we spend from then on counts.

    Unique by owner, budget and account: when it was opened, in milliseconds since 1970.

    Attributes:
        unit, party, span, zone: of the budget, as we had it then.
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


# --- what is read back ---------------------------------------------------------------------------


def seller_of(pool: str) -> str:
    """The site that a pool is of; empty: ours. Only others' pools have a slash in their name."""
    site, slash, _ = pool.partition("/")
    return site if slash else ""


def sender_of(job: str) -> str:
    """The site that sent a job; empty: none. Only such a job has a colon in its name."""
    site, colon, _ = job.partition(":")
    return site if colon else ""


def delivery_of(row: Any) -> Delivery:
    """What both sides say of a Posted, or of a PostingRow."""
    stop, at_ms = row.first + row.tasks, round(row.posted_at_s * 1000)
    return Delivery(row.epoch, row.first, stop, row.cost_nanos, row.wall_ns, at_ms)


def posted(
    contract: str, side: ContractSide, site: str, delivery: Delivery, currency: str
) -> Posted:
    """The record of a delivery."""
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
    """The record of the verdict on a delivery."""
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
