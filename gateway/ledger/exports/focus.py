"""FOCUS 1.2: the cost of usage, one row for each hour and key of `usage_hours`. Pure.

Data that was held is storage, in GB-months, and data that came from other sites networking, in GB.

Costs are exact: a row's costs are those of the books, to the nano-unit, and so are their sums.
Where an hour has one list price, that is the unit price, and the quantity is the charged time: with
the whole steps, minimum charges and roundings that the cost includes. The contracted price is that
of the tariff, too, if its cost is the price times the same quantity. Otherwise unit prices are the
cost divided by the slot-hours. A price times its quantity equals the cost to the nano-unit.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from federation.money import format_amount
from federation.words import count
from gateway.ledger.exports.focus_columns import EXPORTED
from gateway.ledger.exports.rows import Correction, Hour
from gateway.ledger.exports.texts import decimal, hour_start, month_of, month_start
from policies.costs.holding import MONTH_S

Row = tuple[str | None, ...]

SERVICE: Final = "Grid Compute"
OBJECTS: Final = "Grid Objects"
PLACES: Final = 18  # of quantities and unit prices; costs have nine
_NS_PER_HOUR: Final = 3600 * 10**9
_UJ_PER_KWH: Final = 3600 * 10**9
# Less slot time has no meaningful price per hour: it is priced per run.
PRICED_BY_TIME_NS: Final = 10**6
_PRICE_HIGH: Final = 10**8  # units of a currency, for a slot-hour


@dataclass(frozen=True, slots=True)
class _Product:
    """A resource that is charged for, and its units.

    Attributes:
        unit, per: the unit of the price, and how much of the amount in the books is one.
        least: less of it has no meaningful price of that unit: it is priced per record.
        consumed, consumed_per: the same of the quantity that was used.
        one: the unit of records.
        cells: the other cells of FOCUS.
    """

    unit: str
    per: int
    least: int
    consumed: str
    consumed_per: int
    one: str
    cells: dict[str, str]


def _cells(category: str, subcategory: str, service: str, resource: str, meter: str) -> Any:
    return {
        "ServiceCategory": category,
        "ServiceSubcategory": subcategory,
        "ServiceName": service,
        "ResourceType": resource,
        "SkuMeter": meter,
    }


_GB: Final = 10**9
_GB_MONTH: Final = _GB * MONTH_S
_PRODUCTS: Final = {
    "time": _Product(
        *("Slot-Hours", _NS_PER_HOUR, PRICED_BY_TIME_NS, "Slot-Seconds", 10**9, "Runs"),
        _cells("Compute", "Other (Compute)", SERVICE, "Pool", "Slot Time"),
    ),
    "held": _Product(
        *("GB-Months", _GB_MONTH, _GB_MONTH // 10**9, "GB-Hours", _GB * 3600, "Objects"),
        _cells("Storage", "Object Storage", OBJECTS, "Object Host", "Bytes Held"),
    ),
    "moved": _Product(
        *("GB", _GB, 1, "GB", _GB, "Transfers"),
        _cells("Networking", "Other (Networking)", OBJECTS, "Object Host", "Bytes Moved"),
    ),
}


@dataclass(frozen=True, slots=True)
class _Charge:
    """The data of one row: an hour, or a correction in the shape of one, with negative amounts."""

    hour: Hour
    billed_in: tuple[int, int]  # year and month
    is_correction: bool = False
    corrects: str = ""

    @property
    def product(self) -> _Product:
        """The resource."""
        return _PRODUCTS[self.hour.kind]

    @property
    def amount(self) -> int:
        """How much was used, as in the books: ns, byte-seconds or bytes."""
        hour = self.hour
        return {"held": hour.held_byte_s, "moved": hour.moved_bytes}.get(hour.kind, hour.wall_ns)


def charges(site: str, hours: Iterable[Hour], corrections: Iterable[Correction]) -> Iterator[Row]:
    """Yield the rows of a site's export, with a cell for each of EXPORTED, None for null.

    Args:
        site: the owner of the books.
        hours: the charges.
        corrections: the reversed charges.
    """
    for hour in hours:
        yield _row(site, _Charge(hour, month_of(hour.hour)))
    for each in corrections:
        yield _row(site, _corrected(each))


def _corrected(correction: Correction) -> _Charge:
    """Return the charge that reverses another; it consumes nothing.

    FOCUS calls it a correction only if the charge was in another billing period.
    """
    hour = Hour(
        hour=correction.hour,
        site=correction.site,
        origin=correction.origin,
        pool=correction.pool,
        currency=correction.currency,
        records=1,
        cost_nanos=-correction.amount_nanos,
        list_cost_nanos=-correction.amount_nanos,
        # Only the two sites and the pool are known; the other fields are empty.
        user="",
        group="",
        project="",
        name="",
        window="",
        tags="",
        price_class="",
        state="",
        tariff="",
        footprint="",
        peak_memory_bytes=0,
        tasks=0,
        wall_ns=0,
        cpu_ns=0,
        energy_uj=0,
        carbon_ng=0,
        embodied_ng=0,
        kind=correction.kind,
        held_byte_s=0,
        moved_bytes=0,
    )
    billed_in = month_of(int(correction.at_s // 3600))
    return _Charge(hour, billed_in, is_correction=True, corrects=correction.corrects)


def _row(site: str, charge: _Charge) -> Row:
    cells = _whose(site, charge) | _what(site, charge) | _amounts(charge) | _ours(site, charge)
    return tuple(cells.get(column.name) for column in EXPORTED)


def _whose(site: str, charge: _Charge) -> dict[str, str | None]:
    """Return the cells for payer, seller and time."""
    hour, (year, month) = charge.hour, charge.billed_in
    payer, seller = hour.origin or site, hour.site or site
    is_of_another_period = charge.is_correction and charge.billed_in != month_of(hour.hour)
    return {
        "BillingAccountId": payer,
        "BillingAccountName": payer,
        "BillingCurrency": hour.currency,
        "BillingPeriodStart": month_start(year, month),
        "BillingPeriodEnd": month_start(year, month + 1),
        "ChargePeriodStart": hour_start(hour.hour),
        "ChargePeriodEnd": hour_start(hour.hour + 1),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if is_of_another_period else None,
        "ChargeFrequency": "Usage-Based",
        # Each hop is a sale: an account billed here bought from us, wherever the work ran.
        "InvoiceIssuerName": site,
        "ProviderName": site,
        "PublisherName": seller,
        "SubAccountId": _text_or_null(hour.project),
        "SubAccountName": _text_or_null(hour.project),
    }


def _what(site: str, charge: _Charge) -> dict[str, str | None]:
    """Return the cells for the product, at a price of a tariff version."""
    hour = charge.hour
    seller = hour.site or site
    # Other sites' pools have their site in their name.
    pool = hour.pool.removeprefix(f"{hour.site}/") if hour.site else hour.pool
    sku = _text_or_null("/".join(filter(None, (seller, pool))))
    price = "/".join(filter(None, (sku, hour.price_class, hour.tariff, hour.window)))
    details = {
        "x_PriceClass": hour.price_class,
        "x_TariffVersion": hour.tariff,
        "x_Window": hour.window,
    }
    return {
        **charge.product.cells,
        "RegionId": seller,
        "RegionName": seller,
        "ResourceId": sku,
        "ResourceName": _text_or_null(pool),
        "SkuId": sku,
        "SkuPriceId": price,
        "SkuPriceDetails": _json({name: text for name, text in details.items() if text}),
        "PricingCategory": "Dynamic" if hour.price_class == "preemptible" else "Standard",
        "Tags": _json(_tags(hour.tags)),
    }


def _amounts(charge: _Charge) -> dict[str, str | None]:
    hour = charge.hour
    cost, list_cost = format_amount(hour.cost_nanos), format_amount(hour.list_cost_nanos)
    product, amount = charge.product, charge.amount
    by_amount = amount >= product.least
    # In units of 10**-PLACES, as it is written, so that the product is exact.
    quantity = hour.records * 10**PLACES
    if by_amount:
        quantity = (amount * 10**PLACES + product.per // 2) // product.per
    sign = -1 if charge.is_correction else 1
    listed = hour.list_price_nanos
    if listed is None and hour.list_cost_nanos == hour.cost_nanos:
        listed = hour.price_nanos
    if by_amount and listed and hour.list_cost_nanos:
        # The remaining rounding error is far below half a nano-unit of the product.
        quantity = (hour.list_cost_nanos * 10**PLACES + listed // 2) // listed
        price = _tariff_price(hour.cost_nanos, hour.price_nanos or 0, quantity)
        list_price = _tariff_price(hour.list_cost_nanos, listed, quantity)
    else:
        price = _unit_price(sign * hour.cost_nanos, charge, quantity)
        list_price = _unit_price(sign * hour.list_cost_nanos, charge, quantity)
    return {
        "BilledCost": cost,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": list_cost,
        "PricingQuantity": decimal(sign * quantity, 10**PLACES, PLACES),
        "PricingUnit": product.unit if by_amount else _unit(charge),
        "ContractedUnitPrice": price,
        "ListUnitPrice": list_price,
        # Charges are priced and billed in the same currency.
        "PricingCurrency": hour.currency,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": list_price,
        "ConsumedQuantity": (
            "0" if charge.is_correction else decimal(amount, product.consumed_per, 9)
        ),
        "ConsumedUnit": product.consumed,
    }


def _unit(charge: _Charge) -> str:
    """The unit of a charge that the amount used is no measure of."""
    is_fee = charge.hour.is_fee and not charge.is_correction
    return "Reservations" if is_fee else charge.product.one


def _tariff_price(nanos: int, price_nanos: int, quantity: int) -> str:
    """Return a tariff's price if its product with the quantity is the cost; else the quotient."""
    if 2 * abs(price_nanos * quantity - nanos * 10**PLACES) <= 10**PLACES:
        return decimal(price_nanos, 10**9, 9)
    return decimal(nanos * 10 ** (PLACES - 9), quantity, PLACES)


def _unit_price(nanos: int, charge: _Charge, quantity: int) -> str:
    """Return the cost of a unit: for the exact amount, as in a tariff.

    Where a price is so high that the rounding of the quantity would show, the rounded quantity is
    used.
    """
    per, amount = charge.product.per, charge.amount * 10**9
    if charge.amount >= charge.product.least and nanos * per < amount * _PRICE_HIGH:
        return decimal(nanos * per, amount, PLACES)
    return decimal(nanos * 10 ** (PLACES - 9), quantity, PLACES)


def _ours(site: str, charge: _Charge) -> dict[str, str | None]:
    """Return the cells without a FOCUS column, and ChargeDescription."""
    hour, is_correction = charge.hour, charge.is_correction
    runs = 0 if is_correction or hour.is_fee or hour.kind != "time" else hour.records
    # Unknown values are null, and not zero.
    has_energy, has_carbon = bool(hour.footprint), hour.footprint == "carbon"
    return {
        "ChargeDescription": _description(charge),
        "x_CarbonEmbodiedG": decimal(hour.embodied_ng, 10**9, 9) if has_energy else None,
        "x_CarbonOperationalG": decimal(hour.carbon_ng, 10**9, 9) if has_carbon else None,
        "x_Corrects": _text_or_null(charge.corrects),
        "x_CpuSeconds": decimal(hour.cpu_ns, 10**9, 9),
        "x_EnergyKwh": decimal(hour.energy_uj, _UJ_PER_KWH, PLACES) if has_energy else None,
        "x_ExecSite": hour.site or site,
        "x_GridIntensityGPerKwh": (
            decimal(hour.carbon_ng * (_UJ_PER_KWH // 10**9), hour.energy_uj, 9)
            if has_carbon and hour.energy_uj
            else None
        ),
        "x_Group": _text_or_null(hour.group),
        "x_JobName": _text_or_null(hour.name),
        "x_OriginSite": hour.origin or site,
        "x_PeakMemoryBytes": None if is_correction else str(hour.peak_memory_bytes),
        "x_PriceClass": _text_or_null(hour.price_class),
        "x_Runs": str(runs),
        "x_State": _text_or_null(hour.state),
        "x_TariffVersion": _text_or_null(hour.tariff),
        "x_Tasks": str(hour.tasks),
        "x_User": _text_or_null(hour.user),
        "x_Window": _text_or_null(hour.window),
    }


def _description(charge: _Charge) -> str:
    hour = charge.hour
    if charge.is_correction:
        return f"Reversed: {charge.corrects}"
    if hour.kind != "time":
        return f"Objects {hour.kind}: {count(hour.records, 'record')}"
    if hour.is_fee:
        return f"Fee for reserved slots: {hour.name}, in {hour.pool}"
    kind = {
        "failed": "that failed",
        "cancelled": "that were cancelled",
        "preempted": "that were stopped to make room",
        "repeat": "that were repeated",
        "void": "that could not be delivered",
        "lost": "that were lost with their workers, unpaid",
        "wasted": "that were lost with their workers",
    }.get(hour.state, "")
    words = ("Runs of", hour.name or "jobs without a name", kind, "in", hour.pool)
    return " ".join(filter(None, words))


def _text_or_null(text: str) -> str | None:
    """Return a text, or null for an empty one: FOCUS has no empty texts."""
    return text if text.strip() else None


def _json(values: dict[str, Any]) -> str | None:
    if not values:
        return None
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _tags(text: str) -> dict[str, bool | int | float | str]:
    """Parse tags as `policies.placement.placement.show_tags` writes them; one without a value is
    true."""
    found: dict[str, bool | int | float | str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        found[name] = _number(value) if equals else True
    return found


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        # Otherwise the output would differ from the input, or would not be JSON.
        if str(number) == text and text not in ("inf", "-inf", "nan"):
            return number
    return text
