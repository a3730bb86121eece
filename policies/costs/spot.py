"""A price that rises with utilisation, by a convex curve, damped and in steps. Pure.

    price(u) = floor + (ceiling - floor) · u^exponent        u: busy slots / slots, 0 to 1

With an exponent of two or more it stays near the floor while there is room, and climbs steeply when
the last slots go: the convex congestion price of networks (Mackie-Mason and Varian 1995; Kelly,
Maulloo and Tan 1998). Buyers go where it is cheap, which makes it dear. So utilisation is damped
first (an average that forgets with a time constant), and then moves between levels, with
hysteresis: a level is left only when the damped utilisation is more than three quarters of a
level's width away from its middle. A quoted price is valid for a while.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import exp
from typing import Final

from federation.clocks import UtcS
from policies.tariffs import round_half_up

# In widths of a level: half a width from the middle is its edge, and half as much again leaves it.
HYSTERESIS: Final = 0.75


@dataclass(frozen=True, slots=True)
class Spot:
    """A spot price of a slot-hour, and its dynamics.

    Attributes:
        floor_nanos, ceiling_nanos: the least and the highest price.
        exponent: of the curve, one or more; above one it is convex.
        damp_s: the time constant, seconds, with which it follows utilisation; 0: at once.
        steps: levels between floor and ceiling.
    """

    floor_nanos: int
    ceiling_nanos: int
    exponent: int = 2
    damp_s: float = 60.0
    steps: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.floor_nanos <= self.ceiling_nanos:
            raise ValueError("the floor of a spot price is above its ceiling")
        if self.exponent < 1 or self.steps < 1 or not self.damp_s >= 0:
            raise ValueError("exponent and steps must be at least one, damp_s at least zero")

    def price_nanos(self, level: int) -> int:
        """Return the price at a level, 0 to `steps`: the curve at that share of all slots."""
        share = Fraction(min(max(level, 0), self.steps), self.steps) ** self.exponent
        return self.floor_nanos + round_half_up(share * (self.ceiling_nanos - self.floor_nanos))

    def within(self, price_nanos: int) -> int:
        """Limit a price to the range from floor to ceiling."""
        return min(max(price_nanos, self.floor_nanos), self.ceiling_nanos)


@dataclass(frozen=True, slots=True)
class SpotState:
    """The state of a spot price: its level, the damped utilisation, and its time (UTC)."""

    level: int = 0
    damped: float = 0.0
    at_s: UtcS | None = None


def follow(spot: Spot, state: SpotState, utilisation: float, utc_s: UtcS) -> SpotState:
    """Return the state after a measurement of utilisation; the first is taken undamped.

    A clock that was set back counts as no time.
    """
    seen = min(max(utilisation, 0.0), 1.0)
    if state.at_s is None:
        return SpotState(round(seen * spot.steps), seen, utc_s)
    passed_s = max(0.0, utc_s - state.at_s)
    weight = 1.0 - exp(-passed_s / spot.damp_s) if spot.damp_s else 1.0
    damped = state.damped + (seen - state.damped) * weight
    wanted = damped * spot.steps
    level = round(wanted) if abs(wanted - state.level) > HYSTERESIS else state.level
    return SpotState(level, damped, utc_s)
