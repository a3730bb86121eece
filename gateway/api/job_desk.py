"""Answers orders about an unfinished job: hold, release, prioritise.

A user gives them about their own jobs, the operator about everybody's. An order is on disk before
the answer says that it is carried out.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from federation.reasons import Reason
from federation.words import count
from gateway.api.context import BadQuestion, SiteContext
from gateway.base.details import Details
from gateway.scheduler.model import events
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobHold
from gateway.scheduler.tasks.job_control import (
    why_not_held,
    why_not_prioritised,
    why_not_released,
)
from gateway.trust.rights import Asker


async def hold(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Hold a job, so that no task of it begins: {job} → {job, user, project, held_by, text, …}."""
    job = _job(site, asker, details)
    _check(job, why_not_held(job))
    is_operators = asker.is_operator and not asker.owns(job.whose.user, job.whose.project)
    held = JobHold(asker.user, site.runtime.utc_s(), is_operators)
    site.expect(events.JobHoldAsked(job.id, held))
    running = f"; {count(job.in_flight, 'task')} at workers" if job.in_flight else ""
    return await _done(site, job, f"held{running}")


async def release(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Let a held job go on: {job} → as `hold`."""
    job = _job(site, asker, details)
    _check(job, why_not_released(job, is_operator=asker.is_operator))
    site.expect(events.JobHoldAsked(job.id, None))
    return await _done(site, job, "released")


async def prioritise(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Give a job another priority: {job, priority} → as `hold`.

    The user's own priority is within their entitlements; the operator's is not bound by them.
    """
    job, priority = _job(site, asker, details), details.get("priority", "")
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise BadQuestion("priority must be a number")
    wanted = float(priority)
    _check(job, why_not_prioritised(job, wanted, is_operator=asker.is_operator))
    is_own = asker.owns(job.whose.user, job.whose.project)
    if not asker.is_operator:
        broker, spec = site.broker, replace(job.spec, priority=wanted)
        barred = broker.entitling.objection_to_kind(spec, broker.peers.may_run)
        _check(job, barred)
    before, given = job.spec.rank_priority, job.spec.given_priority
    given_by = asker.user if asker.is_operator and not is_own else ""
    unchanged = (wanted, given_by) == (before, given.by if given is not None else "")
    if unchanged:  # nothing is written
        return _answer(job, f"priority {wanted:g} as before", changed=False)
    site.expect(events.PriorityAsked(job.id, wanted, given_by))
    return await _done(site, job, f"priority {wanted:g} instead of {before:g}")


VERBS: Final[Mapping[str, Callable[[SiteContext, Asker, Details], Awaitable[Any]]]] = {
    "hold": hold,
    "release": release,
    "prioritise": prioritise,
}


def _job(site: SiteContext, asker: Asker, details: Details) -> Job:
    """Return the job that an asker may order about. Raises BadQuestion."""
    name = details.get("job")
    if type(name) is not str:
        raise BadQuestion("the detail job is missing")
    job = site.broker.jobs.get(name)
    is_theirs = job is not None and asker.owns(job.whose.user, job.whose.project)
    if job is None or not ((is_theirs and not job.whose.site) or asker.is_operator):
        whose = "" if asker.is_operator else " of yours"
        reason = f"no unfinished job {name[:64]!r}{whose} found here"
        raise BadQuestion(reason, Reason.JOB_NOT_FOUND)
    return job


def _check(job: Job, why_not: str) -> None:
    if why_not:
        raise BadQuestion(f"{job.title}: {why_not}")


async def _done(site: SiteContext, job: Job, text: str) -> dict[str, Any]:
    if site.broker.trouble:
        text += f" until the gateway stops: it can't write to its database: {site.broker.trouble}"
    else:
        await site.harden()
    return _answer(job, text)


def _answer(job: Job, text: str, *, changed: bool = True) -> dict[str, Any]:
    spec = job.spec
    return {
        "job": job.id,
        "user": spec.user,
        "project": spec.project,
        "held_by": spec.hold.by if spec.hold is not None else "",
        "priority": spec.rank_priority,
        "in_flight": job.in_flight,
        "changed": changed,
        "text": f"{job.title}: {text}",
    }
