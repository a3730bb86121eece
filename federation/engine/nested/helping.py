"""A wait within a task, which runs what it waits for if that does not begin elsewhere."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from federation.engine.books.streams import Stream
from federation.engine.nested.depth import call_depth
from federation.errors import GridError

HELP_S: Final = 0.02  # a call that has no outcome after this time is asked back
# The same in a call that has come back itself: no slot was free a moment ago.
HELP_AGAIN_S: Final = 0.002
HELP_MAX_S: Final = 1.0  # the longest time until it is asked for again


class Awaited(Protocol):
    """A call that is waited for; its job and number change when the call is moved."""

    @property
    def stream(self) -> Stream:
        """Its job."""

    @property
    def task(self) -> int:
        """Its number there."""


@dataclass(frozen=True, slots=True)
class MapCall:
    """The next call of a map."""

    stream: Stream
    task: int


class AskingBack(Protocol):
    """The calls of an engine (federation.engine.nested.own_calls), as far as a wait needs them."""

    def ask_back(self, stream: Stream, task: int) -> bool:
        """Ask the gateway for a call."""

    def is_back(self, stream: Stream, task: int) -> bool:
        """Whether a call is to be run here."""

    def is_asked(self, stream: Stream, task: int) -> bool:
        """Whether the gateway has not answered for a call yet."""

    def run(self, stream: Stream, task: int) -> None:
        """Run it."""


class HelpingEngine(Protocol):
    """The engine of a wait."""

    closed: bool
    error: GridError | None

    @property
    def own_calls(self) -> AskingBack:
        """Its calls."""

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Take messages until `done()`; False when the time runs out first."""


def first_wait_s() -> float:
    """Return the time after which this thread asks a call back that has no outcome."""
    return HELP_AGAIN_S if call_depth() else HELP_S


class HelpingWait:
    """One wait for one call.

    Args:
        engine: of the task's client.
        call: the call.
        done: whether it has an outcome.
    """

    def __init__(self, engine: HelpingEngine, call: Awaited, done: Callable[[], bool]) -> None:
        self._engine = engine
        self._call = call
        self._done = done
        self._wait_s = HELP_S
        self._ask_at_s = time.monotonic() + first_wait_s()

    def drive(self, timeout_s: float | None) -> bool:
        """Wait up to `timeout_s` (None: until it is done); return whether it is done.

        A run of the call here may take longer. Raises KeyboardInterrupt alone.
        """
        engine = self._engine
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._done() and not engine.closed and engine.error is None:
            now_s = time.monotonic()
            if self._is_back():
                engine.own_calls.run(self._call.stream, self._call.task)
            elif now_s >= until_s:
                return False
            elif now_s >= self._ask_at_s:
                engine.own_calls.ask_back(self._call.stream, self._call.task)
                self._ask_at_s = now_s + self._wait_s
                self._wait_s = min(2 * self._wait_s, HELP_MAX_S)
            else:
                engine.drive(self._is_news, min(until_s, self._ask_at_s) - now_s)
        return self._done()

    def _is_back(self) -> bool:
        return self._engine.own_calls.is_back(self._call.stream, self._call.task)

    def _is_news(self) -> bool:
        return self._done() or self._is_back()
