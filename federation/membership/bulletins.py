"""The bulletins that a member holds, and those that it is fetching. Pure.

The newest wins, by (boot, version). Bulletins of a site's earlier run are dropped once it announces
one in a new run. A notice of a newer bulletin starts a fetch from its sender. Other peers that have
it are remembered, and asked in turn when no answer comes.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from federation.clocks import MonoS
from federation.membership.events import Learned
from federation.membership.gossip import BULLETINS_MAX, Bulletin, BulletinNotice, Bulletins, Topic
from federation.membership.probing import GossipSettings
from federation.membership.roster import MemberRoster
from federation.membership.spreading import Spreading
from federation.membership.timetable import TimerKind, TimerTable

TELLERS_MAX: Final = 4  # peers remembered for one fetch


@dataclass(slots=True)
class Fetch:
    """A wanted bulletin: its notice, the peer asked, the time to ask again, and other holders."""

    notice: BulletinNotice
    asked: str
    again_at_s: MonoS
    tellers: deque[str] = field(default_factory=lambda: deque(maxlen=TELLERS_MAX))


class Board:
    """The newest bulletin of each topic, for members only, with a limited number per member."""

    def __init__(
        self,
        roster: MemberRoster,
        spreading: Spreading,
        timetable: TimerTable,
        settings: GossipSettings,
    ) -> None:
        self._roster = roster
        self._spreading = spreading
        self._timetable = timetable
        self._settings = settings
        self._is_fetch_set = False
        self._held: dict[Topic, Bulletin] = {}
        self._fetches: dict[Topic, Fetch] = {}

    def get(self, topic: Topic) -> Bulletin | None:
        """Return the newest bulletin held of a topic."""
        return self._held.get(topic)

    def __iter__(self) -> Iterator[Bulletin]:
        return iter(self._held.values())

    def is_news(self, notice: BulletinNotice) -> bool:
        """Whether a bulletin of another site would be accepted."""
        member = self._roster.members.get(notice.topic.site)
        if member is None or notice.boot < member.boot:
            return False
        held = self._held.get(notice.topic)
        if held is not None:
            return notice.age > held.notice.age
        return notice.boot > member.boot or member.topics < self._settings.topics_max

    def learn(self, bulletin: Bulletin, source: str) -> None:
        """Hold a bulletin of another site, and announce that it is here, if it is news."""
        notice = bulletin.notice
        if not self.is_news(notice):
            return
        member = self._roster.members[notice.topic.site]
        if notice.boot > member.boot:
            if member.topics:
                self.forget(notice.topic.site)
            member.boot, member.topics = notice.boot, 0
        member.topics += notice.topic not in self._held
        self._held[notice.topic] = bulletin
        fetch = self._fetches.get(notice.topic)
        if fetch is not None and fetch.notice.age <= notice.age:
            del self._fetches[notice.topic]
        self._spreading.effects.append(Learned(bulletin))
        self._spreading.notices.put(notice.topic, notice, source)

    def announce(self, bulletin: Bulletin) -> None:
        """Hold a bulletin of this site, and announce it.

        Raises:
            ValueError: it is another site's, or not newer than the one before.
        """
        notice = bulletin.notice
        held = self._held.get(notice.topic)
        if notice.topic.site != self._roster.me:
            raise ValueError("only bulletins of this site can be announced here")
        if held is not None and notice.age <= held.notice.age:
            raise ValueError(f"{notice} is not newer than {held.notice}")
        self._held[notice.topic] = bulletin
        self._spreading.notices.put(notice.topic, notice, None)

    def forget(self, site: str) -> None:
        """Drop the bulletins of a site and its fetches, without telling other members."""
        for topic in [t for t in (*self._held, *self._fetches) if t.site == site]:
            self._held.pop(topic, None)
            self._fetches.pop(topic, None)
            self._spreading.notices.drop(topic)

    def answer(self, peer: str, topics: tuple[Topic, ...]) -> None:
        """Send a peer the wanted bulletins that are here, up to a limit; it will ask again."""
        items: list[Bulletin] = []
        left = self._settings.answer_bytes
        for topic in topics[:BULLETINS_MAX]:
            bulletin = self._held.get(topic)
            if bulletin is not None and bulletin.size_bytes <= left:
                items.append(bulletin)
                left -= bulletin.size_bytes
        if items:
            self._spreading.send(peer, Bulletins(tuple(items)))

    # --- fetching ------------------------------------------------------------------------------

    def note(self, notice: BulletinNotice, teller: str, now: MonoS) -> None:
        """Note that a peer has a bulletin; fetch news from the first peer to announce it."""
        if not self.is_news(notice):
            self._spreading.notices.heard(teller, notice.topic)
            return
        fetch = self._fetches.get(notice.topic)
        if fetch is not None and fetch.notice.age >= notice.age:
            # Also remember the tellers of an older one: the newest notice may be an invention.
            if teller != fetch.asked and teller not in fetch.tellers:
                fetch.tellers.append(teller)
            return
        if fetch is None and len(self._fetches) >= self._settings.fetches_max:
            return  # the next full exchange brings it up again
        again_s = now + self._settings.fetch_s
        others = [] if fetch is None else [fetch.asked, *fetch.tellers]
        tellers = deque((each for each in others if each != teller), maxlen=TELLERS_MAX)
        self._fetches[notice.topic] = Fetch(notice, teller, again_s, tellers)
        self._spreading.ask(teller, notice.topic)
        self._set_timer(again_s)

    def fetch_again(self, now: MonoS) -> None:
        """Handle the fetch timer: ask other peers for overdue bulletins."""
        self._is_fetch_set = False
        self._ask_others(now)

    def miss(self, peer: str, now: MonoS) -> None:
        """Ask other peers for the bulletins requested from a peer without a connection."""
        asked = [fetch for fetch in self._fetches.values() if fetch.asked == peer]
        for fetch in asked:
            fetch.again_at_s = min(fetch.again_at_s, now)
        if asked:
            self._ask_others(now)

    def _ask_others(self, now: MonoS) -> None:
        for topic, fetch in list(self._fetches.items()):
            if fetch.again_at_s > now:
                continue
            if not fetch.tellers:
                del self._fetches[topic]  # the next full exchange brings it up again
                continue
            fetch.asked = fetch.tellers.popleft()
            fetch.again_at_s = now + self._settings.fetch_s
            self._spreading.ask(fetch.asked, topic)
        if self._fetches:
            self._set_timer(min(fetch.again_at_s for fetch in self._fetches.values()))

    def _set_timer(self, at_s: MonoS) -> None:
        if not self._is_fetch_set:
            self._is_fetch_set = True
            self._timetable.at(at_s, TimerKind.FETCH)
