"""Everything that the broker can ask to be done. Closed: the performer matches on every one.

The order is a contract: a `Tell` leaves only after every `Write` before it in the list has been
stored, so that no result is released before its usage record would survive. An `Order` to a
worker waits for nothing, and neither does a refusal. Handles below zero are other sites': the
exchange turns what is for them into `Say`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from federation.deals import Bill, Deal
from federation.messages import NeedFunction, ToClient, ToWorker
from federation.reserving import Reserve, Reserved
from federation.slices import SliceMessage
from gateway.ledger.records import Record
from policies.carbon import NOTHING_KNOWN, Footprint


@dataclass(frozen=True, slots=True)
class Write:
    """Store a record; `durable` when somebody is told that it will survive a power cut."""

    record: Record
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Harden:
    """All that was written before survives a power cut before anything after this is said."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What came with results: the slot time used, what it costs the job's owner, and emitted."""

    wall_ns: int
    cpu_ns: int
    peak_memory_bytes: int
    cost_nanos: int
    footprint: Footprint = NOTHING_KNOWN


NO_CHARGE: Final = Charge(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a client, once everything written before it is stored."""

    client: int
    message: ToClient
    charge: Charge | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Send a message to a worker, now."""

    worker: int
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Expel:
    """End a session whose other side breaks the rules."""

    guest: int
    reason: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Tell whoever runs the site, in its log."""

    text: str


class Side(StrEnum):
    """Which end of a contract the other site is."""

    BUYER = "buyer"
    SELLER = "seller"


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message to another site; unless it is `urgent`, once all before it is stored."""

    site: str
    side: Side
    message: Deal | NeedFunction | SliceMessage | Reserve | Reserved
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class SendFunction:
    """Let a seller have a function, unless it has been sent it; `again` when it asked for it."""

    site: str
    digest: bytes
    again: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBill:
    """A bill for a contract that is long over: what was posted is in the books."""

    site: str
    bill: Bill
    utc_s: float


Effect = Write | Harden | Tell | Order | Expel | Remark | Say | SendFunction | AnswerBill
