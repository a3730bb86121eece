"""Limits by which a job that can't keep its own would be accepted: their wire form and reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Literal

from federation.clocks import CALENDAR_END_S, UtcS
from federation.money import NANOS_LIMIT, check_currency, format_money

OFFERS_MAX: Final = 8
PLACES_MAX: Final = 20  # named in an offer


@dataclass(frozen=True, slots=True)
class Offer:
    """Limits by which all of a job would be accepted, as far as was known then.

    Attributes:
        kind: "later", for the same money; or "dearer", in the same time.
        deadline_s: UTC, seconds since 1970; None: the job named none.
        max_cost_nanos: in units of 10⁻⁹ of its currency; None: the job named no limit.
        currency: of both amounts; empty when it would be charged in several.
        finish_s, cost_nanos: the expected end (UTC) and cost; the cost is None in several
            currencies.
        places: site, pool, and tasks there; the largest twenty.
    """

    kind: Literal["later", "dearer"]
    deadline_s: float | None
    max_cost_nanos: int | None
    currency: str
    finish_s: float
    cost_nanos: int | None
    places: tuple[tuple[str, str, int], ...]

    @property
    def options(self) -> dict[str, Any]:
        """The options that accept it, beside earlier ones: `client.options(**offer.options)`."""
        found: dict[str, Any] = {}
        if self.deadline_s is not None:
            found["deadline_s"] = self.deadline_s
        if self.max_cost_nanos is not None:
            found["max_cost"] = format_money(self.max_cost_nanos, self.currency)
        return found

    @property
    def text(self) -> str:
        """The limit that is wider, in words: "for 31 EUR, at paris/spot"."""
        where = ", ".join(dict.fromkeys(f"{site}/{pool}" for site, pool, _ in self.places))
        if self.kind == "later" and self.deadline_s is not None:
            return f"by {show_time(self.deadline_s)}, at {where}"
        return f"for {self.options.get('max_cost', 'any money')}, at {where}"

    def to_plain(self) -> dict[str, Any]:
        """Convert to its wire form: values that any program can read."""
        return {
            "kind": self.kind,
            "deadline_s": self.deadline_s,
            "max_cost_nanos": self.max_cost_nanos,
            "currency": self.currency,
            "finish_s": self.finish_s,
            "cost_nanos": self.cost_nanos,
            "places": [
                {"site": site, "pool": pool, "tasks": tasks} for site, pool, tasks in self.places
            ],
        }


def read_offers(details: Mapping[str, Any]) -> tuple[Offer, ...]:
    """Return the offers that came with a refusal.

    Items that are no offer, or of a kind that only a newer gateway knows, are left out.
    """
    found = details.get("offers")
    if not isinstance(found, list):
        return ()
    offers = []
    for each in found[:OFFERS_MAX]:
        try:
            offers.append(_read(each))
        except (TypeError, KeyError, ValueError):
            continue
    return tuple(offers)


def show_time(utc_s: UtcS | float, zone: tzinfo = UTC, *, is_zoned: bool = True) -> str:
    """Format a time for people, in a zone; without the name of the zone if a heading has it."""
    local = datetime.fromtimestamp(float(utc_s), zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {local:%Z}" if is_zoned else f"{local:%Y-%m-%d %H:%M:%S}"


def _read(plain: Any) -> Offer:
    """Read an offer; TypeError, KeyError or ValueError if it is none."""
    max_cost_nanos, currency = plain["max_cost_nanos"], plain["currency"]
    deadline_s, cost_nanos = plain["deadline_s"], plain["cost_nanos"]
    if plain["kind"] not in ("later", "dearer") or (max_cost_nanos is not None and not currency):
        raise ValueError("the kind of the offer or its currency is unknown")
    if currency != "":
        check_currency(currency)
    return Offer(
        plain["kind"],
        None if deadline_s is None else _time(deadline_s),
        None if max_cost_nanos is None else _amount(max_cost_nanos),
        currency,
        _time(plain["finish_s"]),
        None if cost_nanos is None else _amount(cost_nanos),
        tuple(_place(each) for each in plain["places"][:PLACES_MAX]),
    )


def _place(plain: Any) -> tuple[str, str, int]:
    site, pool, tasks = plain["site"], plain["pool"], plain["tasks"]
    if not (isinstance(site, str) and isinstance(pool, str) and type(tasks) is int):
        raise TypeError("an invalid site or pool")
    return site, pool, tasks


def _time(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float(CALENDAR_END_S):
        raise ValueError("an invalid time")
    return float(value)


def _amount(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NANOS_LIMIT:
        raise ValueError("an invalid amount")
    return value
