"""Whose turn it is to read output: users take turns, however many readers each of them has."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class ReadingTurns:
    """Limits the reads at a time, of all users and of each; those that wait are served in turn.

    A user's own reads go in the order in which they came. Each user that waits is served once
    before one of them is served again.

    Args:
        total: reads at a time.
        of_one: reads at a time of one user.
    """

    def __init__(self, total: int, of_one: int) -> None:
        self._free = total
        self._of_one = of_one
        self._reading: dict[str, int] = {}
        self._waiting: dict[str, deque[trio.Event]] = {}  # the first user is served next

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn of a user, and keep it until the block ends."""
        await self._wait(user)
        try:
            yield
        finally:
            self._end(user)

    async def _wait(self, user: str) -> None:
        event = trio.Event()
        self._waiting.setdefault(user, deque()).append(event)
        self._serve()
        try:
            await event.wait()
        except trio.Cancelled:
            if event.is_set():
                self._end(user)  # its turn came, and it is not there any more
            else:
                self._leave(user, event)
            raise

    def _leave(self, user: str, event: trio.Event) -> None:
        self._waiting[user].remove(event)
        if not self._waiting[user]:
            del self._waiting[user]

    def _end(self, user: str) -> None:
        self._free += 1
        self._reading[user] -= 1
        if not self._reading[user]:
            del self._reading[user]
        self._serve()

    def _serve(self) -> None:
        """Give the free turns to the users that wait, one each."""
        for user in list(self._waiting):
            if self._free <= 0:
                return
            if self._reading.get(user, 0) >= self._of_one:
                continue
            waiting = self._waiting.pop(user)
            waiting.popleft().set()
            if waiting:
                self._waiting[user] = waiting  # now the last
            self._free -= 1
            self._reading[user] = self._reading.get(user, 0) + 1
