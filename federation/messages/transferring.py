"""The messages between two gateways about objects that move from one site to the other.

    receiver                                          site that holds the objects
      AskTickets ──────────────────────────────────────►   contract and digests
      ◄──────────────────────────────────────── Tickets   sealed: for each a ticket, or why not
      ══════════════ bulk port: the bytes ══════════════
      Receipts ────────────────────────────────────────►   sealed: what has arrived

Bytes of objects are in none of them: federation.bulk has these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from federation.messages.registry import FromEither, Receiver
from federation.messages.wire import Count, Payloads, Text, Texts

DIGESTS_MAX: Final = 500  # in one question: the answer must fit into an envelope


@dataclass(frozen=True, slots=True)
class AskTickets(FromEither, to=Receiver.OBJECTS, at_once=True):
    """Ask for objects to which calls refer that were forwarded under a contract."""

    kind: ClassVar[str] = "ask-tickets"
    request: Count
    contract: Text
    digests: Payloads


@dataclass(frozen=True, slots=True)
class Tickets(FromEither, to=Receiver.OBJECTS, sealed=True):
    """Answer to AskTickets: a ticket for each digest (federation.signed.transfers), in order.

    An empty one is refused, for the reason in the same place. `address` is of the bulk port.
    """

    kind: ClassVar[str] = "tickets"
    request: Count
    address: Text
    tickets: Payloads
    reasons: Texts


@dataclass(frozen=True, slots=True)
class Receipts(FromEither, to=Receiver.OBJECTS, sealed=True):
    """Receipts of the receiver (federation.signed.transfers) for objects that have arrived.

    With each comes its ticket, as its source has signed it: that site remembers no tickets. Those
    of moves that cost something come again with their bills and in new sessions, until they have a
    verdict.
    """

    kind: ClassVar[str] = "receipts"
    receipts: Payloads
    tickets: Payloads = field(default_factory=list)
