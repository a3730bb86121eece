"""Answers orders about an unfinished job: hold, release, prioritise.

A user gives them about their own jobs, the operator about everybody's. An order is on disk before
the answer says that it is carried out. An attached job that lost its client or gateway counts as
unfinished: its client may return, and finds the job as it was ordered.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from federation.reasons import Reason
from federation.words import count
from gateway.api.context import BadQuestion, SiteContext
from gateway.base.details import Details
from gateway.ledger.db.jobs.records import may_return
from gateway.scheduler.model import events
from gateway.scheduler.model.events import LeftJob
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.stored_terms import spec_of
from gateway.scheduler.model.terms import GivenPriority, JobHold, JobSpec
from gateway.scheduler.tasks.job_control import (
    ending_for_good,
    why_not_held,
    why_not_prioritised,
    why_not_released,
)
from gateway.trust.rights import Asker

_AWAY: Final = "; its client is away, and finds it so when it returns"


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The job of an order. `live` is None if it has ended and its client may return."""

    id: str
    title: str
    spec: JobSpec
    live: Job | None

    @property
    def ending(self) -> str:
        return "" if self.live is None else ending_for_good(self.live)

    @property
    def is_away(self) -> bool:
        return self.live is None or self.live.leaving == "abandoned"


async def hold(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Hold a job, so that no task of it begins: {job} → {job, user, project, held_by, text, …}."""
    job = await _job(site, asker, details)
    _check(job, why_not_held(job.spec, job.ending))
    is_operators = asker.is_operator and not asker.owns(job.spec.user, job.spec.project)
    held = JobHold(asker.user, site.runtime.utc_s(), is_operators)
    in_flight = 0 if job.live is None else job.live.in_flight
    running = f"; {count(in_flight, 'task')} at workers" if in_flight else ""
    order = events.JobHoldAsked(job.id, held)
    return await _carry_out(site, job, order, replace(job.spec, hold=held), f"held{running}")


async def release(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Let a held job go on: {job} → as `hold`."""
    job = await _job(site, asker, details)
    _check(job, why_not_released(job.spec, job.ending, is_operator=asker.is_operator))
    order = events.JobHoldAsked(job.id, None)
    return await _carry_out(site, job, order, replace(job.spec, hold=None), "released")


async def prioritise(site: SiteContext, asker: Asker, details: Details) -> Any:
    """Give a job another priority: {job, priority} → as `hold`.

    The user's own priority is within their entitlements; the operator's is not bound by them.
    """
    job, priority = await _job(site, asker, details), details.get("priority", "")
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise BadQuestion("priority must be a number")
    wanted = float(priority)
    _check(job, why_not_prioritised(job.spec, wanted, job.ending, is_operator=asker.is_operator))
    is_own = asker.owns(job.spec.user, job.spec.project)
    if not asker.is_operator:
        broker, spec = site.broker, replace(job.spec, priority=wanted)
        barred = broker.entitling.objection_to_kind(spec, broker.peers.may_run)
        _check(job, barred)
    before, given = job.spec.rank_priority, job.spec.given_priority
    given_by = asker.user if asker.is_operator and not is_own else ""
    unchanged = (wanted, given_by) == (before, given.by if given is not None else "")
    if unchanged:  # nothing is written
        return _answer(job, job.spec, f"priority {wanted:g} as before", changed=False)
    if given_by:
        terms = replace(job.spec, given_priority=GivenPriority(wanted, given_by))
    else:
        terms = replace(job.spec, priority=wanted)
    order = events.PriorityAsked(job.id, wanted, given_by)
    return await _carry_out(site, job, order, terms, f"priority {wanted:g} instead of {before:g}")


VERBS: Final[Mapping[str, Callable[[SiteContext, Asker, Details], Awaitable[Any]]]] = {
    "hold": hold,
    "release": release,
    "prioritise": prioritise,
}


async def _job(site: SiteContext, asker: Asker, details: Details) -> _Ordered:
    """Return the job that an asker may order about. Raises BadQuestion."""
    name = details.get("job")
    if type(name) is not str:
        raise BadQuestion("the detail job is missing")
    left = None if name in site.broker.jobs else await _left(site, name)
    # The job may have been opened again while the books were read.
    live = site.broker.jobs.get(name)
    job = left if live is None else _Ordered(name, live.title, live.spec, live)
    is_theirs = job is not None and asker.owns(job.spec.user, job.spec.project)
    may_own = is_theirs and (live is None or not live.whose.site)
    if job is None or not (may_own or asker.is_operator):
        whose = "" if asker.is_operator else " of yours"
        reason = f"no unfinished job {name[:64]!r}{whose} found here"
        raise BadQuestion(reason, Reason.JOB_NOT_FOUND)
    return job


async def _left(site: SiteContext, name: str) -> _Ordered | None:
    """Return an attached job from the books if its client may return."""
    if site.broker.has_ended(name):
        if site.broker.left_job(name) is None:
            return None
        await site.record()  # its end is in the books from here on
    row = await site.read(site.store.jobs.get, name)
    if row is None or not may_return(row):
        return None
    return _Ordered(name, LeftJob(row.user, row.project).title(name), spec_of(row), None)


def _check(job: _Ordered, why_not: str) -> None:
    if why_not:
        raise BadQuestion(f"{job.title}: {why_not}")


async def _carry_out(
    site: SiteContext, job: _Ordered, order: events.Event, terms: JobSpec, text: str
) -> dict[str, Any]:
    """Give the order; answer when it is on disk. `terms` are those that the job then has."""
    site.expect(order if job.live is not None else events.LeftJobChanged(job.id, terms))
    text += _AWAY if job.is_away else ""
    if site.broker.trouble:
        text += f" until the gateway stops: it can't write to its database: {site.broker.trouble}"
    else:
        await site.harden()
    return _answer(job, terms, text)


def _answer(job: _Ordered, terms: JobSpec, text: str, *, changed: bool = True) -> dict[str, Any]:
    return {
        "job": job.id,
        "user": terms.user,
        "project": terms.project,
        "held_by": terms.hold.by if terms.hold is not None else "",
        "priority": terms.rank_priority,
        "in_flight": 0 if job.live is None else job.live.in_flight,
        "changed": changed,
        "text": f"{job.title}: {text}",
    }
