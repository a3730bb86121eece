"""The real figures of the year: hours of electricity, and logs of work. See data/."""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from federation.clocks import UtcS

DATA: Final = Path(__file__).parent / "data"
BEGIN_S: Final = UtcS(1_672_531_200.0)  # 2023-01-01 00:00 UTC
HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S
YEAR_DAYS: Final = 365
USD_PER_EUR: Final = 1.08  # the mean of 2023, by the reference rates of the European Central Bank


@dataclass(frozen=True, slots=True)
class Electricity:
    """A zone's electricity by the hour of 2023: US dollars and grams of CO2e a kilowatt-hour."""

    usd_per_kwh: tuple[float, ...]
    g_per_kwh: tuple[float, ...]

    def hour(self, passed_s: float) -> int:
        """Return the index of the hour so long after the year began; later times have its last."""
        return min(int(passed_s // HOUR_S), len(self.g_per_kwh) - 1)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A job of a log: its submission, duration, number of processors and user."""

    at_s: float  # from the beginning of the log
    run_s: float
    slots: int
    user: str


@dataclass(frozen=True, slots=True)
class Log:
    """A log, of whole weeks.

    Attributes:
        begins_s: seconds from a Monday 00:00, by the clocks of its place, to its beginning.
        weeks: that are used of it; later jobs are left out.
    """

    entries: tuple[LogEntry, ...]
    begins_s: float
    weeks: int


@cache
def electricity(zone: str) -> Electricity:
    """Read a zone: "gb", "de" or "ny". An hour without a price has the next one's."""
    money = "ny_usd_per_mwh" if zone == "ny" else f"{zone}_eur_per_mwh"
    rate = 1.0 if zone == "ny" else USD_PER_EUR
    rows = _rows("energy_2023.csv.gz")
    prices: list[float] = []
    known = 0.0
    for row in reversed(rows):
        known = float(row[money]) if row[money] else known
        prices.append(known * rate / 1000)
    grams = tuple(float(row[f"{zone}_g_per_kwh"]) for row in rows)
    return Electricity(tuple(reversed(prices)), grams)


@cache
def log(name: str) -> Log:
    """Read a log: "nasa" or "hpc2n"."""
    # They begin on a Friday at 00:00:03, and on a Sunday at 09:04:05: see the files themselves.
    begins_s, weeks = {"nasa": (4 * DAY_S + 3, 13), "hpc2n": (6 * DAY_S + 32_645, 8)}[name]
    entries: list[LogEntry] = []
    at_s = 0.0
    for row in _rows(f"{name}.csv.gz"):
        at_s += float(row["after_s"])
        if at_s < weeks * WEEK_S:
            entries.append(LogEntry(at_s, float(row["run_s"]), int(row["slots"]), row["user"]))
    return Log(tuple(entries), begins_s, weeks)


def _rows(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
