"""Tickets and receipts of the bulk transfer: who may fetch which object, and what has arrived.

A *ticket* is the word of the site that holds an object: that site's bulk port hands the object to
the site that it names, which proves itself by its pinned TLS leaf. It is valid for minutes. A
*receipt* is the word of the receiver's site on how many bytes have arrived at it.
"""

from dataclasses import dataclass
from typing import Final

import msgpack

from federation.clocks import UtcS
from federation.signed import strict
from federation.signed.grants import REGION_CHARS_MAX, REGIONS_MAX
from federation.signed.identity import (
    CLOCK_AHEAD_MAX_S,
    SiteKey,
    TrustRefusal,
    Untrusted,
    federation_id,
    find_signer,
    site_id,
)
from federation.users import USER_CHARS_MAX

TICKET_S: Final = 900.0  # how long one is valid: a stream that is open by then goes on
BYTES_MAX: Final = 4 << 10
_DIGEST_BYTES: Final = 33
_NAME_CHARS_MAX: Final = 200
_TICKET: Final = "bulk ticket"
_RECEIPT: Final = "bulk receipt"


@dataclass(frozen=True, slots=True)
class TransferTicket:
    """The right to fetch one object once or again, until it expires.

    Attributes:
        id: 32 hexadecimal digits; its receipts name it.
        source: the site that holds the object, and has signed this.
        to: the site that may fetch it.
        scope: the project of the object at its source.
        user: for whom.
        contract: under which it moves; empty within a site.
        size: the bytes of the object.
        regions: the jurisdictions in which it may lie (data residency); None: any.
    """

    id: str
    federation: str
    source: str
    to: str
    digest: bytes
    size: int
    scope: str
    user: str
    contract: str
    issued_s: UtcS
    expires_s: UtcS
    regions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class TransferReceipt:
    """The bytes of one ticket that have arrived, whole and checked, by the receiver's word."""

    ticket: str
    source: str
    to: str
    digest: bytes
    moved_bytes: int
    at_ms: int


_line = strict.line(_NAME_CHARS_MAX)


def _scope(value: object) -> str:
    """Check a project; that of another site's job has a no-break space."""
    if isinstance(value, str):
        _line(value.replace("\u00a0", " "))
        return value
    return str(_line(value))


_id = strict.matching("[0-9a-f]{32}")
_digest = strict.data(_DIGEST_BYTES, _DIGEST_BYTES)
_TICKETS = strict.Form(
    TransferTicket,
    {
        "id": _id,
        "federation": federation_id,
        "source": site_id,
        "to": site_id,
        "digest": _digest,
        "size": strict.count,
        "scope": _scope,
        "user": strict.line(2 * USER_CHARS_MAX),  # with the site of one from elsewhere
        "contract": strict.line(_NAME_CHARS_MAX),
        "issued_s": strict.moment,
        "expires_s": strict.moment,
        "regions": strict.subset(strict.line(REGION_CHARS_MAX), REGIONS_MAX),
    },
    BYTES_MAX,
    closed=True,
)
_RECEIPTS = strict.Form(
    TransferReceipt,
    {
        "ticket": _id,
        "source": site_id,
        "to": site_id,
        "digest": _digest,
        "moved_bytes": strict.count,
        "at_ms": strict.count,
    },
    BYTES_MAX,
    closed=True,
)


def seal_ticket(ticket: TransferTicket, key: SiteKey) -> bytes:
    """Sign a ticket, by the key of its source."""
    return _seal(_TICKETS.encode(ticket), _TICKET, key)


def open_ticket(raw: bytes, keys: list[bytes], utc_s: UtcS) -> TransferTicket:
    """Return a ticket that one of these keys has signed, and that is valid now.

    Raises:
        ProtocolError: it is no ticket.
        Untrusted: BAD_SIGNATURE, AHEAD, EXPIRED.
    """
    ticket = _TICKETS.decode(_opened(raw, _TICKET, keys, "ticket"))
    if ticket.issued_s > utc_s + CLOCK_AHEAD_MAX_S:
        raise Untrusted(TrustRefusal.AHEAD, f"ticket {ticket.id} is not valid yet")
    if ticket.expires_s <= utc_s:
        raise Untrusted(TrustRefusal.EXPIRED, f"ticket {ticket.id} has expired")
    return ticket


def open_given(raw: bytes, keys: list[bytes]) -> TransferTicket:
    """Return a ticket that one of these keys has signed, also after its time.

    For its own site, to which a receipt comes back with it.

    Raises:
        ProtocolError: it is no ticket.
        Untrusted: BAD_SIGNATURE.
    """
    return _TICKETS.decode(_opened(raw, _TICKET, keys, "ticket"))


def seal_receipt(receipt: TransferReceipt, key: SiteKey) -> bytes:
    """Sign a receipt, by the key of the receiver."""
    return _seal(_RECEIPTS.encode(receipt), _RECEIPT, key)


def open_receipt(raw: bytes, keys: list[bytes]) -> TransferReceipt:
    """Return a receipt that one of these keys has signed.

    Raises:
        ProtocolError: it is no receipt.
        Untrusted: BAD_SIGNATURE.
    """
    return _RECEIPTS.decode(_opened(raw, _RECEIPT, keys, "receipt"))


def fits(receipt: TransferReceipt, ticket: TransferTicket) -> bool:
    """Whether a receipt is one for this ticket, and claims no more than it was for."""
    return (
        (receipt.ticket, receipt.source, receipt.to, receipt.digest)
        == (ticket.id, ticket.source, ticket.to, ticket.digest)
    ) and receipt.moved_bytes <= ticket.size


def _seal(body: bytes, domain: str, key: SiteKey) -> bytes:
    raw: bytes = msgpack.packb([body, key.sign(domain, body)], use_bin_type=True)
    return raw


def _opened(raw: bytes, domain: str, keys: list[bytes], name: str) -> bytes:
    body, signature = strict.decode_parts(raw, 2 * BYTES_MAX, "body signature")
    if find_signer(keys, signature, domain, body) is None:
        raise Untrusted(TrustRefusal.BAD_SIGNATURE, f"the {name} is not signed by its site")
    return body
