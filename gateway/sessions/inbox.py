"""The frames received on a port, queued and processed in turns, guest by guest. Pure.

A listener turns frames into news on request. Frames wait here until then, so that no call takes
long, however much one guest sends at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from federation.clocks import MonoS
from federation.sessions.session import DIALLER_WINDOW, RECEIVE_BYTES_MAX
from gateway.sessions.lanes import Lanes
from gateway.sessions.listener import News, PeerSaid, PeerSession, SessionListener

# The weight of messages that one turn takes, in total and of one guest before the next guest's
# turn. A message weighs 1, and 1 more for each TASKS_COUNTED tasks in it.
TURN_MAX: Final = 64
GUEST_TURN_MAX: Final = 16
TASKS_COUNTED: Final = 64
NO_PIPE: Final = -1  # the lane of news without a pipe
# The bytes of frames that may wait per pipe: the most that a dialler may have in flight, and as
# much again for acknowledgements and heartbeats. Each frame counts FRAME_BYTES in addition to its
# length.
WAITING_BYTES_MAX: Final = 2 * DIALLER_WINDOW * RECEIVE_BYTES_MAX
FRAME_BYTES: Final = 512
OVERRUN: Final = "more unacknowledged frames than the window allows"


def weight_of(message: Any) -> int:
    """Return the weight of a message within a turn."""
    payloads = getattr(message, "values", None) or getattr(message, "arguments", None)
    return 1 + len(payloads or ()) // TASKS_COUNTED


class Inbox:
    """The news of a listener, queued and taken a turn at a time.

    Args:
        listener: decodes frames.
        weight: returns the weight of a piece of news, 1 or more; if None, by `weight_of`.
    """

    def __init__(
        self, listener: SessionListener, weight: Callable[[News], int] | None = None
    ) -> None:
        self._listener = listener
        self._weight = weight or _weigh
        self._lanes: Lanes[News] = Lanes()
        self._waiting: dict[int, int] = {}  # bytes of frames, by pipe

    def __bool__(self) -> bool:
        """Whether any news waits."""
        return bool(self._lanes)

    def add_frames(self, frames: Iterable[tuple[int, bytes]], mono_s: MonoS) -> None:
        """Queue frames received on pipes, and note that their guests were heard from.

        A sender that does not wait for acknowledgements is disconnected at once: its session would
        detect that only at its turn, and until then the frames would fill our memory.
        """
        for pipe, frame in frames:
            if self._listener.is_leaving(pipe):
                continue
            waiting = self._waiting.get(pipe, 0) + len(frame) + FRAME_BYTES
            if waiting > WAITING_BYTES_MAX:
                self.add_news(list(self._listener.send_away(pipe, OVERRUN, mono_s)))
                continue
            self._waiting[pipe] = waiting
            guest = self._listener.note_heard(pipe, mono_s)
            handle = guest.handle if guest is not None else None
            self._lanes.add(pipe, handle, self._receive(pipe, frame, mono_s))

    def _receive(self, pipe: int, frame: bytes, mono_s: MonoS) -> Iterator[News]:
        yield from self._listener.receive(pipe, frame, mono_s)
        self._waiting[pipe] -= len(frame) + FRAME_BYTES
        if not self._waiting[pipe]:
            del self._waiting[pipe]

    def add_news(self, news: Iterable[News]) -> None:
        """Queue news without a pipe."""
        self._lanes.add(NO_PIPE, None, iter(news))

    def add_said(self, guest: PeerSession, messages: Iterable[Any]) -> None:
        """Queue messages of a guest ahead of its other waiting messages."""
        if guest.pipe is not None:
            self._lanes.add(guest.pipe, guest.handle, self._said(guest, messages), ahead=True)

    def _said(self, guest: PeerSession, messages: Iterable[Any]) -> Iterator[News]:
        for message in messages:
            if guest.handle not in self._listener.guests:
                return
            yield PeerSaid(guest, message)

    def pipes_gone(self, pipes: Iterable[int], mono_s: MonoS) -> None:
        """Note that pipes were closed; the frames that arrived on them are processed first."""
        for pipe in pipes:
            guest = self._listener.guest_on(pipe)
            handle = guest.handle if guest is not None else None
            if self._lanes.has(pipe, handle):
                self._lanes.add(pipe, handle, self._pipe_gone(pipe, mono_s))
            else:
                self._listener.pipes_gone([pipe], mono_s)

    def _pipe_gone(self, pipe: int, mono_s: MonoS) -> Iterator[News]:
        yield from ()  # all frames of this pipe have been processed by now
        self._listener.pipes_gone([pipe], mono_s)

    def take(self) -> Iterator[News]:
        """Take the news of the next turn."""
        return self._lanes.take(TURN_MAX, GUEST_TURN_MAX, self._weight)


def _weigh(news: News) -> int:
    return weight_of(news.message) if isinstance(news, PeerSaid) else 1
