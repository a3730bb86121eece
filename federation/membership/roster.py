"""A member's view of the others: states, suspicions, and possible neighbours. Pure.

States merge by the highest (incarnation, state): the outcome is the same in whatever order and
however often updates arrive. Only the member itself begins a new incarnation. So a suspect objects
with one, old gossip does not revive the dead, and a restart can be told from an echo. Only our own
conclusion or the member's own update establishes that a present member is gone: updates by others
are suspicions. Dead and departed members are remembered for as long as old updates may still
circulate.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from federation.clocks import MonoS
from federation.membership.gossip import PRESENT, MemberState, MemberUpdate
from federation.membership.probing import GossipSettings, suspicion_s
from federation.membership.rings import Rings


@dataclass(slots=True)
class Member:
    """One of the other members."""

    state: MemberState
    incarnation: int
    accuser: str  # of a suspect or a dead member
    since_s: MonoS  # when the state began, here
    boot: int = 0  # the latest run of which a bulletin is held
    topics: int = 0  # bulletins of that run that are held

    @property
    def rank(self) -> tuple[int, MemberState]:
        """The rank that an update must exceed to change the member's state."""
        return (self.incarnation, self.state)


@dataclass(slots=True)
class Suspicion:
    """A suspicion: its start, its accusers, and the state that follows without an objection.

    `is_ours` is whether we have probed the member ourselves in vain; all else is hearsay.
    """

    since_s: MonoS
    accusers: list[str] = field(default_factory=list)
    verdict: MemberState = MemberState.DEAD  # or LEFT, when another member claims that it has left
    is_ours: bool = False

    def until_s(self, settings: GossipSettings, members: int) -> MonoS:
        """Return the time until which the suspect may object."""
        return self.since_s + suspicion_s(settings, members, len(self.accusers) - 1)


class MemberRoster:
    """All members that are known, except oneself.

    `admitted` lists the sites that may be members at all. The value is true for those that may be
    connected with, and so probed, linked and asked. Others appear only in updates.
    """

    def __init__(self, me: str, settings: GossipSettings) -> None:
        self.me = me
        self._settings = settings
        self.admitted: dict[str, bool] = {}
        self.members: dict[str, Member] = {}
        self.suspicions: dict[str, Suspicion] = {}
        self.rings = Rings(settings.rings, [me])
        self.present = 1

    def admit(self, sites: Iterable[str], *, direct: bool) -> None:
        """Admit these sites as members."""
        for site in sites:
            is_full = site not in self.admitted and len(self.admitted) >= self._settings.members_max
            if site == self.me or is_full:
                continue
            self.admitted[site] = direct
            if site in self.members:
                self._place(site)

    def expel(self, site: str) -> bool:
        """Revoke a site's admission as a member; return whether it was a member."""
        self.admitted.pop(site, None)
        return self.forget(site)

    def forget(self, site: str) -> bool:
        """Drop a member with all its state; return whether it was one."""
        member = self.members.pop(site, None)
        self.suspicions.pop(site, None)
        self.rings.remove(site)
        self.present -= member is not None and member.state in PRESENT
        return member is not None

    def load(self, updates: Iterable[MemberUpdate], now: MonoS) -> None:
        """Load earlier updates, many at once; only while no member is known."""
        for update in updates:
            if update.site in self.admitted and update.site not in self.members:
                state = MemberState.ALIVE if update.state is MemberState.SUSPECT else update.state
                self.members[update.site] = Member(state, update.incarnation, update.by, now)
                self.present += state in PRESENT
        direct = [
            site for site, m in self.members.items() if self.admitted[site] and m.state in PRESENT
        ]
        self.rings.reset([self.me, *direct])

    def apply(self, update: MemberUpdate, now: MonoS) -> MemberState | None:
        """Apply an update that is news; return the state before, None for an unknown member."""
        member = self.members.get(update.site)
        old = member.state if member else None
        self.present += (update.state in PRESENT) - (old in PRESENT)
        if member is None:
            self.members[update.site] = Member(update.state, update.incarnation, update.by, now)
        else:
            member.incarnation = update.incarnation
            member.accuser = update.by
            if member.state is not update.state:
                member.state, member.since_s = update.state, now
        self.suspicions.pop(update.site, None)
        if update.state is MemberState.SUSPECT:
            self.suspicions[update.site] = Suspicion(now, [update.by])
        self._place(update.site)
        return old

    def confirm(self, site: str, accuser: str) -> bool:
        """Count another accuser of a suspect; return whether it shortens the time to object."""
        suspicion = self.suspicions.get(site)
        if suspicion is None or accuser in suspicion.accusers:
            return False
        if len(suspicion.accusers) > self._settings.confirmations:
            return False
        suspicion.accusers.append(accuser)
        return True

    def update_of(self, site: str) -> MemberUpdate:
        """Return the state of a member as an update."""
        member = self.members[site]
        return MemberUpdate(site, member.state, member.incarnation, member.accuser)

    def updates(self) -> Iterator[MemberUpdate]:
        """Iterate over the states of all members, as updates."""
        return (self.update_of(site) for site in self.members)

    def can_ask(self, site: str) -> bool:
        """Whether a member is present and may be connected with."""
        return site in self.rings and site != self.me

    def absent(self) -> list[str]:
        """Return the sites that could be contacted, and are thought dead or were never heard of.

        Those of which nothing was heard since our start are among them: nobody else may be able to
        reach them either, and their own attempts may fail because only we know their older keys.
        """
        found = []
        for site, is_direct in self.admitted.items():
            member = self.members.get(site)
            if is_direct and (member is None or member.state is MemberState.DEAD):
                found.append(site)
        return found

    def past(self, now: MonoS) -> list[str]:
        """Return the members that died or left so long ago that they need not be remembered."""
        return [
            site
            for site, member in self.members.items()
            if member.state not in PRESENT and now - member.since_s > self._settings.remember_s
        ]

    def _place(self, site: str) -> None:
        if self.admitted[site] and self.members[site].state in PRESENT:
            self.rings.add(site)
        else:
            self.rings.remove(site)
