"""Cards of sites known only from other members, kept apart from the trust book. Pure.

A member may pass on cards of any sites, including sites that it invented. The number of sites is
therefore limited per member and over all members. Cards of a site are dropped when an operator
decides about a site of that name, or mutes it.

If members pass on cards of one name with different keys, the card that most members pass on counts;
among equals, the one that arrived first. An operator who has compared fingerprints may approve any.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from federation.clocks import UtcS
from federation.signed.declarations import DeclarationOrder, Signed, SiteCard, order
from federation.signed.identity import TrustRefusal, Untrusted, same_fingerprint
from gateway.trust.standing import TrustedMember

PER_SOURCE_MAX: Final = 32  # sites that one member may tell us of
TOLD_MAX: Final = 1024  # sites of all members together
FORGOTTEN_MAX: Final = 1024  # names that are no longer accepted from one member


class Hearsay:
    """The cards that other members pass on of sites that are not in the trust book.

    `changes` is incremented whenever a card is noted or dropped.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._told: dict[str, dict[str, TrustedMember]] = {}  # by source, by site
        self._by_site: dict[str, dict[str, TrustedMember]] = {}  # by site, by source
        self._forgotten: dict[str, dict[str, None]] = {}  # names, by source

    # --- queries -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._told.values()))

    def __contains__(self, site: str) -> bool:
        return site in self._by_site

    @property
    def sites(self) -> list[str]:
        """The names of all sites known by hearsay, sorted."""
        return sorted(self._by_site)

    @property
    def sources(self) -> list[str]:
        """The members that told us of sites; "" stands for cards that an earlier version stored."""
        return sorted(self._told)

    def told_by(self, source: str) -> list[str]:
        """Return the sites that one member told us of."""
        return sorted(self._told.get(source, ()))

    def sources_of(self, site: str) -> list[str]:
        """Return the members that told us of a site."""
        return sorted(self._by_site.get(site, ()))

    @property
    def muted(self) -> list[str]:
        """The members from which some names are no longer accepted."""
        return sorted(self._forgotten)

    def forgotten(self, source: str) -> list[str]:
        """Return the names that are no longer accepted from one member."""
        return list(self._forgotten.get(source, ()))

    def items(self) -> Iterator[tuple[str, str, TrustedMember]]:
        """Yield all entries as source, site and card."""
        for source, told in self._told.items():
            for site, member in told.items():
                yield source, site, member

    def member(self, site: str) -> TrustedMember | None:
        """Return the card of a site that counts: the newest of those that most members pass on."""
        candidates = list(self._by_site.get(site, {}).values())
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        groups = [[o for o in candidates if _are_kin(each, o)] for each in candidates]
        most = max(groups, key=len)  # the first of equals
        return max(most, key=lambda each: each.card.content.serial)

    def find(self, site: str, fingerprint: str) -> TrustedMember | None:
        """Return the card of a site with this fingerprint."""
        candidates = self._by_site.get(site, {}).values()
        return next((c for c in candidates if same_fingerprint(c.fingerprint, fingerprint)), None)

    def to_pass_on(self) -> list[str]:
        """Return the sites to tell others of: a limited number, known from the most members."""
        by_sources = sorted(self._by_site, key=lambda site: (-len(self._by_site[site]), site))
        return by_sources[:PER_SOURCE_MAX]

    # --- adding --------------------------------------------------------------------------------

    def check_room(self, source: str, site: str) -> None:
        """Raise Untrusted FULL if no card of that site is accepted from a member."""
        told = self._told.get(source, {})
        if site in told:
            return
        if site in self._forgotten.get(source, ()):
            raise Untrusted(
                TrustRefusal.FULL,
                f"reports by {source!r} of site {site!r} are ignored, by an operator's command",
            )
        if len(told) >= PER_SOURCE_MAX:
            raise Untrusted(
                TrustRefusal.FULL,
                f"{source!r} has reported {PER_SOURCE_MAX} sites by hearsay already",
            )
        if len(self) >= TOLD_MAX:
            raise Untrusted(TrustRefusal.FULL, f"{TOLD_MAX} sites are known by hearsay already")

    def note(self, source: str, card: Signed[SiteCard], utc_s: UtcS) -> DeclarationOrder:
        """Store a card, whole and checked, from a member; Untrusted: FULL, AHEAD.

        It need not follow the previous card: both are only that member's word.
        """
        site = card.content.site
        self.check_room(source, site)
        order(None, card, utc_s)
        held = self._told.get(source, {}).get(site)
        serial = held.card.content.serial if held else -1
        if card.content.serial < serial:
            return DeclarationOrder.OLDER
        if held and card.body == held.card.body:
            return DeclarationOrder.SAME
        self.put(source, TrustedMember(card))
        return DeclarationOrder.NEWER

    def put(self, source: str, member: TrustedMember) -> None:
        """Store a card that was checked before."""
        site = member.card.content.site
        self._told.setdefault(source, {})[site] = member
        self._by_site.setdefault(site, {})[source] = member
        self.changes += 1

    # --- dropping ------------------------------------------------------------------------------

    def drop(self, site: str, source: str | None = None) -> None:
        """Forget a site, as told by one member or by all."""
        for each in self.sources_of(site) if source is None else [source]:
            self._told[each].pop(site, None)
            self._by_site[site].pop(each, None)
            if not self._told[each]:
                del self._told[each]
        if not self._by_site.get(site, True):
            del self._by_site[site]
        self.changes += 1

    def drop_signed(self, site: str, key: bytes) -> None:
        """Forget the cards of a site that carry this key."""
        for source, member in list(self._by_site.get(site, {}).items()):
            if key in member.card.content.keys:
                self.drop(site, source)

    def drop_source(self, source: str) -> None:
        """Forget all cards from a member; it may send them again."""
        for site in self.told_by(source):
            self.drop(site, source)

    def forget(self, source: str) -> list[str]:
        """Forget all cards from a member and refuse them from now on; return the sites."""
        sites = self.told_by(source)
        self.note_forgotten(source, sites)
        self.drop_source(source)
        return sites

    def note_forgotten(self, source: str, sites: Iterable[str]) -> None:
        """Refuse these names from a member; above the limit, the oldest names are dropped."""
        names = dict.fromkeys((*self._forgotten.get(source, ()), *sites))
        self._forgotten[source] = dict.fromkeys(list(names)[-FORGOTTEN_MAX:])
        self.changes += 1


def _are_kin(one: TrustedMember, other: TrustedMember) -> bool:
    """Whether two cards may be of one site at different points of its key rotation."""
    a, b = one.card.content, other.card.content
    return not {*a.keys, *a.past}.isdisjoint(b.keys) or not {*b.past}.isdisjoint(a.keys)
