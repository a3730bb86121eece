"""The tables [contracts] and [placement] of a configuration: how a site deals, what it likes."""

from dataclasses import fields, replace
from typing import Any, Final

from federation.money import check_currency
from gateway.dealing import DealRules
from policies.asks import OBJECTIVES, House, Objective

SECONDS_MAX: Final = 86_400.0


class DealKnobError(Exception):
    """A key of these tables that can't be used; the text names it."""


def read_contracts(table: dict[str, Any], grace_s: float) -> DealRules:
    """Read [contracts]. `grace_s` is the workers', which the lease must exceed twice over.

    Without a lease of its own a site takes three times the grace.
    """
    known = {field.name for field in fields(DealRules)} - {"grace_s"}
    values: dict[str, Any] = {"lease_s": 3 * grace_s, "grace_s": grace_s}
    for key, value in table.items():
        if key not in known:
            raise DealKnobError(f"has no key {key!r}; there are {', '.join(sorted(known))}")
        if key == "contracts_max":
            values[key] = _count(key, value)
        else:
            values[key] = _number(key, value, 0.01, SECONDS_MAX)
    try:
        return DealRules(**values)
    except ValueError as error:
        raise DealKnobError(str(error)) from None


def read_placement(table: dict[str, Any]) -> House:
    """Read [placement]."""
    known = {field.name for field in fields(House)}
    house = House()
    for key, value in table.items():
        if key not in known:
            raise DealKnobError(f"has no key {key!r}; there are {', '.join(sorted(known))}")
        house = replace(house, **{key: _read(key, value)})
    return house


def _read(key: str, value: Any) -> Any:
    match key:
        case "objective":
            return _objective(value)
        case "currency":
            return _currency(key, value)
        case "rates":
            if not isinstance(value, dict):
                raise DealKnobError("rates must be a table, as in { EUR = 1.1 }")
            return {
                _currency(key, each): _number(key, rate, 0.0, 1e12) for each, rate in value.items()
            }
        case "band":
            return _number(key, value, 0.0, 1.0)
        case "quotes_max" | "sites_max":
            return _count(key, value)
        case _:
            return _number(key, value, 0.0, float("inf"))


def _objective(value: Any) -> Objective:
    if isinstance(value, str) and value in OBJECTIVES:
        return OBJECTIVES[value]
    try:
        return Objective(**value)
    except (TypeError, ValueError):
        known = ", ".join(OBJECTIVES)
        raise DealKnobError(
            f"objective must be one of {known}, or weights as in {{ money = 1, time = 2 }}"
        ) from None


def _currency(key: str, value: Any) -> str:
    try:
        check_currency(value)
    except (TypeError, ValueError) as error:
        raise DealKnobError(f"{key}: {error}") from None
    return str(value)


def _number(key: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DealKnobError(f"{key} must be a number")
    if not low <= value <= high:
        raise DealKnobError(f"{key} is {value}: it must be {low:g} to {high:g}")
    return float(value)


def _count(key: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 10**6:
        raise DealKnobError(f"{key} must be a whole number from 1 to 1,000,000")
    return value
