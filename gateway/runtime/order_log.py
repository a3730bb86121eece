"""The log of orders: who ordered what, about whose job, and the result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS
from federation.words import clean, duration_text
from gateway.sessions.token_bucket import RateLimitedLines

REFUSED_PER_S: Final = 5.0  # lines about refused orders: any user can cause them
TEXT_CHARS_MAX: Final = 1_000
REPEATS_S: Final = 5.0  # orders about one job by one party within it share a line
REPEATED_MAX: Final = 10_000  # jobs of which orders are awaited; more have a line each


@dataclass(slots=True)
class _Repeats:
    """Orders about a job since one that has its line: their number, and the last of them."""

    until_s: MonoS
    number: int = 0
    last: str = ""


class OrderLog:
    """Writes a line for each order that was carried out, and at a limited rate for refused ones.

    Further orders of the same verb, by the same party about the same job, are counted in one line
    within REPEATS_S.

    Args:
        say: takes lines for the operator.
        mono_s: the monotonic clock.
    """

    def __init__(self, say: Callable[[str], None], mono_s: Callable[[], MonoS]) -> None:
        self._say = say
        self._mono_s = mono_s
        self._refused = RateLimitedLines(say, "refused orders", REFUSED_PER_S, mono_s())
        # By party, verb and job, the oldest first.
        self._repeats: dict[tuple[str, str, str], _Repeats] = {}

    def done(self, who: str, text: str, job: str = "", verb: str = "") -> None:
        """Log an order that was carried out.

        Args:
            who: as from `gateway.trust.rights.title_of`.
            text: what was ordered, in words.
            job: the id of the job that it is about; empty: none.
            verb: the kind of order.
        """
        line = f"order by {who}: {clean(text)[:TEXT_CHARS_MAX]}"
        known = self._repeats.get((who, verb, job))
        if known is not None and self._mono_s() < known.until_s:
            known.number, known.last = known.number + 1, line
            return
        self.tick()
        if job and len(self._repeats) < REPEATED_MAX:
            self._repeats[who, verb, job] = _Repeats(self._mono_s() + REPEATS_S)
        self._say(line)

    def refused(self, who: str, text: str) -> None:
        """Log an order that was refused, or count it where there are too many."""
        line = f"refused order by {who}: {clean(text)[:TEXT_CHARS_MAX]}"
        self._refused.say(line, self._mono_s())

    def tick(self) -> None:
        """Log repeated orders, and how many refused ones were left out, once it is time."""
        mono_s = self._mono_s()
        while self._repeats:
            key = next(iter(self._repeats))
            found = self._repeats[key]
            if mono_s < found.until_s:
                break
            del self._repeats[key]
            self._say_repeats(found)
        self._refused.tick(mono_s)

    def flush(self) -> None:
        """Log repeated orders at once: the gateway stops."""
        for found in self._repeats.values():
            self._say_repeats(found)
        self._repeats.clear()

    def _say_repeats(self, found: _Repeats) -> None:
        if found.number:
            more = f"{found.number:,} more within {duration_text(REPEATS_S)}"
            self._say(f"{found.last} (the last of {more})")
