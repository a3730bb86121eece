"""What instances cost: EC2's spot prices and price list, what follows for a slot-hour. Pure.

    an offer    = type x place, its price of an instance-hour, its slots
    a slot-hour = the price of an instance-hour / slots, rounded up

The ceiling of spend counts what runs at its price now, and what is asked at the dearest of the
offers that it may come from: a fleet chooses among them, so that is what it may come to.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from federation.money import NANOS_PER_UNIT
from gateway.grids.ec2.settings import Place

# An instance-hour dearer than this is a mistake in the list: 10,000 units.
PRICE_NANOS_MAX: Final = 10_000 * NANOS_PER_UNIT
OPERATING_SYSTEM: Final = "Linux/UNIX"


class PriceError(Exception):
    """A price list that can't be used; the text says why."""


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
        """Of an instance-hour; None: nobody knows.

        Without a zone it is the dearest of all: EC2 chooses. A spot instance whose price is not
        known costs no more than one on demand.
        """
        if not is_spot:
            return self.on_demand.get(kind)
        if zone:
            return self.spot.get((kind, zone), self.on_demand.get(kind))
        zones = [nanos for (each, _), nanos in self.spot.items() if each == kind]
        return max(zones, default=self.on_demand.get(kind))


@dataclass(frozen=True, slots=True)
class Offer:
    """Instances that could be rented: of one type, in one place.

    Where a fleet takes spot instances and others it is the dearer of the two prices.
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
class Room:
    """What the ceilings leave of an order.

    Attributes:
        instances: that may be started, …
        offers: … of these.
        why: what keeps it from being more; empty: nothing does.
    """

    instances: int
    offers: tuple[Offer, ...]
    why: str = ""


def by_price(offers: Iterable[Offer]) -> list[Offer]:
    """The cheapest slot-hour first; those without a price last."""
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


def cheap_enough(offers: Iterable[Offer], most_nanos: int | None) -> list[Offer]:
    """The offers whose slot-hour costs no more than that; None: all."""
    if most_nanos is None:
        return list(offers)
    return [
        each for each in offers if each.slot_nanos is not None and each.slot_nanos <= most_nanos
    ]


def within(
    offers: Sequence[Offer], wanted: int, instances_left: int, nanos_left: int | None
) -> Room:
    """What may be started of so many instances.

    As many as possible; and then from as many offers as possible: the dearest are left out first.

    Args:
        instances_left: below the ceiling of instances.
        nanos_left: below the ceiling of spend per hour; None: there is none.
    """
    if instances_left <= 0:
        return Room(0, (), "max_instances are there")
    count = min(wanted, instances_left)
    why = "max_instances are there then" if count < wanted else ""
    if nanos_left is None:
        return Room(count, tuple(by_price(offers)), why)
    # What is compared with the ceiling is the instance's price, not the slot's.
    priced = [each for each in offers if each.price_nanos is not None]
    if not priced:
        return Room(0, (), "no price is known, and max_spend_per_hour is to be kept")
    prices = sorted({each.price_nanos or 0 for each in priced})
    fit = [(_times(nanos_left, nanos, count), nanos) for nanos in prices]
    best, dearest = max(fit)  # as many as can be, and the highest price among equals
    if best <= 0:
        return Room(0, (), "max_spend_per_hour would be passed by any instance")
    if best < count:
        why = "max_spend_per_hour is reached then"
    allowed = [each for each in priced if (each.price_nanos or 0) <= dearest]
    return Room(best, tuple(by_price(allowed)), why)


def _times(nanos_left: int, price_nanos: int, most: int) -> int:
    return most if price_nanos <= 0 else max(0, min(most, nanos_left // price_nanos))


# --- what is read --------------------------------------------------------------------------------


def read_spot(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The newest price of each type and zone, of DescribeSpotPriceHistory's SpotPriceHistory."""
    newest: dict[tuple[str, str], tuple[Any, int]] = {}
    for each in entries:
        nanos = _nanos(each.get("SpotPrice"))
        key, at = (str(each["InstanceType"]), str(each["AvailabilityZone"])), each["Timestamp"]
        if nanos is not None and (key not in newest or at > newest[key][0]):
            newest[key] = at, nanos
    return {key: nanos for key, (_, nanos) in newest.items()}


def read_products(products: Iterable[str], currency: str) -> dict[str, int]:
    """On-demand prices by type, of GetProducts' PriceList: JSON texts, one for each product."""
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
            raise PriceError(f"a product of the price list can't be read: {error!r:.100}") from None
        prices = [nanos for amount in amounts if (nanos := _nanos(amount))]
        if prices:
            found[kind] = max(prices)
    return found


def read_file(text: str) -> PriceBook:
    """A price list of one's own, JSON: instance-hours by type, spot ones by type and zone.

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
        raise PriceError(f"the price file can't be read: {error!r:.200}") from None


def _needed(what: object, amount: object) -> int:
    nanos = _nanos(amount)
    if nanos is None:
        raise PriceError(f'the price of {what} is {amount!r:.40}: write it as in "0.0893"')
    return nanos


def _nanos(amount: object) -> int | None:
    """An amount as text in nano-units, rounded up; None: it is none, or can't be meant."""
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return None
    if not value.is_finite() or value < 0 or value * NANOS_PER_UNIT > PRICE_NANOS_MAX:
        return None
    return int((value * NANOS_PER_UNIT).to_integral_value("ROUND_CEILING"))
