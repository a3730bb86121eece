"""The windows of our pools, as time passes: which holds, and what comes after. Tells the broker.

policies.windows says what follows from a calendar; this looks when something may have changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.events import RulesTurned
from policies.windows import AHEAD_S, Plan, Rules, rules_at

AGAIN_S: Final = 86_400.0  # so that what is known of time to come never gets short


@dataclass(frozen=True, slots=True)
class _Told:
    """When the broker was told of a pool, and until when that is enough."""

    at_s: float
    until_s: float


class Timetable:
    """The plans of our pools.

    Args:
        plans: by pool; those without windows and claims are no trouble.
    """

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans: dict[str, Plan] = {}
        self._told: dict[str, _Told] = {}
        self._gone: set[str] = set()
        self.replace(plans)

    def replace(self, plans: Mapping[str, Plan]) -> None:
        """From now on these plans count; the broker is told with the next `renew`."""
        before = self._plans
        self._plans = {name: plan for name, plan in plans.items() if not plan.is_trivial}
        for name in [each for each in self._told if before[each] != self._plans.get(each)]:
            del self._told[name]
            self._gone.add(name)

    def renew(self, utc_s: float) -> RulesTurned | None:
        """What the broker must know, if anything holds that it was not told.

        Of no other pool: who has been told to make room in one, and by when, is no matter of what
        begins in another.
        """
        found: dict[str, Rules | None] = {}
        for name, plan in self._plans.items():
            told = self._told.get(name)
            # A clock that was set back is where it was before the last change, or before two.
            if told is not None and told.at_s <= utc_s < told.until_s:
                continue
            rules = found[name] = rules_at(plan, utc_s, AHEAD_S)
            until_s = min(utc_s + AGAIN_S, rules.now.until_s)
            self._told[name] = _Told(utc_s, until_s)
        found |= dict.fromkeys(self._gone - found.keys())
        self._gone.clear()
        return RulesTurned(found) if found else None
