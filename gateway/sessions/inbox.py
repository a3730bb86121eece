"""The frames received on a port, queued and processed in turns, peer by peer. Pure.

A listener turns frames into news on request. Frames wait here until then, so that no call takes
long, however much one peer sends at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from federation.clocks import MonoS
from federation.sessions.session import DIALLER_WINDOW, RECEIVE_BYTES_MAX
from gateway.sessions.listener import News, PeerSaid, PeerSession, SessionListener

# The weight of messages that one turn takes, in total and of one peer before the next peer's
# turn. A message weighs 1, and 1 more for each TASKS_COUNTED tasks in it.
TURN_MAX: Final = 64
PEER_TURN_MAX: Final = 16
TASKS_COUNTED: Final = 64
NO_PIPE: Final = -1  # the lane of news without a pipe
# The bytes of frames that may wait per pipe: the most that a dialler may have in flight, and as
# much again for acknowledgements and heartbeats. Each frame counts FRAME_BYTES in addition to its
# length.
WAITING_BYTES_MAX: Final = 2 * DIALLER_WINDOW * RECEIVE_BYTES_MAX
FRAME_BYTES: Final = 512
OVERRUN: Final = "more unacknowledged frames than the window allows"

T = TypeVar("T")


def weight_of(message: Any) -> int:
    """Return the weight of a message within a turn."""
    payloads = getattr(message, "values", None) or getattr(message, "arguments", None)
    return 1 + len(payloads or ()) // TASKS_COUNTED


class Lanes(Generic[T]):
    """Waiting items, by peer; lanes take turns, and one has a peer's items in order of arrival.

    A peer that sends 50,000 jobs at once therefore delays another peer by no more than its share
    of a turn. An iterator of items is started when its turn comes.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], deque[Iterator[T]]] = {}
        self._weight = 1  # of the item that was taken last

    def __len__(self) -> int:
        return len(self._lanes)

    def has(self, pipe: int, peer: int | None) -> bool:
        """Whether any item from a pipe, or from its peer, waits."""
        return self._key(pipe, peer) in self._lanes

    def add(self, pipe: int, peer: int | None, items: Iterator[T], *, ahead: bool = False) -> None:
        """Queue items for their turn.

        Args:
            pipe: the pipe by which they arrived.
            peer: the peer that sent them; None: not known yet.
            items: the items to queue.
            ahead: put them before the items that wait in the same lane.
        """
        lane = self._lanes.setdefault(self._key(pipe, peer), deque())
        (lane.appendleft if ahead else lane.append)(items)

    def _key(self, pipe: int, peer: int | None) -> tuple[str, int]:
        """Return a lane's key: the pipe's until its peer is known and earlier items are taken."""
        key = ("pipe", pipe)
        return key if peer is None or key in self._lanes else ("peer", peer)

    def take(self, most: int, most_each: int) -> Iterator[T]:
        """Yield the next items, lane by lane.

        Each weighs 1, and what `spend` has added to it by the time that the next one is asked for.

        Args:
            most: the total weight to take; the last item may exceed it.
            most_each: the weight to take from one lane before the next lane's turn.
        """
        while self._lanes and most > 0:
            key = next(iter(self._lanes))
            lane, left = self._lanes[key], most_each
            while lane and left > 0 and most > 0:
                items = lane[0]
                for item in items:
                    self._weight = 1
                    yield item
                    left -= self._weight
                    most -= self._weight
                    if left <= 0 or most <= 0:
                        break
                else:
                    lane.remove(items)
                    most -= 1  # also for frames without any item
            del self._lanes[key]
            if lane:
                self._lanes[key] = lane  # behind the others

    def spend(self, more: int) -> None:
        """Add to the weight of the item that was taken last."""
        self._weight += more


class Inbox:
    """The news of a listener, queued and taken a turn at a time.

    Args:
        listener: decodes frames.
    """

    def __init__(self, listener: SessionListener) -> None:
        self._listener = listener
        self._lanes: Lanes[News] = Lanes()
        self._waiting: dict[int, int] = {}  # bytes of frames, by pipe

    def __bool__(self) -> bool:
        """Whether any news waits."""
        return bool(self._lanes)

    def add_frames(self, frames: Iterable[tuple[int, bytes]], mono_s: MonoS) -> None:
        """Queue frames received on pipes, and note that their peers were heard from.

        A sender that does not wait for acknowledgements is disconnected at once: its session would
        detect that only at its turn, and until then the frames would fill our memory.
        """
        earliest_at_s = self._listener.earliest_at_s(mono_s)
        for pipe, frame in frames:
            if self._listener.is_leaving(pipe):
                continue
            waiting = self._waiting.get(pipe, 0) + len(frame) + FRAME_BYTES
            if waiting > WAITING_BYTES_MAX:
                self.add_news(list(self._listener.send_away(pipe, OVERRUN, mono_s)))
                continue
            self._waiting[pipe] = waiting
            peer = self._listener.note_heard(pipe, mono_s)
            handle = peer.handle if peer is not None else None
            self._lanes.add(pipe, handle, self._receive(pipe, frame, mono_s, earliest_at_s))

    def _receive(self, pipe: int, frame: bytes, mono_s: MonoS, came_at_s: MonoS) -> Iterator[News]:
        yield from self._listener.receive(pipe, frame, mono_s, came_at_s)
        self._waiting[pipe] -= len(frame) + FRAME_BYTES
        if not self._waiting[pipe]:
            del self._waiting[pipe]

    def add_news(self, news: Iterable[News]) -> None:
        """Queue news without a pipe."""
        self._lanes.add(NO_PIPE, None, iter(news))

    def add_said(self, peer: PeerSession, messages: Iterable[Any]) -> None:
        """Queue messages of a peer ahead of its other waiting messages."""
        if peer.pipe is not None:
            self._lanes.add(peer.pipe, peer.handle, self._said(peer, messages), ahead=True)

    def _said(self, peer: PeerSession, messages: Iterable[Any]) -> Iterator[News]:
        for message in messages:
            if peer.handle not in self._listener.peers:
                return
            yield PeerSaid(peer, message)

    def pipes_gone(self, pipes: Iterable[int], mono_s: MonoS) -> None:
        """Note that pipes were closed; the frames that arrived on them are processed first."""
        for pipe in pipes:
            peer = self._listener.peer_on(pipe)
            handle = peer.handle if peer is not None else None
            if self._lanes.has(pipe, handle):
                self._lanes.add(pipe, handle, self._pipe_gone(pipe, mono_s))
            else:
                self._listener.pipes_gone([pipe], mono_s)

    def _pipe_gone(self, pipe: int, mono_s: MonoS) -> Iterator[News]:
        yield from ()  # all frames of this pipe have been processed by now
        self._listener.pipes_gone([pipe], mono_s)

    def take(self) -> Iterator[News]:
        """Take the news of the next turn; a message counts with its weight."""
        for news in self._lanes.take(TURN_MAX, PEER_TURN_MAX):
            if isinstance(news, PeerSaid):
                self._lanes.spend(weight_of(news.message) - 1)
            yield news

    def spend(self, more: int) -> None:
        """Count the work that the news taken last has made, beyond its weight as a message."""
        self._lanes.spend(more)
