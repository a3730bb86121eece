"""The queries of jobs; they run in the caller's transaction."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    String,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)

from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.jobs.records import JobRow
from gateway.ledger.db.usage.tables import usage


def with_usage(connection: Connection, found: Sequence[Row[Any]]) -> list[JobRow]:
    """Add its usage to each job, within the transaction that found it."""
    wall_ns = dict.fromkeys((row.job for row in found), 0)
    cpu_ns = dict(wall_ns)
    costs_nanos: dict[str, dict[str, int]] = {row.job: {} for row in found}
    prices_nanos: dict[str, dict[str, int]] = {row.job: {} for row in found}
    attempt_max, repeat_ns, unpaid_ns = dict(wall_ns), dict(wall_ns), dict(wall_ns)
    for job, currency, price, attempt, *halves in connection.execute(
        _usage(), {"jobs": [row.job for row in found]}
    ):
        wall, cpu, repeat, unpaid, cost = joined(halves)
        wall_ns[job] += wall
        cpu_ns[job] += cpu
        repeat_ns[job] += repeat
        unpaid_ns[job] += unpaid
        costs_nanos[job][currency] = cost
        prices_nanos[job][currency] = price
        attempt_max[job] = max(attempt_max[job], attempt)
    return [
        JobRow(
            job=row.job,
            name=row.name,
            user=row.user,
            project=row.project,
            detached=row.detached,
            spec=row.spec,
            submitted_at_s=row.submitted_at_s,
            total=row.total,
            state=row.state,
            reason=row.reason,
            ended_at_s=row.ended_at_s,
            done=row.done,
            failed=row.failed,
            cancelled=row.cancelled,
            forgotten=row.forgotten,
            wall_ns=wall_ns[row.job],
            cpu_ns=cpu_ns[row.job],
            costs_nanos=costs_nanos[row.job],
            prices_nanos=prices_nanos[row.job],
            attempt_max=attempt_max[row.job],
            repeat_ns=repeat_ns[row.job],
            unpaid_ns=unpaid_ns[row.job],
        )
        for row in found
    ]


@cache
def _usage() -> Select[Any]:
    """Return the query for the usage of `jobs`, built once: building takes longer than running."""
    is_lost = usage.c.state == literal_column("'lost'", String)  # only its later run counts
    is_repeat = usage.c.state == literal_column("'repeat'", String)
    # See gateway.ledger.db.usage.records.is_for_its_user.
    is_unpaid = or_(
        usage.c.state == literal_column("'void'", String),
        and_(
            usage.c.state == literal_column("'preempted'", String),
            usage.c.price_class != literal_column("'preemptible'", String),
        ),
    )
    ran_ns = (
        *(
            case((is_lost, literal_column("0")), else_=each)
            for each in (usage.c.wall_ns, usage.c.cpu_ns)
        ),
        *(
            case((each, usage.c.wall_ns), else_=literal_column("0"))
            for each in (is_repeat, is_unpaid)
        ),
    )
    # The cost of a repeat is its site's overhead.
    charged_nanos = case((is_repeat, literal_column("0")), else_=usage.c.cost_nanos)
    return (
        select(usage.c.job, usage.c.currency)
        .add_columns(func.max(usage.c.price_nanos), func.max(usage.c.attempt))
        .add_columns(*exact_sums(*ran_ns, charged_nanos))
        .where(usage.c.job.in_(bindparam("jobs", expanding=True)))
        .group_by(usage.c.job, usage.c.currency)
        .order_by(usage.c.job, usage.c.currency)
    )
