"""APEL's text messages: single jobs, monthly sums, and counts of jobs. Pure.

Source: apel/apel on GitHub (apel/db/records, apel/db/__init__.py). A message is a header and
records of lines `Key: value`, each record ended by a line `%%`.

An APEL job is a run of ours: the tasks [first, first + tasks) of a job, in one slot.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.exports.benchmark import Benchmark
from gateway.ledger.exports.rows import Hour, UsageRun
from gateway.ledger.exports.texts import apel, month_of, seconds, user_at
from gateway.ledger.exports.xml import global_user, local_job

JOB_HEADER: Final = "APEL-individual-job-message: v0.3"
SUMMARY_HEADER: Final = "APEL-summary-job-message: v0.2"
SYNC_HEADER: Final = "APEL-sync-message: v0.1"
_END: Final = "%%\n"
_BYTES_PER_KB: Final = 1024
_DESCRIPTION: Final = "GRIDFED"

_Fields = Iterable[tuple[str, str | int]]


def job_messages(
    site: str, runs: Iterable[UsageRun], benchmark: Benchmark | None = None
) -> Iterator[str]:
    """Yield a message of a site's runs, a record at a time."""
    yield f"{JOB_HEADER}\n"
    for run in runs:
        fields: _Fields = (
            ("Site", run.site or site),
            ("SubmitHost", run.origin or site),
            ("MachineName", run.site or site),
            ("Queue", run.pool),
            ("LocalJobId", local_job(run)),
            ("LocalUserId", run.user),
            ("GlobalUserName", global_user(site, run)),
            ("VO", run.project),
            ("VOGroup", run.group),
            ("WallDuration", seconds(run.wall_ns)),
            ("CpuDuration", seconds(run.cpu_ns)),
            ("NodeCount", 1),
            ("StartTime", int(run.started_at_s)),
            ("EndTime", int(run.ended_at_s)),
            ("InfrastructureDescription", _DESCRIPTION),
            ("InfrastructureType", _infrastructure(run.origin)),
            ("MemoryReal", -(-run.peak_memory_bytes // _BYTES_PER_KB) or ""),
            *_service_level(benchmark),
        )
        yield _record(fields)


@dataclass(frozen=True, slots=True, order=True)
class _Month:
    """The key of a monthly sum, in the order of output."""

    year: int
    month: int
    site: str
    origin: str
    user: str
    project: str
    group: str


@dataclass(slots=True)
class _Sum:
    """The sum of a month; its first and last hour, counted from 1970."""

    first_hour: int
    last_hour: int
    records: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0

    def add(self, hour: Hour) -> None:
        """Add an hour to the sum; hours come in order."""
        self.last_hour = hour.hour
        self.records += hour.records
        self.wall_ns += hour.wall_ns
        self.cpu_ns += hour.cpu_ns


def summary_messages(
    site: str, hours: Iterable[Hour], benchmark: Benchmark | None = None
) -> Iterator[str]:
    """Yield a message of usage by month, user, project and group.

    Durations are rounded to the second after they are summed up. Hours must come in order; one
    month is held in memory at a time.
    """
    yield f"{SUMMARY_HEADER}\n"
    for key, found in _months(site, hours):
        fields: _Fields = (
            ("Site", key.site),
            ("Month", key.month),
            ("Year", key.year),
            ("GlobalUserName", user_at(key.user, key.origin)),
            ("VO", key.project),
            ("VOGroup", key.group),
            ("SubmitHost", key.origin),
            ("InfrastructureType", _infrastructure(key.origin, site)),
            ("InfrastructureDescription", _DESCRIPTION),
            *_service_level(benchmark),
            ("NodeCount", 1),
            # Hourly sums only bound the times: not after the first end, not before the last.
            ("EarliestEndTime", found.first_hour * HOUR_S),
            ("LatestEndTime", (found.last_hour + 1) * HOUR_S - 1),
            ("WallDuration", seconds(found.wall_ns)),
            ("CpuDuration", seconds(found.cpu_ns)),
            ("NumberOfJobs", found.records),
        )
        yield _record(fields)


def sync_messages(site: str, hours: Iterable[Hour]) -> Iterator[str]:
    """Yield a message of the number of runs by month and origin host.

    A receiver of the single jobs compares the counts: a difference shows lost records.
    """
    yield f"{SYNC_HEADER}\n"
    counted: dict[tuple[int, int, str, str], int] = {}
    for key, found in _months(site, hours):
        place = (key.year, key.month, key.site, key.origin)
        counted[place] = counted.get(place, 0) + found.records
    for (year, month, exec_site, origin), records in counted.items():
        fields: _Fields = (
            ("Site", exec_site),
            ("SubmitHost", origin),
            ("NumberOfJobs", records),
            ("Month", month),
            ("Year", year),
        )
        yield _record(fields)


def _months(site: str, hours: Iterable[Hour]) -> Iterator[tuple[_Month, _Sum]]:
    sums: dict[_Month, _Sum] = {}
    at: tuple[int, int] | None = None
    for hour in hours:
        month = month_of(hour.hour)
        if month != at:
            yield from sorted(sums.items(), key=_key)
            sums, at = {}, month
        key = _Month(
            *month,
            hour.site or site,
            hour.origin or site,
            hour.user,
            hour.project,
            hour.group,
        )
        found = sums.get(key)
        if found is None:
            found = sums[key] = _Sum(hour.hour, hour.hour)
        found.add(hour)
    yield from sorted(sums.items(), key=_key)


def _key(item: tuple[_Month, _Sum]) -> _Month:
    return item[0]


def _infrastructure(origin: str, site: str = "") -> str:
    """Return APEL's term: "grid" for work of another site, "local" for a user of this site."""
    return "grid" if origin not in ("", site) else "local"


def _service_level(benchmark: Benchmark | None) -> _Fields:
    # Both or neither: without them APEL writes "custom" and 1.
    if benchmark is None:
        return ()
    return (("ServiceLevelType", benchmark.kind), ("ServiceLevel", benchmark.value))


def _record(fields: _Fields) -> str:
    """Return the lines of a record. A field without a value is left out; APEL reads it as null."""
    lines = (
        f"{name}: {apel(value) if isinstance(value, str) else value}\n"
        for name, value in fields
        if value != ""
    )
    return "".join(lines) + _END
