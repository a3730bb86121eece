"""EMI Compute Accounting Record 1.2 (CAR), which APEL's servers load: runs and refunds. Pure.

Source: the records that APEL loads and ARC sends (apel/apel, nordugrid/arc on GitHub); its schema
was not available. The elements that APEL's loader requires are always present.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from federation.money import format_amount
from gateway.ledger.exports.benchmark import Benchmark
from gateway.ledger.exports.rows import UsageRun
from gateway.ledger.exports.texts import duration, moment
from gateway.ledger.exports.xml import (
    add,
    add_identity,
    add_if,
    document,
    element,
    global_user,
    status,
)

NAMESPACE: Final = "http://eu-emi.eu/namespaces/2012/11/computerecord"
UNKNOWN: Final = "unknown"  # for a required element without a value
MIDDLEWARE: Final = "gridfed"
_BYTES_PER_KB: Final = 1024

# APEL's value for a slot whose speed was not measured.
UNMEASURED: Final = Benchmark("custom", "1.0")


def computing_records(
    site: str, runs: Iterable[UsageRun], benchmark: Benchmark | None = None
) -> Iterator[str]:
    """Yield a document of a site's runs and refunds, a record at a time."""
    return document(NAMESPACE, (_record(site, run, benchmark or UNMEASURED) for run in runs))


def _record(site: str, run: UsageRun, benchmark: Benchmark) -> Element:
    """Return the record of a run. The order of the elements is ARC's, and APEL's own."""
    record = element("UsageRecord")
    add_identity(record, site, run, moment(run.ended_at_s))
    user = add(record, "UserIdentity")
    add_if(user, "GlobalUserName", global_user(site, run))
    add_if(user, "Group", run.project)
    add_if(user, "GroupAttribute", run.group, type="vo-group")
    add_if(user, "GroupAttribute", run.project, type="ProjectName")
    add(user, "LocalUserId", run.user or UNKNOWN)
    add_if(record, "JobName", run.name)
    add(record, "Charge", format_amount(run.cost_nanos), unit=run.currency)
    add(record, "Status", status(run))
    infrastructure = "grid" if run.origin else "local"
    add(record, "Infrastructure", type=infrastructure, description=MIDDLEWARE.upper())
    add(record, "Middleware", name=MIDDLEWARE, version="1", description=MIDDLEWARE)
    add(record, "WallDuration", duration(run.wall_ns))
    add(record, "CpuDuration", duration(run.cpu_ns), usageType="all")
    add(record, "ServiceLevel", benchmark.value, type=benchmark.kind)
    if run.peak_memory_bytes:
        kilobytes = str(-(-run.peak_memory_bytes // _BYTES_PER_KB))
        add(record, "Memory", kilobytes, type="Physical", metric="max", storageUnit="KB")
    add(record, "NodeCount", "1")
    add(record, "EndTime", moment(run.ended_at_s))
    add(record, "StartTime", moment(run.started_at_s))
    add(record, "MachineName", run.site or site)
    add(record, "SubmitHost", run.origin or site)
    add(record, "Queue", run.pool or UNKNOWN, description="execution")
    add(record, "Site", run.site or site, type=MIDDLEWARE)
    add_if(record, "Host", run.worker, primary="true")
    return record
