"""A series of intensities by the hour: read from a CSV file, looked up by the time. UTC alone."""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from federation.clocks import CALENDAR_END_S, UtcS
from federation.errors import GridError
from federation.files import read_regular
from federation.messages.adverts import Outlook
from federation.words import clean
from gateway.config.carbon import SeriesConfig
from policies.costs.carbon import Intensity, mg_per_kwh
from policies.placement.outlook import HORIZON_S, outlook

ROWS_MAX: Final = 500_000  # fifty years
SERIES_BYTES_MAX: Final = 256 << 20  # other columns count, too
NAME_CHARS_MAX: Final = 100
HOUR_S: Final = 3_600


class IntensitySeries:
    """Intensities by the hour.

    An hour that the file leaves out, or leaves empty, is not known. Outside of the file's span
    nothing is known, unless the series `repeats`: then the same hour of the same day of the latest
    year that has it counts (of 28 February, where no year has a 29th), and the source says so.

    Args:
        name: of its file.
        hours: milligrams a kilowatt-hour, by hours since 1970.
    """

    def __init__(self, name: str, hours: dict[int, int], *, repeats: bool) -> None:
        self.name = name
        self._hours = hours
        self._first, self._last = min(hours), max(hours)
        self._year: dict[tuple[int, int, int], int] = {}
        for hour in sorted(hours) if repeats else ():
            self._year[_of_year(hour)] = hours[hour]
        self._ahead: tuple[int, Outlook | None] = -1, None

    def at(self, utc_s: UtcS) -> Intensity | None:
        """Return the intensity of an hour; None: it is not known."""
        hour = int(utc_s // HOUR_S)
        found = self._of(hour)
        if found is None:
            return None
        is_own = self._first <= hour <= self._last
        return Intensity(found, f"series {self.name}" + ("" if is_own else " repeated"))

    def ahead(self, utc_s: UtcS) -> Outlook | None:
        """Return the intensities of the hours after this one, up to the first that is missing."""
        now = int(utc_s // HOUR_S)
        if self._ahead[0] != now:
            hours = range(now + 1, now + 1 + int(HORIZON_S // HOUR_S))
            known = [
                (UtcS(hour * HOUR_S), mg) for hour in hours if (mg := self._of(hour)) is not None
            ]
            self._ahead = now, outlook(known, utc_s, HOUR_S)
        return self._ahead[1]

    def _of(self, hour: int) -> int | None:
        """Return the milligrams a kilowatt-hour of an hour since 1970."""
        if self._first <= hour <= self._last:
            return self._hours.get(hour)
        month, day, hour_of_day = _of_year(hour)
        found = self._year.get((month, day, hour_of_day))
        if found is None and (month, day) == (2, 29):
            found = self._year.get((2, 28, hour_of_day))
        return found


def read_series(config: SeriesConfig) -> IntensitySeries:
    """Read a series; GridError names the file and the line of a mistake."""
    path = Path(config.file).expanduser()
    name = clean(path.name)[:NAME_CHARS_MAX]
    try:
        text = read_regular(path, SERIES_BYTES_MAX).decode("utf-8-sig")
    except OSError as error:
        raise GridError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GridError(f"can't read {path}: it is not UTF-8 text") from None
    lines = io.StringIO(text, newline="")
    return IntensitySeries(name, _read(path, lines, config), repeats=config.repeats)


def _read(path: Path, lines: Iterable[str], config: SeriesConfig) -> dict[int, int]:
    rows = csv.reader(lines, strict=True)
    hours: dict[int, int] = {}
    try:
        header = next(rows, [])
        columns = [_column(header, name) for name in (config.hour, config.value)]
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{len(row)} cells, but {len(header)} columns")
            hour_text, value_text = (row[column].strip() for column in columns)
            hour = _hour(hour_text)
            if hour in hours or len(hours) >= ROWS_MAX:
                raise ValueError(f"{hour_text} is repeated, or there are over {ROWS_MAX:,} hours")
            if value_text:  # empty: not published
                hours[hour] = mg_per_kwh(value_text)
    except UnicodeDecodeError:
        raise GridError(f"{path} is not UTF-8 text") from None
    except (ValueError, csv.Error) as error:
        raise GridError(f"{path}, line {max(1, rows.line_num)}: {error}") from None
    if not hours:
        raise GridError(f"{path}: no intensity found")
    return hours


def _column(header: list[str], name: str) -> int:
    names = [each.strip() for each in header]
    if names.count(name) != 1:
        raise ValueError(
            f"one column {name!r} is required; the columns are {', '.join(names)[:200]}"
        )
    return names.index(name)


def _hour(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time, as in 2026-11-22T10:00Z") from None
    if not 0 <= seconds < float(CALENDAR_END_S):
        raise ValueError(f"{text[:40]} is before 1970 or after 9999, UTC")
    if seconds % HOUR_S:
        raise ValueError(f"{text} is not a full hour, UTC")
    return int(seconds // HOUR_S)


def _of_year(hour: int) -> tuple[int, int, int]:
    at = datetime.fromtimestamp(hour * HOUR_S, UTC)
    return at.month, at.day, at.hour
