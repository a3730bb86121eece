"""Awaitables of a simulated gateway's coroutines; the driver resumes them by sending None.

Each yields the maximum seconds until the next look, or None when only an event helps. A coroutine
that is resumed too early waits on, so that all can be resumed at any time.
"""

from collections.abc import Generator

Wait = Generator[float | None, None, None]


class Stored:
    """A commit; the store calls `done` after it."""

    def __init__(self) -> None:
        self._is_done = False

    def done(self) -> None:
        """Note that it is on the disk."""
        self._is_done = True

    def __await__(self) -> Wait:
        while not self._is_done:
            yield None


class AnyProgress:
    """Any event, or a number of seconds: the waiting coroutine checks its own condition."""

    def __init__(self, at_most_s: float) -> None:
        self._at_most_s = at_most_s

    def __await__(self) -> Wait:
        yield self._at_most_s
