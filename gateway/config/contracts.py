"""Reads the tables [contracts], [placement] and [[show]]."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from federation.money import check_currency
from gateway.base.toml_lines import Passage
from gateway.base.values import SettingError, check_known, count, flag, number, share, size
from policies.disclosure import Disclosure
from policies.placement.asks import Objective, Preferences, read_objective

SECONDS_MAX: Final = 86_400.0
LEASE_MARGIN_S: Final = 1.0
SHOWS_MAX: Final = 1_000
RATE_MAX: Final = 1e12  # units of the own currency for one of another
_COUNTS: Final = {
    "contracts_max": (1, 10**6),
    "unsettled_bytes_max": (1 << 16, 1 << 40),
    "buyer_bytes_max": (1 << 16, 1 << 40),
}


@dataclass(frozen=True, slots=True)
class DealRules:
    """The settings of contracts. Times in seconds.

    `lease_s` is how long a seller may go on without a message of the buyer, and so how long the
    buyer waits before it places the tasks of an unreachable seller elsewhere. When a gateway dies,
    its agents go on for the workers' `grace_s`. The seller stops that much earlier, so `lease_s`
    must be more than twice `grace_s`.
    """

    lease_s: float = 30.0
    grace_s: float = 10.0
    valid_s: float = 5.0  # how long a quote is valid
    hold_s: float = 5.0  # how long slots are held for a contract that is not committed
    quote_wait_s: float = 1.0  # how long to wait for the slowest quote
    bill_s: float = 0.25  # how often deliveries are billed
    plan_s: float = 0.25  # how often a queued job is planned again
    idle_s: float = 10.0  # an idle contract is closed after this time
    # Back-off from a site that declined or did not answer: this long, doubled each time, up to:
    rest_s: float = 5.0
    rest_max_s: float = 300.0
    contracts_max: int = 10_000  # with one site, in each direction
    unsettled_bytes_max: int = 256 << 20  # results of one buyer; above it none of its tasks starts
    buyer_bytes_max: int = 1 << 30  # arguments of one buyer, all contracts together
    grant_s: float = 86_400.0  # how long a grant for a contract lets work start

    @property
    def lease_min_s(self) -> float:
        """The shortest lease of a seller: a dead gateway's workers go on for the grace."""
        return 2 * self.grace_s + LEASE_MARGIN_S

    def rest_after_s(self, times: int) -> float:
        """The back-off after `times` failures in a row."""
        return float(min(self.rest_s * 2.0 ** min(times - 1, 30), self.rest_max_s))

    def __post_init__(self) -> None:
        if self.lease_s <= 2 * self.grace_s:
            raise ValueError(
                f"lease_s is {self.lease_s:g}: it must be more than twice grace_s "
                f"({self.grace_s:g}), or the workers of a dead gateway outlive the lease"
            )


def read_contracts(table: dict[str, Any], grace_s: float) -> DealRules:
    """Read [contracts]. The lease must exceed twice the workers' `grace_s`.

    The default lease is three times the grace.
    """
    known = {field.name for field in fields(DealRules)} - {"grace_s"}
    values: dict[str, Any] = {"lease_s": 3 * grace_s, "grace_s": grace_s}
    check_known(table, known)
    for key, value in table.items():
        if key.endswith("bytes_max"):
            values[key] = size(key, value, *_COUNTS[key])
        elif key in _COUNTS:
            values[key] = count(key, value, *_COUNTS[key])
        else:
            values[key] = number(key, value, 0.01, SECONDS_MAX)
    try:
        return DealRules(**values)
    except ValueError as error:
        raise SettingError(str(error)) from None


def read_placement(table: dict[str, Any]) -> Preferences:
    """Read [placement]."""
    known = {field.name for field in fields(Preferences)}
    preferences = Preferences()
    check_known(table, known)
    for key, value in table.items():
        preferences = replace(preferences, **{key: _read(key, value)})
    return preferences


def read_shows(tables: Sequence[Passage]) -> tuple[Disclosure, ...]:
    """Read the [[show]] tables. ConfigError, with the line."""
    shows = []
    for at, each in enumerate(tables, start=1):
        if at > SHOWS_MAX:
            raise each.error(f"too many: at most {SHOWS_MAX:,} are allowed")
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
        raise SettingError(f'{key} must be a list of names, as in ["paris"]')
    return frozenset(value)


def _read(key: str, value: Any) -> Any:
    match key:
        case "objective":
            return _objective(value)
        case "currency":
            return _currency(key, value)
        case "rates":
            if not isinstance(value, dict):
                raise SettingError("rates must be a table, as in { EUR = 1.1 }")
            return {_currency(key, each): _rate(each, rate) for each, rate in value.items()}
        case "band" | "defer_gain":
            return share(key, value, 0.0, 1.0)
        case "defer_margin":
            return number(key, value, 0.0, 100.0)
        case "quotes_max" | "sites_max":
            return count(key, value)
        case _:
            return number(key, value, 0.0, float("inf"))


def _rate(currency: str, value: Any) -> float:
    key = f"rates.{currency}"
    rate = number(key, value, 0.0, RATE_MAX)
    if rate == 0:  # it would make work there free of charge in each comparison
        raise SettingError(f"{key} is {value}: it must be above zero, and at most {RATE_MAX:g}")
    return rate


def _objective(value: Any) -> Objective:
    try:
        return read_objective(value)
    except ValueError as error:
        raise SettingError(str(error)) from None


def _currency(key: str, value: Any) -> str:
    try:
        check_currency(value)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{key}: {error}") from None
    return str(value)
