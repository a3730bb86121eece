"""The latest answer of a source, on disk: a gateway that restarts need not ask at once."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from federation.clocks import UtcS
from gateway.carbon.answers import (
    AHEAD_MAX_S,
    ENTRIES_MAX,
    ETAG_CHARS_MAX,
    FORESEEN_MAX_S,
    Foreseen,
    Reading,
)
from policies.costs.carbon import INTENSITY_MAX_MG_PER_KWH

SIZE_MAX: Final = 1 << 16

T = TypeVar("T", bound=Reading | Foreseen)


class Cache(Generic[T]):
    """One file for each source, named by a digest: there may be a key in the URL.

    Args:
        what: the settings that its content depends on: other settings have another file.
        make: makes an answer from its stored fields; ValueError or TypeError when it can't be
            believed at that moment, UTC.
    """

    def __init__(
        self, folder: Path, what: Sequence[object], make: Callable[[dict[str, Any], UtcS], T]
    ) -> None:
        digest = sha256(json.dumps(what).encode()).hexdigest()
        self._path = folder / f"{digest[:32]}.json"
        self._make = make

    def read(self, utc_s: UtcS) -> T | None:
        """Return the stored answer; None when there is none, or it can't be believed."""
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(SIZE_MAX))
            return self._make(found, utc_s)
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def write(self, found: T) -> None:
        """Store an answer; OSError. A reader meanwhile finds the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(found)))
        os.replace(draft, self._path)


def reading_of(fields: dict[str, Any], utc_s: UtcS) -> Reading:
    """Return a stored reading; see Cache."""
    found = Reading(**fields)
    _check_mark(found, utc_s)
    _check_time(found.as_of_s, utc_s + AHEAD_MAX_S)
    _check_intensity(found.mg_per_kwh)
    return found


def foreseen_of(fields: dict[str, Any], utc_s: UtcS) -> Foreseen:
    """Return a stored forecast; see Cache."""
    found = Foreseen(**{**fields, "steps": tuple((at, mg) for at, mg in fields.get("steps", ()))})
    _check_mark(found, utc_s)
    for at, mg in found.steps:
        _check_time(at, utc_s + FORESEEN_MAX_S)
        _check_intensity(mg)
    if len(found.steps) > ENTRIES_MAX or list(found.steps) != sorted(dict(found.steps).items()):
        raise ValueError("too many steps, or steps out of order")
    return found


def _check_mark(found: Reading | Foreseen, utc_s: UtcS) -> None:
    # After a clock error it would be fresh for ever.
    _check_time(found.checked_s, utc_s + AHEAD_MAX_S)
    etag = found.etag
    if type(etag) is not str or len(etag) > ETAG_CHARS_MAX:
        raise ValueError("the entity tag is not text, or too long")
    if not etag.isascii() or not etag.isprintable():
        raise ValueError("the entity tag is not printable ASCII")


def _check_time(seconds: object, most: UtcS) -> None:
    if type(seconds) not in (int, float) or not 0 <= seconds <= float(most):  # type: ignore[operator]
        raise ValueError("the time is out of range")


def _check_intensity(mg: object) -> None:
    if type(mg) is not int or not 0 <= mg <= INTENSITY_MAX_MG_PER_KWH:
        raise ValueError("the intensity is out of range")
