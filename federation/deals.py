"""What two gateways say to each other about a contract: the buyer dials, the seller answers.

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

`SEALED` ones travel inside `Sealed`, signed by their site; the others only within the session,
whose both ends have proved who they are. `contract` is the buyer's name for it, never used twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from federation.contracts import Delivery
from federation.wire import (
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
    """Either side: an envelope (federation.envelopes) around one of the SEALED messages."""

    kind: ClassVar[str] = "sealed"
    envelope: bytes


# --- buyer → seller ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskQuote:
    """What would it cost to run so many tasks of this kind, and when?

    `pool` is the one that was advertised, or empty: whatever you have, or know of. `task_s` is
    None when nobody ever ran the function. `path` are the sites that the job has come through,
    the buyer last; `hops_left` how often it may go on from the seller. `grant` is what its user
    allows (federation.grants): a chain of blocks, the last one signed by the buyer, for this
    contract with this seller.
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
    currency: Text  # that the price must be in; empty: any
    wishes: Plain
    path: Names
    hops_left: Count
    grant: bytes
    preemptible: bool = False  # the price class that the user chose


@dataclass(frozen=True, slots=True)
class Hold:
    """Set aside what was quoted, for a moment."""

    kind: ClassVar[str] = "hold"
    contract: Text


@dataclass(frozen=True, slots=True)
class Commit:
    """The contract is on: at this price, by this lease. The buyer has it on disk.

    `tariff`, `minimum_nanos` and `step_ns` are those of the quote.
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


@dataclass(frozen=True, slots=True)
class Forward:
    """Run calls `first`, `first` + 1, …, of the job, under this epoch: a number that only grows.

    What comes back under another epoch than a task last went under does not count.
    """

    kind: ClassVar[str] = "forward"
    contract: Text
    epoch: Count
    first: Count
    arguments: Payloads


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Give back what has not started of these; with `kill`, stop the rest and forget it.

    Answered by GivenBack.
    """

    kind: ClassVar[str] = "reclaim"
    contract: Text
    epoch: Count
    first: Count
    stop: Count
    kill: bool


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to Renew: these contracts go on, counted from when the seller asked.

    Those that are not named have ended: the seller stops their tasks.
    """

    kind: ClassVar[str] = "granted"
    stamp: Count
    contracts: Names


@dataclass(frozen=True, slots=True)
class Settle:
    """The answer to Bill: [epoch, first, 1] is posted, [epoch, first, 0] void. On disk here."""

    kind: ClassVar[str] = "settle"
    contract: Text
    verdicts: Rows


@dataclass(frozen=True, slots=True)
class Resume:
    """After a restart of the buyer: what do you still have of this? Answered by Holding."""

    kind: ClassVar[str] = "resume"
    contract: Text


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop what runs under it: nobody wants it any more. What was delivered is still settled."""

    kind: ClassVar[str] = "abandon"
    contract: Text


@dataclass(frozen=True, slots=True)
class CloseContract:
    """No more tasks will come under it."""

    kind: ClassVar[str] = "close-contract"
    contract: Text


# --- seller → buyer ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quote:
    """A slot-hour in this pool costs so much, for `valid_s` seconds.

    So many slots would work on it; the first task would start in `begin_in_s`, the last would be
    done in `finish_in_s`. It is the price for this buyer and this kind of job, by the price list
    `tariff`, in its `window`; `list_nanos` is what it is without a contract. Each task costs
    `minimum_nanos` at least, and time counts in whole steps of `step_ns` (policies.tariffs has the
    rule). After a new session it is said once more of a contract that is open, for a buyer that
    has restarted: its books have no more than the price.
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
    lease_s: Number  # the shortest lease that is taken: our workers' grace is half of it, or less
    preemptible: bool = False
    tariff: Text = ""
    window: Text = ""
    list_nanos: Count = 0
    minimum_nanos: Count = 0
    step_ns: Count = 0


@dataclass(frozen=True, slots=True)
class Decline:
    """No: `code` is a Reason. To whatever was said last; the contract has ended."""

    kind: ClassVar[str] = "decline"
    contract: Text
    code: Text
    reason: Text


@dataclass(frozen=True, slots=True)
class Held:
    """It is set aside until `held_s` seconds from now."""

    kind: ClassVar[str] = "held"
    contract: Text
    held_s: Number


@dataclass(frozen=True, slots=True)
class Committed:
    """The contract is open here as well: forward."""

    kind: ClassVar[str] = "committed"
    contract: Text


@dataclass(frozen=True, slots=True)
class Deliver:
    """Results of a contiguous part of a forward, as in Report, and what they cost.

    The seller has its usage record on disk, as of `at_ms` milliseconds since 1970: the buyer books
    it with the same time, so that both sum up the same for any day. `sites` are those behind the
    seller that the results came through, the one where they ran last; empty for the seller's own.

    The last five are what the seller says that it emitted: microjoules, nanograms of CO2e for
    them and for the making of the hardware, the intensity of the electricity, and where that figure
    comes from; empty: unknown.
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

    @property
    def delivery(self) -> Delivery:
        """What both sides book of it."""
        stop = self.first + len(self.values)
        return Delivery(self.epoch, self.first, stop, self.cost_nanos, self.wall_ns, self.at_ms)


@dataclass(frozen=True, slots=True)
class GivenBack:
    """These tasks never ran, or were stopped as asked: they are the buyer's again.

    The answer to Reclaim (empty: all had started), or of the seller's own accord: a window
    closes, something more urgent came.
    """

    kind: ClassVar[str] = "given-back"
    contract: Text
    epoch: Count
    ranges: Pairs


@dataclass(frozen=True, slots=True)
class Renew:
    """May these contracts go on? Answered by Granted with the same stamp."""

    kind: ClassVar[str] = "renew"
    stamp: Count
    contracts: Names


@dataclass(frozen=True, slots=True)
class Bill:
    """What was delivered: [epoch, first, tasks, cost in nano-units, wall in ns, at in ms].

    The seller's usage records, signed. Answered by Settle.
    """

    kind: ClassVar[str] = "bill"
    contract: Text
    deliveries: Rows


@dataclass(frozen=True, slots=True)
class Holding:
    """After a new session: what is still out under a contract here: [epoch, first, stop].

    What was delivered and has no verdict is among them, and is delivered again.
    """

    kind: ClassVar[str] = "holding"
    contract: Text
    forwards: Rows


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is out under it any more, and nothing is owed."""

    kind: ClassVar[str] = "closed"
    contract: Text


FROM_BUYER: Final = (
    *(AskQuote, Hold, Commit, Forward, Reclaim),
    *(Granted, Settle, Resume, Abandon, CloseContract),
)
FROM_SELLER: Final = (
    *(Quote, Decline, Held, Committed, Deliver, GivenBack),
    *(Renew, Bill, Holding, Closed),
)
SEALED: Final = (Quote, Commit, Bill, Settle)

FromBuyer = (
    AskQuote
    | Hold
    | Commit
    | Forward
    | Reclaim
    | Granted
    | Settle
    | Resume
    | Abandon
    | CloseContract
)
FromSeller = (
    Quote | Decline | Held | Committed | Deliver | GivenBack | Renew | Bill | Holding | Closed
)
Deal = FromBuyer | FromSeller
