"""Calls that are run again, as their results were lost on the way to the client. Pure."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from federation.engine.books.streams import Ended, Outcome, Placed, Stream
from federation.messages.messages import OpenJob

REPEATS_MAX: Final = 3  # of one call


class RepeatedCalls(Stream):
    """A job that makes lost results again: outcomes of its calls are those of another job's.

    Args:
        opening, resolved: see Stream.
        origin: the job whose results were lost.
        tasks: the numbers of their calls there.
        on_placed: is told what has returned to the origin.
    """

    def __init__(
        self,
        opening: OpenJob,
        resolved: "deque[tuple[Any, Outcome]]",
        origin: Stream,
        tasks: Sequence[int],
        on_placed: Callable[[Stream, Placed], None],
    ) -> None:
        super().__init__(opening, resolved)
        self._origin = origin
        self._tasks = tasks
        self._on_placed = on_placed
        self.repeats = origin.repeats + 1

    def place(self, first: int, outcomes: list[Any], *, failed: bool) -> Placed:
        """Place outcomes here and, as its own, in the job whose results were lost."""
        placed = super().place(first, outcomes, failed=failed)
        for task, outcome in zip(self._tasks[first:], outcomes, strict=False):
            at_origin = self._origin.place(task, [outcome], failed=type(outcome) is Ended)
            self._on_placed(self._origin, at_origin)
        return placed
