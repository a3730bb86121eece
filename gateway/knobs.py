"""Knobs of a configuration's tables: a number within its bounds, or an error that names the key."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

MEMORY_BYTES_MIN: Final = 64 << 20  # of a slot: Python and our slot alone take half of that
T = TypeVar("T")


class ConfigError(Exception):
    """A configuration that can't be used; the text names the file and the key."""


class KnobError(Exception):
    """A key that can't be used. The text names it and says what it must be."""


def guarded(key: str, read: Callable[[], T]) -> T:
    """What a reader returns; what it objects to, with the key."""
    try:
        return read()
    except (KnobError, ValueError) as error:
        raise KnobError(f"{key}: {error}") from None


def check_known(table: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a key that there is not."""
    names = set(known)
    for key in table:
        if key not in names:
            raise KnobError(f"has no key {key!r}; there are {', '.join(sorted(names))}")


def number(key: str, value: Any, low: float, high: float) -> int | float:
    """A number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KnobError(f"{key} must be a number")
    if not low <= value <= high:
        raise KnobError(f"{key} is {value}: it must be {low:g} to {high:g}")
    return value


def count(key: str, value: Any, low: float = 1, high: float = 10**6) -> int:
    """A whole number from `low` to `high`."""
    given = number(key, value, low, high)
    if given != int(given):
        raise KnobError(f"{key} is {value}: it must be a whole number")
    return int(given)
