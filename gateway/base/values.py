"""Configuration values: checked numbers, words and durations; an error names the key."""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

_LENGTH: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])", re.ASCII)
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MEMORY_BYTES_MIN: Final = 64 << 20  # per slot: Python and our slot process alone take half of that
T = TypeVar("T")


class ConfigError(Exception):
    """A configuration that can't be used; the text names the file and the key."""


class KnobError(Exception):
    """An invalid value of a key. The text names the key and the valid values."""


def guarded(key: str, read: Callable[[], T]) -> T:
    """Call a reader and return its result; an error gets the key as a prefix."""
    try:
        return read()
    except (KnobError, ValueError) as error:
        raise KnobError(f"{key}: {error}") from None


def check_known(table: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an unknown key."""
    names = set(known)
    for key in table:
        if key not in names:
            raise KnobError(f"unknown key {key!r}; known keys: {', '.join(sorted(names))}")


def show(bound: float) -> str:
    """Format a bound as a configuration could contain it: 0.05, or 1_000_000."""
    if abs(bound) < 1_000_000:
        return f"{bound:g}"
    return f"{bound:_.0f}"


def number(key: str, value: Any, low: float, high: float) -> int | float:
    """Return a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KnobError(f"{key} must be a number")
    if not low <= value <= high:
        raise KnobError(f"{key} is {value}: it must be {show(low)} to {show(high)}")
    return value


def read_length(text: str) -> float:
    """Parse a length of time, "90s", "30m", "24h" or "7d", to seconds. Raises ValueError."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a length of time: write 30s, 30m, 24h or 7d")
    return float(match[1]) * _UNITS_S[match[2]]


def length_s(key: str, value: Any, low: str, high: str) -> float:
    """Return a length of time from `low` to `high`, in seconds."""
    if not isinstance(value, str):
        raise KnobError(f'{key} must be a length of time, as in "30s" or "7d"')
    try:
        found = read_length(value)
    except ValueError as error:
        raise KnobError(f"{key}: {error}") from None
    if not read_length(low) <= found <= read_length(high):
        raise KnobError(f"{key} is {value}: it must be {low} to {high}")
    return found


def count(key: str, value: Any, low: float = 1, high: float = 10**6) -> int:
    """Return a whole number from `low` to `high`."""
    given = number(key, value, low, high)
    if given != int(given):
        raise KnobError(f"{key} is {value}: it must be a whole number")
    return int(given)


def flag(key: str, value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise KnobError(f"{key} must be true or false")
    return value


def choice(key: str, value: Any, known: Collection[str]) -> str:
    """Return one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise KnobError(f"{key} is {value!r:.60}: it must be one of {', '.join(known)}")
    return value
