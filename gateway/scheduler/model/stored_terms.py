"""A job's terms as the store keeps them, and back. Pure."""

from dataclasses import asdict, astuple
from typing import Any

from federation.messages.messages import Kept, RejectJob
from federation.messages.wire import pack, unpack
from federation.reasons import Reason
from gateway.ledger.db.jobs.records import STORED_BYTES_MAX, JobOpenedRecord, JobRow
from gateway.scheduler.model.intake import check_wishes, wishes_plain
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import (
    NO_WARRANT,
    GivenPriority,
    JobHold,
    JobSpec,
    Warrant,
)
from policies.placement.asks import Wishes


def opened_record(job: Job) -> JobOpenedRecord:
    """Return the record that a job was opened."""
    spec = job.spec
    return JobOpenedRecord(
        job=job.id,
        name=spec.name,
        user=spec.user,
        project=spec.project,
        detached=spec.detached,
        spec=pack(terms_plain(spec)),
        submitted_at_s=job.opened_at_s,
        function=spec.function if spec.detached else None,
    )


def answer_ended(job: str, state: str, reason: str, total: int | None) -> Kept | RejectJob:
    """Return the answer to an owner that opens a detached job again after its end.

    Only a job that was submitted whole can be reported as kept whole.
    """
    if total is not None:
        return Kept(job, total, True)
    return RejectJob(job, Reason.JOB_NOT_FOUND, f"job {job} was {state}: {reason}")


def terms_plain(spec: JobSpec) -> dict[str, Any]:
    """Return the part of a JobSpec that is stored with its job."""
    return {
        "priority": spec.priority,
        "tags": dict(spec.tags),
        "timeout_s": spec.timeout_s,
        "retries": spec.retries,
        "max_cost_nanos": spec.max_cost_nanos,
        "currency": spec.currency,
        "python": spec.python,
        "prints": spec.prints,
        "function": spec.function,
        "wishes": _wishes(spec.wishes),
        "group": spec.group,
        "price_class": spec.price_class,
        "tasks": spec.tasks,
        "task_s": spec.task_s,
        **({"more_groups": list(spec.more_groups)} if spec.more_groups else {}),
        **({} if spec.warrant == NO_WARRANT else {"warrant": list(astuple(spec.warrant))}),
        **({} if spec.hold is None else {"hold": _hold(spec.hold)}),
        **(
            {}
            if spec.given_priority is None
            else {"given_priority": list(astuple(spec.given_priority))}
        ),
    }


def _hold(hold: JobHold) -> list[Any]:
    """Return a hold for the store: three fields, as the first versions with holds read them.

    A number in place of a truth value says that the hold was carried here. It means the same to
    those versions.
    """
    operators = int(hold.is_operators) if hold.is_carried else hold.is_operators
    return [hold.by, hold.at_s, operators]


def _stored_hold(plain: list[Any]) -> JobHold:
    by, at_s, operators, *more = plain  # a later version stored the fourth as well
    is_carried = bool(more and more[0]) or type(operators) is int
    return JobHold(by, at_s, bool(operators), is_carried)


def _wishes(wishes: Wishes) -> dict[str, Any]:
    plain = wishes_plain(wishes)
    if wishes.objective is not None:
        plain["objective"] = asdict(wishes.objective)
    if wishes.when_closed is not None:
        plain["when_closed"] = wishes.when_closed.value
    if wishes.data:
        plain["data"] = sorted(wishes.data)
    for key in ("deferrable", "whole"):
        if getattr(wishes, key):
            plain[key] = True
    return plain


def id_used(job: str) -> str:
    """Return why a job of this id is not opened. It says nothing of the one that has the id."""
    return f"the job id {job} was used before: each job needs a new id"


def stored_terms(body: bytes) -> dict[str, Any]:
    """Return the part of a JobSpec that a JobOpenedRecord's `spec` holds."""
    terms: dict[str, Any] = unpack(body, STORED_BYTES_MAX)
    # A ban on places holds for as long as the job does.
    wishes, warrant = check_wishes(terms.get("wishes", {})), Warrant(*terms.get("warrant", ()))
    more = tuple(map(str, terms.get("more_groups", ())))
    hold, given = terms.get("hold"), terms.get("given_priority")
    return terms | {
        "wishes": wishes,
        "warrant": warrant,
        "more_groups": more,
        "hold": None if hold is None else _stored_hold(hold),
        "given_priority": None if given is None else GivenPriority(*given),
    }


def spec_of(row: JobRow) -> JobSpec:
    """Return a job's terms as they were stored."""
    terms = stored_terms(row.spec)
    return JobSpec(
        name=row.name, user=row.user, project=row.project, detached=row.detached, **terms
    )
