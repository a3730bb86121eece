"""Which sites are not asked for a while, and for how long: the back-off of a buyer. Pure.

A refusal counts for what it is about:

    the whole site     it drains, can't record, gives no credit, can't be reached, did not answer
    one kind of work   at one pool: its rules, its windows, its slots for that user and project
    one job            a question without a pool, which asks a site to find somebody

What is refused is asked for again, each time after twice as long, until a contract of that kind
opens. A site that is merely silent, or full, is asked again soon: a question costs little. The
reason is kept beside the rest for `gridfed explain`.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.dealing import NO_BACKOFF, Backoff, DealRules
from gateway.events import JobSpec
from policies.brokering import Rest
from policies.entitlements import Work

FULL_S: Final = 0.5  # how long a pool without a free slot rests, at first
FULL_MAX_S: Final = 8.0  # and at most
SILENT_MAX_S: Final = 30.0  # a site that does not answer is asked again after so long at most


class Kind(NamedTuple):
    """The part of a job that sellers' rules look at; jobs of one kind get the same answer."""

    work: Work
    path: tuple[str, ...]


def kind_of(spec: JobSpec) -> Kind:
    """The kind of a job."""
    return Kind(spec.work, tuple(spec.path))


@dataclass(slots=True)
class _Refused:
    """One place for one kind of work: its rest, and how often it was of no use in a row."""

    rest: Rest
    times: int = 0
    full: int = 0  # how often it had no slot, in a row


class Resting:
    """The sites that rest now, in `sites`; and the pools that rest for some kind of work."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self.sites: dict[str, Rest] = {}
        self._refusals: dict[str, int] = {}  # by site, in a row
        self._of_kind: dict[Kind, dict[str, _Refused]] = {}  # by place: site or "site/pool"
        # Sites that were of no use for a job, though no pool was named.
        self._useless: dict[tuple[str, str], Backoff] = {}
        self._unreached: set[str] = set()  # sites that rest because there was no way to them
        self._silent: set[str] = set()  # sites that rest because they did not answer in time

    def is_resting(self, site: str, utc_s: float) -> bool:
        """Whether a whole site rests now."""
        rest = self.sites.get(site)
        return rest is not None and utc_s < rest.until_s

    def rests(self, spec: JobSpec) -> Mapping[str, Rest]:
        """All that rests for a job: whole sites by name, single pools as "site/pool"."""
        of_kind = self._of_kind.get(kind_of(spec))
        if not of_kind:
            return self.sites
        # A whole site's rest wins over that of a place named the same, of work without a pool.
        return {place: each.rest for place, each in of_kind.items()} | self.sites

    def was_refused(self, spec: JobSpec, site: str, pool: str) -> bool:
        """Whether a pool that rests has said that it will not have work of this kind."""
        of_kind = self._of_kind.get(kind_of(spec), {})
        found = of_kind.get(_place(site, pool))
        return found is not None and found.rest.is_no

    def is_useless(self, job: str, site: str, utc_s: float) -> bool:
        """Whether a site said lately that it has nothing for a job."""
        return utc_s < self._useless.get((job, site), NO_BACKOFF).until_s

    # --- of a whole site -----------------------------------------------------------------------

    def spare(self, site: str, utc_s: float, why: str) -> None:
        """Leave a site alone for a while, twice as long each time that it is of no use.

        What else goes wrong while it is left alone was asked for before, and is no new sign.
        """
        self._spare(site, utc_s, why, self._rules.rest_max_s)

    def spare_silent(self, site: str, utc_s: float, why: str) -> None:
        """A site did not answer in time: leave it alone for SILENT_MAX_S at most.

        Perhaps it was busy for a moment; `answered` ends the rest at once.
        """
        if not self.is_resting(site, utc_s):
            self._spare(site, utc_s, why, SILENT_MAX_S)
            self._silent.add(site)

    def _spare(self, site: str, utc_s: float, why: str, max_s: float) -> None:
        if self.is_resting(site, utc_s):
            return
        self._silent.discard(site)
        self._unreached.discard(site)
        times = self._refusals[site] = self._refusals.get(site, 0) + 1
        rest_s = min(self._rules.rest_after_s(times), max_s)
        self.sites[site] = Rest(utc_s + rest_s, why)

    def answered(self, site: str) -> None:
        """A site has answered after all: that it was silent is no reason to spare it any more."""
        if site in self._silent:
            self._wake(site)

    def unreachable(self, site: str, utc_s: float, reason: str = "") -> None:
        """A site can't be reached; of one that is spared for another reason this is no news."""
        if not self.is_resting(site, utc_s):
            self.spare(site, utc_s, f"can't be reached{f' ({reason})' if reason else ''}")
            self._unreached.add(site)

    def reached(self, site: str) -> None:
        """There is a new session with a site: that there was none, or that it was silent on the
        last one, is no reason to spare it any more.
        """
        if site in self._unreached or site in self._silent:
            self._wake(site)

    def _wake(self, site: str) -> None:
        self._unreached.discard(site)
        self._silent.discard(site)
        self._refusals.pop(site, None)
        self.sites.pop(site, None)

    # --- of one kind of work -------------------------------------------------------------------

    def refuse(
        self, spec: JobSpec, site: str, pool: str, utc_s: float, why: str, *, is_no: bool = False
    ) -> None:
        """A pool is of no use for a kind of work: it rests for that, longer each time.

        Args:
            spec: a job of that kind.
            site, pool: which; of a question without a pool the whole site.
            utc_s: now.
            why: as a part of a sentence.
            is_no: whether its rules forbid such work, so that waiting does not help.
        """
        found = self._refused(spec, site, pool)
        if utc_s >= found.rest.until_s:
            found.times += 1
            until_s = utc_s + self._rules.rest_after_s(found.times)
            found.rest = Rest(until_s, why, is_no)

    def refuse_full(self, spec: JobSpec, site: str, pool: str, utc_s: float, why: str) -> None:
        """A pool has no slot for a kind of work: it rests for a moment, some seconds at most."""
        # Other buyers hold its slots for the moment that a contract takes; or it is full, as its
        # next advert tells. A pool that shows free slots and refuses again backs off further.
        found = self._refused(spec, site, pool)
        if utc_s >= found.rest.until_s:
            found.full = found.full + 1 if utc_s < found.rest.until_s + FULL_MAX_S else 1
            rest_s = min(FULL_S * 2.0 ** min(found.full - 1, 10), FULL_MAX_S, self._rules.rest_s)
            found.rest = Rest(utc_s + rest_s, why)

    def _refused(self, spec: JobSpec, site: str, pool: str) -> _Refused:
        of_kind = self._of_kind.setdefault(kind_of(spec), {})
        return of_kind.setdefault(_place(site, pool), _Refused(_NEVER))

    def note_useful(self, spec: JobSpec | None, site: str, pool: str) -> None:
        """A contract is open: what was refused of its kind before counts no more."""
        self._refusals.pop(site, None)
        if spec is not None:
            of_kind = self._of_kind.get(kind_of(spec), {})
            of_kind.pop(_place(site, pool), None)

    # --- of one job ----------------------------------------------------------------------------

    def note_useless(self, job: str, site: str, utc_s: float) -> None:
        """A site has nothing for a job: it is not asked again soon, longer each time."""
        before = self._useless.get((job, site), NO_BACKOFF)
        self._useless[job, site] = before.once_more(utc_s, self._rules)

    def tidy(self, utc_s: float, jobs: Container[str]) -> None:
        """Forget who has rested, and what was said of jobs that are not among these any more.

        How often a kind of work was refused counts for `rest_max_s` after its last rest.
        """
        for key in [each for each in self._useless if each[0] not in jobs]:
            del self._useless[key]
        for site in list(self.sites):
            if not self.is_resting(site, utc_s):
                del self.sites[site]
        for kind, places in list(self._of_kind.items()):
            for place, each in list(places.items()):
                if utc_s >= each.rest.until_s + self._rules.rest_max_s:
                    del places[place]
            if not places:
                del self._of_kind[kind]


_NEVER: Final = Rest(float("-inf"))


def _place(site: str, pool: str) -> str:
    return f"{site}/{pool}" if pool else site
