"""The SQL that writes jobs."""

from typing import Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Dialect,
    Text,
    case,
    delete,
    literal_column,
    null,
    select,
    true,
    update,
)

from gateway.base.job_states import ENDS_ORDERED
from gateway.ledger.db.jobs.records import (
    AttachedLost,
    BundleKept,
    EndOrdered,
    FunctionKept,
    JobClosedRecord,
    JobEnded,
    JobForgotten,
    JobOpenedRecord,
    LeftJobCancelled,
    LeftTermsKept,
    OutcomeKept,
)
from gateway.ledger.db.jobs.tables import bundles, functions, jobs, outcomes
from gateway.ledger.db.sql import BODY_ROWS, Changes, RowInserts, Writers, field, insert_into

# Literals in the SQL itself: every parameter is a record's field.
_OPEN: Final = literal_column("'open'", Text)
_LOST: Final = literal_column("'lost'", Text)
_ABANDONED: Final = literal_column("'abandoned'", Text)
_CANCELLED: Final = literal_column("'cancelled'", Text)
_LOST_REASON: Final = literal_column("'its gateway stopped before it ended'", Text)
_NO_REASON: Final = literal_column("''", Text)
_END: Final = ("state", "reason", "ended_at_s", "done", "failed", "cancelled")


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    this = jobs.c.job == field("job")
    open_ = jobs.c.ended_at_s.is_(None)
    is_left = jobs.c.state.in_([_LOST, _ABANDONED]) & ~jobs.c.detached
    return {
        FunctionKept: RowInserts(dialect, functions, BODY_ROWS),
        BundleKept: RowInserts(dialect, bundles, BODY_ROWS),
        OutcomeKept: RowInserts(dialect, outcomes, BODY_ROWS),
        JobOpenedRecord: Changes(dialect, [_open_job(dialect)]),
        JobClosedRecord: Changes(dialect, [update(jobs).where(this).values(total=field("total"))]),
        JobEnded: Changes(
            dialect,
            [
                update(jobs).where(this, open_).values({name: field(name) for name in _END}),
                delete(bundles).where(bundles.c.job == field("job")),
            ],
        ),
        EndOrdered: Changes(
            dialect,
            [
                update(jobs)
                .where(this, open_)
                .values(state=field("state"), reason=field("reason")),
                update(bundles)
                .where(bundles.c.job == field("job"))
                .values(body=field("arguments")),
            ],
        ),
        LeftJobCancelled: Changes(
            dialect,
            [update(jobs).where(this, is_left).values(state=_CANCELLED, reason=field("reason"))],
        ),
        LeftTermsKept: Changes(
            dialect, [update(jobs).where(this, is_left).values(spec=field("spec"))]
        ),
        AttachedLost: Changes(dialect, [_end_attached(open_)]),
        JobForgotten: Changes(dialect, _forget_job(this)),
    }


def _open_job(dialect: Dialect) -> ClauseElement:
    opened: ClauseElement = insert_into(
        dialect, jobs, JobOpenedRecord.__dataclass_fields__
    ).on_conflict_do_update(
        index_elements=[jobs.c.job],
        set_={
            "state": _OPEN,
            "reason": _NO_REASON,
            "ended_at_s": null(),
            "spec": literal_column("excluded.spec"),
        },
        where=jobs.c.state.in_([_OPEN, _LOST, _ABANDONED]),
    )
    return opened


def _end_attached(open_: ColumnElement[bool]) -> ClauseElement:
    ordered = [
        (jobs.c.state == literal_column(f"'{before}'", Text), literal_column(f"'{after}'", Text))
        for before, after in ENDS_ORDERED.items()
    ]
    is_ordered = jobs.c.state.in_([literal_column(f"'{each}'", Text) for each in ENDS_ORDERED])
    return (
        update(jobs)
        .where(open_, ~jobs.c.detached)
        .values(
            state=case(*ordered, else_=_LOST),
            reason=case((is_ordered, jobs.c.reason), else_=_LOST_REASON),
            ended_at_s=field("ended_at_s"),
        )
    )


def _forget_job(this: ColumnElement[bool]) -> list[ClauseElement]:
    forgotten = select(jobs.c.job).where(this, jobs.c.forgotten)
    unneeded = select(jobs.c.function).where(this, jobs.c.forgotten).scalar_subquery()
    needed = (
        select(jobs.c.job).where(jobs.c.function == functions.c.digest, ~jobs.c.forgotten).exists()
    )
    return [
        update(jobs).where(this, jobs.c.ended_at_s.is_not(None)).values(forgotten=true()),
        delete(outcomes).where(outcomes.c.job.in_(forgotten)),
        delete(functions).where(functions.c.digest == unneeded, ~needed),
    ]
