"""A site's keys: how it signs, how others check, and the fingerprints that operators compare.

Every signature of the federation is Ed25519 over a domain, which names the kind of thing signed,
and its parts, each with its length (`signed_bytes`). A signature given for one thing can therefore
never be presented for another. Signatures always cover the bytes that travel.

This module needs `cryptography` and belongs to gateways; a client never imports it.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from federation.errors import ProtocolError
from federation.signed import strict
from federation.users import SITE_PATTERN

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
NONCE_BYTES: Final = 16
# How far ahead of ours the clock of another site may be, in seconds.
CLOCK_AHEAD_MAX_S: Final = 30.0

FEDERATION_PATTERN: Final = "[a-z0-9-]{3,64}"
site_id = strict.matching(SITE_PATTERN)
federation_id = strict.matching(FEDERATION_PATTERN)

_GROUP: Final = 4
_CHECKSUM_BYTES: Final = 4
_WRONG_CHARACTER: Final = "has a wrong or missing character: copy the whole text again"
_SIGNING: Final = b"gridfed 1\0"
# The y coordinates of the points of small order. As a public key each of them accepts forged
# signatures, and a site with such a key could deny everything it ever signed.
_PRIME: Final = 2**255 - 19
_Y8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y: Final = frozenset({0, 1, _PRIME - 1, _Y8, _PRIME - _Y8})


class TrustRefusal(StrEnum):
    """Why a site's message or declaration is not believed. The value appears in logs."""

    WRONG_FEDERATION = "wrong-federation"
    WRONG_DESTINATION = "wrong-destination"
    WRONG_SITE = "wrong-site"
    UNKNOWN_SITE = "unknown-site"
    EXPELLED = "expelled"
    BAD_SIGNATURE = "bad-signature"
    ALTERED = "altered"
    STALE = "stale"
    AHEAD = "ahead"
    OLD_BOOT = "old-boot"
    REPLAYED = "replayed"
    EQUIVOCATION = "equivocation"
    NOT_SUCCESSOR = "not-successor"
    BAD_CERTIFICATE = "bad-certificate"
    EXPIRED = "expired"
    REVOKED = "revoked"
    WIDENED = "widened"
    WRONG_PARENT = "wrong-parent"
    WRONG_PURPOSE = "wrong-purpose"
    WRONG_PATH = "wrong-path"
    LOOP = "loop"
    UNKNOWN_INVITATION = "unknown-invitation"
    WRONG_SECRET = "wrong-secret"  # noqa: S105
    USED = "used"
    FULL = "full"


class Untrusted(ProtocolError):
    """Well formed, but not to be believed or obeyed; `refusal` names the reason."""

    def __init__(self, refusal: TrustRefusal, details: str) -> None:
        super().__init__(f"{refusal}: {details}")
        self.refusal = refusal
        self.details = details


class Trust(Protocol):
    """The keys that one site trusts.

    The gateway's trust book implements it; federation.signed.envelopes, tokens and grants ask
    nothing else.
    """

    @property
    def federation(self) -> str:
        """The federation that this site is in."""

    @property
    def site(self) -> str:
        """The id of this site."""

    def keys_of(self, site: str) -> Sequence[bytes]:
        """Return the site's current signing keys; none if it is unknown, has left or was expelled.

        For live messages: hellos and envelopes.
        """

    def lasting_keys_of(self, site: str) -> Sequence[bytes]:
        """Return the current keys and the retired ones by which older signatures still count.

        For tokens and grants, which outlive a rotation of keys.
        """

    def welcomes(self, site: str) -> bool:
        """Whether this site admits users with a token of that site."""

    def revoked_by(self, site: str) -> Collection[str]:
        """Return the ids of the tokens that a site has revoked."""


# --- keys and signatures ---------------------------------------------------------------------


class SiteKey:
    """A site's signing key. The seed is 32 random bytes, kept only on the site's disk.

    Signing takes some 25 µs, checking some 70 µs.
    """

    __slots__ = ("_private", "public")

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public: Final = self._private.public_key().public_bytes_raw()

    def sign(self, domain: str, *parts: bytes) -> bytes:
        """Sign the parts, for this domain only."""
        return self._private.sign(signed_bytes(domain, *parts))

    def __repr__(self) -> str:
        return f"SiteKey(public={self.public.hex()})"


def signed_bytes(domain: str, *parts: bytes) -> bytes:
    """Return the bytes that a signature covers: nothing else encodes to the same bytes."""
    pieces = [_SIGNING, domain.encode(), b"\0"]
    for part in parts:
        pieces += [len(part).to_bytes(8, "big"), part]
    return b"".join(pieces)


def verify(key: bytes, signature: bytes, domain: str, *parts: bytes) -> bool:
    """Whether the owner of this public key signed these parts for this domain."""
    public = _public_key(key)
    if public is None:
        return False
    try:
        public.verify(signature, signed_bytes(domain, *parts))
    except InvalidSignature:
        return False
    return True


def find_signer(
    keys: Iterable[bytes], signature: bytes, domain: str, *parts: bytes
) -> bytes | None:
    """Return the site's key that signed this, or None."""
    for key in keys:
        if verify(key, signature, domain, *parts):
            return key
    return None


def public_key(value: object) -> bytes:
    """Check a site's public key in a signed body; see federation.signed.strict."""
    raw = strict.data(KEY_BYTES, KEY_BYTES)(value)
    assert isinstance(raw, bytes)
    if _public_key(raw) is None:
        raise ValueError("is a weak key: its signatures prove nothing")
    return raw


@lru_cache(maxsize=8192)
def _public_key(key: bytes) -> Ed25519PublicKey | None:
    if len(key) != KEY_BYTES:
        return None
    y = int.from_bytes(key, "little") & (2**255 - 1)
    if y % _PRIME in _SMALL_ORDER_Y:
        return None
    return Ed25519PublicKey.from_public_bytes(key)


# --- text for people ---------------------------------------------------------------------------


def fingerprint(site: str, key: bytes) -> str:
    """Return the text that operators compare to approve a site: 52 characters, in fours.

    It covers the site's name and the key that signs now. That key has signed the site's card, and
    with it the TLS leaf and the next key, so nothing else needs comparing.
    """
    digest = hashlib.sha256(signed_bytes("fingerprint", site.encode(), key)).digest()
    return _grouped(base64.b32encode(digest).decode().rstrip("="))


def read_fingerprint(text: str) -> str | None:
    """Return a fingerprint that a person has entered as `fingerprint` writes it; None: it is none.

    Spacing, grouping and case do not matter.
    """
    plain = re.sub(r"[\s-]", "", text).upper()
    return _grouped(plain) if re.fullmatch("[A-Z2-7]{52}", plain) else None


def _grouped(text: str) -> str:
    return "-".join(text[at : at + _GROUP] for at in range(0, len(text), _GROUP))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints are the same, regardless of spacing, grouping and case."""
    plain = [re.sub(r"[\s-]", "", text).upper().encode() for text in (one, other)]
    return hmac.compare_digest(*plain)


def to_text(prefix: str, payload: bytes) -> str:
    """Encode bytes as text that survives copying: `prefix_`, lower-case base32 and a checksum.

    A double click selects it as one word, and a change of case does no harm.
    """
    checked = payload + _checksum(prefix, payload)
    return f"{prefix}_{base64.b32encode(checked).decode().rstrip('=').lower()}"


def from_text(prefix: str, text: str, chars_max: int) -> bytes:
    """Decode the text of `to_text`; line breaks and blanks inside it are ignored.

    Raises:
        Untrusted: ALTERED, when it is of another kind, cut short, or has a wrong character.
    """
    if len(text) > chars_max:
        raise Untrusted(TrustRefusal.ALTERED, f"has more than {chars_max:,} characters")
    found, underscore, written = "".join(text.split()).lower().partition("_")
    if not underscore or found != prefix:
        raise Untrusted(TrustRefusal.ALTERED, f"must begin with {prefix}_")
    try:
        checked = base64.b32decode(written.upper() + "=" * (-len(written) % 8))
    except binascii.Error:
        raise Untrusted(TrustRefusal.ALTERED, _WRONG_CHARACTER) from None
    payload, checksum = checked[:-_CHECKSUM_BYTES], checked[-_CHECKSUM_BYTES:]
    if checksum != _checksum(prefix, payload) or to_text(prefix, payload) != f"{prefix}_{written}":
        raise Untrusted(TrustRefusal.ALTERED, _WRONG_CHARACTER)
    return payload


def _checksum(prefix: str, payload: bytes) -> bytes:
    return hashlib.sha256(signed_bytes(prefix, payload)).digest()[:_CHECKSUM_BYTES]


# --- the hello between two gateways ------------------------------------------------------------


class PipeSide(StrEnum):
    """One end of a pipe."""

    DIALLER = "dialler"
    LISTENER = "listener"


@dataclass(frozen=True, slots=True)
class Meeting:
    """The facts about a pipe between gateways, which the site at each of its ends signs.

    TLS has shown that the other end holds the pinned leaf of some site. Only the signature shows
    which site it is, that it is running now (both nonces), and in which run (both boots).
    """

    federation: str
    dialler: str
    listener: str
    dialler_boot: int
    listener_boot: int
    dialler_nonce: bytes
    listener_nonce: bytes

    def sign(self, key: SiteKey, side: PipeSide) -> bytes:
        """Sign the meeting, as one side of it."""
        return key.sign("hello", *self._parts(side))

    def check(self, keys: Iterable[bytes], side: PipeSide, signature: bytes) -> None:
        """Check the other side's signature; `keys` are those of the site that it claims to be.

        Raises:
            Untrusted: BAD_SIGNATURE.
        """
        if find_signer(keys, signature, "hello", *self._parts(side)) is None:
            site = self.dialler if side is PipeSide.DIALLER else self.listener
            raise Untrusted(
                TrustRefusal.BAD_SIGNATURE, f"the {side} did not prove the identity of {site!r}"
            )

    def _parts(self, side: PipeSide) -> list[bytes]:
        values = (side.value, *astuple(self))
        return [each if isinstance(each, bytes) else str(each).encode() for each in values]
