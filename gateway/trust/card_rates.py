"""Limits on how often other sites' new cards are taken, and our port is opened anew. Pure.

A site can renew its card as often as it likes, and each new TLS leaf changes our pins. nng reads
pins when a listener is made, and closes all of a listener's pipes when it ends: to trust one site's
new leaf, the pipes of all sites are lost. So other sites may cause that only seldom.
"""

from typing import Final

from federation.clocks import MonoS, UtcS
from gateway.base.fading import FadingAmounts

# A rotation takes two cards; a site's own succession of cards, at most LINEAGE_MAX + 1 at once.
CARDS_MAX: Final = 12  # of one site at once,
CARD_EVERY_S: Final = 60.0  # and then one in this time
WAITING_MAX: Final = 256  # cards that wait for their time
REOPEN_MIN_S: Final = 1.0  # between two openings that other sites cause; doubles each time
REOPEN_MAX_S: Final = 64.0


class CardPaces:
    """Counts the new cards of each site, and keeps those that must wait.

    Times are of any clock; when it is set back, the counts begin anew.
    """

    def __init__(self) -> None:
        self._taken = FadingAmounts(1 / CARD_EVERY_S)  # by site: cards that count
        self._waiting: dict[tuple[str, str], bytes] = {}  # by site and source: the newest

    def allows(self, site: str, utc_s: UtcS) -> bool:
        """Whether one more card of this site may be taken now."""
        return self._taken.at(site, utc_s) <= CARDS_MAX - 1

    def note(self, site: str, utc_s: UtcS) -> None:
        """Count a card of this site that was new."""
        self._taken.add(site, 1, utc_s)

    def put_off(self, site: str, source: str, card: bytes) -> None:
        """Keep the last card of this site that a source has passed on, until it may be taken."""
        if (site, source) in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[site, source] = card

    def due(self, utc_s: UtcS) -> list[tuple[str, bytes]]:
        """Take the cards that may be taken now, each with its source."""
        found = [key for key in self._waiting if self.allows(key[0], utc_s)]
        return [(source, self._waiting.pop((site, source))) for site, source in found]


class Reopening:
    """Decides whether our ports must be reopened, and whether it is time.

    What this site itself decides (its operator's orders, its own new leaf) takes effect at once.
    So does the first change that others cause; for the next ones the wait doubles, up to
    REOPEN_MAX_S, until they have been quiet for twice as long as the last wait.
    """

    def __init__(self) -> None:
        self._is_wanted = False
        self._is_urgent = False
        self._wait_s = 0.0
        self._opened_at_s = MonoS(0.0)

    def want(self, *, urgent: bool) -> None:
        """Note that the ports show or trust outdated certificates."""
        self._is_wanted = True
        self._is_urgent |= urgent

    def is_due(self, mono_s: MonoS) -> bool:
        """Whether to open the ports anew now."""
        is_time = self._is_urgent or mono_s - self._opened_at_s >= self._wait_s
        return self._is_wanted and is_time

    def opened(self, mono_s: MonoS) -> None:
        """Note that the ports have been opened anew."""
        if not self._is_urgent:
            is_quiet = mono_s - self._opened_at_s >= 2 * self._wait_s
            doubled = REOPEN_MIN_S if is_quiet else 2 * self._wait_s
            self._wait_s = min(REOPEN_MAX_S, doubled)
            self._opened_at_s = mono_s
        self._is_wanted = self._is_urgent = False
