"""Cards of sites that we know from other members alone, kept apart from the trust book. Pure.

A member may pass on cards of whatever sites it likes, also of sites that it made up. So what one
member says counts for few sites, of all members together for not many more, and is dropped when an
operator has decided about a site of that name, or wants to hear no more of it.

Where members pass on cards of one name by different keys, the one counts that most of them pass on,
and of equals the one that came first; an operator who has compared fingerprints may approve any.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from federation.identity import Refusal, Untrusted, same_fingerprint
from federation.statements import Order, Signed, SiteCard, order
from gateway.standing import Member

PER_SOURCE_MAX: Final = 32  # sites that one member may tell us of
TOLD_MAX: Final = 1024  # of all members together
FORGOTTEN_MAX: Final = 1024  # names of one member's that are not taken again


class Hearsay:
    """What other members say of sites that the trust book does not hold.

    `changes` goes up whenever something is noted or dropped.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._told: dict[str, dict[str, Member]] = {}  # by source, by site
        self._by_site: dict[str, dict[str, Member]] = {}  # the same, by site, by source
        self._forgotten: dict[str, dict[str, None]] = {}  # by source, the names

    # --- what it says --------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._told.values()))

    def __contains__(self, site: str) -> bool:
        return site in self._by_site

    @property
    def sites(self) -> list[str]:
        """All that we were told of, by name."""
        return sorted(self._by_site)

    @property
    def sources(self) -> list[str]:
        """The members that told us of some; "" for what an earlier version did not note."""
        return sorted(self._told)

    def told_by(self, source: str) -> list[str]:
        """The sites that one member told us of."""
        return sorted(self._told.get(source, ()))

    def sources_of(self, site: str) -> list[str]:
        """The members that told us of a site."""
        return sorted(self._by_site.get(site, ()))

    @property
    def muted(self) -> list[str]:
        """The members of which some names are not taken again."""
        return sorted(self._forgotten)

    def forgotten(self, source: str) -> list[str]:
        """The names that are not taken again from one member."""
        return list(self._forgotten.get(source, ()))

    def items(self) -> Iterator[tuple[str, str, Member]]:
        """All of it: source, site, and what it said."""
        for source, told in self._told.items():
            for site, member in told.items():
                yield source, site, member

    def member(self, site: str) -> Member | None:
        """What counts of what we were told of a site."""
        candidates = list(self._by_site.get(site, {}).values())
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        groups = [[o for o in candidates if _are_kin(each, o)] for each in candidates]
        most = max(groups, key=len)  # the first of equals
        return max(most, key=lambda each: each.card.content.serial)

    def find(self, site: str, fingerprint: str) -> Member | None:
        """What we were told of a site with this fingerprint."""
        candidates = self._by_site.get(site, {}).values()
        return next((c for c in candidates if same_fingerprint(c.fingerprint, fingerprint)), None)

    def to_pass_on(self) -> list[str]:
        """The sites that we tell others of: those that most have told us of, and not too many."""
        by_sources = sorted(self._by_site, key=lambda site: (-len(self._by_site[site]), site))
        return by_sources[:PER_SOURCE_MAX]

    # --- what is told --------------------------------------------------------------------------

    def check_room(self, source: str, site: str) -> None:
        """Raise Untrusted FULL where no card of that site is taken from a member."""
        told = self._told.get(source, {})
        if site in told:
            return
        if site in self._forgotten.get(source, ()):
            raise Untrusted(Refusal.FULL, f"site {site!r} was to be forgotten as {source!r} has it")
        if len(told) >= PER_SOURCE_MAX:
            raise Untrusted(
                Refusal.FULL, f"{source!r} has told of {PER_SOURCE_MAX} sites not known otherwise"
            )
        if len(self) >= TOLD_MAX:
            raise Untrusted(Refusal.FULL, f"{TOLD_MAX} sites are known by hearsay")

    def note(self, source: str, card: Signed[SiteCard], now_s: float) -> Order:
        """Take a card, whole and checked, from a member; Untrusted: FULL, AHEAD.

        It need not follow the one before: both are that member's word, and no more.
        """
        site = card.content.site
        self.check_room(source, site)
        order(None, card, now_s)
        held = self._told.get(source, {}).get(site)
        serial = held.card.content.serial if held else -1
        if card.content.serial < serial:
            return Order.OLDER
        if held and card.body == held.card.body:
            return Order.SAME
        self.put(source, Member(card))
        return Order.NEWER

    def put(self, source: str, member: Member) -> None:
        """Hold what was checked before."""
        site = member.card.content.site
        self._told.setdefault(source, {})[site] = member
        self._by_site.setdefault(site, {})[source] = member
        self.changes += 1

    # --- what is dropped -----------------------------------------------------------------------

    def drop(self, site: str, source: str | None = None) -> None:
        """Forget a site, as one member or as all have told of it."""
        for each in self.sources_of(site) if source is None else [source]:
            self._told[each].pop(site, None)
            self._by_site[site].pop(each, None)
            if not self._told[each]:
                del self._told[each]
        if not self._by_site.get(site, True):
            del self._by_site[site]
        self.changes += 1

    def drop_signed(self, site: str, key: bytes) -> None:
        """Forget a site as those have told of it who know it by this key."""
        for source, member in list(self._by_site.get(site, {}).items()):
            if key in member.card.content.keys:
                self.drop(site, source)

    def drop_source(self, source: str) -> None:
        """Forget all that a member has told; it may tell it again."""
        for site in self.told_by(source):
            self.drop(site, source)

    def forget(self, source: str) -> list[str]:
        """Forget all that a member has told, and do not take it again; the sites."""
        sites = self.told_by(source)
        self.note_forgotten(source, sites)
        self.drop_source(source)
        return sites

    def note_forgotten(self, source: str, sites: Iterable[str]) -> None:
        """Do not take these from a member again; of too many the last."""
        names = dict.fromkeys((*self._forgotten.get(source, ()), *sites))
        self._forgotten[source] = dict.fromkeys(list(names)[-FORGOTTEN_MAX:])
        self.changes += 1


def _are_kin(one: Member, other: Member) -> bool:
    """Whether two cards may be of one site, at different points of its rotation."""
    a, b = one.card.content, other.card.content
    return not {*a.keys, *a.past}.isdisjoint(b.keys) or not {*b.past}.isdisjoint(a.keys)
