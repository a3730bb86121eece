"""Asynchronous store lookups for the pure core."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class StoreLookup(Protocol):
    """Looks something up in the store without blocking; earlier writes are visible to it.

    `find` may take its time. Then `then` is called in the site's own thread, with the result of
    `find`, or with an error text when the store can't be read.
    """

    def __call__(self, find: Callable[[], T], then: Callable[[T | str], None]) -> None:
        """Start the lookup, and return before there is an answer."""


def recall_now(find: Callable[[], T], then: Callable[[T | str], None]) -> None:
    """Look up at once: for environments in which a lookup takes no time."""
    then(find())
