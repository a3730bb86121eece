"""Back-off for buyers that let contracts lapse under running tasks, which stay unpaid. Pure.

Work under a contract that lapses, or that its buyer abandons, can't be delivered any more and is
not charged. A buyer could have its tasks store their results elsewhere and abandon the contract
just before they end. One lapse may be bad luck, and all contracts of a disconnected buyer lapse at
once. A buyer with another lapse within an hour gets no new contract for a while, longer each time.
"""

from dataclasses import dataclass
from typing import Final

from federation.words import count
from gateway.config.contracts import DealRules

FORGIVEN_S: Final = 3600.0  # without another lapse


@dataclass(slots=True)
class _Lapsed:
    """Times are monotonic; `times` counts all lapses within one lease as one."""

    times: int = 0
    contracts: int = 0
    wasted_s: float = 0.0  # slot-seconds
    last_s: float = 0.0
    until_s: float = 0.0


class Lapses:
    """The recent lapses of each buyer."""

    def __init__(self, rules: DealRules) -> None:
        self._rules = rules
        self._of: dict[str, _Lapsed] = {}

    def note(self, buyer: str, wasted_s: float, now_s: float) -> None:
        """Note a lapse of a contract whose tasks had run for `wasted_s` slot-seconds."""
        if wasted_s <= 0:
            return
        found = self._of.get(buyer)
        if found is None or now_s - found.last_s > FORGIVEN_S:
            found = self._of[buyer] = _Lapsed()
        if not found.times or now_s - found.last_s >= self._rules.lease_s:
            found.times += 1
            if found.times > 1:
                found.until_s = now_s + self._rules.rest_after_s(found.times - 1)
        found.contracts += 1
        found.wasted_s += wasted_s
        found.last_s = now_s

    def refuses(self, buyer: str, now_s: float) -> bool:
        """Whether a buyer gets no new contract now."""
        found = self._of.get(buyer)
        return found is not None and now_s < found.until_s

    def told(self, now_s: float) -> list[str]:
        """Describe the recent lapses of each buyer, for the operator."""
        return [
            _words(buyer, each, now_s)
            for buyer, each in sorted(self._of.items())
            if now_s - each.last_s <= FORGIVEN_S
        ]


def _words(buyer: str, lapsed: _Lapsed, now_s: float) -> str:
    text = (
        f"{buyer} let {count(lapsed.contracts, 'contract')} lapse while tasks ran: "
        f"{lapsed.wasted_s:,.0f} slot-seconds are unpaid"
    )
    wait_s = lapsed.until_s - now_s
    return f"{text}; no new contracts for {wait_s:,.0f} s" if wait_s > 0 else text
