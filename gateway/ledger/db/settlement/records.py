"""Disputes, statements and payments: what is written, and what is read back."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from federation.clocks import UtcS
from federation.messages.payments import digest_of
from gateway.ledger.db.checks import check_numbers, check_texts, check_times
from gateway.ledger.db.contracts.records import ContractSide

DisputeState = Literal["accepted", "rejected"]
DISPUTE_STATES: Final = ("open", *get_args(DisputeState))
PaymentDirection = Literal["paid", "received"]
PaymentMeans = Literal["bank", "exchange", "loss"]
DIRECTIONS: Final = get_args(PaymentDirection)
MEANS: Final = get_args(PaymentMeans)


@dataclass(frozen=True, slots=True)
class Disputed:
    """A buyer claims that a delivery should not have been charged. The first dispute counts."""

    side: ContractSide
    contract: str
    epoch: int
    first: int
    site: str  # the other site
    reason: str
    disputed_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.side, self.contract, self.site, self.reason)
        check_numbers(self.epoch, self.first)
        check_times(self.disputed_at_s)


@dataclass(frozen=True, slots=True)
class DisputeSettled:
    """The seller's answer to a dispute: "accepted" (reversed) or "rejected". The first counts.

    `cost_nanos` and `currency` are those of the delivery.
    """

    side: ContractSide
    contract: str
    epoch: int
    first: int
    site: str
    state: DisputeState
    answer: str
    settled_at_s: UtcS
    cost_nanos: int
    currency: str

    def __post_init__(self) -> None:
        check_texts(self.side, self.contract, self.site, self.state, self.answer, self.currency)
        check_numbers(self.epoch, self.first, self.cost_nanos)
        check_times(self.settled_at_s)


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
    kept_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.side, self.site, self.state, self.details)
        check_numbers(self.first_ms, self.stop_ms)
        check_times(self.kept_at_s)

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
    paid_at_s: UtcS
    attempt: int = 0

    def __post_init__(self) -> None:
        check_texts(
            self.site, self.reference, self.currency, self.direction, self.through, self.note
        )
        check_numbers(self.amount_nanos, self.attempt)
        check_times(self.paid_at_s)
        if self.direction not in DIRECTIONS or self.through not in MEANS:
            raise ValueError(f"{self.direction!r} through {self.through!r} is not a valid payment")


@dataclass(frozen=True, slots=True)
class PaymentUndone:
    """A payment was booked by mistake, and is reversed. The first reversal counts.

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
    undone_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.site, self.reference, self.currency, self.direction, self.undone_why)
        check_numbers(self.amount_nanos, self.attempt)
        check_times(self.undone_at_s)


@dataclass(frozen=True, slots=True)
class PaymentsTold:
    """The payments with us that another site reports that it has booked; the newest report counts.

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
    told_at_s: UtcS

    def __post_init__(self) -> None:
        check_texts(self.site)
        check_numbers(self.since_ms)
        check_times(self.told_at_s)

    @property
    def digest(self) -> bytes:
        """The digest by which the report is acknowledged."""
        return digest_of(self.lines, self.since_ms)


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
    disputed_at_s: UtcS
    state: str
    answer: str
    settled_at_s: UtcS | None
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
    paid_at_s: UtcS
    attempt: int = 0
    undone_at_s: UtcS | None = None
    undone_why: str = ""

    @property
    def stands(self) -> bool:
        """Whether it was not reversed."""
        return self.undone_at_s is None

    def undone(self, why: str, at_s: UtcS) -> PaymentUndone:
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
