"""Back-off for buyers that let contracts lapse under running tasks, which stay unpaid. Pure.

Work under a contract that lapses, or that its buyer abandons, can't be delivered any more and is
not charged. A buyer could have its tasks store their results elsewhere and abandon the contract
just before they end. One lapse may be bad luck, and all contracts of a disconnected buyer lapse at
once. A buyer with another lapse within an hour gets no new contract for a while, longer each time.
"""

from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS
from federation.words import count, duration_text
from gateway.config.contracts import DealRules

FORGIVEN_S: Final = 3600.0  # without another lapse


@dataclass(slots=True)
class _Lapsed:
    """Times are monotonic; `times` counts all lapses within one lease as one."""

    times: int = 0
    contracts: int = 0
    wasted_s: float = 0.0  # slot-seconds
    last_at_s: MonoS = MonoS(0.0)
    until_s: MonoS = MonoS(0.0)


class Lapses:
    """The recent lapses of each buyer."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self._of: dict[str, _Lapsed] = {}

    def note(self, buyer: str, wasted_s: float, mono_s: MonoS) -> None:
        """Note a lapse of a contract whose tasks had run for `wasted_s` slot-seconds."""
        if wasted_s <= 0:
            return
        found = self._of.get(buyer)
        if found is None or mono_s - found.last_at_s > FORGIVEN_S:
            found = self._of[buyer] = _Lapsed()
        if not found.times or mono_s - found.last_at_s >= self._rules.lease_s:
            found.times += 1
            if found.times > 1:
                found.until_s = mono_s + self._rules.rest_after_s(found.times - 1)
        found.contracts += 1
        found.wasted_s += wasted_s
        found.last_at_s = mono_s

    def refuses(self, buyer: str, mono_s: MonoS) -> bool:
        """Whether a buyer gets no new contract now."""
        found = self._of.get(buyer)
        return found is not None and mono_s < found.until_s

    def told(self, mono_s: MonoS) -> list[str]:
        """Describe the recent lapses of each buyer, for the operator."""
        return [
            _words(buyer, each, mono_s)
            for buyer, each in sorted(self._of.items())
            if mono_s - each.last_at_s <= FORGIVEN_S
        ]


def _words(buyer: str, lapsed: _Lapsed, mono_s: MonoS) -> str:
    text = (
        f"{buyer} let {count(lapsed.contracts, 'contract')} lapse while tasks ran: "
        f"{lapsed.wasted_s:,.0f} slot-seconds are unpaid"
    )
    wait_s = lapsed.until_s - mono_s
    return f"{text}; no new contracts for {duration_text(wait_s)}" if wait_s > 0 else text
