"""Orders about an unfinished job: hold, release, another priority. Pure.

A held job begins no task: it leaves the queue, so no worker, other site or growing pool gets more
of it, and its tasks that have not begun are recalled. Tasks that run go on. A hold is a part of the
stored terms, so it lasts over restarts of the gateway. It does not put a deadline off: tasks that
wait at the deadline end then.

The client of an attached job is told of each hold and release, and repeats the last one at the
gateway that it goes to when this one is lost: there the job is held as well. Orders
about an attached job are taken while its client is away, and hold if the client returns.

A user holds and releases their own jobs. A job that the operator holds is released by the operator
alone, and a priority that the operator gave is changed by the operator alone.
"""

from collections.abc import Callable
from typing import Any

from federation.clocks import UtcS
from federation.messages.messages import HoldChanged
from federation.wishes import PRIORITY_MAX
from gateway.ledger.db.records import Record
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model.effects import Effect, Write
from gateway.scheduler.model.events import JobHoldAsked, PriorityAsked
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.stored_terms import opened_record
from gateway.scheduler.model.terms import CarriedHold, GivenPriority, JobSpec


class JobControl:
    """Carries out orders about jobs.

    Args:
        dispatcher: has the jobs in their order, and recalls tasks from workers.
        effects: the list to which records are appended.
        tell: sends a message to a client, by its handle.
    """

    def __init__(
        self, dispatcher: Dispatcher, effects: list[Effect], tell: Callable[[int, Any], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._effects = effects
        self._tell = tell

    def take(self, event: JobHoldAsked | PriorityAsked, job: Job, utc_s: UtcS) -> None:
        """Carry out an order that `why_not` does not refuse."""
        match event:
            case JobHoldAsked():
                job.note(utc_s, "released" if event.hold is None else str(event.hold))
                job.change_terms(hold=event.hold)
            case PriorityAsked():
                self._prioritise(event, job, utc_s)
        self._changed(job)
        if isinstance(event, JobHoldAsked):
            self._tell_hold(job, utc_s)

    def take_up(
        self, job: Job, carried: CarriedHold | None, utc_s: UtcS, *, is_known: bool
    ) -> None:
        """Hold or release a job that its client opens again, as ordered at its last gateway.

        `is_known`: it was at this gateway before.
        """
        own = job.spec.hold
        hold = own if carried is None else carried.over(own, is_known=is_known)
        if hold != job.spec.hold:
            job.note(utc_s, "released at another gateway" if hold is None else str(hold))
            job.change_terms(hold=hold)
            self._changed(job)
        if hold is not None or carried is not None:
            self._tell_hold(job, utc_s)

    def _changed(self, job: Job) -> None:
        # The terms of the job are stored again, as when its client comes with another token.
        record: Record = opened_record(job)
        self._effects.append(Write(record, durable=True))
        self._dispatcher.mark_ready(job)
        if job.spec.hold is not None and not job.leaving:
            self._dispatcher.recall_unstarted(job)

    def _tell_hold(self, job: Job, utc_s: UtcS) -> None:
        """Tell the client of an attached job; a detached one stays at this gateway."""
        hold = job.spec.hold
        if job.spec.detached:
            return
        if hold is None:
            self._tell(job.client, HoldChanged(job.id, "", float(utc_s), False))
        else:
            told = HoldChanged(job.id, hold.by, float(hold.at_s), hold.is_operators, site=hold.site)
            self._tell(job.client, told)

    def _prioritise(self, event: PriorityAsked, job: Job, utc_s: UtcS) -> None:
        by = f"{event.given_by}, the operator" if event.given_by else job.spec.user
        job.note(
            utc_s, f"priority {event.priority:g} instead of {job.spec.rank_priority:g}, by {by}"
        )
        if event.given_by:
            job.change_terms(given_priority=GivenPriority(event.priority, event.given_by))
        else:
            job.change_terms(priority=event.priority)


def why_not_held(spec: JobSpec, ending: str = "") -> str:
    """Return why a job can't be held; empty if it can.

    Args:
        ending: the state in which the job ends, by `ending_for_good`.
    """
    return _why_not(spec, ending) if spec.hold is None else f"it has been {spec.hold}"


def why_not_released(spec: JobSpec, ending: str = "", *, is_operator: bool) -> str:
    """Return why a job can't be released by its user, or by the operator; empty if it can."""
    hold = spec.hold
    if hold is None:
        return "it is not held"
    if hold.is_operators and not is_operator:
        return f"it has been {hold}: only the operator can release it"
    return _why_not(spec, ending)


def why_not_prioritised(
    spec: JobSpec, priority: float, ending: str = "", *, is_operator: bool
) -> str:
    """Return why a job can't have another priority; empty if it can."""
    if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:  # nor is a NaN
        return f"a priority is a number of up to {PRIORITY_MAX:g}, above or below zero"
    given = spec.given_priority
    if given is not None and not is_operator:
        return (
            f"{given.by}, the operator, gave it the priority {given.priority:g}: only the operator "
            "can change that"
        )
    return _why_not(spec, ending)


def ending_for_good(job: Job) -> str:
    """Return the state in which a job ends; empty: it goes on, or may if its client returns."""
    is_attached = not job.spec.detached and job.leaving == "abandoned"
    return "" if is_attached else job.leaving


def _why_not(spec: JobSpec, ending: str) -> str:
    if spec.price is not None:
        return (
            f"site {spec.path[-1]} sent it under a contract: its user's site holds, releases "
            "and prioritises it"
        )
    return f"it is ending: it was {ending}" if ending else ""


def held_text(job: Job) -> str:
    """Return by whom a job is held, and how it goes on; empty if it is not held."""
    hold = job.spec.hold
    if hold is None:
        return ""
    how = "the operator releases it" if hold.is_operators else "release it"
    return f"the job has been {hold}: {how} with `gridfed release {job.id}`"
