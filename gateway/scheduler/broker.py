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
(holds and priorities), History (ended jobs), Draining (workers out of service), and for whole jobs
JobRegistry (begun and ended), Submissions (opened and closed), AwaitedFunctions and AbsentClients.
They know nothing of the broker; their effects join the broker's in order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, assert_never

from federation.clocks import MonoS, UtcS
from federation.messages.messages import Kept, RejectJob
from federation.messages.wire import pack
from federation.objects.labels import DataLabel, conflict, meet
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.words import duration_text
from gateway.ledger.db import records
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.dispatch.draining import Draining
from gateway.scheduler.graphs.waiting_calls import TaskFailure, WaitingCalls
from gateway.scheduler.lifecycle.absences import AbsentClients
from gateway.scheduler.lifecycle.awaited_functions import AwaitedFunctions
from gateway.scheduler.lifecycle.refusals import Refusals
from gateway.scheduler.lifecycle.registry import JobRegistry
from gateway.scheduler.lifecycle.submissions import Submissions
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
    Write,
)
from gateway.scheduler.model.events import Event
from gateway.scheduler.model.jobs import EVERY_TASK, Assignment, Job, QueuedBundle, Worker
from gateway.scheduler.model.peer_queries import NoPeers, PeerQueries
from gateway.scheduler.model.stored_terms import opened_record
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import Accounts, BrokerClient, ClientLimits
from gateway.scheduler.quotas.admission import Admission
from gateway.scheduler.quotas.fair_shares import FairShares
from gateway.scheduler.quotas.overruns import Overruns
from gateway.scheduler.quotas.preemption import Preemption
from gateway.scheduler.quotas.reserved import ReservedAmounts
from gateway.scheduler.quotas.roster import WorkerRoster
from gateway.scheduler.quotas.spending import BudgetEnding, BudgetEnforcement
from gateway.scheduler.tasks.charging import Charging
from gateway.scheduler.tasks.completion import TaskCompletion, doubted, is_sound
from gateway.scheduler.tasks.end_texts import deadline_text, inputs_deadline_text
from gateway.scheduler.tasks.history import History
from gateway.scheduler.tasks.job_control import JobControl, held_text
from gateway.scheduler.tasks.left_jobs import LeftJobs
from gateway.scheduler.tasks.losses import Losses
from gateway.scheduler.tasks.ordered_ends import OrderedEnds
from gateway.scheduler.tasks.overdue import Fault, Overdue
from gateway.scheduler.tasks.probation import Probation
from gateway.scheduler.tasks.provisional import Provisional
from gateway.scheduler.tasks.task_usage import charged_for, footprint_of, within_bounds
from gateway.scheduler.tasks.withdrawals import Withdrawals
from policies.costs.carbon import Emissions
from policies.costs.pricelist import PriceNow
from policies.placement.placement import CapacityOffer, Refusal, show_tags
from policies.tariffs import Tariff

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

    def __init__(  # noqa: PLR0913 - its parts at its birth, each by its name
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
        self.peers = peers or NoPeers()
        # The labels of those objects of a project, by their digests, that have any.
        self.labels_of: Callable[[str, tuple[bytes, ...]], list[DataLabel]] = lambda *_: []
        self.trouble = ""  # why the store accepts no writes; empty when it does
        self._trouble_since_s = MonoS(0.0)
        self._mono_s = MonoS(0.0)  # the time of this turn, by the monotonic clock
        self._effects: list[Effect] = []  # never replaced: the parts append to the same list
        self._accounts = Accounts()
        self.clients = self._accounts.clients
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
        self._draining = Draining(self.workers, self._dispatcher, self._effects)
        self.drains = self._draining.standing
        self.admission = Admission(self.roster, self.tariffs, self.entitling, self.peers)
        self._provisional = Provisional(self.admission.refusal, self.offers)
        self._history = History()
        self.graphs = WaitingCalls(
            *(self.jobs, self._effects),
            end=lambda *args, payload: self._completion.drop(*args, payload=payload),
            queue=lambda job: self._completion.queued(job),
            tell=self._tell,
            credit=self._accounts.credit,
            ended=self._history.fate,
            bytes_max=self._calls_bytes_max,
        )
        self._completion: TaskCompletion = TaskCompletion(
            *(self._accounts, self._dispatcher, self.roster, self.peers, self._effects),
            lambda job, ranges: self._losses.end_owing(job, ranges),
            self.graphs,
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
        self._ends = OrderedEnds(self._dispatcher, self._completion, self._effects)
        self._withdrawals = Withdrawals(
            *(self.clients, self._dispatcher, self._tell, self._cancel, self._log),
            lambda job, ranges: self._losses.end_owing(job, ranges),
            self._ends.order,
        )
        self._left_jobs = LeftJobs(
            self.clients, self._history, self._effects, self._tell, self._log
        )
        self._control = JobControl(self._dispatcher, self._effects, self._tell)
        self._probation = Probation(self.roster.is_awaited)
        self._overdue = Overdue(self.workers, self.limits.lease_s)
        self._overruns = Overruns()
        self._losses: Losses = Losses(
            *(self.charging, self._completion, self._withdrawals),
            release=self._dispatcher.release,
            book=self._book,
            fail=self._failed,
            losses_max=self.limits.losses_max,
        )
        self.spending = BudgetEnforcement(
            *(self.budget_accounts, self.reserved, self.jobs),
            self._own_tariffs,
            self.durations.of,
            lambda spec: self.peers.tariffs(spec, self._utc_s),
        )
        self._functions = AwaitedFunctions(self.jobs, self._dispatcher)
        self._registry = JobRegistry(
            *(self.jobs, self._accounts, self.budget_accounts, self._dispatcher, self._losses),
            *(self._history, self._functions, self._ends, self._effects),
            *(self._tell, self.graphs),
            keeps_output=keeps_output,
        )
        self._absent = AbsentClients(self._accounts, self._dispatcher, self._registry)
        self.refusals = Refusals()
        self._submissions = Submissions(
            registry=self._registry,
            absent=self._absent,
            functions=self._functions,
            accounts=self._accounts,
            limits=self.limits,
            dispatcher=self._dispatcher,
            admission=self.admission,
            provisional=self._provisional,
            spending=self.spending,
            history=self._history,
            control=self._control,
            peers=self.peers,
            closed_here=self._closed_here,
            tell=self._tell,
            ends=self._ends,
            effects=self._effects,
            refusals=self.refusals,
        )

    @property
    def shares(self) -> FairShares | None:
        """The fair shares of slots, if configured."""
        return self._registry.shares

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
            case events.OutcomesRead():
                self.graphs.read(event, utc_s)
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
                    self._registry.finish(self.jobs[event.job], utc_s)
            case events.JobLimitsUnmet():
                if event.job in self.jobs:
                    self._limits_unmet(self.jobs[event.job], event, utc_s)
            case events.JobHeld():
                self._dispatcher.hold_back(event, self.jobs.get(event.job))
            case events.Resumed():
                self._resumed(event, utc_s)
            case events.JobOpened():
                self._submissions.opened(event, utc_s)
            case events.FunctionArrived():
                self._functions.arrived(event.function, LEFT_TURN_MAX)
            case events.JobClosed():
                self._submissions.closed(event, utc_s)
                if (closed := self.jobs.get(event.job)) is not None and event.elsewhere:
                    self.graphs.ended_elsewhere(closed, event.elsewhere)
            case events.CancelAsked():
                self._cancel_asked(event, utc_s)
            case events.LeftJobChanged():
                self._left_jobs.change(event)
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
                self._draining.joined(self.workers[event.worker])
                self._dispatcher.worker_index.note(event.worker)
                self.occupancy.resize()
            case events.WorkerGone():
                self._worker_gone(event, utc_s)
                self._dispatcher.worker_index.note(event.worker)
                self.occupancy.resize()
            case events.JobRecovered():
                self._submissions.recovered(event, utc_s)
            case events.DrainAsked():
                if event.worker == 0:
                    self.draining = event.on
                else:
                    self._draining.asked(event)
                self.occupancy.resize()
            case events.Ticked():
                self._ticked(event, utc_s)
            case events.JobNoted():
                if event.job in self.jobs:
                    self.jobs[event.job].note(utc_s, event.text)
            case events.MoveCharged():
                self._move_charged(event, utc_s)
            case _:
                self._learn(event, utc_s)
        self._finish_touched(utc_s)
        accounts = self._accounts
        if accounts.owing and accounts.kept.held_bytes <= self.limits.kept_bytes_max:
            for job in list(accounts.owing.values()):
                self._acknowledge(job, job.owed_tasks)
        return self._take_effects()

    def _move_charged(self, event: events.MoveCharged, utc_s: UtcS) -> None:
        """Charge a job, or its owner where it is over, for objects that have moved."""
        record, job = event.record, self.jobs.get(event.job)
        if job is not None:
            record = replace(record, group=job.spec.group, tags=show_tags(job.spec.tags))
            job.charge(record)
        self.spending.charge_move(job, record, utc_s)
        self._write(record)

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
                self._draining.ordered(event)
                self.occupancy.resize()
            case events.SharesKnown():
                self._registry.share_out(event, utc_s)
            case events.EntitlementsKnown():
                self.entitling.take_in(event)
            case _:
                assert_never(event)

    def settle(self, utc_s: UtcS) -> list[Effect]:
        """Hand out waiting tasks to workers with room, and move work to workers that ran dry."""
        self._utc_s = utc_s
        self._absent.settle(utc_s, LEFT_TURN_MAX)
        self._functions.settle(LEFT_TURN_MAX)
        self._keep_deadlines(utc_s)
        self._finish_touched(utc_s)
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
        return (
            self._dispatcher.is_settled and self._absent.is_settled and self._functions.is_settled
        )

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

    def left_job(self, job: str) -> events.LeftJob | None:
        """Return an attached job that was abandoned lately, as far as it is remembered here."""
        return self._history.left(job)

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

    # --- jobs ----------------------------------------------------------------------------------

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

    def _limits_unmet(self, job: Job, event: events.JobLimitsUnmet, utc_s: UtcS) -> None:
        if job.given_up:
            return  # the remaining tasks may all be done
        job.unmet = event.text
        job.note(utc_s, event.text or "all of it can be done within its limits again")
        if event.failure:
            job.given_up = event.failure
            self._dispatcher.recall_unstarted(job)
        self._completion.end_given_up(job)
        self._registry.finish(job, utc_s)

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

    def _closed_here(self) -> tuple[str, str] | None:
        """Why no new work is taken here at all, as code and sentence."""
        if self.is_stuck(self._mono_s):
            return Reason.STORE_TROUBLE, f"the gateway can't record work now: {self.trouble}"
        if self.draining:
            return Reason.DRAINING, "the gateway is draining and takes no new jobs"
        return None

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
        if not self._may_read(job, event):
            return
        if event.objects:
            hold = HoldObjects(job.id, job.spec.scope, event.objects, (first, stop))
            self._effects.append(hold)
        if job.missed:
            job.reopen(first, stop)
        client = self.clients.get(event.client)
        # Tasks recovered from the store were accepted before.
        refused = self.entitling.over(job, first, stop) if event.client else []
        self._know(job, refused)
        for low, high in job.known.missing(first, stop):
            calls = event.arguments[low - first : high - first]
            self._take_in(job, low, calls, inputs=event.inputs, is_new=client is not None)
        self._completion.queued(job)
        self.entitling.note_queue(job)
        if refused:
            self._completion.drop(job, refused, "queue", self.entitling.queue_text(job.spec))
            self._registry.finish(job, self._utc_s)
        if client is None:
            return
        if job.spec.detached and self._accounts.kept.held_bytes > self.limits.kept_bytes_max:
            self._accounts.owe(job, client, stop, sum(map(len, event.arguments)))
        elif job.spec.detached:
            self._acknowledge(job, stop)
        excess = self._accounts.excess(client, self.limits)
        if excess:
            self._expel(client, excess)

    def narrow(self, name: str, labels: list[DataLabel], calls: Range | None = None) -> None:
        """Let the labels of objects hold for a job that was found late to refer to them.

        Where no place is left, those of `calls` that have not begun end; None: all calls.
        """
        job = self.jobs.get(name)
        if job is None or job.spec.price is not None:
            return
        why = self._no_place(job, labels)
        if why:
            wanted = EVERY_TASK if calls is None else RangeSet([calls])
            self._completion.drop(job, job.withdraw(wanted), "residency", why)
            self._dispatcher.mark_ready(job)
            self._registry.finish(job, self._utc_s)
        elif job.narrow(meet(labels)):
            self._narrowed(job)

    def _narrowed(self, job: Job) -> None:
        """File a job with a new label anew, and store the label with its terms.

        Its kept results and its output are read with that label once it has left memory.
        """
        self._dispatcher.refile(job)
        if not job.leaving:
            self._write(opened_record(job), durable=job.spec.detached)

    def _no_place(self, job: Job, labels: list[DataLabel]) -> str:
        """Return why labels of objects leave a job no place, or an empty text."""
        return conflict([job.spec.wishes.label, *labels]) or self.peers.why_nowhere(
            job.spec.narrowed(meet(labels))
        )

    def _may_read(self, job: Job, event: events.TasksArrived) -> bool:
        """Let the labels of its data hold for a job; end its new calls where no place is left.

        Returns whether there is one. Another site's job has its label from there.
        """
        if event.objects:
            job.need_objects()
        if job.spec.price is not None:
            return True
        of_objects = self.labels_of(job.spec.scope, event.objects) if event.objects else []
        labels = [*of_objects, event.label] if event.label else of_objects
        if not labels:
            return True
        why = self._no_place(job, labels)
        if not why:
            if job.narrow(meet(labels)):
                self._narrowed(job)
            return True
        ranges = job.known.missing(event.first, event.first + len(event.arguments))
        self._know(job, ranges)
        self._completion.drop(job, ranges, "residency", why)
        self._registry.finish(job, self._utc_s)
        return False

    def _know(self, job: Job, ranges: Iterable[Range]) -> None:
        """Count new calls of a job."""
        for first, stop in ranges:
            job.known.add(first, stop)
            self._accounts.count(job, stop - first)

    def _take_in(
        self, job: Job, first: int, calls: list[bytes], *, inputs: bool, is_new: bool
    ) -> None:
        """Queue new calls of a job, or let them wait for their inputs.

        `inputs`: some may have any. `is_new`: they come from a client, and not from the store.
        """
        count = len(calls)
        self._know(job, [(first, first + count)])
        if job.spec.detached and is_new:
            self._write(records.BundleKept(job.id, first, count, pack(calls)), durable=True)
        runs = [(first, calls)]
        if inputs and job.spec.price is None:
            runs = self.graphs.take(job, first, calls, self._utc_s)
        for start, each in runs:
            job.enqueue(QueuedBundle(start, each, sum(map(len, each)), job.attempt))

    def _acknowledge(self, job: Job, stop: int) -> None:
        """Acknowledge a detached job's tasks, so that its client need not keep them."""
        self._tell(job.client, Kept(job.id, max(stop, job.owed_tasks), False))
        self._accounts.forgive(job)

    def _cancel_asked(self, event: events.CancelAsked, utc_s: UtcS) -> None:
        known = self.jobs.get(event.job)
        left = self._left_jobs.of(event) if known is None else None
        if left is not None:
            self._left_jobs.cancel(event, left)
            return
        job = self._withdrawals.ask(event, known)
        if job is not None:
            for first, stop in event.ranges:  # calls that were cancelled before they were sent
                never = job.known.missing(first, stop)
                self.graphs.fell(job, never, TaskFailure("cancelled", "cancelled on request"))
            self._registry.finish(job, utc_s)

    def _calls_bytes_max(self, job: Job) -> int:
        """Return the bytes of filled calls up to which a client, or all detached jobs, have room.

        A quarter less than their limit, so that new calls are taken meanwhile.
        """
        limits = self.limits
        return 3 * (limits.kept_bytes_max if job.spec.detached else limits.bytes_max) // 4

    def _finish_touched(self, utc_s: UtcS) -> None:
        """End the jobs whose last call ended because of another's failure."""
        narrowed, self.graphs.narrowed = self.graphs.narrowed, {}
        for job in narrowed.values():
            self._narrowed(job)
        while self.graphs.touched:
            for job in self.graphs.take_touched():
                self._registry.finish(job, utc_s)

    def _cancel(self, job: Job, ranges: list[Range], reason: str, is_told: bool) -> None:
        self._completion.drop(job, ranges, "cancelled", reason, tell=is_told)

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
        self._registry.finish(job, utc_s)

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
        """End queued tasks, and calls that wait for inputs, whose deadline has passed."""
        for job in self.graphs.overdue(utc_s, LEFT_TURN_MAX):
            if not job.blocked:  # it has failed with a job before it
                continue
            sources = map(self.jobs.get, self.graphs.inputs_of(job))
            text = inputs_deadline_text(job, [each for each in sources if each is not None])
            self._completion.drop_blocked(job, "deadline", text)
            self._registry.finish(job, utc_s)
        overdue = self._dispatcher.overdue(utc_s, LEFT_TURN_MAX)
        # Ending queued tasks frees no slot: the answer is the same for all of them.
        is_full = bool(overdue) and all(
            each.in_flight >= each.slots for each in self.workers.values()
        )
        for job in overdue:
            measured_s = self.durations.of(job.spec.function)
            text = deadline_text(job, measured_s, is_full=is_full)
            self._completion.drop_waiting(job, "deadline", text)
            self._registry.finish(job, utc_s)

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
        if event.of_all:  # earlier orders about the rest may be lost
            self._ends.tell_seller(job, assignment.id)
        self._registry.finish(job, utc_s)

    def _resumed(self, event: events.Resumed, utc_s: UtcS) -> None:
        worker = self.workers.get(event.worker)
        job = self.jobs.get(worker.job) if worker else None
        if worker is not None and job is not None:
            self._dispatcher.resume(event, worker, job, utc_s)
            self._ends.tell_seller(job, event.assignment)
            if job.spec.hold is not None and not job.leaving:
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
            self._losses.time_out(assignment, task)
        self._losses.take_back(worker, event, utc_s)
        for job in held.values():
            self._completion.check_cost(job)
            self._registry.finish(job, utc_s)

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
        self._absent.left(event.client, list(client.jobs))
        self._absent.settle(utc_s, LEFT_TURN_MAX)

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
        self._registry.finish(job, utc_s)

    def _ticked(self, event: events.Ticked, utc_s: UtcS) -> None:
        is_behind = event.is_behind or bool(self.trouble)
        for fault in self._overdue.look(utc_s, is_behind=is_behind):
            self._turn_out(fault, utc_s)
        for ending in (*self.spending.ticked(utc_s), *self._overruns.look(utc_s)):
            self._end_for_money(ending, utc_s)
        if self.shares is not None:
            self.shares.note_overdue(self.workers.values(), utc_s)
        wait_s = self.limits.function_wait_s
        for job in self._functions.late(utc_s, wait_s):
            reason = f"the function did not arrive within {duration_text(wait_s)}"
            self._registry.reject(job, RejectJob(job.id, Reason.FUNCTION_MISSING, reason), utc_s)
        for job in self._ends.look() if self._ends.recovered else ():
            self._registry.finish(job, utc_s)
        self.graphs.look(utc_s)
        for job, (code, reason) in self._provisional.look(self.jobs, utc_s):
            self._registry.reject(job, RejectJob(job.id, code, reason), utc_s)
        self._absent.ticked(utc_s)
