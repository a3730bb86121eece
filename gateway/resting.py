"""Which sites are left alone, and for how long. Pure.

A site that declines or does not answer is asked again all the same: later, and each time twice as
late, until a contract with it opens. Its reason is kept beside it, for whoever wonders why no work
goes there. A site may also be of no use for one job alone; then it is spared for that job only.
"""

from collections.abc import Container
from typing import Final

from gateway.dealing import NO_BACKOFF, Backoff, DealRules
from policies.brokering import Rest

FULL_S: Final = 0.5  # how long a site is left alone that has no slot


class Resting:
    """The sites that are spared now, in `sites`, and how often they were of no use before."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self.sites: dict[str, Rest] = {}
        self._refusals: dict[str, int] = {}  # by site, one after the other
        # Sites that were of no use for a job, though no pool was named.
        self._useless: dict[tuple[str, str], Backoff] = {}
        self._unreached: set[str] = set()  # sites that are spared because there was no way to them

    def is_resting(self, site: str, utc_s: float) -> bool:
        """Whether a site is left alone now."""
        rest = self.sites.get(site)
        return rest is not None and utc_s < rest.until_s

    def was_refused(self, site: str) -> bool:
        """Whether a site that is spared has said that it will not have our work."""
        rest = self.sites.get(site)
        return rest is not None and rest.is_no

    def is_useless(self, job: str, site: str, utc_s: float) -> bool:
        """Whether a site said lately that it has nothing for a job."""
        return utc_s < self._useless.get((job, site), NO_BACKOFF).until_s

    def spare(self, site: str, utc_s: float, why: str, *, is_no: bool = False) -> None:
        """Leave a site alone for a while, twice as long each time that it is of no use.

        What else goes wrong while it is left alone was asked for before, and is no new sign.
        """
        if self.is_resting(site, utc_s):
            return
        times = self._refusals[site] = self._refusals.get(site, 0) + 1
        self.sites[site] = Rest(utc_s + self._rules.rest_after_s(times), why, is_no)

    def spare_full(self, site: str, utc_s: float, why: str) -> None:
        """A site has no slot: leave it alone for a moment, which is no longer the next time."""
        # Others hold them for the moment that a contract takes; or it is full, as its next
        # advert will tell.
        if not self.is_resting(site, utc_s):
            self.sites[site] = Rest(utc_s + min(FULL_S, self._rules.rest_s), why)

    def note_useless(self, job: str, site: str, utc_s: float) -> None:
        """A site has nothing for a job: it is not asked again soon, longer each time."""
        before = self._useless.get((job, site), NO_BACKOFF)
        self._useless[job, site] = before.once_more(utc_s, self._rules)

    def note_useful(self, site: str) -> None:
        """A contract with a site is open: what it refused before counts no more."""
        self._refusals.pop(site, None)

    def unreachable(self, site: str, utc_s: float) -> None:
        """A site can't be reached; of one that is spared for another reason this is no news."""
        if not self.is_resting(site, utc_s):
            self.spare(site, utc_s, "can't be reached")
            self._unreached.add(site)

    def reached(self, site: str) -> None:
        """There is a session with a site: that there was none is no reason to spare it any more."""
        if site in self._unreached:
            self._unreached.discard(site)
            self._refusals.pop(site, None)
            self.sites.pop(site, None)

    def tidy(self, utc_s: float, jobs: Container[str]) -> None:
        """Forget who has rested, and what was said of jobs that are not among these any more."""
        for key in [each for each in self._useless if each[0] not in jobs]:
            del self._useless[key]
        for site in list(self.sites):
            if not self.is_resting(site, utc_s):
                del self.sites[site]
