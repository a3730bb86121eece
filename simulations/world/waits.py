"""What coroutines of a simulated gateway wait for; whoever carries one over its waits sends None.

Each tells, as it is waited for, in how many seconds to look again at the latest; None: it takes
something that happens. One that is woken too early waits on, so that all may be woken at all times.
"""

from collections.abc import Generator

Wait = Generator[float | None, None, None]


class Stored:
    """A commit: `done` is what the store calls when it is made."""

    def __init__(self) -> None:
        self._is_done = False

    def done(self) -> None:
        """It is on the disk."""
        self._is_done = True

    def __await__(self) -> Wait:
        while not self._is_done:
            yield None


class Progress:
    """Something that happens, or so many seconds: who waits for it looks again by himself."""

    def __init__(self, at_most_s: float) -> None:
        self._at_most_s = at_most_s

    def __await__(self) -> Wait:
        yield self._at_most_s
