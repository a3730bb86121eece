"""Pools that may never run a job, at any load and hour: filters, cheapest first. Pure.

The filters use only slowly changing facts, so that similar jobs are judged together and once for
each pool (policies.placement.market). policies.placement.estimates judges time and load.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from federation.messages.adverts import OBJECTS_TAG, PULLS_TAG
from federation.objects.labels import UNLABELLED, DataLabel
from federation.reasons import Reason
from policies.placement.environments import has_own_python
from policies.placement.placement import (
    CapacityOffer,
    Need,
    Refusal,
    check_environment,
    check_inputs,
    check_tags,
)


@dataclass(frozen=True, slots=True)
class PlacementTerms:
    """A job's requirements of the place where it runs; equal terms have equal verdicts.

    This site's own pools are trusted, and never forbidden by the job's path.
    """

    need: Need  # its tags must be hashable
    project: str
    trusted: frozenset[str]  # peers that may run this; one pool of a peer is "site/pool"
    allowed_sites: frozenset[str] | None = None  # None: all of them
    forbidden_sites: frozenset[str] = field(default_factory=frozenset)
    jurisdictions: frozenset[str] | None = None  # where its data may go; None: anywhere
    path: tuple[str, ...] = ()  # the sites that it was forwarded through
    hops_left: int = 3
    readable: frozenset[str] | None = None  # peers whose results may be opened; None: any
    barred: frozenset[str] = field(default_factory=frozenset)  # pools of trusted peers, "site/pool"
    may_leave: bool = True  # its user is entitled to pools of other sites
    stays: bool = False  # a claim on a pool of this site keeps it here
    objects_stay: str = ""  # why the objects that its calls refer to stay here; empty: they do not
    label: DataLabel = UNLABELLED  # where the data that its calls read may lie


@dataclass(frozen=True, slots=True)
class Profile:
    """The static facts of a pool, without its load."""

    site: str
    is_own: bool
    offer: CapacityOffer
    pythons: tuple[str, ...]
    jurisdiction: str
    currency: str
    projects: frozenset[str] | None
    may_use: bool  # whether its site accepts work from this one
    keeps_labels: bool = True  # whether its site knows the labels of data: older versions do not


def check_trust(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse sites that are not individually trusted with the work."""
    if profile.is_own:
        return None
    if not terms.may_leave:
        words = "belongs to another site, and the user is not entitled to use other sites"
        return Refusal(Reason.NOT_ENTITLED, words)
    if terms.stays:
        words = (
            "belongs to another site, and a claim keeps this work here (elsewhere, in its claim)"
        )
        return Refusal(Reason.SITE_FORBIDDEN, words)
    name = profile.offer.name
    if name not in terms.barred and not terms.trusted.isdisjoint((profile.site, name)):
        return None
    return Refusal(Reason.SITE_NOT_TRUSTED, "is not trusted to run this")


def check_objects(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse other sites that can't fetch the objects to which the job's calls refer."""
    if profile.is_own or OBJECTS_TAG not in terms.need.tags:
        return None
    if terms.objects_stay:
        return Refusal(
            Reason.OBJECTS_STAY, "belongs to another site, and {}", (terms.objects_stay,)
        )
    if PULLS_TAG in profile.offer.tags:
        return None
    return Refusal(Reason.OBJECTS_STAY, "does not fetch objects from other sites")


def check_label(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse places where labelled data may not lie, and sites that know no labels."""
    if not terms.label:
        return None
    why = terms.label.why_not(profile.site, profile.jurisdiction)
    if why:
        return Refusal(Reason.OUTSIDE_LABEL, "can't have the data: {}", (why,))
    if profile.is_own or profile.keeps_labels:
        return None
    return Refusal(
        Reason.OUTSIDE_LABEL,
        "is of an older version, which knows no labels of data: {}",
        (terms.label.title,),
    )


def check_results(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse sites whose results are not trusted: they are pickles, as dangerous as functions."""
    if profile.is_own or terms.readable is None or profile.site in terms.readable:
        return None
    return Refusal(Reason.RESULTS_NOT_TRUSTED, "returns results that are not accepted here")


def check_hops(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse other sites for a job without forwarding hops left."""
    if profile.is_own or terms.hops_left > 0:
        return None
    return Refusal(Reason.NO_HOPS_LEFT, "is one hop away, and the job may not be forwarded again")


def check_path(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse sites that forwarded the job before: no loops."""
    if profile.is_own or profile.site not in terms.path:
        return None
    return Refusal(
        Reason.ALREADY_VISITED, "has forwarded the job already: {}", (" > ".join(terms.path),)
    )


def check_sites(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Apply the user's choice of sites."""
    if profile.site in terms.forbidden_sites:
        return Refusal(Reason.SITE_FORBIDDEN, "is excluded by the job")
    if terms.allowed_sites is not None and profile.site not in terms.allowed_sites:
        return Refusal(Reason.SITE_FORBIDDEN, "is not among the sites that the job allows")
    return None


def check_jurisdiction(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse pools outside the job's jurisdictions, and pools of unknown jurisdiction."""
    if terms.jurisdictions is None or profile.jurisdiction in terms.jurisdictions:
        return None
    return Refusal(
        Reason.OUTSIDE_JURISDICTION,
        "is in jurisdiction {}, the job allows {}",
        (profile.jurisdiction or "unknown", ", ".join(sorted(terms.jurisdictions)) or "none"),
    )


def check_entitlement(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse sites and projects that the pool's owner does not admit."""
    if not profile.may_use:
        return Refusal(Reason.NOT_ENTITLED, "accepts no work from this site")
    if profile.projects is None or terms.project in profile.projects:
        return None
    return Refusal(Reason.NOT_ENTITLED, "accepts no work of project {}", (terms.project,))


def check_pythons(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse another minor version of Python: it may crash on pickled code."""
    if has_own_python(terms.need.environment):
        return None
    if terms.need.python in profile.pythons or not profile.pythons:
        return None  # a pool without workers is refused elsewhere: it passes
    has = ", ".join(profile.pythons)
    words = "runs Python {}, the job requires {}"
    return Refusal(Reason.PYTHON_DIFFERS, words, (has, terms.need.python))


def check_limit_currency(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse other currencies for a job with a cost limit: the limit holds only in its own."""
    if terms.need.currency in (None, profile.currency):
        return None
    words = "charges in {}, the cost limit is in {}"
    return Refusal(Reason.CURRENCY_DIFFERS, words, (profile.currency, terms.need.currency))


def check_need(terms: PlacementTerms, profile: Profile) -> Refusal | None:
    """Refuse pools that lack the job's tags or its environment, or can't take its calls."""
    need, offer = terms.need, profile.offer
    return check_environment(need, offer) or check_inputs(need, offer) or check_tags(need, offer)


Filter = Callable[[PlacementTerms, Profile], Refusal | None]
FILTERS: Final[tuple[Filter, ...]] = (
    check_trust,
    check_label,
    check_objects,
    check_results,
    check_hops,
    check_path,
    check_sites,
    check_jurisdiction,
    check_entitlement,
    check_pythons,
    check_limit_currency,
    check_need,
)


def filters_for(terms: PlacementTerms) -> tuple[Filter, ...]:
    """Return the filters that can refuse on these terms: most jobs ask for little."""
    is_idle: dict[Filter, bool] = {
        check_label: not terms.label,
        check_objects: OBJECTS_TAG not in terms.need.tags,
        check_results: terms.readable is None,
        check_hops: terms.hops_left > 0,
        check_path: not terms.path,
        check_sites: terms.allowed_sites is None and not terms.forbidden_sites,
        check_jurisdiction: terms.jurisdictions is None,
        check_limit_currency: terms.need.currency is None,
        check_need: not (terms.need.tags or terms.need.environment or terms.need.has_inputs),
    }
    return tuple(check for check in FILTERS if not is_idle.get(check))


def judge_terms(
    terms: PlacementTerms, profile: Profile, filters: Iterable[Filter]
) -> Refusal | None:
    """Return the first reason why this pool may never run jobs on these terms, or None.

    `filters` are those for these terms, chosen once for many pools.
    """
    for check in filters:
        refusal = check(terms, profile)
        if refusal is not None:
            return refusal
    return None
