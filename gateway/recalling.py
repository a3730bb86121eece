"""How what decides asks the store for what takes a while, and goes on meanwhile."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Recall(Protocol):
    """Asks the store aside: what was written before counts, too.

    `find` may take its time; then, in the site's own thread, `then` is called with what it found,
    or with a sentence when the store can't be read.
    """

    def __call__(self, find: Callable[[], T], then: Callable[[T | str], None]) -> None:
        """Ask, and return before there is an answer."""


def recall_now(find: Callable[[], T], then: Callable[[T | str], None]) -> None:
    """Ask the store on the spot: for a world in which that takes no time."""
    then(find())
