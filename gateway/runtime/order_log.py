"""The log of orders: who ordered what, about whose job, and the result."""

from collections.abc import Callable
from typing import Final

from federation.clocks import MonoS
from federation.words import clean
from gateway.sessions.token_bucket import RateLimitedLines

REFUSED_PER_S: Final = 5.0  # lines about refused orders: anybody can make them
TEXT_CHARS_MAX: Final = 1_000


class OrderLog:
    """Writes a line for each order that was carried out, and at a limited rate for refused ones.

    Args:
        say: takes lines for the operator.
        mono_s: the monotonic clock.
    """

    def __init__(self, say: Callable[[str], None], mono_s: Callable[[], MonoS]) -> None:
        self._say = say
        self._mono_s = mono_s
        self._refused = RateLimitedLines(say, "refused orders", REFUSED_PER_S, mono_s())

    def done(self, who: str, text: str) -> None:
        """Log an order that was carried out; `who` as from `gateway.trust.rights.title_of`."""
        self._say(f"order by {who}: {clean(text)[:TEXT_CHARS_MAX]}")

    def refused(self, who: str, text: str) -> None:
        """Log an order that was refused, or count it where there are too many."""
        line = f"refused order by {who}: {clean(text)[:TEXT_CHARS_MAX]}"
        self._refused.say(line, self._mono_s())

    def tick(self) -> None:
        """Log how many refused orders were left out, once the rate allows it."""
        self._refused.tick(self._mono_s())
