"""Reads the tables [contracts], [placement] and [[show]]."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from federation.money import check_currency
from gateway.dealing import DealRules
from gateway.knobs import KnobError, check_known, count, flag, number
from gateway.toml_places import Passage
from policies.asks import House, Objective, read_objective
from policies.disclosure import Disclosure

SECONDS_MAX: Final = 86_400.0
SHOWS_MAX: Final = 1_000
_COUNTS: Final = {
    "contracts_max": (1, 10**6),
    "unsettled_bytes_max": (1 << 16, 1 << 40),
    "buyer_bytes_max": (1 << 16, 1 << 40),
}


def read_contracts(table: dict[str, Any], grace_s: float) -> DealRules:
    """Read [contracts]. The lease must exceed twice the workers' `grace_s`.

    The default lease is three times the grace.
    """
    known = {field.name for field in fields(DealRules)} - {"grace_s"}
    values: dict[str, Any] = {"lease_s": 3 * grace_s, "grace_s": grace_s}
    check_known(table, known)
    for key, value in table.items():
        if key in _COUNTS:
            values[key] = count(key, value, *_COUNTS[key])
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


def read_shows(tables: Sequence[Passage]) -> tuple[Disclosure, ...]:
    """Read the [[show]] tables. ConfigError, with the line."""
    shows = []
    for at, each in enumerate(tables, start=1):
        if at > SHOWS_MAX:
            raise each.error(f"there may be {SHOWS_MAX:,} at most")
        with each.about():
            shows.append(_show(each.table))
    return tuple(shows)


def _show(table: dict[str, Any]) -> Disclosure:
    check_known(table, (field.name for field in fields(Disclosure)))
    values: dict[str, Any] = {}
    for key, value in table.items():
        values[key] = _names(key, value) if key in ("pools", "readers") else flag(key, value)
    return Disclosure(**values)


def _names(key: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise KnobError(f'{key} must be a list of names, as in ["paris"]')
    return frozenset(value)


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
        case "band" | "defer_gain":
            return number(key, value, 0.0, 1.0)
        case "defer_margin":
            return number(key, value, 0.0, 100.0)
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
