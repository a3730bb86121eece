"""The windows of our pools, as time passes: which holds, and what comes after. Tells the broker.

policies.windows says what follows from a calendar; this looks when something may have changed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.events import RulesTurned
from policies.reservations import Reservation, ReservationRules, State, overlay
from policies.windows import AHEAD_S, NO_WINDOWS, Plan, Rules, rules_at

AGAIN_S: Final = 86_400.0  # so that what is known of time to come never gets short


class Timetable:
    """The plans of our pools.

    Args:
        plans: by pool; those without windows and claims are no trouble.
    """

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans: dict[str, Plan] = {}
        self._made: list[Reservation] = []
        self._owner = ReservationRules()
        self._told: dict[str, Rules] = {}
        self._asked_s, self._due_s = 0.0, 0.0
        self.replace(plans)

    def replace(self, plans: Mapping[str, Plan]) -> None:
        """From now on these plans count; the broker is told with the next `renew`."""
        self._plans = {name: plan for name, plan in plans.items() if not plan.is_trivial}
        self._due_s = 0.0

    def reserve(self, made: Iterable[Reservation], owner: ReservationRules) -> None:
        """From now on these are the reservations; the broker is told with the next `renew`."""
        self._made, self._owner = list(made), owner
        self._due_s = 0.0

    def renew(self, utc_s: float) -> RulesTurned | None:
        """What the broker must know, if anything holds that it was not told."""
        # A clock that was set back is where it was before the last change, or before two.
        if self._asked_s <= utc_s < self._due_s:
            return None
        found = {name: rules_at(plan, utc_s, AHEAD_S) for name, plan in self._plans.items()}
        made = [each for each in self._made if each.takes_slots(utc_s)]
        for name in sorted({each.pool for each in made}):
            rules = found.get(name) or rules_at(NO_WINDOWS, utc_s, AHEAD_S)
            of_pool = (each for each in made if each.pool == name)
            found[name] = overlay(rules, of_pool, self._owner, utc_s)
        gone = dict.fromkeys(self._told.keys() - found.keys())
        self._told, self._asked_s = found, utc_s
        ends_s = [each.now.until_s for each in found.values()]
        leases_s = [each.lapses_s for each in made if each.state is not State.BOOKED]
        self._due_s = min([utc_s + AGAIN_S, *ends_s, *leases_s])
        return RulesTurned({**found, **gone}) if found or gone else None
