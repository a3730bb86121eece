"""The last reading of a source, on disk: a gateway that starts again need not ask at once."""

import json
import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Final

from gateway.carbon.answers import AHEAD_MAX_S, ETAG_CHARS_MAX, Reading
from gateway.carbon.config import HttpConfig
from policies.carbon import INTENSITY_MAX_MG_PER_KWH

SIZE_MAX: Final = 4_096


class Cache:
    """One file for each source, named by a digest: there may be a key in the URL."""

    def __init__(self, folder: Path, config: HttpConfig) -> None:
        what = json.dumps([config.url, config.value, config.time])
        self._path = folder / f"{sha256(what.encode()).hexdigest()[:32]}.json"

    def read(self, utc_s: float) -> Reading | None:
        """What was kept; None when nothing was, or it can't be believed."""
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(SIZE_MAX))
            reading = Reading(**found)
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return reading if _is_sound(reading, utc_s) else None

    def write(self, reading: Reading) -> None:
        """Keep a reading; OSError. Whoever reads meanwhile finds the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(reading)))
        os.replace(draft, self._path)


def _is_sound(reading: Reading, utc_s: float) -> bool:
    times = reading.as_of_s, reading.checked_s
    return (
        type(reading.mg_per_kwh) is int
        and 0 <= reading.mg_per_kwh <= INTENSITY_MAX_MG_PER_KWH
        and all(type(each) in (int, float) for each in times)
        # Of a clock that went wrong: it would be fresh for ever.
        and all(0 <= each <= utc_s + AHEAD_MAX_S for each in times)
        and type(reading.etag) is str
        and len(reading.etag) <= ETAG_CHARS_MAX
        and reading.etag.isascii()
        and reading.etag.isprintable()
    )
