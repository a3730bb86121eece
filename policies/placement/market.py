"""The market: every pool known to this site, its own and its peers', as candidates. Pure.

Adverts are prepared once, when they arrive, so that a decision over thousands of pools only
computes with them. An advert is always out of date, so work sent to its pool since then is counted
here and corrects it (`Candidate.backlog_slot_s`).
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from federation.clocks import NEVER_S, UtcS
from federation.errors import ProtocolError
from federation.messages.adverts import PoolAdvert, PriceChange, SiteAdvert
from federation.words import duration_text
from policies.placement.feasibility import PlacementTerms, Profile, filters_for, judge_terms
from policies.placement.outlook import Curve, curve_of
from policies.placement.placement import CapacityOffer, Refusal
from policies.tariffs import Extras, Surcharge

Key = tuple[str, str]  # site and pool

# Clocks of members must agree this well for deals: leases and windows depend on them.
SKEW_MAX_S: Final = 2.0
# After this long without a slot, no work that has an alternative waits for a pool's first slot. A
# restarted host, or a grid with room again, is back within this time.
EMPTY_S: Final = 600.0
SITES_MAX: Final = 10_000
# The assumed minimum share of its slots that a busy pool keeps working, even if it measured less.
SERVING_MIN: Final = 0.01
# Separate sendings kept for one pool; beyond that, the two oldest are merged.
SENT_MAX: Final = 64
# Kinds of jobs whose verdicts are cached; each holds one entry a pool.
TERMS_REMEMBERED: Final = 32


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """The network link to a site: round trip, and bytes per second."""

    rtt_s: float = 0.05
    bytes_s: float = 12.5e6


HERE: Final = NetworkLink(0.0, float("inf"))


@dataclass(frozen=True, slots=True)
class PricedSpan:
    """A time with its own slots and price; `until_s` closes it."""

    from_s: UtcS
    until_s: UtcS
    slots: int
    price_nanos: int


@dataclass(frozen=True, slots=True)
class SentWork:
    """Work that was sent to a pool at a time: tasks, their slot-seconds, and the job."""

    at_s: UtcS
    tasks: int
    slot_s: float
    job: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool that work may go to, with the knowledge of it since `as_of_s`."""

    key: Key
    number: int  # of its profile: while that stays the same, so do all verdicts on it
    is_own: bool
    as_of_s: UtcS
    expires_s: UtcS
    advert: PoolAdvert
    profile: Profile
    spans: tuple[PricedSpan, ...]
    price_change: PriceChange | None  # of a pool without windows: those have their own prices
    link: NetworkLink
    carbon_g_per_slot_s: float | None  # now
    carbon_ahead: Curve | None  # the same over time; None: no change is known
    serving: float | None  # slots that really work when none is free; None: all of them
    drift: float  # λ̂ - μ̂, slot-seconds per second
    load_slot_s: float  # L + sent
    slots_free: int  # less those taken by this site's work
    extras: Extras | None = None  # of a pool whose price is not the same for all
    sent: tuple[SentWork, ...] = ()
    empty_since_s: UtcS | None = None  # since when it lacks workers or slots; None: it has both

    def is_deserted(self, utc_s: UtcS) -> bool:
        """Whether it has shown no slot for so long that none is expected."""
        return self.empty_since_s is not None and utc_s - self.empty_since_s >= EMPTY_S

    def opens_at_s(self, utc_s: UtcS) -> UtcS:
        """Return when its windows have slots: now, if open; inf when no window is known."""
        return min(
            (max(utc_s, each.from_s) for each in self.spans if each.until_s > utc_s),
            default=NEVER_S,
        )

    @property
    def is_cold(self) -> bool:
        """Whether work would have to wait for the start of a slot."""
        return self.advert.slots_cold > 0 and not self.slots_free

    def must_start(self, tasks: int) -> bool:
        """Whether some of its slots may be started for so many tasks."""
        return self.advert.slots_cold > 0 and tasks > self.slots_free

    def is_closed(self, utc_s: UtcS) -> bool:
        """Whether it has no slots now, or has them only within the tolerance of clock skew."""
        return self.opens_at_s(utc_s - SKEW_MAX_S) > utc_s - SKEW_MAX_S

    def backlog_slot_s(self, utc_s: UtcS) -> float:
        """Return the slot-seconds of work queued before new work now, estimated from the advert.

        L̂ = max(0, L + sent + (λ̂ - μ̂)·τ): the load L at `as_of_s`, the work sent since then, and
        the arrivals and completions in the τ seconds since (Dahlin's load interpretation).
        """
        return max(0.0, self.load_slot_s + self.drift * (utc_s - self.as_of_s))


class Market:
    """The candidates of a site: its own pools, and those of the adverts that it has.

    Args:
        site: the name of this site.
        link: the default for a peer that was not measured and gives no hint.
    """

    def __init__(self, site: str, link: NetworkLink | None = None) -> None:
        self.site = site
        self._link = link or NetworkLink()
        self._links: dict[str, NetworkLink] = {}
        self._adverts: dict[str, SiteAdvert] = {}
        self._sites: dict[str, dict[str, Candidate]] = {}
        self._names: list[str] = []  # of the sites, in order
        self._all: list[Candidate] | None = None
        self._numbers = 0
        self._verdicts: OrderedDict[PlacementTerms, dict[int, Refusal | None]] = OrderedDict()

    def learn(self, advert: SiteAdvert, utc_s: UtcS) -> bool:
        """Take an advert, a peer's or this site's own; return False when the known one is as new.

        This site's own is never out of date: pass it again whenever it changed.

        Raises:
            ProtocolError: it comes from the future, or there are too many sites.
        """
        if advert.issued_s > utc_s + SKEW_MAX_S:
            ahead_s = advert.issued_s - utc_s
            raise ProtocolError(
                f"advert of {advert.site}: its time is {duration_text(ahead_s)} ahead of the "
                "local clock"
            )
        known = self._adverts.get(advert.site)
        if known is None and len(self._adverts) >= SITES_MAX:
            raise ProtocolError(
                f"advert of {advert.site}: the limit of {SITES_MAX:,} sites is reached"
            )
        is_old = known is not None and not advert.supersedes(known)
        if is_old and advert.site != self.site:
            return False
        before = self._sites.get(advert.site, {})
        found = {
            pool.pool: self._candidate(advert, pool, before.get(pool.pool), utc_s)
            for pool in sorted(advert.pools, key=lambda pool: pool.pool)
        }
        if known is None:
            insort(self._names, advert.site)
        self._adverts[advert.site] = advert
        self._sites[advert.site] = found
        self._forget_verdicts(before, found)
        self._all = None
        return True

    def forget(self, site: str) -> None:
        """Remove a site that left, or whose advert expired long ago."""
        if self._adverts.pop(site, None) is not None:
            self._forget_verdicts(self._sites.pop(site), {})
            self._names.remove(site)
            self._links.pop(site, None)
            self._all = None

    def measured(self, site: str, link: NetworkLink) -> None:
        """Set the measured link to a site; that overrides any hint."""
        self._links[site] = link
        for pool, candidate in self._sites.get(site, {}).items():
            self._sites[site][pool] = replace(candidate, link=link)
        self._all = None

    def sent(self, key: Key, tasks: int, slot_s: float, utc_s: UtcS, job: str = "") -> None:
        """Count work placed at a pool; negative figures take back work that it returned unrun."""
        site, pool = key
        candidate = self._sites.get(site, {}).get(pool)
        if candidate is not None:
            sent = (*candidate.sent, SentWork(utc_s, tasks, slot_s, job))
            if len(sent) > SENT_MAX:
                first, second, *rest = sent
                both = first.tasks + second.tasks, first.slot_s + second.slot_s
                sent = (SentWork(second.at_s, *both), *rest)
            self._sites[site][pool] = _with_sent(candidate, sent)
            self._all = None

    def without(self, job: str, keys: Iterable[Key]) -> "Market":
        """Return a copy without the work sent to these pools for a job: the job has slots there.

        Use it to decide only: adverts go to the market itself.
        """
        others: dict[str, dict[str, Candidate]] = {}
        for site, pool in keys:
            candidate = self._sites.get(site, {}).get(pool)
            if candidate is not None and any(each.job == job for each in candidate.sent):
                sent = tuple(each for each in candidate.sent if each.job != job)
                others.setdefault(site, {})[pool] = _with_sent(candidate, sent)
        if not others:
            return self
        found = copy(self)
        found._sites = self._sites | {
            site: self._sites[site] | pools for site, pools in others.items()
        }
        found._all = None
        return found

    def advert(self, site: str) -> SiteAdvert | None:
        """Return the last advert of a site."""
        return self._adverts.get(site)

    @property
    def candidates(self) -> list[Candidate]:
        """All of them, expired ones included, by site and pool in alphabetical order."""
        if self._all is None:
            self._all = [each for site in self._names for each in self._sites[site].values()]
        return self._all

    @property
    def adverts(self) -> list[SiteAdvert]:
        """The newest of each site, by its name."""
        return [self._adverts[site] for site in self._names]

    @property
    def has_others(self) -> bool:
        """Whether any other site is known."""
        return len(self._names) > (self.site in self._sites)

    def verdicts(self, terms: PlacementTerms) -> dict[int, Refusal | None]:
        """Return the verdicts on all candidates for these terms, by a candidate's number.

        A verdict is why a pool may never run such jobs, or None where it may. Jobs with the same
        requirements are judged once (HTCondor's autoclusters).
        """
        known = self._verdicts.setdefault(terms, {})
        self._verdicts.move_to_end(terms)
        if len(self._verdicts) > TERMS_REMEMBERED:
            self._verdicts.popitem(last=False)
        new = [each for each in self.candidates if each.number not in known]
        filters = filters_for(terms) if new else ()
        for candidate in new:
            known[candidate.number] = judge_terms(terms, candidate.profile, filters)
        return known

    def _candidate(
        self, advert: SiteAdvert, pool: PoolAdvert, before: Candidate | None, utc_s: UtcS
    ) -> Candidate:
        is_own = advert.site == self.site
        as_of_s = min(advert.issued_s, utc_s)
        profile = _profile(advert.site, is_own, pool, self.site)
        if before is not None and before.profile == profile:
            number = before.number
        else:
            self._numbers = number = self._numbers + 1
        hint = NetworkLink(pool.rtt_s or self._link.rtt_s, pool.link_bytes_s or self._link.bytes_s)
        spans = _spans(pool)
        empty_since_s = None
        if not pool.pythons or not any(span.slots for span in spans):
            known_s = before.empty_since_s if before is not None else None
            empty_since_s = utc_s if known_s is None else known_s
        candidate = Candidate(
            key=(advert.site, pool.pool),
            number=number,
            is_own=is_own,
            as_of_s=as_of_s,
            expires_s=NEVER_S if is_own else as_of_s + advert.valid_s,
            advert=pool,
            profile=profile,
            spans=spans,
            price_change=None if pool.windows else pool.next_price,
            link=HERE if is_own else self._links.get(advert.site, hint),
            carbon_g_per_slot_s=_carbon(pool),
            carbon_ahead=_carbon_ahead(pool, before),
            serving=_serving(pool),
            drift=_drift(pool),
            load_slot_s=pool.load_slot_s,
            slots_free=pool.slots_free,
            extras=_extras(pool),
            empty_since_s=empty_since_s,
        )
        if before is None:
            return candidate
        # Work sent within a link's latency before the advert was issued had not arrived by then.
        since_s = as_of_s - candidate.link.rtt_s
        return _with_sent(candidate, tuple(sent for sent in before.sent if sent.at_s > since_s))

    def _forget_verdicts(
        self, before: Mapping[str, Candidate], after: Mapping[str, Candidate]
    ) -> None:
        kept = {each.number for each in after.values()}
        for candidate in before.values():
            if candidate.number not in kept:
                for known in self._verdicts.values():
                    known.pop(candidate.number, None)


def _with_sent(candidate: Candidate, sent: tuple[SentWork, ...]) -> Candidate:
    advert = candidate.advert
    slot_s = max(0.0, sum(each.slot_s for each in sent))
    free = min(advert.slots_free, advert.slots_free - sum(each.tasks for each in sent))
    return replace(
        candidate,
        sent=sent,
        load_slot_s=advert.load_slot_s + slot_s,
        slots_free=max(0, free),
    )


def _serving(pool: PoolAdvert) -> float | None:
    """Return the slots that really work when none is free: the measured rate, within bounds."""
    if pool.slots_free or not pool.work_rate or not pool.slots_warm:
        return None
    return max(pool.work_rate, SERVING_MIN * pool.slots_warm)


def _drift(pool: PoolAdvert) -> float:
    """Return λ̂ - μ̂: μ̂ is the measured work rate when no slot is free, else all slots.

    An unknown λ̂ equals the measured rate: arrivals equal departures. Without rates, the load is
    assumed to stay constant.
    """
    rate = pool.work_rate
    if rate is None:
        return 0.0
    arrivals = rate if pool.arrival_rate is None else pool.arrival_rate
    return arrivals - (rate if rate and not pool.slots_free else pool.slots_warm)


def _profile(site: str, is_own: bool, pool: PoolAdvert, reader: str) -> Profile:
    pythons = " ".join(pool.pythons)
    offer = CapacityOffer(
        *(f"{site}/{pool.pool}", pool.pool, pool.tags, pythons, ""),
        takes_inputs=is_own or pool.inputs,
    )
    may_use = is_own or pool.sites is None or reader in pool.sites
    return Profile(
        *(site, is_own, offer, pool.pythons, pool.jurisdiction, pool.currency, pool.projects),
        *(may_use, is_own or pool.labels),
    )


def _spans(pool: PoolAdvert) -> tuple[PricedSpan, ...]:
    if not pool.windows:
        return (PricedSpan(UtcS(0.0), NEVER_S, pool.slots_total, pool.price_nanos),)
    return tuple(
        PricedSpan(window.from_s, window.until_s, window.slots, window.price_nanos)
        for window in pool.windows
    )


def _extras(pool: PoolAdvert) -> Extras | None:
    found = Extras(
        pool.preemptible,
        {tag: Surcharge(each.add_nanos, each.factor) for tag, each in pool.tag_prices.items()},
        pool.minimum_nanos,
        pool.step_ns,
    )
    return None if found == Extras() else found


def _carbon_ahead(pool: PoolAdvert, before: Candidate | None) -> Curve | None:
    """Return the emissions over the coming hours, of a pool that forecasts them.

    It is recomputed only on a change: this site's own advert is read for each plan.
    """
    if pool.carbon_ahead is None or pool.carbon_g_per_kwh is None or pool.slot_watts is None:
        return None
    if before is not None and _electricity(before.advert) == _electricity(pool):
        return before.carbon_ahead
    return curve_of(pool.carbon_g_per_kwh, pool.carbon_ahead).times(pool.slot_watts / 3.6e6)


def _electricity(pool: PoolAdvert) -> tuple[object, ...]:
    return pool.carbon_ahead, pool.carbon_g_per_kwh, pool.slot_watts


def _carbon(pool: PoolAdvert) -> float | None:
    """Return grams of CO2e per slot-second: O = E·I of the SCI, with E the draw of a busy slot."""
    if pool.carbon_g_per_kwh is None or pool.slot_watts is None:
        return None
    return pool.slot_watts * pool.carbon_g_per_kwh / 3.6e6
