"""A member's outgoing messages, and how news spreads: on messages to neighbours. Pure.

A change is sent at once. While changes keep coming, a round to all neighbours goes out every
`gossip_s`, and each message carries at most `news_bytes` of them.
"""

from collections import defaultdict

from federation.clocks import MonoS
from federation.membership.events import Effect, Keep, Send
from federation.membership.gossip import (
    NOTHING,
    TOPICS_ASKED_MAX,
    BulletinNotice,
    Gossip,
    MemberState,
    MemberUpdate,
    Message,
    News,
    Topic,
    Want,
)
from federation.membership.probing import GossipSettings, retransmissions
from federation.membership.roster import MemberRoster
from federation.membership.rumours import Rumours
from federation.membership.timetable import TimerKind, TimerTable


class Spreading:
    """The outgoing side: effects in order, and rumours until they find a message to ride on."""

    def __init__(
        self, roster: MemberRoster, settings: GossipSettings, timetable: TimerTable
    ) -> None:
        self.neighbours: tuple[str, ...] = ()
        self.effects: list[Effect] = []
        self.updates: Rumours[tuple[str, str], MemberUpdate] = Rumours()
        self.notices: Rumours[Topic, BulletinNotice] = Rumours()
        self._roster = roster
        self._settings = settings
        self._timetable = timetable
        self._asks: defaultdict[str, list[Topic]] = defaultdict(list)
        self._steered = -1  # the change of the rings as of which our neighbours are computed
        self._round_at_s = MonoS(0.0)  # no round to all neighbours before this time
        self._is_round_set = False

    def send(self, peer: str, message: Message) -> None:
        """Send a message now."""
        self.effects.append(Send(peer, message))

    def ask(self, peer: str, topic: Topic) -> None:
        """Ask a peer for a bulletin; the requests of one event go in one message."""
        self._asks[peer].append(topic)

    def arrived(self, peer: str) -> None:
        """Note that the news sent to a neighbour has arrived."""
        self.updates.arrived(peer)
        self.notices.arrived(peer)

    def lost(self, peer: str) -> None:
        """Note that the news sent to a neighbour may be lost."""
        self.updates.lost(peer)
        self.notices.lost(peer)

    def news(self, peer: str) -> News:
        """Return the news that ride along to a peer; first of all, any wrong belief about it."""
        member = self._roster.members.get(peer)
        is_well = member is None or member.state is MemberState.ALIVE
        if is_well and not self._has_for(peer):
            return NOTHING
        limit = retransmissions(self._settings, self._roster.present)
        about = [] if is_well else [self._roster.update_of(peer)]
        left = self._settings.news_bytes - sum(update.size_bytes for update in about)
        updates, size = self.updates.take(peer, left, limit)
        notices, _ = self.notices.take(peer, left - size, limit)
        return News((*about, *updates), tuple(notices))

    def steer(self) -> None:
        """Update the neighbours from the rings."""
        rings = self._roster.rings
        if self._steered == rings.changes:
            return
        self._steered = rings.changes
        found = tuple(sorted(rings.neighbours(self._roster.me)))
        if found != self.neighbours:
            self.neighbours = found
            self.updates.steer(found)
            self.notices.steer(found)
            self.effects.append(Keep(found))

    def flush(self, now: MonoS) -> None:
        """Send waiting news: at once, unless the last round to all neighbours was just now."""
        if self._asks:
            for peer, topics in self._asks.items():
                for first in range(0, len(topics), TOPICS_ASKED_MAX):
                    self.send(peer, Want(tuple(topics[first : first + TOPICS_ASKED_MAX])))
            self._asks.clear()
        if not (self.updates or self.notices):
            return
        if now >= self._round_at_s:
            for peer in self.neighbours:
                if self._has_for(peer):
                    news = self.news(peer)
                    if news != NOTHING:  # all of it may have reached its limit of sends
                        self.send(peer, Gossip(news))
            self._round_at_s = now + self._settings.gossip_s
        if not self._is_round_set and (self.updates or self.notices):
            self._is_round_set = True
            self._timetable.at(self._round_at_s, TimerKind.GOSSIP)

    def begin_round(self) -> None:
        """Handle the timer of a round: the next flush sends it."""
        self._is_round_set = False

    def _has_for(self, peer: str) -> bool:
        return self.updates.has_for(peer) or self.notices.has_for(peer)
