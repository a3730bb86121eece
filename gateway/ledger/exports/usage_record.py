"""OGF Usage Record 1.0 (GFD.98), as SGAS and others load it: runs and refunds. Pure.

Source: GFD.98 and its XML schema. Usage Record 2.0 (GFD.204) is not written: no public source names
its elements, and no reader of it is known.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from federation.money import format_amount
from gateway.ledger.exports.rows import REFUND, UsageRun
from gateway.ledger.exports.texts import duration, moment
from gateway.ledger.exports.xml import (
    add,
    add_host,
    add_identity,
    add_if,
    document,
    element,
    global_user,
    status,
)

NAMESPACE: Final = "http://schema.ogf.org/urf/2003/09/urf"
# States that no word of the standard's for a status tells.
_DESCRIBED: Final = ("cancelled", "repeat", "void", "lost", "wasted", REFUND)


def usage_records(site: str, runs: Iterable[UsageRun]) -> Iterator[str]:
    """Yield a document of a site's runs and refunds, a record at a time."""
    return document(NAMESPACE, (_record(site, run) for run in runs))


def _record(site: str, run: UsageRun) -> Element:
    """Return the record of a run. The order of the elements is the schema's."""
    record = element("JobUsageRecord")
    add_identity(record, site, run, moment(run.ended_at_s))
    user = add(record, "UserIdentity")
    add_if(user, "LocalUserId", run.user)
    add_if(user, "GlobalUserName", global_user(site, run))
    add_if(record, "JobName", run.name)
    add(record, "Charge", format_amount(run.cost_nanos), unit=run.currency)
    state = {"description": run.state} if run.state in _DESCRIBED else {}
    if run.is_fee:
        state = {"description": "not used"}
    add(record, "Status", status(run), **state)
    if run.peak_memory_bytes:  # the schema requires a positive number
        memory = str(run.peak_memory_bytes)
        add(record, "Memory", memory, storageUnit="B", metric="max", type="physical")
    add(record, "WallDuration", duration(run.wall_ns))
    add(record, "CpuDuration", duration(run.cpu_ns))
    add(record, "EndTime", moment(run.ended_at_s))
    add(record, "StartTime", moment(run.started_at_s))
    add_host(record, "MachineName", run.site or site)
    add_host(record, "SubmitHost", run.origin or site)
    add_if(record, "Queue", run.pool)
    add_if(record, "ProjectName", run.project)
    if run.worker:
        add_host(record, "Host", run.worker, primary="true")
    for name, text in (
        *(("group", run.group), ("tags", run.tags), ("price class", run.price_class)),
        *(("tariff", run.tariff), ("window", run.window)),
    ):
        add_if(record, "Resource", text, description=name)
    add(record, "ConsumableResource", str(run.tasks), units="tasks")
    if run.records != 1:
        add(record, "ConsumableResource", str(run.records), units="runs")
    return record
