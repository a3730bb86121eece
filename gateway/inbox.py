"""What has arrived at a port and was not heard yet: a part of it at a time, guest by guest. Pure.

A lobby makes news of frames when it is asked for them. Here frames wait until then, so that no call
takes long, whatever one guest sends at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gateway.lanes import Lanes
from gateway.lobby import Guest, Lobby, News, Said

# What one turn takes of what guests have said, and of one guest before the next has its turn.
# A message counts once, and once more for so many tasks in it.
TURN_MAX: Final = 64
GUEST_TURN_MAX: Final = 16
TASKS_COUNTED: Final = 64
NO_PIPE: Final = -1  # the lane of what came by no pipe


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

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._lanes)

    def add_frames(self, frames: Iterable[tuple[int, bytes]], now_s: float) -> None:
        """Let frames wait that came by pipes; who sent them is heard of from now on."""
        for pipe, frame in frames:
            guest = self._lobby.note_heard(pipe, now_s)
            news = self._lobby.receive(pipe, frame, now_s)
            self._lanes.add(pipe, guest.handle if guest is not None else None, news)

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
