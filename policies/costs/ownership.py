"""The cost of a slot-hour on owned hardware. Pure.

A price of zero breaks brokering: such a pool looks free next to any other, so all work goes there
however long the queue is, no cost limit ever ends anything, and its owner can't be paid. The cost
is

    (hardware / years + W/1000 · PUE · 8,766 h · power price + space + staff)     a year
      / (slots · 8,766 h · utilisation)                                           slot-hours sold

The shares are those of the usual models of total cost of ownership, depreciated in a straight line
and without interest (J. Koomey et al., "A simple model for determining true total cost of ownership
for data centers", Uptime Institute 2007; L. Barroso, U. Hölzle, P. Ranganathan, "The Datacenter as
a Computer", 3rd ed. 2018, chapter 6). Used slots pay for idle ones: hence utilisation.
"""

from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Final

from policies.tariffs import round_half_up

HOURS_A_YEAR: Final = 8_766  # of 365.25 days
NANOS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Ownership:
    """The costs of hardware, in units of one currency, and its capacity.

    Attributes:
        hardware: the cost of all of it, installed.
        watts: its average draw, at this utilisation.
        pue: power usage effectiveness of the building: all its power over that of the hardware.
        power_price: of a kilowatt-hour.
        space, staff: a year.
        years: until it is replaced.
        slots: that it has.
        utilisation: the share of slot-hours that is sold, above 0 up to 1.
    """

    hardware: Decimal = Decimal(0)
    watts: Decimal = Decimal(0)
    pue: Decimal = Decimal(1)
    power_price: Decimal = Decimal(0)
    space: Decimal = Decimal(0)
    staff: Decimal = Decimal(0)
    years: Decimal = Decimal(4)
    slots: int = 1
    utilisation: Decimal = Decimal(1)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = Decimal(getattr(self, field.name))
            if not value.is_finite() or not 0 <= value <= 10**12:
                raise ValueError(f"{field.name} is {value}: must be from 0 to 1e12")
        if not self.years or not self.slots:
            raise ValueError("years and slots must be greater than zero")
        if not 0 < self.utilisation <= 1:
            raise ValueError(
                f"utilisation is {self.utilisation}: must be greater than 0 and at most 1"
            )
        if self.pue < 1:
            raise ValueError(
                f"pue is {self.pue}: must be at least 1, as a building draws no less than its "
                "machines"
            )


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a slot-hour, and each share of it, nano-units.

    The price is the sum of the shares before rounding, so it may differ from the sum of those here
    by two nano-units.
    """

    hardware_nanos: int
    power_nanos: int
    space_nanos: int
    staff_nanos: int
    price_nanos: int


def price_of(owned: Ownership) -> Costs:
    """Return the price of a slot-hour at which owned hardware pays for itself."""
    slot_hours = Fraction(owned.slots * HOURS_A_YEAR) * Fraction(owned.utilisation)
    kwh = Fraction(owned.watts) / 1000 * Fraction(owned.pue) * HOURS_A_YEAR
    shares = [
        Fraction(owned.hardware) / Fraction(owned.years),
        kwh * Fraction(owned.power_price),
        Fraction(owned.space),
        Fraction(owned.staff),
    ]
    each = [share * NANOS / slot_hours for share in shares]
    hardware, power, space, staff = map(round_half_up, each)
    return Costs(hardware, power, space, staff, round_half_up(sum(each, Fraction(0))))
