"""The transport inside one process: no sockets, the same rules, the same contract suite.

It drops frames like nng: a pipe holds two frames on the way down, and a third is lost silently.
Descriptors are real, so that the same shells can wait on it.
"""

import itertools
import os
from collections import deque
from typing import Final

from federation.transport import GONE, Origin

_QUEUE_DOWN: Final = 2


class Signal:
    """A descriptor that is readable while something waits."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._raised = False

    def raise_(self) -> None:
        """Make the descriptor readable."""
        if not self._raised:
            self._raised = True
            os.eventfd_write(self.descriptor, 1)

    def lower(self) -> None:
        """Make the descriptor unreadable again."""
        if self._raised:
            self._raised = False
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class MemoryPort:
    """The listening end; see federation.transport.Port."""

    def __init__(self, address: str = "memory://gateway") -> None:
        self.addresses = [address]
        self._links: dict[int, MemoryLink] = {}
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._came: deque[int] = deque()
        self._gone: deque[int] = deque()
        self._numbers = itertools.count(1)
        self._origins: dict[int, Origin] = {}
        self._signal = Signal()

    def dial(self, origin: Origin = Origin()) -> "MemoryLink":  # noqa: B008 - it is frozen
        """Open a new pipe to this port, as if from that origin."""
        link = MemoryLink(self, next(self._numbers))
        self._origins[link.number] = origin
        self._links[link.number] = link
        self._came.append(link.number)
        return link

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have arrived, each with its pipe."""
        frames = list(self._arrived)
        self._arrived.clear()
        self._signal.lower()
        return frames

    def send(self, pipe: int, frame: bytes) -> bool:
        """Send a frame on a pipe; the third that waits there is lost, as in nng."""
        link = self._links.get(pipe)
        if link is None:
            return False
        link.take(frame)
        return True

    def came(self) -> list[int]:
        """Return the pipes that were connected since the last call."""
        pipes = list(self._came)
        self._came.clear()
        return pipes

    def is_local(self, pipe: int) -> bool:
        """Whether the pipe was dialled as if from this host, the default."""
        return pipe in self._links and not self._origins[pipe].host

    def origin(self, pipe: int) -> Origin:
        """Return the origin with which the pipe was dialled."""
        return self._origins.get(pipe, GONE)

    def remotes(self) -> list[tuple[str, int]]:
        """Return an empty list: no pipe is a tcp pipe."""
        return []

    def is_near(self, pipe: int) -> bool:
        """Whether the pipe was dialled as if from this host."""
        return self.is_local(pipe)

    def gone(self) -> list[int]:
        """Return the pipes that were closed since the last call."""
        pipes = list(self._gone)
        self._gone.clear()
        return pipes

    def drop(self, pipe: int) -> None:
        """Close a pipe."""
        link = self._links.pop(pipe, None)
        self._origins.pop(pipe, None)
        if link is not None:
            link.lose()
            self._gone.append(pipe)

    def accept(self, pipe: int, frame: bytes) -> None:
        """Take a frame from a pipe's other end."""
        self._arrived.append((pipe, frame))
        self._signal.raise_()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._signal.descriptor

    def close(self) -> None:
        """Close every pipe."""
        for pipe in list(self._links):
            self.drop(pipe)
        self._signal.close()


class MemoryLink:
    """The dialling end; see federation.transport.Link."""

    def __init__(self, port: MemoryPort, number: int) -> None:
        self.number = number
        self.is_up = True
        self.is_lost = False
        self._port = port
        self._arrived: deque[bytes] = deque()
        self._signal = Signal()

    def take(self, frame: bytes) -> None:
        """Take a frame from the port."""
        if len(self._arrived) < _QUEUE_DOWN:
            self._arrived.append(frame)
            self._signal.raise_()

    def lose(self) -> None:
        """Mark the pipe as lost."""
        self.is_up, self.is_lost = False, True
        if self._signal.descriptor >= 0:
            self._signal.raise_()

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived."""
        frames = list(self._arrived)
        self._arrived.clear()
        self._signal.lower()
        return frames

    def send(self, frame: bytes) -> bool:
        """Send a frame."""
        if not self.is_up:
            return False
        self._port.accept(self.number, frame)
        return True

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._signal.descriptor

    def close(self) -> None:
        """Close the pipe."""
        if self.is_up:
            self._port.drop(self.number)
        self._signal.close()
