"""Checks the answers of a grid: an adapter may be a third party's, and may be wrong. Pure.

An invalid answer is the grid's fault like any other: nothing is done because of it, and the
operator reads the reason.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NoReturn

from federation.money import NANOS_LIMIT, check_currency
from federation.words import clean
from gateway.config.scale import PILOT_SLOTS_MAX, SLOTS_MAX
from gateway.grids.contract import Capacity, FailureClass, GridFault, Limits, PilotState, Sighting

SHOWN_MAX: Final = 2 * SLOTS_MAX  # pilots: the largest number alive, and as many ended ones
PRICE_NANOS_MAX: Final = NANOS_LIMIT // 1_000  # of a slot-hour; leaves room for a factor
TEXT_CHARS_MAX: Final = 256  # of a pilot's name, and of the grid's name for it


def checked(what: str, found: Any) -> Any:
    """Return a grid's answer to a question if it is valid. Raises GridFault."""
    try:
        match what:
            case "pilots":
                return _sightings(found)
            case "limits":
                return _limits(found)
            case "capacity":
                return _capacity(found)
            case "prices":
                return _price(found)
            case "leaving":
                return _leaving(found)
            case _:
                return found if isinstance(found, str) else _wrong("text", found)
    except ValueError as error:
        raise GridFault(
            FailureClass.NEVER, f"the answer of the adapter is invalid: {error}"
        ) from None


def _sightings(found: Any) -> Sequence[Sighting]:
    if not isinstance(found, list | tuple):
        _wrong("a list of Sighting", found)
    if len(found) > SHOWN_MAX:
        raise ValueError(f"{len(found)} pilots, the limit is {SHOWN_MAX}")
    for each in found:
        if not isinstance(each, Sighting):
            _wrong("a list of Sighting", each)
        for text in (each.name, each.grid_id):
            if not isinstance(text, str) or len(text) > TEXT_CHARS_MAX or not text.isprintable():
                _wrong(f"a name of at most {TEXT_CHARS_MAX} printable characters", text)
        if not isinstance(each.state, PilotState) or not isinstance(each.fault, str):
            _wrong("a PilotState and a fault as text", (each.state, each.fault))
        least = 0 if each.state is PilotState.ENDED else 1
        _count(f"slots of pilot {each.name}", each.slots, least, PILOT_SLOTS_MAX)
        for moment_s in (each.paid_at_s, each.begins_at_s, each.ends_at_s):
            _moment(f"of pilot {each.name}", moment_s)
    return found


def _leaving(found: Any) -> Mapping[str, str]:
    if not isinstance(found, Mapping):
        _wrong("a mapping of pilots to reasons", found)
    if len(found) > SHOWN_MAX:
        raise ValueError(f"{len(found)} pilots, the limit is {SHOWN_MAX}")
    for name, why in found.items():
        if not isinstance(name, str) or not isinstance(why, str):
            _wrong("a pilot's name and a reason as text", (name, why))
    return {name: clean(why[:TEXT_CHARS_MAX]) for name, why in found.items()}


def _limits(found: Any) -> Limits:
    if not isinstance(found, Limits):
        _wrong("Limits", found)
    _count("pilots_max", found.pilots_max, 1)
    _count("orders_max", found.orders_max, 0)
    _moment("limit_s", found.limit_s)
    if found.limit_s is not None and found.limit_s <= 0:
        raise ValueError(f"limit_s is {found.limit_s!r:.60}: must be greater than zero")
    if found.pilots_left is not None:
        _count("pilots_left", found.pilots_left, 0)
    return found


def _capacity(found: Any) -> Capacity:
    if not isinstance(found, Capacity):
        _wrong("Capacity", found)
    _count("slots_now", found.slots_now, 0)
    if found.slots_max is not None:
        _count("slots_max", found.slots_max, 0)
    _moment("begins_at_s", found.begins_at_s)
    return found


def _price(found: Any) -> tuple[int, str] | None:
    if found is None:
        return None
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], str):
        _wrong("a price: nano-units and a currency", found)
    nanos, currency = found
    _count("a price", nanos, 0, PRICE_NANOS_MAX)
    check_currency(currency)
    return nanos, currency


def _count(what: str, value: Any, least: int, most: int | None = None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        upper = "" if most is None else f" to {most}"
        raise ValueError(f"{what} is {value!r:.60}: must be a whole number from {least}{upper}")


def _moment(what: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and isfinite(value)):
        raise ValueError(f"the time {what} is {value!r:.60}: must be seconds, or None")


def _wrong(expected: str, value: Any) -> NoReturn:
    raise ValueError(f"{value!r:.60} is not {expected}")
