"""The probes of one member: its own, in turn and with helpers, and those for others. Pure.

`health` is Lifeguard's local health multiplier: 0 is well. Every failure that may be our own fault
adds to it, which stretches our probes, so that a slow or badly connected member accuses no other in
haste.
"""

from dataclasses import dataclass
from typing import Final

from federation.chance import Chance
from federation.clocks import MonoS
from federation.membership.gossip import Ack, MemberState, Nack, Ping, PingRequest
from federation.membership.probing import GossipSettings, answer_within_s
from federation.membership.roster import MemberRoster
from federation.membership.spreading import Spreading
from federation.membership.timetable import TimerKind, TimerTable

# A helper reports a missing answer while the asker still listens.
NACK_SHARE: Final = 0.8


@dataclass(slots=True)
class _Probe:
    number: int
    target: str
    helpers: tuple[str, ...] = ()
    nacks: int = 0


@dataclass(frozen=True, slots=True)
class _Relay:
    """A probe made for another member, which knows it under a number of its own."""

    asker: str
    number: int
    target: str


class Prober:
    """Runs one probe at a time for this member, and several for others."""

    def __init__(
        self,
        roster: MemberRoster,
        spreading: Spreading,
        timetable: TimerTable,
        settings: GossipSettings,
        rng: Chance,
    ) -> None:
        self.health = 0
        self._roster = roster
        self._spreading = spreading
        self._timetable = timetable
        self._settings = settings
        self._rng = rng
        self._number = 0
        self._round: list[str] = []  # neighbours still to be probed, from the end
        self._first: dict[str, None] = {}  # to be probed before those
        self._probe: _Probe | None = None
        self._relays: dict[int, _Relay] = {}

    def feel(self, change: int) -> None:
        """Note a failure (or, below zero, a success) that may be our own doing."""
        self.health = min(max(self.health + change, 0), self._settings.health_max)

    def hurry(self, site: str) -> None:
        """Probe this neighbour next: it may be gone."""
        if site in self._spreading.neighbours:
            self._first[site] = None

    def begin(self, now: MonoS) -> None:
        """Probe the next neighbour, if there is one."""
        target = self._next()
        if target is None:
            return
        self._number += 1
        self._probe = _Probe(self._number, target)
        self._spreading.send(target, Ping(self._number, self._spreading.news(target)))
        answer_s = now + answer_within_s(self._settings, self.health)
        self._timetable.at(answer_s, TimerKind.ANSWER, self._number)

    def _next(self) -> str | None:
        """Return the next neighbour: suspects first, then in rounds, each shuffled anew."""
        neighbours = self._spreading.neighbours
        while self._first:
            site = next(iter(self._first))
            del self._first[site]
            if site in neighbours:
                return site
        for _ in range(2):
            while self._round:
                site = self._round.pop()
                if site in neighbours:
                    return site
            self._round = list(neighbours)
            self._rng.shuffle(self._round)
        return None

    def seek_help(self, number: object) -> None:
        """Ask other members to probe, once, if the probe of this number has no answer yet."""
        probe = self._probe
        if probe is None or probe.number != number or probe.helpers:
            return
        send, news = self._spreading.send, self._spreading.news
        # The connection may have been lost with the ping or its answer: a new one is made.
        send(probe.target, Ping(probe.number, news(probe.target)))
        members = self._roster.members
        able = [  # they have connections with it
            site
            for site in sorted(self._roster.rings.neighbours(probe.target))
            if site != self._roster.me and members[site].state is MemberState.ALIVE
        ]
        chosen = self._rng.sample(able, min(self._settings.helpers, len(able)))
        probe.helpers = tuple(chosen)
        for helper in chosen:
            send(helper, PingRequest(probe.number, probe.target, news(helper)))

    def conclude(self) -> str | None:
        """End the current probe; return its target if it has not answered.

        A member that does not even hear from its helpers may itself be at fault.
        """
        probe, self._probe = self._probe, None
        if probe is None:
            return None
        self.feel(len(probe.helpers) - probe.nacks if probe.helpers else 1)
        self._spreading.lost(probe.target)
        return probe.target

    def excuse(self) -> None:
        """Drop the current probe after our own absence: it proves nothing."""
        self._probe = None
        self.feel(self._settings.health_max)

    def hear_ack(self, peer: str, number: int) -> None:
        """Handle the answer of a probed member, or of a helper."""
        probe = self._probe
        if probe is not None and probe.number == number:
            if peer == probe.target:
                self._spreading.arrived(peer)
            if peer == probe.target or peer in probe.helpers:
                self._probe = None
                self.feel(-1)
            return
        relay = self._relays.get(number)
        if relay is not None and relay.target == peer:
            del self._relays[number]
            news = self._spreading.news(relay.asker)
            self._spreading.send(relay.asker, Ack(relay.number, news))

    def hear_nack(self, peer: str, number: int) -> None:
        """Note that a helper got no answer."""
        probe = self._probe
        if probe is not None and probe.number == number and peer in probe.helpers:
            probe.nacks += 1

    def relay(self, asker: str, number: int, target: str, now: MonoS) -> None:
        """Probe a member on behalf of another."""
        if len(self._relays) >= self._settings.relays_max or not self._roster.can_ask(target):
            self._spreading.send(asker, Nack(number, self._spreading.news(asker)))
            return
        self._number += 1
        self._relays[self._number] = _Relay(asker, number, target)
        self._spreading.send(target, Ping(self._number, self._spreading.news(target)))
        self._timetable.at(
            now + NACK_SHARE * self._settings.answer_s, TimerKind.RELAY, self._number
        )

    def give_up(self, number: object) -> None:
        """Tell the asker that a probe was not answered, unless it was."""
        relay = self._relays.pop(number, None)  # type: ignore[call-overload]
        if relay is not None:
            news = self._spreading.news(relay.asker)
            self._spreading.send(relay.asker, Nack(relay.number, news))

    def miss(self, peer: str) -> None:
        """Handle a missing connection with a peer: no answer will come over it."""
        self.hurry(peer)
        if self._probe is not None and self._probe.target == peer:
            self.seek_help(self._probe.number)
        for number in [n for n, relay in self._relays.items() if relay.target == peer]:
            self.give_up(number)
