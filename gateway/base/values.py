"""Configuration values: checked numbers, words and durations; an error names the key."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any, Final, TypeVar

from federation.words import no_unit, read_length, read_size, size_text

_PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%", re.ASCII)
# The ends of keys that are lengths of time, and their units.
_KEYS_S: Final = {"_s": 1.0, "hours": 3600.0, "_days": 86400.0}
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MEMORY_BYTES_MIN: Final = 64 << 20  # per slot: Python and our slot process alone take half of that
TEXT_CHARS_MAX: Final = 4_096  # of a text with no bound of its own: a path, an address
WORKER_SLOTS_MAX: Final = 4096  # of one worker, which has a process for each
T = TypeVar("T")


class ConfigError(Exception):
    """A configuration that can't be used; the text names the file and the key."""


class SettingError(Exception):
    """An invalid value of a key. The text names the key and the valid values."""


KnobError = SettingError  # the old name, for grids of third parties


def guarded(key: str, read: Callable[[], T]) -> T:
    """Call a reader and return its result; an error gets the key as a prefix."""
    try:
        return read()
    except (SettingError, ValueError) as error:
        raise SettingError(f"{key}: {error}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'that'?)" for the most similar of the known names; empty without."""
    found = difflib.get_close_matches(name[:100], list(known), 1, 0.7)
    return f" (did you mean {found[0]!r}?)" if found else ""


def unknown(key: str, known: Iterable[str]) -> str:
    """Return the text about a key that is not among the known ones."""
    names = sorted(known)
    return f"unknown key {key!r}{suggest(key, names)}; known keys: {', '.join(names)}"


def check_known(table: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an unknown key."""
    names = set(known)
    for key in table:
        if key not in names:
            raise SettingError(unknown(key, names))


def show(bound: float) -> str:
    """Format a bound as a configuration could contain it: 0.05, or 1_000_000."""
    if abs(bound) < 1_000_000:
        return f"{bound:g}"
    return f"{bound:_.0f}"


def show_length(seconds: float) -> str:
    """Format a length of time as people write it, exactly: 0.05s, 90s, 30m, 24h, 7d."""
    for unit, unit_s in reversed(_UNITS_S.items()):
        if seconds and seconds % unit_s == 0:
            return f"{seconds / unit_s:,.0f}{unit}"
    return f"{seconds:g}s"


def _unit_of(key: str) -> float | None:
    """Return the seconds of the unit that a key names; None if it is no length of time."""
    if key.endswith("_per_s"):  # a rate
        return None
    return next((each_s for end, each_s in _KEYS_S.items() if key.endswith(end)), None)


def number(key: str, value: Any, low: float, high: float) -> int | float:
    """Return a number from `low` to `high`, in the unit that the key names.

    A key that ends in _s, _hours or _days takes a length of time too, as in "10s" or "04:00:00";
    one that ends in percent takes "10%".
    """
    unit_s, given = _unit_of(key), value
    if isinstance(value, str) and unit_s is not None and value.strip():
        given = guarded(key, lambda: read_length(value))
        given /= unit_s
    elif isinstance(value, str) and key.endswith("percent"):
        given = percent(value, value)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise SettingError(f"{key} must be a number")
    if not low <= given <= high:
        if unit_s == 1.0:
            bounds = f"{show_length(low)} to {show_length(high)}"
        else:
            unit = "" if unit_s is None else f" {key[-len('hours') :].lstrip('_')}"
            bounds = f"{show(low)} to {show(high)}{unit}"
        raise SettingError(f"{key} is {value}: it must be {bounds}")
    return given


def percent(text: str, otherwise: Any) -> Any:
    """Return 12.5 for "12.5%"; another text is returned as `otherwise`."""
    match = _PERCENT.fullmatch(text.strip())
    return otherwise if match is None else float(match[1])


def share(key: str, value: Any, low: float, high: float) -> float:
    """Return a share or factor from `low` to `high`: 0.5, or the same as "50%"."""
    given = value
    if isinstance(value, str):
        given = percent(value, value)
        if isinstance(given, str):
            raise SettingError(f'{key} must be a number such as 0.5, or a share such as "50%"')
        given = float(Decimal(str(given)) / 100)
    return number(key, given, low, high)


def size(key: str, value: Any, low: int, high: int) -> int:
    """Return a size in bytes, from `low` to `high`: a whole number, or text like "4 GiB"."""
    if not isinstance(value, str):
        given = count(key, value, 0, 1 << 62)
        if not low <= given <= high:
            raise SettingError(
                f"{key} is {value}, {size_text(given)}: it must be {size_text(low)} to "
                f"{size_text(high)}"
            )
        return given
    found = guarded(key, lambda: read_size(value))
    if not low <= found <= high:
        raise SettingError(f"{key} is {value}: it must be {size_text(low)} to {size_text(high)}")
    return found


def length_s(key: str, value: Any, low: str, high: str) -> float:
    """Return a length of time from `low` to `high`, in seconds; a plain number is refused."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise SettingError(f"{key}: {no_unit(f'{value:.12g}')}")
    if not isinstance(value, str):
        raise SettingError(f'{key} must be a length of time, as in "30s" or "7d"')
    try:
        found = read_length(value)
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from None
    if not read_length(low) <= found <= read_length(high):
        raise SettingError(f"{key} is {value}: it must be {low} to {high}")
    return found


def count(key: str, value: Any, low: float = 1, high: float = 10**6) -> int:
    """Return a whole number from `low` to `high`."""
    given = number(key, value, low, high)
    if given != int(given):
        raise SettingError(f"{key} is {value}: it must be a whole number")
    return int(given)


def flag(key: str, value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise SettingError(f"{key} must be true or false")
    return value


def text_of(
    key: str, value: Any, most: int = TEXT_CHARS_MAX, *, least: int = 0, is_printable: bool = True
) -> str:
    """Return a text of `least` to `most` characters. Raises SettingError, which names the key."""
    if not isinstance(value, str) or not least <= len(value) <= most:
        length = f"up to {most:,}" if not least else f"{least:,} to {most:,}"
        raise SettingError(f"{key} must be text of {length} characters")
    if is_printable and value and not value.isprintable():
        raise SettingError(f"{key} has unprintable characters")
    return value


def choice(key: str, value: Any, known: Collection[str]) -> str:
    """Return one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"{key} is {value!r:.60}: it must be one of {', '.join(known)}")
    return value
