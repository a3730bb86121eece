"""The table [pool.tariff]: a pool's price list, beside its list price. Every mistake has its key.

[[pool]]
price = "0.04 USD"                      # the list price of a slot-hour

[pool.tariff]
version = "2026-q4"                     # on every quote and usage record; empty: of the content
zone = "Europe/London"                  # of the bands
preemptible = 0.4                       # factor of work that makes way for guaranteed work
minimum = "0.0001 USD"                  # that a task costs at least
step_s = 0.1                            # time is rounded up to whole steps
bands = [ { name = "night", days = "mon-fri", from = "22:00", to = "06:00", factor = 0.5 } ]
tags = { gpu = { add = "1.20 USD" }, nvme = { factor = 1.1 } }
spot = { floor = "0.01 USD", ceiling = "0.12 USD", exponent = 2, damp_s = 60, steps = 20 }
volume = [ { from = 1000, factor = 0.9 } ]                  # slot-hours of a buyer in a month
contracts = { paris = { price = "0.03 USD" } }              # by site
"""

import hashlib
import json
import re
from decimal import Decimal
from typing import Any, Final, TypeVar

from federation.money import parse_money
from gateway.base.values import SettingError, check_known, count, guarded, number, share
from policies.access.windows import NO_WINDOWS, WindowPlan
from policies.calendar.periods import UTC_ZONE, read_zone
from policies.calendar.weeks import DAY_S, WeekSpan, read_weekdays
from policies.costs.pricelist import FACTOR_MAX, PRICE_NANOS_MAX, Adjustment, Band, PriceList, Tier
from policies.costs.spot import Spot
from policies.tariffs import HOUR_S, MILLION, Extras, Surcharge

KEYS: Final = frozenset(
    {"version", "zone", "preemptible", "minimum", "step_s", "bands", "tags", "spot", "volume"}
    | {"contracts"}
)
BANDS_MAX: Final = 100
NAMES_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 60
TAGS_MAX: Final = 64
DAMP_MAX_S: Final = 86_400.0
T = TypeVar("T")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def read_price_list(pool: str, price: Any, table: Any, plan: WindowPlan = NO_WINDOWS) -> PriceList:
    """Read a pool's price list from its list price and its table; SettingError names the key."""
    if not isinstance(price, str):
        raise SettingError(f'the price is {price!r:.80}: write an amount, as in "0.04 USD"')
    nanos, currency = guarded("price", lambda: parse_money(price))
    if not isinstance(table, dict):
        raise SettingError("tariff must be a table below its pool, written as [pool.tariff]")
    try:
        check_known(table, KEYS)
        made = _Reader(currency).read(table)
        factors = {each.name: each.price_factor for each in plan.windows}
        version = table.get("version", "") or _version(pool, price, table, factors)
        return PriceList(nanos, currency, _name("version", version), **made, plan=plan)
    except SettingError as error:
        raise SettingError(f"tariff: {error}") from None
    except ValueError as error:
        raise SettingError(f"tariff: {error}") from None


def _version(pool: str, price: str, table: dict[str, Any], factors: dict[str, int]) -> str:
    """Return a version made from a list's content: different lists have different versions."""
    priced = {name: factor for name, factor in factors.items() if factor != MILLION}
    if not table and not priced:
        return f"{pool}@{price}"
    text = json.dumps([price, table, *([priced] if priced else [])], sort_keys=True, default=str)
    return f"{pool}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class _Reader:
    """Reads the keys of one table; all its amounts are in one currency."""

    def __init__(self, currency: str) -> None:
        self._currency = currency

    def read(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of PriceList other than price, currency and version."""
        zone = table.get("zone")
        found: dict[str, Any] = {
            "zone": UTC_ZONE if zone is None else guarded("zone", lambda: read_zone(str(zone))),
            "extras": Extras(
                preemptible=read_factor("preemptible", table.get("preemptible", 1)),
                surcharges=self._surcharges(table.get("tags", {})),
                minimum_nanos=self._amount("minimum", table.get("minimum", self._nothing)),
                step_ns=round(number("step_s", table.get("step_s", 0), 0, HOUR_S) * 1e9),
            ),
            "bands": tuple(
                self._band(at, each) for at, each in _rows("bands", table.get("bands", []))
            ),
            "volume": tuple(
                self._tier(at, each) for at, each in _rows("volume", table.get("volume", []))
            ),
            "contracts": {
                _name("contracts", site): self._adjustment(f"contracts.{site}", each, set())
                for site, each in _named("contracts", table.get("contracts", {})).items()
            },
        }
        if "spot" in table:
            found["spot"] = self._spot(_table("spot", table["spot"]))
        return found

    @property
    def _nothing(self) -> str:
        return f"0 {self._currency}"

    def _amount(self, key: str, value: Any) -> int:
        if not isinstance(value, str):
            raise SettingError(f'{key} is {value!r:.80}: write an amount, as in "0.04 USD"')
        nanos, currency = guarded(key, lambda: parse_money(value))
        if currency != self._currency:
            raise SettingError(
                f"{key} is in {currency}, but the price of the pool in {self._currency}: use "
                "one currency"
            )
        if nanos > PRICE_NANOS_MAX:
            raise SettingError(f"{key} is {value}: the maximum is ten million units")
        return nanos

    def _adjustment(self, where: str, value: Any, others: set[str]) -> Adjustment:
        """Read a table with a price or a factor, one of the two, beside other keys."""
        table = _table(where, value)
        _check_known(where, table, {"price", "factor"} | others)
        if ("price" in table) == ("factor" in table):
            raise SettingError(f"{where} needs either a price or a factor")
        if "price" in table:
            return Adjustment(self._amount(f"{where}.price", table["price"]))
        return Adjustment(factor=read_factor(f"{where}.factor", table["factor"]))

    def _band(self, where: str, value: Any) -> Band:
        adjust = self._adjustment(where, value, {"name", "days", "from", "to"})
        name = _name(f"{where}.name", value.get("name"))
        where = f"band {name!r}"
        from_s = read_time(f"{where}: from", value.get("from", "00:00"))
        to_s = read_time(f"{where}: to", value.get("to", "24:00"))
        days = _days(f"{where}: days", value.get("days", "daily"))
        span = guarded(where, lambda: WeekSpan(from_s, to_s, days))
        return Band(name, span, adjust)

    def _tier(self, where: str, value: Any) -> Tier:
        adjust = self._adjustment(where, value, {"from"})
        return Tier(count(f"{where}.from", value.get("from"), 1, 10**12), adjust)

    def _surcharges(self, value: Any) -> dict[str, Surcharge]:
        found = {}
        tags = _named("tags", value)
        if len(tags) > TAGS_MAX:
            raise SettingError(f"tags: at most {TAGS_MAX} are allowed")
        for tag, each in tags.items():
            where = f"tags.{tag}"
            table = _table(where, each)
            _check_known(where, table, {"add", "factor"})
            if not table:
                raise SettingError(f"{where} needs an amount to add, a factor, or both")
            found[_tag(where, tag)] = Surcharge(
                self._amount(f"{where}.add", table.get("add", self._nothing)),
                read_factor(f"{where}.factor", table.get("factor", 1)),
            )
        return found

    def _spot(self, table: dict[str, Any]) -> Spot:
        _check_known("spot", table, {"floor", "ceiling", "exponent", "damp_s", "steps"})
        for key in ("floor", "ceiling"):
            if key not in table:
                raise SettingError(f"spot needs a {key}")
        floor_nanos = self._amount("spot.floor", table["floor"])
        if not floor_nanos:
            raise SettingError(
                "spot.floor must be above zero: work at a price of zero can't be compared"
            )
        ceiling_nanos = self._amount("spot.ceiling", table["ceiling"])
        exponent = count("spot.exponent", table.get("exponent", 2), 1, 10)
        damp_s = number("spot.damp_s", table.get("damp_s", 60.0), 0, DAMP_MAX_S)
        steps = count("spot.steps", table.get("steps", 20), 1, 1_000)
        return guarded("spot", lambda: Spot(floor_nanos, ceiling_nanos, exponent, damp_s, steps))


def _check_known(where: str, table: dict[str, Any], known: set[str]) -> None:
    try:
        check_known(table, known)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None


def read_factor(key: str, value: Any) -> int:
    """Read a factor, in millionths, above zero; six decimals at most, so that it is exact."""
    given = share(key, value, 1 / MILLION, FACTOR_MAX / MILLION)
    millionths = Decimal(str(given)) * MILLION
    if millionths != int(millionths):
        raise SettingError(f"{key} is {value}: at most six decimals are allowed")
    return int(millionths)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"{key} must be a table")
    return value


def _named(key: str, value: Any) -> dict[str, Any]:
    table = _table(key, value)
    if len(table) > NAMES_MAX:
        raise SettingError(f"{key}: at most {NAMES_MAX:,} are allowed")
    return table


def _rows(key: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, list) or len(value) > BANDS_MAX:
        raise SettingError(f"{key} must be a list of up to {BANDS_MAX} tables")
    return [(f"{key}[{at}]", each) for at, each in enumerate(value, 1)]


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
        raise SettingError(f"{key} must be text of 1 to {NAME_CHARS_MAX} characters")
    if not value.isprintable():
        raise SettingError(f"{key} is {value!a:.80}: it has unprintable characters")
    return value


def _tag(where: str, tag: str) -> str:
    if not tag or not tag.isprintable() or "," in tag or len(tag) > NAME_CHARS_MAX:
        raise SettingError(f"{where} is not a tag name")
    return tag


def read_time(key: str, value: Any) -> int:
    """Return the second of the day of "22:00", "9:00" or "22:00:30"; "24:00" is its end."""
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise SettingError(f'{key} is {value!r:.40}: write a time, as in "22:00"')
    hours, minutes, seconds = (int(each or 0) for each in found.groups())
    at_s = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or at_s > DAY_S:
        raise SettingError(f"{key} is {value!r}: it is not a time of day")
    return at_s


def _days(key: str, value: Any) -> frozenset[int]:
    try:
        return read_weekdays(value if isinstance(value, str) else "")
    except ValueError as error:
        raise SettingError(f"{key} is {value!r:.40}: {error}") from None
