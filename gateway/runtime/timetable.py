"""The windows of this site's pools over time: which is open, and which follow. Tells the broker.

policies.access.windows works out a calendar's rules; this module asks it when they may have
changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.events import RulesTurned
from policies.access.windows import AHEAD_S, NO_WINDOWS, PoolRules, WindowPlan, rules_at
from policies.reservations.reservations import Reservation, ReservationRules, overlay

AGAIN_S: Final = 86_400.0  # so that the known future never gets short


@dataclass(frozen=True, slots=True)
class _Told:
    """When the broker was told of a pool, and until when that is enough."""

    at_s: UtcS
    until_s: UtcS


class WindowTimetable:
    """The plans of this site's pools, and their reservations.

    Args:
        plans: by pool; those without windows and claims cost nothing.
    """

    def __init__(self, plans: Mapping[str, WindowPlan]) -> None:
        self._plans: dict[str, WindowPlan] = {}
        self._made: dict[str, list[Reservation]] = {}
        self._owner = ReservationRules()
        self._told: dict[str, _Told] = {}
        self._gone: set[str] = set()
        self.replace(plans)

    def replace(self, plans: Mapping[str, WindowPlan]) -> None:
        """Replace the plans; the next `renew` tells the broker."""
        before = self._plans
        self._plans = {name: plan for name, plan in plans.items() if not plan.is_trivial}
        self._forget(name for name in self._told if before.get(name) != self._plans.get(name))

    def reserve(self, made: Iterable[Reservation], owner: ReservationRules) -> None:
        """Replace the reservations; the next `renew` tells the broker."""
        before, rules = self._made, self._owner
        self._made, self._owner = {}, owner
        for each in made:
            self._made.setdefault(each.pool, []).append(each)
        names = before.keys() | self._made.keys()
        self._forget(
            name for name in names if before.get(name) != self._made.get(name) or rules != owner
        )

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            if self._told.pop(name, None) is not None:
                self._gone.add(name)

    def renew(self, utc_s: UtcS) -> RulesTurned | None:
        """Return the rules that the broker does not know yet, if any.

        Only of pools whose rules have changed: a preemption announced in one pool, and its time, do
        not depend on events in another.
        """
        found: dict[str, PoolRules | None] = {}
        for name in sorted(self._plans.keys() | self._made.keys()):
            told = self._told.get(name)
            # A clock that was set back is where it was before the last change, or before two.
            if told is not None and told.at_s <= utc_s < told.until_s:
                continue
            plan, made = self._plans.get(name, NO_WINDOWS), self._made.get(name, ())
            made = [each for each in made if each.takes_slots(utc_s)]
            if plan is NO_WINDOWS and not made:
                self._forget([name])
                continue
            rules = rules_at(plan, utc_s, AHEAD_S)
            rules = found[name] = overlay(rules, made, self._owner, utc_s)
            lapses_s = [each.lapses_at_s for each in made]
            until_s = min([utc_s + AGAIN_S, rules.now.until_s, *lapses_s])
            self._told[name] = _Told(utc_s, until_s)
        found |= dict.fromkeys(self._gone - found.keys())
        self._gone.clear()
        return RulesTurned(found) if found else None
