"""Mutual authentication of gateways by site keys.

Both sides sign the meeting (federation.signed.identity.Meeting): federation, both sites, both
boots, both nonces. TLS admits any peer whose leaf is pinned; the signature proves which of the
sites it is. A site's name is therefore never taken from its own word alone.
"""

from collections.abc import Callable
from typing import Final, Protocol

from federation.errors import SessionRefused
from federation.messages.messages import Challenge, Hello
from federation.sessions.handshake import Prover
from federation.signed import strict
from federation.signed.identity import (
    Meeting,
    PipeSide,
    SiteKey,
    TrustRefusal,
    Untrusted,
    federation_id,
    site_id,
)
from gateway.trust.standing import TrustLevel

ROLE: Final = "gateway"
NOT_APPROVED: Final = "not-approved"
NO_CARDS: Final = "no cards that lead from the known one to it"  # in the text of a refusal
_SIDES: Final = {Prover.DIALLER: PipeSide.DIALLER, Prover.LISTENER: PipeSide.LISTENER}


class Introducer(Protocol):
    """The queries on our own site that sessions need: gateway.trust.identity_store has them."""

    @property
    def federation(self) -> str:
        """The id of our federation."""

    @property
    def site(self) -> str:
        """The id of our site."""

    @property
    def boot(self) -> int:
        """The number of our site's current life."""

    @property
    def signing_key(self) -> SiteKey:
        """The key to sign with now."""

    def level(self, site: str) -> TrustLevel | None:
        """Return how far we trust a site."""

    def keys_of(self, site: str) -> tuple[bytes, ...]:
        """Return the keys that a site signs with."""

    def meet(self, site: str, boot: int) -> None:
        """Note that a site has proved that it is alive in this boot; Untrusted OLD_BOOT."""

    def succession(self) -> bytes:
        """Return our cards, packed, that lead to the newest from any that a member may hold."""

    def succeed(self, site: str, cards: bytes) -> None:
        """Accept a site's own cards for its key rotation, each signed by the one before."""


class DialFacts(Protocol):
    """How a site was dialled; gateway.peering.directory implements it."""

    def key(self) -> SiteKey:
        """Return the key to sign with: one of our keys that the site may know."""

    def is_named(self) -> bool:
        """Whether the card that we now have of the site names the TLS leaf that it shows."""


def hello(own: Introducer) -> Hello:
    """Return the hello that our site sends when it dials."""
    return Hello(
        [], ROLE, own.site, "", b"", "", 0, {"federation": own.federation, "boot": own.boot}
    )


class SiteCredentials:
    """Credentials of a site; see federation.sessions.handshake.Credentials.

    Args:
        own: our site.
        expected: the site that we dial; empty for the listening side.
        dial: how the site was dialled; if None, the usual signing key is used.
    """

    roles: Final = frozenset({ROLE})

    def __init__(self, own: Introducer, expected: str = "", dial: DialFacts | None = None) -> None:
        self._own = own
        self._expected = expected
        self._dial = dial

    def hear(self, hello: Hello) -> Hello:
        """Check a dialler's hello, and refuse a dialler that could not be admitted."""
        federation = _checked(federation_id, hello.about.get("federation"), "federation")
        site = _checked(site_id, hello.name, "name")
        _checked(strict.count, hello.about.get("boot"), "boot")
        if federation != self._own.federation:
            raise SessionRefused(
                f"this is federation {self._own.federation!r}, not {federation!r}",
                TrustRefusal.WRONG_FEDERATION,
            )
        self._admit(site)
        return hello

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Sign the meeting; a dialler signs only for the site that it dialled."""
        if prover is Prover.DIALLER and challenge.site != self._expected:
            raise SessionRefused(
                f"site {challenge.site[:40]!r} answers at the address of {self._expected!r}",
                TrustRefusal.WRONG_SITE,
            )
        key = self._own.signing_key
        if prover is Prover.DIALLER and self._dial is not None:
            # A party in between could use our signature elsewhere, so check the TLS leaf first.
            if challenge.cards:
                self._own.succeed(challenge.site, challenge.cards)
            if not self._dial.is_named():
                raise SessionRefused(
                    f"site {self._expected!r} shows a TLS leaf that is not on its card, and "
                    f"{NO_CARDS}: if its operator confirms "
                    "that its keys have changed, and reads you their fingerprint (`gridfed known` "
                    f"there), run `gridfed approve {self._expected} FINGERPRINT --new-keys`",
                    TrustRefusal.BAD_CERTIFICATE,
                )
            key = self._dial.key()
        return self._meeting(hello, challenge).sign(key, _SIDES[prover])

    def cards(self) -> bytes:
        """See federation.sessions.handshake.Carded."""
        return self._own.succession()

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check the other side's signature, and that it is still admitted in this boot."""
        dials = prover is Prover.DIALLER
        site, boot = (
            (hello.name, hello.about["boot"]) if dials else (challenge.site, challenge.boot)
        )
        self._admit(site)
        try:
            self._meeting(hello, challenge).check(self._own.keys_of(site), _SIDES[prover], proof)
            self._own.meet(site, boot)
        except Untrusted as error:
            raise SessionRefused(error.details, error.refusal) from None

    def _admit(self, site: str) -> None:
        level = self._own.level(site)
        if site == self._own.site or level is None:
            raise SessionRefused(f"site {site!r} is unknown here", TrustRefusal.UNKNOWN_SITE)
        if level is TrustLevel.EXPELLED:
            raise SessionRefused(f"site {site!r} is expelled here", TrustRefusal.EXPELLED)
        if level is not TrustLevel.APPROVED:
            raise SessionRefused(f"site {site!r} is {level} here, not approved", NOT_APPROVED)

    def _meeting(self, hello: Hello, challenge: Challenge) -> Meeting:
        return Meeting(
            federation=self._own.federation,
            dialler=hello.name,
            listener=challenge.site,
            dialler_boot=hello.about["boot"],
            listener_boot=challenge.boot,
            dialler_nonce=hello.nonce,
            listener_nonce=challenge.nonce,
        )


def _checked(check: Callable[[object], object], value: object, name: str) -> str:
    try:
        return str(check(value))
    except ValueError as error:
        raise SessionRefused(f"the hello's {name} {error}", "name") from None
