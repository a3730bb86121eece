"""Tickets of this site, and the facts that their receipts prove. Pure.

The receiver's signed receipt says how many bytes of an object have arrived: no more than the ticket
of its source allows. So neither side can make a transfer dearer alone. A `MovedObject` is the fact
for the books.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed.transfers import TICKET_S, TransferReceipt, TransferTicket, fits
from gateway.base.scopes import ObjectScope
from gateway.contracts.model.moved import MovedObject, free_record
from gateway.ledger.db.usage.records import UsageRecord
from gateway.objects.billing import HELD_POOL
from gateway.objects.catalogue import HeldObject

_NUMBER_DIGITS: Final = 15  # of a ticket's id: 60 bits, for a column of the books


def ticket_for(  # noqa: PLR0913 - the fields of a ticket, each by its name
    id_: str,
    site: str,
    federation: str,
    to: str,
    held: HeldObject,
    user: str,
    contract: str,
    regions: frozenset[str] | None,
    utc_s: UtcS,
) -> TransferTicket:
    """Return a ticket of this site, by which another site may fetch an object.

    It is not remembered: the receipt comes back with it, and our own signature proves it.
    """
    return TransferTicket(
        id=id_,
        federation=federation,
        source=site,
        to=to,
        digest=held.key.digest,
        size=held.size,
        scope=held.key.scope,
        user=user,
        contract=contract,
        issued_s=utc_s,
        expires_s=utc_s + TICKET_S,
        regions=regions,
    )


def proved(ticket: TransferTicket, receipt: TransferReceipt) -> MovedObject:
    """Return the fact that a receipt proves of a ticket of ours.

    Raises:
        ProtocolError: the receipt is for another ticket, or for more bytes than that allows.
    """
    if not fits(receipt, ticket):
        raise ProtocolError(f"the receipt does not fit ticket {ticket.id}")
    return moved(ticket, receipt)


def moved(ticket: TransferTicket, receipt: TransferReceipt) -> MovedObject:
    """Return the fact that a receipt for a ticket proves."""
    return MovedObject(
        ticket=ticket.id,
        source=ticket.source,
        to=ticket.to,
        digest=ticket.digest,
        scope=ticket.scope,
        user=ticket.user,
        contract=ticket.contract,
        moved_bytes=receipt.moved_bytes,
        at_ms=receipt.at_ms,
    )


def moved_record(fact: MovedObject, utc_s: UtcS, currency: str, group: str) -> UsageRecord:
    """Return the record of an object that has come to this site at no cost.

    Each ticket has one: its columns are as those of held bytes (gateway.objects.billing), and its
    job begins with the site whose work it is for, as those of its tasks do.
    """
    hour = datetime.fromtimestamp(float(utc_s), UTC).strftime("%Y-%m-%dT%H")
    job = ObjectScope.read(fact.scope).record_job("moved", hour)
    first = int(fact.ticket[:_NUMBER_DIGITS], 16)
    return replace(free_record(fact, job, first, HELD_POOL, utc_s, currency), group=group)


def why_not_fetch(
    ticket: TransferTicket, site: str, digest: bytes, contract: str, jurisdiction: str
) -> str:
    """Return why the receiver does not use a ticket that it has been sent; empty if it does.

    `jurisdiction` is its own, by its configuration; empty: unknown.
    """
    if (ticket.to, ticket.digest, ticket.contract) != (site, digest, contract):
        return "the ticket is for another site, object or contract"
    if ticket.size < 1:
        return "the ticket is for an object without bytes"
    if ticket.regions is not None and jurisdiction not in ticket.regions:
        where = ", ".join(sorted(ticket.regions)[:8])
        return (
            f"the object may lie in {where}, and site {site} is in "
            f"jurisdiction {jurisdiction or 'unknown'}"
        )
    return ""
