"""The protocol of a random generator that pure code gets from its caller, as `random.Random`."""

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """The methods of `random.Random` that are used; equal seeds give equal runs."""

    def random(self) -> float:
        """A number of [0, 1)."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number from a to b."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to below `stop`."""

    def choice(self, among: Sequence[T], /) -> T:
        """One of these."""

    def sample(self, among: Sequence[T], count: int, /) -> list[T]:
        """So many of these, in any order."""

    def shuffle(self, these: MutableSequence[Any], /) -> None:
        """Put these in any order."""
