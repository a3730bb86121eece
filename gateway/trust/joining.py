"""The protocol by which two gateways meet over an invitation: messages and both sides. Pure.

The joiner fetches the leaf that is shown at the invitation's address, compares it, pins it, and
then sends over TLS:

    joiner  ── JoinApplication {invitation, card, nonce} ──►  inviter
            ◄─ JoinPresentation {card, nonce} ──────────────
            ── JoinProof {mac} ────────────────────────►   over both cards and both nonces
            ◄─ JoinAcceptance {mac, level} ─────────────────   or JoinRejection {code, reason}

Each side then holds the other's card, proved to be whole and to come from the holder of the secret.
Each is pending with the other until an operator approves its fingerprint, unless the invitation
approves automatically.
"""

import hmac
from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import strict
from federation.signed.declarations import Signed, SiteCard, next_serial, read_card, sign
from federation.signed.identity import NONCE_BYTES, SiteKey, TrustRefusal, Untrusted, signed_bytes
from federation.words import clean
from gateway.trust.book import BookError, TrustBook
from gateway.trust.certificates import leaf_hash
from gateway.trust.invitations import Invitation, Invitations
from gateway.trust.standing import TrustLevel

FRAME_BYTES_MAX: Final = 16 << 10
_REASON_CHARS_MAX: Final = 400

# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinApplication:
    """Joiner → inviter: the invitation's id, the joiner's card, a nonce."""

    invitation: str
    card: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True)
class JoinPresentation:
    """Inviter → joiner: the inviter's card, a nonce."""

    card: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True)
class JoinProof:
    """Joiner → inviter: HMAC-SHA-256 with the secret, over cards and nonces."""

    mac: bytes


@dataclass(frozen=True, slots=True)
class JoinAcceptance:
    """Inviter → joiner: the same HMAC, and the joiner's level ("pending" or "approved")."""

    mac: bytes
    level: str


@dataclass(frozen=True, slots=True)
class JoinRejection:
    """Inviter → joiner: a refusal with its reason; `code` is a TrustRefusal."""

    code: str
    reason: str


_id = strict.matching("[0-9a-f]{16}")
_nonce = strict.data(NONCE_BYTES, NONCE_BYTES)
_mac = strict.data(32, 32)
_card = strict.data(1, FRAME_BYTES_MAX)
_code = strict.matching("[a-z-]{1,40}")
_level = strict.matching("[a-z]{1,20}")
_reason = strict.line(_REASON_CHARS_MAX)
FORMS: Final[dict[str, strict.Form[Any]]] = {
    "application": strict.Form(
        JoinApplication, {"invitation": _id, "card": _card, "nonce": _nonce}, FRAME_BYTES_MAX
    ),
    "presentation": strict.Form(
        JoinPresentation, {"card": _card, "nonce": _nonce}, FRAME_BYTES_MAX
    ),
    "proof": strict.Form(JoinProof, {"mac": _mac}, FRAME_BYTES_MAX),
    "acceptance": strict.Form(JoinAcceptance, {"mac": _mac, "level": _level}, FRAME_BYTES_MAX),
    "rejection": strict.Form(JoinRejection, {"code": _code, "reason": _reason}, FRAME_BYTES_MAX),
}


def _encode(message: object) -> bytes:
    kind = type(message).__name__.removeprefix("Join").lower()
    return bytes(msgpack.packb([kind, FORMS[kind].encode(message)], use_bin_type=True))


def _decode(frame: bytes) -> Any:
    parts = strict.decode(frame, FRAME_BYTES_MAX)
    match parts:
        case [str(kind), bytes(body)] if kind in FORMS:
            return FORMS[kind].decode(body)
        case _:
            raise ProtocolError("not a message of the joining protocol")


@dataclass(frozen=True, slots=True)
class _Transcript:
    """The exchanged data, identical on both sides unless a third party is in between."""

    invitation: str
    joiner_card: bytes
    inviter_card: bytes
    joiner_nonce: bytes
    inviter_nonce: bytes

    def mac(self, secret: bytes, side: str) -> bytes:
        said = signed_bytes(
            "joining",
            side.encode(),
            self.invitation.encode(),
            self.joiner_card,
            self.inviter_card,
            self.joiner_nonce,
            self.inviter_nonce,
        )
        return hmac.digest(secret, said, "sha256")


# --- inviter's side ------------------------------------------------------------------------------


class JoinReception:
    """The inviter's side of one pipe. Save book and invitations before sending `JoinAcceptance`.

    Args:
        book: our trust book; an accepted site is admitted to it.
        invitations: our invitations.
        nonce: NONCE_BYTES fresh random bytes.
    """

    def __init__(self, book: TrustBook, invitations: Invitations, nonce: bytes) -> None:
        self._book = book
        self._invitations = invitations
        self._nonce = nonce
        self._transcript: _Transcript | None = None
        self._card: Signed[SiteCard] | None = None
        self.admitted: str | None = None

    def receive(self, frame: bytes, utc_s: UtcS) -> bytes:
        """Process a frame and return the answer.

        Raises:
            ProtocolError: the frame is out of turn or unknown. Send `reject` of it, and hang up.
            Untrusted: as above: UNKNOWN_INVITATION, EXPIRED, USED, WRONG_SECRET, or a refusal of
                TrustBook.admit.
        """
        message = _decode(frame)
        match message:
            case JoinApplication() if self._transcript is None:
                return self._present(message, utc_s)
            case JoinProof() if self._transcript is not None and self.admitted is None:
                return self._accept(message, self._transcript, utc_s)
            case _:
                raise ProtocolError(f"{type(message).__name__} out of turn")

    def _present(self, message: JoinApplication, utc_s: UtcS) -> bytes:
        self._card = read_card(message.card)
        self._invitations.find(message.invitation, self._card.content.keys[0], utc_s)
        own = self._book.own.card.raw
        self._transcript = _Transcript(
            message.invitation, self._card.raw, own, message.nonce, self._nonce
        )
        return _encode(JoinPresentation(own, self._nonce))

    def _accept(self, message: JoinProof, said: _Transcript, utc_s: UtcS) -> bytes:
        assert self._card is not None
        key = self._card.content.keys[0]
        issued = self._invitations.find(said.invitation, key, utc_s)
        if not hmac.compare_digest(said.mac(issued.secret, "joiner"), message.mac):
            raise Untrusted(TrustRefusal.WRONG_SECRET, "the secret does not match the invitation")
        level = self._book.admit(self._card, utc_s, approve=issued.approve)
        issued.used_by, issued.used_key = self._card.content.site, key
        self.admitted = self._card.content.site
        return _encode(JoinAcceptance(said.mac(issued.secret, "inviter"), level.value))


def reject(error: ProtocolError) -> bytes:
    """Return the frame to send to a joiner before hanging up."""
    code, reason = "protocol", str(error)
    if isinstance(error, Untrusted):
        code, reason = error.refusal.value, error.details
    return _encode(JoinRejection(code, clean(reason)[:_REASON_CHARS_MAX]))


# --- joiner's side -------------------------------------------------------------------------------


def enter(book: TrustBook, invitation: Invitation, key: SiteKey, utc_s: UtcS) -> TrustBook:
    """Return our book, with a card for the invitation's federation.

    A site that knows no other members, or that has left, moves to that federation with an empty
    book; BookError if it is with others in another federation.
    """
    if book.federation == invitation.federation and not book.has_left:
        return book
    if book.members and not book.has_left:
        raise BookError(
            f"this site is in federation {book.federation!r} with others: leave it first"
        )
    was = book.own.card.content
    serial = next_serial(book.own.last_serial, utc_s)
    card = replace(was, federation=invitation.federation, serial=serial, issued_s=utc_s)
    return TrustBook(sign(card, key), book.expulsions.follow)


@dataclass(frozen=True, slots=True)
class Joined:
    """The inviter accepted us: its card, for our book, and our level with it."""

    card: Signed[SiteCard]
    level: TrustLevel


class JoinApplicant:
    """The joiner's side of one pipe.

    Args:
        invitation: the invitation as read.
        card: our card for the invitation's federation.
        nonce: NONCE_BYTES fresh random bytes.
    """

    def __init__(self, invitation: Invitation, card: Signed[SiteCard], nonce: bytes) -> None:
        self._invitation = invitation
        self._own = card
        self._nonce = nonce
        self._transcript: _Transcript | None = None
        self._card: Signed[SiteCard] | None = None

    def check_leaf(self, certificate: bytes) -> None:
        """Check the leaf that was fetched, before it is pinned; Untrusted BAD_CERTIFICATE."""
        if leaf_hash(certificate) != self._invitation.leaf:
            raise Untrusted(
                TrustRefusal.BAD_CERTIFICATE,
                f"{self._invitation.address} does not show the TLS leaf of the invitation",
            )

    def apply(self) -> bytes:
        """Return the first frame."""
        return _encode(JoinApplication(self._invitation.id, self._own.raw, self._nonce))

    def receive(self, frame: bytes) -> bytes | Joined:
        """Process a frame; return the answer, or the result once we are accepted.

        Raises:
            ProtocolError: the frame is out of turn or unknown.
            Untrusted: the inviter refused (with its code), or is not the one that the invitation
                names.
        """
        message = _decode(frame)
        match message:
            case JoinRejection():
                raise _rejected(message)
            case JoinPresentation() if self._transcript is None:
                return self._prove(message)
            case JoinAcceptance() if self._transcript is not None and self._card is not None:
                due = self._transcript.mac(self._invitation.secret, "inviter")
                if not hmac.compare_digest(due, message.mac):
                    raise Untrusted(
                        TrustRefusal.WRONG_SECRET, "the inviter does not know the secret"
                    )
                level = (
                    TrustLevel.APPROVED
                    if message.level == TrustLevel.APPROVED
                    else TrustLevel.PENDING
                )
                return Joined(self._card, level)
            case _:
                raise ProtocolError(f"{type(message).__name__} out of turn")

    def _prove(self, message: JoinPresentation) -> bytes:
        invitation = self._invitation
        card = read_card(message.card)
        said = card.content
        if (said.federation, said.site) != (invitation.federation, invitation.site):
            raise Untrusted(TrustRefusal.WRONG_SITE, f"the card names another site, {said.site!r}")
        if said.keys[0] != invitation.key:
            raise Untrusted(
                TrustRefusal.BAD_SIGNATURE,
                "its key is not that of the invitation: if its keys have changed since, ask "
                "for a new invitation",
            )
        if invitation.leaf not in map(leaf_hash, said.leaves):
            raise Untrusted(
                TrustRefusal.BAD_CERTIFICATE, "its card does not list the TLS leaf that it shows"
            )
        self._card = card
        self._transcript = _Transcript(
            invitation.id, self._own.raw, card.raw, self._nonce, message.nonce
        )
        return _encode(JoinProof(self._transcript.mac(invitation.secret, "joiner")))


def _rejected(message: JoinRejection) -> ProtocolError:
    known = {each.value: each for each in TrustRefusal}
    text = f"the inviter refused: {message.reason}"
    return Untrusted(known[message.code], text) if message.code in known else ProtocolError(text)
