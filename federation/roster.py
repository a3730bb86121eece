"""What a member holds of the others: states, suspicions, and who may be a neighbour. Pure.

States merge by the highest (incarnation, state): in any order and however often claims arrive,
the outcome is the same. Only the member itself begins a new incarnation; so a suspect objects
with one, the dead are not revived by old gossip, and a restart is told from an echo. That a present
member is gone is a conclusion of our own, or its own word: what others say is a suspicion. The dead
and those who left are remembered for as long as old claims may still be about.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from federation.gossip import PRESENT, Claim, State
from federation.probing import Knobs, suspicion_s
from federation.rings import Rings


@dataclass(slots=True)
class Member:
    """One of the others."""

    state: State
    incarnation: int
    accuser: str  # of a suspect, or of the dead
    since_s: float  # when the state began, here
    boot: int = 0  # the latest life of which a bulletin is held
    topics: int = 0  # bulletins of that life that are held

    @property
    def rank(self) -> tuple[int, State]:
        """What a claim must exceed to change it."""
        return (self.incarnation, self.state)


@dataclass(slots=True)
class Suspicion:
    """Since when a member is suspected, who has said so, and what follows if it does not object.

    `is_ours` is whether we have probed it ourselves in vain; all else is hearsay.
    """

    since_s: float
    accusers: list[str] = field(default_factory=list)
    verdict: State = State.DEAD  # or LEFT, when somebody says that it has left
    is_ours: bool = False

    def until_s(self, knobs: Knobs, members: int) -> float:
        """How long it has to object."""
        return self.since_s + suspicion_s(knobs, members, len(self.accusers) - 1)


class Roster:
    """All members that are known, except oneself.

    `admitted` has who may be a member at all; true for those that may be connected with, and so
    probed, linked and asked. Others are only spoken of.
    """

    def __init__(self, me: str, knobs: Knobs) -> None:
        self.me = me
        self._knobs = knobs
        self.admitted: dict[str, bool] = {}
        self.members: dict[str, Member] = {}
        self.suspicions: dict[str, Suspicion] = {}
        self.rings = Rings(knobs.rings, [me])
        self.present = 1

    def admit(self, sites: Iterable[str], *, direct: bool) -> None:
        """These may be members."""
        for site in sites:
            is_full = site not in self.admitted and len(self.admitted) >= self._knobs.members_max
            if site == self.me or is_full:
                continue
            self.admitted[site] = direct
            if site in self.members:
                self._place(site)

    def expel(self, site: str) -> bool:
        """This may not be a member any more; whether it was one."""
        self.admitted.pop(site, None)
        return self.forget(site)

    def forget(self, site: str) -> bool:
        """Drop a member with all that is held of it; whether it was one."""
        member = self.members.pop(site, None)
        self.suspicions.pop(site, None)
        self.rings.remove(site)
        self.present -= member is not None and member.state in PRESENT
        return member is not None

    def load(self, claims: Iterable[Claim], now: float) -> None:
        """Begin with what was known before; for many at once, and only while nobody is known."""
        for claim in claims:
            if claim.site in self.admitted and claim.site not in self.members:
                state = State.ALIVE if claim.state is State.SUSPECT else claim.state
                self.members[claim.site] = Member(state, claim.incarnation, claim.by, now)
                self.present += state in PRESENT
        direct = [
            site for site, m in self.members.items() if self.admitted[site] and m.state in PRESENT
        ]
        self.rings.reset([self.me, *direct])

    def apply(self, claim: Claim, now: float) -> State | None:
        """Take a claim that is news; the state before, None of one that was not known."""
        member = self.members.get(claim.site)
        old = member.state if member else None
        self.present += (claim.state in PRESENT) - (old in PRESENT)
        if member is None:
            self.members[claim.site] = Member(claim.state, claim.incarnation, claim.by, now)
        else:
            member.incarnation = claim.incarnation
            member.accuser = claim.by
            if member.state is not claim.state:
                member.state, member.since_s = claim.state, now
        self.suspicions.pop(claim.site, None)
        if claim.state is State.SUSPECT:
            self.suspicions[claim.site] = Suspicion(now, [claim.by])
        self._place(claim.site)
        return old

    def confirm(self, site: str, accuser: str) -> bool:
        """Count another accuser of a suspect; whether it shortens its time to object."""
        suspicion = self.suspicions.get(site)
        if suspicion is None or accuser in suspicion.accusers:
            return False
        if len(suspicion.accusers) > self._knobs.confirmations:
            return False
        suspicion.accusers.append(accuser)
        return True

    def claim_of(self, site: str) -> Claim:
        """What we hold of a member, as it is told."""
        member = self.members[site]
        return Claim(site, member.state, member.incarnation, member.accuser)

    def claims(self) -> Iterator[Claim]:
        """What we hold of all."""
        return (self.claim_of(site) for site in self.members)

    def can_ask(self, site: str) -> bool:
        """Whether it is there and may be connected with."""
        return site in self.rings and site != self.me

    def dead(self) -> list[str]:
        """Those that are thought dead and could be tried."""
        return [
            site
            for site, member in self.members.items()
            if member.state is State.DEAD and self.admitted[site]
        ]

    def past(self, now: float) -> list[str]:
        """Those that died or left so long ago that they need not be remembered."""
        return [
            site
            for site, member in self.members.items()
            if member.state not in PRESENT and now - member.since_s > self._knobs.remember_s
        ]

    def _place(self, site: str) -> None:
        if self.admitted[site] and self.members[site].state in PRESENT:
            self.rings.add(site)
        else:
            self.rings.remove(site)
