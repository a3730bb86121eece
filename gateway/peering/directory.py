"""How other sites are dialled, by the trust book: addresses, keys and pins; for PeerLinks.

Two sites that were disconnected while one of them rotated its keys reconnect by themselves:

    we dial it                with keys of ours that it has acknowledged, if need be retired ones
    it shows a strange leaf   we fetch it (`looks`), dial once more trusting that leaf alone, and
                              sign nothing before its own cards, each signed by a key of the one
                              before, lead from the card that we have to one that names the leaf
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.address import host_and_port
from federation.messages.messages import Hello
from federation.sessions.handshake import Credentials
from federation.sessions.nng import NngLink
from federation.signed.identity import SiteKey
from federation.transport import Link, TlsSettings
from gateway.trust import introduction
from gateway.trust.certificates import fetch_leaf, leaf_hash, to_pem
from gateway.trust.identity_store import Registry
from gateway.trust.introduction import SiteCredentials
from gateway.trust.keys import Generation, dialler_tls, write_old_leaf, write_private
from gateway.trust.standing import TrustLevel

LOOK_S: Final = 5.0  # for one handshake

# The addresses of a site, and the leaves that it may show.
Way = tuple[tuple[str, ...], tuple[bytes, ...]]


@dataclass(slots=True)
class SiteDial:
    """The last dial of a site; see gateway.trust.introduction.DialFacts."""

    registry: Registry
    site: str
    way: Way | None = None
    shown: Generation | None = None  # our keys
    strange: bytes | None = None  # the leaf that the site shows, if its card does not name it

    def key(self) -> SiteKey:
        """See Dial."""
        return self.shown.key if self.shown is not None else self.registry.signing_key

    def is_named(self) -> bool:
        """See Dial."""
        return self.strange is None or self.strange in self.leaves

    @property
    def leaves(self) -> tuple[bytes, ...]:
        """The leaves that its card names."""
        return self.registry.book.members[self.site].card.content.leaves


class SiteDirectory:
    """The sites that may be dialled; see gateway.sessions.links.Directory."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dials: dict[str, SiteDial] = {}

    def may_dial(self, site: str) -> bool:
        """Whether a site is approved and can be dialled; False for all sites once we have left."""
        registry = self._registry
        if registry.has_left or registry.level(site) is not TrustLevel.APPROVED:
            return False
        return site != registry.site and bool(self._way_to(site)[0])

    def addresses_of(self, site: str) -> tuple[str, ...]:
        """Return the addresses on a site's card; none of one that is not known."""
        member = self._registry.book.members.get(site)
        return member.card.content.addresses if member is not None else ()

    def hello(self) -> Hello:
        """Our introduction."""
        return introduction.hello(self._registry)

    def credentials(self, site: str) -> Credentials:
        """The credentials by which we and that site authenticate each other."""
        return SiteCredentials(self._registry, site, self._dial(site))

    def _dial(self, site: str) -> SiteDial:
        return self._dials.setdefault(site, SiteDial(self._registry, site))

    def dial(self, site: str, attempt: int, on_change: Callable[[], None]) -> Link:
        """Open a new link, with the current pins, and with keys of ours that the site may know."""
        registry, dial = self._registry, self._dial(site)
        addresses, leaves = dial.way = self._way_to(site)
        generations = registry.generations_for(site)
        attempt, at = divmod(attempt, len(generations))
        shown = dial.shown = generations[at]
        leaf = None if shown == registry.active else write_old_leaf(registry.folder, shown)
        tls = dialler_tls(registry.folder, site, leaf)
        if dial.strange in leaves:
            dial.strange = None
        if dial.strange is not None:
            pin = registry.folder / f"strange-{site}.pem"
            write_private(pin, to_pem([dial.strange]).encode())
            tls = TlsSettings(tls.certificate_file, str(pin), site)
        return NngLink(addresses[attempt % len(addresses)], on_change, tls)

    def has_moved(self, site: str) -> bool:
        """Whether a site's card has other addresses or leaves than at the last dial."""
        return self._dial(site).way != self._way_to(site)

    def _way_to(self, site: str) -> Way:
        card = self._registry.book.members[site].card.content
        return card.addresses, card.leaves

    # --- diagnosis of failed dials -------------------------------------------------------------

    def looks(self, site: str) -> list[Callable[[], bytes | None]]:
        """Functions that fetch the leaf that a site shows, each for a thread; None: it shows none.

        They present a leaf of ours, as the site's port asks for one.
        """
        registry = self._registry
        addresses, _ = self._way_to(site)
        shown = [write_old_leaf(registry.folder, each) for each in registry.generations_for(site)]
        return [
            lambda address=address, own=own: _look(address, str(own))  # type: ignore[misc]
            for address in addresses
            for own in shown
        ]

    def judge(self, site: str, leaf: bytes | None) -> str:
        """Act on a fetched leaf; return an explanation for people, or an empty string."""
        registry, dial = self._registry, self._dial(site)
        member = registry.book.members.get(site)
        if member is None:
            return ""
        if leaf is None:
            dial.strange = None
            return ""
        print_of, serial = member.fingerprint, member.card.content.serial
        if leaf in dial.leaves:
            dial.strange = None
            word = registry.book.expulsions.word(site, registry.site)
            if word is not None and word.content.stands:
                return expelled_by(site, registry.site, word.content.reason)
            return (
                f"{site} is reachable with the known keys (fingerprint {print_of}) but "
                "refuses us: it may not know our keys (fingerprint "
                f"{registry.book.own.fingerprint}), or not have approved us. It learns our keys "
                "when it dials us; if it can't, its operator accepts them with `gridfed approve "
                f"{registry.site} {registry.book.own.fingerprint} --new-keys`"
            )
        dial.strange = leaf
        return (
            f"{site} shows a TLS leaf ({leaf_hash(leaf).hex()[:16]}) that is not on its card "
            f"of serial {serial} (fingerprint {print_of}): its keys may have changed, so its "
            "newer cards are requested"
        )


def expelled_by(site: str, us: str, reason: str) -> str:
    """Return the text for an operator about an expulsion of this site by another."""
    why = f": {reason}" if reason else ", without a reason"
    return (
        f"this site is expelled by {site}{why}. {site} takes no work of ours, sends none and lets "
        f"no session in; ask its operator, who ends that by `gridfed keep {us}`"
    )


def _look(address: str, own: str) -> bytes | None:
    host, port = host_and_port(address)
    try:
        return fetch_leaf(host, int(port), LOOK_S, own)
    except OSError:
        return None
