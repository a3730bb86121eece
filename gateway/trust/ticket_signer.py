"""Tickets and receipts of the bulk transfer, made and checked with the keys of our registry."""

from collections.abc import Sequence
from typing import Protocol

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed.identity import SiteKey, Trust, TrustRefusal, Untrusted
from federation.signed.transfers import (
    TransferReceipt,
    TransferTicket,
    open_given,
    open_receipt,
    open_ticket,
    seal_receipt,
    seal_ticket,
)


class TicketSite(Protocol):
    """The queries on our own site that signing needs: gateway.trust.identity_store has them."""

    @property
    def book(self) -> Trust:
        """The sites that we trust."""

    @property
    def signing_key(self) -> SiteKey:
        """The key to sign with now."""


class TicketSigner:
    """Signs our tickets and receipts, and opens those of other sites."""

    def __init__(self, registry: TicketSite) -> None:
        self._registry = registry

    @property
    def federation(self) -> str:
        """The federation that this site is in."""
        return self._registry.book.federation

    def own_keys(self) -> list[bytes]:
        """Return the keys by which our tickets may be signed."""
        book = self._registry.book
        known = [self._registry.signing_key.public, *book.lasting_keys_of(book.site)]
        return list(dict.fromkeys(known))

    def ticket(self, ticket: TransferTicket) -> bytes:
        """Sign a ticket. Raises ValueError where no site would take it."""
        return seal_ticket(ticket, self._registry.signing_key)

    def receipt(self, receipt: TransferReceipt) -> bytes:
        """Sign a receipt. Raises ValueError where no site would take it."""
        return seal_receipt(receipt, self._registry.signing_key)

    def open_ticket(self, site: str, raw: bytes, utc_s: UtcS) -> TransferTicket:
        """Open a ticket of a site for us. Raises ProtocolError, Untrusted."""
        found = open_ticket(raw, _known(site, self._registry.book.keys_of(site)), utc_s)
        if (found.source, found.federation) != (site, self.federation):
            raise ProtocolError(f"the ticket is of site {found.source}, and {site} has sent it")
        return found

    def open_given(self, raw: bytes) -> TransferTicket:
        """Open our own ticket, which its receiver sends back. Raises ProtocolError, Untrusted."""
        found = open_given(raw, self.own_keys())
        if (found.source, found.federation) != (self._registry.book.site, self.federation):
            raise ProtocolError(f"the ticket is of site {found.source}, and not of this one")
        return found

    def open_receipt(self, site: str, raw: bytes) -> TransferReceipt:
        """Open a receipt of a site, which counts after a rotation too. ProtocolError, Untrusted."""
        found = open_receipt(raw, _known(site, self._registry.book.lasting_keys_of(site)))
        if found.to != site:
            raise ProtocolError(f"the receipt is of site {found.to}, and {site} has sent it")
        return found


def _known(site: str, keys: Sequence[bytes]) -> list[bytes]:
    if not keys:
        raise Untrusted(TrustRefusal.UNKNOWN_SITE, f"no key of site {site!r} is known")
    return list(keys)
