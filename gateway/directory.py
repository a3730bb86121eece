"""How other sites are dialled, by the trust book: who, where, with which pins; for Links."""

from collections.abc import Callable

from federation.handshake import Credentials
from federation.messages import Hello
from federation.nng import NngLink
from federation.transport import Link
from gateway import introduction
from gateway.introduction import SiteCredentials
from gateway.keys import dialler_tls
from gateway.registry import Registry
from gateway.standing import Level

# Where a site is dialled, and which leaves it may show.
Way = tuple[tuple[str, ...], tuple[bytes, ...]]


class SiteDirectory:
    """The sites that may be dialled; see gateway.links.Directory."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dialled: dict[str, Way] = {}

    def may_dial(self, site: str) -> bool:
        """Whether a site is approved, and can be dialled; nobody is when we have left."""
        registry = self._registry
        if registry.has_left or registry.level(site) is not Level.APPROVED:
            return False
        return site != registry.site and bool(self._way_to(site)[0])

    def hello(self) -> Hello:
        """Who we are."""
        return introduction.hello(self._registry)

    def credentials(self, site: str) -> Credentials:
        """How we prove it to that site, and it to us."""
        return SiteCredentials(self._registry, site)

    def dial(self, site: str, attempt: int, on_change: Callable[[], None]) -> Link:
        """A new link, with the pins that hold now."""
        addresses, _ = self._dialled[site] = self._way_to(site)
        tls = dialler_tls(self._registry.folder, site)
        return NngLink(addresses[attempt % len(addresses)], on_change, tls)

    def has_moved(self, site: str) -> bool:
        """Whether a site's card has other addresses or leaves than when it was dialled last."""
        return self._dialled.get(site) != self._way_to(site)

    def _way_to(self, site: str) -> Way:
        card = self._registry.book.members[site].card.content
        return card.addresses, card.leaves
