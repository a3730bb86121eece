"""What clients submit: jobs are opened, opened again in a new session, and closed. Pure.

A job that can never run is refused at once, with the reason; one that was accepted before a restart
is taken up again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from federation.clocks import UtcS
from federation.messages.messages import Kept, RejectJob
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.ledger.db import records
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.lifecycle.absences import AbsentClients
from gateway.scheduler.lifecycle.awaited_functions import AwaitedFunctions
from gateway.scheduler.lifecycle.refusals import Refusals, RefusedJob
from gateway.scheduler.lifecycle.registry import JobRegistry
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Effect, Write
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.model.stored_terms import id_used, opened_record
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import Accounts, ClientLimits
from gateway.scheduler.quotas.admission import Admission
from gateway.scheduler.quotas.spending import BudgetEnforcement
from gateway.scheduler.tasks.history import History
from gateway.scheduler.tasks.job_control import JobControl
from gateway.scheduler.tasks.ordered_ends import OrderedEnds
from gateway.scheduler.tasks.provisional import Provisional
from policies.placement.offers import Unmet


class Submissions:
    """Takes or refuses the jobs of clients.

    Args:
        closed_here: why no new work is taken here at all, as code and sentence, or None.
        tell: sends a client a message.
        ends: goes on with jobs that were ordered to end before a restart.
        effects: the effects of this turn.
        refusals: remembers what is refused.
    """

    def __init__(  # noqa: PLR0913 - its parts at its birth, each by its name
        self,
        *,
        registry: JobRegistry,
        absent: AbsentClients,
        functions: AwaitedFunctions,
        accounts: Accounts,
        limits: ClientLimits,
        dispatcher: Dispatcher,
        admission: Admission,
        provisional: Provisional,
        spending: BudgetEnforcement,
        history: History,
        control: JobControl,
        peers: PeerQueries,
        closed_here: Callable[[], tuple[str, str] | None],
        tell: Callable[[int, Any], None],
        ends: OrderedEnds,
        effects: list[Effect],
        refusals: Refusals,
    ) -> None:
        self._registry = registry
        self._absent = absent
        self._functions = functions
        self._accounts = accounts
        self._limits = limits
        self._dispatcher = dispatcher
        self._admission = admission
        self._provisional = provisional
        self._spending = spending
        self._history = history
        self._control = control
        self._peers = peers
        self._closed_here = closed_here
        self._tell = tell
        self._ends = ends
        self._effects = effects
        self._refusals = refusals

    def opened(self, event: events.JobOpened, utc_s: UtcS) -> None:
        """Take a new job, or one of a client that is back; or refuse it."""
        spec = self._spending.denominated(event.spec)
        known = self._registry.jobs.get(event.job)
        if known is not None:
            self._taken_over(known, event, utc_s)
            return
        objection = self._history.objection(event)
        if objection is not None:
            self._tell(event.client, objection)
            return
        is_early = self._is_early(event, spec, utc_s)
        refusal = self._accounts.over_limit(event, self._limits) or self._closed_here()
        refusal = refusal or self._admission.refusal(spec, is_early=is_early)
        refusal = refusal or self._spending.refusal(spec)
        before = self._history.charged(event.job)
        if before is not None and before.function not in (b"", spec.function):
            refusal = Reason.BAD_REQUEST, f"job {event.job} was submitted with another function"
        if refusal is not None:
            self._refuse(event, RejectJob(event.job, *refusal), utc_s)
            return
        # A reopened job is partly done, and it was judged when it was new.
        unmet = None if event.again else self._peers.unmet(event.job, spec, spec.tasks or 1, utc_s)
        if unmet is not None:
            self._refuse(event, _rejection(event.job, unmet), utc_s)
            return
        self._refusals.accepted(event.job, spec.user)
        job = self._registry.begin(event.job, spec, event.client, utc_s)
        self._history.take_up(job)
        self._control.take_up(job, event.hold, utc_s, is_known=before is not None)
        if self._admission.is_provisional(spec):
            self._provisional.take(job, utc_s)
        if not event.has_function:
            self._functions.lack(job, utc_s)
        self._write(opened_record(job), durable=spec.detached)

    def _refuse(self, event: events.JobOpened, rejection: RejectJob, utc_s: UtcS) -> None:
        self._tell(event.client, rejection)
        spec = event.spec
        if spec.price is not None:
            return  # another site's job: its own gateway tells its user
        whose = (spec.name, spec.user, spec.project, spec.detached, spec.tasks)
        why = (str(rejection.code), rejection.reason)
        self._refusals.note(RefusedJob(event.job, *whose, *why, utc_s))

    def _taken_over(self, job: Job, event: events.JobOpened, utc_s: UtcS) -> None:
        """Handle a client that reopens a known job in a new session."""
        ours = (job.spec.user, job.spec.project, job.spec.function)
        if ours != (event.spec.user, event.spec.project, event.spec.function):
            reason = id_used(event.job)
            self._tell(event.client, RejectJob(event.job, Reason.BAD_REQUEST, reason))
            return
        if job.leaving and (job.spec.detached or job.leaving != "abandoned"):
            self._tell(event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, job.reason))
            return
        if job.spec.warrant != event.spec.warrant:  # its client has come with another token
            job.spec = replace(job.spec, warrant=event.spec.warrant)
            self._write(opened_record(job), durable=job.spec.detached)
        if not job.spec.detached and job.client != event.client:
            job.come_back()
        job.begin_attempt()
        job.leaving = job.reason = ""
        job.interrupted = 0
        job.orphan_since_s = None
        self._accounts.hand_over(job, event.client)
        self._dispatcher.refile(job)
        self._control.take_up(job, event.hold, utc_s, is_known=True)
        if job.lacks_function_since_s is not None:
            job.lacks_function_since_s = utc_s  # its client has been asked again

    def _is_early(self, event: events.JobOpened, spec: JobSpec, utc_s: UtcS) -> bool:
        """Whether to accept a job before it is known which pool can run it, and judge it later.

        This holds just after a start: for a reopened job, which was accepted before, and for a job
        that a pool may run whose workers have not joined yet. Another site's job was judged at its
        quote.
        """
        if spec.price is not None or not self._provisional.is_early(utc_s):
            return False
        return event.again or self._admission.awaits_workers(spec)

    def recovered(self, event: events.JobRecovered, utc_s: UtcS) -> None:
        """Take up a job from before a restart, with its tasks that have ended."""
        if event.spec is None:
            self._history.remember(event)
            return
        job = self._registry.begin(event.job, event.spec, 0, event.submitted_at_s or utc_s)
        job.take_up(event)
        job.ended = RangeSet(event.ended)
        job.known = RangeSet(event.ended)
        job.failed, job.first_error = event.failed, event.first_error
        job.cancelled = event.cancelled
        job.done = len(job.ended) - event.failed - event.cancelled
        job.total = event.total
        if event.leaving:
            self._ends.take_up(job, event)
            return
        if event.total is None:
            self._absent.orphan(job, utc_s)
        self._registry.finish(job, utc_s)

    def closed(self, event: events.JobClosed, utc_s: UtcS) -> None:
        """Note that a job gets no more tasks; refuse it if its limits can't be met with them."""
        job = self._registry.jobs.get(event.job)
        if job is None:
            # It was cancelled meanwhile, and its submitter waits for the acknowledgement.
            self._tell(
                event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, "the job has ended")
            )
            return
        if job.client != event.client:
            return
        if job.spec.tasks is None and not (job.ended or job.in_flight or event.elsewhere):
            unmet = self._peers.unmet(job.id, job.spec, event.total, utc_s) if event.total else None
            if unmet is not None:
                self._registry.reject(job, _rejection(job.id, unmet), utc_s)
                return
        job.total = event.total
        for first, stop in event.elsewhere:
            for low, high in job.known.missing(first, stop):
                for tasks in (job.known, job.ended):
                    tasks.add(low, high)
        if job.spec.detached:
            self._write(records.JobClosedRecord(job.id, event.total), durable=True)
            self._tell(event.client, Kept(job.id, event.total, True))
            self._accounts.disown(job)
            self._dispatcher.refile(job)
        self._registry.finish(job, utc_s)

    def _write(self, record: records.Record, *, durable: bool) -> None:
        self._effects.append(Write(record, durable))


def _rejection(job: str, unmet: Unmet) -> RejectJob:
    """The rejection of a job whose limits can't be met."""
    offers = [offer.to_plain() for offer in unmet.offers]
    return RejectJob(job, Reason.LIMITS_UNMET, unmet.text, {"offers": offers})
