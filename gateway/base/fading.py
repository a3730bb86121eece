"""Amounts by key that shrink at a steady rate: leaky buckets. Pure."""

from typing import Generic

from federation.clocks import Instant


class FadingAmounts(Generic[Instant]):
    """An amount for each key, from which `per_s` is taken away with each second that passes.

    Times are of any clock; if it is set back, a key's amount is forgotten.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._of: dict[
            str, tuple[float, Instant]
        ] = {}  # by key: an amount, and when it was so much

    def at(self, key: str, now: Instant) -> float:
        """Return what is left of a key's amount."""
        amount, since = self._of.get(key, (0.0, now))
        return max(0.0, amount - (now - since) * self._per_s) if now >= since else 0.0

    def add(self, key: str, amount: float, now: Instant) -> None:
        """Add to a key's amount."""
        self._of[key] = self.at(key, now) + amount, now
