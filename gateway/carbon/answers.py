"""What a source on the net answers: an intensity, and its time. Pure; nothing in it is trusted."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gateway.carbon.config import HttpConfig
from policies.carbon import mg_per_kwh

AHEAD_MAX_S: Final = 3_600.0  # of our clock: what is said of later is a forecast
ETAG_CHARS_MAX: Final = 200


class BadAnswer(Exception):
    """An answer that can't be used. The text says why, and nothing of what it held."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was answered last.

    Attributes:
        as_of_s: UTC; when it held, as the answer says, or else when it came.
        checked_s: UTC; when it was last asked for.
        etag: by which the source knows it again; empty: it has none.
    """

    mg_per_kwh: int
    as_of_s: float
    checked_s: float
    etag: str = ""


def read_answer(config: HttpConfig, body: bytes, etag: str, utc_s: float) -> Reading:
    """Read an answer; BadAnswer."""
    try:
        document = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadAnswer("it is not JSON") from None
    found = [_at(document, path) for path in config.value]
    value = next((each for each in found if each is not None), None)
    if type(value) not in (int, float):
        raise BadAnswer(f"there is no number at {' or '.join(config.value)[:200]}")
    try:
        intensity = mg_per_kwh(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise BadAnswer(f"an intensity that can't be: {error}") from None
    as_of_s = _time(_at(document, config.time), utc_s) if config.time else utc_s
    is_usable = len(etag) <= ETAG_CHARS_MAX and etag.isascii() and etag.isprintable()
    return Reading(intensity, as_of_s, utc_s, etag if is_usable else "")


def _at(document: Any, path: str) -> Any:
    """The value at a path; None where there is none."""
    for step in path.split("."):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


def _time(value: Any, utc_s: float) -> float:
    try:
        at = datetime.fromisoformat(value)
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise BadAnswer("its time is none") from None
    if not 0 <= seconds <= utc_s + AHEAD_MAX_S:
        raise BadAnswer("its time lies ahead, or long ago")
    return min(seconds, utc_s)


def _refuse(text: str) -> Any:
    raise ValueError(text)  # NaN and the infinities, which JSON has not
