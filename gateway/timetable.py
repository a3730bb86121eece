"""The windows of our pools, as time passes: which holds, and what comes after. Tells the broker.

policies.windows says what follows from a calendar; this looks when something may have changed.
"""

from collections.abc import Mapping
from typing import Final

from gateway.events import RulesTurned
from policies.windows import AHEAD_S, Plan, Rules, rules_at

AGAIN_S: Final = 86_400.0  # so that what is known of time to come never gets short


class Timetable:
    """The plans of our pools.

    Args:
        plans: by pool; those without windows and claims are no trouble.
    """

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans: dict[str, Plan] = {}
        self._told: dict[str, Rules] = {}
        self._asked_s, self._due_s = 0.0, 0.0
        self.replace(plans)

    def replace(self, plans: Mapping[str, Plan]) -> None:
        """From now on these plans count; the broker is told with the next `renew`."""
        self._plans = {name: plan for name, plan in plans.items() if not plan.is_trivial}
        self._due_s = 0.0

    def renew(self, utc_s: float) -> RulesTurned | None:
        """What the broker must know, if anything holds that it was not told."""
        # A clock that was set back is where it was before the last change, or before two.
        if self._asked_s <= utc_s < self._due_s:
            return None
        found = {name: rules_at(plan, utc_s, AHEAD_S) for name, plan in self._plans.items()}
        gone = dict.fromkeys(self._told.keys() - found.keys())
        self._told, self._asked_s = found, utc_s
        ends_s = [each.now.until_s for each in found.values()]
        self._due_s = min([utc_s + AGAIN_S, *ends_s])
        return RulesTurned({**found, **gone}) if found or gone else None
