"""Why tasks end without a run: the limit of their job, with its figures, and what to do. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from federation.money import format_money
from federation.offers import show_time
from federation.words import count, duration_text
from gateway.scheduler.model.jobs import Job

SOURCES_SHOWN: Final = 3  # jobs that are named


def deadline_text(job: Job, measured_s: float | None, *, is_full: bool) -> str:
    """Say when a job's deadline passed, and why its waiting calls had not begun, where known.

    Args:
        measured_s: the measured seconds of a call of its function; None: it has never ended well.
        is_full: all slots are taken.
    """
    deadline_s = job.spec.wishes.deadline_s
    if deadline_s is None:
        return f"the deadline of job {job.id} passed"
    text = f"the deadline of job {job.id} passed at {show_time(deadline_s)} before the call began"
    had_s = deadline_s - job.opened_at_s
    if job.spec.task_s is not None and job.spec.task_s > had_s:
        return (
            f"{text}: with task_s={job.spec.task_s:g} it would have ended after that; set a later "
            "deadline_s, or a task_s that is shorter"
        )
    if job.ended and job.spec.task_s is None and measured_s is not None and measured_s > had_s:
        return (
            f"{text}: its function was measured at {duration_text(measured_s)} a call, and the job "
            f"had {duration_text(had_s)}; set a later deadline_s"
        )
    return f"{text}: no slot was free for it" if is_full else text


def inputs_deadline_text(job: Job, sources: Sequence[Job]) -> str:
    """Say when the deadline of calls passed that wait for results, and of which jobs these are.

    Args:
        job: the job of the calls.
        sources: the unfinished jobs that they wait for.
    """
    at_s = job.spec.wishes.deadline_s
    when = "" if at_s is None else f" at {show_time(at_s)}"
    return (
        f"the deadline of job {job.id} passed{when} before the call began: it waited for results "
        f"of {sources_text(job, sources)}; set a later deadline_s, or a deadline for these as well"
    )


def sources_text(job: Job, sources: Iterable[Job]) -> str:
    """Return the names of the jobs whose results others need, without `job` itself."""
    known = [each for each in sources if each is not job]
    shown = [f"{each.spec.name} (job {each.id})" for each in known[:SOURCES_SHOWN]]
    if len(known) > SOURCES_SHOWN:
        shown.append(count(len(known) - SOURCES_SHOWN, "other job"))
    return ", ".join(shown) or "other tasks"


def cost_text(job: Job) -> str:
    """Say what a job with a cost limit has cost, and how to let the rest of it run."""
    limit, currency = job.spec.max_cost_nanos or 0, job.spec.currency or ""
    return (
        f"job {job.id} reached its cost limit of {format_money(limit, currency)}: it has cost "
        f"{format_money(job.limited_nanos, currency)} so far; raise max_cost to run the rest"
    )


def cancelled_text(user: str, *, is_owner: bool) -> str:
    """Return by whom a job is cancelled; `is_owner`: it is the user's own."""
    return f"cancelled by {user}" + ("" if is_owner else ", the operator")
