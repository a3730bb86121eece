"""The threads that drive a client's connection: one of them at a time leads.

Waiting on the socket happens outside the lock, by one thread at a time, the *leader*:

- A thread that waits for a result of a map or a future leads by itself. If a second thread did the
  work, each of its calls into nng would wait up to 5 ms for the interpreter while the first is
  busy, and that decides throughput.
- A daemon thread leads when no other thread does, so that futures resolve, heartbeats are sent and
  a lost gateway is dialled again while the user's code is busy elsewhere.

Futures are resolved outside the lock: their callbacks may call any method of the engine.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from federation.engine.books.streams import Outcome
from federation.engine.futures import resolve_all, show
from federation.errors import GridError
from federation.sessions.nng import ForkedProcessError

PARK_S: Final = 0.05  # the daemon leads after this long without another leader
POLL_MAX_S: Final = 0.5

_log = logging.getLogger("gridfed")
_here = os.getpid()  # read once in each process, not at every submit

os.register_at_fork(after_in_child=lambda: globals().update(_here=os.getpid()))


class PolledLine(Protocol):
    """What leading uses of a connection (federation.engine.dialling.connection)."""

    def wake(self) -> None:
        """End the current `wait`, in any thread."""

    def wait(self, at_most_s: float, lock: threading.RLock) -> None:
        """Return when something has arrived or is due. `lock` is released during the wait."""


class LedEngine(Protocol):
    """What leading uses of an engine (federation.engine.engine)."""

    closed: bool
    error: GridError | None

    def drain(self) -> bool:
        """Take the frames that have arrived, and send; True if any came. The lock is held."""

    def transmit(self) -> None:
        """Send the messages that may go now. The lock is held."""

    def feed_unattended(self) -> None:
        """Send inputs of maps that no thread reads. Outside the lock."""

    def end_all(self) -> None:
        """End every call that is left. The lock is held."""


class Leading:
    """The lock of an engine, its leader, and the threads that wait for news.

    Attributes:
        lock: guards the engine's books; released during each wait, and while futures resolve.
        resolved: outcomes for futures, which the next `settle` resolves.
        printed: output of tasks with the stream of each, which the next `settle` shows.
    """

    def __init__(self, engine: LedEngine, line: PolledLine) -> None:
        self._engine = engine
        self._line = line
        self._pid = _here
        self.lock = threading.RLock()
        self._turn = threading.Condition(self.lock)
        self._leader: int | None = None
        self._drivers = 0
        self._driven_s = 0.0
        self._over = threading.Event()  # the engine is closed; for the daemon while it pauses
        self.resolved: deque[tuple[Any, Outcome]] = deque()
        self.printed: list[tuple[str, int]] = []

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that owns the connection."""
        return self._pid != _here

    @property
    def error(self) -> GridError | None:
        """The reason for which the engine has ended, if it has."""
        return self._engine.error

    def check_process(self) -> None:
        """Raise ForkedProcessError in a forked child."""
        if self._pid != _here:
            raise ForkedProcessError(
                "this client was created in the parent process, before a fork. Create a "
                "new Client in the child, and start the child with "
                'multiprocessing.get_context("spawn").'
            )

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Lead, or wait for the leader, until `done()`; False when the time runs out first."""
        self.check_process()
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turn:
            self._drivers += 1
            try:
                while not done():
                    if self._engine.error is not None or self._engine.closed:
                        return False
                    left_s = POLL_MAX_S if until_s is None else until_s - time.monotonic()
                    if left_s <= 0:
                        return False
                    self._lead_or_wait(min(left_s, POLL_MAX_S))
                return True
            finally:
                self._drivers -= 1
                self._driven_s = time.monotonic()
                self._turn.notify_all()

    def _lead_or_wait(self, at_most_s: float) -> None:
        if self._leader is not None:
            self._line.wake()  # the daemon yields; another driver just checks again
            self._turn.wait(at_most_s)
            return
        self._lead(at_most_s)

    def _lead(self, at_most_s: float) -> None:
        """Wait for frames to arrive and take them. The lock is held, except during the wait."""
        self._leader = threading.get_ident()
        try:
            if not self._engine.drain():
                self._line.wait(at_most_s, self.lock)
                self._engine.drain()
        finally:
            self._leader = None
            self._turn.notify_all()
        self.settle()

    def settle(self) -> None:
        """Resolve futures and show prints, outside the lock, which is held."""
        if not self.resolved and not self.printed:
            return
        printed, self.printed = self.printed, []
        self.lock.release()
        try:
            for text, stream in printed:
                show(text, stream)
            resolve_all(self.resolved)
        finally:
            self.lock.acquire()
            # Other threads that checked in the meantime have not seen these futures done. They may
            # now wait for the socket, or for the thread that waits for it.
            self._turn.notify_all()
            if self._leader is not None:
                self._line.wake()

    def serve(self) -> None:
        """Run the daemon thread: lead when no other thread does."""
        while True:
            with self._turn:
                if self._engine.closed:
                    self._engine.end_all()
                    self.settle()
                    return
                parked = self._drivers > 0 or time.monotonic() - self._driven_s < PARK_S
                if not parked and self._leader is None:
                    try:
                        self._lead(POLL_MAX_S)
                    except BaseException:  # noqa: BLE001 - a callback's exit must not end it
                        if not self._engine.closed:
                            _log.warning("a callback of a result failed", exc_info=True)
                    pause_s = 0.0
                else:
                    pause_s = PARK_S
            self._engine.feed_unattended()
            self._over.wait(pause_s)

    def transmit(self) -> None:
        """Send the messages that may go now. The lock is held."""
        self._engine.transmit()

    def wake(self) -> None:
        """Let the leader look at the books, in any thread; safe in a finaliser."""
        self._line.wake()

    def notify(self) -> None:
        """Let all threads look again whether they still wait. The lock is held."""
        self._turn.notify_all()

    def end(self) -> None:
        """End the pause of the daemon: the engine is closed."""
        self._line.wake()
        self._over.set()
