"""Answers of a source on the net: an intensity and its time, or a forecast.

Pure; nothing in an answer is trusted.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from federation.clocks import UtcS
from gateway.config.carbon import ForecastConfig, HttpConfig
from policies.costs.carbon import mg_per_kwh

AHEAD_MAX_S: Final = 3_600.0  # of this site's clock: values for later times are a forecast
ETAG_CHARS_MAX: Final = 200
# Of a forecast: so many entries are looked at, three days by five minutes and more, and values for
# so long after now are left out.
ENTRIES_MAX: Final = 1_000
FORESEEN_MAX_S: Final = 8 * 86_400.0


class BadAnswer(Exception):
    """An answer that can't be used. The text says why, and nothing of the answer's content."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The latest answer.

    Attributes:
        as_of_s: UTC; the time of the value by the answer, or else when the answer came.
        checked_s: UTC; the time of the latest request.
        etag: the source's mark of the answer; empty: it has none.
    """

    mg_per_kwh: int
    as_of_s: UtcS
    checked_s: UtcS
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The latest forecast.

    Attributes:
        steps: from when (UTC), and milligrams a kilowatt-hour from then on; in order.
        checked_s: UTC; the time of the latest request.
        etag: the source's mark of the answer; empty: it has none.
    """

    steps: tuple[tuple[UtcS, int], ...]
    checked_s: UtcS
    etag: str = ""


def read_answer(config: HttpConfig, body: bytes, etag: str, utc_s: UtcS) -> Reading:
    """Read an answer; BadAnswer."""
    document = _document(body)
    intensity = _intensity(_value(document, config.value), config.value)
    as_of_s = _time(_at(document, config.time), utc_s) if config.time else utc_s
    return Reading(intensity, as_of_s, utc_s, _usable(etag))


def read_forecast(config: ForecastConfig, body: bytes, etag: str, utc_s: UtcS) -> Foreseen:
    """Read a forecast; BadAnswer. An unknown value of an hour may be null."""
    document = _document(body)
    entries = _at(document, config.entries) if config.entries else document
    if not isinstance(entries, list):
        raise BadAnswer(f"no list found at {config.entries[:200] or 'the top level'}")
    steps: dict[UtcS, int] = {}
    for entry in entries[:ENTRIES_MAX]:
        value = _value(entry, config.value)
        from_s = _seconds(_at(entry, config.time))
        if value is not None and from_s <= utc_s + FORESEEN_MAX_S:
            steps[from_s] = _intensity(value, config.value)
    if not steps:
        raise BadAnswer("its forecast has no intensity")
    return Foreseen(tuple(sorted(steps.items())), utc_s, _usable(etag))


def _document(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadAnswer("it is not JSON") from None


def _value(document: Any, paths: tuple[str, ...]) -> Any:
    """Return the value at the first of these paths that has one."""
    found = (_at(document, path) for path in paths)
    return next((each for each in found if each is not None), None)


def _intensity(value: Any, paths: tuple[str, ...]) -> int:
    if type(value) not in (int, float):
        raise BadAnswer(f"no number found at {' or '.join(paths)[:200]}")
    try:
        return mg_per_kwh(value)
    except ValueError as error:
        raise BadAnswer(f"invalid intensity: {error}") from None


def _usable(etag: str) -> str:
    is_usable = len(etag) <= ETAG_CHARS_MAX and etag.isascii() and etag.isprintable()
    return etag if is_usable else ""


def _at(document: Any, path: str) -> Any:
    """Return the value at a path; None where there is none."""
    for step in path.split("."):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


def _time(value: Any, utc_s: UtcS) -> UtcS:
    seconds = _seconds(value)
    if seconds > utc_s + AHEAD_MAX_S:
        raise BadAnswer("its time is in the future, or before 1970")
    return min(seconds, utc_s)


def _seconds(value: Any) -> UtcS:
    try:
        at = datetime.fromisoformat(value)
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise BadAnswer("its time is invalid") from None
    if seconds < 0:
        raise BadAnswer("its time is in the future, or before 1970")
    return UtcS(seconds)


def _refuse(text: str) -> Any:
    raise ValueError(text)  # NaN and the infinities, which JSON does not have
