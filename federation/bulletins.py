"""The bulletins that a member holds, and those that it is fetching. Pure.

Newest wins, by (boot, version). A notice of one that is newer starts a fetch from whoever sent
it; others who have it too are remembered, and asked in turn when no answer comes.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from federation.gossip import Bulletin, Notice, Topic

TELLERS_MAX: Final = 4  # that are remembered for one fetch


@dataclass(slots=True)
class Fetch:
    """A bulletin that is wanted: which, who was asked, who else has it, when to ask again."""

    notice: Notice
    asked: str
    again_s: float
    tellers: deque[str] = field(default_factory=lambda: deque(maxlen=TELLERS_MAX))


class Board:
    """Bulletins by topic. Who may have any, and how many, is for the caller to say."""

    def __init__(self) -> None:
        self._held: dict[Topic, Bulletin] = {}
        self._fetches: dict[Topic, Fetch] = {}

    def get(self, topic: Topic) -> Bulletin | None:
        """The newest of a topic that is held."""
        return self._held.get(topic)

    def __iter__(self) -> Iterator[Bulletin]:
        return iter(self._held.values())

    def is_news(self, notice: Notice) -> bool:
        """Whether it is newer than what is held."""
        held = self._held.get(notice.topic)
        return held is None or notice.age > held.notice.age

    def put(self, bulletin: Bulletin) -> None:
        """Hold one that is news."""
        notice = bulletin.notice
        self._held[notice.topic] = bulletin
        fetch = self._fetches.get(notice.topic)
        if fetch is not None and fetch.notice.age <= notice.age:
            del self._fetches[notice.topic]

    def forget(self, topics: Iterable[Topic]) -> None:
        """Drop what is held of these topics, and fetch it no more."""
        for topic in topics:
            self._held.pop(topic, None)
            self._fetches.pop(topic, None)

    def topics_of(self, site: str) -> list[Topic]:
        """Those that are held or fetched of a site; looks at all there are."""
        return [topic for topic in (*self._held, *self._fetches) if topic.site == site]

    # --- fetching ------------------------------------------------------------------------------

    def want(self, notice: Notice, teller: str, again_s: float, fetches_max: int) -> bool:
        """Note that somebody has a bulletin that is news; whether to ask for it now."""
        fetch = self._fetches.get(notice.topic)
        if fetch is not None and fetch.notice.age >= notice.age:
            if fetch.notice.age == notice.age and teller != fetch.asked:
                fetch.tellers.append(teller)
            return False
        if fetch is None and len(self._fetches) >= fetches_max:
            return False  # the next full exchange brings it up again
        self._fetches[notice.topic] = Fetch(notice, teller, again_s)
        return True

    def next_again_s(self) -> float | None:
        """When the first fetch is overdue."""
        return min((fetch.again_s for fetch in self._fetches.values()), default=None)

    def ask_again(self, now: float, again_s: float) -> list[tuple[str, Topic]]:
        """The fetches that are overdue, each with whom to ask next; those with nobody left end."""
        asks = []
        for topic, fetch in list(self._fetches.items()):
            if fetch.again_s > now:
                continue
            if not fetch.tellers:
                del self._fetches[topic]
                continue
            fetch.asked = fetch.tellers.popleft()
            fetch.again_s = again_s
            asks.append((fetch.asked, topic))
        return asks

    def lost(self, peer: str, now: float) -> bool:
        """No answer will come from a peer; whether some fetch is overdue because of that."""
        overdue = False
        for fetch in self._fetches.values():
            if fetch.asked == peer and fetch.again_s > now:
                fetch.again_s = now
                overdue = True
        return overdue
