"""Permanent signed declarations of sites: card, expulsions, farewells, revocations.

Any site may pass them on. A declaration is ordered by its serial: a higher one replaces a lower one
of the same site (of an expulsion: about the same site), in whatever order and by whatever route
they arrive. Two different declarations with one serial are *equivocation*: proof, by signature,
that a site contradicts itself, or that its keys were copied.

A serial is the epoch second at which it was issued, or one more than the last: a site that was
restored from a backup does not issue an old serial again.

Live messages, which are ordered by boot and sequence, are in federation.signed.envelopes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgpack

from federation.clocks import UtcS
from federation.signed import strict
from federation.signed.identity import (
    CLOCK_AHEAD_MAX_S,
    SIGNATURE_BYTES,
    SiteKey,
    TrustRefusal,
    Untrusted,
    federation_id,
    find_signer,
    public_key,
    site_id,
)
from federation.words import duration_text

CARD_BYTES_MAX: Final = 8 << 10
LEAF_BYTES_MAX: Final = 2 << 10
PAST_MAX: Final = 8
ADDRESSES_MAX: Final = 8
CONTACT_CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 200
REVOKED_MAX: Final = 1_000  # tokens of one site that are revoked and have not expired
TOKEN_PATTERN: Final = "[0-9a-f]{16}"  # noqa: S105
ADDRESS: Final = r"tls\+tcp://([A-Za-z0-9.-]{1,100}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}"


@dataclass(frozen=True, slots=True)
class SiteCard:
    """The identity of a site.

    Args:
        keys: the first signs now, the second will follow it.
        past: retired keys by which longer-lived signatures (tokens, grants, declarations) still
            count; a stolen key is not among them.
        leaves: of TLS, like the keys; DER, and opaque here: gateway.trust.certificates reads them.
        addresses: where its gateway listens for others; a site without one only dials.
        contact: for people.
    """

    federation: str
    site: str
    keys: tuple[bytes, ...]
    past: tuple[bytes, ...]
    leaves: tuple[bytes, ...]
    addresses: tuple[str, ...]
    contact: str
    serial: int
    issued_s: UtcS


@dataclass(frozen=True, slots=True)
class Expulsion:
    """A site's declaration on another: expelled (`stands`), or kept, which revokes an expulsion."""

    federation: str
    by: str
    site: str
    stands: bool
    reason: str
    serial: int
    issued_s: UtcS


@dataclass(frozen=True, slots=True)
class Farewell:
    """A site has left. Voids every card of it up to this serial."""

    federation: str
    site: str
    serial: int
    issued_s: UtcS


@dataclass(frozen=True, slots=True)
class Revocations:
    """All unexpired tokens of a site that it has revoked."""

    federation: str
    site: str
    tokens: tuple[str, ...]
    serial: int
    issued_s: UtcS


S = TypeVar("S", bound=SiteCard | Expulsion | Farewell | Revocations)

_common: dict[str, strict.Check] = {
    "federation": federation_id,
    "site": site_id,
    "serial": strict.count,
    "issued_s": strict.moment,
}
_CARD = strict.Form(
    SiteCard,
    {
        **_common,
        "keys": strict.several(public_key, 1, 2),
        "past": strict.several(public_key, 0, PAST_MAX),
        "leaves": strict.several(strict.data(1, LEAF_BYTES_MAX), 1, 2),
        "addresses": strict.several(strict.matching(ADDRESS), 0, ADDRESSES_MAX),
        "contact": strict.line(CONTACT_CHARS_MAX),
    },
    CARD_BYTES_MAX,
)
_EXPULSION = strict.Form(
    Expulsion,
    {
        **_common,
        "by": site_id,
        "stands": strict.flag,
        "reason": strict.line(REASON_CHARS_MAX),
    },
    2 << 10,
)
_FAREWELL = strict.Form(Farewell, _common, 1 << 10)
_REVOCATIONS = strict.Form(
    Revocations,
    {**_common, "tokens": strict.several(strict.matching(TOKEN_PATTERN), 0, REVOKED_MAX)},
    32 << 10,
)
_FORMS: Final[dict[type, tuple[str, strict.Form[Any]]]] = {
    SiteCard: ("card", _CARD),
    Expulsion: ("expulsion", _EXPULSION),
    Farewell: ("farewell", _FAREWELL),
    Revocations: ("revocations", _REVOCATIONS),
}
_WRAPPING: Final = 16  # of body and signature


@dataclass(frozen=True, slots=True)
class Signed(Generic[S]):
    """A declaration with the bytes that were signed, so that it can be passed on and proved."""

    content: S
    body: bytes
    signature: bytes

    @property
    def raw(self) -> bytes:
        """The bytes that travel and are stored."""
        return bytes(msgpack.packb([self.body, self.signature], use_bin_type=True))


def next_serial(last: int, utc_s: UtcS) -> int:
    """Return the serial of a site's next declaration, after `last`."""
    return max(last + 1, int(utc_s))


def sign(content: S, key: SiteKey) -> Signed[S]:
    """Sign a declaration of our own. A card is signed by the first key that it names.

    ValueError when another site would refuse it.
    """
    domain, form = _FORMS[type(content)]
    body = form.encode(content)
    if isinstance(content, SiteCard) and content.keys[0] != key.public:
        raise ValueError("a card must be signed by its first key")
    return Signed(content, body, key.sign(domain, body))


def read_card(raw: bytes) -> Signed[SiteCard]:
    """Read a card, and check that the key which it names as current has signed it.

    That proves it intact, not authentic: an operator or an older card must vouch for the key.

    Raises:
        ProtocolError: it is no card.
        Untrusted: BAD_SIGNATURE.
    """
    found = parse(SiteCard, raw)
    _check_signature(found, found.content.keys[:1])
    return found


def read(
    kind: type[S], raw: bytes, keys_of: Callable[[str], Sequence[bytes]]
) -> tuple[str, Signed[S]]:
    """Read a declaration by any site, and check that one of that site's keys has signed it.

    Returns:
        The site that made the declaration, and the declaration.

    Raises:
        ProtocolError: it is not one of this kind.
        Untrusted: UNKNOWN_SITE, when `keys_of` knows no keys of it; BAD_SIGNATURE.
    """
    found = parse(kind, raw)
    content = found.content
    by = content.by if isinstance(content, Expulsion) else content.site
    keys = keys_of(by)
    if not keys:
        raise Untrusted(TrustRefusal.UNKNOWN_SITE, f"the declaration is of site {by!r}")
    _check_signature(found, keys)
    return by, found


def parse(kind: type[S], raw: bytes) -> Signed[S]:
    """Read a declaration without checking its signature; ProtocolError if it is none."""
    _, form = _FORMS[kind]
    bytes_max = form.bytes_max + SIGNATURE_BYTES + _WRAPPING
    body, signature = strict.decode_parts(raw, bytes_max, "body signature")
    return Signed(form.decode(body), body, signature)


def _check_signature(found: Signed[Any], keys: Sequence[bytes]) -> None:
    domain, _ = _FORMS[type(found.content)]
    if find_signer(keys, found.signature, domain, found.body) is None:
        raise Untrusted(
            TrustRefusal.BAD_SIGNATURE,
            f"{domain} of site {found.content.site!r} is not signed by that site",
        )


class DeclarationOrder(StrEnum):
    """How a declaration that arrived compares with the one that we have."""

    NEWER = "newer"
    SAME = "same"
    OLDER = "older"


def order(old: Signed[S] | None, new: Signed[S], utc_s: UtcS) -> DeclarationOrder:
    """Compare a verified declaration with the one of its site that we have, if any.

    A card follows another only if it is signed by a key that the other names: so keys rotate.

    Raises:
        Untrusted: NOT_SUCCESSOR, when a card does not follow ours (this is checked before
            equivocation, so that a stranger can't frame a site); AHEAD, when it was issued later
            than our clock allows; EQUIVOCATION, when it has the serial of ours and differs: keep
            both.
    """
    site, serial = new.content.site, new.content.serial
    if old is not None and serial < old.content.serial:
        return DeclarationOrder.OLDER
    if isinstance(new.content, SiteCard) and old is not None and not follows(old, new):
        raise Untrusted(
            TrustRefusal.NOT_SUCCESSOR,
            f"the card of {site!r} is not signed by a key of its previous card",
        )
    ahead_s = new.content.issued_s - utc_s
    if ahead_s > CLOCK_AHEAD_MAX_S:
        raise Untrusted(TrustRefusal.AHEAD, f"issued {duration_text(ahead_s)} in the future")
    if old is None or serial > old.content.serial:
        return DeclarationOrder.NEWER
    if new.body != old.body:
        raise Untrusted(
            TrustRefusal.EQUIVOCATION,
            f"site {site!r}: two different declarations have the serial {serial}",
        )
    return DeclarationOrder.SAME


def follows(old: Signed[Any], new: Signed[Any]) -> bool:
    """Whether a card is of the same site and federation as another, and by one of its keys."""
    was, now = old.content, new.content
    same = (was.site, was.federation) == (now.site, now.federation)
    return same and now.keys[0] in was.keys
