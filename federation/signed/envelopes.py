"""Signed messages between gateways: adverts, quotes, contracts, usage, settlements.

An envelope is a header, a body, both as the bytes that travel, and a signature over the two. The
header states the kind, the source, the destination, the boot of the source and the sequence number
of the message in it: any change to them breaks the signature. A `Sealer` makes envelopes, a
`Verifier` opens them. Both are pure: the clock is passed in.

Seal a message when it is sent, not when it is stored: an envelope is valid for `age_max_s` and one
delivery. A sender that must send again after an outage seals again; the body's own identity
(contract, epoch) makes that harmless.
"""

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import msgpack

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import strict
from federation.signed.identity import (
    CLOCK_AHEAD_MAX_S,
    SiteKey,
    Trust,
    TrustRefusal,
    Untrusted,
    federation_id,
    find_signer,
    site_id,
)
from federation.words import duration_text

ALL: Final = "*"  # the destination of messages for all sites
WINDOW: Final = 1024
HEADER_BYTES_MAX: Final = 512
_WRAPPING: Final = 128  # of header, body and signature, with room to spare
_DOMAIN: Final = "envelope"


@dataclass(frozen=True, slots=True)
class Header:
    """The facts that the sender signs with a body.

    `sequence` counts from 1 for each destination in each boot; ALL is a destination of its own.
    """

    federation: str
    kind: str
    source: str
    to: str
    boot: int
    sequence: int
    issued_s: UtcS


def _destination(value: object) -> str:
    return ALL if value == ALL else str(site_id(value))


_HEADER = strict.Form(
    Header,
    {
        "federation": federation_id,
        "kind": strict.matching("[a-z-]{1,32}"),
        "source": site_id,
        "to": _destination,
        "boot": strict.count,
        "sequence": strict.count,
        "issued_s": strict.moment,
    },
    HEADER_BYTES_MAX,
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope that was opened: the header is trusted, the body is still to be decoded.

    `raw` is the evidence: the bytes as they arrived, which prove the sender and its message to any
    party.
    """

    header: Header
    body: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class EnvelopeLimits:
    """The limits of a verifier.

    `age_max_s` must exceed the time that a message may spend in queues and in flight. Together with
    `ahead_max_s` it is also how long a recorded message could be replayed to a gateway that
    restarted and has forgotten the messages it saw.
    """

    body_bytes_max: int = 1 << 20
    age_max_s: float = 900.0
    ahead_max_s: float = CLOCK_AHEAD_MAX_S


class Sealer:
    """Makes the envelopes of one run (`boot`) of a site; set `key` again when its keys rotate."""

    def __init__(self, federation: str, site: str, boot: int, key: SiteKey) -> None:
        self.federation = federation
        self._site = site
        self._boot = boot
        self._sequences: dict[str, int] = {}
        self.key = key

    def go_on_from(self, other: "Sealer") -> None:
        """Continue the numbering of the messages that this run of the site has sent already."""
        self._sequences = other._sequences

    def seal(self, kind: str, to: str, body: bytes, utc_s: UtcS) -> bytes:
        """Sign a body as this kind of message, for one site or for ALL."""
        sequence = self._sequences.get(to, 0) + 1
        header = _HEADER.encode(
            Header(self.federation, kind, self._site, to, self._boot, sequence, utc_s)
        )
        self._sequences[to] = sequence
        signature = self.key.sign(_DOMAIN, header, body)
        return bytes(msgpack.packb([header, body, signature], use_bin_type=True))


def body_of(raw: bytes) -> bytes:
    """Return the body of an envelope that was opened long ago; the signature is not checked here.

    Raises:
        ProtocolError: it is no envelope.
    """
    _, body, _ = strict.decode_parts(raw, len(raw), "header body signature")
    return body


class _Window:
    """The last WINDOW messages that arrived from a source, each with a mark of its content."""

    __slots__ = ("_marks", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._marks = array("Q", bytes(8 * WINDOW))

    def check(self, sequence: int, mark: int) -> TrustRefusal | None:
        """Return why this message must be refused; None if it may be accepted."""
        if sequence > self.highest:
            return None
        if sequence <= self.highest - WINDOW:
            return TrustRefusal.STALE
        seen = self._marks[sequence % WINDOW]
        if not seen:
            return None
        return TrustRefusal.REPLAYED if seen == mark else TrustRefusal.EQUIVOCATION

    def note(self, sequence: int, mark: int) -> None:
        """Note that a message has arrived."""
        for skipped in range(max(self.highest, sequence - WINDOW) + 1, sequence):
            self._marks[skipped % WINDOW] = 0
        self._marks[sequence % WINDOW] = mark
        self.highest = max(self.highest, sequence)


@dataclass(slots=True)
class _Source:
    boot: int
    windows: dict[bool, _Window] = field(default_factory=dict)  # to ALL, and to us alone


class Verifier:
    """Opens envelopes for one site: each at most once, authentic, addressed to it, and fresh.

    Args:
        trust: this site's identity, and the keys that it trusts.
        limits: see EnvelopeLimits.

    It keeps 8 KiB for each lane of a source, and only for sources that have keys.
    """

    def __init__(self, trust: Trust, limits: EnvelopeLimits | None = None) -> None:
        self._trust = trust
        self._limits = limits or EnvelopeLimits()
        self._sources: dict[str, _Source] = {}

    def open(self, raw: bytes, utc_s: UtcS) -> Envelope:
        """Open an envelope and note its arrival; cheap checks come first.

        Raises:
            ProtocolError: it is no envelope.
            Untrusted: WRONG_FEDERATION, WRONG_DESTINATION, AHEAD, STALE, UNKNOWN_SITE, OLD_BOOT,
                REPLAYED, BAD_SIGNATURE, or EQUIVOCATION: the source has signed two messages under
                one number (this raw one, and one that came before).
        """
        header_bytes, body, signature = self._split(raw)
        header = _HEADER.decode(header_bytes)
        self._check_header(header, utc_s)
        keys = self._trust.keys_of(header.source)
        if not keys:
            raise Untrusted(TrustRefusal.UNKNOWN_SITE, f"no key of site {header.source!r} is known")
        mark = _mark(header_bytes, body)
        refusal = self._seen(header, mark)
        if refusal in (TrustRefusal.OLD_BOOT, TrustRefusal.STALE, TrustRefusal.REPLAYED):
            raise Untrusted(refusal, _describe(header))
        if find_signer(keys, signature, _DOMAIN, header_bytes, body) is None:
            raise Untrusted(TrustRefusal.BAD_SIGNATURE, _describe(header))
        if refusal is not None:
            raise Untrusted(refusal, _describe(header))
        self._note(header, mark)
        return Envelope(header, body, raw)

    def meet(self, source: str, boot: int) -> None:
        """Note that a hello proved a site alive in this boot: its earlier boots are over.

        Raises:
            Untrusted: OLD_BOOT: the site has shown us a later one, so its disk was set back.
        """
        known = self._sources.get(source)
        if known is None or boot > known.boot:
            self._sources[source] = _Source(boot)
        elif boot < known.boot:
            raise Untrusted(
                TrustRefusal.OLD_BOOT,
                f"site {source!r} uses boot {boot}, expected boot {known.boot}",
            )

    def forget(self, source: str) -> None:
        """Drop the state of a site that is gone."""
        self._sources.pop(source, None)

    def _split(self, raw: bytes) -> tuple[bytes, bytes, bytes]:
        bytes_max = self._limits.body_bytes_max + HEADER_BYTES_MAX + _WRAPPING
        header, body, signature = strict.decode_parts(raw, bytes_max, "header body signature")
        if len(body) > self._limits.body_bytes_max:
            raise ProtocolError(f"the body has {len(body):,} bytes, over the limit")
        return header, body, signature

    def _check_header(self, header: Header, utc_s: UtcS) -> None:
        age_s = utc_s - header.issued_s
        if header.federation != self._trust.federation:
            raise Untrusted(
                TrustRefusal.WRONG_FEDERATION,
                f"the envelope is for federation {header.federation!r}",
            )
        if header.to not in (self._trust.site, ALL):
            raise Untrusted(
                TrustRefusal.WRONG_DESTINATION, f"the envelope is for site {header.to!r}"
            )
        if age_s > self._limits.age_max_s:
            raise Untrusted(
                TrustRefusal.STALE, f"{_describe(header)} was issued {duration_text(age_s)} ago"
            )
        if -age_s > self._limits.ahead_max_s:
            raise Untrusted(
                TrustRefusal.AHEAD,
                f"{_describe(header)} was issued {duration_text(-age_s)} in the future",
            )

    def _seen(self, header: Header, mark: int) -> TrustRefusal | None:
        known = self._sources.get(header.source)
        if known is None or header.boot > known.boot:
            return None
        if header.boot < known.boot:
            return TrustRefusal.OLD_BOOT
        window = known.windows.get(header.to == ALL)
        return window.check(header.sequence, mark) if window else None

    def _note(self, header: Header, mark: int) -> None:
        known = self._sources.get(header.source)
        if known is None or header.boot > known.boot:
            known = self._sources[header.source] = _Source(header.boot)
        known.windows.setdefault(header.to == ALL, _Window()).note(header.sequence, mark)


def _mark(header: bytes, body: bytes) -> int:
    """Return a 64-bit mark of a message, never zero."""
    said = blake2b(header, digest_size=8)
    said.update(body)
    return int.from_bytes(said.digest(), "big") or 1


def _describe(header: Header) -> str:
    return (
        f"{header.kind} {header.sequence} of boot {header.boot} "
        f"from {header.source!r} to {header.to!r}"
    )
