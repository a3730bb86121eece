"""The tickets that this site has given out, and what their receipts prove. Pure.

The receiver's signed receipt says how many bytes of an object have arrived. It counts once for
each ticket, and for no more than the object's size: so neither side can make a transfer dearer
alone. A `MovedObject` is the fact for the books.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.objects.manifests import digest_text
from federation.signed.transfers import TICKET_S, TransferReceipt, TransferTicket, fits
from gateway.base.scopes import ObjectScope
from gateway.ledger.db.usage.records import UsageRecord
from gateway.objects.billing import HELD_POOL
from gateway.objects.catalogue import HeldObject

GIVEN_MAX: Final = 20_000  # tickets of one site that are remembered; its oldest go first
MOVED_NAME: Final = "objects moved"
_NUMBER_DIGITS: Final = 15  # of a ticket's id: 60 bits, for a column of the books
LATE_S: Final = 86_400.0  # how long after its ticket a receipt may come


@dataclass(frozen=True, slots=True)
class MovedObject:
    """An object that has moved between two sites, by the receiver's receipt.

    Attributes:
        ticket: its id; both sides book the same fact under it.
        source, to: the sites.
        scope: the project at the source.
        contract: the buyer's name for it.
        moved_bytes: that have arrived; equal blocks move once, so it may be less than the size.
        at_ms: when, by the receiver's clock, milliseconds since 1970.
    """

    ticket: str
    source: str
    to: str
    digest: bytes
    scope: str
    user: str
    contract: str
    moved_bytes: int
    at_ms: int


class TicketOffice:
    """Gives out tickets for the objects of one site.

    Args:
        site, federation: ours.
    """

    def __init__(self, site: str, federation: str) -> None:
        self._site = site
        self._federation = federation
        self._given: dict[str, TransferTicket] = {}
        self._of_site: dict[str, OrderedDict[str, TransferTicket]] = {}  # by their receiver

    def give(
        self,
        id_: str,
        to: str,
        held: HeldObject,
        user: str,
        contract: str,
        regions: frozenset[str] | None,
        utc_s: UtcS,
    ) -> TransferTicket:
        """Return a ticket by which a site may fetch an object, and remember it."""
        ticket = TransferTicket(
            id=id_,
            federation=self._federation,
            source=self._site,
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
        self._given[id_] = ticket
        given = self._of_site.setdefault(to, OrderedDict())
        given[id_] = ticket
        while len(given) > GIVEN_MAX or next(iter(given.values())).expires_s < utc_s - LATE_S:
            del self._given[given.popitem(last=False)[0]]
        return ticket

    def take(self, receipt: TransferReceipt) -> MovedObject | None:
        """Return what a receipt proves; None: it counted before, or its ticket is forgotten.

        Raises:
            ProtocolError: it does not fit its ticket.
        """
        ticket = self._given.get(receipt.ticket)
        if ticket is None:
            return None
        if not fits(receipt, ticket):
            raise ProtocolError(f"the receipt does not fit ticket {receipt.ticket}")
        del self._given[ticket.id], self._of_site[ticket.to][ticket.id]
        if not self._of_site[ticket.to]:
            del self._of_site[ticket.to]
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
    """Return the record of an object that has come to this site; it costs nothing so far.

    Each ticket has one: its columns are as those of held bytes (gateway.objects.billing), and its
    job begins with the site whose work it is for, as those of its tasks do.
    """
    hour = datetime.fromtimestamp(float(utc_s), UTC).strftime("%Y-%m-%dT%H")
    scope = ObjectScope.read(fact.scope)
    return UsageRecord(
        job=scope.record_job("moved", hour),
        first=int(fact.ticket[:_NUMBER_DIGITS], 16),
        tasks=0,
        attempt=1,
        user=fact.user,
        project=scope.project,
        name=MOVED_NAME,
        pool=HELD_POOL,
        worker=digest_text(fact.digest),
        state="ok",
        started_at_s=utc_s,
        ended_at_s=utc_s,
        wall_ns=0,
        cpu_ns=0,
        peak_memory_bytes=0,
        price_nanos=0,
        currency=currency,
        tariff="",
        cost_nanos=0,
        group=group,
        kind="moved",
        moved_bytes=fact.moved_bytes,
    )


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
