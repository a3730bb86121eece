"""The address at which a site's bulk port may be dialled: that of its own advert. Pure.

An address comes with the tickets for objects. If any could be dialled, a partner could have the
hosts and ports of this network tried for it, and read from the outcome which are open. So a ticket
only repeats what the site's signed advert names, or comes with an address whose host is on the
site's card, for a site of an older version, whose advert names none. A site that names ever new
ones has few of them dialled.
"""

from collections.abc import Callable, Sequence
from typing import Final

from federation.address import host_and_port
from federation.clocks import UtcS

ADDRESSES_MAX: Final = 8  # of one site that are dialled in WITHIN_S: carriers restart, sites move
WITHIN_S: Final = 3_600.0


class BulkAddresses:
    """The addresses that may be dialled.

    Args:
        advertised: site → the bulk port by its newest advert; empty: there is none.
        on_card: site → the addresses of its card.
    """

    def __init__(
        self, advertised: Callable[[str], str], on_card: Callable[[str], Sequence[str]]
    ) -> None:
        self._advertised = advertised
        self._on_card = on_card
        self._dialled: dict[str, dict[str, UtcS]] = {}  # by site: each address, and when last

    def is_named(self, site: str, address: str) -> bool:
        """Whether a site names the address itself, elsewhere than with a ticket."""
        advertised = self._advertised(site)
        if advertised:
            return address == advertised
        hosts = {host_and_port(each)[0] for each in self._on_card(site)}
        return host_and_port(address)[0] in hosts

    def why_not(self, site: str, address: str, utc_s: UtcS) -> str:
        """Return why an address is not dialled; empty: it may be, and is counted."""
        if not self.is_named(site, address):
            return f"site {site} names another bulk port with its tickets than in its advert"
        known = self._dialled.get(site, {})
        known = {each: at_s for each, at_s in known.items() if utc_s - at_s < WITHIN_S}
        if address not in known and len(known) >= ADDRESSES_MAX:
            return f"site {site} has named over {ADDRESSES_MAX} bulk ports within an hour"
        known[address] = utc_s
        self._dialled[site] = known
        return ""
