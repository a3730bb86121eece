"""Buyers that have slots held and buy nothing, and how long each of them waits for it. Pure."""

from dataclasses import dataclass
from typing import Final

from federation.reasons import Reason
from gateway.dealing import NO_BACKOFF, Backoff, DealRules

# Who gives back what was held waits so many times as long as it stood idle: he can't keep for more
# than a fifth of the time what he does not buy. Whose work was done at home meanwhile, which is
# common where it is quick, may ask again in a moment.
IDLE_TIMES: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Idled:
    """Slots stood idle for somebody up to `counted_s`, which keeps him waiting until `until_s`."""

    counted_s: float = 0.0
    until_s: float = 0.0


NEVER: Final = _Idled()


class IdleHolds:
    """What each buyer has let stand idle."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self._given_back: dict[str, _Idled] = {}
        self._run_out: dict[str, Backoff] = {}

    def refusal(self, buyer: str, now_s: float) -> Reason | None:
        """Why a buyer gets no quote now; None if it does."""
        if now_s < self._run_out.get(buyer, NO_BACKOFF).until_s:
            return Reason.BUSY
        if now_s < self._given_back.get(buyer, NEVER).until_s:
            return Reason.NO_SLOTS  # which says: in a moment
        return None

    def ran_out(self, buyer: str, now_s: float) -> None:
        """Nobody came for what was held: its buyer waits, longer each time."""
        before = self._run_out.get(buyer, NO_BACKOFF)
        is_long_ago = now_s > before.until_s + self._rules.rest_max_s
        self._run_out[buyer] = (NO_BACKOFF if is_long_ago else before).once_more(now_s, self._rules)

    def gave_back(self, buyer: str, held_s: float, idle_s: float, now_s: float) -> None:
        """A buyer does not want any more what was held for it at `held_s`, and for `idle_s`.

        What stood idle for it at the same time counts once. What is more than `hold_s` was our own
        delay.
        """
        before = self._given_back.get(buyer, NEVER)
        over_s = held_s + min(idle_s, self._rules.hold_s)
        counted_s = max(0.0, over_s - max(held_s, before.counted_s))
        until_s = max(now_s, before.until_s) + IDLE_TIMES * counted_s
        self._given_back[buyer] = _Idled(max(over_s, before.counted_s), until_s)

    def bought(self, buyer: str) -> None:
        """A buyer has sent work: that it let holds run out is forgotten."""
        self._run_out.pop(buyer, None)
