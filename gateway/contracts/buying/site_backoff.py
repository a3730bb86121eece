"""The back-off of a buyer: which sites are not asked for a while, and for how long. Pure.

A refusal counts for its subject:

    the whole site     it drains, can't record, gives no credit, can't be reached, did not answer
    one kind of work   at one pool: its rules, its windows, its slots for that user and project
    …, at a site       its results can't be fetched from there: until some are
    a moment           at one pool that is full, or where we have the most slots that we may have
    one job            a request without a pool, which asks a site to find a seller

Each back-off after a refusal is twice as long as the one before, until a contract of that kind
opens. A site that is merely silent, or full, is asked again soon: a request costs little. One that
gives no more credit is asked as soon as it has booked a payment. One whose advert shows other terms
than before, or that it knows another seller, is asked at once: what it refused it may take now. The
reason is kept for `gridfed explain`.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from federation.clocks import UtcS
from federation.reasons import Reason
from gateway.config.contracts import DealRules
from gateway.contracts.model.dealing import RELAY, Backoff
from gateway.contracts.model.purchase import Purchase
from gateway.scheduler.model.terms import JobSpec
from policies.access.entitlements import Work
from policies.placement.brokering import BackoffEnd

# Codes of a contract's regular end: its seller did well, and may have another.
ENDED: Final = frozenset({"cost-limit", "expired", "lapsed"})
# Refusals of all that we may buy from a seller; any other refusal is about the requested work.
REFUSALS_OF_SITE: Final = frozenset(
    {
        Reason.BUSY,
        Reason.CREDIT_LIMIT,
        Reason.DRAINING,
        Reason.FAULT,
        Reason.STORE_TROUBLE,
    }
)
FULL_REST_MAX_S: Final = 30.0  # maximal back-off of a job from a site that has no slot for it
FULL_S: Final = 0.5  # the first back-off from a pool without a free slot
FULL_MAX_S: Final = 8.0  # and the longest
SILENT_MAX_S: Final = 30.0  # maximal back-off from a site that does not answer


class BackoffKey(NamedTuple):
    """The part of a job that sellers' rules look at; jobs of one kind get the same answer."""

    work: Work
    path: tuple[str, ...]


class TooDear(NamedTuple):
    """A quote that a job can't pay: the price of one task there, in words.

    `is_by_duration`: by how long its tasks take, or seem to; else by the least that any would cost.
    """

    text: str
    is_by_duration: bool


def kind_of(spec: JobSpec) -> BackoffKey:
    """Return the kind of a job."""
    return BackoffKey(spec.work, tuple(spec.path))


@dataclass(slots=True)
class _Refused:
    """One place for one kind of work: its back-off, and how many refusals came in a row."""

    rest: BackoffEnd
    times: int = 0
    is_of_terms: bool = False  # whether the refusal follows from the terms that the site showed
    full: int = 0  # refusals in a row for lack of a slot
    is_full: bool = False  # whether the back-off is for lack of a slot


class SiteBackoff:
    """The sites in back-off, in `sites`; and the pools in back-off for some kind of work."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self.sites: dict[str, BackoffEnd] = {}
        self._refusals: dict[str, int] = {}  # by site, in a row
        self._of_kind: dict[BackoffKey, dict[str, _Refused]] = {}  # by place: site or "site/pool"
        # Sites that had nothing for a job, though no pool was named.
        self._useless: dict[tuple[str, str], Backoff[UtcS]] = {}
        # Of these, those that a job can't pay, by job and site.
        self._too_dear: dict[str, dict[str, TooDear]] = {}
        self._unreached: set[str] = set()  # sites in back-off because there was no way to them
        self._silent: set[str] = set()  # sites in back-off because they did not answer in time
        self._in_debt: set[str] = set()  # sites in back-off because we owe them too much

    def is_backed_off(self, site: str, utc_s: UtcS) -> bool:
        """Whether a whole site is in back-off."""
        rest = self.sites.get(site)
        return rest is not None and utc_s < rest.until_s

    def rests(self, spec: JobSpec) -> Mapping[str, BackoffEnd]:
        """Return all back-offs that concern a job: sites by name, single pools as "site/pool"."""
        of_kind = self._of_kind.get(kind_of(spec))
        if not of_kind:
            return self.sites
        # A site's back-off wins over that of a place of the same name, for work without a pool.
        return {place: each.rest for place, each in of_kind.items()} | self.sites

    def was_refused(self, spec: JobSpec, site: str, pool: str) -> bool:
        """Whether a pool in back-off has refused work of this kind for good."""
        of_kind = self._of_kind.get(kind_of(spec), {})
        found = of_kind.get(_place(site, pool))
        return found is not None and found.rest.is_no

    def is_useless(self, job: str, site: str, utc_s: UtcS) -> bool:
        """Whether a site said lately that it has nothing for a job."""
        return utc_s < self._useless.get((job, site), _NO_BACKOFF).until_s

    def declined(self, purchase: Purchase, code: str, why: str, utc_s: UtcS) -> bool:
        """Back off from a seller that declined, for the part of our work that this is about.

        Return whether it is news about a site that has nothing for the job.
        """
        is_small = code == Reason.COST_LIMIT and not purchase.is_live  # its grant was
        is_past = purchase.is_recovered or purchase.is_orphan or purchase.is_void
        if is_past or (code in ENDED and not is_small):
            return False  # a contract that ended during a restart is no refusal of work
        site, pool, spec = purchase.site, purchase.pool, purchase.spec
        if code == Reason.CREDIT_LIMIT:
            self.spare_creditor(site, utc_s, why)
        elif code in REFUSALS_OF_SITE:
            self.spare(site, utc_s, why)
        elif spec is None:
            return False
        elif purchase.is_blind or pool == RELAY:
            self.note_payable(purchase.job, site)
            max_s = FULL_REST_MAX_S if code == Reason.NO_SLOTS else inf
            return self.note_useless(purchase.job, site, utc_s, max_s)
        elif is_small or (code == Reason.NO_SLOTS and not purchase.is_live):
            self.refuse_full(spec, site, pool, utc_s, why)
        else:
            self.refuse(spec, site, pool, utc_s, why, is_no=code == Reason.NOT_ENTITLED)
        return False

    def too_dear(self, job: str) -> Mapping[str, TooDear]:
        """Return the sites whose last quote a job can't pay."""
        return self._too_dear.get(job, _NOBODY)

    # --- of a whole site -----------------------------------------------------------------------

    def spare(self, site: str, utc_s: UtcS, why: str) -> None:
        """Back off from a site, twice as long each time in a row.

        Failures during a back-off are of earlier requests, and do not extend it.
        """
        self._spare(site, utc_s, why, self._rules.rest_max_s)

    def spare_silent(self, site: str, utc_s: UtcS, why: str) -> None:
        """Back off from a site that did not answer in time, for SILENT_MAX_S at most.

        It may have been busy for a moment; `answered` ends the back-off at once.
        """
        if not self.is_backed_off(site, utc_s):
            self._spare(site, utc_s, why, SILENT_MAX_S)
            self._silent.add(site)

    def spare_creditor(self, site: str, utc_s: UtcS, why: str) -> None:
        """Back off from a site that we owe as much as it permits; `paid` ends that at once."""
        if not self.is_backed_off(site, utc_s):
            self.spare(site, utc_s, why)
            self._in_debt.add(site)

    def paid(self, site: str) -> bool:
        """End the back-off from a site for our debt, as it has booked a payment; whether it was."""
        if site not in self._in_debt:
            return False
        self._wake(site)
        return True

    def _spare(self, site: str, utc_s: UtcS, why: str, max_s: float) -> None:
        if self.is_backed_off(site, utc_s):
            return
        self._in_debt.discard(site)
        self._silent.discard(site)
        self._unreached.discard(site)
        times = self._refusals[site] = self._refusals.get(site, 0) + 1
        rest_s = min(self._rules.rest_after_s(times), max_s)
        self.sites[site] = BackoffEnd(utc_s + rest_s, why)

    def answered(self, site: str) -> None:
        """End the back-off from a site that was silent, as it has answered after all."""
        if site in self._silent:
            self._wake(site)

    def unreachable(self, site: str, utc_s: UtcS, reason: str = "") -> None:
        """Back off from a site that can't be reached; do nothing during another back-off."""
        if not self.is_backed_off(site, utc_s):
            self.spare(site, utc_s, f"can't be reached{f' ({reason})' if reason else ''}")
            self._unreached.add(site)

    def reached(self, site: str) -> None:
        """End the back-off from a site that was silent or unreachable: there is a new session."""
        if site in self._unreached or site in self._silent:
            self._wake(site)

    def _wake(self, site: str) -> None:
        self._in_debt.discard(site)
        self._unreached.discard(site)
        self._silent.discard(site)
        self._refusals.pop(site, None)
        self.sites.pop(site, None)

    # --- of one kind of work -------------------------------------------------------------------

    def refuse(
        self,
        spec: JobSpec,
        site: str,
        pool: str,
        utc_s: UtcS,
        why: str,
        *,
        is_no: bool = False,
        is_of_terms: bool = True,
    ) -> None:
        """Back off from a pool for a kind of work, longer each time.

        Args:
            spec: a job of that kind.
            site, pool: the pool; for a request without a pool, the whole site.
            utc_s: now.
            why: as a part of a sentence.
            is_no: whether the pool's rules forbid such work, so that waiting does not help.
            is_of_terms: whether other terms of the pool may end the cause.
        """
        found = self._refused(spec, site, pool)
        if utc_s >= found.rest.until_s:
            found.times += 1
            found.is_of_terms, found.is_full = is_of_terms, False
            until_s = utc_s + self._rules.rest_after_s(found.times)
            found.rest = BackoffEnd(until_s, why, is_no)

    def refuse_full(self, spec: JobSpec, site: str, pool: str, utc_s: UtcS, why: str) -> None:
        """Back off from a pool that has no slot for a kind of work, for some seconds at most."""
        # Other buyers hold its slots for the moment that a contract takes; or it is full, as its
        # next advert will tell. A pool that shows free slots and declines is asked less often.
        found = self._refused(spec, site, pool)
        if utc_s >= found.rest.until_s:
            found.full = found.full + 1 if utc_s < found.rest.until_s + FULL_MAX_S else 1
            rest_s = min(FULL_S * 2.0 ** min(found.full - 1, 10), FULL_MAX_S, self._rules.rest_s)
            found.is_full = True
            found.rest = BackoffEnd(utc_s + rest_s, why)

    def freed(self, site: str, pool: str) -> None:
        """End the back-offs from a pool for lack of a slot: a contract of ours there has ended.

        Its slots may be what a limit of the seller's kept from our other work.
        """
        place = _place(site, pool)
        for places in self._of_kind.values():
            found = places.get(place)
            if found is not None and found.is_full:
                found.rest, found.full, found.is_full = _NEVER, 0, False
        for (job, of), each in self._useless.items():
            if of == site:
                self._useless[job, of] = replace(each, until_s=_NEVER.until_s)

    def _refused(self, spec: JobSpec, site: str, pool: str) -> _Refused:
        of_kind = self._of_kind.setdefault(kind_of(spec), {})
        return of_kind.setdefault(_place(site, pool), _Refused(_NEVER))

    def note_useful(self, spec: JobSpec | None, site: str, pool: str) -> None:
        """Forget the refusals of a kind of work, as a contract for it is open."""
        self._refusals.pop(site, None)
        if spec is not None:
            of_kind = self._of_kind.get(kind_of(spec), {})
            of_kind.pop(_place(site, pool), None)

    def note_fetched(self, spec: JobSpec | None, site: str) -> None:
        """Forget that results of a kind of work could not be fetched from a site: now they were."""
        if spec is not None and self._of_kind:
            self._of_kind.get(kind_of(spec), {}).pop(site, None)

    def terms_changed(self, site: str, utc_s: UtcS) -> None:
        """End the back-offs from a site that its former terms were the cause of.

        The next ones are longer all the same: terms may change all the time, and refuse the same.
        """
        for places in self._of_kind.values():
            for place, each in places.items():
                if place.partition("/")[0] == site and each.is_of_terms:
                    each.rest = BackoffEnd(min(each.rest.until_s, utc_s), each.rest.why)
        self.sellers_changed(site, utc_s)

    def sellers_changed(self, site: str, utc_s: UtcS) -> None:
        """End the back-offs of jobs from a site that had nothing for them: it knows more sellers.

        The next ones are longer all the same.
        """
        for (job, of), found in self._useless.items():
            if of == site:
                self._useless[job, of] = replace(found, until_s=min(found.until_s, utc_s))

    # --- of one job ----------------------------------------------------------------------------

    def note_useless(self, job: str, site: str, utc_s: UtcS, max_s: float = inf) -> bool:
        """Back off from a site that has nothing for a job, longer each time, up to `max_s`.

        Return whether it is the first time.
        """
        before = self._useless.get((job, site), _NO_BACKOFF)
        after = before.once_more(utc_s, self._rules)
        self._useless[job, site] = replace(after, until_s=min(after.until_s, utc_s + max_s))
        return before is _NO_BACKOFF

    def note_too_dear(self, job: str, site: str, utc_s: UtcS, price: TooDear) -> bool:
        """Back off from a site whose quote a job can't pay; return whether that is news."""
        self.note_useless(job, site, utc_s)
        found = self._too_dear.setdefault(job, {})
        is_news = site not in found
        found[site] = price
        return is_news

    def note_payable(self, job: str, site: str) -> None:
        """Note that a job can pay a site's price, or that the site quotes none any more."""
        self._too_dear.get(job, {}).pop(site, None)

    def tidy(self, utc_s: UtcS, jobs: Container[str]) -> None:
        """Forget back-offs that are over, and refusals of jobs that are not in `jobs`.

        The refusals of a kind of work count for `rest_max_s` after its last back-off.
        """
        for key in [each for each in self._useless if each[0] not in jobs]:
            del self._useless[key]
        for job in [each for each in self._too_dear if each not in jobs]:
            del self._too_dear[job]
        for site in list(self.sites):
            if not self.is_backed_off(site, utc_s):
                del self.sites[site]
        for kind, places in list(self._of_kind.items()):
            for place, each in list(places.items()):
                if utc_s >= each.rest.until_s + self._rules.rest_max_s:
                    del places[place]
            if not places:
                del self._of_kind[kind]


_NO_BACKOFF: Final = Backoff(0, UtcS(0.0))
_NEVER: Final = BackoffEnd(UtcS("-inf"))
_NOBODY: Final[Mapping[str, TooDear]] = MappingProxyType({})


def _place(site: str, pool: str) -> str:
    return f"{site}/{pool}" if pool else site
