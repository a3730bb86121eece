"""The usage and cost of workers' reports, within bounds that are possible. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from federation.clocks import UtcS
from federation.ranges import Range, gaps
from gateway.ledger.db.usage.records import UsageRecord, UsageState, is_for_its_user
from gateway.scheduler.model.events import MEMORY_BYTES_MAX, ReportUsage
from gateway.scheduler.model.jobs import Assignment, Job
from policies.costs.carbon import NOTHING_KNOWN, Emissions, Footprint, footprint
from policies.placement.placement import show_tags
from policies.tariffs import Tariff

# Tasks that were stopped by us and are not charged as tasks.
STOPPED: Final = frozenset({"cancelled", "preempted"})
# How much faster than ours a worker's clock may run, and the resolution of either clock.
DRIFT_SHARE: Final = 0.001
DRIFT_S: Final = 0.001
CORES_MAX: Final = 1024  # that a task may keep busy


def charged_tasks(tasks: int, failures: Sequence[Sequence[Any]]) -> int:
    """Return how many of a delivery's tasks have a minimum charge: all but the stopped ones."""
    stopped = [failure for failure in failures if failure[1] in STOPPED]
    return tasks - len(stopped)


def is_undelivered(job: Job, first: int, stop: int) -> bool:
    """Whether the results of work that another site sent can't be delivered any more.

    Its contract is over (the lease ran out, the buyer abandoned it or was expelled), or its buyer
    has these tasks back: neither side charges for them.
    """
    is_over = job.leaving == "abandoned" or not job.ended.missing(first, stop)
    return job.spec.price is not None and is_over


def is_nothing(report: ReportUsage) -> bool:
    """Whether a report only says that tasks were stopped, which took no time."""
    stopped = sum(kind == "cancelled" for _, kind in report.failures)
    return stopped == report.tasks and not report.wall_ns


def usage_records(
    job: Job,
    assignment: Assignment,
    report: ReportUsage,
    utc_s: UtcS,
    emissions: Emissions | None = None,
    state: UsageState | None = None,
    *,
    in_full: bool = False,
) -> list[UsageRecord]:
    """Return the usage and cost of a report: one record, or several if a part was charged before.

    Tasks that were charged before a restart, or before their client was lost, run again through no
    fault of their user. Their share of the time is recorded as "repeat", at no cost, as long as it
    is in proportion to the amount paid (Job.may_repeat_free). Another site is paid for it in any
    case: that is our site's overhead, in a record without a user. The amounts paid for wasted runs
    of a task are deducted (gateway.scheduler.model.paid_time).

    `emissions` is the current data of its pool, for values that another site did not report.
    `state` is the state of the whole report, if the report does not tell; with `in_full` nothing is
    deducted.
    """
    worker, count = assignment.worker, report.tasks
    wall_ns, cpu_ns = report.wall_ns, report.cpu_ns
    pieces = _pieces(job, report, wall_ns, state)
    records = []
    # Another site's price for our own user's tasks is booked to the nano-unit.
    asked_nanos = report.cost_nanos if job.spec.price is None else None
    left_nanos = asked_nanos or 0
    emitted = report.footprint or footprint(emissions, wall_ns, cpu_ns)
    parts = emitted.split([high - low for (low, high), _ in pieces])
    tariff, total_ns = assignment.tariff, wall_ns
    first, failures = report.first, report.failures
    stopped = [first + at for at, kind in failures if kind in STOPPED]
    for index, ((low, high), how) in enumerate(pieces):
        is_last = index == len(pieces) - 1
        part_ns = wall_ns if is_last else wall_ns * (high - low) // count
        part_cpu_ns = cpu_ns if is_last else cpu_ns * (high - low) // count
        wall_ns, cpu_ns, count = wall_ns - part_ns, cpu_ns - part_cpu_ns, count - (high - low)
        is_for_user = is_for_its_user(how, tariff.price_class)
        is_free = not is_for_user or (how != "ok" and not part_ns)
        charged = 0 if is_free else _charged(low, high, stopped)
        due_ns = part_ns
        if not in_full and report.cost_nanos is None:
            due_ns -= job.paid_times.of(low, high, part_ns, tariff.price_nanos, tariff.currency)
            if part_ns and not due_ns:
                charged = 0  # paid before, including the minimum
        if asked_nanos is not None:
            share = (part_ns, total_ns) if total_ns else (high - low, report.tasks)
            cost_nanos = left_nanos if is_last else asked_nanos * share[0] // share[1]
            left_nanos -= cost_nanos
        else:
            cost_nanos = 0 if is_free else _cost(assignment, charged, due_ns)
        is_overhead = cost_nanos > 0 and not is_for_user
        list_nanos = 0 if is_free else _list_nanos(tariff, charged, due_ns, cost_nanos)
        records.append(
            UsageRecord(
                job=job.id,
                first=low,
                tasks=high - low,
                attempt=assignment.run.attempt,
                user="" if is_overhead else job.spec.user,
                project="" if is_overhead else job.spec.project,
                name=job.spec.name,
                pool=worker.offer.pool,
                worker=worker.title,
                state=how,
                started_at_s=_start_at_s(assignment, part_ns, utc_s),
                ended_at_s=utc_s,
                wall_ns=part_ns,
                cpu_ns=part_cpu_ns,
                peak_memory_bytes=report.peak_memory_bytes,
                price_nanos=tariff.price_nanos,
                currency=tariff.currency,
                tariff=tariff.version,
                cost_nanos=cost_nanos,
                list_cost_nanos=max(cost_nanos, list_nanos),
                list_price_nanos=max(tariff.price_nanos, tariff.list_nanos or 0),
                free_ns=part_ns - due_ns,
                price_class=tariff.price_class,
                window=tariff.window,
                rules=tariff.rules,
                tags=show_tags(job.spec.tags),
                group="" if is_overhead else job.spec.group,
                energy_uj=parts[index].energy_uj,
                carbon_ng=parts[index].carbon_ng,
                embodied_ng=parts[index].embodied_ng,
                intensity_mg_per_kwh=parts[index].intensity_mg_per_kwh,
                carbon_source=parts[index].source,
            )
        )
    return records


def within_bounds(assignment: Assignment, report: ReportUsage, utc_s: UtcS) -> ReportUsage:
    """Limit a report to plausible values: a worker's word counts within the limits of our clock.

    No task has run for longer than since it was assigned, and no more tasks at a time than there
    are slots, in this report and in all of its assignment. A slot uses no more memory than its host
    has. Another site's values are billed as reported or not at all:
    gateway.contracts.model.purchase.check_time checks its times.
    """
    worker = assignment.worker
    if worker.job:
        memory_bytes = min(report.peak_memory_bytes, MEMORY_BYTES_MAX)
        return replace(report, peak_memory_bytes=memory_bytes)
    passed_s = utc_s - assignment.given_at_s
    # If the clock was set back, the expected duration counts.
    passed_s = passed_s if passed_s >= 0 else assignment.task_s
    at_once = min(report.tasks, worker.slots)
    each_ns = round((passed_s * (1 + DRIFT_SHARE) + DRIFT_S) * 1e9)
    limit_ns = each_ns * at_once
    if utc_s >= assignment.given_at_s:
        limit_ns = min(limit_ns, max(0, each_ns * worker.slots - assignment.reported_ns))
    limits = limit_ns, limit_ns * CORES_MAX, worker.memory_bytes
    used = report.wall_ns, report.cpu_ns, report.peak_memory_bytes
    if all(each <= most for each, most in zip(used, limits, strict=True)):
        return report
    wall_ns, cpu_ns, memory_bytes = map(min, used, limits)
    return replace(report, wall_ns=wall_ns, cpu_ns=cpu_ns, peak_memory_bytes=memory_bytes)


def _start_at_s(assignment: Assignment, wall_ns: int, utc_s: UtcS) -> UtcS:
    """Return when a run began by its duration, but not before it was assigned."""
    return max(utc_s - wall_ns / 1e9, min(assignment.given_at_s, utc_s))


def _pieces(
    job: Job, report: ReportUsage, wall_ns: int, state: UsageState | None
) -> list[tuple[Range, UsageState]]:
    """Return the separately booked ranges of a report, each with its state; `state`: see above."""
    count = report.tasks
    first, stop = report.first, report.first + count
    if state == "lost":
        return [((first, stop), state)]
    how: UsageState = state or "ok"
    if state is None and len(report.failures) == count:
        kinds = {kind for _, kind in report.failures}
        how = "cancelled" if kinds <= STOPPED else "failed"
        how = "preempted" if kinds == {"preempted"} else how
    if is_undelivered(job, first, stop):
        return [((first, stop), "void")]
    repeated = job.charged.within(first, stop)
    repeat_ns = wall_ns * sum(high - low for low, high in repeated) // count
    again: UsageState = "repeat" if job.may_repeat_free(repeat_ns) else how
    return [
        *((part, how) for part in job.charged.missing(first, stop)),
        *((part, again) for part in repeated),
    ]


def footprint_of(used: list[UsageRecord]) -> Footprint:
    """Return the emissions of all the records of one report."""
    if not used:
        return NOTHING_KNOWN
    return Footprint(
        sum(record.energy_uj for record in used),
        sum(record.carbon_ng for record in used),
        sum(record.embodied_ng for record in used),
        used[0].intensity_mg_per_kwh,
        used[0].carbon_source,
    )


def charged_for(used: list[UsageRecord], again: list[int]) -> Iterator[Range]:
    """Yield the tasks that these records charged, which are free if they ever run again.

    Excludes tasks that are retried (ascending): each try of a task that fails has its price.
    """
    skipped = [(task, task + 1) for task in again]
    for record in used:
        if record.is_charge:
            yield from gaps(record.first, record.first + record.tasks, skipped)


def _charged(first: int, stop: int, stopped: list[int]) -> int:
    """Return how many of tasks [first, stop) have a minimum charge: all but the stopped."""
    return stop - first - sum(first <= at < stop for at in stopped)


def _list_nanos(tariff: Tariff, tasks: int, due_ns: int, cost_nanos: int) -> int:
    """The cost without a contract of a part of a report that costs so much.

    Time that the limit of a grant leaves uncharged is in neither: it would look like a discount.
    """
    list_nanos = tariff.list_charge_nanos(tasks, due_ns)
    full_nanos = tariff.charge_nanos(tasks, due_ns)
    return list_nanos * min(cost_nanos, full_nanos) // full_nanos if full_nanos else list_nanos


def _cost(assignment: Assignment, tasks: int, due_ns: int) -> int:
    """Return the cost of a part of a report to the job's owner, by our own price.

    Work that was sold to us and passed on costs our quoted price, up to the limit of its grant,
    whatever the next site charges for it: the difference is our loss.
    """
    costs = assignment.tariff.charge_nanos(tasks, due_ns)
    given = assignment.job.spec.given
    if given is None or given.grant_terms.max_cost_nanos is None:
        return costs
    return max(0, min(costs, given.grant_terms.max_cost_nanos - assignment.job.limited_nanos))
