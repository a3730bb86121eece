"""Everything that the broker can ask to be done. Closed: the performer matches on every one.

The order is a contract: a `Tell` leaves only after every `Write` before it in the list has been
stored, so that no result is released before its usage record would survive. An `Order` to a
worker waits for nothing, and neither does a refusal.
"""

from dataclasses import dataclass

from federation.messages import ToClient, ToWorker
from gateway.ledger.records import Record


@dataclass(frozen=True, slots=True)
class Write:
    """Store a record; `durable` when somebody is told that it will survive a power cut."""

    record: Record
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a client, once everything written before it is stored."""

    client: int
    message: ToClient


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


Effect = Write | Tell | Order | Expel
