"""Checks a FOCUS 1.2 dataset in CSV against every rule of the specification that a file can break.

Written from the specification, and not from our export: it reads files of any producer. It can't
check whether the figures are right: the audit of the books does that.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from gateway.ledger.exports.focus_columns import CUSTOM_PREFIX, FOCUS, Column

_DECIMAL: Final = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_CURRENCY: Final = re.compile(r"[A-Z]{3}", re.ASCII)
_CUSTOM_NAME: Final = re.compile(r"x_[A-Z][A-Za-z0-9]*", re.ASCII)
_NAME_LIMIT: Final = 50

# Only in capitalised words: "GB", "Slot-Hours", "1000 Tokens", "Units/3 Months".
_UNIT: Final = re.compile(
    r"(\d+ )?[A-Z][A-Za-z]*( [A-Z][A-Za-z]*)*(-(Years|Months|Days|Hours|Minutes|Seconds))?"
    r"(/(\d+ )?(Year|Month|Day|Hour|Minute|Second)s?)?",
    re.ASCII,
)
_PLACEHOLDERS: Final = ("n/a", "na", "not applicable", "null", "none")
_NEVER_NEGATIVE: Final = ("ContractedUnitPrice", "ListUnitPrice")

# Pairs of columns that are null together, or not at all.
_TOGETHER: Final = (
    *(("PricingQuantity", "PricingUnit"), ("ConsumedQuantity", "ConsumedUnit")),
    *(("RegionId", "RegionName"), ("SubAccountId", "SubAccountName")),
    *(("ResourceId", "ResourceType"), ("SubAccountId", "SubAccountType")),
    *(("CommitmentDiscountId", "CommitmentDiscountType"),),
    *(("CommitmentDiscountId", "CommitmentDiscountCategory"),),
)
_ONLY_WITH: Final = (
    *(("ResourceId", "ResourceName"), ("SkuId", "SkuMeter"), ("SkuPriceId", "SkuPriceDetails")),
    ("CommitmentDiscountId", "CommitmentDiscountName"),
)
# Required for Usage and Purchase unless they are corrections, and forbidden for Tax.
_PRICED: Final = (
    *("PricingQuantity", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory"),
    *("SkuId", "SkuPriceId"),
)
_PRODUCTS: Final = (("ContractedUnitPrice", "ContractedCost"), ("ListUnitPrice", "ListCost"))
# The tolerance between a product of rounded factors and its cost: half a nano-unit.
_NEAR: Final = Fraction(1, 2 * 10**9)


@dataclass(frozen=True, slots=True)
class Checked:
    """The number of rows read, and the problems of the last one, or of the header."""

    rows: int
    problems: tuple[str, ...]


def check(lines: Iterable[str]) -> Iterator[Checked]:
    """Yield the problems of a file, for the header and for each row."""
    reader = csv.reader(lines, strict=True)
    rows = 0
    try:
        header = next(reader, [])
        yield Checked(0, tuple(header_problems(header)))
        for rows, cells in enumerate(reader, start=1):
            if len(cells) != len(header):
                problem = f"the row has {len(cells)} cells, the header {len(header)} columns"
                yield Checked(rows, (f"row {rows}: {problem}",))
                continue
            row = {name: value or None for name, value in zip(header, cells, strict=True)}
            yield Checked(rows, tuple(f"row {rows}: {each}" for each in row_problems(row)))
    except csv.Error as error:
        yield Checked(rows, (f"after row {rows}: {error}",))


def header_problems(header: list[str]) -> Iterator[str]:
    """Yield the problems in the names of the columns, and in their order."""
    for column in FOCUS.values():
        if column.level == "mandatory" and column.name not in header:
            yield f"the mandatory column {column.name} is missing"
    for name in sorted({name for name in header if header.count(name) > 1}):
        yield f"the column {name} appears more than once"
    customs = False
    for name in header:
        if name in FOCUS:
            if customs:
                yield f"{name} follows a column that is not part of FOCUS"
            continue
        customs = True
        if not name.startswith(CUSTOM_PREFIX):
            yield f"{name} is not a column of FOCUS, and does not begin with {CUSTOM_PREFIX}"
        elif not _CUSTOM_NAME.fullmatch(name) or len(name) > _NAME_LIMIT:
            yield f"{name} is not in Pascal case, or has more than {_NAME_LIMIT} characters"


def row_problems(row: dict[str, str | None]) -> Iterator[str]:
    """Yield the problems of one row, each column by itself and then with the others."""
    broken = False
    for name, value in row.items():
        column = FOCUS.get(name)
        for problem in _cell_problems(column, value) if column else ():
            broken = True
            yield f"{name} {problem}"
    if not broken:
        # The other checks need valid numbers and times.
        yield from _period_problems(row)
        yield from _null_problems(row)
        yield from _price_problems(row)
        yield from _charge_problems(row)


def _cell_problems(column: Column, value: str | None) -> Iterator[str]:
    if value is None:
        if not column.is_nullable:
            yield "is null"
        return
    if column.allowed and value not in column.allowed:
        yield f"is {value!r}, not one of {', '.join(sorted(column.allowed))}"
    match column.kind:
        case "decimal":
            if not _DECIMAL.fullmatch(value):
                yield f"is {value!r}, not a decimal number"
            elif column.name in _NEVER_NEGATIVE and Decimal(value) < 0:
                yield f"is {value}, but must not be negative"
        case "time":
            if not _is_time(value):
                yield f"is {value!r}, not a time in UTC such as 2026-11-22T05:00:00Z"
        case "json":
            yield from _json_problems(column, value)
        case "text":
            yield from _text_problems(column, value)


def _is_time(value: str) -> bool:
    if not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _json_problems(column: Column, value: str) -> Iterator[str]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key appears twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        found = json.loads(value, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        yield f"is not JSON: {error}"
        return
    if not isinstance(found, dict):
        yield "is not an object"
        return
    for key, each in found.items():
        if isinstance(each, dict | list):
            yield f"has an object or a list as the value of {key!r}"
        if column.name == "SkuPriceDetails" and not key.startswith(CUSTOM_PREFIX):
            yield f"has the key {key!r}, which does not begin with {CUSTOM_PREFIX}"


def _text_problems(column: Column, value: str) -> Iterator[str]:
    if not value.strip():
        yield "has only spaces"
    if not column.is_nullable and value.strip().lower() in _PLACEHOLDERS:
        yield f"is {value!r}, a placeholder without meaning"
    if column.name.endswith("Currency") and not _CURRENCY.fullmatch(value):
        yield f"is {value!r}, not a currency of three capital letters"
    if column.name.endswith("Unit") and not _UNIT.fullmatch(value):
        yield f"is {value!r}, not a unit in the format of FOCUS"


def _period_problems(row: dict[str, str | None]) -> Iterator[str]:
    for kind in ("BillingPeriod", "ChargePeriod"):
        start, end = row.get(f"{kind}Start"), row.get(f"{kind}End")
        if start and end and not start < end:
            yield f"{kind}Start {start} is not before {kind}End {end}"
    charged, begun, ended = (
        row.get("ChargePeriodStart"),
        row.get("BillingPeriodStart"),
        row.get("BillingPeriodEnd"),
    )
    if not (charged and begun and ended):
        return
    is_within = begun <= charged < ended
    if row.get("ChargeClass") is None and row.get("ChargeCategory") == "Usage" and not is_within:
        yield f"usage of {charged} is billed from {begun} to {ended}, but is not a correction"
    if row.get("ChargeClass") and is_within:
        yield "a correction within its billing period has no ChargeClass"


def _null_problems(row: dict[str, str | None]) -> Iterator[str]:
    for one, other in _TOGETHER:
        if one in row and other in row and (row[one] is None) != (row[other] is None):
            yield f"{one} and {other} must be null together or not at all"
    for one, other in _ONLY_WITH:
        if one in row and other in row and row[one] is None and row[other] is not None:
            yield f"{other} must be null when {one} is"
    if row.get("ResourceName") and row.get("ResourceName") == row.get("ResourceId"):
        yield "ResourceName must differ from ResourceId"
    for name, value in row.items():
        is_committed = row.get("CommitmentDiscountId") is not None
        if name.startswith("CommitmentDiscount") and value is not None and not is_committed:
            yield f"{name} must be null when CommitmentDiscountId is"


def _price_problems(row: dict[str, str | None]) -> Iterator[str]:
    category, is_correction = row.get("ChargeCategory"), row.get("ChargeClass") is not None
    for name in _PRICED:
        if name not in row:
            continue
        if category == "Tax" and row[name] is not None:
            yield f"{name} must be null for Tax"
        if category in ("Usage", "Purchase") and not is_correction and row[name] is None:
            yield f"{name} must not be null for {category}"
    quantity = row.get("PricingQuantity")
    for price, cost in _PRODUCTS:
        unit_price, amount = row.get(price), row.get(cost)
        if is_correction or quantity is None or unit_price is None or amount is None:
            continue
        if not _is_product(quantity, unit_price, amount):
            yield f"{price} {unit_price} times PricingQuantity {quantity} is not {cost} {amount}"
    if category not in ("Usage", "Purchase") and row.get("BilledCost") != row.get("EffectiveCost"):
        yield f"EffectiveCost differs from BilledCost, although the category is {category}"


def _is_product(quantity: str, price: str, cost: str) -> bool:
    """Computed in fractions: decimals of Python round to 28 digits."""
    return abs(Fraction(quantity) * Fraction(price) - Fraction(cost)) <= _NEAR


def _charge_problems(row: dict[str, str | None]) -> Iterator[str]:
    category = row.get("ChargeCategory")
    if category == "Purchase" and row.get("ChargeFrequency") == "Usage-Based":
        yield "ChargeFrequency of a Purchase must not be Usage-Based"
    if "ConsumedQuantity" in row:
        is_used = category == "Usage" and row.get("CommitmentDiscountStatus") != "Unused"
        if not is_used and row["ConsumedQuantity"] is not None:
            yield "ConsumedQuantity must be null without usage"
        if is_used and row.get("ChargeClass") is None and row["ConsumedQuantity"] is None:
            yield "ConsumedQuantity must not be null for Usage"
    is_committed = row.get("PricingCategory") == "Committed"
    if is_committed and row.get("CommitmentDiscountId", "") is None:
        yield "PricingCategory is Committed, but CommitmentDiscountId is null"
