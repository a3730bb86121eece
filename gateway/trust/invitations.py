"""Invitations: lines of text by which one site's operator admits another site.

Any member can make one without asking the others. An invitation names the address to go to and the
TLS leaf and key to expect there. It holds a secret that is valid for one site and a limited time.
gateway.trust.joining defines the exchange between the two gateways.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import strict
from federation.signed.declarations import ADDRESS, SiteCard
from federation.signed.identity import (
    TrustRefusal,
    Untrusted,
    federation_id,
    from_text,
    public_key,
    signed_bytes,
    site_id,
    to_text,
)
from gateway.trust.book import BookError
from gateway.trust.certificates import leaf_hash

PREFIX: Final = "gfi1"
SECRET_BYTES: Final = 16
TEXT_CHARS_MAX: Final = 2048
VALID_S: Final = 86400.0
# Expired invitations are remembered for this long, so that a late joiner is told that his expired.
REMEMBERED_S: Final = 30 * 86400.0
INVITATIONS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Invitation:
    """The content of an invitation: `leaf` is the SHA-256 of the leaf, `key` the key itself."""

    federation: str
    site: str
    address: str
    key: bytes
    leaf: bytes
    expires_s: UtcS
    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """The invitation's id: derived from the secret, which it does not reveal."""
        return sha256(signed_bytes("invitation", self.secret)).hexdigest()[:16]


_INVITATION = strict.Form(
    Invitation,
    {
        "federation": federation_id,
        "site": site_id,
        "address": strict.matching(ADDRESS),
        "key": public_key,
        "leaf": strict.data(32, 32),
        "expires_s": strict.moment,
        "secret": strict.data(SECRET_BYTES, SECRET_BYTES),
    },
    1 << 10,
    closed=True,
)


def write_invitation(invitation: Invitation) -> str:
    """Encode an invitation as text to copy."""
    return to_text(PREFIX, _INVITATION.encode(invitation))


def read_invitation(text: str, utc_s: UtcS) -> Invitation:
    """Read the text of an invitation.

    Raises:
        Untrusted: ALTERED, when it is not whole or not an invitation; EXPIRED.
    """
    try:
        payload = from_text(PREFIX, text, TEXT_CHARS_MAX)
    except Untrusted as error:
        fault = error.details.partition(":")[0]
        raise Untrusted(
            error.refusal, f"the invitation was not copied whole ({fault}): copy the line again"
        ) from None
    try:
        invitation = _INVITATION.decode(payload)
    except ProtocolError as error:
        raise Untrusted(
            TrustRefusal.ALTERED, f"the invitation is of another version: {error}"
        ) from None
    if invitation.expires_s <= utc_s:
        raise Untrusted(TrustRefusal.EXPIRED, "the invitation has expired: ask for a new one")
    return invitation


# --- issued invitations --------------------------------------------------------------------------


@dataclass(slots=True)
class Issued:
    """An invitation that this site made, and its use."""

    secret: bytes = field(repr=False)
    expires_s: UtcS
    approve: bool  # whether a joiner with it is approved at once
    used_by: str = ""
    used_key: bytes = b""


class Invitations:
    """The invitations that a site has made, by id."""

    def __init__(self) -> None:
        self.issued: dict[str, Issued] = {}

    def __iter__(self) -> Iterator[tuple[str, Issued]]:
        return iter(self.issued.items())

    def make(
        self,
        card: SiteCard,
        leaf: bytes,
        address: str,
        secret: bytes,
        utc_s: UtcS,
        *,
        valid_s: float = VALID_S,
        approve: bool = False,
    ) -> Invitation:
        """Make an invitation from our own card.

        Args:
            card: our current card.
            leaf: our leaf that is shown at that address, DER.
            address: the address that the joiner dials.
            secret: fresh random bytes.
            utc_s: now.
            valid_s: how long the invitation is valid.
            approve: whether the joiner is approved at once, without a look at its fingerprint.
        """
        invitation = Invitation(
            federation=card.federation,
            site=card.site,
            address=address,
            key=card.keys[0],
            leaf=leaf_hash(leaf),
            expires_s=utc_s + valid_s,
            secret=secret,
        )
        for each, old in list(self.issued.items()):
            if utc_s - old.expires_s > REMEMBERED_S:
                del self.issued[each]
        if len(self.issued) >= INVITATIONS_MAX:
            raise BookError(f"{INVITATIONS_MAX} invitations are open already: withdraw some")
        self.issued[invitation.id] = Issued(secret, invitation.expires_s, approve)
        return invitation

    def withdraw(self, invitation: str) -> None:
        """Revoke an invitation; BookError when there is none of this id."""
        if self.issued.pop(invitation, None) is None:
            raise BookError(f"invitation {invitation!r} not found")

    def find(self, invitation: str, key: bytes, utc_s: UtcS) -> Issued:
        """Return the invitation if it is valid for a joiner with this key.

        A joiner that used it before may use it again until it expires: the answer may have been
        lost.

        Raises:
            Untrusted: UNKNOWN_INVITATION, EXPIRED, USED.
        """
        found = self.issued.get(invitation)
        if found is None:
            raise Untrusted(TrustRefusal.UNKNOWN_INVITATION, "invitation not found")
        if found.expires_s <= utc_s:
            raise Untrusted(TrustRefusal.EXPIRED, "the invitation has expired: ask for a new one")
        if found.used_key not in (b"", key):
            raise Untrusted(
                TrustRefusal.USED, f"site {found.used_by!r} has used this invitation already"
            )
        return found
