"""The sites that a job may ever go to, by its user's wishes, the trust book and adverts. Pure.

Nothing here depends on the moment: full, in back-off and closed sites count too.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from math import isinf

from federation.clocks import UtcS
from federation.objects.labels import DataLabel
from federation.objects.left import REF
from federation.wishes import USUAL_PROJECT
from gateway.base.tags import OBJECTS_TAG
from gateway.base.values import suggest
from gateway.config.pools import PoolFacts
from gateway.contracts.model.dealing import Permits
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from policies.placement.asks import Preferences, Wishes
from policies.placement.feasibility import PlacementTerms, Profile, check_jurisdiction, check_sites
from policies.placement.market import Candidate, Market
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff


class SiteEligibility:
    """Decides which other sites may run this site's jobs; most of it answers
    `gateway.scheduler.model.peer_queries`.

    Args:
        site: the name of this site.
        broker: has the entitlements and pools that count.
        preferences: the site's preferences in placing work.
        permits: the sites that this site deals with.
        facts: this site's pools.
        market: the adverts of other sites.
        was_refused: (job, site, pool) → whether the site has said that the pool's rules forbid work
            of this kind.
        moves: of objects between sites.
    """

    def __init__(
        self,
        site: str,
        broker: Broker,
        preferences: Preferences,
        permits: Permits,
        facts: Mapping[str, PoolFacts],
        market: Market,
        was_refused: Callable[[JobSpec, str, str], bool],
        moves: ObjectMoves,
    ) -> None:
        self._site = site
        self._broker = broker
        self._preferences = preferences
        self._permits = permits
        self._facts = facts
        self._market = market
        self._was_refused = was_refused
        self._moves = moves
        # Why data with a label can't lie at this site, in words: set where its jurisdiction is
        # known.
        self.why_not_here: Callable[[DataLabel], str] = lambda _label: ""
        self.jurisdiction: Callable[[], str] = str  # of the gateway's host; empty: unknown

    def why_not_back(self, label: DataLabel, buyer: str) -> str:
        """Return why no data with a label may be read for a buyer at this site, or an empty text.

        Results, output and tracebacks come through this site, and go to the buyer.
        """
        return self.why_not_here(label) or self.why_not_at(label, buyer)

    def why_not_at(self, label: DataLabel, site: str) -> str:
        """Return why data with a label may not lie at another site, by its advert, or empty.

        That is where its gateway's host is. A site of an older version does not say where: it may
        have the data if all the pools that it shows may.
        """
        advert = self._market.advert(site)
        places = set[str]()
        if advert is not None:
            pools = {each.jurisdiction for each in advert.pools}
            places = {advert.jurisdiction} if advert.jurisdiction else pools
        whys = [label.why_not(site, each) for each in sorted(places or {""})]
        return next(filter(None, whys), "")

    def terms(self, spec: JobSpec) -> PlacementTerms:
        """Return the conditions of a job on the place where it runs."""
        wishes = self._broker.entitling.wishes_of(spec)
        may_leave = self._broker.entitling.may_leave(spec.work)
        stays = self._stays(spec, wishes)
        return PlacementTerms(
            need=spec.need,
            project=spec.project,
            trusted=frozenset(
                self._permits.runners(spec.project) if may_leave and not stays else ()
            ),
            may_leave=may_leave,
            stays=stays,
            allowed_sites=wishes.allowed_sites,
            forbidden_sites=wishes.forbidden_sites,
            jurisdictions=wishes.jurisdictions,
            path=spec.path,
            hops_left=spec.hops_left,
            barred=frozenset(self._permits.barred(spec.project)),
            readable=_may_hop(spec) if spec.path else frozenset(self._permits.readable()),
            objects_stay=self._why_objects_stay(spec),
            label=wishes.label,
        )

    def _why_objects_stay(self, spec: JobSpec) -> str:
        """Return why the objects of a job stay at this site; empty if they may leave it."""
        if OBJECTS_TAG not in spec.tags:
            return ""
        if spec.results == REF:
            return 'its results stay at this site (results="ref")'
        return self._moves.why_ours_stay()

    def suits(self, spec: JobSpec, pool: str) -> bool:
        """Whether a pool of this site lies where a job's user lets it run."""
        terms, facts = self.terms(spec), self._facts.get(pool, PoolFacts())
        offer = CapacityOffer(f"{self._site}/{pool}", pool, facts.tags, "", "")
        here = Profile(self._site, True, offer, (), facts.jurisdiction, "", None, True)
        return check_sites(terms, here) is None and check_jurisdiction(terms, here) is None

    def _stays(self, spec: JobSpec, wishes: Wishes) -> bool:
        """Whether a claim keeps a job at this site: on a pool here that can run it."""
        occupancy = self._broker.occupancy
        if spec.path or not occupancy.pools:
            return False
        if self._site in wishes.forbidden_sites:
            return False
        if wishes.allowed_sites is not None and self._site not in wishes.allowed_sites:
            return False
        return any(
            occupancy.keeps(pool, spec.whose)
            for pool in self._broker.admission.pools(spec)
            if wishes.jurisdictions is None
            or self._facts.get(pool, PoolFacts()).jurisdiction in wishes.jurisdictions
        )

    def trusted(self, project: str = USUAL_PROJECT) -> Set[str]:
        """Return the sites that may run a project's work and whose results may be opened here."""
        return self._permits.readable() & self._permits.runners(project)

    def may_run(self, spec: JobSpec) -> bool:
        """Whether some other site may be able to run this job, now or later."""
        terms = self.terms(spec)
        return (
            any(self._able(terms)) or bool(self.relays(spec, terms)) or self.is_unheard(spec, terms)
        )

    def may_be_made(self, job: Job) -> bool:
        """Whether another site's known pool offers the environment that workers could not make."""
        if isinf(self._preferences.prefer_own_s):
            return False
        terms = self.terms(job.spec)
        return any(self._able(replace(terms, barred=terms.barred | job.unfit)))

    def _able(self, terms: PlacementTerms) -> Iterator[Candidate]:
        """Yield the known pools of other sites that may run jobs on these terms."""
        verdicts = self._market.verdicts(terms)
        return (each for each in self._others() if verdicts[each.number] is None)

    def _others(self) -> Iterator[Candidate]:
        return (each for each in self._market.candidates if not each.is_own)

    def is_unheard(self, spec: JobSpec, terms: PlacementTerms) -> bool:
        """Whether a site that a job may go to has not shown its pools yet."""
        if spec.hops_left < 1:
            return False
        sites = {name.partition("/")[0] for name in terms.trusted} - {self._site}
        sites -= terms.forbidden_sites | set(spec.path)
        for only in (terms.readable, terms.allowed_sites):
            if only is not None:
                sites &= only
        return any(self._market.advert(site) is None for site in sites)

    def why_nowhere(self, spec: JobSpec) -> str:
        """Return why no site that a job's user allows may ever run it; empty if one may."""
        wishes = self._broker.entitling.wishes_of(spec)
        if why := self.why_not_here(wishes.label):
            return f"the results and the output of its tasks come here: {why}"
        allowed, jurisdictions = wishes.allowed_sites, wishes.jurisdictions
        is_free = allowed is None and jurisdictions is None
        if spec.path or (is_free and self._site not in wishes.forbidden_sites):
            return ""
        others = self._permits.readable() - wishes.forbidden_sites - {self._site}
        why = "results of the other sites are not accepted here (`gridfed sites`, `gridfed pools`)"
        if allowed is not None:
            others &= allowed
        if not self._broker.entitling.may_leave(spec.work):
            others, why = frozenset(), "the user is not entitled to use other sites (`gridfed can`)"
        if others or any(self.suits(spec, pool) for pool in self._broker.tariffs):
            return ""
        known = {self._site, *self._permits.readable(), *(each.key[0] for each in self._others())}
        cited = [each.place for each in self._broker.entitling.residence(spec).rules if each.place]
        by = f" ([[residency]], {'; '.join(cited[:8])})" if cited else ""
        by += f" ({wishes.label.title})" if wishes.label else ""
        shown = ", ".join(sorted(known)[:8])
        if is_free:
            without = ", ".join(sorted(wishes.forbidden_sites)[:8])
            why = (
                why
                if known - wishes.forbidden_sites
                else f"no other site is known here (known: {shown})"
            )
            return f"the job may not run at {without}{by}, and {why}"
        unknown = sorted((allowed or set()) - known)
        named = [f"{each}{suggest(each, known)}" for each in unknown]
        named += sorted((allowed or set()) & known)
        where = ", ".join([*named, *sorted(jurisdictions or ())][:8])
        why = f"no pool of {self._site} is there, and {why}"
        if unknown and len(unknown) == len(allowed or ()):
            sites = "site" if len(unknown) == 1 else "site of"
            why = f"no {sites} {', '.join(unknown[:8])} is known here; known: {shown}"
        return f"the job may run only at {where or 'no site'}{by}; {why}"

    def currencies(self) -> frozenset[str]:
        """Return the currencies that other sites' pools charge in."""
        return frozenset(each.advert.currency for each in self._others())

    def tariffs(self, spec: JobSpec, utc_s: UtcS) -> list[Tariff]:
        """Return the tariffs of other sites' pools that may be able to run a job, now or later.

        Exclude pools that have had no slot for long, and pools whose rules forbid the job.
        """
        if isinf(self._preferences.prefer_own_s):
            return []
        return [
            Tariff(each.advert.price_nanos, each.advert.currency, each.key[0])
            for each in self._able(self.terms(spec))
            if not each.is_deserted(utc_s) and not self._was_refused(spec, *each.key)
        ]

    def relays(self, spec: JobSpec, terms: PlacementTerms) -> list[str]:
        """Return the sites, by name, that may know sites that this one does not."""
        if spec.hops_left < 1 or terms.allowed_sites is not None or OBJECTS_TAG in spec.tags:
            return []
        sites = {name for name in terms.trusted if "/" not in name}  # a single pool relays nothing
        near = sites - terms.forbidden_sites - set(spec.path)
        if terms.readable is not None:
            near &= terms.readable
        if spec.has_inputs:
            near = {site for site in near if self._takes_inputs(site)}
        return sorted(near)

    def _takes_inputs(self, site: str) -> bool:
        """Whether a site is of a version that passes on calls with inputs."""
        advert = self._market.advert(site)
        return advert is not None and any(pool.inputs for pool in advert.pools)


def _may_hop(spec: JobSpec) -> frozenset[str] | None:
    """Return the sites that another site's job may go on to: its origin takes their results."""
    return spec.given.grant_terms.sites if spec.given is not None else frozenset()
