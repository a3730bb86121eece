"""All effects that the broker can request. Closed: the performer matches on every one.

The order is a contract: a `SendToClient` is sent only after every `Write` before it in the list has
been stored, so no result is released before its usage record is safe. A `SendToWorker` to a worker
waits for nothing, and neither does a refusal. `SendToClient`, `SendToWorker` and `Expel` name the
port that they leave by: one for a contract leaves by PEER, and the exchange turns it into
`SendToSite`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.deals import Bill
from federation.messages.messages import ToClient, ToWorker
from federation.messages.registry import FromBuyer, FromEither, FromSeller, GatewayMessage
from federation.ranges import Range
from gateway.ledger.db.records import Record
from gateway.scheduler.model.ports import PortKind
from policies.costs.carbon import NOTHING_KNOWN, Footprint


@dataclass(frozen=True, slots=True)
class Write:
    """Store a record; `durable` when another party is told that it survives a power cut."""

    record: Record
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Harden:
    """Make all earlier writes survive a power cut before any later message is sent."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of results: the slot time used, its cost to the job's owner, and its emissions."""

    wall_ns: int
    cpu_ns: int
    peak_memory_bytes: int
    cost_nanos: int
    footprint: Footprint = NOTHING_KNOWN


NO_CHARGE: Final = Charge(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SendToClient:
    """Send a message to a client, once everything written before it is stored."""

    client: int
    message: ToClient
    charge: Charge | None = None
    port: PortKind = PortKind.CLIENT


@dataclass(frozen=True, slots=True)
class SendToWorker:
    """Send a message to a worker, now."""

    worker: int
    message: ToWorker
    port: PortKind = PortKind.WORKER


@dataclass(frozen=True, slots=True)
class Expel:
    """End a session whose other side breaks the rules."""

    peer: int
    reason: str
    port: PortKind


@dataclass(frozen=True, slots=True)
class Remark:
    """Tell the operator of the site, in its log."""

    text: str


@dataclass(frozen=True, slots=True)
class TakeObjects:
    """Hand results of a job, which are objects of its project, over to its client.

    A buyer of this site has no session that could hold any: they are let go.
    """

    client: int
    job: str
    project: str
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class HoldObjects:
    """Let a job hold the objects of its project that its calls refer to.

    Until these calls have ended; None: while calls of it wait for others.
    """

    job: str
    project: str
    digests: tuple[bytes, ...]
    calls: Range | None = None


@dataclass(frozen=True, slots=True)
class PullObjects:
    """Fetch objects from the buyer of a contract, for calls of its job here.

    Its tasks wait meanwhile; `Sales.objects_came` ends that.
    """

    buyer: str
    contract: str
    job: str
    user: str
    scope: str
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReadOutcomes:
    """Read outcomes of a job's tasks in the books, for calls that wait; OutcomesRead follows.

    Earlier writes are visible to it.
    """

    job: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class KeepOutput:
    """Keep output of tasks of a job of ours: (task, stream, text) of each piece."""

    job: str
    pieces: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class LogOrder:
    """Log an order of a client about a job: the job and the result, or why it was refused."""

    client: int
    text: str
    is_refused: bool = False


class PeerSide(StrEnum):
    """The other site's end of a contract."""

    BUYER = "buyer"
    SELLER = "seller"

    def check(self, message: GatewayMessage) -> None:
        """Raise ProtocolError for a message that a site at this end may not send."""
        own = FromBuyer if self is PeerSide.BUYER else FromSeller
        if not isinstance(message, (own, FromEither)):
            raise ProtocolError(f"a {self} may not send {message.kind!r}")


@dataclass(frozen=True, slots=True)
class SendToSite:
    """Send a message to another site, as its row says (federation.messages.registry)."""

    site: str
    side: PeerSide
    message: GatewayMessage


@dataclass(frozen=True, slots=True)
class SendFunction:
    """Send a seller a function, unless it was sent before; `again` when the seller asked for it."""

    site: str
    digest: bytes
    again: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBill:
    """Answer a bill from the books: its contract is over, or its verdicts are forgotten here."""

    site: str
    bill: Bill
    utc_s: UtcS


Effect = (
    Write
    | Harden
    | SendToClient
    | SendToWorker
    | Expel
    | Remark
    | KeepOutput
    | HoldObjects
    | TakeObjects
    | PullObjects
    | ReadOutcomes
    | LogOrder
    | SendToSite
    | SendFunction
    | AnswerBill
)
