"""Back-off for buyers that hold slots and do not buy. Pure."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS
from federation.reasons import Reason
from gateway.config.contracts import DealRules
from gateway.contracts.model.dealing import Backoff

# A buyer that releases an unused hold waits this many times the idle time, so unused holds take at
# most a fifth of the time. A buyer that did the work at home meanwhile, which is common for quick
# work, may ask again in a moment.
IDLE_TIMES: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Idled:
    """Idle time of a buyer, counted up to `counted_until_s`; its back-off lasts until `until_s`."""

    counted_until_s: MonoS = MonoS(0.0)
    until_s: MonoS = MonoS(0.0)


NEVER: Final = _Idled()
NO_BACKOFF: Final = Backoff(0, MonoS(0.0))


class IdleHolds:
    """The idle holds of each buyer."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self._given_back: dict[str, _Idled] = {}
        self._run_out: dict[str, Backoff[MonoS]] = {}

    def refusal(self, buyer: str, mono_s: MonoS) -> Reason | None:
        """Return the reason why a buyer gets no quote now; None if it gets one."""
        if mono_s < self._run_out.get(buyer, NO_BACKOFF).until_s:
            return Reason.BUSY
        if mono_s < self._given_back.get(buyer, NEVER).until_s:
            return Reason.NO_SLOTS  # the buyer may retry in a moment
        return None

    def ran_out(self, buyer: str, mono_s: MonoS) -> None:
        """Note that a hold expired unused: the buyer's back-off grows each time."""
        before = self._run_out.get(buyer, NO_BACKOFF)
        is_long_ago = mono_s > before.until_s + self._rules.rest_max_s
        self._run_out[buyer] = (NO_BACKOFF if is_long_ago else before).once_more(
            mono_s, self._rules
        )

    def gave_back(self, buyer: str, held_at_s: MonoS, idle_s: float, mono_s: MonoS) -> None:
        """Note that a buyer released a hold taken at `held_at_s` that stood idle for `idle_s`.

        Overlapping idle time counts once. Idle time above `hold_s` is our own delay and does not
        count.
        """
        before = self._given_back.get(buyer, NEVER)
        over_s = held_at_s + min(idle_s, self._rules.hold_s)
        counted_s = max(0.0, over_s - max(held_at_s, before.counted_until_s))
        until_s = max(mono_s, before.until_s) + IDLE_TIMES * counted_s
        self._given_back[buyer] = _Idled(max(over_s, before.counted_until_s), until_s)

    def bought(self, buyer: str) -> None:
        """Clear the back-off for expired holds of a buyer that has sent work."""
        self._run_out.pop(buyer, None)
