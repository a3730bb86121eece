"""Reads the details of a question or an order that a client sent. Pure.

Details are a mapping of plain values, of unknown types and sizes. Each reader returns a value of
its type within its bounds, or raises the error of its caller, whose text names the detail and what
is valid: `READ = DetailReader(BadOrder)`, then `READ.text(details, "site")`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.clocks import CALENDAR_END_S, UtcS

TEXT_CHARS_MAX: Final = 1_000
NAMES_MAX: Final = 10_000

Details = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DetailReader:
    """Readers of details.

    Attributes:
        error: raised for an invalid detail, with its text.
    """

    error: type[Exception]

    def text(
        self, details: Details, key: str, most: int = TEXT_CHARS_MAX, *, least: int = 1
    ) -> str:
        """Return a printable text of `least` to `most` characters; a missing one is empty."""
        value = details.get(key)
        if value is None and least:
            raise self.error(f"the detail {key} is missing")
        value = "" if value is None else value
        if type(value) is not str or not least <= len(value) <= most or not value.isprintable():
            bounds = f"{least} to {most:,}" if least else f"text of up to {most:,}"
            raise self.error(f"{key} must be {bounds} printable characters")
        return value

    def names(self, details: Details, key: str) -> list[str]:
        """Return a list of texts; a missing one is empty."""
        value = details.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(type(each) is str for each in value):
            raise self.error(f"{key} must be a list of names")
        if len(value) > NAMES_MAX:
            raise self.error(f"{key} has {len(value):,} names: at most {NAMES_MAX:,} are allowed")
        return value

    def flag(self, details: Details, key: str) -> bool:
        """Return true or false; a missing one is false."""
        return self.flag_or_none(details, key) or False

    def flag_or_none(self, details: Details, key: str) -> bool | None:
        """Return true or false; None if it is missing."""
        value = details.get(key)
        if value is not None and type(value) is not bool:
            raise self.error(f"{key} must be true or false")
        return value

    def whole(
        self, details: Details, key: str, least: int, most: int, default: int | None = None
    ) -> int:
        """Return a whole number within bounds; a missing one without a default is an error."""
        value: Any = details.get(key)
        value = default if value is None else value
        if type(value) is not int or not least <= value <= most:
            raise self.error(f"{key} must be a whole number, from {least:,} to {most:,}")
        return value

    def seconds(
        self, details: Details, key: str, most_s: float, default_s: float | None = None
    ) -> float:
        """Return a duration from 0 to `most_s`; a missing one without a default is an error."""
        value: Any = details.get(key)
        value = default_s if value is None else value
        if type(value) not in (int, float) or not 0 <= value <= most_s:
            raise self.error(f"{key} must be seconds, from 0 to {most_s:,.0f}")
        return float(value)

    def time(self, details: Details, key: str) -> UtcS | None:
        """Return an instant, UTC; None if it is missing."""
        value: Any = details.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value < float(CALENDAR_END_S):
            raise self.error(f"{key} must be a time in seconds since 1970, UTC")
        return UtcS(value)
