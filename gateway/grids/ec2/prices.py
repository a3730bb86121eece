"""Prices of instances and slot-hours: EC2's spot prices and price list. Pure.

    an offer    = type x place, its price of an instance-hour, its slots
    a slot-hour = the price of an instance-hour / slots, rounded up

The ceiling of spend counts running instances at their present price, and requested ones at the
highest price among their offers: a fleet chooses among them, so that is the possible cost.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from federation.money import NANOS_PER_UNIT
from gateway.grids.ec2.settings import Place

# A more expensive instance-hour is a mistake in the list: 10,000 units.
PRICE_NANOS_MAX: Final = 10_000 * NANOS_PER_UNIT
OPERATING_SYSTEM: Final = "Linux/UNIX"


class PriceError(Exception):
    """An unusable price list; the text says why."""


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of instance-hours, in nano-units of one currency.

    Attributes:
        on_demand: by type.
        spot: by type and zone.
    """

    currency: str = "USD"
    on_demand: Mapping[str, int] = field(default_factory=dict)
    spot: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def price_nanos(self, kind: str, zone: str, *, is_spot: bool) -> int | None:
        """Return the price of an instance-hour; None: unknown.

        Without a zone it is the highest of all: EC2 chooses. A spot instance with an unknown price
        costs no more than one on demand.
        """
        if not is_spot:
            return self.on_demand.get(kind)
        if zone:
            return self.spot.get((kind, zone), self.on_demand.get(kind))
        zones = [nanos for (each, _), nanos in self.spot.items() if each == kind]
        return max(zones, default=self.on_demand.get(kind))


@dataclass(frozen=True, slots=True)
class InstanceOffer:
    """Possible rentals of instances of one type in one place.

    A fleet of spot and on-demand instances has the higher of the two prices.
    """

    kind: str
    place: Place
    slots: int
    price_nanos: int | None

    @property
    def slot_nanos(self) -> int | None:
        """A slot-hour's price, rounded up."""
        return None if self.price_nanos is None else -(-self.price_nanos // self.slots)


@dataclass(frozen=True, slots=True)
class CeilingRoom:
    """The part of an order that fits below the ceilings.

    Attributes:
        instances: the number that may be started.
        offers: the offers from which they may be chosen.
        why: the limiting ceiling; empty if none limits the order.
    """

    instances: int
    offers: tuple[InstanceOffer, ...]
    why: str = ""


def by_price(offers: Iterable[InstanceOffer]) -> list[InstanceOffer]:
    """Sort by the price of a slot-hour, the cheapest first; those without a price last."""
    return sorted(
        offers,
        key=lambda each: (
            each.slot_nanos is None,
            each.slot_nanos or 0,
            each.slots,
            each.kind,
            each.place.zone,
            each.place.subnet,
        ),
    )


def cheap_enough(offers: Iterable[InstanceOffer], most_nanos: int | None) -> list[InstanceOffer]:
    """Return the offers whose slot-hour costs no more than `most_nanos`; None: all."""
    if most_nanos is None:
        return list(offers)
    return [
        each for each in offers if each.slot_nanos is not None and each.slot_nanos <= most_nanos
    ]


def within(
    offers: Sequence[InstanceOffer], wanted: int, instances_left: int, nanos_left: int | None
) -> CeilingRoom:
    """Return how many of the wanted instances may be started, and of which offers.

    As many instances as possible; and then of as many offers as possible: the most expensive are
    left out first.

    Args:
        instances_left: below the ceiling of instances.
        nanos_left: below the ceiling of spend per hour; None: there is none.
    """
    if instances_left <= 0:
        return CeilingRoom(0, (), "max_instances is reached")
    count = min(wanted, instances_left)
    why = "max_instances would be exceeded" if count < wanted else ""
    if nanos_left is None:
        return CeilingRoom(count, tuple(by_price(offers)), why)
    # The ceiling applies to the instance's price, not the slot's.
    priced = [each for each in offers if each.price_nanos is not None]
    if not priced:
        return CeilingRoom(0, (), "no price is known, so max_spend_per_hour can't be checked")
    prices = sorted({each.price_nanos or 0 for each in priced})
    fit = [(_times(nanos_left, nanos, count), nanos) for nanos in prices]
    best, dearest = max(fit)  # the largest number, and the highest price among equals
    if best <= 0:
        return CeilingRoom(0, (), "any instance would exceed max_spend_per_hour")
    if best < count:
        why = "max_spend_per_hour would be exceeded"
    allowed = [each for each in priced if (each.price_nanos or 0) <= dearest]
    return CeilingRoom(best, tuple(by_price(allowed)), why)


def _times(nanos_left: int, price_nanos: int, most: int) -> int:
    return most if price_nanos <= 0 else max(0, min(most, nanos_left // price_nanos))


# --- parsing -------------------------------------------------------------------------------------


def read_spot(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the newest price of each type and zone, from DescribeSpotPriceHistory."""
    newest: dict[tuple[str, str], tuple[Any, int]] = {}
    for each in entries:
        nanos = _nanos(each.get("SpotPrice"))
        key, at = (str(each["InstanceType"]), str(each["AvailabilityZone"])), each["Timestamp"]
        if nanos is not None and (key not in newest or at > newest[key][0]):
            newest[key] = at, nanos
    return {key: nanos for key, (_, nanos) in newest.items()}


def read_products(products: Iterable[str], currency: str) -> dict[str, int]:
    """Return on-demand prices by type, from GetProducts' PriceList: JSON texts, one per product."""
    found: dict[str, int] = {}
    for text in products:
        try:
            body = json.loads(text)
            kind = str(body["product"]["attributes"]["instanceType"])
            terms = body["terms"].get("OnDemand", {}).values()
            amounts = [
                dimension["pricePerUnit"].get(currency)
                for term in terms
                for dimension in term["priceDimensions"].values()
                if dimension.get("unit") == "Hrs"
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PriceError(f"a product of the price list is invalid: {error!r:.100}") from None
        prices = [nanos for amount in amounts if (nanos := _nanos(amount))]
        if prices:
            found[kind] = max(prices)
    return found


def read_file(text: str) -> PriceBook:
    """Read the owner's price list, JSON: instance-hours by type, spot ones by type and zone.

        {"currency": "USD", "on_demand": {"c7i.large": "0.0893"},
         "spot": {"c7i.large": {"eu-central-1a": "0.0371"}}}

    Raises PriceError.
    """
    try:
        body = json.loads(text)
        on_demand = {str(kind): _needed(kind, each) for kind, each in body["on_demand"].items()}
        spot = {
            (str(kind), str(zone)): _needed(f"{kind} in {zone}", amount)
            for kind, zones in body.get("spot", {}).items()
            for zone, amount in zones.items()
        }
        return PriceBook(str(body["currency"]), on_demand, spot)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PriceError(f"the price file is invalid: {error!r:.200}") from None


def _needed(what: object, amount: object) -> int:
    nanos = _nanos(amount)
    if nanos is None:
        raise PriceError(f'the price of {what} is {amount!r:.40}: use a form such as "0.0893"')
    return nanos


def _nanos(amount: object) -> int | None:
    """Parse an amount into nano-units, rounded up; None: it is invalid or implausible."""
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return None
    if not value.is_finite() or value < 0 or value * NANOS_PER_UNIT > PRICE_NANOS_MAX:
        return None
    return int((value * NANOS_PER_UNIT).to_integral_value("ROUND_CEILING"))
