"""The tables [contracts] and [placement] of a configuration: how a site deals, what it likes."""

from dataclasses import fields, replace
from typing import Any, Final

from federation.money import check_currency
from gateway.dealing import DealRules
from gateway.knobs import KnobError, check_known, count, number
from policies.asks import House, Objective, read_objective

SECONDS_MAX: Final = 86_400.0


def read_contracts(table: dict[str, Any], grace_s: float) -> DealRules:
    """Read [contracts]. `grace_s` is the workers', which the lease must exceed twice over.

    Without a lease of its own a site takes three times the grace.
    """
    known = {field.name for field in fields(DealRules)} - {"grace_s"}
    values: dict[str, Any] = {"lease_s": 3 * grace_s, "grace_s": grace_s}
    check_known(table, known)
    for key, value in table.items():
        if key == "contracts_max":
            values[key] = count(key, value)
        else:
            values[key] = number(key, value, 0.01, SECONDS_MAX)
    try:
        return DealRules(**values)
    except ValueError as error:
        raise KnobError(str(error)) from None


def read_placement(table: dict[str, Any]) -> House:
    """Read [placement]."""
    known = {field.name for field in fields(House)}
    house = House()
    check_known(table, known)
    for key, value in table.items():
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
                raise KnobError("rates must be a table, as in { EUR = 1.1 }")
            return {
                _currency(key, each): number(key, rate, 0.0, 1e12) for each, rate in value.items()
            }
        case "band":
            return number(key, value, 0.0, 1.0)
        case "quotes_max" | "sites_max":
            return count(key, value)
        case _:
            return number(key, value, 0.0, float("inf"))


def _objective(value: Any) -> Objective:
    try:
        return read_objective(value)
    except ValueError as error:
        raise KnobError(str(error)) from None


def _currency(key: str, value: Any) -> str:
    try:
        check_currency(value)
    except (TypeError, ValueError) as error:
        raise KnobError(f"{key}: {error}") from None
    return str(value)
