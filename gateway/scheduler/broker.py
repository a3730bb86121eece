"""The core of a site: `handle(event, now) → [effect, …]`. Pure: no I/O, no clock, no randomness.

It opens and ends jobs, processes the reports of workers, and guarantees:

- a task ends exactly once, and only its owner is told;
- a task's result is sent after its usage record is stored, and it is charged once;
- work that no known offer can ever run is refused at once; waiting work never blocks other work;
- a worker's report counts only for tasks that the worker still holds.

`settle` is called once after each batch of events and hands out work.

Its parts: the dispatcher (assigns tasks), TaskCompletion (ends tasks or queues them again),
WorkerRoster (the workers and offers), Admission (accepts kinds of work), Charging (costs),
Accounts (the unfinished work of clients), Withdrawals (cancels that wait for workers), JobControl
(holds and priorities), History (ended jobs). They know nothing of the broker; their effects join
the broker's in order.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, assert_never

from federation.clocks import MonoS, UtcS
from federation.messages.messages import Drain, Kept, RejectJob
from federation.messages.wire import pack
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.words import duration_text
from gateway.ledger.db import records
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model import events, matching
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import (
    Charge,
    Effect,
    Expel,
    HoldObjects,
    KeepOutput,
    LogOrder,
    SendToClient,
    SendToWorker,
    Write,
)
from gateway.scheduler.model.events import Event
from gateway.scheduler.model.jobs import Assignment, Job, QueuedBundle, Worker
from gateway.scheduler.model.peer_queries import NoPeers, PeerQueries
from gateway.scheduler.model.stored_terms import opened_record
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import Accounts, BrokerClient, ClientLimits
from gateway.scheduler.quotas.admission import Admission
from gateway.scheduler.quotas.drains import StandingDrains
from gateway.scheduler.quotas.fair_shares import FairShares
from gateway.scheduler.quotas.overruns import Overruns
from gateway.scheduler.quotas.preemption import Preemption
from gateway.scheduler.quotas.reserved import ReservedAmounts
from gateway.scheduler.quotas.roster import WorkerRoster
from gateway.scheduler.quotas.spending import BudgetEnding, BudgetEnforcement
from gateway.scheduler.tasks.charging import Charging
from gateway.scheduler.tasks.completion import TaskCompletion, doubted, is_sound
from gateway.scheduler.tasks.history import History
from gateway.scheduler.tasks.job_control import JobControl, held_text
from gateway.scheduler.tasks.losses import Losses
from gateway.scheduler.tasks.overdue import Fault, Overdue
from gateway.scheduler.tasks.probation import Probation
from gateway.scheduler.tasks.provisional import Provisional
from gateway.scheduler.tasks.task_usage import charged_for, footprint_of, within_bounds
from gateway.scheduler.tasks.withdrawals import Withdrawals
from policies.costs.carbon import Emissions
from policies.costs.pricelist import PriceNow
from policies.placement.offers import Unmet
from policies.placement.placement import CapacityOffer, Refusal, counted
from policies.tariffs import Tariff

# How long a detached job may stay half submitted without its client.
ORPHAN_S: Final = 60.0
# Jobs that one call handles, of each kind: client left, deadline passed, function arrived.
LEFT_TURN_MAX: Final = 200


class Broker:
    """One site's jobs, workers and clients.

    Args:
        tariffs: the current standard tariff of each pool by name; PricesChanged updates it.
        offers: pools that are known before any of their workers joins.
        limits: the limits on one client's unfinished work.
        boot: the number of this run of the site; assignments of different runs never share a
            number.
        budget_accounts: the budgets that pay for work; without any there is no limit.
        peers: answers questions about other sites.
        prices: the current prices of the pools with a price list; PricesChanged updates them.
        emissions: the current emissions of our pools; EmissionsKnown updates them.
        rules: the version of the site's rules that is in force; PricesChanged updates it.
        keeps_output: whether output of the tasks of this site's jobs is kept.
    """

    def __init__(  # noqa: PLR0913 - what it knows at its birth, each by its name
        self,
        tariffs: Mapping[str, Tariff],
        offers: Mapping[str, CapacityOffer] | None = None,
        limits: ClientLimits | None = None,
        boot: int = 0,
        budget_accounts: BudgetAccounts | None = None,
        peers: PeerQueries | None = None,
        *,
        prices: Mapping[str, PriceNow] = MappingProxyType({}),
        emissions: Mapping[str, Emissions] = MappingProxyType({}),
        rules: int = 0,
        keeps_output: bool = False,
    ) -> None:
        self.charging = Charging(tariffs, prices, emissions, rules)
        self.tariffs, self.prices = self.charging.tariffs, self.charging.prices
        self.emissions = self.charging.emissions
        self._utc_s = UtcS(0.0)
        self.limits = limits or ClientLimits()
        self.jobs: dict[str, Job] = {}
        self.draining = False
        self._keeps_output = keeps_output
        self.peers = peers or NoPeers()
        self.trouble = ""  # why the store accepts no writes; empty when it does
        self._trouble_since_s = MonoS(0.0)
        self._mono_s = MonoS(0.0)  # the time of this turn, by the monotonic clock
        self._effects: list[Effect] = []  # never replaced: the parts append to the same list
        self._accounts = Accounts()
        self.clients = self._accounts.clients
        self.shares: FairShares | None = None  # the fair shares of slots, if configured
        self.budget_accounts = budget_accounts or BudgetAccounts()
        self.reserved = ReservedAmounts(self.budget_accounts)
        self._dispatcher = Dispatcher(
            *(self.clients, self._effects, boot, self.tariff_at, self.jobs),
            self.reserved.accounts_of,
        )
        self.workers = self._dispatcher.workers
        self.durations = self._dispatcher.durations
        self.occupancy = self._dispatcher.occupancy
        self.growth = self.occupancy.growth  # of our autoscaled pools
        self.entitling = self._dispatcher.entitling
        self.roster = WorkerRoster(self.workers, offers or {}, self.tariffs, self.growth)
        self.offers = self.roster.offers
        self.drains = StandingDrains()
        self.admission = Admission(self.roster, self.tariffs, self.entitling, self.peers)
        self._provisional = Provisional(self.admission.refusal, self.offers)
        self._completion = TaskCompletion(
            *(self._accounts, self._dispatcher, self.roster, self.peers, self._effects),
            lambda job, ranges: self._losses.end_owing(job, ranges),
        )
        self._preemption = Preemption(
            self.workers,
            self._dispatcher.waiting_groups,
            self.occupancy,
            self.entitling,
            self._dispatcher.may_want,
            lambda each: self._dispatcher.recall_all(each, kill=False),
            self._effects,
        )
        self._withdrawals = Withdrawals(
            *(self.clients, self._dispatcher, self._tell, self._cancel, self._log),
            lambda job, ranges: self._losses.end_owing(job, ranges),
        )
        self._control = JobControl(self._dispatcher, self._effects, self._tell)
        self._probation = Probation(self.roster.is_awaited)
        self._overdue = Overdue(self.workers, self.limits.lease_s)
        self._overruns = Overruns()
        self._losses = Losses(
            *(self.charging, self._completion, self._withdrawals),
            release=self._dispatcher.release,
            book=self._book,
            fail=self._failed,
            losses_max=self.limits.losses_max,
        )
        self._history = History()
        self.spending = BudgetEnforcement(
            *(self.budget_accounts, self.reserved, self.jobs),
            self._own_tariffs,
            self.durations.of,
            lambda spec: self.peers.tariffs(spec, self._utc_s),
        )
        self._lacking: dict[bytes, set[str]] = {}  # jobs without their function, by its digest
        self._arrived: dict[bytes, None] = {}  # those of these functions that have arrived
        self._left: deque[tuple[int, str]] = deque()  # jobs whose client has left, with that client
        self._orphans: set[str] = set()  # jobs that may be half submitted without their client
        self._numbers = 0

    @property
    def monotonic_s(self) -> MonoS:
        """The time of this turn, by the monotonic clock."""
        return self._mono_s

    # --- events --------------------------------------------------------------------------------

    def begin_turn(self, mono_s: MonoS) -> None:
        """Take the time by the monotonic clock for the events that follow."""
        self._mono_s = mono_s

    def handle(self, event: Event, utc_s: UtcS) -> list[Effect]:  # noqa: C901 - one match
        """Take an event; return the effects to carry out, in order."""
        self._utc_s = utc_s
        self._dispatcher.changes += 1
        match event:
            case events.Reported():
                self._reported(event, utc_s)
            case events.TasksArrived():
                self._tasks_arrived(event)
            case events.HandedBack():
                self._handed_back(event, utc_s)
            case events.EnvironmentsPrepared():
                if event.worker in self.workers:
                    self.workers[event.worker].preparing = event.functions
            case events.PlacesChosen():
                if event.job in self.jobs:
                    self.jobs[event.job].places = event.places
                    self._completion.ask_again(self.jobs[event.job])
                    self._dispatcher.refile(self.jobs[event.job])
            case events.PlacesLeft():
                self._places_left(event, utc_s)
            case events.MoneySpent():
                if event.job in self.jobs:
                    self._completion.drop_waiting(self.jobs[event.job], "budget", event.reason)
                    self._finish(self.jobs[event.job], utc_s)
            case events.JobLimitsUnmet():
                if event.job in self.jobs:
                    self._limits_unmet(self.jobs[event.job], event, utc_s)
            case events.JobHeld():
                self._dispatcher.hold_back(event, self.jobs.get(event.job))
            case events.Resumed():
                self._resumed(event, utc_s)
            case events.JobOpened():
                self._job_opened(event, utc_s)
            case events.FunctionArrived():
                self._function_arrived(event.function)
            case events.JobClosed():
                self._job_closed(event, utc_s)
            case events.CancelAsked():
                self._cancel_asked(event, utc_s)
            case events.JobHoldAsked() | events.PriorityAsked():
                if event.job in self.jobs:
                    self._control.take(event, self.jobs[event.job], utc_s)
            case events.ClientJoined():
                self._accounts.join(event)
            case events.ClientGone():
                self._client_gone(event, utc_s)
            case events.ClientReading():
                if event.client in self.clients:
                    self.clients[event.client].ready = event.ready
            case events.OutputArrived():
                self._output_arrived(event)
            case events.TasksBegun():
                self._begun(event, utc_s)
            case events.WorkerJoined():
                self.roster.joined(event)
                if not event.job:
                    self._probation.joined(self.workers[event.worker], utc_s)
                self._obey_drains(self.workers[event.worker])
                self._dispatcher.worker_index.note(event.worker)
                self.occupancy.resize()
            case events.WorkerGone():
                self._worker_gone(event, utc_s)
                self._dispatcher.worker_index.note(event.worker)
                self.occupancy.resize()
            case events.JobRecovered():
                self._job_recovered(event, utc_s)
            case events.DrainAsked():
                self._drain_asked(event)
                self.occupancy.resize()
            case events.Ticked():
                self._ticked(event, utc_s)
            case events.JobNoted():
                if event.job in self.jobs:
                    self.jobs[event.job].note(utc_s, event.text)
            case _:
                self._learn(event, utc_s)
        accounts = self._accounts
        if accounts.owing and accounts.kept.held_bytes <= self.limits.kept_bytes_max:
            for job in list(accounts.owing.values()):
                self._acknowledge(job, job.owed_tasks)
        return self._take_effects()

    def _learn(self, event: events.AboutSite, utc_s: UtcS) -> None:
        """Apply an event about the state of our own site."""
        match event:
            case events.PoolGrows():
                self.growth[event.pool] = event.growth
                self.roster.grows(event)
                self.occupancy.resize()
            case events.PilotSeen():
                self.roster.seen(event)
            case events.PilotsAwaited():
                self.roster.awaited(event)
            case events.EmissionsKnown():
                self.emissions[event.pool] = event.emissions
            case events.PricesChanged():
                self.charging.changed(event)
            case events.RulesTurned():
                self.occupancy.turn(event.rules)
                self.entitling.turned()
                self._preemption.turned(event.rules, utc_s)
            case events.VolumesKnown():
                self.charging.volumes.take_up(event.had_ns, utc_s)
            case events.SpendingKnown():
                self.budget_accounts.take_up(event.spent, event.owed, utc_s)
            case events.DrainOrdered():
                self._drain_ordered(event)
                self.occupancy.resize()
            case events.SharesKnown():
                self._share_out(event, utc_s)
            case events.EntitlementsKnown():
                self.entitling.take_in(event)
            case _:
                assert_never(event)

    def settle(self, utc_s: UtcS) -> list[Effect]:
        """Hand out waiting tasks to workers with room, and move work to workers that ran dry."""
        self._utc_s = utc_s
        self._end_left(utc_s)
        self._end_lacking()
        self._keep_deadlines(utc_s)
        woken = self._probation.wake(utc_s)
        for handle in woken:
            self._dispatcher.worker_index.note(handle)
        if woken:
            self.occupancy.resize()
        self._dispatcher.settle(utc_s)
        self._preemption.settle(utc_s)
        return self._take_effects()

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has done all it could; if not, it is to be called again soon."""
        return self._dispatcher.is_settled and not self._left and not self._arrived

    @property
    def changes(self) -> int:
        """The number of events handled in this run of the site."""
        return self._dispatcher.changes

    @property
    def tasks_done(self) -> int:
        """The number of tasks that ended with a result in this run of the site."""
        return self._completion.done

    @property
    def waiting_jobs(self) -> list[Job]:
        """The jobs with unassigned tasks."""
        return list(self._dispatcher.ready.values())

    @property
    def ready(self) -> Mapping[str, Job]:
        """The jobs with unassigned tasks, by id: the live mapping."""
        return self._dispatcher.ready

    def take_fresh(self) -> list[Job]:
        """Return the jobs that got unassigned tasks since the last call."""
        fresh = list(self._dispatcher.fresh.values())
        self._dispatcher.fresh.clear()
        return fresh

    @property
    def is_uneven(self) -> bool:
        """Whether `settle` may have work although no event arrives: see Dispatcher."""
        return self._probation.is_waiting or self._dispatcher.is_uneven

    @property
    def is_crowded(self) -> bool:
        """Whether detached jobs hold over half of their byte limit."""
        return self._accounts.kept.held_bytes > self.limits.kept_bytes_max // 2

    def looks(self, spec: JobSpec) -> int:
        """The number of offers to examine before a job is accepted or refused."""
        return self.admission.looks(self.spending.denominated(spec))

    def remembers(self, job: str) -> bool:
        """Whether a job, or its charge, is known without asking the store."""
        return job in self.jobs or self._history.knows(job)

    def has_ended(self, job: str) -> bool:
        """Whether a job of this id has ended lately."""
        return self._history.has_ended(job)

    def _take_effects(self) -> list[Effect]:
        effects = self._effects.copy()
        self._effects.clear()  # the parts of the broker keep using the same list
        return effects

    def _write(self, record: records.Record, *, durable: bool = False) -> None:
        self._effects.append(Write(record, durable))

    def _tell(self, handle: int, message: Any) -> None:
        client = self.clients.get(handle)
        if client is not None:
            self._effects.append(SendToClient(handle, message, port=client.port))

    def _log(self, client: int, text: str, is_refused: bool) -> None:
        self._effects.append(LogOrder(client, text, is_refused))

    def _expel(self, peer: BrokerClient | Worker, reason: str) -> None:
        self._effects.append(Expel(peer.handle, reason, peer.port))

    # --- charging and fair shares --------------------------------------------------------------

    def tariff_at(self, job: Job, worker: Worker) -> Tariff:
        """The tariff of a job for tasks handed out now to a worker."""
        if job.spec.price is not None:
            return job.spec.price  # as it was quoted
        if worker.tariff is not None:
            return worker.tariff  # as its seller quoted it
        pool = worker.offer.pool
        if pool in self.occupancy.pools:  # without rules there are no reservations
            task_s = self.durations.of(job.spec.function)
            seats = self.occupancy.seats(pool, job, task_s, self._utc_s)
            if seats is not None:
                return self.charging.tariff_in(pool, seats, job.spec)
        return self.charging.tariff_for(pool, job.spec, "", self._utc_s)

    def _own_tariffs(self, spec: JobSpec) -> list[Tariff]:
        """The current tariffs of those of our own pools that may be able to run a job of our users.

        While no pool is known that can, those count whose workers were never seen; just after a
        start, all.
        """
        pools = [*self.tariffs]
        if not self._provisional.is_early(self._utc_s):
            able, shown = self.admission.pools(spec), self.admission.shown_pools()
            pools = [each for each in pools if (each in able if able else each not in shown)]
        return self.charging.own_tariffs(spec, pools, self._utc_s)

    def _share_out(self, event: events.SharesKnown, utc_s: UtcS) -> None:
        self.shares = None if event.rules is None else FairShares(event.rules)
        if self.shares is not None:
            self.shares.take_up(event.used_ns, utc_s)
            for job in self.jobs.values():
                self.shares.opened(job)
        self._dispatcher.share_out(self.shares)

    # --- jobs ----------------------------------------------------------------------------------

    def _job_opened(self, event: events.JobOpened, utc_s: UtcS) -> None:
        spec = self.spending.denominated(event.spec)
        known = self.jobs.get(event.job)
        if known is not None:
            self._job_taken_over(known, event, utc_s)
            return
        objection = self._history.objection(event)
        if objection is not None:
            self._tell(event.client, objection)
            return
        is_early = self._is_early(event, spec, utc_s)
        refusal = self._accounts.over_limit(event, self.limits) or self._refusal(spec, is_early)
        refusal = refusal or self.spending.refusal(spec)
        before = self._history.charged(event.job)
        if before is not None and before.function not in (b"", spec.function):
            refusal = Reason.BAD_REQUEST, f"job {event.job} was submitted with another function"
        if refusal is not None:
            self._tell(event.client, RejectJob(event.job, *refusal))
            return
        # A reopened job is partly done, and it was judged when it was new.
        unmet = None if event.again else self.peers.unmet(event.job, spec, spec.tasks or 1, utc_s)
        if unmet is not None:
            self._tell(event.client, _rejection(event.job, unmet))
            return
        job = self._new_job(event.job, spec, event.client, utc_s)
        self._history.take_up(job)
        self._control.take_up(job, event.hold, utc_s, is_known=before is not None)
        if self.admission.is_provisional(spec):
            self._provisional.take(job, utc_s)
        if not event.has_function:
            job.lacks_function_since_s = utc_s
            self._lacking.setdefault(spec.function, set()).add(job.id)
        self._write(opened_record(job), durable=spec.detached)

    def _job_taken_over(self, job: Job, event: events.JobOpened, utc_s: UtcS) -> None:
        """Handle a client that reopens a known job in a new session."""
        ours = (job.spec.user, job.spec.project, job.spec.function)
        if ours != (event.spec.user, event.spec.project, event.spec.function):
            reason = f"job {event.job} belongs to another user"
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

    def _places_left(self, event: events.PlacesLeft, utc_s: UtcS) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            return
        for assignment in job.assignments.values():
            if assignment.worker.offer.pool in event.pools and not assignment.recalled:
                assignment.recalled = True
                self._dispatcher.recall_all(assignment, kill=False)
        where = ", ".join(sorted(event.pools))
        job.note(
            utc_s,
            f"recalled unstarted tasks from {where}: by their measured duration, other "
            "pools cost less",
        )

    def _function_arrived(self, function: bytes) -> None:
        if function in self._lacking:
            self._arrived[function] = None
            self._end_lacking()

    def _end_lacking(self) -> None:
        """Go on with some of the jobs whose function has arrived."""
        left = LEFT_TURN_MAX
        while self._arrived and left > 0:
            function = next(iter(self._arrived))
            names = self._lacking.get(function, set())
            while names and left > 0:
                left -= 1
                job = self.jobs[names.pop()]
                job.lacks_function_since_s = None
                self._dispatcher.mark_ready(job)
            if not names:
                self._lacking.pop(function, None)
                del self._arrived[function]

    def _reject(self, job: Job, rejection: RejectJob, utc_s: UtcS) -> None:
        """End a job of which no task has run."""
        self._tell(job.client, rejection)
        for first, stop in job.withdraw():
            self._accounts.credit(job, stop - first)
        job.leaving, job.reason = "rejected", rejection.reason
        self._finish(job, utc_s)

    def _limits_unmet(self, job: Job, event: events.JobLimitsUnmet, utc_s: UtcS) -> None:
        if job.given_up:
            return  # the remaining tasks may all be done
        job.unmet = event.text
        job.note(utc_s, event.text or "all of it can be done within its limits again")
        if event.failure:
            job.given_up = event.failure
            self._dispatcher.recall_unstarted(job)
        self._completion.end_given_up(job)
        self._finish(job, utc_s)

    def _is_early(self, event: events.JobOpened, spec: JobSpec, utc_s: UtcS) -> bool:
        """Whether to accept a job before it is known which pool can run it, and judge it later.

        This holds just after a start: for a reopened job, which was accepted before, and for a job
        that a pool may run whose workers have not joined yet. Another site's job was judged at its
        quote.
        """
        if spec.price is not None or not self._provisional.is_early(utc_s):
            return False
        return event.again or self.admission.awaits_workers(spec)

    def note_trouble(self, trouble: str, mono_s: MonoS) -> None:
        """Note why the store accepts no writes; an empty `trouble` means that it works again.

        The time is monotonic here and in `is_stuck`: the system clock may be set meanwhile.
        """
        if not self.trouble:
            self._trouble_since_s = mono_s
        self.trouble = trouble

    def is_stuck(self, mono_s: MonoS) -> bool:
        """Whether the store has accepted no writes for so long that jobs are refused."""
        stuck_s = mono_s - self._trouble_since_s
        return bool(self.trouble) and stuck_s >= self.limits.store_wait_s

    def _refusal(self, spec: JobSpec, is_early: bool) -> tuple[str, str] | None:
        """Why no work of this kind is accepted at all, as code and sentence."""
        if self.is_stuck(self._mono_s):
            return Reason.STORE_TROUBLE, f"the gateway can't record work now: {self.trouble}"
        if self.draining:
            return Reason.DRAINING, "the gateway is draining and takes no new jobs"
        return self.admission.refusal(spec, is_early=is_early)

    def refusal(self, job: Job, worker: Worker, utc_s: UtcS) -> Refusal | None:
        """Why a worker can't take a task of a job now, apart from its room, or None."""
        if job.spec.hold is not None:
            return Refusal(Reason.HELD, "starts no task of it: {}", (held_text(job),))
        task_s = self.durations.of(job.spec.function)
        return (
            matching.refusal(job, worker)
            or matching.ends_too_soon(worker, matching.known_s(job, task_s), utc_s)
            or self.entitling.refusal(job, worker)
            or self.occupancy.refusal(job, worker, task_s, utc_s)
        )

    def _new_job(self, name: str, spec: JobSpec, client: int, utc_s: UtcS) -> Job:
        self._numbers += 1
        budget_accounts = self.budget_accounts.of(spec.whose)
        job = Job(
            name, spec, client, self._numbers, utc_s, spec.need, counted(spec.tags), budget_accounts
        )
        job.is_logged = self._keeps_output and spec.price is None  # for a buyer its own site does
        self.jobs[name] = job
        self._accounts.begin(job)
        if self.shares is not None:
            self.shares.opened(job)
        return job

    def _job_recovered(self, event: events.JobRecovered, utc_s: UtcS) -> None:
        if event.spec is None:
            self._history.remember(event)
            return
        job = self._new_job(event.job, event.spec, 0, event.submitted_at_s or utc_s)
        job.take_up(event)
        job.ended = RangeSet(event.ended)
        job.known = RangeSet(event.ended)
        job.failed, job.first_error = event.failed, event.first_error
        job.cancelled = event.cancelled
        job.done = len(job.ended) - event.failed - event.cancelled
        job.total = event.total
        if event.total is None:
            job.orphan_since_s = utc_s
            self._orphans.add(job.id)
        self._finish(job, utc_s)

    def _tasks_arrived(self, event: events.TasksArrived) -> None:
        job = self.jobs.get(event.job)
        if job is None or job.client != event.client or job.leaving:
            # It ended, or another session cancelled it, while these tasks were in flight.
            reason = (job.reason if job else "") or "the job has ended"
            span = [event.first, event.first + len(event.arguments)]
            rejection = RejectJob(event.job, Reason.JOB_NOT_FOUND, reason, {"tasks": span})
            self._tell(event.client, rejection)
            return
        first, stop = event.first, event.first + len(event.arguments)
        if event.objects:
            job.need_objects()
            self._effects.append(HoldObjects(job.id, job.spec.project, event.objects))
        if job.missed:
            job.reopen(first, stop)
        client = self.clients.get(event.client)
        # Tasks recovered from the store were accepted before.
        refused = self.entitling.over(job, first, stop) if event.client else []
        for low, high in refused:
            job.known.add(low, high)
            self._accounts.count(job, high - low)
        for low, high in job.known.missing(first, stop):
            arguments = event.arguments[low - first : high - first]
            run = QueuedBundle(low, arguments, sum(map(len, arguments)), job.attempt)
            job.enqueue(run)
            job.known.add(low, high)
            self._accounts.count(job, high - low)
            if job.spec.detached and client is not None:
                body = pack(run.arguments)
                self._write(records.BundleKept(job.id, low, high - low, body), durable=True)
        self._completion.queued(job)
        self.entitling.note_queue(job)
        if refused:
            self._completion.drop(job, refused, "queue", self.entitling.queue_text(job.spec))
            self._finish(job, self._utc_s)
        if client is None:
            return
        if job.spec.detached and self._accounts.kept.held_bytes > self.limits.kept_bytes_max:
            self._accounts.owe(job, client, stop, sum(map(len, event.arguments)))
        elif job.spec.detached:
            self._acknowledge(job, stop)
        excess = self._accounts.excess(client, self.limits)
        if excess:
            self._expel(client, excess)

    def _acknowledge(self, job: Job, stop: int) -> None:
        """Acknowledge a detached job's tasks, so that its client need not keep them."""
        self._tell(job.client, Kept(job.id, max(stop, job.owed_tasks), False))
        self._accounts.forgive(job)

    def _job_closed(self, event: events.JobClosed, utc_s: UtcS) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            # It was cancelled meanwhile, and its submitter waits for the acknowledgement.
            self._tell(
                event.client, RejectJob(event.job, Reason.JOB_NOT_FOUND, "the job has ended")
            )
            return
        if job.client != event.client:
            return
        if job.spec.tasks is None and not (job.ended or job.in_flight or event.elsewhere):
            unmet = self.peers.unmet(job.id, job.spec, event.total, utc_s) if event.total else None
            if unmet is not None:
                self._reject(job, _rejection(job.id, unmet), utc_s)
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
        self._finish(job, utc_s)

    def _finish(self, job: Job, utc_s: UtcS) -> None:
        """End the job if no task of it is left."""
        self.entitling.note_queue(job)
        if not job.is_over or job.id not in self.jobs:
            return
        self._losses.settle(job, utc_s)
        del self.jobs[job.id]
        self._dispatcher.forget(job)
        if self.shares is not None:
            self.shares.ended(job)
        if job.lacks_function_since_s is not None:
            lacking = self._lacking[job.spec.function]
            lacking.discard(job.id)
            if not lacking:
                del self._lacking[job.spec.function]
        state = job.leaving or "done"
        self._history.end(job, state)
        job.hold_bytes(-job.held_bytes)
        self._accounts.disown(job)
        counts = (job.done, job.failed, job.cancelled + job.interrupted)
        reason = job.reason or job.first_error
        self._write(records.JobEnded(job.id, state, reason, utc_s, *counts))

    def _cancel_asked(self, event: events.CancelAsked, utc_s: UtcS) -> None:
        job = self._withdrawals.ask(event, self.jobs.get(event.job))
        if job is not None:
            self._finish(job, utc_s)

    def _cancel(self, job: Job, ranges: list[Range], is_told: bool) -> None:
        self._completion.drop(job, ranges, "cancelled", "cancelled on request", tell=is_told)

    # --- reports of workers --------------------------------------------------------------------

    def _reported(self, event: events.Reported, utc_s: UtcS) -> None:
        worker = self.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker else None
        if worker is None or assignment is None:
            return  # a late report on a closed assignment: fenced
        first, stop = event.first, event.first + len(event.values)
        if assignment.left.within(first, stop) != [(first, stop)] or not is_sound(event):
            self._expel(worker, "the worker reported tasks that it does not have")
            return
        self._dispatcher.release(assignment, first, stop)
        assignment.recalled = assignment.recalls > 0
        if not assignment.left:
            self._withdrawals.closed(assignment.id)
        if event.failures and not worker.job:  # a contract's are checked by its purchase
            event = replace(event, failures=doubted(event.failures, ""))
        worker.tasks_done += stop - first
        self._probation.finished(worker, stop - first)
        usage = within_bounds(assignment, event.usage, utc_s)
        assignment.reported_ns += usage.wall_ns
        self._taken(assignment, event, usage)

    def _failed(self, assignment: Assignment, event: events.Reported) -> None:
        """Book our own report on released tasks, in place of their worker's."""
        self._taken(assignment, event, event.usage)

    def _taken(
        self, assignment: Assignment, event: events.Reported, usage: events.ReportUsage
    ) -> None:
        """Book the usage of released tasks, and end those tasks or queue them again."""
        job, worker, utc_s = assignment.job, assignment.worker, self._utc_s
        tasks, wall_ns = usage.tasks, usage.wall_ns
        if worker.job:  # reported by another site: limited to the time that has passed
            passed_s = max(0.0, utc_s - assignment.given_at_s)
            wall_ns = min(wall_ns, round(passed_s * worker.slots * 1e9))
        site = worker.offer.pool.partition("/")[0] if worker.job else ""
        preempted = sum(kind == "preempted" for _, kind in usage.failures)
        if preempted:
            text = f"{worker.offer.pool} stopped {preempted} of its tasks, to make room"
            job.note(utc_s, text)
        if all(kind != "lost" for _, kind in usage.failures):  # a loss is the worker's alone
            failed = len(usage.failures)
            self.durations.learn(job.spec.function, tasks, wall_ns, site, failed)
        usage = self._losses.with_owed(assignment, usage, utc_s)
        used = self.charging.used(assignment, usage, utc_s)
        self._book(job, assignment, used)
        cost_nanos = sum(record.charged_nanos for record in used)
        charge = Charge(
            usage.wall_ns, usage.cpu_ns, usage.peak_memory_bytes, cost_nanos, footprint_of(used)
        )
        again = self._completion.deliver(assignment, event, charge)
        for low, high in charged_for(used, [] if assignment.is_stopped else again):
            job.charged.add(low, high)
        self._completion.check_cost(job)
        self._finish(job, utc_s)

    def _book(self, job: Job, assignment: Assignment, used: list[records.UsageRecord]) -> None:
        """Write usage records, and charge them to fair shares and budgets."""
        for record in used:
            if self.shares is not None:
                self.shares.charge(assignment, record, self._utc_s)
            self._write(record)
        if job.budget_accounts or self.reserved:
            self.spending.charge(job, assignment.tariff, used, self._utc_s)

    def _begun(self, event: events.TasksBegun, utc_s: UtcS) -> None:
        worker = self.workers.get(event.worker)
        for number, task, ran_s in event.tasks if worker else ():
            assignment = worker.assignments.get(number) if worker else None
            if assignment is not None and task in assignment.left:
                begun_s = max(assignment.given_at_s, utc_s - ran_s)
                assignment.begun.setdefault(task, begun_s)
                self._overruns.begun(assignment.job)

    def _output_arrived(self, event: events.OutputArrived) -> None:
        """Keep the output of tasks that a worker has, if it is a job of ours; else ignore it."""
        worker = self.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker else None
        if assignment is None or not assignment.job.is_logged:
            return
        run = assignment.run
        pieces = tuple(each for each in event.pieces if run.first <= each[0] < run.stop)
        if pieces:
            self._effects.append(KeepOutput(assignment.job.id, pieces))

    def _keep_deadlines(self, utc_s: UtcS) -> None:
        """End queued tasks whose deadline has passed."""
        for job in islice(self._dispatcher.overdue(utc_s), LEFT_TURN_MAX):
            self._completion.drop_waiting(job, "deadline", f"the deadline of job {job.id} passed")
            self._finish(job, utc_s)

    def _handed_back(self, event: events.HandedBack, utc_s: UtcS) -> None:
        worker = self.workers.get(event.worker)
        assignment = worker.assignments.get(event.assignment) if worker else None
        if worker is None or assignment is None:
            self._withdrawals.closed(event.assignment)
            return
        returned = []
        for first, stop in event.ranges:
            if assignment.left.within(first, stop) != [(first, stop)]:
                self._expel(worker, "the worker returned tasks that it does not have")
                return
            returned.append((first, stop))
        if returned and worker.job and not assignment.recalls:
            tasks = sum(stop - first for first, stop in returned)
            assignment.job.note(utc_s, f"{worker.offer.pool} returned {tasks} of its tasks")
        assignment.recalls = 0 if event.of_all else max(0, assignment.recalls - 1)
        # Nothing to take: do not ask again until it reports.
        assignment.recalled = not returned or assignment.recalls > 0
        job = assignment.job
        for first, stop in returned:
            self._dispatcher.release(assignment, first, stop)
        for first, stop in reversed(self._withdrawals.came_back(assignment, returned)):
            self._completion.requeue(job, assignment.run.cut(first, stop))
        self._finish(job, utc_s)

    def _resumed(self, event: events.Resumed, utc_s: UtcS) -> None:
        worker = self.workers.get(event.worker)
        job = self.jobs.get(worker.job) if worker else None
        if worker is not None and job is not None:
            self._dispatcher.resume(event, worker, job, utc_s)
            if job.spec.hold is not None:
                self._dispatcher.recall_unstarted(job)

    # --- workers and clients that leave --------------------------------------------------------

    def _worker_gone(
        self,
        event: events.WorkerGone,
        utc_s: UtcS,
        overdue: Iterable[tuple[Assignment, int]] = (),
    ) -> None:
        """Take back the tasks of a worker; those in `overdue` fail at their time limit."""
        worker = self.roster.left(event.worker)
        if worker is None:
            return
        held = {each.job.id: each.job for each in worker.assignments.values()}
        has_begun = any(each.begun for each in worker.assignments.values())
        is_lost = bool(held) and not worker.job and (has_begun or not event.is_orderly)
        # A gateway that is late loses all its workers: their next sessions don't have to wait.
        is_its_own = is_lost and not event.was_late
        for handle in self._probation.left(worker, utc_s, is_lost=is_its_own):
            self._dispatcher.worker_index.note(handle)
        for assignment, task in overdue:
            self._losses.time_out(assignment, task, utc_s)
        self._losses.take_back(worker, event, utc_s)
        for job in held.values():
            self._completion.check_cost(job)
            self._finish(job, utc_s)

    def _turn_out(self, fault: Fault, utc_s: UtcS) -> None:
        """End the session of a worker that does not end its tasks: it is lost from now on.

        The site reports it gone once more when the session has ended; that changes nothing.
        """
        handle = fault.worker.handle
        self._worker_gone(events.WorkerGone(handle, fault.reason), utc_s, fault.tasks)
        self._dispatcher.worker_index.note(handle)
        self.occupancy.resize()
        self._expel(fault.worker, fault.reason)

    def _client_gone(self, event: events.ClientGone, utc_s: UtcS) -> None:
        client = self._accounts.leave(event.client)
        if client is None:
            return
        self._withdrawals.forget(event.client)
        self._left.extend((event.client, name) for name in client.jobs)
        self._end_left(utc_s)

    def _end_left(self, utc_s: UtcS) -> None:
        """Go on with some of the jobs whose client has left, unless it is back meanwhile."""
        for _ in range(min(LEFT_TURN_MAX, len(self._left))):
            client, name = self._left.popleft()
            job = self.jobs.get(name)
            if job is None or job.client != client:
                continue
            if job.spec.detached:
                self._accounts.forgive(job)
                job.client = 0
                job.orphan_since_s = utc_s if job.total is None else None
                self._orphans.add(job.id)
                self._dispatcher.refile(job)
            else:
                self._abandon(job, utc_s)

    def _abandon(self, job: Job, utc_s: UtcS, reason: str = "the client disconnected") -> None:
        """Stop a job whose client is gone: drop its queued tasks, kill its running ones."""
        finished = job.total is not None and len(job.ended) >= job.total
        waits = job.waiting or job.in_flight
        if not job.leaving and waits and not finished:
            job.leaving, job.reason = "abandoned", reason
        job.leaving = job.leaving or "done"
        for first, stop in job.withdraw():
            job.known.remove(first, stop)
        for assignment in list(job.assignments.values()):
            assignment.is_stopped = True
            self._dispatcher.recall_all(assignment, kill=True)
        self._dispatcher.mark_ready(job)
        self._finish(job, utc_s)

    def _drain_asked(self, event: events.DrainAsked) -> None:
        if event.worker == 0:
            self.draining = event.on
            return
        worker = self.workers.get(event.worker)
        if worker is None:
            return
        (worker.drained_by.add if event.on else worker.drained_by.discard)(event.by)
        worker.draining = bool(worker.drained_by)
        self._dispatcher.worker_index.note(event.worker)
        if event.by is events.Drainer.ITSELF or worker.draining is not event.on:
            return
        self._effects.append(SendToWorker(worker.handle, Drain(event.on), worker.port))
        for assignment in worker.assignments.values() if event.on else ():
            self._dispatcher.recall_all(assignment, kill=False)

    def _drain_ordered(self, event: events.DrainOrdered) -> None:
        """Begin or end an operator's drain, for all workers that it covers or no longer covers."""
        self.drains.take(event)
        for worker in list(self.workers.values()):
            is_covered = self.drains.cover(worker)
            if is_covered is not (events.Drainer.OPERATOR in worker.drained_by):
                self._drain_asked(events.DrainAsked(worker.handle, is_covered))

    def _obey_drains(self, worker: Worker) -> None:
        """Give no task to a worker that comes while an operator drains its host or name."""
        if self.drains.cover(worker):
            worker.drained_by.add(events.Drainer.OPERATOR)
            worker.draining = True

    def _end_for_money(self, ending: BudgetEnding, utc_s: UtcS) -> None:
        """End the tasks that a budget no longer pays for."""
        job = ending.job
        for assignment in ending.assignments:
            running = [part for pair in assignment.left for part in job.ended.missing(*pair)]
            if running:  # otherwise they are being stopped already
                self._completion.drop(job, running, "budget", ending.reason)
                self._dispatcher.recall_all(assignment, kill=True)
        if ending.is_waiting:
            self._completion.drop_waiting(job, "budget", ending.reason)
        self._finish(job, utc_s)

    def _ticked(self, event: events.Ticked, utc_s: UtcS) -> None:
        is_behind = event.is_behind or bool(self.trouble)
        for fault in self._overdue.look(utc_s, is_behind=is_behind):
            self._turn_out(fault, utc_s)
        for ending in (*self.spending.ticked(utc_s), *self._overruns.look(utc_s)):
            self._end_for_money(ending, utc_s)
        if self.shares is not None:
            self.shares.note_overdue(self.workers.values(), utc_s)
        for name in [name for names in self._lacking.values() for name in names]:
            job, limit_s = self.jobs[name], self.limits.function_wait_s
            if utc_s - (job.lacks_function_since_s or UtcS(0.0)) > limit_s:
                reason = f"the function did not arrive within {duration_text(limit_s)}"
                self._reject(job, RejectJob(job.id, Reason.FUNCTION_MISSING, reason), utc_s)
        for job, (code, reason) in self._provisional.look(self.jobs, utc_s):
            self._reject(job, RejectJob(job.id, code, reason), utc_s)
        for name in list(self._orphans):
            orphan = self.jobs.get(name)
            since_s = orphan.orphan_since_s if orphan is not None else None
            if orphan is None or since_s is None:
                self._orphans.discard(name)
            elif utc_s - since_s > ORPHAN_S and not orphan.leaving:
                orphan.orphan_since_s = None
                self._abandon(
                    orphan, utc_s, "the client disconnected before all tasks were submitted"
                )


def _rejection(job: str, unmet: Unmet) -> RejectJob:
    """The rejection of a job whose limits can't be met."""
    offers = [offer.to_plain() for offer in unmet.offers]
    return RejectJob(job, Reason.LIMITS_UNMET, unmet.text, {"offers": offers})
