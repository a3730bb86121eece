"""What has arrived at a port and was not heard yet: a part of it at a time, guest by guest. Pure.

A lobby makes news of frames when it is asked for them. Here frames wait until then, so that no call
takes long, whatever one guest sends at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from federation.session import DIALLER_WINDOW, RECEIVE_BYTES_MAX
from gateway.lanes import Lanes
from gateway.lobby import Guest, Lobby, News, Said

# What one turn takes of what guests have said, and of one guest before the next has its turn.
# A message counts once, and once more for so many tasks in it.
TURN_MAX: Final = 64
GUEST_TURN_MAX: Final = 16
TASKS_COUNTED: Final = 64
NO_PIPE: Final = -1  # the lane of what came by no pipe
# Of one pipe so many bytes of frames may wait: what a dialler may have under way, and as much again
# for acknowledgements and heartbeats. A frame takes so much, however short it is.
WAITING_BYTES_MAX: Final = 2 * DIALLER_WINDOW * RECEIVE_BYTES_MAX
FRAME_BYTES: Final = 512
OVERRUN: Final = "more frames than may be under way"


def weight_of(message: Any) -> int:
    """What a message counts of a turn."""
    payloads = getattr(message, "values", None) or getattr(message, "arguments", None)
    return 1 + len(payloads or ()) // TASKS_COUNTED


class Inbox:
    """The news of a lobby that waits, a turn of it at a time.

    Args:
        lobby: takes frames apart.
        weight: what a piece of news counts of a turn, 1 or more; by `weight_of`, if None.
    """

    def __init__(self, lobby: Lobby, weight: Callable[[News], int] | None = None) -> None:
        self._lobby = lobby
        self._weight = weight or _weigh
        self._lanes: Lanes[News] = Lanes()
        self._waiting: dict[int, int] = {}  # bytes of frames, by pipe

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._lanes)

    def add_frames(self, frames: Iterable[tuple[int, bytes]], now_s: float) -> None:
        """Let frames wait that came by pipes; who sent them is heard of from now on.

        Whoever sends on without waiting for acknowledgements is sent away at once: a session finds
        that out only when its turn comes, and until then the frames would fill our memory.
        """
        for pipe, frame in frames:
            if self._lobby.is_leaving(pipe):
                continue
            waiting = self._waiting.get(pipe, 0) + len(frame) + FRAME_BYTES
            if waiting > WAITING_BYTES_MAX:
                self.add_news(list(self._lobby.send_away(pipe, OVERRUN, now_s)))
                continue
            self._waiting[pipe] = waiting
            guest = self._lobby.note_heard(pipe, now_s)
            handle = guest.handle if guest is not None else None
            self._lanes.add(pipe, handle, self._receive(pipe, frame, now_s))

    def _receive(self, pipe: int, frame: bytes, now_s: float) -> Iterator[News]:
        yield from self._lobby.receive(pipe, frame, now_s)
        self._waiting[pipe] -= len(frame) + FRAME_BYTES
        if not self._waiting[pipe]:
            del self._waiting[pipe]

    def add_news(self, news: Iterable[News]) -> None:
        """Let news wait that came by no pipe."""
        self._lanes.add(NO_PIPE, None, iter(news))

    def add_said(self, guest: Guest, messages: Iterable[Any]) -> None:
        """Let messages of a guest be heard before all that waits of it."""
        if guest.pipe is not None:
            self._lanes.add(guest.pipe, guest.handle, self._said(guest, messages), ahead=True)

    def _said(self, guest: Guest, messages: Iterable[Any]) -> Iterator[News]:
        for message in messages:
            if guest.handle not in self._lobby.guests:
                return
            yield Said(guest, message)

    def pipes_gone(self, pipes: Iterable[int], now_s: float) -> None:
        """These pipes were closed; what came by them before is heard first."""
        for pipe in pipes:
            guest = self._lobby.guest_on(pipe)
            handle = guest.handle if guest is not None else None
            if self._lanes.has(pipe, handle):
                self._lanes.add(pipe, handle, self._pipe_gone(pipe, now_s))
            else:
                self._lobby.pipes_gone([pipe], now_s)

    def _pipe_gone(self, pipe: int, now_s: float) -> Iterator[News]:
        yield from ()  # of all that has come by it nothing waits any more
        self._lobby.pipes_gone([pipe], now_s)

    def take(self) -> Iterator[News]:
        """The next turn."""
        return self._lanes.take(TURN_MAX, GUEST_TURN_MAX, self._weight)


def _weigh(news: News) -> int:
    return weight_of(news.message) if isinstance(news, Said) else 1
