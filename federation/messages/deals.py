"""The messages between two gateways about a contract: the buyer dials, the seller answers.

    buyer                                          seller
      AskQuote ─────────────────────────────────────►
      ◄────────────────────────────── Quote | Decline     a price; nothing is promised
      Hold ─────────────────────────────────────────►
      ◄─────────────────────────────── Held | Decline     slots are set aside for a moment
      Commit ───────────────────────────────────────►     the buyer has it on disk
      ◄────────────────────────── Committed | Decline
      Forward, Reclaim ─────────────────────────────►
      ◄─────────────────────────── Deliver, GivenBack
      ◄───────────────────────────────── Renew, Bill
      Granted, Settle ──────────────────────────────►
      Resume, Abandon ──────────────────────────────►
      ◄───────────────────────────────────── Holding
      CloseContract ────────────────────────────────►
      ◄────────────────────────────────────── Closed

Sealed messages travel inside `Sealed`, signed by their site. The others are protected only by the
session, in which both ends have proved their identity. `contract` is the buyer's name for the
contract, never used twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from federation.messages.contracts import Delivery
from federation.messages.registry import FromBuyer, FromSeller, Receiver
from federation.messages.wire import (
    Count,
    Failures,
    Names,
    Number,
    Pairs,
    Payloads,
    Plain,
    Prints,
    Rows,
    Text,
)


@dataclass(frozen=True, slots=True)
class Sealed:
    """Either side: an envelope (federation.signed.envelopes) around a message that is sealed."""

    kind: ClassVar[str] = "sealed"
    envelope: bytes


# --- buyer → seller ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskQuote(FromBuyer, to=Receiver.SALES):
    """Request the price and time of a number of tasks of one kind.

    `pool` is the one that was advertised, or empty: any pool that the seller has, or knows of.
    `task_s` is None if the function has never run. `path` lists the sites that the job has come
    through, the buyer last; `hops_left` is how often the seller may pass it on. `grant` is the
    permission of its user (federation.signed.grants): a chain of blocks, the last one signed by the
    buyer, for this contract with this seller.
    """

    kind: ClassVar[str] = "ask-quote"
    contract: Text
    pool: Text
    tasks: Count
    task_s: Number | None
    function: bytes
    name: Text
    user: Text
    project: Text
    priority: Number
    tags: Plain
    timeout_s: Number | None
    python: Text
    prints: bool
    currency: Text  # the currency that the price must be in; empty: any
    wishes: Plain
    path: Names
    hops_left: Count
    grant: bytes
    preemptible: bool = False  # the price class that the user chose
    inputs: bool = False  # whether calls of it have results of others among their arguments
    results: Text = ""  # "auto": large results may be left at the seller, and are fetched there
    moves: bool = False  # whether the buyer pays for objects that move, by receipts


@dataclass(frozen=True, slots=True)
class Hold(FromBuyer, to=Receiver.SALES):
    """Reserve the quoted slots for a moment."""

    kind: ClassVar[str] = "hold"
    contract: Text


@dataclass(frozen=True, slots=True)
class Commit(FromBuyer, to=Receiver.SALES, sealed=True):
    """Conclude the contract at this price, with this lease. The buyer has it on disk.

    `tariff`, `minimum_nanos`, `step_ns` and the prices of moved bytes are those of the quote.
    """

    kind: ClassVar[str] = "commit"
    contract: Text
    pool: Text
    price_nanos: Count
    currency: Text
    lease_s: Number
    tariff: Text = ""
    minimum_nanos: Count = 0
    step_ns: Count = 0
    receive_nanos: Count = 0
    send_nanos: Count = 0


@dataclass(frozen=True, slots=True)
class Forward(FromBuyer, to=Receiver.SALES, at_once=True):
    """Run calls `first`, `first` + 1, … of the job under this epoch: a number that only grows.

    A result counts only under the epoch under which its task was last forwarded. With `objects`
    some calls refer to objects of the buyer: the seller asks for tickets, and fetches them.
    """

    kind: ClassVar[str] = "forward"
    contract: Text
    epoch: Count
    first: Count
    arguments: Payloads
    objects: bool = False


@dataclass(frozen=True, slots=True)
class Reclaim(FromBuyer, to=Receiver.SALES, at_once=True):
    """Return the unstarted ones of these tasks; with `kill`, stop and forget the rest.

    Answered by GivenBack.
    """

    kind: ClassVar[str] = "reclaim"
    contract: Text
    epoch: Count
    first: Count
    stop: Count
    kill: bool


@dataclass(frozen=True, slots=True)
class Granted(FromBuyer, to=Receiver.SALES, urgent=True, at_once=True):
    """The answer to Renew: these contracts continue, counted from when the seller asked.

    A contract that is not named has ended: the seller stops its tasks.
    """

    kind: ClassVar[str] = "granted"
    stamp: Count
    contracts: Names


@dataclass(frozen=True, slots=True)
class Settle(FromBuyer, to=Receiver.SALES, sealed=True, urgent=True):
    """The answer to Bill: [epoch, first, 1] is posted, [epoch, first, 0] void. On disk here."""

    kind: ClassVar[str] = "settle"
    contract: Text
    verdicts: Rows


@dataclass(frozen=True, slots=True)
class Resume(FromBuyer, to=Receiver.SALES):
    """Ask, after a restart of the buyer, which tasks the seller still has. Answered by Holding."""

    kind: ClassVar[str] = "resume"
    contract: Text


@dataclass(frozen=True, slots=True)
class Abandon(FromBuyer, to=Receiver.SALES):
    """Stop the tasks under it: they are not wanted any more. Deliveries are still settled."""

    kind: ClassVar[str] = "abandon"
    contract: Text


@dataclass(frozen=True, slots=True)
class CloseContract(FromBuyer, to=Receiver.SALES):
    """Announce that no more tasks will come under it."""

    kind: ClassVar[str] = "close-contract"
    contract: Text


# --- seller → buyer ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quote(FromSeller, to=Receiver.PURCHASES, sealed=True):
    """The price of a slot-hour in this pool, valid for `valid_s` seconds.

    `slots` slots would work on the tasks; the first task would start in `begin_in_s`, the last
    would be done in `finish_in_s`. The price is for this buyer and this kind of job, by the price
    list `tariff`, in its `window`; `list_nanos` is the price without a contract. Each task costs at
    least `minimum_nanos`, and time counts in whole steps of `step_ns` (policies.tariffs has the
    rule). A GB of objects that comes to the seller costs `receive_nanos`, one that goes from it
    `send_nanos`: zero for a buyer that does not say `moves`. After a new session the quote of an
    open contract is sent once more, for a buyer that has restarted: its books hold only the price.
    """

    kind: ClassVar[str] = "quote"
    contract: Text
    pool: Text
    tasks: Count
    slots: Count
    price_nanos: Count
    currency: Text
    begin_in_s: Number
    finish_in_s: Number
    valid_s: Number
    lease_s: Number  # the shortest lease accepted: our workers' grace is half of it, or less
    preemptible: bool = False
    tariff: Text = ""
    window: Text = ""
    list_nanos: Count = 0
    minimum_nanos: Count = 0
    step_ns: Count = 0
    receive_nanos: Count = 0
    send_nanos: Count = 0


@dataclass(frozen=True, slots=True)
class Decline(FromSeller, to=Receiver.PURCHASES):
    """Refuse the last request; the contract has ended. `code` is a Reason."""

    kind: ClassVar[str] = "decline"
    contract: Text
    code: Text
    reason: Text


@dataclass(frozen=True, slots=True)
class Held(FromSeller, to=Receiver.PURCHASES):
    """Confirm the reservation, for `held_s` seconds from now."""

    kind: ClassVar[str] = "held"
    contract: Text
    held_s: Number


@dataclass(frozen=True, slots=True)
class Committed(FromSeller, to=Receiver.PURCHASES):
    """Confirm that the contract is open at the seller as well: the buyer may forward."""

    kind: ClassVar[str] = "committed"
    contract: Text


@dataclass(frozen=True, slots=True)
class Deliver(FromSeller, to=Receiver.PURCHASES):
    """Results of a contiguous part of a forward, as in Report, with their cost.

    The seller has its usage record on disk, as of `at_ms` milliseconds since 1970. The buyer books
    it with the same time, so that both totals agree for any day. `sites` are the sites behind the
    seller through which the results came, the one where they ran last; empty for the seller's own.
    The last five fields are the emissions by the seller's own account: energy in microjoules,
    nanograms of CO2e for that energy and for the making of the hardware, the intensity of the
    electricity, and the source of that figure; empty: unknown.
    """

    kind: ClassVar[str] = "deliver"
    contract: Text
    epoch: Count
    first: Count
    values: Payloads
    failures: Failures
    prints: Prints
    wall_ns: Count
    cpu_ns: Count
    peak_memory_bytes: Count
    cost_nanos: Count
    at_ms: Count
    sites: Names
    energy_uj: Count = 0
    carbon_ng: Count = 0
    embodied_ng: Count = 0
    intensity_mg_per_kwh: Count = 0
    carbon_source: Text = ""
    streams: list[int] = field(default_factory=list)  # of the prints, as in Report
    left: bool = False  # whether some values stand for objects of the seller, as in Report

    @property
    def delivery(self) -> Delivery:
        """The delivery that both sides book."""
        stop = self.first + len(self.values)
        return Delivery(self.epoch, self.first, stop, self.cost_nanos, self.wall_ns, self.at_ms)


@dataclass(frozen=True, slots=True)
class GivenBack(FromSeller, to=Receiver.PURCHASES):
    """Return tasks to the buyer: they never ran, or were stopped as asked.

    The answer to Reclaim (empty: all had started), or unsolicited: a window closes, or more urgent
    work came.
    """

    kind: ClassVar[str] = "given-back"
    contract: Text
    epoch: Count
    ranges: Pairs


@dataclass(frozen=True, slots=True)
class Renew(FromSeller, to=Receiver.PURCHASES, urgent=True, at_once=True):
    """Ask whether these contracts may continue. Answered by Granted with the same stamp."""

    kind: ClassVar[str] = "renew"
    stamp: Count
    contracts: Names


@dataclass(frozen=True, slots=True)
class Bill(FromSeller, to=Receiver.PURCHASES, sealed=True):
    """The deliveries: [epoch, first, tasks, cost in nano-units, wall in ns, at in ms].

    The seller's usage records, signed. Answered by Settle.
    """

    kind: ClassVar[str] = "bill"
    contract: Text
    deliveries: Rows


@dataclass(frozen=True, slots=True)
class Holding(FromSeller, to=Receiver.PURCHASES):
    """The tasks still out under a contract, after a new session: [epoch, first, stop].

    Deliveries without a verdict are included, and are delivered again.
    """

    kind: ClassVar[str] = "holding"
    contract: Text
    forwards: Rows


@dataclass(frozen=True, slots=True)
class Closed(FromSeller, to=Receiver.PURCHASES):
    """Confirm that no task is out under the contract, and no debt is left."""

    kind: ClassVar[str] = "closed"
    contract: Text
